use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::TryStreamExt;
use lock_core::{Claim, FencingToken, Grant, Lease, Moment, Name, Owner};
use sqlx::{Either, Executor, MySqlConnection, Row, mysql::MySqlRow};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use crate::{
    crowd::Crowd,
    error::Failure,
    pool::{Lent, Pool},
    statements::Statements,
    store::End,
};

/// After how long without waiters the connection is closed.
const LINGER: Duration = Duration::from_secs(2);

/// How long a bell that could not be hung up is left alone.
const RESPITE: Duration = Duration::from_secs(1);

/// When to ring again if nobody was asleep: who is awake looks at the rows before it sleeps again, and that
/// look may have come too early.
const LATER: [Duration; 7] = {
    let ms = Duration::from_millis;
    [ms(0), ms(1), ms(2), ms(4), ms(8), ms(16), ms(32)]
};

/// How one process wakes another: every waiting process keeps one connection in `SELECT SLEEP(n)`, and
/// whoever hands it a lock ends that statement with `KILL QUERY`. The next statement there reads the rows of
/// all locks that are waited for: a claim that holds by now needs to ask for no more.
///
/// The connection is found by a lock of the server's own, `GET_LOCK`, named by a nonce: the statement that
/// sleeps takes it first, and the next statement gives it up. So while it is taken, a `KILL QUERY` either
/// ends the sleep or comes before the look at the rows that precedes the next one; and while it is not
/// taken, whoever rings learns that nobody heard, and rings again. No other statement can be hit: no two
/// processes draw the same nonce, and the server forgets the lock with the connection.
///
/// It is a hint and no more. What is lost, the waiter finds when it asks by itself.
#[derive(Debug)]
pub(crate) struct Bell {
    shared: Arc<Shared>,
    _closed: DropGuard,
}

/// Names a bell, on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nonce(pub(crate) String);

/// A claim that was handed the lock, and its waiter's bell.
#[derive(Debug)]
pub(crate) struct Promoted {
    pub(crate) name: Name,
    pub(crate) owner: Owner,
    pub(crate) bell: Nonce,
}

/// Hears when its claim was handed the lock, or when the bell has fallen.
#[derive(Debug)]
pub(crate) struct Ear {
    pub(crate) bell: Nonce,
    shared: Arc<Shared>,
    id: u64,
    heard: oneshot::Receiver<Grant>,
}

#[derive(Debug)]
struct Shared {
    pool: Arc<Pool>,
    statements: Arc<Statements>,
    crowd: Arc<Crowd>,
    runtime: Handle,
    closed: CancellationToken,
    state: Mutex<State>,
    /// One at a time hangs up the bell.
    hanging: tokio::sync::Mutex<()>,
    listened: Notify,
}

#[derive(Debug, Default)]
struct State {
    hung: Option<Nonce>,
    ears: HashMap<u64, Listener>,
    next_id: u64,
    refused: Option<Moment>,
}

#[derive(Debug)]
struct Listener {
    name: Name,
    owner: Owner,
    lease: Duration,
    /// Dropping it tells to ask again.
    rope: oneshot::Sender<Grant>,
}

/// What the row of a lock says.
#[derive(Debug)]
struct Held {
    name: Vec<u8>,
    owner: Vec<u8>,
    token: FencingToken,
    left: Duration,
    /// A moment before the row was read.
    since: Moment,
}

impl Bell {
    pub(crate) fn new(
        pool: Arc<Pool>,
        statements: Arc<Statements>,
        crowd: Arc<Crowd>,
        runtime: Handle,
    ) -> Self {
        let closed = CancellationToken::new();
        let shared = Shared {
            pool,
            statements,
            crowd,
            runtime,
            closed: closed.clone(),
            state: Mutex::default(),
            hanging: tokio::sync::Mutex::default(),
            listened: Notify::new(),
        };
        Self { shared: Arc::new(shared), _closed: closed.drop_guard() }
    }

    /// The bell that hangs now.
    pub(crate) fn nonce(&self) -> Option<Nonce> {
        self.shared.lock().hung.clone()
    }

