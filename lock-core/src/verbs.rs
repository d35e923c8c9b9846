use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    Attempt, Backend, Claim, Clock, Error, ErrorKind, Moment, Released, Renewal, Result,
    backoff::Backoff,
    mutants,
    options::Terms,
    statistics::{Counters, Statistics},
    wrap::Meter,
};

/// The backend as core uses it: every verb with a time limit, and the one clean-up for all cases.
#[derive(Debug)]
pub(crate) struct Verbs {
    backend: Box<dyn Backend>,
    meter: Meter,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) terms: Terms,
    pub(crate) counters: Counters,
}

impl Verbs {
    pub(crate) fn new(backend: Box<dyn Backend>, clock: Arc<dyn Clock>, terms: Terms) -> Self {
        Self { backend, meter: Meter::default(), clock, terms, counters: Counters::default() }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    pub(crate) async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let limit = self.terms.verb_limit;
        let verb = self.meter.acquire(claim, (*self.backend).acquire(claim));
        self.limited(self.clock.now(), limit, "acquiring", claim, verb).await
    }

    pub(crate) async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        let limit = self.terms.renewal_limit();
        let verb = self.meter.renew(claim, (*self.backend).renew(claim));
        self.limited(self.clock.now(), limit, "renewing", claim, verb).await
    }

    pub(crate) async fn release(&self, claim: &Claim) -> Result<Released> {
        self.release_within(self.clock.now(), self.terms.verb_limit, claim).await
    }

    async fn release_within(&self, now: Moment, limit: Duration, claim: &Claim) -> Result<Released> {
        self.limited(
            now,
            limit,
            "releasing",
            claim,
            self.meter.release(claim, (*self.backend).release(claim)),
        )
        .await
    }

    async fn limited<T>(
        &self,
        now: Moment,
        limit: Duration,
        doing: &str,
        claim: &Claim,
        verb: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let over = now + limit;
        let answer = tokio::select! {
            biased;
            answer = verb => answer,
            () = self.clock.sleep_until(over), if !mutants::active("verbs-without-a-limit") => {
                Err(Error::new(ErrorKind::Timeout, format!("the server gave no answer within {limit:?}")))
            }
        };
        answer.map_err(|error| error.during(doing, &claim.name))
    }

    /// Ends a claim, whatever became of it: the answer to every cancellation, give-up, unknown outcome
    /// and drop, and to an orderly release.
    ///
    /// It asks until the server answers, or refuses for good, or until a moment. After an unknown outcome
    /// `Absent` is what an earlier request of its own left, and so `Released`.
    pub(crate) async fn end(&self, claim: &Claim, until: Moment) -> Result<Released> {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut unknown = false;
        loop {
            let now = self.clock.now();
            let limit = until.saturating_since(now).min(self.terms.verb_limit);
            let error = match self.release_within(now, limit, claim).await {
                Ok(_) if unknown => return Ok(Released::Released),
                Ok(released) => return Ok(released),
                Err(error) => error,
            };
            unknown = true;
            let again = self.clock.now() + backoff.pause();
            if !error.is_transient() || again >= until {
                return Err(error);
            }
            self.clock.sleep_until(again).await;
        }
    }

    pub(crate) async fn pause(&self, length: Duration) {
        self.clock.sleep_until(self.clock.now() + length).await;
    }

    pub(crate) async fn at(&self, moment: Option<Moment>) {
        match moment {
            Some(moment) => self.clock.sleep_until(moment).await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let mut statistics = self.counters.snapshot();
        [statistics.acquire, statistics.renew, statistics.release] = self.meter.verbs();
        statistics
    }
}
