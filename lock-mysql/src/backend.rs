use std::{
    fmt,
    future::Future,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{Attempt, Backend, Claim, Error, ErrorKind, Guarantees, Moment, Released, Renewal, Result};
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    MysqlOptions, acquires::Acquires, bell::Bell, crowd::Crowd, dial::Dialer, pool::Pool, renewals::Renewals,
    server, store::Store,
};

/// Locks in a table of a MySQL or MariaDB server.
///
/// A lock is a row that names its owner, its fencing token and its deadline by the server's clock. See the
/// [crate's documentation](crate) for what is promised, what the server's user must be allowed, and what
/// an operator sees.
///
/// Each step goes on in a task of its own when its caller is gone: a statement that was sent is
/// never cut off from its answer. Once nobody waits for it, it has a moment to end; then its connection is
/// closed. Connections that ended well are kept for the next step.
pub struct MysqlBackend {
    store: Arc<Store>,
    acquires: Arc<Acquires>,
    renewals: Arc<Renewals>,
    runtime: Handle,
    address: String,
    guarantees: Guarantees,
}

impl MysqlBackend {
    /// Connects, makes the tables if they are not there, and reads from the server what can be promised.
    ///
    /// Connections live on the runtime that is current here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for options that cannot be used, [`ErrorKind::Denied`] for a wrong user,
    /// password or certificate, or a user who may not make the tables, [`ErrorKind::Unsupported`] for a
    /// table without transactions, [`ErrorKind::Unavailable`] if there is no server.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; the tables may have been made.
    ///
    /// ```no_run
    /// # async fn f() -> lock_core::Result<()> {
    /// use lock_mysql::{MysqlBackend, MysqlOptions};
    ///
    /// let options = MysqlOptions::new("127.0.0.1", "app", "locks").password_file("/run/secrets/mysql");
    /// let locks = lock_core::Locks::new(MysqlBackend::connect(options).await?)?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(options: MysqlOptions) -> Result<Self> {
        let runtime = Handle::try_current()
            .map_err(|e| Error::new(ErrorKind::NoRuntime, "mysql needs a tokio runtime").with_source(e))?;
        let pool = Arc::new(Pool::new(Dialer::new(&options)?, options.connections));
        let limit = options.connect_timeout * 3;
        let (guarantees, statements) = tokio::time::timeout(limit, server::prepare(&pool, &options.table))
            .await
            .unwrap_or_else(|_| {
                let text = format!("mysql at {} did not answer within {limit:?}", options.server);
                Err(Error::new(ErrorKind::Unavailable, text))
            })?;
        let statements = Arc::new(statements);
        let crowd = Arc::new(Crowd::default());
        let bell = Bell::new(pool.clone(), statements.clone(), crowd.clone(), runtime.clone());
        let store = Arc::new(Store::new(pool, statements, bell, crowd));
        let renewals = Arc::new(Renewals::new(store.clone(), runtime.clone()));
        let (acquires, address) = (Arc::default(), options.server.to_string());
        Ok(Self { store, acquires, renewals, runtime, address, guarantees })
    }

    /// Begins a step here, which mostly sends its request, and has a task of its own see to the rest: so it
    /// ends whether or not its caller waits for it, and whether or not the caller is polled.
    fn run<T: Send + 'static>(
        &self,
        claim: &Claim,
        step: impl Future<Output = Result<T>> + Send + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let (mut reply, answer) = oneshot::channel();
        let mut step = Box::pin(step);
        // What it opens belongs to the runtime of the others.
        let runtime = self.runtime.enter();
        // The task polls it at once, so nobody has to be woken before.
        let begun = step.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(runtime);
        if let Poll::Ready(done) = begun {
            let _ = reply.send(done);
            return answer;
        }
        let patience = patience(claim);
        self.runtime.spawn(async move {
            let abandoned = async {
                reply.closed().await;
                tokio::time::sleep(patience).await;
            };
            // A timer starts only where it is needed: to set one costs as much as a part of the step.
            tokio::select! {
                biased;
                answer = step => drop(reply.send(answer)),
                () = abandoned => {}
            }
        });
        answer
    }
}

/// How long a step may still take that nobody waits for any more.
pub(crate) fn patience(claim: &Claim) -> Duration {
    (claim.lease / 4).clamp(Duration::from_millis(50), Duration::from_millis(500))
}

fn gone(error: oneshot::error::RecvError) -> Error {
    Error::new(ErrorKind::NoRuntime, "the tokio runtime has shut down").with_source(error)
}

#[async_trait]
impl Backend for MysqlBackend {
    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let (store, wanted) = (self.store.clone(), claim.clone());
        let since = Moment::now();
        // From now on, whatever becomes of the caller.
        let under_way = self.acquires.begin(claim.owner);
        let step = async move {
            let attempt = store.acquire(&wanted, since).await;
            drop(under_way);
            attempt
        };
        self.run(claim, step).await.map_err(gone)?
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        self.renewals.ask(claim).await.map_err(gone)?
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let (store, acquires, wanted) = (self.store.clone(), self.acquires.clone(), claim.clone());
        let step = async move {
            acquires.ended(wanted.owner).await;
            store.release(&wanted).await
        };
        self.run(claim, step).await.map_err(gone)?
    }
}

impl fmt::Debug for MysqlBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlBackend").field("address", &self.address).finish_non_exhaustive()
    }
}
