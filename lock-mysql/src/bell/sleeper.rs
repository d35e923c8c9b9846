use std::{sync::Arc, time::Duration};

use futures_util::TryStreamExt;
use lock_core::{Moment, Owner};
use sqlx::{Either, Executor, MySqlConnection};
use tokio::time::timeout;
use tracing::debug;

use super::{Nonce, RESPITE, Shared};
use crate::error::Failure;

/// After how long without waiters the connection is closed.
const LINGER: Duration = Duration::from_secs(2);

impl Shared {
    /// Hangs the bell up, unless it hangs.
    pub(super) async fn hang(self: &Arc<Self>) {
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
