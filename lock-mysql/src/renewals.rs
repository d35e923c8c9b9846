use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lock_core::{Claim, Renewal, Result};
use tokio::{runtime::Handle, sync::oneshot};

use crate::store::Store;

/// The pause between two statements that renew; what comes meanwhile goes into the next.
const PACE: Duration = Duration::from_millis(20);

/// How many claims one statement renews: with the longest names it is a text of 60 kB.
const MOST: usize = 100;

/// Renewals, of which one statement takes many: what they cost a server is the commit.
///
/// The first goes at once. Others that come soon after it wait for the next statement, for 20 ms or for a
/// hundredth of the lease. None waits for another's answer.
#[derive(Debug)]
pub(crate) struct Renewals {
    store: Arc<Store>,
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Asked>,
    /// Whether a task sees to those who wait.
    pacing: bool,
}

#[derive(Debug)]
struct Asked {
    claim: Claim,
    reply: oneshot::Sender<Result<Renewal>>,
}

impl Renewals {
    pub(crate) fn new(store: Arc<Store>, runtime: Handle) -> Self {
        Self { store, runtime, state: Mutex::default() }
    }

    /// Has a claim renewed, in a task of its own.
    pub(crate) fn ask(self: &Arc<Self>, claim: &Claim) -> oneshot::Receiver<Result<Renewal>> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.lock();
        state.waiting.push(Asked { claim: claim.clone(), reply });
        if !std::mem::replace(&mut state.pacing, true) {
            drop(state);
            self.runtime.spawn(self.clone().pace());
        }
        answer
    }

    async fn pace(self: Arc<Self>) {
        while let Some(batch) = self.next() {
            let pace = PACE.min(batch[0].claim.lease / 100);
            self.runtime.spawn(renew(self.store.clone(), batch));
            tokio::time::sleep(pace).await;
        }
    }

    /// Those who wait and asked for the same lease. `None` if nobody waits.
    fn next(&self) -> Option<Vec<Asked>> {
        let mut state = self.lock();
        state.waiting.retain(|asked| !asked.reply.is_closed());
        let Some(lease) = state.waiting.first().map(|asked| asked.claim.lease) else {
            state.pacing = false;
            return None;
        };
        let mut room = MOST;
        let chosen = state.waiting.extract_if(.., |asked| {
            let chosen = asked.claim.lease == lease && room > 0;
            room -= usize::from(chosen);
            chosen
        });
        Some(chosen.collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Once nobody waits for it any more, it has a moment to end; then its connection is closed.
async fn renew(store: Arc<Store>, batch: Vec<Asked>) {
    let (claims, mut replies): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|Asked { claim, reply }| (claim, reply)).unzip();
    let abandoned = async {
        for reply in &mut replies {
            reply.closed().await;
        }
        tokio::time::sleep(crate::backend::patience(&claims[0])).await;
    };
    let answers = tokio::select! {
        biased;
        answers = store.renew(&claims) => answers,
        () = abandoned => return,
    };
    for (reply, answer) in replies.into_iter().zip(answers) {
        // Whoever asked may be gone.
        let _ = reply.send(answer);
    }
}
