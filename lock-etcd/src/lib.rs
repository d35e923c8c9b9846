#![doc = include_str!("../README.md")]

mod backend;
mod options;

mod claims;
mod cluster;
mod dial;
mod error;
mod keys;
mod lease;
mod pool;
mod queue;
mod version;
mod view;
mod watch;

use std::time::Duration;

use lock_core::{Backend, Driver, Fairness, Fault, Faults, Guarantees, Scope, Wakeup};

pub use backend::EtcdBackend;
pub use options::EtcdOptions;

/// `etcd://` and `etcds://` URLs.
pub const DRIVER: Driver = Driver {
    name: "etcd",
    schemes: &["etcd", "etcds"],
    example: "etcd://127.0.0.1:2379",
    guarantees,
    connect: |url| {
        Box::pin(async move {
            let backend = EtcdBackend::connect(EtcdOptions::from_url(url)?).await?;
            Ok(Box::new(backend) as Box<dyn Backend>)
        })
    },
    key: |url, name| Ok(EtcdOptions::from_url(url.clone())?.prefix.lock(name)),
};

/// What holds on every etcd: its revisions and leases go through raft, and its leases are counted by a
/// clock that does not step.
fn guarantees() -> Guarantees {
    const SURVIVED: Faults = Faults::of(&[
        Fault::HolderCrash,
        Fault::HolderPause,
        Fault::Partition,
        Fault::ServerRestart,
        Fault::Failover,
        Fault::ServerClockStep,
        Fault::Eviction,
    ]);
    let mut guarantees = Guarantees::nothing("etcd", Scope::Network);
    guarantees.exclusion = SURVIVED;
    guarantees.fencing = SURVIVED;
    // The server looks for expired leases twice a second, and removes them through raft.
    guarantees.expiry_lag = Duration::from_secs(1);
    guarantees.fairness = Fairness::FifoByClaim;
    guarantees.wakeup = Wakeup::Push;
    guarantees
}
