mod held;
mod ringer;
mod sleeper;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lock_core::{Claim, Grant, Moment, Name, Owner};
use sqlx::mysql::MySqlRow;
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use held::Held;
pub(crate) use ringer::heard;

use crate::{crowd::Crowd, error::Failure, pool::Pool, statements::Statements, store::End};

/// How long a bell that could not be hung up, or fell at once, is left alone.
const RESPITE: Duration = Duration::from_secs(1);

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
