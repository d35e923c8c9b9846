use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lock_core::{Claim, Grant, Moment, Name, Owner};
use sqlx::{AssertSqlSafe, MySqlConnection, Row};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use crate::{
    error::Failure,
    pool::{Lent, Pool},
    statements::Statements,
};

/// How long the connection sleeps at a time. A server that has lost its client without a word keeps the
/// connection for so long.
const NAP: Duration = Duration::from_secs(60);

/// After how long without waiters the connection is closed.
const LINGER: Duration = Duration::from_secs(2);

/// How long a bell that could not be hung up is left alone.
const RESPITE: Duration = Duration::from_secs(1);

/// When to look again for a bell that was not seen: while a server lists one connection it shows another as
/// busy, without its statement. Another user's are never shown.
const LATER: [Duration; 3] = [Duration::from_millis(2), Duration::from_millis(8), Duration::from_millis(32)];

/// How one process wakes another: every waiting process keeps one connection in `SELECT SLEEP(n)`, and
/// whoever hands it a lock ends that statement with `KILL QUERY`.
///
/// It is a hint and no more. What rang while the connection was not asleep is found by looking at the rows
/// once it sleeps again; what is lost for another reason, the waiter finds when it asks by itself.
#[derive(Debug)]
pub(crate) struct Bell {
    shared: Arc<Shared>,
    _closed: DropGuard,
}

/// Where a bell hangs: what has to be killed to ring it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clapper {
    pub(crate) connection: u64,
    /// Stands in the text of the statement, so that nothing else is killed.
    pub(crate) nonce: String,
}

/// A claim that was handed the lock, and where its waiter's bell hangs.
#[derive(Debug)]
pub(crate) struct Promoted {
    pub(crate) owner: Owner,
    pub(crate) clapper: Clapper,
}

/// Hears when its claim was handed the lock, or when the bell has fallen.
#[derive(Debug)]
pub(crate) struct Ear {
    pub(crate) clapper: Clapper,
    shared: Arc<Shared>,
    id: u64,
    heard: oneshot::Receiver<()>,
}

#[derive(Debug)]
struct Shared {
    pool: Arc<Pool>,
    statements: Arc<Statements>,
    runtime: Handle,
    closed: CancellationToken,
    state: Mutex<State>,
    /// One at a time hangs up the bell.
    hanging: tokio::sync::Mutex<()>,
    listened: Notify,
}

#[derive(Debug, Default)]
struct State {
    clapper: Option<Clapper>,
    ears: HashMap<u64, Listener>,
    next_id: u64,
    refused: Option<Moment>,
}

#[derive(Debug)]
struct Listener {
    name: Name,
    owner: Owner,
    /// Dropping it tells.
    _rope: oneshot::Sender<()>,
}

impl Bell {
    pub(crate) fn new(pool: Arc<Pool>, statements: Arc<Statements>, runtime: Handle) -> Self {
        let closed = CancellationToken::new();
        let shared = Shared {
            pool,
            statements,
            runtime,
            closed: closed.clone(),
            state: Mutex::default(),
            hanging: tokio::sync::Mutex::default(),
            listened: Notify::new(),
        };
        Self { shared: Arc::new(shared), _closed: closed.drop_guard() }
    }

    /// An ear for a claim that is about to take its place in the queue. `None` if the bell does not hang.
    pub(crate) fn listen(&self, claim: &Claim) -> Option<Ear> {
        let (rope, heard) = oneshot::channel();
        let mut state = self.shared.lock();
        let clapper = state.clapper.clone()?;
        let id = state.next_id;
        state.next_id += 1;
        state.ears.insert(id, Listener { name: claim.name.clone(), owner: claim.owner, _rope: rope });
        drop(state);
        self.shared.listened.notify_one();
        Some(Ear { clapper, shared: self.shared.clone(), id, heard })
    }

    /// Hangs the bell up; resolves when that is done, or was in vain. `None` if it was in vain just now.
    pub(crate) fn hang(&self) -> Option<oneshot::Receiver<()>> {
        let refused = self.shared.lock().refused;
        if refused.is_some_and(|refused| Moment::now().saturating_since(refused) < RESPITE) {
            return None;
        }
        let (done, hung) = oneshot::channel();
        let shared = self.shared.clone();
        self.shared.runtime.spawn(async move {
            shared.hang().await;
            drop(done);
        });
        Some(hung)
    }

