use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lock_core::{Error, Moment, Result};
use sqlx::{Connection, MySqlConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::dial::Dialer;

/// A connection that lay idle for longer is asked whether it lives, so that no statement is sent into a
/// connection that the server or a firewall has closed meanwhile.
const TRUSTED: Duration = Duration::from_secs(5);

/// An idle connection that others were used before for so long is closed.
const SPARE: Duration = Duration::from_secs(60);

/// Connections for one step each. Only those come back whose step has ended well.
///
/// A pool of our own, because a step must be able to leave its connection in any state: what is dropped is
/// closed, and the server then rolls its transaction back.
#[derive(Debug)]
pub(crate) struct Pool {
    dialer: Dialer,
    idle: Mutex<Vec<Idle>>,
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct Idle {
    connection: MySqlConnection,
    since: Moment,
}

/// A connection, closed when dropped.
#[derive(Debug)]
pub(crate) struct Lent {
    connection: MySqlConnection,
    _place: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(dialer: Dialer, most: u32) -> Self {
        let places = Arc::new(Semaphore::new(most as usize));
        Self { dialer, idle: Mutex::default(), places }
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// A connection that is known to live.
    ///
    /// # Errors
    ///
    /// Those of dialing. Nothing was sent.
    pub(crate) async fn lend(&self) -> Result<Lent> {
        let place = self.places.clone().acquire_owned().await;
        // Nobody closes the semaphore.
        let place = place.map_err(|e| Error::invalid_input("no connections").with_source(e))?;
        while let Some(Idle { mut connection, since }) = self.pop() {
            if Moment::now().saturating_since(since) < TRUSTED {
                return Ok(Lent { connection, _place: place });
            }
            match tokio::time::timeout(self.dialer.limit(), connection.ping()).await {
                Ok(Ok(())) => return Ok(Lent { connection, _place: place }),
                Ok(Err(_)) => {}
                // The others would be as silent.
                Err(_) => self.forget(),
            }
        }
        Ok(Lent { connection: self.dialer.dial().await?, _place: place })
    }

    /// Takes a connection back, outside any transaction.
    pub(crate) fn give_back(&self, lent: Lent) {
        let now = Moment::now();
        let mut idle = self.lock();
        idle.push(Idle { connection: lent.connection, since: now });
        if now.saturating_since(idle[0].since) > SPARE {
            idle.remove(0);
        }
    }

    /// Closes what is idle: one connection broke, and the others will have broken too.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    /// The connection that was used last, so that the others grow old and are closed.
    fn pop(&self) -> Option<Idle> {
        self.lock().pop()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Lent {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.connection
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.connection
    }
}
