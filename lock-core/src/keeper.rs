use std::{sync::Arc, time::Duration};

use tokio::sync::{oneshot, watch};
use tracing::debug;

use crate::{
    Loss, Moment, Released, Renewal, Result, Signal, backoff::Backoff, hold::Hold, ledger::Entry, mutants,
};

/// How a guard ends: by sending a reply channel (`release().await`), or by dropping its sender.
pub(crate) type Ending = oneshot::Sender<oneshot::Sender<Result<Released>>>;

/// The task that renews one held claim, tells its loss, and releases it at the end.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) hold: EndOnDrop,
    pub(crate) entry: Entry,
    pub(crate) ending: oneshot::Receiver<oneshot::Sender<Result<Released>>>,
    /// By when everything must be released, once `Locks::close` was called.
    pub(crate) closing: watch::Receiver<Option<Moment>>,
    pub(crate) doubt: Option<Signal>,
    /// Renew before anything else: the grant's lease is already used in part.
    pub(crate) renew_at_once: bool,
}

impl Keeper {
    pub(crate) async fn run(self) {
        let Self { hold, entry, ending, mut closing, doubt, renew_at_once } = self;
        let hold = &*hold.0;
        let verbs = hold.verbs();
        let max_hold = verbs.terms.max_hold.map(|most| verbs.clock.now() + most);

        // Whatever comes first ends the renewing, and drops the renewal that is under way: a renewal
        // creates nothing, so it is harmless if it arrives later.
        tokio::select! {
            biased;
            () = hold.ended().cancelled() => {}
            () = close_called(&mut closing) => hold.end(Loss::Closed),
            () = verbs.at(max_hold) => hold.end(Loss::MaxHold),
            // If the deadline was first, it has ended already.
            () = renew_until_lost(hold, doubt, renew_at_once) => hold.end(Loss::Revoked),
        }

        let mut reply = None;
        match hold.loss() {
            // The server's word: there is nothing left to release.
            Some(Loss::Revoked) => return entry.close(true),
            Some(Loss::Released) => reply = ending.await.ok(),
            Some(Loss::Expired) if mutants::active("released-at-the-deadline") => {}
            // While the guard lives the work may still be running: only the server's lease may end it.
            // But a close has its own deadline.
            _ => tokio::select! {
                ended = ending => reply = ended.ok(),
                () = close_deadline(&mut closing, hold) => {}
            },
        }
        entry.close(verbs.end(&hold.claim, reply).await);
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
async fn renew_until_lost(hold: &Hold, mut doubt: Option<Signal>, at_once: bool) {
    let verbs = hold.verbs();
    let usable = hold.usable();
    let mut backoff = Backoff::new(usable / 50, (usable / 6).min(Duration::from_secs(1)));
    let mut next = if at_once { verbs.clock.now() } else { next_renewal(hold) };
    loop {
        tokio::select! {
            () = verbs.clock.sleep_until(next.min(hold.valid_until())) => {}
            () = raised(&mut doubt) => debug!(name = %hold.claim.name, "the lease is in doubt"),
        }
        let answer = tokio::select! {
            biased;
            () = deadline(hold) => return,
            answer = verbs.renew(&hold.claim) => answer,
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
