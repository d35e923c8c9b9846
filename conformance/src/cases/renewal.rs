//! Renewals: they keep a lock for as long as it is held, and not a moment longer.

use std::{sync::Arc, time::Duration};

use lock_core::{Loss, Moment, Options, Release, Released, Renewal};
use tokio::task::JoinSet;

use crate::{
    Need, Stage,
    case::{Case, Failure, Outcome, case},
    held::Held,
    link::Way,
};

pub(crate) const CASES: &[Case] = &[
    case!(a_held_lock_is_renewed_until_its_release),
    case!(a_renewal_does_not_outlive_the_release),
    case!(a_lock_taken_again_after_a_loss_is_renewed, Need::DeleteRecord),
    case!(one_renewal_is_under_way_at_a_time),
    case!(a_link_cut_twice_within_the_ttl_is_no_loss),
    case!(a_link_cut_time_and_again_is_no_loss),
    case!(a_lock_had_after_a_long_wait_has_nearly_a_full_lease),
    case!(the_loss_of_one_lock_leaves_the_others_renewed, Need::DeleteRecord),
    case!(every_renewal_gives_a_whole_lease),
];

/// Options for a loaded machine: for holds that must not end, and acquires and releases that may take
/// their time.
pub(super) fn patient(stage: &Stage) -> Options {
    stage.options().with_ttl(stage.part(2.0)).with_verb_limit(stage.part(4.0))
}

/// Holds for so many of its own ttls, and looks all the time.
pub(super) async fn held_throughout(stage: &Stage, held: &Held, of_ttl: f64) -> Outcome {
    let until = Moment::now() + held.ttl().mul_f64(of_ttl);
    while Moment::now() < until {
        if !held.seen() {
            return Err(Failure::new(format!("lost while it was held: {}", held.lost().await)));
        }
        stage.pass(0.02).await;
    }
    Ok(())
}

async fn a_held_lock_is_renewed_until_its_release(stage: Stage) -> Outcome {
    let (client, rival) = (stage.client_with(patient(&stage)).await?, stage.bare().await?);
    let name = stage.name();
    let held = client.acquire(&name).await?;
    for _ in 0..12 {
        held_throughout(&stage, &held, 0.25).await?;
        rival.busy(&stage.claim(&name)).await?;
        assert!(held.remaining() <= held.ttl());
    }
    let renewals = client.locks.statistics().renewals;
    assert!(renewals >= 6, "{renewals} renewals in three ttls");
    assert_eq!(held.release().await?, Release::Released);
    rival.held(&stage.claim(&name)).await?;
    Ok(())
}

/// Many releases pass a renewal that is under way: it neither keeps the lock, nor makes it again, nor
/// tells a loss; and once all is released nothing more is asked.
async fn a_renewal_does_not_outlive_the_release(stage: Stage) -> Outcome {
    let (stage, mut racers) = (Arc::new(stage), JoinSet::new());
    for _ in 0..stage.rounds(8, 16) {
        racers.spawn(race(stage.clone()));
    }
    while let Some(ended) = racers.join_next().await {
        ended??;
    }
    Ok(())
}

async fn race(stage: Arc<Stage>) -> Outcome {
    let (client, other) = (stage.client_with(patient(&stage)).await?, stage.bare().await?);
    let name = stage.name();
    client.link.delay(Way::ToServer, stage.part(0.02));
    let rounds = stage.rounds(5, 200);
    for round in 0..rounds {
        let held = client.acquire(&name).await?;
        // A held lock asks for nothing but its renewal, which now needs some time to arrive.
        client.link.next_request().await;
        if round % 2 == 0 {
            assert_eq!(held.release().await?, Release::Released);
        } else {
            drop(held);
        }
        let next = stage.claim_for(&name, 20.0);
        stage.within(3.0, "the release", other.held_at_last(&next)).await??;
        stage.pass(0.04).await;
        assert!(matches!(other.renew(&next).await?, Renewal::Kept(_)));
        assert_eq!(other.release(&next).await?, Released::Released);
    }
    let before = client.locks.statistics();
    stage.pass(0.5).await;
    other.held(&stage.claim(&name)).await?;
    let after = client.locks.statistics();
    assert_eq!(after.renew.calls, before.renew.calls, "it was renewed after its release");
    assert_eq!(after.lost, 0);
    assert!(after.renew.calls >= u64::from(rounds) / 2, "no renewal was under way");
    Ok(())
}

async fn a_lock_taken_again_after_a_loss_is_renewed(stage: Stage) -> Outcome {
    let (client, rival) = (stage.client_with(patient(&stage)).await?, stage.bare().await?);
    let name = stage.name();
    // Not in the history: its token may have gone with the record.
    let lost = client.lock(&name).acquire().await?;
    stage.delete_record(&name)?;
    assert_eq!(stage.within(2.0, "the loss", lost.lost()).await?, Loss::Revoked);

    let again = client.acquire(&name).await?;
    held_throughout(&stage, &again, 1.5).await?;
    drop(lost);
    held_throughout(&stage, &again, 0.5).await?;
    rival.busy(&stage.claim(&name)).await?;
    assert_eq!(again.release().await?, Release::Released);
    Ok(())
}

