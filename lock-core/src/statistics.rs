use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use crate::wrap::VerbStatistics;

/// What happened so far on one [`Locks`](crate::Locks), for a health endpoint or a metrics recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Guards that are alive and not lost.
    pub held: usize,
    /// Calls of `acquire` and `acquire_within` that are not answered yet.
    pub waiting: usize,
    /// Guards handed out.
    pub acquired: u64,
    /// Guards that ended because they were released or dropped.
    pub released: u64,
    /// Guards that were lost.
    pub lost: u64,
    /// Renewals that the server confirmed.
    pub renewals: u64,
    /// Renewals that failed or were not answered in time. Each is repeated until the lease runs out.
    pub renewal_failures: u64,
    /// Claims whose release was never answered: the server forgets them when their lease ends.
    pub abandoned: u64,
    /// From being told that a lock may be free to holding it.
    pub handover: Handover,
    /// Requests to acquire.
    pub acquire: VerbStatistics,
    /// Requests to renew.
    pub renew: VerbStatistics,
    /// Requests to release.
    pub release: VerbStatistics,
}

/// How long it took waiters to hold the lock once they were told that it may be free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handover {
    /// How often it happened.
    pub count: u64,
    /// The sum of their times.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) held: AtomicUsize,
    pub(crate) acquired: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) renewals: AtomicU64,
    pub(crate) renewal_failures: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    handovers: AtomicU64,
    handover_nanos: AtomicU64,
    handover_max_nanos: AtomicU64,
}

impl Counters {
    pub(crate) fn handed_over(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.handovers.fetch_add(1, Relaxed);
        self.handover_nanos.fetch_add(nanos, Relaxed);
        self.handover_max_nanos.fetch_max(nanos, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Statistics {
        Statistics {
            held: self.held.load(Relaxed),
            acquired: self.acquired.load(Relaxed),
            released: self.released.load(Relaxed),
            lost: self.lost.load(Relaxed),
            renewals: self.renewals.load(Relaxed),
            renewal_failures: self.renewal_failures.load(Relaxed),
            abandoned: self.abandoned.load(Relaxed),
            handover: Handover {
                count: self.handovers.load(Relaxed),
                total: Duration::from_nanos(self.handover_nanos.load(Relaxed)),
                max: Duration::from_nanos(self.handover_max_nanos.load(Relaxed)),
            },
            ..Statistics::default()
        }
    }
}
