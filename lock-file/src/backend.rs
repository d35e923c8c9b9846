use std::{
    os::fd::OwnedFd,
    sync::{Arc, Weak},
};

use async_trait::async_trait;
use lock_core::{Attempt, Backend, Claim, Error, ErrorKind, Guarantees, Released, Renewal, Result};
use tokio::runtime::Handle;

use crate::{FileOptions, store::Store};

/// Locks in a directory, for the processes of one machine.
///
/// Clones share one directory handle, one liveness file and one watch. The claims of a backend last at
/// most as long as its process; when the last clone is dropped, what was not released stays until its
/// lease ends, since the process lives on.
///
/// The file work of a verb runs on tokio's blocking pool. When the verb's future is dropped it writes
/// nothing more, or has written already; so whatever is asked next finds a settled state.
#[derive(Clone, Debug)]
pub struct FileBackend {
    store: Arc<Store>,
}

impl FileBackend {
    /// Opens the directory, and creates it (mode 0700) if it is missing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for a path that is relative or a symbolic link, or a directory that
    /// belongs to or can be written by another user; [`ErrorKind::Unsupported`] for a network file
    /// system; [`ErrorKind::Denied`] without permission; [`ErrorKind::NoRuntime`] outside a tokio
    /// runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves an empty directory at the most.
    pub async fn connect(options: FileOptions) -> Result<Self> {
        let store = blocking(move || Store::open(&options)).await?;
        Ok(Self { store: Arc::new(store) })
    }

    /// A descriptor that keeps the claims of this backend alive after the death of its process.
    ///
    /// Hand it to a child process, and the take-over of a killed holder's lock waits until the child and
    /// all that it started have ended too, as with `flock(1)`, or until the lease ends. It closes on
    /// `exec`; let the child inherit it by clearing `FD_CLOEXEC`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the process has no descriptor left.
    pub fn liveness(&self) -> Result<OwnedFd> {
        self.store.liveness().duplicate()
    }

    /// Runs a verb, which stops short of its next write when `self`'s caller goes away.
    async fn run<T: Send + 'static>(
        &self,
        claim: &Claim,
        verb: impl FnOnce(&Store, &Claim, Weak<()>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (store, claim) = (self.store.clone(), claim.clone());
        let caller = Arc::new(());
        let wanted = Arc::downgrade(&caller);
        let answer = blocking(move || verb(&store, &claim, wanted)).await;
        drop(caller);
        answer
    }
}

#[async_trait]
impl Backend for FileBackend {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.run(claim, Store::acquire).await
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        self.run(claim, Store::renew).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.run(claim, Store::release).await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let no_runtime = |text: &str| Error::new(ErrorKind::NoRuntime, text);
    let runtime =
        Handle::try_current().map_err(|e| no_runtime("there is no tokio runtime here").with_source(e))?;
    match runtime.spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) if error.is_cancelled() => {
            Err(no_runtime("the tokio runtime has shut down").with_source(error))
        }
        Err(error) => Err(Error::new(ErrorKind::Internal, "the file work panicked").with_source(error)),
    }
}