/// A link whose round trip takes most of the time that a renewal may take: the renewals do not overlap,
/// and none is taken for a loss.
async fn one_renewal_is_under_way_at_a_time(stage: Stage) -> Outcome {
    let client = stage.client_with(patient(&stage).with_ttl(stage.part(6.0))).await?;
    let held = client.acquire(&stage.name()).await?;
    client.link.delay(Way::Both, stage.part(0.3));
    let until = Moment::now() + stage.part(40.0);
    loop {
        assert!(held.seen(), "lost, although each renewal is confirmed in time");
        let statistics = client.locks.statistics();
        let given_up = statistics.renewal_failures.saturating_sub(statistics.renew.errors);
        let ended = statistics.renew.answers + given_up;
        assert!(statistics.renew.calls <= ended + 1, "renewals overlap: {statistics:?}");
        if statistics.renewals >= 3 {
            break;
        }
        assert!(Moment::now() < until, "three renewals take so long: {statistics:?}");
        stage.pass(0.005).await;
    }
    assert_eq!(client.locks.statistics().lost, 0);
    Ok(())
}

async fn a_link_cut_twice_within_the_ttl_is_no_loss(stage: Stage) -> Outcome {
    cut(&stage, 1, 2).await
}

/// A link that is cut often, and works in between, is no worse: each time it could be used again at once.
async fn a_link_cut_time_and_again_is_no_loss(stage: Stage) -> Outcome {
    cut(&stage, 3, 4).await
}

async fn cut(stage: &Stage, rounds: u64, times: u64) -> Outcome {
    let client = stage.client_with(patient(stage)).await?;
    let held = client.acquire(&stage.name()).await?;
    for _ in 0..rounds {
        // The renewal, and whatever is tried next.
        for _ in 0..times {
            let cuts = client.link.cuts();
            client.link.cut_after_requests(1);
            stage.within(4.0, "a request", client.link.cut_more_than(cuts)).await?;
        }
        // At least one renewal has come through by then, or the lease would be over.
        held_throughout(stage, &held, 1.0).await?;
    }
    let statistics = client.locks.statistics();
    assert!(statistics.renewal_failures >= rounds, "no renewal failed: {statistics:?}");
    assert_eq!(statistics.lost, 0);
    assert_eq!(held.release().await?, Release::Released);
    Ok(())
}

async fn a_lock_had_after_a_long_wait_has_nearly_a_full_lease(stage: Stage) -> Outcome {
    let (holder, waiter) =
        (stage.client_with(patient(&stage)).await?, stage.client_with(patient(&stage)).await?);
    let name = stage.name();
    let first = holder.acquire(&name).await?;
    let (next, released) = tokio::join!(waiter.acquire(&name), async {
        held_throughout(&stage, &first, 2.2).await?;
        first.release().await?;
        Outcome::Ok(())
    });
    released?;
    let next = next?;
    // A promotion may leave half of it, and is then renewed at once.
    let left = next.remaining();
    assert!(left > next.ttl().mul_f64(0.1), "only {left:?} of {:?} are left", next.ttl());
    let renewed = async {
        while next.remaining() < next.ttl().mul_f64(0.8) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    stage.within(8.0, "nearly a full lease", renewed).await?;
    held_throughout(&stage, &next, 1.2).await?;
    assert_eq!(next.release().await?, Release::Released);
    Ok(())
}

async fn the_loss_of_one_lock_leaves_the_others_renewed(stage: Stage) -> Outcome {
    let client = stage.client_with(patient(&stage)).await?;
    let (one, other) = (stage.name(), stage.name());
    let (lost, kept) = (client.acquire(&one).await?, client.acquire(&other).await?);
    stage.delete_record(&one)?;
    assert_eq!(stage.within(2.0, "the loss", lost.lost()).await?, Loss::Revoked);
    held_throughout(&stage, &kept, 2.0).await?;
    assert_eq!(lost.release().await?, Release::AlreadyLost(Loss::Revoked));
    assert_eq!(kept.release().await?, Release::Released);
    Ok(())
}

/// However often, and however fast one after the other.
async fn every_renewal_gives_a_whole_lease(stage: Stage) -> Outcome {
    let (bare, rival) = (stage.bare().await?, stage.bare().await?);
    let claim = stage.claim_for(&stage.name(), 4.0);
    let mut end = bare.held(&claim).await?.lease.end();
    for _ in 0..100 {
        let Renewal::Kept(lease) = bare.renew(&claim).await? else { return Err("lost".into()) };
        assert!(lease.length >= claim.lease, "{:?} of {:?}", lease.length, claim.lease);
        assert!(lease.since <= Moment::now(), "a lease from the future");
        assert!(lease.end() >= end, "a renewal has shortened the lease");
        end = lease.end();
    }
    rival.busy(&stage.claim(&claim.name)).await?;
    assert_eq!(bare.release(&claim).await?, Released::Released);
    rival.held(&stage.claim(&claim.name)).await?;
    Ok(())
}
