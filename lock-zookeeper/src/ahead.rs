use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tokio::sync::Mutex;
use zookeeper_client::{EventType, OneshotWatcher, WatchedEvent};

/// The next event of one node.
pub(crate) struct Watch(Option<Pin<Box<dyn Future<Output = WatchedEvent> + Send>>>);

/// Who stands right before a claim in the queue, under watch.
///
/// It is kept with the claim, so that asking again sets no watch anew. Whoever waits has it locked.
pub(crate) type Shared = Arc<Mutex<Ahead>>;

pub(crate) struct Ahead {
    /// The node right before the claim's own.
    pub(crate) nearest: String,
    watch: Watch,
    /// The one before that. When it goes, the nearest is probably the last: see [`Ahead::changed`].
    second: Option<Watch>,
    /// Whether nobody stands before the nearest. Nobody can get there any more, so the claim holds when that
    /// is gone.
    is_last: bool,
}

/// What has happened to who stands ahead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The nearest is gone, and it was the last.
    Free,
    /// The one before the nearest is gone: a look tells whether the nearest is the last by now. It is worth a
    /// look, for the nearest will hold for a while; then no look is needed when that goes.
    Closer,
    /// Anything else, so ask again.
    Unclear,
}

impl Ahead {
    /// To be followed by what stands before it: see [`closer`](Self::closer).
    pub(crate) fn new(nearest: String, watch: Watch) -> Self {
        Self { nearest, watch, second: None, is_last: false }
    }

    /// Waits for a change. May be dropped and called again until the nearest has changed.
    pub(crate) async fn changed(&mut self) -> Change {
        let nearest = pin!(self.watch.changed());
        let event = match &mut self.second {
            None => nearest.await,
            Some(second) => tokio::select! {
                biased;
                event = nearest => event,
                _ = second.changed() => {
                    self.second = None;
                    return Change::Closer;
                }
            },
        };
        if self.is_last && event.is_some_and(|event| event.event_type == EventType::NodeDeleted) {
            Change::Free
        } else {
            Change::Unclear
        }
    }

    /// Goes on with what a look has shown behind which the nearest still stands: nobody, or another.
    pub(crate) fn closer(&mut self, second: Option<Watch>) {
        self.is_last = second.is_none();
        self.second = second;
    }

    /// Whether the nearest stands there as it did when its watch was set.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.watch.is_quiet()
    }
}

impl Watch {
    pub(crate) fn new(watcher: OneshotWatcher) -> Self {
        Self(Some(Box::pin(watcher.changed())))
    }

    /// The event; `None` if it was told before.
    async fn changed(&mut self) -> Option<WatchedEvent> {
        let event = self.0.as_mut()?.await;
        self.0 = None;
        Some(event)
    }

    /// Whether nothing has happened to the node since the watch was set.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let changed = pin!(self.changed());
        matches!(changed.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending)
    }
}
