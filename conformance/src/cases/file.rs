//! What a store in files or in memory must show beside the rest; most of it holds on every backend.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lock_core::{Locks, Moment, Name, Promise, Release};
use tokio::task::JoinSet;

use crate::{
    Need, Stage,
    case::{Case, Outcome, case},
    holder::Holder,
    stage::Client,
};

pub(crate) const CASES: &[Case] = &[
    case!(locks_that_are_held_for_no_time_never_overlap),
    case!(two_stores_share_no_lock),
    case!(
        a_killed_process_wakes_its_waiters_at_once,
        Need::Processes,
        Need::Promised(Promise::TakeoverAtOnce),
        Need::Promised(Promise::Push)
    ),
    case!(
        a_killed_process_passes_its_lock_on_at_once,
        Need::Processes,
        Need::Promised(Promise::TakeoverAtOnce)
    ),
    case!(a_stopped_process_is_passed_over_when_its_lease_ends, Need::Processes),
];

/// Takes it by trying, and lets it go by dropping and by releasing, as often as told.
async fn snatch(client: &Client, name: &Name, inside: &AtomicUsize, times: u32) -> Outcome {
    let mut taken = 0;
    while taken < times {
        let Some(held) = answered(client.try_acquire(name).await)?.flatten() else {
            tokio::task::yield_now().await;
            continue;
        };
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold {name} at once");
        assert!(held.seen());
        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two hold {name} at once");
        taken += 1;
        if taken % 2 == 0 {
            drop(held);
        } else {
            answered(held.release().await)?;
        }
    }
    Ok(())
}

/// `None` if the outcome is unknown, which may happen on a busy machine, and is cleaned up.
fn answered<T>(answer: lock_core::Result<T>) -> lock_core::Result<Option<T>> {
    match answer {
        Err(error) if error.is_transient() => Ok(None),
        other => other.map(Some),
    }
}

/// What stands for a lock is made and removed as fast as can be, by three clients.
async fn locks_that_are_held_for_no_time_never_overlap(stage: Stage) -> Outcome {
    let (name, inside) = (stage.name(), Arc::new(AtomicUsize::new(0)));
    let times = stage.rounds(60, 3000);
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        let client = stage.client().await?;
        let (name, inside) = (name.clone(), inside.clone());
        clients.spawn(async move { snatch(&client, &name, &inside, times).await });
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    assert_eq!(stage.history().len(), 3 * times as usize);
    Ok(())
}

/// Locks are shared by everybody who names the same store, and by nobody else.
async fn two_stores_share_no_lock(stage: Stage) -> Outcome {
    let (here, there) = (stage.patient_client().await?, stage.patient_client().await?);
    let name = stage.name();
    let held = here.acquire(&name).await?;
    assert!(there.try_acquire(&name).await?.is_none(), "two clients of one store do not contend");

    let elsewhere = tokio::task::block_in_place(|| stage.fixture().serve())?;
    let backend = stage.connect(&elsewhere.url(None)).await?;
    let locks = Locks::with_options(backend, stage.options().with_ttl(stage.part(40.0)))?;
    let beside = locks.lock(name.as_str())?.try_acquire().await?.ok_or("two stores share a lock")?;
    assert!(held.seen() && beside.is_held());
    assert_eq!(beside.release().await?, Release::Released);
    assert!(there.try_acquire(&name).await?.is_none(), "a release in one store freed the lock in another");
    held.release().await?;
    Ok(())
}

/// A holder whose lease would last far longer than the case.
async fn lasting_holder(stage: &Stage) -> Result<Holder, crate::case::Failure> {
    Holder::start(&stage.server().url(None), stage.part(60.0), stage.history().clone()).await
}

async fn a_killed_process_wakes_its_waiters_at_once(stage: Stage) -> Outcome {
    let client = Arc::new(stage.client().await?);
    for _ in 0..stage.rounds(2, 20) {
        let name = stage.name();
        let mut holder = lasting_holder(&stage).await?;
        let grip = holder.acquire(&name).await?;
        let waiting = client.waiting(&name).await;
        // Long enough for it to stop asking by itself; the dead holder's lease is many times longer.
        stage.pass(1.0).await;
        holder.kill()?;
        let next = stage.within(4.0, "the lock of a process that is gone", waiting).await???;
        assert!(Moment::now() < grip.at + grip.remaining);
        drop(next);
    }
    Ok(())
}

/// From process to process, and from one that has waited itself to one that only tries.
async fn a_killed_process_passes_its_lock_on_at_once(stage: Stage) -> Outcome {
    let (client, name) = (stage.patient_client().await?, stage.name());
    let (mut one, mut two) = (lasting_holder(&stage).await?, lasting_holder(&stage).await?);
    let grip = one.acquire(&name).await?;
    two.ask(&name)?;
    one.kill()?;
    let next = stage.within(8.0, "the waiting process", two.granted()).await??;
    assert!(next.at < grip.at + grip.remaining && next.token > grip.token);
    assert!(client.try_acquire(&name).await?.is_none());
    two.kill()?;
    let last = client.try_acquire(&name).await?.ok_or("the lock of a process that is gone is busy")?;
    assert!(last.fencing_token() > next.token);
    Ok(())
}

/// Not before: it may go on at any moment. And not much later: nobody needs it any more.
async fn a_stopped_process_is_passed_over_when_its_lease_ends(stage: Stage) -> Outcome {
    let (mut holder, client) = (stage.holder().await?, stage.client().await?);
    let name = stage.name();
    let grip = holder.acquire(&name).await?;
    holder.stop()?;
    let stopped = Moment::now();
    let patience = stage.takeover() + stage.part(4.0);
    let _next =
        client.acquire_within(&name, patience).await?.ok_or("it still waits for a stopped process")?;
    let (now, until) = (Moment::now(), grip.at + grip.remaining);
    assert!(now >= until, "{:?} before the stopped process stops holding", until.saturating_since(now));
    let took = now.saturating_since(stopped);
    assert!(took <= stage.takeover() + Duration::from_millis(500), "the take-over took {took:?}");
    Ok(())
}
