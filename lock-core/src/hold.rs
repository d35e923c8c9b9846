use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{Claim, FencingToken, Lease, Loss, Moment, janitor::Loose, mutants, verbs::Verbs};

/// A held claim, as its guard and its keeper both see it.
///
/// Whoever looks first after the deadline ends it, guard or keeper, under one lock: so no renewal can
/// revive what somebody has seen as lost.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) claim: Claim,
    pub(crate) token: FencingToken,
    verbs: Arc<Verbs>,
    state: Mutex<State>,
    /// Fires at the end, whatever it was.
    ended: CancellationToken,
    guard_gone: Notify,
    /// Locked while a renewal is under way.
    pub(crate) renewing: Arc<tokio::sync::Mutex<()>>,
    warned_of_short_lease: AtomicBool,
}

#[derive(Debug)]
struct State {
    lease: Lease,
    valid_until: Moment,
    loss: Option<Loss>,
    /// What is to be released, until somebody takes it.
    loose: Option<Loose>,
}

impl Hold {
    pub(crate) fn new(mut loose: Loose, token: FencingToken, lease: Lease, verbs: Arc<Verbs>) -> Self {
        let claim = loose.claim().clone();
        let renewing = Arc::<tokio::sync::Mutex<()>>::default();
        loose.renewed_under(renewing.clone());
        let lease = as_core_counts(lease, &verbs);
        let valid_until = valid_until(lease, &verbs);
        debug!(name = %claim.name, owner = ?claim.owner, %token, "acquired");
        verbs.counters.held.fetch_add(1, Relaxed);
        verbs.counters.acquired.fetch_add(1, Relaxed);
        let hold = Self {
            claim,
            token,
            verbs,
            state: Mutex::new(State { lease, valid_until, loss: None, loose: Some(loose) }),
            ended: CancellationToken::new(),
            guard_gone: Notify::new(),
            renewing,
            warned_of_short_lease: AtomicBool::new(false),
        };
        hold.warn_of_short_lease(lease);
        hold
    }

    /// Takes the newest confirmed lease, even if it is shorter than the last one.
    ///
    /// Returns whether the claim is still held: a confirmation that comes after the deadline does not
    /// count (etcd, for one, can confirm a lease whose keys are gone: etcd issue 14758).
    pub(crate) fn extend(&self, lease: Lease) -> bool {
        self.warn_of_short_lease(lease);
        let lease = as_core_counts(lease, &self.verbs);
        let mut state = self.state();
        self.look(&mut state);
        if mutants::active("late-renewal-revives") {
            state.loss = None;
        }
        if state.loss.is_some() {
            return false;
        }
        state.lease = lease;
        state.valid_until = valid_until(lease, &self.verbs);
        self.look(&mut state);
        state.loss.is_none()
    }

    /// Ends it for this reason, unless it has ended already.
    pub(crate) fn end(&self, loss: Loss) {
        let mut state = self.state();
        // The deadline may have passed before anybody looked; then that was the end.
        self.look(&mut state);
        self.set(&mut state, loss);
    }

    /// Why it ended, by the clock of this moment.
    pub(crate) fn loss(&self) -> Option<Loss> {
        let mut state = self.state();
        self.look(&mut state);
        state.loss
    }

    pub(crate) fn remaining(&self) -> Duration {
        let mut state = self.state();
        self.look(&mut state);
        match state.loss {
            Some(_) => Duration::ZERO,
            None => state.valid_until.saturating_since(self.verbs.clock.now()),
        }
    }

    pub(crate) fn valid_until(&self) -> Moment {
        if is_blind() {
            return Moment::from_start(Duration::MAX);
        }
        self.state().valid_until
    }

    /// The newest confirmed lease.
    pub(crate) fn lease(&self) -> Lease {
        self.state().lease
    }

    pub(crate) fn usable(&self) -> Duration {
        self.verbs.terms.usable(self.lease().length)
    }

    /// The guard's part: what it has to release, unless somebody took it before.
    pub(crate) fn leave(&self) -> Option<Loose> {
        self.end(Loss::Released);
        self.guard_gone.notify_one();
        self.take()
    }

    /// Resolves once the guard has left. For one who waits.
    pub(crate) async fn guard_gone(&self) {
        self.guard_gone.notified().await;
    }

    /// Has the claim released in the background.
    pub(crate) fn let_go(&self) {
        drop(self.take());
    }

    /// The server's word is that the claim is not there.
    pub(crate) fn gone(&self) {
        if let Some(loose) = self.take() {
            loose.gone();
        }
    }

    fn take(&self) -> Option<Loose> {
        self.state().loose.take()
    }

    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    pub(crate) fn verbs(&self) -> &Arc<Verbs> {
        &self.verbs
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, state: &mut State) {
        if is_blind() {
            return;
        }
        if state.loss.is_none() && self.verbs.clock.now() >= state.valid_until {
            self.set(state, Loss::Expired);
        }
    }

    fn set(&self, state: &mut State, loss: Loss) {
        if state.loss.is_some() {
            return;
        }
        state.loss = Some(loss);
        let (name, owner, token) = (&self.claim.name, &self.claim.owner, self.token);
        let counters = &self.verbs.counters;
        counters.held.fetch_sub(1, Relaxed);
        if loss == Loss::Released {
            counters.released.fetch_add(1, Relaxed);
            debug!(%name, ?owner, %token, "released by its owner");
        } else {
            counters.lost.fetch_add(1, Relaxed);
            warn!(%name, ?owner, %token, "lost: {loss}");
        }
        self.ended.cancel();
    }

    fn warn_of_short_lease(&self, lease: Lease) {
        let asked = self.claim.lease;
        if lease.length < asked && !self.warned_of_short_lease.swap(true, Relaxed) {
            let name = &self.claim.name;
            warn!(%name, ?asked, given = ?lease.length, "the server keeps the lock for less time than asked");
        }
    }
}

/// Two faults have no deadline of their own.
fn is_blind() -> bool {
    mutants::active("lost-only-by-the-renewal") || mutants::active("late-renewal-revives")
}

fn as_core_counts(lease: Lease, verbs: &Verbs) -> Lease {
    if mutants::active("lease-counted-from-the-reply") {
        return Lease::new(verbs.clock.now(), lease.length);
    }
    lease
}

fn valid_until(lease: Lease, verbs: &Verbs) -> Moment {
    if mutants::active("no-grace-and-no-drift") {
        return lease.end();
    }
    verbs.terms.valid_until(lease)
}
