use std::time::Duration;

use lock_core::{Fairness, Fault, Faults, Guarantees, Scope, Takeover, Wakeup};

use crate::options::TICK;

/// What the faults are that exclusion and fencing survive: what is acknowledged is on a majority's disks,
/// sessions are counted by a monotonic clock, and tokens are transaction numbers.
const SURVIVED: Faults = Faults::of(&[
    Fault::HolderCrash,
    Fault::HolderPause,
    Fault::Partition,
    Fault::ServerRestart,
    Fault::Failover,
]);

/// What is promised of a server with ZooKeeper's usual ticks.
pub(crate) fn least() -> Guarantees {
    with_ticks_of(TICK)
}

/// What is promised when the server's tick is known.
pub(crate) fn with_ticks_of(tick: Duration) -> Guarantees {
    let mut promised = Guarantees::nothing("ZooKeeper", Scope::Network);
    promised.exclusion = SURVIVED;
    promised.fencing = SURVIVED;
    promised.takeover = Takeover::AfterLease;
    promised.expiry_lag = tick.saturating_mul(2).saturating_add(Duration::from_millis(100));
    promised.fairness = Fairness::FifoByClaim;
    promised.wakeup = Wakeup::Push;
    promised
}
