//! The backend of `polylock run`, connected.

use std::{os::fd::OwnedFd, time::Duration};

use polylock::{Backend, Locks};

use crate::{args::Run, exit::Failure, location::Location};

/// Locks, and what COMMAND needs of their backend.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) locks: Locks,
    /// How long the server keeps a lost lock.
    pub(crate) grace: Duration,
    /// While any process has it open, the lock's holder counts as alive.
    pub(crate) liveness: Option<OwnedFd>,
}

impl Server {
    pub(crate) async fn connect(args: &Run) -> Result<Self, Failure> {
        let location = Location::find(&args.server).await?;
        if location.driver.name == "memory" {
            return Err(Failure::usage(
                "a lock in memory excludes no other process; use file:///some/directory or a server",
            ));
        }
        let mut options = args.options(location.options.clone());
        // Set explicitly, so that core and COMMAND's end go by the same number.
        let grace = options.grace.unwrap_or_else(|| (options.ttl / 10).max(Duration::from_millis(100)));
        options.grace = Some(grace);
        let (backend, liveness) = open(location).await?;
        Ok(Self { locks: Locks::with_options(backend, options)?, grace, liveness })
    }
}

async fn open(location: Location) -> Result<(Box<dyn Backend>, Option<OwnedFd>), Failure> {
    #[cfg(all(feature = "file", target_os = "linux"))]
    if location.driver.name == "file" {
        use polylock::file::{FileBackend, FileOptions};

        let backend = FileBackend::connect(FileOptions::from_url(location.url)?).await?;
        let liveness = backend.liveness()?;
        // Scripts redirect descriptors of one digit, and would close it.
        let liveness = rustix::io::fcntl_dupfd_cloexec(liveness, 64)
            .map_err(|error| Failure::internal("no descriptor is left", &error.into()))?;
        return Ok((Box::new(backend), Some(liveness)));
    }
    Ok(((location.driver.connect)(location.url).await?, None))
}
