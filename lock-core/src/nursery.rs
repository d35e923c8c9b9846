use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::task::TaskTracker;

use crate::{
    Moment,
    keeper::{Keeper, close_called},
    verbs::Verbs,
};

/// How long a hold does without a keeper, unless its first renewal is sooner.
const CHILDHOOD: Duration = Duration::from_millis(10);

/// The keeper of a hold that is still young.
#[derive(Debug)]
pub(crate) struct Young {
    pub(crate) keeper: Keeper,
    pub(crate) until: Moment,
}

impl Young {
    /// Gives the keeper back if its work begins now.
    pub(crate) fn new(keeper: Keeper, now: Moment) -> Result<Self, Keeper> {
        let until = now + CHILDHOOD;
        if keeper.begins() < until { Err(keeper) } else { Ok(Self { keeper, until }) }
    }
}

/// Starts the keepers of those that outlive their childhood.
///
/// Most locks are held for a moment. They need no task of their own, and cost no wake-up here either:
/// while this task sleeps for one, the others only queue. They are all born in order, so they grow up in
/// order. If the runtime drops this task, it drops what is queued, and so ends it.
pub(crate) async fn raise(mut born: UnboundedReceiver<Young>, verbs: Arc<Verbs>, tasks: TaskTracker) {
    while let Some(Young { mut keeper, until }) = born.recv().await {
        if keeper.has_ended() {
            continue;
        }
        tokio::select! {
            () = close_called(&mut keeper.closing) => {}
            () = verbs.clock.sleep_until(until) => {}
        }
        if !keeper.has_ended() {
            tasks.spawn(keeper.run());
        }
    }
}
