//! A memory store behind a simulated wire, on paused time.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{sync::Arc, time::Duration};

use lock_core::{
    Locks, Options, PausedClock,
    memory::Memory,
    wrap::{Faulty, Script},
};

pub(crate) const TTL: Duration = Duration::from_secs(10);

/// One store, its time, and any number of clients.
pub(crate) struct World {
    pub(crate) clock: PausedClock,
    pub(crate) store: Memory,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = PausedClock::new();
        let store = Memory::with_clock(Arc::new(clock.clone()));
        Self { clock, store }
    }

    pub(crate) fn options() -> Options {
        Options::default().with_ttl(TTL)
    }

    /// A client with a wire of its own.
    pub(crate) fn client(&self) -> (Locks, Script) {
        self.client_with(Self::options())
    }

    pub(crate) fn client_with(&self, options: Options) -> (Locks, Script) {
        let (backend, script) = Faulty::new(self.store.clone());
        let locks = Locks::with_clock(backend, options, Arc::new(self.clock.clone())).unwrap();
        (locks, script)
    }
}

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
