use std::sync::{Arc, atomic::Ordering::Relaxed};

use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, UnboundedSender},
};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use tracing::{debug, warn};

use crate::{Claim, Error, ErrorKind, Moment, Released, Result, ledger::Entry, mutants, verbs::Verbs};

/// A claim that may be on the server. Dropping it has it released in the background.
///
/// The future of an acquire owns one from before its first request, then the guard, then the future of
/// its release: so nothing that is cancelled, dropped or given up leaves anything behind. Dropping only
/// sends to the janitor's channel: no I/O, no spawn, no runtime needed.
#[derive(Debug)]
pub(crate) struct Loose {
    claim: Option<(Claim, Entry, TaskTrackerToken)>,
    janitor: UnboundedSender<Abandoned>,
    /// Locked while a renewal is under way: a backend has one verb of a claim at a time.
    renewing: Option<Arc<Mutex<()>>>,
}

/// What the janitor is sent. The token keeps `Locks::close` waiting until it is done.
#[derive(Debug)]
pub(crate) struct Abandoned {
    claim: Claim,
    entry: Entry,
    renewing: Option<Arc<Mutex<()>>>,
    _pending: TaskTrackerToken,
}

impl Loose {
    pub(crate) fn new(
        claim: Claim,
        entry: Entry,
        tasks: &TaskTracker,
        janitor: UnboundedSender<Abandoned>,
    ) -> Self {
        Self { claim: Some((claim, entry, tasks.token())), janitor, renewing: None }
    }

    pub(crate) fn claim(&self) -> &Claim {
        // Taken only by the two that consume it.
        &self.claim.as_ref().expect("a loose claim has its claim until it is consumed").0
    }

    /// From now on an earlier attempt may have left something on the server.
    pub(crate) fn asked(&mut self) {
        if let Some((claim, ..)) = &mut self.claim {
            claim.fresh = false;
        }
    }

    /// From now on it is renewed, and released only between renewals.
    pub(crate) fn renewed_under(&mut self, renewing: Arc<Mutex<()>>) {
        self.renewing = Some(renewing);
    }

    /// The server's word is that it is not there.
    pub(crate) fn gone(mut self) {
        if let Some((_, entry, _)) = self.claim.take() {
            entry.close(true);
        }
    }

    /// Releases it here, within one verb limit; what is not settled then goes on in the background.
    pub(crate) async fn end(mut self, verbs: &Verbs) -> Result<Released> {
        let until = verbs.clock.now() + verbs.terms.verb_limit;
        let answer = tokio::select! {
            biased;
            answer = end_alone(verbs, self.claim(), until, self.renewing.as_deref()) => answer,
            // The clock may have stopped with it.
            () = self.janitor.closed() => Err(no_runtime()),
        };
        match &answer {
            Ok(_) => self.gone(),
            Err(error) if !error.is_transient() => {
                if let Some((claim, entry, _)) = self.claim.take() {
                    abandon(verbs, &claim, entry, error);
                }
            }
            Err(_) => drop(self),
        }
        answer
    }
}

impl Drop for Loose {
    fn drop(&mut self) {
        if mutants::active("cancelled-claim-kept") {
            return;
        }
        if let Some((claim, entry, pending)) = self.claim.take() {
            // Without a janitor its runtime is gone; the claim's lease ends it.
            let renewing = self.renewing.take();
            let _ = self.janitor.send(Abandoned { claim, entry, renewing, _pending: pending });
        }
    }
}

/// Releases what was abandoned, until everybody who could abandon something is gone.
pub(crate) async fn clean(
    verbs: Arc<Verbs>,
    tasks: TaskTracker,
    mut abandoned: UnboundedReceiver<Abandoned>,
) {
    while let Some(Abandoned { claim, entry, renewing, _pending }) = abandoned.recv().await {
        debug!(name = %claim.name, owner = ?claim.owner, "releasing an interrupted claim");
        let verbs = verbs.clone();
        tasks.spawn(async move {
            // The latest request that can have kept the claim alive was sent before now.
            let lease_over = verbs.clock.now() + claim.lease;
            match end_alone(&verbs, &claim, lease_over, renewing.as_deref()).await {
                Ok(_) => entry.close(true),
                Err(error) => abandon(&verbs, &claim, entry, &error),
            }
        });
    }
}

/// Ends a claim once no renewal of it is under way. Its end has dropped the last one, or is about to.
async fn end_alone(
    verbs: &Verbs,
    claim: &Claim,
    until: Moment,
    renewing: Option<&Mutex<()>>,
) -> Result<Released> {
    let _alone = match renewing {
        Some(renewing) => Some(renewing.lock().await),
        None => None,
    };
    verbs.end(claim, until).await
}

fn abandon(verbs: &Verbs, claim: &Claim, entry: Entry, error: &Error) {
    warn!(name = %claim.name, owner = ?claim.owner, %error, "not released; its lease will end it");
    verbs.counters.abandoned.fetch_add(1, Relaxed);
    entry.close(false);
}

fn no_runtime() -> Error {
    Error::new(ErrorKind::NoRuntime, "the runtime of the locks has shut down; the lease will end the lock")
}
