use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tracing::debug;

use crate::{Loss, Moment, Renewal, Signal, backoff::Backoff, hold::Hold, mutants};

/// The task that renews one held claim and tells its loss. The guard releases, at its end.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) hold: EndOnDrop,
    /// By when everything must be released, once `Locks::close` was called.
    pub(crate) closing: watch::Receiver<Option<Moment>>,
    pub(crate) doubt: Option<Signal>,
    pub(crate) first_renewal: Moment,
    pub(crate) max_hold: Option<Moment>,
}

impl Keeper {
    pub(crate) fn new(
        hold: Arc<Hold>,
        closing: watch::Receiver<Option<Moment>>,
        doubt: Option<Signal>,
        now: Moment,
    ) -> Self {
        let first_renewal = next_renewal(&hold);
        let max_hold = hold.verbs().terms.max_hold.map(|most| now + most);
        Self { hold: EndOnDrop(hold), closing, doubt, first_renewal, max_hold }
    }

    /// When it has something to do, if nothing happens before.
    pub(crate) fn begins(&self) -> Moment {
        self.max_hold.map_or(self.first_renewal, |max_hold| max_hold.min(self.first_renewal))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.hold.0.ended().is_cancelled()
    }

    pub(crate) async fn run(self) {
        let Self { hold, mut closing, doubt, first_renewal, max_hold } = self;
        let hold = &*hold.0;
        let verbs = hold.verbs();

        // Whatever comes first ends the renewing, and drops the renewal that is under way: a renewal
        // creates nothing, so it is harmless if it arrives later.
        tokio::select! {
            biased;
            () = hold.ended().cancelled() => {}
            () = close_called(&mut closing) => hold.end(Loss::Closed),
            () = verbs.at(max_hold) => hold.end(Loss::MaxHold),
            // If the deadline was first, it has ended already.
            () = renew_until_lost(hold, doubt, first_renewal) => hold.end(Loss::Revoked),
        }

        match hold.loss() {
            // The server's word: there is nothing left to release.
            Some(Loss::Revoked) => hold.gone(),
            Some(Loss::Released) => {}
            Some(Loss::Expired) if mutants::active("released-at-the-deadline") => hold.let_go(),
            // While the guard lives the work may still be running: only the server's lease may end it.
            // But a close has its own deadline.
            _ => tokio::select! {
                () = hold.guard_gone() => {}
                () = close_deadline(&mut closing, hold) => hold.let_go(),
            },
        }
    }
}

/// If the runtime drops the keeper's task, even before its first poll, nobody renews the claim any more.
#[derive(Debug)]
pub(crate) struct EndOnDrop(pub(crate) Arc<Hold>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Loss::RuntimeGone);
    }
}

/// Resolves when the hold has ended, by the clock at the latest.
async fn deadline(hold: &Hold) {
    while hold.loss().is_none() {
        hold.verbs().clock.sleep_until(hold.valid_until()).await;
    }
}

/// Renews at every third of the lease and on doubt; resolves on the server's word that it is lost, or at
/// the deadline, which waits for no renewal's answer.
async fn renew_until_lost(hold: &Hold, mut doubt: Option<Signal>, mut next: Moment) {
    let verbs = hold.verbs();
    let usable = hold.usable();
    let mut backoff = Backoff::new(usable / 50, (usable / 6).min(Duration::from_secs(1)));
    loop {
        tokio::select! {
            () = verbs.clock.sleep_until(next.min(hold.valid_until())) => {}
            () = raised(&mut doubt) => debug!(name = %hold.claim.name, "the lease is in doubt"),
        }
        let answer = tokio::select! {
            biased;
            () = deadline(hold) => return,
            answer = async {
                let _renewing = hold.renewing.lock().await;
                verbs.renew(&hold.claim).await
            } => answer,
        };
        match answer {
            Ok(Renewal::Kept(lease)) => {
                verbs.counters.renewals.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if !hold.extend(lease) {
                    return;
                }
                backoff.reset();
                next = next_renewal(hold);
            }
            Ok(Renewal::Lost) => return,
            Err(error) => {
                verbs.counters.renewal_failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                debug!(name = %hold.claim.name, %error, "a renewal failed");
                if !error.is_transient() && !mutants::active("permanent-errors-retried") {
                    // Asking again cannot help.
                    return deadline(hold).await;
                }
                next = verbs.clock.now() + backoff.pause();
            }
        }
    }
}

/// A third of the usable lease after its origin, up to a tenth earlier at random, so that ten thousand
/// locks taken at once are not renewed at once. The claim's owner is random already.
fn next_renewal(hold: &Hold) -> Moment {
    let random = f64::from(hold.claim.owner.as_bytes()[0]) / 256.0;
    hold.lease().since + (hold.usable() / 3).mul_f64(1.0 - random / 10.0)
}

async fn raised(doubt: &mut Option<Signal>) {
    match doubt {
        Some(signal) => signal.raised().await,
        None => std::future::pending().await,
    }
}

pub(crate) async fn close_called(closing: &mut watch::Receiver<Option<Moment>>) {
    if closing.wait_for(Option::is_some).await.is_err() {
        // Nobody can call it any more.
        std::future::pending::<()>().await;
    }
}

async fn close_deadline(closing: &mut watch::Receiver<Option<Moment>>, hold: &Hold) {
    close_called(closing).await;
    let deadline = *closing.borrow();
    hold.verbs().at(deadline).await;
}
