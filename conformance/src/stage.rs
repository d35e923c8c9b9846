use std::{
    future::Future,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_core::{Attempt, Backend, Busy, Claim, Grant, Lock, Locks, Name, Options, Owner, Released, Renewal};

use tokio_util::task::AbortOnDropHandle;

use crate::{
    Fixture, Lever, Server,
    case::Failure,
    held::Held,
    history::History,
    holder::Holder,
    link::{Gate, Link},
    mutants,
};

/// What a case is played on: a server, clients with links of their own, names that nobody else uses.
///
/// All durations in cases are parts of [`ttl`](Self::ttl). When a case has ended without a failure, its
/// [`history`](Self::history) is checked.
#[derive(Debug)]
pub(crate) struct Stage {
    fixture: Arc<dyn Fixture>,
    server: Arc<dyn Server>,
    case: &'static str,
    full: bool,
    names: AtomicU64,
    history: Arc<History>,
}

impl Stage {
    pub(crate) fn new(
        fixture: Arc<dyn Fixture>,
        server: Arc<dyn Server>,
        case: &'static str,
        full: bool,
        history: Arc<History>,
    ) -> Self {
        Self { fixture, server, case, full, names: AtomicU64::new(0), history }
    }

    /// The ttl of every client and claim that does not say otherwise.
    pub(crate) fn ttl(&self) -> Duration {
        self.fixture.ttl()
    }

    /// A part, or a multiple, of the ttl.
    pub(crate) fn part(&self, of_ttl: f64) -> Duration {
        self.ttl().mul_f64(of_ttl)
    }

    /// How much longer than the ttl the server keeps a lock: core's default for this ttl.
    pub(crate) fn grace(&self) -> Duration {
        (self.ttl() / 10).max(Duration::from_millis(100))
    }

    /// What the server is asked for: ttl and grace.
    pub(crate) fn lease(&self) -> Duration {
        self.ttl() + self.grace()
    }

    /// By when the lock of a holder that is gone can be had by another: its lease, the server's lag, and
    /// more than a ttl for a loaded machine: less than the poll of a waiter that nobody wakes.
    pub(crate) fn takeover(&self) -> Duration {
        self.lease() + self.fixture.guarantees().expiry_lag + self.part(1.5)
    }

    /// How often to do something: few times by default, as often as the case is told in the full tier.
    pub(crate) fn rounds(&self, few: u32, full: u32) -> u32 {
        if self.full { full } else { few }
    }

    /// A name that no other case uses, and no earlier call gave.
    pub(crate) fn name(&self) -> Name {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        Name::new(format!("{}/{number}", self.case)).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A new client, through a link of its own.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        self.client_with(self.options()).await
    }

    /// A new client whose leases are so long that none ends within a case: what passes on was released.
    /// It also takes a slow server's time.
    pub(crate) async fn patient_client(&self) -> Result<Client, Failure> {
        self.client_with(self.options().with_ttl(self.part(40.0))).await
    }

    /// A new client with options; start from [`options`](Self::options).
    pub(crate) async fn client_with(&self, options: Options) -> Result<Client, Failure> {
        let Bare { backend, link } = self.bare().await?;
        let locks = Locks::with_options(backend, options)?;
        Ok(Client { locks, link, history: self.history.clone() })
    }

    /// The options of [`client`](Self::client): the ttl, and as much time for each verb, since a loaded
    /// machine may well take longer than the sixth of so short a ttl.
    pub(crate) fn options(&self) -> Options {
        Options::default().with_ttl(self.ttl()).with_verb_limit(self.ttl())
    }

    /// A new connection without the core: the three verbs, through a link of their own.
    pub(crate) async fn bare(&self) -> Result<Bare, Failure> {
        let link = self.server.wire().map_or_else(|| Ok(Link::without_wire()), Link::to)?;
        let backend = self.connect(&self.server.url(link.address())).await?;
        let backend = if link.address().is_some() { backend } else { Arc::new(Gate::new(backend, &link)) };
        Ok(Bare { backend: mutants::wrap(backend), link })
    }

    /// Connects without a link.
    pub(crate) async fn connect(&self, url: &str) -> lock_core::Result<Arc<dyn Backend>> {
        Ok(self.fixture.connect(url).await?.into())
    }

    /// A new claim on a name, by a new owner; it asks for ttl and grace, as a client does.
    pub(crate) fn claim(&self, name: &Name) -> Claim {
        let owner = Owner::random().unwrap_or_else(|error| panic!("{error}"));
        Claim::new(name.clone(), owner, self.lease())
    }

    /// A new claim that asks for so many ttls.
    pub(crate) fn claim_for(&self, name: &Name, of_ttl: f64) -> Claim {
        let mut claim = self.claim(name);
        claim.lease = self.part(of_ttl);
        claim
    }

    /// A client in a process of its own.
    pub(crate) async fn holder(&self) -> Result<Holder, Failure> {
        Holder::start(&self.server.url(None), self.ttl(), self.history.clone()).await
    }

    /// The same, with leases as long as a [`patient_client`](Self::patient_client)'s.
    pub(crate) async fn patient_holder(&self) -> Result<Holder, Failure> {
        Holder::start(&self.server.url(None), self.part(40.0), self.history.clone()).await
    }

    /// The server.
    pub(crate) fn server(&self) -> &dyn Server {
        &*self.server
    }

    /// The fixture.
    pub(crate) fn fixture(&self) -> &dyn Fixture {
        &*self.fixture
    }

    /// Causes a fault on the server's side.
    pub(crate) fn pull(&self, lever: Lever<'_>) -> io::Result<()> {
        tokio::task::block_in_place(|| self.server.pull(lever))
    }

    /// Runs a command on the server, past all links.
    pub(crate) fn command(&self, words: &[&str]) -> io::Result<String> {
        tokio::task::block_in_place(|| self.server.command(words))
    }

    /// Removes what stands for the name, as an operator might.
    pub(crate) fn delete_record(&self, name: &Name) -> Result<(), Failure> {
        let record = self.record(name)?;
        Ok(self.pull(Lever::DeleteRecord(&record))?)
    }

    /// The key, node, row or file that stands for the name.
    pub(crate) fn record(&self, name: &Name) -> Result<String, Failure> {
        Ok(self.fixture.record(&self.server.url(None), name)?)
    }

    /// Who held what so far. [`Client::acquire`] and [`Holder`] write into it.
    pub(crate) fn history(&self) -> &Arc<History> {
        &self.history
    }

    /// Lets time pass: a hold that is measured, never a wait for something to happen.
    pub(crate) async fn pass(&self, of_ttl: f64) {
        tokio::time::sleep(self.part(of_ttl)).await;
    }

    /// The future's output, or a failure if it takes longer than so many ttls.
    #[track_caller]
    pub(crate) fn within<F: Future>(
        &self,
        of_ttl: f64,
        what: &str,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Failure>> {
        let limit = self.part(of_ttl);
        let late = Failure::new(format!("not within {limit:?}: {what}"));
        async move { tokio::time::timeout(limit, future).await.map_err(|_| late) }
    }
}

/// A client: locks through a link of their own.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) locks: Locks,
    pub(crate) link: Link,
    history: Arc<History>,
}

impl Client {
    /// The lock of a name.
    pub(crate) fn lock(&self, name: &Name) -> Lock {
        self.locks.lock(name.as_str()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits for the lock; what happens to it is written into the history.
    pub(crate) async fn acquire(&self, name: &Name) -> lock_core::Result<Held> {
        let guard = self.lock(name).acquire().await?;
        Ok(Held::new(guard, &self.history))
    }

    /// Waits for the lock in a task of its own; dropping the handle drops the wait.
    pub(crate) fn start_waiting(self: &Arc<Self>, name: &Name) -> Waiting {
        let (client, name) = (self.clone(), name.clone());
        AbortOnDropHandle::new(tokio::spawn(async move { client.acquire(&name).await }))
    }

    /// The same; returns when the client has sent something, which is its first request for the lock
    /// unless it is busy otherwise.
    pub(crate) async fn waiting(self: &Arc<Self>, name: &Name) -> Waiting {
        let before = self.link.requests().total;
        let waiting = self.start_waiting(name);
        self.link.sent(|requests| requests.total > before).await;
        waiting
    }

    /// Tries once; `None` if it is busy.
    pub(crate) async fn try_acquire(&self, name: &Name) -> lock_core::Result<Option<Held>> {
        let guard = self.lock(name).try_acquire().await?;
        Ok(guard.map(|guard| Held::new(guard, &self.history)))
    }

    /// Waits for so long; `None` if it is still busy.
    pub(crate) async fn acquire_within(
        &self,
        name: &Name,
        patience: Duration,
    ) -> lock_core::Result<Option<Held>> {
        let guard = self.lock(name).acquire_within(patience).await?;
        Ok(guard.map(|guard| Held::new(guard, &self.history)))
    }
}

/// A wait for a lock in a task of its own.
pub(crate) type Waiting = AbortOnDropHandle<lock_core::Result<Held>>;

/// A backend as its author wrote it, through a link of its own; with the answers that cases expect.
#[derive(Debug)]
pub(crate) struct Bare {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) link: Link,
}

impl Bare {
    /// Acquires a claim that must be granted.
    #[track_caller]
    pub(crate) fn held<'a>(
        &'a self,
        claim: &Claim,
    ) -> impl Future<Output = Result<Grant, Failure>> + use<'a> {
        let (claim, unexpected) = (claim.clone(), Failure::new("held was expected"));
        async move {
            match self.backend.acquire(&claim).await? {
                Attempt::Held(grant) => Ok(grant),
                other => Err(unexpected.but(&other)),
            }
        }
    }

    /// Asks for a claim that must find the lock busy.
    #[track_caller]
    pub(crate) fn busy<'a>(&'a self, claim: &Claim) -> impl Future<Output = Result<Busy, Failure>> + use<'a> {
        let (claim, unexpected) = (claim.clone(), Failure::new("busy was expected"));
        async move {
            match self.backend.acquire(&claim).await? {
                Attempt::Busy(busy) => Ok(busy),
                other => Err(unexpected.but(&other)),
            }
        }
    }

    /// Asks again and again, as fast as the server answers, until the claim is granted.
    pub(crate) fn held_at_last<'a>(
        &'a self,
        claim: &Claim,
    ) -> impl Future<Output = Result<Grant, Failure>> + use<'a> {
        let claim = claim.clone();
        async move {
            loop {
                if let Attempt::Held(grant) = self.backend.acquire(&claim).await? {
                    return Ok(grant);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// Renews.
    pub(crate) async fn renew(&self, claim: &Claim) -> Result<Renewal, Failure> {
        Ok(self.backend.renew(claim).await?)
    }

    /// Releases.
    pub(crate) async fn release(&self, claim: &Claim) -> Result<Released, Failure> {
        Ok(self.backend.release(claim).await?)
    }
}