    /// Wakes a waiter that was handed the lock, in whatever process it waits.
    ///
    /// The answer to a release waits for it, since a process may end with its last release. A waiter that is
    /// not seen at once is looked for in the background.
    pub(crate) async fn ring(&self, Promoted { owner, clapper }: Promoted, mut lent: Lent) {
        let shared = self.shared.clone();
        if shared.lock().clapper.as_ref() == Some(&clapper) {
            shared.tell(|listener| listener.owner == owner);
            return shared.pool.give_back(lent);
        }
        match timeout(shared.pool.dialer().limit(), shared.kill(&mut lent, &clapper)).await {
            Ok(Ok(true)) => shared.pool.give_back(lent),
            Ok(Ok(false)) => {
                self.shared.runtime.spawn(async move { shared.kill_later(lent, &clapper).await });
            }
            failed => debug!(?failed, "a waiter was not woken"),
        }
    }
}

impl Ear {
    /// Resolves to a reason to ask again.
    pub(crate) async fn heard(mut self) -> Option<Grant> {
        // An error is the dropped rope, which tells.
        (&mut self.heard).await.ok().and(None)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.shared.lock().ears.remove(&self.id);
    }
}

impl Shared {
    async fn hang(self: &Arc<Self>) {
        let _one = self.hanging.lock().await;
        if self.lock().clapper.is_some() {
            return;
        }
        match timeout(self.pool.dialer().limit() * 2, self.connect()).await {
            Ok(Ok((connection, clapper))) => {
                self.lock().clapper = Some(clapper.clone());
                self.runtime.spawn(attend(self.clone(), connection, clapper));
            }
            failed => {
                debug!(?failed, "no connection to be woken by; waiters poll");
                self.lock().refused = Some(Moment::now());
            }
        }
    }

    async fn connect(&self) -> Result<(MySqlConnection, Clapper), Failure> {
        let mut connection = self.pool.dialer().dial().await?;
        let row = sqlx::raw_sql("SELECT CONNECTION_ID()").fetch_one(&mut connection).await?;
        let nonce = Owner::random()?.to_hex()[..16].to_owned();
        Ok((connection, Clapper { connection: row.try_get_unchecked(0)?, nonce }))
    }

    /// Sleeps and listens until the connection breaks or nobody has waited for a while.
    async fn swing(self: &Arc<Self>, connection: &mut MySqlConnection, clapper: &Clapper) {
        loop {
            if self.lock().ears.is_empty() {
                let listened = timeout(LINGER, self.listened.notified()).await;
                if listened.is_err() && self.fell_idle() {
                    return;
                }
                continue;
            }
            let text = format!("SELECT SLEEP({}) AS polylock_{}", NAP.as_secs(), clapper.nonce);
            let nap = sqlx::raw_sql(AssertSqlSafe(text)).fetch_one(&mut *connection);
            tokio::pin!(nap);
            // The first poll sends the statement.
            let early = tokio::select! {
                biased;
                ended = &mut nap => Some(ended),
                () = std::future::ready(()) => None,
            };
            let ended = match early {
                Some(ended) => ended,
                None => {
                    self.runtime.spawn(sweep_until_it_hangs(self.clone(), clapper.clone()));
                    tokio::select! {
                        ended = nap => ended,
                        () = self.idle() => return,
                    }
                }
            };
            match ended.map_err(Failure::from) {
                // The end of the nap.
                Ok(row) if row.try_get_unchecked::<i64, _>(0).is_ok_and(|interrupted| interrupted == 0) => {}
                Ok(_) => self.rung(clapper),
                Err(failure) if failure.is_interruption() => self.rung(clapper),
                Err(failure) => return debug!(?failure, "the bell has fallen"),
            }
        }
    }

    /// Finds out for whom it rang; that is no question if only one listens.
    fn rung(self: &Arc<Self>, clapper: &Clapper) {
        let listeners = self.lock().ears.len();
        if listeners <= 1 {
            return self.tell(|_| true);
        }
        let (shared, clapper) = (self.clone(), clapper.clone());
        self.runtime.spawn(async move { shared.swept(&clapper).await });
    }

