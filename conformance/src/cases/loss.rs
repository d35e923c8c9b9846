//! A lock that is lost is known to be lost before anybody else can hold it.

use std::{future::pending, time::Duration};

use lock_core::{ErrorKind, Loss, Moment, Release, Released, Renewal};

use crate::{
    Lever, Need, Stage,
    case::{Case, Failure, Outcome, case},
    held::Held,
    link::Way,
    polled::polled,
};

pub(crate) const CASES: &[Case] = &[
    case!(a_lease_counts_from_before_its_request),
    case!(a_renewal_counts_from_the_request_that_proves_it),
    case!(a_renewal_never_creates),
    case!(a_renewal_of_what_another_owner_holds_says_lost),
    case!(a_short_lease_ends_on_time_beside_a_long_one),
    case!(the_loss_is_told_before_a_waiter_holds),
    case!(the_loss_is_told_at_the_deadline_though_the_renewal_hangs),
    case!(the_loss_is_told_though_the_server_is_stopped, Need::ServerProcess),
    case!(a_grant_whose_reply_is_late_is_no_longer_than_its_lease),
    case!(a_late_renewal_revives_nothing),
    case!(after_a_stall_nobody_holds_before_deadline_and_grace),
    case!(after_a_stall_a_dropped_guard_frees_the_lock_before_that),
    case!(a_lock_that_passed_on_does_not_come_back),
    case!(a_deleted_lock_is_noticed_and_not_made_again, Need::DeleteRecord),
    case!(work_is_stopped_before_another_holds),
    case!(a_hung_task_holds_no_longer_than_allowed),
    case!(a_stopped_process_knows_its_loss_first_thing, Need::Processes),
];

/// When the holder stops holding unless a renewal is confirmed.
fn deadline(held: &Held) -> Moment {
    Moment::now() + held.remaining()
}

/// Nobody gets the lock before the end of the lease, however late its reply came.
async fn a_lease_counts_from_before_its_request(stage: Stage) -> Outcome {
    let (first, second) = (stage.bare().await?, stage.bare().await?);
    for late in [0.0, 0.4] {
        let name = stage.name();
        first.link.delay(Way::ToClient, stage.part(late));
        let lease = first.held(&stage.claim(&name)).await?.lease;
        second.held_at_last(&stage.claim(&name)).await?;
        let early = lease.end().saturating_since(Moment::now());
        assert!(early.is_zero(), "taken over {early:?} before the end of the lease");
        first.link.heal();
    }
    Ok(())
}

/// The same for renewals, also for one that is asked for while another may be on its way.
async fn a_renewal_counts_from_the_request_that_proves_it(stage: Stage) -> Outcome {
    let (first, second) = (stage.bare().await?, stage.bare().await?);
    for late in [0.0, 0.2] {
        let name = stage.name();
        let claim = stage.claim_for(&name, 2.5);
        first.link.delay(Way::ToClient, stage.part(late));
        let mut lease = first.held(&claim).await?.lease;
        for _ in 0..2 {
            stage.pass(0.2).await;
            let Renewal::Kept(kept) = first.renew(&claim).await? else {
                return Err("lost before the end of its lease".into());
            };
            lease = kept;
        }
        second.held_at_last(&stage.claim(&name)).await?;
        let early = lease.end().saturating_since(Moment::now());
        assert!(early.is_zero(), "taken over {early:?} before the end of the lease");
        first.link.heal();
    }
    Ok(())
}

/// What was never held, what was released and what has expired is not there after a renewal either.
async fn a_renewal_never_creates(stage: Stage) -> Outcome {
    let (first, second) = (stage.bare().await?, stage.bare().await?);
    let never = stage.claim(&stage.name());
    let released = stage.claim(&stage.name());
    first.held(&released).await?;
    first.release(&released).await?;
    let expired = stage.claim_for(&stage.name(), 0.5);
    let end = first.held(&expired).await?.lease.end();
    // Only another's grant shows that it has expired; that one is released again.
    let probe = stage.claim(&expired.name);
    second.held_at_last(&probe).await?;
    assert!(Moment::now() >= end);
    second.release(&probe).await?;

    for claim in [&never, &released, &expired] {
        assert_eq!(first.renew(claim).await?, Renewal::Lost);
        assert_eq!(first.release(claim).await?, Released::Absent);
        second.held(&stage.claim(&claim.name)).await?;
    }
    Ok(())
}

async fn a_renewal_of_what_another_owner_holds_says_lost(stage: Stage) -> Outcome {
    let (first, second) = (stage.bare().await?, stage.bare().await?);
    let name = stage.name();
    let (stale, claim) = (stage.claim_for(&name, 0.5), stage.claim_for(&name, 60.0));
    first.held(&stale).await?;
    let token = stage.within(6.0, "the end of the lease", second.held_at_last(&claim)).await??.token;
    for stranger in [&stale, &stage.claim(&name)] {
        assert_eq!(first.renew(stranger).await?, Renewal::Lost);
    }
    assert_eq!(second.held(&claim).await?.token, token);
    Ok(())
}

