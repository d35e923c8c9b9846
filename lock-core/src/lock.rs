use std::{fmt, time::Duration};

use tokio::sync::oneshot;

use crate::{
    Attempt, Error, ErrorKind, Guard, Locks, Moment, Name, Result,
    keeper::close_called,
    line::{Place, Turn},
    locks::closed,
    wait::{Outcome, Waiter},
};

/// For how long the head of a line does without a place in the server's queue.
const SOON: Duration = Duration::from_millis(1);

/// The lock of one name. Cheap to clone; asking for it costs nothing until it is acquired.
///
/// There is no reentrancy: a second acquire waits for the first guard, whoever asks, for a task is not
/// a thread. Tasks of one process are served in order.
#[derive(Clone)]
pub struct Lock {
    pub(crate) name: Name,
    pub(crate) locks: Locks,
}

impl Lock {
    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Waits until the lock is held.
    ///
    /// # Errors
    ///
    /// At once what asking again cannot mend: [`ErrorKind::Denied`], [`ErrorKind::Foreign`], … A server
    /// that cannot be reached is asked again until it has not answered for a whole lease; then the last
    /// error. [`ErrorKind::TooManyWaiters`], [`ErrorKind::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it at any await leaves the line and the server's queue; a lock that was granted
    /// meanwhile is released in the background.
    pub async fn acquire(&self) -> Result<Guard> {
        match self.within(None).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::new(ErrorKind::Internal, "a wait without an end has ended")),
        }
    }

    /// Waits up to `patience`; `None` if the lock was still busy then.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); and the last error, at the latest one verb limit after the patience,
    /// if the server's last word was not that the lock is busy.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, patience: Duration) -> Result<Option<Guard>> {
        let until = self.locks.shared.verbs.clock.now() + patience;
        self.within(Some(until)).await
    }

    /// Asks the server once; `None` if the lock is busy, or if tasks of this process wait for it already.
    ///
    /// # Errors
    ///
    /// Whatever kept the server from answering; the outcome is unknown and cleaned up in the background.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        let shared = &self.locks.shared;
        shared.check_open()?;
        if shared.lines.is_waited_for(&self.name) {
            return Ok(None);
        }
        let loose = shared.claim(&self.name, false)?;
        match shared.verbs.acquire(loose.claim()).await {
            Ok(Attempt::Held(grant)) => {
                let now = shared.verbs.clock.now();
                shared.check_of_use(loose.claim(), &grant, now)?;
                Ok(Some(shared.keep(loose, grant, now)))
            }
            Ok(Attempt::Busy(_)) => {
                // A try leaves nothing behind when it is busy.
                loose.gone();
                Ok(None)
            }
            Err(error) => {
                if error.is_refusal() {
                    loose.gone();
                }
                Err(error)
            }
        }
    }

    async fn within(&self, until: Option<Moment>) -> Result<Option<Guard>> {
        let shared = &self.locks.shared;
        shared.check_open()?;
        let place = shared.lines.enter(&self.name)?;
        let Some(turn) = self.take_turn(place, until).await? else { return Ok(None) };
        let loose = shared.claim(&self.name, true)?;

        // The first attempt runs here, in the caller's task: the free lock costs no task but its keeper.
        let attempt = shared.verbs.acquire(loose.claim()).await;
        let mut waiter = Waiter::new(self.locks.clone(), loose, turn, until);
        match waiter.consider(attempt) {
            Outcome::Done(answer) => waiter.finish(answer).await,
            // From the first busy on the claim may stand in a queue, which must not depend on whether the
            // caller polls: so it waits on the runtime of the locks.
            Outcome::Again(pause) => {
                let (caller, answer) = oneshot::channel();
                shared.tasks.spawn_on(waiter.run(pause, caller), &shared.runtime);
                answer.await.unwrap_or_else(|_| {
                    Err(Error::new(ErrorKind::NoRuntime, "the runtime of the locks has shut down"))
                })
            }
        }
    }

    /// Waits for the head of the line; `None` if patience ends and the head last heard "busy".
    async fn take_turn(&self, place: Place, until: Option<Moment>) -> Result<Option<Turn>> {
        if place.try_turn() {
            return Ok(Some(place.at_head()));
        }
        let shared = &self.locks.shared;
        let verbs = &shared.verbs;
        let mut closing = shared.closing.subscribe();
        tokio::select! {
            biased;
            () = place.turn() => {
                let mut turn = place.at_head();
                if let Some(ended) = turn.comes_after() {
                    tokio::select! {
                        biased;
                        () = close_called(&mut closing) => return Err(closed()),
                        () = ended.cancelled() => turn.told = Some(verbs.clock.now()),
                        () = verbs.pause(SOON) => {}
                    }
                }
                return Ok(Some(turn));
            }
            () = close_called(&mut closing) => return Err(closed()),
            () = verbs.at(until) => {}
        }
        tokio::select! {
            biased;
            word = place.word() => word.map(|()| None),
            () = close_called(&mut closing) => Err(closed()),
            () = verbs.pause(verbs.terms.verb_limit) => {
                let text = "no task of this process had an answer from the server in time";
                Err(Error::new(ErrorKind::Timeout, text).during("acquiring", &self.name))
            }
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.name).finish_non_exhaustive()
    }
}