    /// Resolves when nobody has listened for a while; the bell has fallen then.
    async fn idle(&self) {
        loop {
            tokio::time::sleep(LINGER).await;
            if self.fell_idle() {
                return;
            }
        }
    }

    fn fell_idle(&self) -> bool {
        let mut state = self.lock();
        if state.ears.is_empty() {
            state.clapper = None;
        }
        state.ears.is_empty()
    }

    /// Looks at the rows and tells those who hold now; whether the connection was asleep before that.
    async fn swept(&self, clapper: &Clapper) -> bool {
        let sweeping = timeout(self.pool.dialer().limit(), self.sweep(clapper));
        match sweeping.await {
            Ok(Ok(hangs)) => hangs,
            failed => {
                debug!(?failed, "the waiters have to look for themselves");
                self.tell(|_| true);
                false
            }
        }
    }

    async fn sweep(&self, clapper: &Clapper) -> Result<bool, Failure> {
        let mut lent = self.pool.lend().await?;
        let names: Vec<Name> = self.lock().ears.values().map(|listener| listener.name.clone()).collect();
        let (mut hangs, mut holders) = (false, Vec::new());
        for row in sqlx::raw_sql(self.statements.sweep(clapper, names.iter())).fetch_all(&mut *lent).await? {
            if row.len() == 1 {
                hangs = row.try_get_unchecked::<i64, _>(0)? > 0;
            } else {
                holders.extend(row.try_get_unchecked::<Option<Vec<u8>>, _>(1)?);
            }
        }
        self.pool.give_back(lent);
        self.tell(|listener| holders.iter().any(|holder| holder == listener.owner.as_bytes()));
        Ok(hangs)
    }

    /// Ends the sleep of a waiter's connection, if it is seen asleep.
    async fn kill(&self, lent: &mut Lent, clapper: &Clapper) -> Result<bool, Failure> {
        let row = sqlx::raw_sql(self.statements.hangs(clapper)).fetch_one(&mut **lent).await?;
        let hangs = row.try_get_unchecked::<i64, _>(0)? > 0;
        if hangs {
            let text = format!("KILL QUERY {}", clapper.connection);
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut **lent).await?;
        }
        Ok(hangs)
    }

    async fn kill_later(&self, mut lent: Lent, clapper: &Clapper) {
        for pause in LATER {
            tokio::time::sleep(pause).await;
            match timeout(self.pool.dialer().limit(), self.kill(&mut lent, clapper)).await {
                Ok(Ok(true)) => break,
                Ok(Ok(false)) => {}
                failed => return debug!(?failed, "a waiter was not woken"),
            }
        }
        self.pool.give_back(lent);
    }

    fn tell(&self, whom: impl Fn(&Listener) -> bool) {
        self.lock().ears.retain(|_, listener| !whom(listener));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The life of a bell; whoever listens when it ends is told to look.
async fn attend(shared: Arc<Shared>, mut connection: MySqlConnection, clapper: Clapper) {
    let hung = Moment::now();
    tokio::select! {
        () = shared.closed.cancelled() => {}
        () = shared.swing(&mut connection, &clapper) => {}
    }
    let now = Moment::now();
    let mut state = shared.lock();
    if state.clapper.as_ref() == Some(&clapper) {
        state.clapper = None;
        state.ears.clear();
        // What falls at once would fall at once again.
        state.refused = (now.saturating_since(hung) < RESPITE).then_some(now);
    }
    drop(state);
    // What is asleep cannot say goodbye.
    drop(connection);
}

/// What rang before the connection slept is lost: looks at the rows until it does.
async fn sweep_until_it_hangs(shared: Arc<Shared>, clapper: Clapper) {
    let mut pause = Duration::from_millis(10);
    loop {
        // The statement was sent just now; and whoever listens has a request under way.
        tokio::time::sleep(pause).await;
        if shared.lock().clapper.as_ref() != Some(&clapper) || shared.swept(&clapper).await {
            return;
        }
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}
