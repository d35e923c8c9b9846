use std::{ops::Deref, sync::Arc};

use lock_core::{Guard, Loss, Moment, Release, Result};
use tokio_util::task::AbortOnDropHandle;

use crate::history::{History, HoldId};

/// A guard whose life is written into the history.
#[derive(Debug)]
pub(crate) struct Held {
    guard: Option<Guard>,
    history: Arc<History>,
    hold: HoldId,
    _watch: AbortOnDropHandle<()>,
}

impl Held {
    pub(crate) fn new(guard: Guard, history: &Arc<History>) -> Self {
        let history = history.clone();
        let at = Moment::now();
        let who = format!("{:?}", guard.owner());
        let (name, token) = (guard.name().as_str(), guard.fencing_token());
        let hold = history.acquired((name, &who), token, at, at + guard.remaining());
        let (lost, log) = (guard.lost(), history.clone());
        let watch = AbortOnDropHandle::new(tokio::spawn(async move {
            if lost.await != Loss::Released {
                log.ended(hold, Moment::now());
            }
        }));
        Self { guard: Some(guard), history, hold, _watch: watch }
    }

    /// Whether it is held, as the guard says now; written into the history.
    pub(crate) fn seen(&self) -> bool {
        let at = Moment::now();
        let remaining = self.remaining();
        if remaining.is_zero() {
            self.history.ended(self.hold, at);
        } else {
            self.history.confirmed(self.hold, at + remaining);
        }
        self.is_held()
    }

    /// Releases it and waits for the server's word.
    pub(crate) async fn release(mut self) -> Result<Release> {
        match self.take() {
            Some(guard) => guard.release().await,
            None => Ok(Release::AlreadyLost(Loss::Released)),
        }
    }

    /// The guard itself; the history takes the hold for ended.
    pub(crate) fn into_guard(mut self) -> Guard {
        self.take().unwrap_or_else(|| unreachable!("only a consuming method takes the guard"))
    }

    fn take(&mut self) -> Option<Guard> {
        let guard = self.guard.take()?;
        let at = Moment::now();
        let remaining = guard.remaining();
        if !remaining.is_zero() {
            self.history.confirmed(self.hold, at + remaining);
        }
        self.history.ended(self.hold, at);
        Some(guard)
    }
}

impl Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        self.guard.as_ref().unwrap_or_else(|| unreachable!("only a consuming method takes the guard"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Before the guard itself is dropped, and with it the lock.
        self.take();
    }
}