async fn a_short_lease_ends_on_time_beside_a_long_one(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let (long, short) = (stage.claim_for(&stage.name(), 100.0), stage.claim_for(&stage.name(), 0.5));
    bare.held(&long).await?;
    bare.held(&short).await?;
    let next = bare.held_at_last(&stage.claim(&short.name));
    stage.within(6.0, "the end of the short lease", next).await??;
    bare.busy(&stage.claim(&long.name)).await?;
    Ok(())
}

/// The holder is cut off; its loss comes first, the waiter's grant after it, with a larger token.
async fn the_loss_is_told_before_a_waiter_holds(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.client().await?, stage.client().await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    let told = tokio::spawn(held.lost());
    holder.link.blackhole(Way::Both);
    let next = stage.within(8.0, "the take-over", waiter.acquire(&name)).await??;
    // By the clock of this moment, whenever its timer is looked at.
    assert_eq!(polled(held.lost(), 1).await, Some(Loss::Expired), "another holds before the loss is told");
    assert_eq!(stage.within(8.0, "the loss", told).await??, Loss::Expired);
    assert!(!held.seen() && held.cancellation().is_cancelled());
    assert!(next.fencing_token() > held.fencing_token());
    assert_eq!(held.ensure(Duration::ZERO).map_err(|error| error.kind()), Err(ErrorKind::Lost));
    holder.link.heal();
    assert!(matches!(held.release().await?, Release::AlreadyLost(Loss::Expired)));
    assert!(next.seen(), "the stale release freed the next one's lock");
    Ok(())
}

/// Every renewal hangs: the loss does not wait for any of them.
async fn the_loss_is_told_at_the_deadline_though_the_renewal_hangs(stage: Stage) -> Outcome {
    for way in [Way::ToServer, Way::ToClient, Way::Both] {
        let client = stage.client().await?;
        let held = client.acquire(&stage.name()).await?;
        client.link.blackhole(way);
        told_in_time(&stage, &held).await?;
    }
    Ok(())
}

async fn the_loss_is_told_though_the_server_is_stopped(stage: Stage) -> Outcome {
    let client = stage.client().await?;
    let held = client.acquire(&stage.name()).await?;
    stage.pull(Lever::Stop)?;
    let told = told_in_time(&stage, &held).await;
    stage.pull(Lever::Continue)?;
    told
}

/// The loss comes at the deadline that the holder knows now, not before and not much later.
async fn told_in_time(stage: &Stage, held: &Held) -> Outcome {
    let deadline = deadline(held);
    let loss = stage.within(8.0, "the loss", held.lost()).await?;
    let told = Moment::now();
    assert_eq!(loss, Loss::Expired);
    assert!(
        told >= deadline - Duration::from_millis(1),
        "given up {:?} early",
        deadline.saturating_since(told)
    );
    let late = told.saturating_since(deadline);
    assert!(late <= stage.part(2.0), "told {late:?} late");
    assert!(!held.is_held() && held.remaining().is_zero());
    stage.within(4.0, "the cancellation", held.cancellation().cancelled()).await?;
    Ok(())
}

/// The reply to the acquire takes long: the guard counts from before the request.
async fn a_grant_whose_reply_is_late_is_no_longer_than_its_lease(stage: Stage) -> Outcome {
    let client = stage.client_with(stage.options().with_verb_limit(stage.part(2.0))).await?;
    client.acquire(&stage.name()).await?.release().await?;
    let late = stage.part(0.4);
    client.link.delay(Way::ToClient, late);
    let held = client.acquire(&stage.name()).await?;
    client.link.heal();
    let (left, ttl) = (held.remaining(), stage.ttl());
    assert!(left <= ttl - late, "{left:?} left after a reply that was {late:?} late, of {ttl:?}");
    Ok(())
}

