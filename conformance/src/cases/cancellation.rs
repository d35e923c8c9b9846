//! An acquire that is dropped, runs out of patience or fails leaves nothing behind.

use std::{sync::Arc, time::Duration};

use lock_core::{ErrorKind, Moment};

use crate::{
    Lever, Need, Stage,
    case::{Case, Outcome, case},
    link::Way,
    polled::polled,
    stage::Client,
};

pub(crate) const CASES: &[Case] = &[
    case!(an_acquire_dropped_at_any_poll_leaves_nothing),
    case!(an_acquire_dropped_at_any_time_leaves_nothing),
    case!(a_dropped_wait_is_passed_over),
    case!(a_wait_that_ran_out_is_passed_over),
    case!(a_client_whose_wait_was_dropped_can_wait_again),
    case!(an_acquire_dropped_while_its_reply_is_lost_leaves_nothing),
    case!(a_lost_reply_does_not_keep_the_client_from_asking_again),
    case!(a_fault_at_any_request_leaves_the_lock_to_be_had),
    case!(a_wait_ends_in_time_though_nothing_answers),
    case!(a_wait_ends_in_time_though_the_server_is_stopped, Need::ServerProcess),
    case!(a_wait_for_a_held_lock_ends_with_busy),
    case!(a_try_after_a_wait_asks_the_server),
    case!(a_dropped_guard_is_released),
];

/// Of a free lock, and of a held one; until it is not polled any more before the lock is released.
async fn an_acquire_dropped_at_any_poll_leaves_nothing(stage: Stage) -> Outcome {
    let (client, other) = (stage.patient_client().await?, stage.patient_client().await?);
    for held in [false, true] {
        for polls in 0.. {
            let name = stage.name();
            let holder = if held { Some(other.acquire(&name).await?) } else { None };
            let acquiring = polled(client.acquire(&name), polls);
            let done = match tokio::time::timeout(stage.part(0.2), acquiring).await {
                Ok(acquired) => acquired.transpose()?.is_some(),
                Err(_) => true,
            };
            drop(holder);
            let next = stage.within(8.0, "the lock after a dropped acquire", other.acquire(&name)).await??;
            next.release().await?;
            if done {
                break;
            }
        }
    }
    Ok(())
}

/// Dropped after up to a hundredth of the ttl, on a link that is about as slow.
async fn an_acquire_dropped_at_any_time_leaves_nothing(stage: Stage) -> Outcome {
    let (client, other) = (stage.patient_client().await?, stage.patient_client().await?);
    client.link.delay(Way::Both, stage.part(0.004));
    for round in 0..stage.rounds(20, 500) {
        let name = stage.name();
        let time = stage.part(0.0015) * (round % 12);
        if let Ok(held) = tokio::time::timeout(time, client.acquire(&name)).await {
            drop(held?);
        }
        let next = stage.within(8.0, "the lock after a dropped acquire", other.acquire(&name)).await??;
        next.release().await?;
    }
    Ok(())
}

/// Two tasks wait; the first is dropped: the second gets the lock when it is released.
async fn a_dropped_wait_is_passed_over(stage: Stage) -> Outcome {
    let (holder, near) = (stage.patient_client().await?, Arc::new(stage.patient_client().await?));
    let far = Arc::new(stage.patient_client().await?);
    for second in [&near, &far] {
        let name = stage.name();
        let held = holder.acquire(&name).await?;
        let dropped = near.waiting(&name).await;
        let waiting = second.start_waiting(&name);
        stage.pass(0.1).await;
        drop(dropped);
        held.release().await?;
        let next = stage.within(8.0, "the lock after a dropped wait", waiting).await???;
        next.release().await?;
    }
    Ok(())
}

