use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use etcd_client::{
    EventType, WatchFilterType, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream,
};
use tokio::{
    runtime::Handle,
    sync::{broadcast, mpsc, oneshot},
    time::{Instant, MissedTickBehavior},
};

use crate::cluster::Cluster;

/// A queue that nobody listens to stays watched for one to two of these: a name that is handed from one
/// waiter to the next is not watched anew each time.
const LINGER: Duration = Duration::from_secs(1);
/// How long a server that refused a watch is not asked for another: waiters poll meanwhile.
const REFUSED: Duration = Duration::from_secs(10);
/// How many deleted keys an ear remembers; one that misses some wakes, and looks.
const MEMORY: usize = 64;

/// Hears every key of one queue that is deleted, or the end of the watch.
pub(crate) type Ear = broadcast::Receiver<Arc<[u8]>>;

/// One watch for each queue that somebody waits in, all on one stream.
///
/// A watch is created without a start revision: one that names a revision that others may have passed
/// waits for a loop of the server's that runs ten times a second. It is kept as long as somebody waits in
/// the queue, and who hears of a key decides whether it matters; so a hand-over needs no new watch.
pub(crate) struct Watches {
    bells: Bells,
    asks: mpsc::UnboundedSender<Ask>,
}

/// A queue to be watched.
struct Ask {
    queue: String,
    answer: oneshot::Sender<Option<Ear>>,
}

impl Watches {
    /// The stream lives on this runtime, from the first ask on.
    pub(crate) fn new(cluster: Arc<Cluster>, runtime: &Handle) -> Self {
        let (asks, inbox) = mpsc::unbounded_channel();
        let bells = Bells::default();
        runtime.spawn(listen(cluster, bells.clone(), inbox));
        Self { bells, asks }
    }

    /// An ear at a queue that is watched already.
    pub(crate) fn ear(&self, queue: &str) -> Option<Ear> {
        self.bells.ear(queue)
    }

    /// An ear at a queue that the server says it watches; `None` if it does not.
    pub(crate) async fn subscribe(&self, queue: &str) -> Option<Ear> {
        let (answer, ear) = oneshot::channel();
        self.asks.send(Ask { queue: queue.to_owned(), answer }).ok()?;
        ear.await.ok().flatten()
    }
}

/// The queues that the server is known to watch, each with a bell.
#[derive(Clone, Default)]
struct Bells(Arc<Mutex<HashMap<String, Bell>>>);

struct Bell {
    id: i64,
    rope: broadcast::Sender<Arc<[u8]>>,
    was_idle: bool,
}

impl Bells {
    fn ear(&self, queue: &str) -> Option<Ear> {
        self.with(|bells| bells.get(queue).map(|bell| bell.rope.subscribe()))
    }

    fn hang(&self, queue: String, id: i64) -> Ear {
        let (rope, ear) = broadcast::channel(MEMORY);
        self.with(|bells| bells.insert(queue, Bell { id, rope, was_idle: false }));
        ear
    }

    /// Tells those who wait in its queue that a key was deleted.
    fn ring(&self, deleted: &[u8]) {
        let Some(slash) = deleted.iter().rposition(|&byte| byte == b'/') else { return };
        let Ok(queue) = std::str::from_utf8(&deleted[..=slash]) else { return };
        self.with(|bells| {
            if let Some(bell) = bells.get(queue) {
                // Nobody may listen just now.
                let _ = bell.rope.send(deleted.into());
            }
        });
    }

    /// Wakes everybody who listens to one watch.
    fn take(&self, id: i64) {
        self.with(|bells| bells.retain(|_, bell| bell.id != id));
    }

    /// Wakes everybody.
    fn take_all(&self) {
        self.with(HashMap::clear);
    }

    fn any(&self) -> bool {
        self.with(|bells| !bells.is_empty())
    }

    /// Takes down the bells that nobody has listened to since the last time.
    fn take_idle(&self) -> Vec<i64> {
        let mut idle = Vec::new();
        self.with(|bells| {
            bells.retain(|_, bell| {
                let was_idle = std::mem::replace(&mut bell.was_idle, bell.rope.receiver_count() == 0);
                let keep = !(was_idle && bell.was_idle);
                if !keep {
                    idle.push(bell.id);
                }
                keep
            });
        });
        idle
    }

