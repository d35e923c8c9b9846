//! The seven laws of a backend, on the bare verbs.

use std::{future::Future, sync::Arc, time::Duration};

use lock_core::{Attempt, Claim, Moment, Promise, Released, Renewal};

use crate::{
    Need, Stage,
    case::{Case, Failure, Outcome, case},
    polled::polled,
    stage::Bare,
};

pub(crate) const CASES: &[Case] = &[
    case!(named_by_the_caller),
    case!(idempotent),
    case!(never_waits_for_another_owner),
    case!(busy_comes_from_an_armed_look, Need::Promised(Promise::Push)),
    case!(a_release_before_the_look_is_armed_is_seen, Need::Commands, Need::Promised(Promise::Push)),
    case!(exact),
    case!(droppable),
    case!(honest),
    case!(alive),
];

/// What one client claimed, others find by name and owner, whatever they are asked first.
async fn named_by_the_caller(stage: Stage) -> Outcome {
    let first = stage.bare().await?;
    let name = stage.name();
    let claim = stage.claim_for(&name, 60.0);
    let token = first.held(&claim).await?.token;

    // As a process would write it that was started after a crash.
    let written_down = Claim::new(name.clone(), claim.owner, claim.lease);
    let (second, third, fourth) = (stage.bare().await?, stage.bare().await?, stage.bare().await?);
    assert_eq!(second.held(&written_down).await?.token, token);
    assert!(matches!(third.renew(&written_down).await?, Renewal::Kept(_)));
    assert_eq!(fourth.release(&written_down).await?, Released::Released);
    assert_eq!(first.renew(&claim).await?, Renewal::Lost);
    first.held(&stage.claim(&name)).await?;
    Ok(())
}

/// A verb may be repeated while the claim lives: the answer and the token stay the same.
async fn idempotent(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let (claim, rival) = (stage.claim_for(&name, 20.0), stage.claim_for(&name, 20.0));
    let token = bare.held(&claim).await?.token;
    for _ in 0..3 {
        assert_eq!(bare.held(&claim).await?.token, token);
        bare.busy(&rival).await?;
        bare.busy(&rival.clone().queued(true)).await?;
        assert!(matches!(bare.renew(&claim).await?, Renewal::Kept(_)));
    }
    bare.release(&rival).await?;
    assert_eq!(bare.release(&claim).await?, Released::Released);
    for _ in 0..3 {
        assert_eq!(bare.release(&claim).await?, Released::Absent);
        assert_eq!(bare.renew(&claim).await?, Renewal::Lost);
    }
    assert!(bare.held(&rival).await?.token > token);
    Ok(())
}

/// A verb answers while another owner holds, and says when to ask again.
async fn never_waits_for_another_owner(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let (claim, rival) = (stage.claim_for(&name, 6.0), stage.claim_for(&name, 6.0));
    bare.held(&claim).await?;
    for queue in [false, true] {
        let rival = rival.clone().queued(queue);
        let busy = stage.within(3.0, "busy, from a lock that is held for twice as long", bare.busy(&rival));
        let busy = busy.await??;
        let bound = claim.lease + stage.fixture().guarantees().expiry_lag;
        assert!(busy.recheck_within <= bound, "{:?} > {bound:?}", busy.recheck_within);
        // Dropping the wake, polled or not, must cost nothing.
        if let Some(wake) = busy.wake {
            let _ = polled(wake, 1).await;
        }
    }
    stage.within(3.0, "an answer for the holder", bare.renew(&claim)).await??;
    stage.within(3.0, "the release", bare.release(&claim)).await??;
    bare.held(&rival).await?;
    Ok(())
}

/// The wake that came with `Busy` tells of a release that came right after it, before it was polled.
async fn busy_comes_from_an_armed_look(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.bare().await?, stage.bare().await?);
    for _ in 0..stage.rounds(10, 200) {
        let name = stage.name();
        let claim = stage.claim_for(&name, 60.0);
        let waiting = stage.claim_for(&name, 60.0).queued(true);
        holder.held(&claim).await?;
        let busy = waiter.busy(&waiting).await?;
        holder.release(&claim).await?;
        let wake = busy.wake.ok_or_else(|| Failure::new("push was promised, and there is no wake"))?;
        stage.within(4.0, "the wake after a release", wake).await?;
        waiter.held(&waiting).await?;
        waiter.release(&waiting).await?;
    }
    Ok(())
}

/// The subscription is held up, and the lock released meanwhile: the look after it finds the lock free.
async fn a_release_before_the_look_is_armed_is_seen(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.bare().await?, Arc::new(stage.patient_client().await?));
    let claim = stage.claim_for(&stage.name(), 60.0);
    holder.held(&claim).await?;
    let before = waiter.link.requests().of("SUBSCRIBE");
    waiter.link.hold_from("SUBSCRIBE");
    let waiting = waiter.start_waiting(&claim.name);
    let subscribing = waiter.link.sent(|requests| requests.of("SUBSCRIBE") > before);
    stage.within(4.0, "the subscription", subscribing).await?;
    holder.release(&claim).await?;
    waiter.link.heal();
    stage.within(4.0, "the lock, though its release was not heard", waiting).await???.release().await?;
    Ok(())
}

