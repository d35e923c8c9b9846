//! Locks inside one process: the reference model of the contract, and the backend for tests.
//!
//! It has everything that a backend can have: leases, a queue in order of claims, promotion by the
//! release, and wakes that carry the grant. It survives no fault, for it lives and dies with the
//! process.

mod store;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use self::store::Store;
use crate::{
    Attempt, Backend, Claim, Clock, Driver, Fairness, Guarantees, Moment, Name, Released, Renewal, Result,
    Scope, Url, Wakeup,
};

/// How `memory:` becomes a backend: every connection is a store of its own.
pub const DRIVER: Driver = Driver {
    name: "memory",
    schemes: &["memory"],
    example: "memory:",
    guarantees,
    connect: |url| {
        Box::pin(async move {
            check(&url)?;
            Ok(Box::new(Memory::new()) as Box<dyn Backend>)
        })
    },
    key: |url, name| {
        check(url)?;
        Ok(format!("{name} (in the memory of one process)"))
    },
};

/// A store of locks in memory. Clones share it: they contend; two stores do not.
#[derive(Clone, Default)]
pub struct Memory {
    store: Arc<Mutex<Store>>,
    clock: Option<Arc<dyn Clock>>,
}

impl Memory {
    /// An empty store on the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store on a clock of the caller's, the same that its [`Locks`](crate::Locks) use.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { store: Arc::default(), clock: Some(clock) }
    }

    /// How many names have a holder or a waiter.
    #[must_use]
    pub fn names(&self) -> usize {
        self.store().names()
    }

    /// Takes a lock from whoever holds it, as an operator would who deletes its key.
    ///
    /// Returns whether it was held.
    pub fn revoke(&self, name: &Name) -> bool {
        let now = self.now();
        self.store().revoke(name, now)
    }

    fn now(&self) -> Moment {
        self.clock.as_ref().map_or_else(Moment::now, |clock| clock.now())
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for Memory {
    fn guarantees(&self) -> Guarantees {
        guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let now = self.now();
        Ok(self.store().acquire(claim, now))
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        let now = self.now();
        Ok(self.store().renew(claim, now))
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let now = self.now();
        Ok(self.store().release(claim, now))
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

fn guarantees() -> Guarantees {
    let mut guarantees = Guarantees::nothing("memory", Scope::Process);
    guarantees.fairness = Fairness::FifoByClaim;
    guarantees.wakeup = Wakeup::Push;
    guarantees
}

fn check(url: &Url) -> Result<()> {
    url.deny_unknown_options(&[])?;
    if url.rest().is_empty() {
        return Ok(());
    }
    Err(crate::Error::invalid_input("memory: stands alone; share a store by cloning its Locks, not by name"))
}
