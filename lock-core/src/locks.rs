use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::{
        mpsc::{self, UnboundedSender},
        watch,
    },
};
use tokio_util::task::TaskTracker;

use crate::{
    Backend, Claim, Clock, Error, ErrorKind, Grant, Guarantees, Guard, Lock, Moment, Name, Options, Owner,
    Promise, Result, Statistics, SystemClock,
    hold::Hold,
    janitor::{self, Abandoned, Loose},
    keeper::Keeper,
    ledger::Ledger,
    line::Lines,
    nursery::{self, Young},
    verbs::Verbs,
};

/// The locks of one backend. Cheap to clone; clones share everything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lock_core::Result<()> {
/// use lock_core::{Locks, memory::Memory};
///
/// let locks = Locks::new(Memory::new())?;
/// let guard = locks.lock("orders/42")?.acquire().await?;
/// println!("held, fencing token {}", guard.fencing_token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locks {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) verbs: Arc<Verbs>,
    pub(crate) lines: Arc<Lines>,
    pub(crate) runtime: Handle,
    /// Keepers, waiting claims and clean-ups: what `close` waits for.
    pub(crate) tasks: TaskTracker,
    /// By when everything must be released; `None` until `close`.
    pub(crate) closing: watch::Sender<Option<Moment>>,
    ledger: Ledger,
    janitor: UnboundedSender<Abandoned>,
    nursery: UnboundedSender<Young>,
}

impl Locks {
    /// Opens a backend's locks with the default [`Options`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoRuntime`] outside a tokio runtime: this one renews and releases.
    pub fn new(backend: impl Backend) -> Result<Self> {
        Self::with_options(backend, Options::default())
    }

    /// Opens a backend's locks with options.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and [`ErrorKind::InvalidInput`] for options that cannot work.
    pub fn with_options(backend: impl Backend, options: Options) -> Result<Self> {
        Self::with_clock(backend, options, Arc::new(SystemClock::new()?))
    }

    /// Opens a backend's locks with a clock of the caller's, for tests of time.
    ///
    /// # Errors
    ///
    /// As [`with_options`](Self::with_options).
    pub fn with_clock(backend: impl Backend, options: Options, clock: Arc<dyn Clock>) -> Result<Self> {
        let runtime = current_runtime()?;
        let terms = options.terms()?;
        let lines = Arc::new(Lines::new(terms.waiters));
        let verbs = Arc::new(Verbs::new(Box::new(backend), clock, terms));
        let tasks = TaskTracker::new();
        let (janitor, abandoned) = mpsc::unbounded_channel();
        runtime.spawn(janitor::clean(verbs.clone(), tasks.clone(), abandoned));
        let (nursery, born) = mpsc::unbounded_channel();
        runtime.spawn(nursery::raise(born, verbs.clone(), tasks.clone()));
        let closing = watch::Sender::new(None);
        let ledger = Ledger::default();
        let shared = Shared { verbs, lines, runtime, tasks, closing, ledger, janitor, nursery };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The lock of a name. No I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for what is no [`Name`].
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Lock> {
        Ok(Lock { name: Name::new(name)?, locks: self.clone() })
    }

    /// What this backend promises, as it is configured.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        self.shared.verbs.backend().guarantees()
    }

    /// Insists on promises, so that a backend that does not make them is an error at start, never a
    /// surprise later.
    ///
    /// ```
    /// # use lock_core::{Fault, Locks, Promise, memory::Memory};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let locks = Locks::new(Memory::new()).unwrap();
    /// assert!(locks.clone().require([Promise::Fifo]).is_ok());
    /// assert!(locks.require([Promise::Exclusion(Fault::ServerRestart)]).is_err());
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unmet`], naming every promise that is not made.
    pub fn require(self, promises: impl IntoIterator<Item = Promise>) -> Result<Self> {
        let guarantees = self.guarantees();
        let unmet: Vec<String> = promises
            .into_iter()
            .filter(|promise| !guarantees.meets(*promise))
            .map(|promise| promise.to_string())
            .collect();
        if unmet.is_empty() {
            return Ok(self);
        }
        let (backend, unmet) = (guarantees.backend, unmet.join("; "));
        Err(Error::new(
            ErrorKind::Unmet,
            format!("{backend}, as it is configured, does not promise: {unmet}"),
        ))
    }

    /// What happened so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.shared.verbs.statistics();
        statistics.waiting = self.shared.lines.waiting();
        statistics
    }

    /// Ends everything: new and waiting acquires fail with [`ErrorKind::Closed`], held guards are lost with
    /// [`Loss::Closed`](crate::Loss::Closed), and each is released when it is dropped, or after `patience`.
    ///
    /// Returns the names whose release the server did not confirm within one verb limit after that;
    /// their leases end them.
    ///
    /// # Cancel safety
    ///
    /// Dropping it only stops the waiting; the locks stay closed.
    pub async fn close(&self, patience: Duration) -> Vec<Name> {
        let Shared { verbs, tasks, closing, ledger, .. } = &*self.shared;
        let deadline = verbs.clock.now() + patience;
        ledger.keep_abandoned();
        closing.send_replace(Some(deadline));
        tasks.close();
        tokio::select! {
            () = tasks.wait() => {}
            () = verbs.clock.sleep_until(deadline + verbs.terms.verb_limit) => {}
        }
        ledger.names()
    }
}

impl Shared {
    /// A new claim, which is released if it is dropped.
    pub(crate) fn claim(&self, name: &Name, queue: bool) -> Result<Loose> {
        let owner = Owner::random()?;
        let terms = &self.verbs.terms;
        let claim = Claim::new(name.clone(), owner, terms.lease());
        let claim = claim.queued(queue).fresh(true).labelled(terms.label.clone());
        let entry = self.ledger.enter(owner, name.clone());
        Ok(Loose::new(claim, entry, &self.tasks, self.janitor.clone()))
    }

    /// Refuses a grant that came when its lease had no use left.
    pub(crate) fn check_of_use(&self, claim: &Claim, grant: &Grant, now: Moment) -> Result<()> {
        if now < self.verbs.terms.valid_until(grant.lease) {
            return Ok(());
        }
        let text = "the grant came after the usable part of its lease was over";
        Err(Error::new(ErrorKind::Timeout, text).during("acquiring", &claim.name))
    }

    /// Turns the server's grant into a guard; a keeper renews it, at once if a third of its lease is over already.
    pub(crate) fn keep(&self, loose: Loose, grant: Grant, now: Moment) -> Guard {
        let Grant { token, lease, doubt } = grant;
        let hold = Arc::new(Hold::new(loose, token, lease, self.verbs.clone()));
        let keeper = Keeper::new(hold.clone(), self.closing.subscribe(), doubt, now);
        match Young::new(keeper, now) {
            // If the runtime is gone, it comes back with the error, and its drop ends the hold.
            Ok(young) => drop(self.nursery.send(young)),
            Err(keeper) => drop(self.tasks.spawn_on(keeper.run(), &self.runtime)),
        }
        Guard::new(hold)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closing.borrow().is_some() { Err(closed()) } else { Ok(()) }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the locks were closed")
}

/// The runtime that is entered here.
pub(crate) fn current_runtime() -> Result<Handle> {
    Handle::try_current().map_err(|e| {
        Error::new(ErrorKind::NoRuntime, "locks are opened inside a tokio runtime; there is none here")
            .with_source(e)
    })
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("backend", self.shared.verbs.backend())
            .field("held", &self.statistics().held)
            .finish_non_exhaustive()
    }
}
