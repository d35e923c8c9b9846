use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_core::{
    Attempt, Backend, Claim, Error, ErrorKind, Guarantees, Name, Owner, Released, Renewal, Result,
};

use crate::{ZookeeperOptions, dial::Dialer, error, place::Root, promises, sessions::Sessions};

/// The lease that core asks for by default; the session that shows that there is a server is for this one.
const USUAL_LEASE: Duration = Duration::from_secs(33);

/// Locks in a ZooKeeper ensemble.
///
/// A claim is an ephemeral sequential node below a node for the lock's name; the smallest number holds. See
/// the [crate's documentation](crate) for what is promised, what the user must be allowed, and what an
/// operator sees.
///
/// All claims with leases of one length share one session and its connection. It is opened when it is needed,
/// opened anew when it is over, and closed when the backend is dropped.
pub struct ZookeeperBackend {
    sessions: Sessions,
    root: Root,
    servers: String,
    tick: Duration,
}

impl ZookeeperBackend {
    /// Connects to the first server that answers.
    ///
    /// Sessions live on the runtime that is current here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for options that cannot be used, [`ErrorKind::Denied`] for a user that may
    /// not write below the root, [`ErrorKind::Unavailable`] if no server opens a session in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the session.
    ///
    /// ```no_run
    /// # async fn f() -> lock_core::Result<()> {
    /// use lock_zookeeper::{ZookeeperBackend, ZookeeperOptions};
    ///
    /// let options = ZookeeperOptions::new(["zk1:2181", "zk2:2181", "zk3:2181"]).root("/locks")?;
    /// let locks = lock_core::Locks::new(ZookeeperBackend::connect(options).await?)?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(options: ZookeeperOptions) -> Result<Self> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::new(ErrorKind::NoRuntime, "zookeeper needs a tokio runtime"));
        }
        let sessions = Sessions::new(Dialer::new(&options)?);
        let ZookeeperOptions { servers, root, tick, .. } = options;
        let nobody = Claim::new(Name::new("-")?, Owner::random()?, USUAL_LEASE);
        sessions.session(&root.place(&nobody), USUAL_LEASE).await?;
        Ok(Self { sessions, root, servers, tick })
    }
}

#[async_trait]
impl Backend for ZookeeperBackend {
    fn guarantees(&self) -> Guarantees {
        promises::with_ticks_of(self.tick)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let place = Arc::new(self.root.place(claim));
        let mut again = true;
        loop {
            let session = self.sessions.session(&place, claim.lease).await?;
            match session.acquire(&place, claim).await {
                Err(failure) if error::is_end(&failure) && again => again = false,
                answer => return answer.map_err(|failure| error::from_driver(&failure)),
            }
        }
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        let place = Arc::new(self.root.place(claim));
        let mut again = true;
        loop {
            let session = self.sessions.session(&place, claim.lease).await?;
            match session.renew(&place).await {
                Err(failure) if error::is_end(&failure) && again => again = false,
                answer => return answer.map_err(|failure| error::from_driver(&failure)),
            }
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let place = Arc::new(self.root.place(claim));
        let mut again = true;
        loop {
            let session = self.sessions.session(&place, claim.lease).await?;
            match session.release(&place).await {
                Err(failure) if error::is_end(&failure) && again => again = false,
                answer => return answer.map_err(|failure| error::from_driver(&failure)),
            }
        }
    }
}

impl fmt::Debug for ZookeeperBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperBackend")
            .field("servers", &self.servers)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}