/// Each verb touches its own claim and nothing else.
async fn exact(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let (claim, stranger) = (stage.claim_for(&name, 20.0), stage.claim_for(&name, 20.0));
    assert_eq!(bare.release(&claim).await?, Released::Absent);
    assert_eq!(bare.renew(&claim).await?, Renewal::Lost);

    let token = bare.held(&claim).await?.token;
    assert_eq!(bare.renew(&stranger).await?, Renewal::Lost);
    assert_eq!(bare.release(&stranger).await?, Released::Absent);
    bare.busy(&stranger).await?;
    assert_eq!(bare.release(&stranger).await?, Released::Absent, "a try that was busy left its claim behind");
    // The same owner under another name is another claim.
    let elsewhere = Claim::new(stage.name(), claim.owner, claim.lease);
    assert_eq!(bare.release(&elsewhere).await?, Released::Absent);
    assert_eq!(bare.renew(&elsewhere).await?, Renewal::Lost);

    assert_eq!(bare.held(&claim).await?.token, token);
    assert_eq!(bare.release(&claim).await?, Released::Released);
    assert_eq!(bare.release(&claim).await?, Released::Absent);
    Ok(())
}

/// A verb may be dropped at any await: a release cleans up at once, the lease in the end.
async fn droppable(stage: Stage) -> Outcome {
    let (bare, other) = (stage.bare().await?, stage.bare().await?);
    let mut abandoned = Vec::new();
    for polls in 0.. {
        let released = stage.claim_for(&stage.name(), 20.0);
        let left = stage.claim(&stage.name());
        polled(bare.backend.acquire(&released), polls).await.transpose()?;
        bare.release(&released).await?;
        other.held(&stage.claim_for(&released.name, 20.0)).await?;

        let acquired = polled(bare.backend.acquire(&left), polls).await.transpose()?;
        abandoned.push((Moment::now(), left));
        renew_and_release_dropped(&stage, &bare, &other, polls).await?;
        if acquired.is_some() {
            break;
        }
    }
    // Whatever is still under way has arrived by then.
    stage.pass(0.2).await;
    for (dropped, claim) in abandoned {
        other.held_at_last(&stage.claim_for(&claim.name, 20.0)).await?;
        let after = Moment::now().saturating_since(dropped);
        // The later names were not asked for while the earlier ones were waited for.
        let bound = stage.takeover() + stage.part(1.0);
        assert!(after < bound, "an abandoned claim was kept for {after:?}, more than {bound:?}");
    }
    Ok(())
}

async fn renew_and_release_dropped(stage: &Stage, bare: &Bare, other: &Bare, polls: usize) -> Outcome {
    let claim = stage.claim_for(&stage.name(), 20.0);
    bare.held(&claim).await?;
    polled(bare.backend.renew(&claim), polls).await.transpose()?;
    bare.held(&claim).await?;
    polled(bare.backend.release(&claim), polls).await.transpose()?;
    bare.release(&claim).await?;
    other.held(&stage.claim_for(&claim.name, 20.0)).await?;
    Ok(())
}

/// Without the server's word a verb says nothing; and a lost reply is an unknown outcome.
async fn honest(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let (claim, new) = (stage.claim_for(&stage.name(), 60.0), stage.claim_for(&stage.name(), 60.0));
    let token = bare.held(&claim).await?.token;

    bare.link.down();
    for claim in [&claim, &new] {
        says_nothing(&stage, bare.backend.acquire(claim)).await?;
        says_nothing(&stage, bare.backend.renew(claim)).await?;
        says_nothing(&stage, bare.backend.release(claim)).await?;
    }
    bare.link.heal();
    let back = async {
        while bare.backend.renew(&new).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    stage.within(20.0, "answers, once the link has healed", back).await?;
    assert_eq!(bare.held(&claim).await?.token, token, "nothing was asked of the server meanwhile");

    bare.link.lose_next_reply();
    if let Ok(attempt) = bare.backend.acquire(&new).await {
        // It may have asked again; then the answer is the server's.
        assert!(matches!(attempt, Attempt::Held(_)), "{attempt:?}");
    }
    stage
        .within(20.0, "answers, after a reply was lost", async {
            while bare.backend.renew(&claim).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await?;
    bare.held(&new).await?;
    Ok(())
}

/// While the server cannot be asked: an error, or no answer yet; never one of its words.
async fn says_nothing<T: std::fmt::Debug>(
    stage: &Stage,
    verb: impl Future<Output = lock_core::Result<T>>,
) -> Outcome {
    match tokio::time::timeout(stage.part(0.5), verb).await {
        Ok(Ok(word)) => Err(Failure::new(format!("{word:?}, without the server's word"))),
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// Acquire and renew keep the claim for a further lease; without them it ends.
async fn alive(stage: Stage) -> Outcome {
    let (bare, other) = (stage.bare().await?, stage.bare().await?);
    let name = stage.name();
    let lag = stage.fixture().guarantees().expiry_lag;
    let parts = 3.0 + 2.0 * lag.as_secs_f64() / stage.ttl().as_secs_f64();
    let (claim, rival) = (stage.claim_for(&name, parts), stage.claim_for(&name, parts));
    let lease = bare.held(&claim).await?.lease.length;
    // Shorter than a lease; but two of them are longer, with all that the server may add to it.
    let pause = (lease + lag).mul_f64(0.55);
    tokio::time::sleep(pause).await;
    bare.held(&claim).await?;
    tokio::time::sleep(pause).await;
    other.busy(&rival).await?;
    let Renewal::Kept(_) = bare.renew(&claim).await? else {
        return Err(Failure::new("the repeated acquire did not keep the claim"));
    };
    tokio::time::sleep(pause).await;
    other.busy(&rival).await?;
    let free = other.held_at_last(&rival);
    stage.within(parts + 0.4, "the end of a lease that nobody renews", free).await??;
    Ok(())
}
