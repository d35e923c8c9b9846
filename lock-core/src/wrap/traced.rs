use std::{
    fmt,
    future::Future,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tracing::{Instrument, debug, debug_span};

use crate::{Attempt, Backend, Claim, Guarantees, Released, Renewal, Result};

/// Puts a `tracing` span round every verb, and counts and times them.
///
/// [`Locks`](crate::Locks) does the same with every backend; its numbers are in
/// [`Statistics`](crate::Statistics).
#[derive(Debug)]
pub struct Traced<B> {
    backend: B,
    meter: Meter,
}

/// How often a verb was called, and how long the server took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerbStatistics {
    /// Calls begun. Those dropped before an answer, by a time limit say, count here only.
    pub calls: u64,
    /// Calls answered.
    pub answers: u64,
    /// Answers that were errors.
    pub errors: u64,
    /// The sum of the times to an answer.
    pub total: Duration,
    /// The longest time to an answer.
    pub max: Duration,
}

impl<B: Backend> Traced<B> {
    /// Wraps a backend.
    #[must_use]
    pub fn new(backend: B) -> Self {
        Self { backend, meter: Meter::default() }
    }

    /// The numbers of `acquire`, `renew` and `release`, in this order.
    #[must_use]
    pub fn verbs(&self) -> [VerbStatistics; 3] {
        self.meter.verbs()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for Traced<B> {
    fn guarantees(&self) -> Guarantees {
        self.backend.guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.meter.acquire(claim, self.backend.acquire(claim)).await
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        self.meter.renew(claim, self.backend.renew(claim)).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.meter.release(claim, self.backend.release(claim)).await
    }
}

/// The spans and numbers of the three verbs.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    acquire: Counter,
    renew: Counter,
    release: Counter,
}

impl Meter {
    pub(crate) fn acquire(
        &self,
        claim: &Claim,
        verb: impl Future<Output = Result<Attempt>> + Send,
    ) -> impl Future<Output = Result<Attempt>> + Send {
        let span = debug_span!("acquire", name = %claim.name, owner = ?claim.owner, queue = claim.queue);
        self.acquire.time(verb).instrument(span)
    }

    pub(crate) fn renew(
        &self,
        claim: &Claim,
        verb: impl Future<Output = Result<Renewal>> + Send,
    ) -> impl Future<Output = Result<Renewal>> + Send {
        let span = debug_span!("renew", name = %claim.name, owner = ?claim.owner);
        self.renew.time(verb).instrument(span)
    }

    pub(crate) fn release(
        &self,
        claim: &Claim,
        verb: impl Future<Output = Result<Released>> + Send,
    ) -> impl Future<Output = Result<Released>> + Send {
        let span = debug_span!("release", name = %claim.name, owner = ?claim.owner);
        self.release.time(verb).instrument(span)
    }

    pub(crate) fn verbs(&self) -> [VerbStatistics; 3] {
        [&self.acquire, &self.renew, &self.release].map(Counter::snapshot)
    }
}

#[derive(Debug, Default)]
struct Counter {
    calls: AtomicU64,
    answers: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
    max_nanos: AtomicU64,
}

impl Counter {
    async fn time<T: fmt::Debug + Send>(&self, verb: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.calls.fetch_add(1, Relaxed);
        let start = Instant::now();
        let answer = verb.await;
        let took = start.elapsed();
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.answers.fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
        self.max_nanos.fetch_max(nanos, Relaxed);
        match &answer {
            Ok(answer) => debug!(?answer, ?took, "answered"),
            Err(error) => {
                self.errors.fetch_add(1, Relaxed);
                debug!(%error, ?took, "failed");
            }
        }
        answer
    }

    fn snapshot(&self) -> VerbStatistics {
        VerbStatistics {
            calls: self.calls.load(Relaxed),
            answers: self.answers.load(Relaxed),
            errors: self.errors.load(Relaxed),
            total: Duration::from_nanos(self.nanos.load(Relaxed)),
            max: Duration::from_nanos(self.max_nanos.load(Relaxed)),
        }
    }
}
