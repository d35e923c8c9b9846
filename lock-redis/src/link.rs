use std::{
    future::Future,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_core::{Doubt, Moment};
use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};
use tokio::{runtime::Handle, sync::OnceCell, task::AbortHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    error,
    wake::{Bells, Ear},
};

/// A connection that has given no answer for so long, while one was given up, is taken for dead. Longer
/// than any round trip worth having a lock over; so short that a renewal still fits on a new connection.
const SILENCE: Duration = Duration::from_millis(250);

/// One connection to the server, from the greeting to its end. It is never mended, only replaced.
///
/// Dropping it closes the socket and ends its tasks.
pub(crate) struct Link {
    connection: MultiplexedConnection,
    bells: Bells,
    /// Where it is told of promotions; `None` if the server does not push.
    channel: Option<String>,
    /// Whether it is subscribed there: since the first claim that had to wait.
    listens: OnceCell<bool>,
    /// How many requests were answered so far.
    answers: AtomicU64,
    /// Since when there was no answer, as far as requests were given up; with the count at that time.
    silent: Mutex<Option<(u64, Moment)>>,
    closed: CancellationToken,
    driver: AbortHandle,
}

impl Link {
    /// Starts the connection's task; `doubt` is raised when it ends.
    pub(crate) fn new(
        connection: MultiplexedConnection,
        driver: impl Future<Output = ()> + Send + 'static,
        bells: Bells,
        channel: Option<String>,
        doubt: Doubt,
    ) -> Self {
        let closed = CancellationToken::new();
        let end = End { closed: closed.clone(), bells: bells.clone(), doubt };
        let driver = Handle::current().spawn(async move {
            let _end = end;
            driver.await;
        });
        Self {
            connection,
            bells,
            channel,
            listens: OnceCell::new(),
            answers: AtomicU64::new(0),
            silent: Mutex::new(None),
            driver: driver.abort_handle(),
            closed,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.closed.is_cancelled()
    }

    /// Ends the connection; requests under way fail, waiters wake.
    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.driver.abort();
    }

    /// Whether any request was answered so far.
    pub(crate) fn has_answered(&self) -> bool {
        self.answers.load(Ordering::Relaxed) > 0
    }

    /// Sends a command and waits for the answer, as long as it takes.
    pub(crate) async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        self.ask_at(Moment::now(), command).await
    }

    /// As [`ask`](Self::ask), by whoever knows what time it is.
    pub(crate) async fn ask_at(&self, now: Moment, command: &Cmd) -> RedisResult<Value> {
        let request = self.request(now);
        let answer = command.query_async(&mut self.connection.clone()).await;
        request.over();
        match &answer {
            Err(failure) if failure.is_io_error() || failure.is_unrecoverable_error() => self.close(),
            // A primary that became a replica stays one; its address may lead elsewhere by now.
            Err(failure) if error::code(failure) == "READONLY" => self.close(),
            _ => _ = self.answers.fetch_add(1, Ordering::Relaxed),
        }
        answer
    }

    /// An ear for a claim, if the connection listens already. No I/O.
    pub(crate) fn ear(&self, claim: impl FnOnce() -> String) -> Option<Ear> {
        (self.listens.get() == Some(&true)).then(|| self.bells.ear(claim()))
    }

    /// An ear for a claim; `None` if the server does not push, or not to this user.
    pub(crate) async fn listen(&self, claim: impl FnOnce() -> String) -> Option<Ear> {
        let listens = self.listens.get_or_try_init(|| self.subscribe()).await.ok()?;
        listens.then(|| self.bells.ear(claim()))
    }

    /// The connection's channel, if this user may listen there. It listens no longer when this returns.
    pub(crate) async fn probe(&self) -> Option<&str> {
        if !self.subscribe().await.ok()? {
            return None;
        }
        let channel = self.channel.as_deref()?;
        // Who stays subscribed loses nothing.
        let _ = self.connection.clone().unsubscribe(channel).await;
        Some(channel)
    }

    /// Whether the server pushes to this user. An error says that the connection is gone.
    async fn subscribe(&self) -> RedisResult<bool> {
        let Some(channel) = &self.channel else { return Ok(false) };
        let request = self.request(Moment::now());
        let answer = self.connection.clone().subscribe(channel).await;
        request.over();
        match answer {
            Ok(()) => {
                self.answers.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            }
            Err(broken) if broken.is_io_error() => Err(broken),
            Err(refused) => {
                tracing::debug!(reason = %error::from_redis(&refused), "no pushes from redis; waiters poll");
                Ok(false)
            }
        }
    }

    fn request(&self, sent: Moment) -> Request<'_> {
        Request { link: self, sent, answers: self.answers.load(Ordering::Relaxed) }
    }

    /// A request was dropped without an answer. Once is nothing: its caller may have lost interest.
    fn given_up(&self, sent: Moment, answers_before: u64) {
        let answers = self.answers.load(Ordering::Relaxed);
        if answers != answers_before {
            return;
        }
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let since = match *silent {
            Some((count, since)) if count == answers => since.min(sent),
            _ => sent,
        };
        *silent = Some((answers, since));
        if Moment::now().saturating_since(since) >= SILENCE {
            tracing::warn!("redis does not answer; its connection is replaced");
            self.close();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

/// A request under way; dropping it without an answer counts against the connection.
struct Request<'a> {
    link: &'a Link,
    sent: Moment,
    answers: u64,
}

impl Request<'_> {
    /// It was answered, or failed with its connection.
    fn over(self) {
        std::mem::forget(self);
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.link.given_up(self.sent, self.answers);
    }
}

/// Dropped with the connection's task, also when its runtime shuts down under it.
struct End {
    closed: CancellationToken,
    bells: Bells,
    doubt: Doubt,
}

impl Drop for End {
    fn drop(&mut self) {
        self.closed.cancel();
        self.bells.take_down();
        self.doubt.raise();
    }
}
