use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use etcd_client::{Event, GetResponse, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};

use crate::{cluster::Cluster, error::Failure, queue, view::View};

/// A queue that nobody listens to stays watched for one to two of these: a name that is handed from one
/// waiter to the next is not watched anew each time.
const LINGER: Duration = Duration::from_secs(1);
/// How long a server that refused a watch is not asked for another: waiters poll meanwhile.
const REFUSED: Duration = Duration::from_secs(10);

/// Hears of every change in one queue, and of the end of its watch.
pub(crate) type Ear = watch::Receiver<View>;

/// One watch for each queue that somebody waits in, all on one stream.
///
/// A watch is created without a start revision: one that names a revision that others may have passed
/// waits for a loop of the server's that runs ten times a second. It is kept as long as somebody waits in
/// the queue, and tells of all keys in it; so a hand-over needs no new watch, and no look.
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

    /// An ear at a queue that the server says it watches, and whose keys are known; `None` if it does not.
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
    rope: watch::Sender<View>,
    was_idle: bool,
}

impl Bells {
    fn ear(&self, queue: &str) -> Option<Ear> {
        self.with(|bells| bells.get(queue).map(|bell| bell.rope.subscribe()))
    }

    fn hang(&self, queue: String, id: i64, view: View) -> Ear {
        let (rope, ear) = watch::channel(view);
        self.with(|bells| bells.insert(queue, Bell { id, rope, was_idle: false }));
        ear
    }

    /// Tells those who wait in the queue what happened there.
    fn ring(&self, queue: &str, events: &[Event]) {
        self.with(|bells| {
            if let Some(bell) = bells.get(queue) {
                bell.rope.send_modify(|view| view.hear(events));
            }
        });
    }

    /// Wakes everybody who listens to this queue.
    fn take(&self, queue: &str) {
        self.with(|bells| bells.remove(queue));
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
        let mut stream = Stream::new(cluster.clone(), bells.clone());
        let ended = tokio::select! {
            ended = stream.run(ask, &mut asks) => ended,
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
    /// The server does not let this user watch.
    Refused,
    /// The backend is gone.
    Unwanted,
}

/// A queue whose keys are not known yet.
struct Pending {
    queue: String,
    answers: Vec<oneshot::Sender<Option<Ear>>>,
    /// What the watch has told meanwhile.
    early: Vec<Event>,
}

/// One stream, and the watches on it.
struct Stream {
    cluster: Arc<Cluster>,
    bells: Bells,
    pending: HashMap<i64, Pending>,
    /// The queue of each watch whose bell hangs.
    watched: HashMap<i64, String>,
    lists: JoinSet<(i64, Result<GetResponse, Failure>)>,
    last: i64,
    /// Whether the server has let this user watch.
    is_proven: bool,
}

impl Stream {
    fn new(cluster: Arc<Cluster>, bells: Bells) -> Self {
        let (pending, watched) = (HashMap::new(), HashMap::new());
        Self { cluster, bells, pending, watched, lists: JoinSet::new(), last: 0, is_proven: false }
    }

    async fn run(&mut self, first: Ask, asks: &mut mpsc::UnboundedReceiver<Ask>) -> Ended {
        let cluster = self.cluster.clone();
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
        self.expect(first);
        let mut sweep = tokio::time::interval(LINGER);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                told = next(&mut responses) => {
                    let Some(told) = told else { return Ended::Broken };
                    if is_refusal(&told) {
                        // A login may have run out: the next member, or connection, logs in anew.
                        cluster.trial(member.turn).failed();
                        return if self.is_proven { Ended::Broken } else { Ended::Refused };
                    }
                    self.heard(&told);
                }
                Some(Ok((id, list))) = self.lists.join_next() => {
                    if !self.listed(id, list) {
                        return Ended::Broken;
                    }
                }
                ask = asks.recv() => {
                    let Some(ask) = ask else { return Ended::Unwanted };
                    if !self.asked(ask, &mut requests).await {
                        return Ended::Broken;
                    }
                }
                _ = sweep.tick(), if self.bells.any() => {
                    for id in self.bells.take_idle() {
                        self.watched.remove(&id);
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
        WatchOptions::new().with_prefix().with_watch_id(self.last)
    }

    /// Waits for what becomes of the last watch.
    fn expect(&mut self, Ask { queue, answer }: Ask) {
        let pending = Pending { queue, answers: vec![answer], early: Vec::new() };
        self.pending.insert(self.last, pending);
    }

    async fn asked(&mut self, ask: Ask, requests: &mut WatchRequestSender) -> bool {
        if let Some(ear) = self.bells.ear(&ask.queue) {
            // Whoever asked may have given up.
            let _ = ask.answer.send(Some(ear));
            return true;
        }
        if let Some(pending) = self.pending.values_mut().find(|pending| pending.queue == ask.queue) {
            pending.answers.push(ask.answer);
            return true;
        }
        let options = self.options();
        let sent = requests.watch(&*ask.queue, Some(options)).await.is_ok();
        self.expect(ask);
        sent
    }

    fn heard(&mut self, told: &WatchResponse) {
        let id = told.watch_id();
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.early.extend_from_slice(told.events());
            if told.created() {
                self.is_proven = true;
                let (cluster, queue) = (self.cluster.clone(), pending.queue.clone());
                self.lists.spawn(async move { (id, cluster.get(&queue, queue::everybody()).await) });
            }
        } else if let Some(queue) = self.watched.get(&id) {
            self.bells.ring(queue, told.events());
        }
        // Such as one that fell behind a compaction.
        if told.canceled() {
            self.pending.remove(&id);
            if let Some(queue) = self.watched.remove(&id) {
                self.bells.take(&queue);
            }
        }
    }

    /// Hangs a bell, now that all keys of its queue are known.
    fn listed(&mut self, id: i64, list: Result<GetResponse, Failure>) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return true };
        let Some((list, revision)) = list.ok().and_then(|list| {
            let revision = list.header()?.revision();
            Some((list, revision))
        }) else {
            return false;
        };
        let mut view = View::new(list.kvs(), revision);
        view.hear(&pending.early);
        self.watched.insert(id, pending.queue.clone());
        let ear = self.bells.hang(pending.queue, id, view);
        for answer in pending.answers {
            let _ = answer.send(Some(ear.clone()));
        }
        true
    }
}

fn is_refusal(told: &WatchResponse) -> bool {
    let refused = told.created() && told.canceled();
    if refused {
        tracing::warn!(reason = told.cancel_reason(), "etcd refuses to watch; waiters poll meanwhile");
    }
    refused
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bell_is_taken_down_when_it_was_idle_twice_in_a_row() {
        let bells = Bells::default();
        let ear = bells.hang("a/".into(), 1, View::new(&[], 7));
        assert!(bells.take_idle().is_empty());
        drop(ear);
        assert!(bells.take_idle().is_empty());
        let mut ear = bells.ear("a/").unwrap();
        assert!(bells.take_idle().is_empty());
        bells.take("b/");
        assert!(!ear.has_changed().unwrap());
        bells.take("a/");
        ear.changed().await.unwrap_err();
        drop(bells.hang("a/".into(), 2, View::new(&[], 7)));
        assert!(bells.take_idle().is_empty());
        assert_eq!(bells.take_idle(), [2]);
        assert!(!bells.any());
    }
}
