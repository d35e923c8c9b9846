use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{Claim, FencingToken, Guarantees, Lease, Result};

/// What a coordination server is asked to do: three idempotent verbs on a claim that the caller named.
///
/// Waiting, patience, retries, time limits, validity, renewal, loss, cancellation, statistics and
/// tracing are written once, in core, and need nothing from a backend but these laws. Each law is a
/// case of the same name in the conformance suite.
///
/// 1. **Named by the caller.** All that a server knows of a claim can be found by name and owner. What
///    a backend remembers in memory is only an optimisation.
/// 2. **Idempotent.** While the claim lives, a verb may be repeated; the answer and the fencing token
///    stay the same. After expiry the same owner may be granted anew, with a larger token.
/// 3. **Never waits for another owner.** Waiting is the [`Wake`]'s business. The first look may be
///    unarmed; [`Attempt::Busy`] is returned only from a look made after the watch or subscription was
///    in place. A wake is a hint: early, late or never is legal; dropping it does no I/O and leaves
///    nothing subscribed for long.
/// 4. **Exact.** Releasing an absent claim is `Ok(Absent)`; no verb takes anything from another owner's
///    claim; renew never creates. (A release may *promote* the next claim in line.)
/// 5. **Droppable.** A verb's future may be dropped at any await; what it leaves, `release` or at the
///    latest the claim's lease removes.
/// 6. **Honest.** Only the server says `Held`, `Lost` or `Absent`. An error means: outcome unknown.
/// 7. **Alive.** `acquire` (held or queued) and `renew` keep the claim for a further lease.
///    `claim.queue == false` leaves nothing behind when busy.
///
/// Every lease carries its own origin: see [`Lease`]. A backend knows no patience and no retries of
/// the user's; it may repeat a request that certainly did not run. Core puts a time limit round every
/// verb and drops the future when it is over. It asks for one verb of a claim at a time: a renewal that is
/// under way when the claim is released is dropped first.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What is promised, as far as the server's configuration could be read.
    fn guarantees(&self) -> Guarantees;

    /// Asks for the lock, and keeps the claim in the queue (if there is one) when it is busy.
    ///
    /// # Errors
    ///
    /// Outcome unknown, unless the kind is permanent by its nature (`Denied`, `Foreign`, …).
    async fn acquire(&self, claim: &Claim) -> Result<Attempt>;

    /// Keeps a held claim for a further lease.
    ///
    /// # Errors
    ///
    /// Outcome unknown.
    async fn renew(&self, claim: &Claim) -> Result<Renewal>;

    /// Ends the claim, whatever it is: held, queued, or perhaps never arrived.
    ///
    /// # Errors
    ///
    /// Outcome unknown.
    async fn release(&self, claim: &Claim) -> Result<Released>;
}

macro_rules! forward {
    ($pointer:ty) => {
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<B: Backend + ?Sized> Backend for $pointer {
            fn guarantees(&self) -> Guarantees {
                (**self).guarantees()
            }
            async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
                (**self).acquire(claim).await
            }
            async fn renew(&self, claim: &Claim) -> Result<Renewal> {
                (**self).renew(claim).await
            }
            async fn release(&self, claim: &Claim) -> Result<Released> {
                (**self).release(claim).await
            }
        }
    };
}

forward!(Arc<B>);
forward!(Box<B>);

/// The answer to [`Backend::acquire`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// The claim holds the lock.
    Held(Grant),
    /// Another claim does.
    Busy(Busy),
}

/// The server's word that a claim holds the lock.
#[derive(Debug)]
#[non_exhaustive]
pub struct Grant {
    /// Larger than every earlier grant's of this name.
    pub token: FencingToken,
    /// For how long, and since when.
    pub lease: Lease,
    /// Raised by the backend when there is reason to doubt the lease, such as a lost session: "renew
    /// now, do not wait for the third of the lease".
    pub doubt: Option<Signal>,
}

impl Grant {
    /// A grant without a doubt signal.
    #[must_use]
    pub const fn new(token: FencingToken, lease: Lease) -> Self {
        Self { token, lease, doubt: None }
    }

    /// Adds the signal on which the keeper renews at once.
    #[must_use]
    pub fn with_doubt(mut self, doubt: Signal) -> Self {
        self.doubt = Some(doubt);
        self
    }
}

/// Another claim holds the lock; when to ask again.
#[non_exhaustive]
pub struct Busy {
    /// Resolves when asking again may pay. `None`: this backend cannot tell just now, and core polls
    /// with a growing, jittered pause.
    pub wake: Option<Wake>,
    /// The latest moment to ask again, from the answer on: when the holder's lease ends if nobody
    /// renews it, or sooner where the claim's own place in a queue would run out.
    pub recheck_within: Duration,
}

impl Busy {
    /// Busy, with a wake that is already armed.
    #[must_use]
    pub fn new(wake: Option<Wake>, recheck_within: Duration) -> Self {
        Self { wake, recheck_within }
    }
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Busy")
            .field("wake", &self.wake.as_ref().map(|_| "armed"))
            .field("recheck_within", &self.recheck_within)
            .finish()
    }
}

/// A hint that asking again may pay: `None`; or the grant itself, where a release promoted this claim.
///
/// Dropping it at any time is free: it does no I/O.
pub type Wake = Pin<Box<dyn Future<Output = Option<Grant>> + Send>>;

/// The answer to [`Backend::renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// This owner still holds, for so long.
    Kept(Lease),
    /// This owner does not hold. Final.
    Lost,
}

/// The answer to [`Backend::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The claim was there, held or queued, and is gone now.
    Released,
    /// There was no such claim.
    Absent,
}

/// Raises a [`Signal`]; one for as many claims as share the reason.
#[derive(Clone, Debug)]
pub struct Doubt(watch::Sender<()>);

impl Doubt {
    /// A doubt that nobody listens to yet.
    #[must_use]
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Tells every signal taken so far to renew now. Never blocks.
    pub fn raise(&self) {
        self.0.send_replace(());
    }

    /// A signal that sees every later [`raise`](Self::raise).
    #[must_use]
    pub fn signal(&self) -> Signal {
        Signal(self.0.subscribe())
    }
}

impl Default for Doubt {
    fn default() -> Self {
        Self::new()
    }
}

/// "Renew now": what a keeper listens to between renewals.
#[derive(Clone, Debug)]
pub struct Signal(watch::Receiver<()>);

impl Signal {
    /// Waits for the next doubt; for ever once nobody can raise one.
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses no doubt.
    pub async fn raised(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
