use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use tracing::debug;

use crate::{Claim, ledger::Entry, mutants, verbs::Verbs};

/// A claim that may be on the server and that no task keeps yet. Dropping it has it released.
///
/// The future of an acquire owns one from before its first request, so that a cancelled acquire leaves
/// nothing behind. Dropping only sends to the janitor's channel: no I/O, no spawn, no runtime needed.
#[derive(Debug)]
pub(crate) struct Loose {
    claim: Option<(Claim, Entry, TaskTrackerToken)>,
    janitor: UnboundedSender<Abandoned>,
}

/// What the janitor is sent. The token keeps `Locks::close` waiting until it is done.
#[derive(Debug)]
pub(crate) struct Abandoned {
    claim: Claim,
    entry: Entry,
    _pending: TaskTrackerToken,
}

impl Loose {
    pub(crate) fn new(
        claim: Claim,
        entry: Entry,
        tasks: &TaskTracker,
        janitor: UnboundedSender<Abandoned>,
    ) -> Self {
        Self { claim: Some((claim, entry, tasks.token())), janitor }
    }

    pub(crate) fn claim(&self) -> &Claim {
        // Taken only by the two that consume it.
        &self.claim.as_ref().expect("a loose claim has its claim until it is consumed").0
    }

    /// A keeper has it now.
    pub(crate) fn kept(mut self) -> (Claim, Entry) {
        let (claim, entry, _) = self.claim.take().expect("a loose claim has its claim until it is consumed");
        (claim, entry)
    }

    /// The server's word is that it is not there.
    pub(crate) fn gone(self) {
        self.kept().1.close(true);
    }
}

impl Drop for Loose {
    fn drop(&mut self) {
        if mutants::active("cancelled-claim-kept") {
            return;
        }
        if let Some((claim, entry, pending)) = self.claim.take() {
            // Without a janitor its runtime is gone; the claim's lease ends it.
            let _ = self.janitor.send(Abandoned { claim, entry, _pending: pending });
        }
    }
}

/// Releases what was abandoned, until everybody who could abandon something is gone.
pub(crate) async fn clean(
    verbs: Arc<Verbs>,
    tasks: TaskTracker,
    mut abandoned: UnboundedReceiver<Abandoned>,
) {
    while let Some(Abandoned { claim, entry, _pending }) = abandoned.recv().await {
        debug!(name = %claim.name, owner = ?claim.owner, "releasing an interrupted claim");
        let verbs = verbs.clone();
        tasks.spawn(async move {
            entry.close(verbs.end(&claim, None).await);
        });
    }
}