/// The renewals' replies arrive after the deadline, more or less: what has ended stays ended.
async fn a_late_renewal_revives_nothing(stage: Stage) -> Outcome {
    for after in [0.002, 0.01, 0.03, 0.06] {
        let client = stage.client().await?;
        let held = client.acquire(&stage.name()).await?;
        client.link.blackhole(Way::ToClient);
        let deadline = deadline(&held);
        tokio::time::sleep((deadline + stage.part(after)).saturating_since(Moment::now())).await;
        assert!(!held.seen());
        client.link.heal();
        let until = Moment::now() + stage.part(0.5);
        while Moment::now() < until {
            assert!(!held.is_held() && held.remaining().is_zero(), "a late renewal made it held again");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(held.lost().await, Loss::Expired);
    }
    Ok(())
}

/// The stall heals as the deadline passes, the guard lives on: the grace is the work's time to stop.
async fn after_a_stall_nobody_holds_before_deadline_and_grace(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.client().await?, stage.client().await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    holder.link.blackhole(Way::Both);
    let deadline = deadline(&held);
    let next = async {
        let next = waiter.acquire(&name).await?;
        Ok::<_, Failure>((Moment::now(), next))
    };
    let heal = async {
        held.lost().await;
        holder.link.heal();
    };
    let (next, ()) = stage.within(8.0, "the take-over", async { tokio::join!(next, heal) }).await?;
    let (granted, next) = next?;
    let early = (deadline + stage.grace()).saturating_since(granted);
    assert!(early.is_zero(), "taken over {early:?} before deadline and grace");
    next.release().await?;
    drop(held);
    Ok(())
}

/// A dropped guard says that the work has stopped: nobody has to wait for the grace.
async fn after_a_stall_a_dropped_guard_frees_the_lock_before_that(stage: Stage) -> Outcome {
    let grace = stage.part(10.0);
    let holder = stage.client_with(stage.options().with_grace(grace)).await?;
    let waiter = stage.client().await?;
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    holder.link.blackhole(Way::Both);
    let deadline = deadline(&held);
    held.lost().await;
    holder.link.heal();
    assert!(waiter.try_acquire(&name).await?.is_none(), "free although the guard lives");
    drop(held);
    let next = stage.within(6.0, "the hand-over after the drop", waiter.acquire(&name)).await??;
    assert!(Moment::now() < deadline + grace, "only the lease's end freed it");
    next.release().await?;
    Ok(())
}

/// The holder is cut off past its lease; another holds and releases; what the holder sent arrives late.
async fn a_lock_that_passed_on_does_not_come_back(stage: Stage) -> Outcome {
    let (holder, other) = (stage.client().await?, stage.client().await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    holder.link.blackhole(Way::Both);
    let next = stage.within(8.0, "the take-over", other.acquire(&name)).await??;
    next.release().await?;
    holder.link.heal();
    stage.pass(1.0).await;
    assert!(!held.seen());
    let again = other.try_acquire(&name).await?.ok_or("a late renewal took the lock again")?;
    again.release().await?;
    Ok(())
}

async fn a_deleted_lock_is_noticed_and_not_made_again(stage: Stage) -> Outcome {
    let holder = stage.client_with(stage.options().with_ttl(stage.part(4.0))).await?;
    let (other, name) = (stage.bare().await?, stage.name());
    let held = holder.acquire(&name).await?.into_guard();
    stage.delete_record(&name)?;
    // By the next renewal, not by the end of the lease.
    let loss = stage.within(8.0, "the loss", held.lost()).await?;
    assert_eq!(loss, Loss::Revoked);
    assert!(!held.is_held() && held.cancellation().is_cancelled());
    other.held(&stage.claim(&name)).await?;
    assert!(matches!(held.release().await?, Release::AlreadyLost(Loss::Revoked)));
    Ok(())
}

async fn work_is_stopped_before_another_holds(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.client().await?, stage.client().await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    assert_eq!(held.run(async { 42 }).await, Ok(42));
    holder.link.blackhole(Way::Both);
    let work = async { (held.run(pending::<()>()).await, Moment::now()) };
    let next = async { (waiter.acquire(&name).await, Moment::now()) };
    let ((worked, stopped), (next, granted)) =
        // In this order, for both may be ready when a busy machine looks.
        stage.within(8.0, "the take-over", async { tokio::join!(biased; work, next) }).await?;
    assert_eq!(worked, Err(Loss::Expired));
    assert!(stopped <= granted, "the work went on for {:?}", stopped.saturating_since(granted));
    next?.release().await?;
    Ok(())
}

/// `max_hold` ends a lock whose renewals work, and the next one gets it when the guard is dropped.
async fn a_hung_task_holds_no_longer_than_allowed(stage: Stage) -> Outcome {
    let longest = stage.part(1.5);
    let options = stage.options().with_ttl(stage.part(40.0)).with_max_hold(longest);
    let holder = stage.client_with(options).await?;
    let waiter = stage.client().await?;
    let name = stage.name();
    let began = Moment::now();
    let held = holder.acquire(&name).await?;
    let loss = stage.within(8.0, "the end of the longest hold", held.lost()).await?;
    assert_eq!(loss, Loss::MaxHold);
    assert!(Moment::now() >= began + longest && !held.seen());
    drop(held);
    let next = stage.within(8.0, "the take-over", waiter.acquire(&name)).await??;
    next.release().await?;
    Ok(())
}

/// Stopped for longer than its ttl, with nobody else about: the clock says it, not the server.
async fn a_stopped_process_knows_its_loss_first_thing(stage: Stage) -> Outcome {
    let mut holder = stage.holder().await?;
    holder.acquire(&stage.name()).await?;
    holder.stop()?;
    stage.pass(1.2).await;
    holder.look()?;
    holder.resume()?;
    let look = holder.granted().await?;
    assert!(!look.held && look.remaining.is_zero(), "{look:?}");
    Ok(())
}