/// Patience ends; the holder releases; a third gets the lock, though the second stood before it.
async fn a_wait_that_ran_out_is_passed_over(stage: Stage) -> Outcome {
    let (holder, second) = (stage.patient_client().await?, stage.patient_client().await?);
    let third = Arc::new(stage.patient_client().await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    assert!(second.acquire_within(&name, stage.part(0.4)).await?.is_none());
    let waiting = third.waiting(&name).await;
    held.release().await?;
    let next = stage.within(8.0, "the lock after a wait that ran out", waiting).await???;
    next.release().await?;
    Ok(())
}

async fn a_client_whose_wait_was_dropped_can_wait_again(stage: Stage) -> Outcome {
    let (holder, client) = (stage.patient_client().await?, Arc::new(stage.patient_client().await?));
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    for _ in 0..3 {
        let waiting = client.waiting(&name).await;
        drop(waiting);
    }
    let waiting = client.start_waiting(&name);
    stage.pass(0.1).await;
    held.release().await?;
    stage.within(8.0, "the lock after dropped waits", waiting).await???.release().await?;
    Ok(())
}

/// The server granted it, the reply is lost, the caller is gone: the claim is released all the same.
async fn an_acquire_dropped_while_its_reply_is_lost_leaves_nothing(stage: Stage) -> Outcome {
    let (client, other) = (Arc::new(stage.patient_client().await?), stage.patient_client().await?);
    let name = stage.name();
    client.acquire(&stage.name()).await?.release().await?;
    client.link.blackhole(Way::ToClient);
    let asking = client.waiting(&name).await;
    // The request has arrived when others find the lock busy.
    let busy = async {
        while other.try_acquire(&name).await?.is_some() {}
        Outcome::Ok(())
    };
    stage.within(8.0, "the grant whose reply is lost", busy).await??;
    drop(asking);
    client.link.cut();
    client.link.heal();
    let next = stage.within(12.0, "the lock after a dropped acquire", other.acquire(&name)).await??;
    next.release().await?;
    Ok(())
}

/// The server granted it, the reply is lost: asking again finds one's own claim, not another's.
async fn a_lost_reply_does_not_keep_the_client_from_asking_again(stage: Stage) -> Outcome {
    let client = stage.patient_client().await?;
    client.acquire(&stage.name()).await?.release().await?;
    for _ in 0..3 {
        let name = stage.name();
        let cuts = client.link.cuts();
        client.link.lose_next_reply();
        let held = stage.within(12.0, "the lock after a lost reply", client.acquire(&name)).await??;
        assert!(client.link.cuts() > cuts, "no reply was lost");
        assert!(held.seen());
        stage.within(8.0, "the release", held.release()).await??;
    }
    Ok(())
}

/// The link is cut after the first, second, … request of acquire and release.
async fn a_fault_at_any_request_leaves_the_lock_to_be_had(stage: Stage) -> Outcome {
    let (client, other) = (stage.patient_client().await?, stage.patient_client().await?);
    client.acquire(&stage.name()).await?.release().await?;
    for requests in 1..=stage.rounds(4, 12) {
        let name = stage.name();
        client.link.cut_after_requests(requests.into());
        let held = stage.within(12.0, "the lock through a cut", client.acquire(&name)).await??;
        // Its outcome may be unknown; then it is released in the background.
        let _ = held.release().await;
        let next = stage.within(12.0, "the lock after a cut", other.acquire(&name)).await??;
        next.release().await?;
        client.link.heal();
    }
    Ok(())
}

/// Nothing comes back: the error comes a verb's limit after the patience at the latest.
async fn a_wait_ends_in_time_though_nothing_answers(stage: Stage) -> Outcome {
    for way in [Way::ToServer, Way::ToClient] {
        let client = stage.client().await?;
        client.acquire(&stage.name()).await?.release().await?;
        client.link.blackhole(way);
        ends_in_time(&stage, &client).await?;
        client.link.heal();
        let again = stage.within(20.0, "the lock after the heal", client.acquire(&stage.name())).await??;
        again.release().await?;
    }
    Ok(())
}

async fn a_wait_ends_in_time_though_the_server_is_stopped(stage: Stage) -> Outcome {
    let (holder, client) = (stage.client().await?, stage.client().await?);
    holder.acquire(&stage.name()).await?.release().await?;
    client.acquire(&stage.name()).await?.release().await?;
    stage.pull(Lever::Stop)?;
    let ended = ends_in_time(&stage, &client).await;
    stage.pull(Lever::Continue)?;
    ended?;
    // With a patience: members that all stood still may have to elect a leader first.
    let name = stage.name();
    let again = client.acquire_within(&name, stage.part(20.0));
    let again = stage.within(20.0, "the lock when the server goes on", again).await??;
    again.ok_or("it is still busy")?.release().await?;
    Ok(())
}

async fn ends_in_time(stage: &Stage, client: &Client) -> Outcome {
    let (name, patience) = (stage.name(), stage.part(1.0));
    let began = Moment::now();
    let Err(error) = client.acquire_within(&name, patience).await else {
        return Err("an answer from a server that is silent".into());
    };
    let took = Moment::now().saturating_since(began);
    assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error:?}");
    assert!(error.is_transient());
    assert!(took <= stage.part(6.0), "it took {took:?} with a patience of {patience:?}");

    let began = Moment::now();
    assert!(client.try_acquire(&stage.name()).await.is_err());
    let took = Moment::now().saturating_since(began);
    assert!(took <= stage.part(5.0), "a try took {took:?}");
    Ok(())
}

/// `None` comes when the patience is over, not before; and costs the holder nothing.
async fn a_wait_for_a_held_lock_ends_with_busy(stage: Stage) -> Outcome {
    let (holder, client) = (stage.patient_client().await?, stage.client().await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    for patience in [Duration::ZERO, stage.part(0.3), stage.part(1.5)] {
        let began = Moment::now();
        assert!(client.acquire_within(&name, patience).await?.is_none());
        let took = Moment::now().saturating_since(began);
        assert!(took >= patience, "gave up {:?} early", patience.saturating_sub(took));
        assert!(took <= patience + stage.part(5.0), "it took {took:?} with a patience of {patience:?}");
        assert!(held.seen());
    }
    held.release().await?;
    Ok(())
}

/// The wait has ended, so nobody of the client waits any more: the answer is the server's.
async fn a_try_after_a_wait_asks_the_server(stage: Stage) -> Outcome {
    let (holder, client) = (stage.patient_client().await?, stage.patient_client().await?);
    for _ in 0..stage.rounds(20, 200) {
        let name = stage.name();
        let held = holder.acquire(&name).await?;
        assert!(client.acquire_within(&name, stage.part(0.02)).await?.is_none());
        held.release().await?;
        let free = client.try_acquire(&name).await?.ok_or("busy, without asking the server")?;
        free.release().await?;
    }
    Ok(())
}

async fn a_dropped_guard_is_released(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.patient_client().await?, Arc::new(stage.patient_client().await?));
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    let waiting = waiter.waiting(&name).await;
    drop(held);
    stage.within(8.0, "the lock of a dropped guard", waiting).await???.release().await?;
    Ok(())
}
