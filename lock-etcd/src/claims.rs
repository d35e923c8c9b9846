use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lock_core::{Claim, Moment, Name, Owner};

use crate::lease::Lease;

/// What is remembered of the claims that were made through this backend: an optimisation, since all of it
/// can be read from the server; but for what a cut-off request may still do there.
#[derive(Debug)]
pub(crate) struct Claims(Mutex<Known>);

#[derive(Debug)]
struct Known {
    by_claim: HashMap<(Name, Owner), Entry>,
    sweep_at: usize,
}

/// One claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) lease: Lease,
    /// The revision that made its key; `None` while a request to make it is not answered.
    pub(crate) created: Option<i64>,
    /// Whether a request to make the key was given up: it may yet arrive, as long as its lease lives. Such
    /// a lease is revoked in the end, and never serves another claim.
    pub(crate) in_doubt: bool,
    /// When the server was last asked for its place.
    pub(crate) placed: Moment,
    /// Whether it was granted the lock.
    pub(crate) is_held: bool,
}

impl Entry {
    /// A claim that will have this lease.
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, created: None, in_doubt: false, placed: Moment::now(), is_held: false }
    }

    /// How long ago the server was asked for its place.
    pub(crate) fn placed_for(&self) -> Duration {
        Moment::now().saturating_since(self.placed)
    }
}

/// From this many entries on those are dropped that nobody released and whose lease is over.
const FIRST_SWEEP: usize = 1024;

impl Claims {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Known { by_claim: HashMap::new(), sweep_at: FIRST_SWEEP }))
    }

    pub(crate) fn of(&self, claim: &Claim) -> Option<Entry> {
        self.lock().by_claim.get(&key(claim)).copied()
    }

    pub(crate) fn remember(&self, claim: &Claim, entry: Entry) {
        let mut known = self.lock();
        if known.by_claim.len() >= known.sweep_at {
            known.by_claim.retain(|_, entry| !entry.lease.is_over());
            known.sweep_at = FIRST_SWEEP.max(known.by_claim.len() * 2);
        }
        known.by_claim.insert(key(claim), entry);
    }

    pub(crate) fn forget(&self, claim: &Claim) -> Option<Entry> {
        self.lock().by_claim.remove(&key(claim))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(claim: &Claim) -> (Name, Owner) {
    (claim.name.clone(), claim.owner)
}
