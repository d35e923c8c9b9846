use std::time::Duration;

use tokio::sync::oneshot;
use tracing::debug;

use crate::{
    Attempt, Busy, Error, Grant, Guard, Locks, Moment, Result, Wake,
    backoff::{Backoff, random_part},
    janitor::Loose,
    keeper::close_called,
    line::Turn,
    locks::closed,
    mutants,
};

/// One claim that contends for a name, from the answer to its first attempt on.
#[derive(Debug)]
pub(crate) struct Waiter {
    locks: Locks,
    /// `None` once a guard was made of it.
    loose: Option<Loose>,
    turn: Turn,
    until: Option<Moment>,
    polls: Backoff,
    retries: Backoff,
    failing_since: Option<Moment>,
    /// When the claim was last told that the lock may be free.
    woken: Option<Moment>,
}

/// What an answer of the server leads to.
pub(crate) enum Outcome {
    Done(Result<Option<Guard>>),
    Again(Pause),
}

/// How to wait before asking again.
pub(crate) struct Pause {
    wake: Option<Wake>,
    at_most: Duration,
    /// What to answer if patience ends first.
    word: Result<()>,
}

impl Waiter {
    pub(crate) fn new(locks: Locks, loose: Loose, turn: Turn, until: Option<Moment>) -> Self {
        let woken = turn.told;
        Self {
            locks,
            loose: Some(loose),
            turn,
            until,
            polls: Backoff::new(Duration::from_millis(10), Duration::from_millis(500)),
            retries: Backoff::new(Duration::from_millis(20), Duration::from_secs(1)),
            failing_since: None,
            woken,
        }
    }

    /// Waits and asks until there is an answer, or until the caller is gone.
    pub(crate) async fn run(mut self, mut pause: Pause, mut caller: oneshot::Sender<Result<Option<Guard>>>) {
        let answer = loop {
            tokio::select! {
                biased;
                // Dropping `self` releases the claim.
                () = caller.closed() => return,
                outcome = self.turn_of(pause) => match outcome {
                    Outcome::Done(answer) => break answer,
                    Outcome::Again(next) => pause = next,
                }
            }
        };
        // A guard that nobody takes is dropped with the answer, and so released.
        let _ = caller.send(self.finish(answer).await);
    }

    /// Leaves the server's queue and the line before the caller hears that the lock is busy: it may ask
    /// again at once, and must not meet itself.
    pub(crate) async fn finish(mut self, answer: Result<Option<Guard>>) -> Result<Option<Guard>> {
        if let (Ok(None), Some(loose)) = (&answer, &self.loose)
            && self.locks.shared.verbs.release(loose.claim()).await.is_ok()
            && let Some(loose) = self.loose.take()
        {
            loose.gone();
        }
        answer
    }

    /// What the answer to an attempt leads to. The next in line is told.
    pub(crate) fn consider(&mut self, attempt: Result<Attempt>) -> Outcome {
        let attempt = attempt.and_then(|attempt| match attempt {
            Attempt::Held(grant) => self.keep(grant).map(Ok),
            Attempt::Busy(busy) => Ok(Err(busy)),
        });
        match attempt {
            Ok(Ok(guard)) => Outcome::Done(Ok(Some(guard))),
            Ok(Err(busy)) => self.busy(busy),
            Err(error) => self.failed(error),
        }
    }

    async fn turn_of(&mut self, pause: Pause) -> Outcome {
        let locks = self.locks.clone();
        let verbs = &locks.shared.verbs;
        let mut closing = locks.shared.closing.subscribe();
        let recheck = verbs.clock.now() + pause.at_most;
        let woken = tokio::select! {
            biased;
            () = close_called(&mut closing) => return Outcome::Done(Err(closed())),
            grant = woken(pause.wake) => Some(grant),
            () = verbs.at(self.until) => return Outcome::Done(pause.word.map(|()| None)),
            () = verbs.clock.sleep_until(recheck) => None,
        };
        self.woken = woken.is_some().then(|| verbs.clock.now());
        if let Some(Some(grant)) = woken
            && let Some(guard) = self.promoted(grant)
        {
            return Outcome::Done(Ok(Some(guard)));
        }
        let attempt = tokio::select! {
            biased;
            () = close_called(&mut closing) => return Outcome::Done(Err(closed())),
            attempt = verbs.acquire(self.claim()) => attempt,
        };
        self.consider(attempt)
    }