    fn with<T>(&self, f: impl FnOnce(&mut HashMap<String, Bell>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Keeps one stream of watches, anew whenever somebody asks and there is none.
async fn listen(cluster: Arc<Cluster>, bells: Bells, mut asks: mpsc::UnboundedReceiver<Ask>) {
    let mut deaf_until: Option<Instant> = None;
    while let Some(ask) = asks.recv().await {
        if deaf_until.is_some_and(|until| Instant::now() < until) {
            continue;
        }
        let mut turns = cluster.turns();
        let mut stream = Stream { bells: bells.clone(), pending: HashMap::new(), last: 0 };
        let ended = tokio::select! {
            ended = stream.run(&cluster, ask, &mut asks) => ended,
            // Whoever had its turn is in doubt, and so is what it pushes.
            _ = turns.changed() => Ended::Broken,
        };
        // Those who wait for an answer hear that there is none; those who listen wake.
        drop(stream);
        bells.take_all();
        match ended {
            Ended::Broken => {}
            Ended::Refused => deaf_until = Some(Instant::now() + REFUSED),
            Ended::Unwanted => return,
        }
    }
}

/// Why a stream came to its end.
enum Ended {
    Broken,
    /// The server does not let this user watch; or not any more, until it has logged in again.
    Refused,
    /// The backend is gone.
    Unwanted,
}

/// A queue, and those who want to hear it.
type Pending = (String, Vec<oneshot::Sender<Option<Ear>>>);

/// One stream, and the watches on it that the server has not confirmed yet.
struct Stream {
    bells: Bells,
    pending: HashMap<i64, Pending>,
    last: i64,
}

impl Stream {
    async fn run(&mut self, cluster: &Cluster, first: Ask, asks: &mut mpsc::UnboundedReceiver<Ask>) -> Ended {
        let Ok(member) = cluster.member().await else { return Ended::Broken };
        let trial = cluster.trial(member.turn);
        let opened = member.watch.clone().watch(&*first.queue, Some(self.options())).await;
        let (mut requests, mut responses) = match opened {
            Ok(stream) => stream.split(),
            Err(failed) => {
                tracing::debug!(%failed, "no stream of watches");
                trial.failed();
                return Ended::Broken;
            }
        };
        trial.answered();
        self.pending.insert(self.last, (first.queue, vec![first.answer]));
        let mut sweep = tokio::time::interval(LINGER);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                told = next(&mut responses) => {
                    let Some(told) = told else { return Ended::Broken };
                    if self.refused(&told) {
                        // A login may have run out: the next member, or connection, logs in anew.
                        cluster.trial(member.turn).failed();
                        return Ended::Refused;
                    }
                    self.heard(&told);
                }
                ask = asks.recv() => {
                    let Some(ask) = ask else { return Ended::Unwanted };
                    if !self.asked(ask, &mut requests).await {
                        return Ended::Broken;
                    }
                }
                _ = sweep.tick(), if self.bells.any() => {
                    for id in self.bells.take_idle() {
                        if requests.cancel(id).await.is_err() {
                            return Ended::Broken;
                        }
                    }
                }
            }
        }
    }

    /// The options of the next watch.
    fn options(&mut self) -> WatchOptions {
        self.last += 1;
        WatchOptions::new().with_prefix().with_filters([WatchFilterType::NoPut]).with_watch_id(self.last)
    }

    async fn asked(&mut self, ask: Ask, requests: &mut WatchRequestSender) -> bool {
        if let Some(ear) = self.bells.ear(&ask.queue) {
            // Whoever asked may have given up.
            let _ = ask.answer.send(Some(ear));
            return true;
        }
        if let Some((_, answers)) = self.pending.values_mut().find(|(queue, _)| *queue == ask.queue) {
            answers.push(ask.answer);
            return true;
        }
        let options = self.options();
        let sent = requests.watch(&*ask.queue, Some(options)).await.is_ok();
        self.pending.insert(self.last, (ask.queue, vec![ask.answer]));
        sent
    }

    fn refused(&self, told: &WatchResponse) -> bool {
        let refused = told.created() && told.canceled();
        if refused {
            tracing::warn!(reason = told.cancel_reason(), "etcd refuses to watch; waiters poll");
        }
        refused
    }

    fn heard(&mut self, told: &WatchResponse) {
        let id = told.watch_id();
        if told.created()
            && let Some((queue, answers)) = self.pending.remove(&id)
        {
            let ear = self.bells.hang(queue, id);
            for answer in answers {
                let _ = answer.send(Some(ear.resubscribe()));
            }
        }
        for event in told.events() {
            if event.event_type() == EventType::Delete
                && let Some(deleted) = event.kv()
            {
                self.bells.ring(deleted.key());
            }
        }
        // Such as one that fell behind a compaction.
        if told.canceled() {
            self.bells.take(id);
        }
    }
}

async fn next(responses: &mut WatchResponseStream) -> Option<WatchResponse> {
    match responses.message().await {
        Ok(told) => told,
        Err(failed) => {
            tracing::debug!(%failed, "the stream of watches has ended");
            None
        }
    }
}

/// Waits until one of these keys is deleted, or until that cannot be told any more.
pub(crate) async fn deleted(mut ear: Ear, keys: [&[u8]; 2]) {
    while let Ok(key) = ear.recv().await {
        if keys.contains(&&*key) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_is_taken_down_when_it_was_idle_twice_in_a_row() {
        let bells = Bells::default();
        let ear = bells.hang("a/".into(), 1);
        assert!(bells.take_idle().is_empty());
        drop(ear);
        assert!(bells.take_idle().is_empty());
        let ear = bells.ear("a/").unwrap();
        assert!(bells.take_idle().is_empty());
        drop(ear);
        assert!(bells.take_idle().is_empty());
        assert_eq!(bells.take_idle(), [1]);
        assert!(!bells.any());
    }

    #[tokio::test]
    async fn an_ear_wakes_for_its_own_keys_and_at_the_end() {
        let bells = Bells::default();
        let ear = bells.hang("a/".into(), 7);
        let other = bells.ear("a/").unwrap();
        bells.ring(b"a/other");
        bells.ring(b"b/mine");
        let mut waiting = Box::pin(deleted(ear, [b"a/mine", b"a/ahead"]));
        tokio::select! {
            biased;
            () = &mut waiting => panic!("woken by another's key"),
            () = tokio::task::yield_now() => {}
        }
        bells.ring(b"a/ahead");
        waiting.await;
        bells.take_all();
        deleted(other, [b"b", b"c"]).await;
    }
}