    /// An ear for a claim that is about to take its place in the queue. `None` if the bell does not hang.
    pub(crate) fn listen(&self, claim: &Claim) -> Option<Ear> {
        let (rope, heard) = oneshot::channel();
        let mut state = self.shared.lock();
        let bell = state.hung.clone()?;
        let id = state.next_id;
        state.next_id += 1;
        let listener = Listener { name: claim.name.clone(), owner: claim.owner, lease: claim.lease, rope };
        state.ears.insert(id, listener);
        drop(state);
        self.shared.listened.notify_one();
        Some(Ear { bell, shared: self.shared.clone(), id, heard })
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

    /// Sees to it that a waiter that was handed the lock is told, in whatever process it waits. The
    /// [statement that has handed it over](Statements::leave) rings its bell, at its `end`.
    ///
    /// Nobody waits for that: the server has the text, and rings even if this process is gone by then.
    /// MariaDB may take two seconds for it: to end a sleep it tries to lock what the sleeper has locked while
    /// that one, if it woke meanwhile, waits for the lock of the other (`THD::abort_current_cond_wait`).
    pub(crate) fn ring(&self, promoted: Promoted, end: End) {
        let shared = self.shared.clone();
        self.shared.runtime.spawn(async move {
            let bell = promoted.bell;
            if shared.lock().hung.as_ref() == Some(&bell) {
                shared.tell(|listener| listener.owner == promoted.owner && listener.name == promoted.name);
                let (lent, _) = end.await;
                return shared.pool.give_back(lent);
            }
            match end.await {
                (lent, Ok(true)) => shared.pool.give_back(lent),
                (lent, Ok(false)) => shared.ring_later(lent, &bell).await,
                (lent, Err(failure)) => {
                    debug!(?failure, "a waiter was not woken");
                    if !failure.is_broken() {
                        shared.pool.give_back(lent);
                    }
                }
            }
        });
    }
}

impl Ear {
    /// Resolves to what the claim's row said, or to a reason to ask again.
    pub(crate) async fn heard(mut self) -> Option<Grant> {
        (&mut self.heard).await.ok()
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
        if self.lock().hung.is_some() {
            return;
        }
        match self.pool.dialer().dial().await.and_then(|connection| Ok((connection, Owner::random()?))) {
            Ok((connection, random)) => {
                let bell = Nonce(random.to_hex()[..16].to_owned());
                self.lock().hung = Some(bell.clone());
                self.runtime.spawn(attend(self.clone(), connection, bell));
            }
            Err(failure) => {
                debug!(?failure, "no connection to be woken by; waiters poll");
                self.lock().refused = Some(Moment::now());
            }
        }
    }

    /// Sleeps and listens until the connection breaks or nobody has waited for a while.
    async fn swing(self: &Arc<Self>, connection: &mut MySqlConnection, bell: &Nonce) -> Result<(), Failure> {
        loop {
            if self.lock().ears.is_empty() {
                let listened = timeout(LINGER, self.listened.notified()).await;
                if listened.is_err() && self.fell_idle() {
                    return Ok(());
                }
                continue;
            }
            tokio::select! {
                slept = self.nap(connection, bell) => match slept {
                    // Whoever has rung, the next look tells for whom.
                    Err(failure) if !failure.is_interruption() => return Err(failure),
                    _ => {}
                },
                () = self.idle() => return Ok(()),
            }
        }
    }