    /// Holds at once on a promotion's word alone, if at least half of the lease is left.
    fn promoted(&mut self, grant: Grant) -> Option<Guard> {
        let verbs = &self.locks.shared.verbs;
        let left = verbs.terms.valid_until(grant.lease).saturating_since(verbs.clock.now());
        if left < verbs.terms.usable(grant.lease.length) / 2 {
            return None;
        }
        self.keep(grant).ok()
    }

    fn keep(&mut self, grant: Grant) -> Result<Guard> {
        let shared = &self.locks.shared;
        let now = shared.verbs.clock.now();
        shared.check_of_use(self.claim(), &grant, now)?;
        let loose = self.loose.take().ok_or_else(consumed)?;
        let found_free = loose.claim().fresh;
        let guard = shared.keep(loose, grant, now);
        self.turn.holds(guard.ended(), found_free);
        if let Some(woken) = self.woken {
            shared.verbs.counters.handed_over(now.saturating_since(woken));
        }
        Ok(guard)
    }

    fn busy(&mut self, busy: Busy) -> Outcome {
        self.turn.heard(Ok(()));
        self.asked();
        self.failing_since = None;
        self.retries.reset();
        if self.is_out_of_patience() {
            return Outcome::Done(Ok(None));
        }
        let at_most = if busy.wake.is_some() {
            self.polls.reset();
            // The wake may be lost, so ask again when the holder's lease ends, or after a third of ours.
            let cap = (self.locks.shared.verbs.terms.ttl / 3).max(Duration::from_secs(2));
            let late = Duration::from_millis(25).min(busy.recheck_within / 20);
            busy.recheck_within.min(cap) + late.mul_f64(random_part())
        } else {
            busy.recheck_within.min(self.polls.pause())
        };
        Outcome::Again(Pause { wake: busy.wake, at_most, word: Ok(()) })
    }

    fn failed(&mut self, error: Error) -> Outcome {
        self.turn.heard(Err(error.clone()));
        let verbs = &self.locks.shared.verbs;
        let now = verbs.clock.now();
        let since = *self.failing_since.get_or_insert(now);
        // Without a patience the caller learns of a dead server after a whole lease.
        let hopeless = self.until.is_none() && now.saturating_since(since) >= verbs.terms.lease();
        let permanent = !error.is_transient() && !mutants::active("permanent-errors-retried");
        if permanent || hopeless || self.is_out_of_patience() {
            if error.is_refusal()
                && self.claim().fresh
                && let Some(loose) = self.loose.take()
            {
                loose.gone();
            }
            return Outcome::Done(Err(error));
        }
        debug!(name = %self.claim().name, %error, "asking again");
        self.asked();
        Outcome::Again(Pause { wake: None, at_most: self.retries.pause(), word: Err(error) })
    }

    fn is_out_of_patience(&self) -> bool {
        self.until.is_some_and(|until| self.locks.shared.verbs.clock.now() >= until)
    }

    fn asked(&mut self) {
        if let Some(loose) = &mut self.loose {
            loose.asked();
        }
    }

    fn claim(&self) -> &crate::Claim {
        // It is taken only for a guard, which is the last answer.
        self.loose.as_ref().expect("a waiter has its claim until it holds").claim()
    }
}

fn consumed() -> Error {
    Error::new(crate::ErrorKind::Internal, "the claim is held already")
}

async fn woken(wake: Option<Wake>) -> Option<Grant> {
    match wake {
        Some(wake) => wake.await,
        None => std::future::pending().await,
    }
}
