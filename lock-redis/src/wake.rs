use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{RedisError, Value, aio::MultiplexedConnection};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;

/// A channel without a waiter stays subscribed for one to two of these: a name that is handed from one
/// waiter to the next is not subscribed anew each time.
const LINGER: Duration = Duration::from_secs(1);

/// Hears the next release of one name, or the end of the connection.
pub(crate) type Ear = watch::Receiver<()>;

/// The channels that one connection is subscribed to, each with a bell for its waiters.
///
/// A bell hangs here only while the server is known to push that channel; `None` once the connection is
/// gone, which wakes everybody, since what was published meanwhile is lost.
#[derive(Clone)]
pub(crate) struct Bells(Arc<Mutex<Option<HashMap<String, Bell>>>>);

struct Bell {
    rope: watch::Sender<()>,
    was_idle: bool,
}

impl Bells {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(HashMap::new()))))
    }

    /// An ear at a channel that is subscribed already.
    pub(crate) fn ear(&self, channel: &str) -> Option<Ear> {
        self.with(|bells| bells.get(channel).map(|bell| bell.rope.subscribe())).flatten()
    }

    /// Wakes those who listen to the channel.
    pub(crate) fn ring(&self, channel: &str) {
        self.with(|bells| bells.get(channel).map(|bell| bell.rope.send_replace(())));
    }

    /// Wakes everybody, for good.
    pub(crate) fn take_down(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn hang(&self, channel: String) -> Ear {
        let (rope, ear) = watch::channel(());
        self.with(|bells| bells.insert(channel, Bell { rope, was_idle: false }));
        ear
    }

    fn any(&self) -> bool {
        self.with(|bells| !bells.is_empty()).unwrap_or(false)
    }

    /// Takes down the bells that nobody has listened to since the last time.
    fn take_idle(&self) -> Vec<String> {
        let mut idle = Vec::new();
        self.with(|bells| {
            bells.retain(|channel, bell| {
                let was_idle = bell.was_idle;
                bell.was_idle = bell.rope.is_closed();
                let keep = !(was_idle && bell.was_idle);
                if !keep {
                    idle.push(channel.clone());
                }
                keep
            });
        });
        idle
    }

    fn with<T>(&self, f: impl FnOnce(&mut HashMap<String, Bell>) -> T) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(f)
    }
}

/// A wish to hear a channel.
pub(crate) struct Ask {
    pub(crate) channel: String,
    pub(crate) answer: oneshot::Sender<Result<Ear, RedisError>>,
}

/// Subscribes and unsubscribes for one connection, one command at a time, so that the bells always say
/// what the server does.
pub(crate) async fn listen(
    mut connection: MultiplexedConnection,
    bells: Bells,
    mut asks: mpsc::UnboundedReceiver<Ask>,
    closed: CancellationToken,
) {
    let mut sweep = tokio::time::interval(LINGER);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = closed.cancelled() => return,
            ask = asks.recv() => {
                let Some(Ask { channel, answer }) = ask else { return };
                let ear = match bells.ear(&channel) {
                    Some(ear) => Ok(ear),
                    None => connection.subscribe(&channel).await.map(|()| bells.hang(channel)),
                };
                // Whoever asked may have given up; the bell is taken down when the time comes.
                let _ = answer.send(ear);
            }
            _ = sweep.tick(), if bells.any() => {
                let idle = bells.take_idle();
                if !idle.is_empty() && connection.unsubscribe(&idle).await.is_err() {
                    // What is subscribed is no longer known.
                    closed.cancel();
                }
            }
        }
    }
}

/// The channel of a published message, if it is one.
pub(crate) fn channel_of(data: &[Value]) -> Option<&str> {
    match data.first()? {
        Value::BulkString(channel) => std::str::from_utf8(channel).ok(),
        Value::SimpleString(channel) => Some(channel),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_is_taken_down_when_it_was_idle_twice_in_a_row() {
        let bells = Bells::new();
        let ear = bells.hang("a".into());
        assert!(bells.take_idle().is_empty());
        assert!(bells.take_idle().is_empty());
        drop(ear);
        assert!(bells.take_idle().is_empty());
        let ear = bells.ear("a").unwrap();
        assert!(bells.take_idle().is_empty());
        drop(ear);
        assert!(bells.take_idle().is_empty());
        assert_eq!(bells.take_idle(), ["a"]);
        assert!(!bells.any());
    }

    #[tokio::test]
    async fn the_end_of_a_connection_wakes_those_who_listen_and_those_who_come_late() {
        let bells = Bells::new();
        let mut early = bells.hang("a".into());
        bells.take_down();
        assert!(early.changed().await.is_err());
        assert!(bells.ear("a").is_none());
        assert!(bells.hang("a".into()).changed().await.is_err());
    }
}
