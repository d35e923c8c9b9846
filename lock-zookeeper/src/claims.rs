use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lock_core::Moment;
use tokio::sync::Notify;

use crate::{
    ahead::{Shared, Watch},
    place::Place,
};

/// The node of a claim.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) path: String,
    /// The transaction that made it: larger than that of every earlier node.
    pub(crate) token: u64,
}

/// What is known of a claim in one session.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// It was never asked for here, or is gone.
    Nothing,
    /// Its node may be there: it was asked for, and the answer is not known.
    Perhaps,
    /// Its node was there.
    Node(Arc<Node>),
    /// It ran out, and its node is being deleted.
    Leaving(Option<Arc<Node>>),
}

/// The claims of one session, each with its own lease.
///
/// The session keeps all nodes alive, so it is up to the client to end the claim that nobody renews: see
/// [`reaper`](crate::reaper).
#[derive(Debug)]
pub(crate) struct Claims {
    length: Duration,
    entries: Mutex<HashMap<String, Entry>>,
    /// Told of every new claim: there may have been none whose lease could end.
    pub(crate) added: Notify,
}

struct Entry {
    place: Arc<Place>,
    node: Option<Arc<Node>>,
    /// The moment from which the proven lease counts.
    since: Moment,
    held: bool,
    leaving: bool,
    /// On its own node.
    watch: Option<Watch>,
    /// While it waits.
    ahead: Option<Shared>,
}

impl Claims {
    pub(crate) fn new(length: Duration) -> Self {
        Self { length, entries: Mutex::default(), added: Notify::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    pub(crate) fn knows(&self, place: &Place) -> bool {
        self.entries().contains_key(&place.path)
    }

    pub(crate) fn look(&self, place: &Place) -> Known {
        match self.entries().get(&place.path) {
            None => Known::Nothing,
            Some(entry) if entry.leaving => Known::Leaving(entry.node.clone()),
            Some(Entry { node: Some(node), .. }) => Known::Node(node.clone()),
            Some(_) => Known::Perhaps,
        }
    }

    /// To be called before the node is asked for.
    pub(crate) fn begin(&self, place: &Arc<Place>, since: Moment) {
        self.insert(place, None, since);
    }

    /// A node that has certainly been there since a request that was sent at this moment.
    pub(crate) fn found(&self, place: &Arc<Place>, node: Arc<Node>, since: Moment) {
        let mut entries = self.entries();
        match entries.get_mut(&place.path) {
            // If it ran out meanwhile, it stays so.
            Some(entry) => entry.node = Some(node),
            None => {
                drop(entries);
                self.insert(place, Some(node), since);
            }
        }
    }

    fn insert(&self, place: &Arc<Place>, node: Option<Arc<Node>>, since: Moment) {
        let place = place.clone();
        let key = place.path.clone();
        let entry = Entry { place, node, since, held: false, leaving: false, watch: None, ahead: None };
        self.entries().insert(key, entry);
        self.added.notify_one();
    }

    /// Keeps the claim for a further lease, counted from this moment. `None` if it is gone or ran out;
    /// else from when its lease counts.
    pub(crate) fn keep(&self, place: &Place, since: Moment) -> Option<Moment> {
        let mut entries = self.entries();
        let entry = entries.get_mut(&place.path).filter(|entry| !entry.leaving)?;
        entry.since = entry.since.max(since);
        Some(entry.since)
    }

    /// The claim with this node is the first in the queue. `None` if it is gone or ran out; else from when its
    /// lease counts.
    pub(crate) fn hold(&self, place: &Place, node: &Node) -> Option<Moment> {
        let mut entries = self.entries();
        let entry = entries.get_mut(&place.path).filter(|entry| !entry.leaving)?;
        if entry.node.as_ref()?.token != node.token {
            return None;
        }
        entry.held = true;
        entry.ahead = None;
        Some(entry.since)
    }

    pub(crate) fn is_held(&self, place: &Place) -> bool {
        self.entries().get(&place.path).is_some_and(|entry| entry.held)
    }

    /// Its node is gone.
    pub(crate) fn forget(&self, place: &Place) {
        self.entries().remove(&place.path);
    }

    /// The node of a claim that ran out is gone.
    pub(crate) fn left(&self, place: &Place) {
        let mut entries = self.entries();
        if entries.get(&place.path).is_some_and(|entry| entry.leaving) {
            entries.remove(&place.path);
        }
    }

    /// Sends a request only if the claim is still one that ran out: what is sent afterwards to make it anew
    /// comes after it.
    pub(crate) fn while_leaving<T>(&self, place: &Place, send: impl FnOnce() -> T) -> Option<T> {
        let entries = self.entries();
        entries.get(&place.path).is_some_and(|entry| entry.leaving).then(send)
    }

    /// The claims whose lease is over, which are leaving from now on; and when the next one will be.
    pub(crate) fn run_out(&self, now: Moment) -> (Vec<Arc<Place>>, Option<Moment>) {
        let (mut over, mut next) = (Vec::new(), None);
        for entry in self.entries().values_mut().filter(|entry| !entry.leaving) {
            let end = entry.since + self.length;
            if end <= now {
                entry.leaving = true;
                over.push(entry.place.clone());
            } else {
                next = Some(next.map_or(end, |next: Moment| next.min(end)));
            }
        }
        (over, next)
    }

    /// Watches the claim's own node from now on.
    pub(crate) fn watch(&self, place: &Place, watch: Watch) {
        if let Some(entry) = self.entries().get_mut(&place.path) {
            entry.watch = Some(watch);
        }
    }

    /// Whether its own node is watched, and nothing has happened to it.
    pub(crate) fn is_quiet(&self, place: &Place) -> bool {
        let mut entries = self.entries();
        let watch = entries.get_mut(&place.path).and_then(|entry| entry.watch.as_mut());
        watch.is_some_and(Watch::is_quiet)
    }

    /// Keeps the watch on those ahead of it.
    pub(crate) fn wait(&self, place: &Place, ahead: Shared) {
        if let Some(entry) = self.entries().get_mut(&place.path) {
            entry.ahead = Some(ahead);
        }
    }

    /// Those ahead of it, if they are watched.
    pub(crate) fn ahead(&self, place: &Place) -> Option<Shared> {
        self.entries().get(&place.path)?.ahead.clone()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("node", &self.node).field("since", &self.since).finish_non_exhaustive()
    }
}