    /// Looks at the rows, and then sleeps until it is woken.
    async fn nap(self: &Arc<Self>, connection: &mut MySqlConnection, bell: &Nonce) -> Result<(), Failure> {
        let (names, newest) = {
            let state = self.lock();
            (state.ears.values().map(|listener| listener.name.clone()).collect::<Vec<_>>(), state.next_id)
        };
        let since = Moment::now();
        let mut answers = connection.fetch_many(sqlx::raw_sql(self.statements.nap(bell, &names)));
        let (mut ended, mut rows) = (0, Vec::new());
        while let Some(answer) = answers.try_next().await? {
            match answer {
                Either::Right(row) => rows.push(row),
                Either::Left(_) => {
                    ended += 1;
                    if ended == 2 {
                        self.tell_holders(&rows, since)?;
                        // Who came after the statement was sent is not in it, and may have been called
                        // while the bell's lock was not given up yet.
                        if self.lock().next_id > newest {
                            self.runtime.spawn(self.clone().look());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks at the rows on another connection.
    async fn look(self: Arc<Self>) {
        let looking = async {
            let mut lent = self.pool.lend().await?;
            let names: Vec<_> = self.lock().ears.values().map(|listener| listener.name.clone()).collect();
            let since = Moment::now();
            let rows = sqlx::raw_sql(self.statements.holders(&names)).fetch_all(&mut *lent).await?;
            self.pool.give_back(lent);
            self.tell_holders(&rows, since)
        };
        match timeout(self.pool.dialer().limit(), looking).await {
            Ok(Ok(())) => {}
            failed => {
                debug!(?failed, "the waiters have to look for themselves");
                self.tell(|_| true);
            }
        }
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
            state.hung = None;
        }
        state.ears.is_empty()
    }

    /// Ends the sleep of a waiter's connection; whether it slept. `None` if it cannot be woken.
    async fn rang(&self, lent: &mut Lent, bell: &Nonce) -> Option<bool> {
        let ringing = sqlx::raw_sql(self.statements.ring(bell)).execute(&mut **lent);
        let told = timeout(self.pool.dialer().limit(), ringing).await;
        let told = told.map(|told| heard(told.map(drop).map_err(Failure::from)));
        match told {
            Ok(Ok(slept)) => Some(slept),
            failed => {
                debug!(?failed, "a waiter was not woken");
                None
            }
        }
    }

    async fn ring_later(&self, mut lent: Lent, bell: &Nonce) {
        for pause in LATER {
            tokio::time::sleep(pause).await;
            match self.rang(&mut lent, bell).await {
                Some(false) => {}
                Some(true) => break,
                None => return,
            }
        }
        self.pool.give_back(lent);
    }

    /// Tells those who hold by now, each with its grant.
    fn tell_holders(&self, rows: &[MySqlRow], since: Moment) -> Result<(), Failure> {
        let held = rows.iter().map(|row| Held::read(row, since)).collect::<Result<Vec<_>, _>>()?;
        let mut state = self.lock();
        for held in held {
            let called = state.ears.extract_if(|_, listener| held.is_of(listener));
            for (_, listener) in called {
                self.crowd.call(&listener.name, listener.owner);
                // Whoever listened may have gone.
                let _ = listener.rope.send(held.grant(listener.lease));
            }
        }
        Ok(())
    }

    /// Tells them to ask again.
    fn tell(&self, whom: impl Fn(&Listener) -> bool) {
        for (_, listener) in self.lock().ears.extract_if(|_, listener| whom(listener)) {
            self.crowd.call(&listener.name, listener.owner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The life of a bell; whoever listens when it ends is told to look.
async fn attend(shared: Arc<Shared>, mut connection: MySqlConnection, bell: Nonce) {
    let hung = Moment::now();
    tokio::select! {
        () = shared.closed.cancelled() => {}
        ended = shared.swing(&mut connection, &bell) => {
            if let Err(failure) = ended {
                debug!(?failure, "the bell has fallen");
            }
        }
    }
    let now = Moment::now();
    let mut state = shared.lock();
    if state.hung.as_ref() == Some(&bell) {
        state.hung = None;
        state.ears.clear();
        // What falls at once would fall at once again.
        state.refused = (now.saturating_since(hung) < RESPITE).then_some(now);
    }
    drop(state);
    // What is asleep cannot say goodbye.
    drop(connection);
}

/// Whether a `KILL QUERY` met somebody asleep.
pub(crate) fn heard(told: Result<(), Failure>) -> Result<bool, Failure> {
    match told {
        Ok(()) => Ok(true),
        Err(failure) if failure.is_nobody() => Ok(false),
        Err(failure) => Err(failure),
    }
}

impl Held {
    fn read(row: &MySqlRow, since: Moment) -> Result<Self, Failure> {
        // It may have run out.
        let left: i64 = row.try_get_unchecked(3)?;
        Ok(Self {
            name: row.try_get_unchecked(0)?,
            owner: row.try_get_unchecked(1)?,
            token: FencingToken::new(row.try_get_unchecked(2)?),
            left: Duration::from_micros(u64::try_from(left).unwrap_or(0)),
            since,
        })
    }

    fn is_of(&self, listener: &Listener) -> bool {
        self.name == listener.name.as_str().as_bytes() && self.owner == listener.owner.as_bytes()
    }

    /// The lease was asked for when the claim took or kept its place: so it counts from there.
    fn grant(&self, lease: Duration) -> Grant {
        Grant::new(self.token, Lease::new(self.since - lease.saturating_sub(self.left), lease))
    }
}
