use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::TryStreamExt;
use lock_core::{Claim, Grant, Moment, Name, Owner};
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
};

/// After how long without waiters the connection is closed.
const LINGER: Duration = Duration::from_secs(2);

/// How long a bell that could not be hung up is left alone.
const RESPITE: Duration = Duration::from_secs(1);

/// When to ring again if nobody was asleep: who is awake looks at the rows before it sleeps again, and that
/// look may have come too early.
const LATER: [Duration; 6] = {
    let ms = Duration::from_millis;
    [ms(1), ms(2), ms(4), ms(8), ms(16), ms(32)]
};

/// How one process wakes another: every waiting process keeps one connection in `SELECT SLEEP(n)`, and
/// whoever hands it a lock ends that statement with `KILL QUERY`.
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
    heard: oneshot::Receiver<()>,
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
    /// Dropping it tells.
    _rope: oneshot::Sender<()>,
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
        state.ears.insert(id, Listener { name: claim.name.clone(), owner: claim.owner, _rope: rope });
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

    /// Tells a waiter that was handed the lock, in whatever process it waits, unless it was told already
    /// by the [statement that has done so](Statements::leave), whose last word is `told`.
    ///
    /// The answer to a release waits for it, since a process may end with its last release. A waiter that is
    /// awake is looked for in the background.
    pub(crate) async fn ring(&self, promoted: Promoted, told: Result<(), Failure>, mut lent: Lent) {
        let (shared, bell) = (self.shared.clone(), promoted.bell);
        if shared.lock().hung.as_ref() == Some(&bell) {
            shared.tell(|listener| listener.owner == promoted.owner && listener.name == promoted.name);
            return shared.pool.give_back(lent);
        }
        match heard(told) {
            Ok(true) => return shared.pool.give_back(lent),
            Ok(false) => {}
            Err(failure) => {
                debug!(?failure, "a waiter was not woken");
                if !failure.is_broken() {
                    shared.pool.give_back(lent);
                }
                return;
            }
        }
        match shared.rang(&mut lent, &bell).await {
            Some(true) => shared.pool.give_back(lent),
            Some(false) => {
                drop(self.shared.runtime.spawn(async move { shared.ring_later(lent, &bell).await }))
            }
            None => {}
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
            let rung = tokio::select! {
                slept = self.nap(connection, bell) => match slept {
                    Ok(rung) => rung,
                    Err(failure) if failure.is_interruption() => true,
                    Err(failure) => return Err(failure),
                },
                () = self.idle() => return Ok(()),
            };
            // For whom it rang is no question if only one listens; else the next look tells.
            if rung && self.lock().ears.len() == 1 {
                self.tell(|_| true);
            }
        }
    }

    /// Looks at the rows, and then sleeps; whether it was woken.
    async fn nap(self: &Arc<Self>, connection: &mut MySqlConnection, bell: &Nonce) -> Result<bool, Failure> {
        let (names, newest) = {
            let state = self.lock();
            (state.ears.values().map(|listener| listener.name.clone()).collect::<Vec<_>>(), state.next_id)
        };
        let text = self.statements.nap(bell, &names);
        let mut answers = connection.fetch_many(sqlx::raw_sql(text));
        let (mut ended, mut holders, mut rung) = (0, Vec::new(), false);
        while let Some(answer) = answers.try_next().await? {
            match answer {
                // The first statement gives the bell's lock up, the second one looks.
                Either::Right(row) if ended == 1 => holders.extend(holder(&row)?),
                Either::Right(row) => rung = row.try_get_unchecked::<i64, _>(1)? != 0,
                Either::Left(_) => {
                    ended += 1;
                    if ended == 2 {
                        self.tell_holders(&holders);
                        // Who came after the statement was sent is not in it, and may have been called
                        // while the bell's lock was not given up yet.
                        if self.lock().next_id > newest {
                            self.runtime.spawn(self.clone().look());
                        }
                    }
                }
            }
        }
        Ok(rung)
    }

    /// Looks at the rows on another connection.
    async fn look(self: Arc<Self>) {
        let looking = async {
            let mut lent = self.pool.lend().await?;
            let names: Vec<_> = self.lock().ears.values().map(|listener| listener.name.clone()).collect();
            let rows = sqlx::raw_sql(self.statements.holders(&names)).fetch_all(&mut *lent).await?;
            self.pool.give_back(lent);
            let holders = rows.iter().map(holder).collect::<Result<Vec<_>, _>>()?;
            self.tell_holders(&holders.into_iter().flatten().collect::<Vec<_>>());
            Ok::<_, Failure>(())
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

    fn tell_holders(&self, holders: &[Held]) {
        self.tell(|listener| {
            holders.iter().any(|(name, owner)| {
                name == listener.name.as_str().as_bytes() && owner == listener.owner.as_bytes()
            })
        });
    }

    fn tell(&self, whom: impl Fn(&Listener) -> bool) {
        self.lock().ears.retain(|_, listener| {
            let told = whom(listener);
            if told {
                self.crowd.call(&listener.name, listener.owner);
            }
            !told
        });
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
fn heard(told: Result<(), Failure>) -> Result<bool, Failure> {
    match told {
        Ok(()) => Ok(true),
        Err(failure) if failure.is_nobody() => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// A lock's name, and its holder.
type Held = (Vec<u8>, Vec<u8>);

fn holder(row: &MySqlRow) -> Result<Option<Held>, Failure> {
    let (name, owner): (Vec<u8>, Option<Vec<u8>>) = (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
    Ok(owner.map(|owner| (name, owner)))
}
