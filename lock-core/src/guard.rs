use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{Error, ErrorKind, FencingToken, Loss, Name, Owner, Released, Result, hold::Hold};

/// A held lock. It is renewed in the background until it is released, dropped or lost.
///
/// Dropping a guard releases the lock in the background: at once where its runtime lives, with the end
/// of its lease otherwise. It works outside a runtime and after its shutdown; it does no I/O and never
/// blocks. [`release`](Self::release) waits for the server's word.
///
/// The guard is the proof of holding: pass `&Guard` to what must not run without it. To share it, put
/// it into an `Arc`. It does not survive `fork`.
#[must_use = "dropping a guard releases its lock at once"]
pub struct Guard {
    hold: Arc<Hold>,
}

/// What [`Guard::release`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// It was held until now, and is free.
    Released,
    /// It was lost before.
    AlreadyLost(Loss),
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self { hold }
    }

    /// Fires when it is released, dropped or lost.
    pub(crate) fn ended(&self) -> &CancellationToken {
        self.hold.ended()
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.hold.claim.name
    }

    /// The number to send with every write that this lock protects. It never changes.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.hold.token
    }

    /// The random owner of this acquisition, as it stands on the server.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.hold.claim.owner
    }

    /// For how long one confirmed lease may be used: what the server gave, less grace, drift and margin.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.hold.usable()
    }

    /// Whether the lock is held at this moment, by the clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.loss().is_none()
    }

    /// How much of the confirmed lease is left at this moment; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Refuses to begin what may take longer than the lease that is left.
    ///
    /// What was begun may overrun all the same; only the [fencing token](Self::fencing_token) covers that.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if the lock is lost, [`ErrorKind::Unmet`] if less is left.
    pub fn ensure(&self, min_remaining: Duration) -> Result<()> {
        let remaining = self.remaining();
        if let Some(loss) = self.hold.loss() {
            return Err(loss.into());
        }
        if remaining < min_remaining {
            let text =
                format!("{remaining:?} of the lease are left, less than the {min_remaining:?} required");
            return Err(Error::new(ErrorKind::Unmet, text));
        }
        Ok(())
    }

    /// Resolves when the lock is no longer held, and says why: [`Loss::Released`] after an orderly end.
    ///
    /// It reads the clock whenever it is polled, so the first poll after a suspend or a stop is right
    /// even if no timer has fired yet.
    ///
    /// # Cancel safety
    ///
    /// Dropping it changes nothing; ask for another one at any time.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let hold = self.hold.clone();
        async move {
            let end = async {
                while hold.loss().is_none() {
                    tokio::select! {
                        () = hold.ended().cancelled() => {}
                        () = hold.verbs().clock.sleep_until(hold.valid_until()) => {}
                    }
                }
            };
            let mut end = pin!(end);
            poll_fn(|context| match hold.loss() {
                Some(loss) => Poll::Ready(loss),
                None => end.as_mut().poll(context).map(|()| hold.loss().unwrap_or(Loss::Released)),
            })
            .await
        }
    }

    /// A token that is cancelled when the lock is lost, dropped, or about to be released.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.hold.ended().child_token()
    }

    /// Runs the work and stops it, by dropping its future, when the lock is lost.
    ///
    /// What it has begun elsewhere, such as a request that was sent, is not undone: let the receiver
    /// check the fencing token.
    ///
    /// # Errors
    ///
    /// The [`Loss`], only if the work was stopped. Work that ends in the moment of the loss has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work; the guard stays.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Loss> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        poll_fn(|context| {
            if let Poll::Ready(loss) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(loss));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Releases the lock and waits for the server's word.
    ///
    /// # Errors
    ///
    /// The outcome is unknown: no answer came within the verb limit, or the server refused. The release
    /// is repeated in the background until it is answered or the lease is over.
    /// [`ErrorKind::NoRuntime`] if the runtime of the locks is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping it midway only gives up the answer; the lock is released all the same.
    pub async fn release(self) -> Result<Release> {
        let loose = self.hold.leave();
        let loss = self.hold.loss().filter(|loss| *loss != Loss::Released);
        let (Some(loose), false) = (loose, loss == Some(Loss::RuntimeGone)) else {
            // There is nothing left to release, or nobody left to do it.
            return Ok(Release::AlreadyLost(loss.unwrap_or(Loss::Revoked)));
        };
        match (loose.end(self.hold.verbs()).await?, loss) {
            (_, Some(loss)) => Ok(Release::AlreadyLost(loss)),
            (Released::Released, None) => Ok(Release::Released),
            (Released::Absent, None) => Ok(Release::AlreadyLost(Loss::Revoked)),
        }
    }
}

impl Drop for Guard {
    /// Marks the end and leaves the release to the janitor.
    fn drop(&mut self) {
        drop(self.hold.leave());
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("owner", &self.owner())
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish()
    }
}
