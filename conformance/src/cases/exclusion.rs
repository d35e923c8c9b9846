//! One holder at a time: among tasks, clients and processes, through releases, crashes and restarts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lock_core::{Attempt, Fault, Moment, Promise, Release, Released, Renewal};
use tokio::task::JoinSet;

use crate::{
    Lever, Need, Stage,
    case::{Case, Outcome, case},
    stage::Client,
};

const RESTART: Promise = Promise::Exclusion(Fault::ServerRestart);
const CLOCK_STEP: Promise = Promise::Exclusion(Fault::ServerClockStep);
const DATA_LOSS: Promise = Promise::Exclusion(Fault::DataLoss);

pub(crate) const CASES: &[Case] = &[
    case!(one_of_many_clients_holds_at_a_time),
    case!(tasks_of_one_client_hold_one_after_the_other),
    case!(processes_lose_no_update, Need::Processes),
    case!(a_second_acquire_by_the_holder_is_busy),
    case!(a_released_lock_is_free_at_once),
    case!(a_release_takes_nothing_from_another_owner),
    case!(a_busy_try_leaves_nothing_behind),
    case!(two_names_are_held_at_once),
    case!(
        a_killed_process_keeps_the_lock_for_its_lease,
        Need::Processes,
        Need::Absent(Promise::TakeoverAtOnce)
    ),
    case!(
        a_killed_process_gives_the_lock_up_at_once,
        Need::Processes,
        Need::Promised(Promise::TakeoverAtOnce)
    ),
    case!(
        a_stopped_process_does_not_hold_when_it_goes_on,
        Need::Processes,
        Need::Promised(Promise::Exclusion(Fault::HolderPause))
    ),
    case!(a_lock_survives_a_server_restart, Need::ServerProcess, Need::Promised(RESTART)),
    case!(a_server_restart_lets_two_hold, Need::ServerProcess, Need::Absent(RESTART)),
    case!(without_kept_data_a_restart_lets_two_hold, Need::ServerProcess, Need::Absent(DATA_LOSS)),
    case!(lost_data_lets_two_hold, Need::LoseData, Need::Absent(DATA_LOSS)),
    case!(a_lock_survives_a_step_of_the_servers_clock, Need::StepClock, Need::Promised(CLOCK_STEP)),
    case!(a_step_of_the_servers_clock_lets_two_hold, Need::StepClock, Need::Absent(CLOCK_STEP)),
];

/// Holds the lock for a moment and looks whether anybody else does.
async fn enter(client: &Client, name: &lock_core::Name, inside: &AtomicUsize) -> Outcome {
    let held = client.acquire(name).await?;
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold {name} at once");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(held.seen());
    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two hold {name} at once");
    held.release().await?;
    Ok(())
}

async fn contend(stage: &Stage, clients: u32, tasks: u32, rounds: u32) -> Outcome {
    let name = stage.name();
    let inside = Arc::new(AtomicUsize::new(0));
    let mut contenders = JoinSet::new();
    for _ in 0..clients {
        let client = Arc::new(stage.patient_client().await?);
        for _ in 0..tasks {
            let (client, name, inside) = (client.clone(), name.clone(), inside.clone());
            contenders.spawn(async move {
                for _ in 0..rounds {
                    enter(&client, &name, &inside).await?;
                }
                Outcome::Ok(())
            });
        }
    }
    while let Some(ended) = contenders.join_next().await {
        ended??;
    }
    assert_eq!(stage.history().len(), (clients * tasks * rounds) as usize);
    Ok(())
}

async fn one_of_many_clients_holds_at_a_time(stage: Stage) -> Outcome {
    let rounds = stage.rounds(6, 100);
    contend(&stage, 5, 2, rounds).await
}

async fn tasks_of_one_client_hold_one_after_the_other(stage: Stage) -> Outcome {
    let rounds = stage.rounds(5, 100);
    contend(&stage, 1, 20, rounds).await
}

/// Three processes add to one number in a file, each addition a read and a write.
async fn processes_lose_no_update(stage: Stage) -> Outcome {
    let name = stage.name();
    let root = crate::servers::scratch()?;
    let file = root.path().join("number");
    std::fs::write(&file, "0")?;
    let times = stage.rounds(20, 500);
    let mut holders =
        [stage.patient_holder().await?, stage.patient_holder().await?, stage.patient_holder().await?];
    for holder in &mut holders {
        holder.increment(&name, &file, times)?;
    }
    for holder in &mut holders {
        holder.done().await?;
    }
    assert_eq!(std::fs::read_to_string(&file)?, (3 * times).to_string());
    Ok(())
}

/// There is no reentrancy: the holder's own client finds the lock busy too.
async fn a_second_acquire_by_the_holder_is_busy(stage: Stage) -> Outcome {
    let client = stage.patient_client().await?;
    let name = stage.name();
    let held = client.acquire(&name).await?;
    assert!(client.try_acquire(&name).await?.is_none());
    assert!(client.acquire_within(&name, stage.part(0.6)).await?.is_none());
    assert!(held.seen());
    assert_eq!(held.release().await?, Release::Released);
    let again = client.try_acquire(&name).await?.ok_or("it is still busy")?;
    again.release().await?;
    Ok(())
}

/// A release frees the lock for others at once, however long its lease.
async fn a_released_lock_is_free_at_once(stage: Stage) -> Outcome {
    let (first, second) = (stage.bare().await?, stage.bare().await?);
    let name = stage.name();
    for _ in 0..5 {
        let (claim, next) = (stage.claim_for(&name, 60.0), stage.claim_for(&name, 60.0));
        first.held(&claim).await?;
        assert_eq!(first.release(&claim).await?, Released::Released);
        second.held(&next).await?;
        assert_eq!(second.release(&next).await?, Released::Released);
    }
    Ok(())
}

/// Neither a stranger's release nor that of an owner whose lease is over frees the next one's lock.
async fn a_release_takes_nothing_from_another_owner(stage: Stage) -> Outcome {
    let (first, second) = (stage.bare().await?, stage.bare().await?);
    let name = stage.name();
    let (expired, claim) = (stage.claim_for(&name, 0.5), stage.claim_for(&name, 60.0));
    first.held(&expired).await?;
    let token = stage.within(6.0, "the end of the lease", second.held_at_last(&claim)).await??.token;

    for stale in [&expired, &stage.claim(&name)] {
        assert_eq!(first.release(stale).await?, Released::Absent);
        first.busy(&stage.claim(&name)).await?;
        assert!(matches!(second.renew(&claim).await?, Renewal::Kept(_)));
        assert_eq!(second.held(&claim).await?.token, token);
    }
    assert_eq!(second.release(&claim).await?, Released::Released);
    Ok(())
}

/// After tries that found it busy, a released lock is free, and stays so.
async fn a_busy_try_leaves_nothing_behind(stage: Stage) -> Outcome {
    let (holder, rival) = (stage.bare().await?, stage.bare().await?);
    let name = stage.name();
    let claim = stage.claim_for(&name, 60.0);
    holder.held(&claim).await?;
    for _ in 0..20 {
        let attempt = stage.claim_for(&name, 60.0);
        rival.busy(&attempt).await?;
    }
    holder.release(&claim).await?;
    // Whoever was left in a queue would have the lock now.
    stage.pass(0.2).await;
    rival.held(&stage.claim(&name)).await?;
    Ok(())
}

async fn two_names_are_held_at_once(stage: Stage) -> Outcome {
    let (first, second) = (stage.patient_client().await?, stage.patient_client().await?);
    let (one, other) = (stage.name(), stage.name());
    let held = first.acquire(&one).await?;
    let beside = second.try_acquire(&other).await?.ok_or("another name is busy")?;
    assert!(held.seen() && beside.seen());
    held.release().await?;
    assert!(beside.seen());
    beside.release().await?;
    Ok(())
}

/// Nobody holds before the dead holder's validity is over; somebody does soon after its lease.
async fn a_killed_process_keeps_the_lock_for_its_lease(stage: Stage) -> Outcome {
    let name = stage.name();
    let (mut holder, client) = (stage.holder().await?, stage.client().await?);
    let grip = holder.acquire(&name).await?;
    holder.kill()?;
    let killed = Moment::now();
    let next = client.acquire(&name).await?;
    assert!(Moment::now() >= grip.at + grip.remaining, "taken over within the dead holder's validity");
    let took = Moment::now().saturating_since(killed);
    assert!(took <= stage.takeover(), "the take-over took {took:?}");
    assert!(next.fencing_token() > grip.token);
    next.release().await?;
    Ok(())
}

async fn a_killed_process_gives_the_lock_up_at_once(stage: Stage) -> Outcome {
    let name = stage.name();
    let (mut holder, bare) = (stage.holder().await?, stage.bare().await?);
    let grip = holder.acquire(&name).await?;
    holder.kill()?;
    let Attempt::Held(grant) = bare.backend.acquire(&stage.claim(&name)).await? else {
        return Err("the lock of a process that is gone is still busy".into());
    };
    assert!(grant.token > grip.token);
    Ok(())
}

/// It is stopped past its lease, another takes over, it goes on: its first look says that it does not
/// hold.
async fn a_stopped_process_does_not_hold_when_it_goes_on(stage: Stage) -> Outcome {
    let name = stage.name();
    let (mut holder, client) = (stage.holder().await?, stage.patient_client().await?);
    let grip = holder.acquire(&name).await?;
    holder.stop()?;
    let next = stage.within(8.0, "the take-over", client.acquire(&name)).await??;
    assert!(Moment::now() >= grip.at + grip.remaining, "taken over within the stopped holder's validity");
    assert!(next.fencing_token() > grip.token);

    holder.look()?;
    holder.resume()?;
    let look = holder.granted().await?;
    assert!(!look.held && look.remaining.is_zero(), "{look:?}");
    assert!(next.seen());
    assert!(!holder.release().await?, "a stale release said that the lock was held");
    assert!(next.seen());
    assert!(client.try_acquire(&name).await?.is_none(), "the stale holder's release freed the lock");
    next.release().await?;
    Ok(())
}

async fn a_lock_survives_a_server_restart(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let claim = stage.claim_for(&name, 60.0);
    let token = bare.held(&claim).await?.token;
    stage.pull(Lever::Kill)?;
    stage.pull(Lever::Start)?;
    let again = stage.bare().await?;
    again.busy(&stage.claim(&name)).await?;
    assert!(matches!(again.renew(&claim).await?, Renewal::Kept(_)));
    assert_eq!(again.held(&claim).await?.token, token);
    assert_eq!(again.release(&claim).await?, Released::Released);
    Ok(())
}

/// Why exclusion through data loss is not promised: a server without its data grants what is held.
async fn a_server_restart_lets_two_hold(stage: Stage) -> Outcome {
    restarted_lets_two_hold(&stage, Lever::Start).await
}

async fn without_kept_data_a_restart_lets_two_hold(stage: Stage) -> Outcome {
    restarted_lets_two_hold(&stage, Lever::StartEmpty).await
}

async fn restarted_lets_two_hold(stage: &Stage, start: Lever<'_>) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let lease = bare.held(&stage.claim_for(&name, 60.0)).await?.lease;
    stage.pull(Lever::Kill)?;
    stage.pull(start)?;
    stage.bare().await?.held(&stage.claim(&name)).await?;
    assert!(Moment::now() < lease.end(), "the first lease is over");
    Ok(())
}

async fn lost_data_lets_two_hold(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let lease = bare.held(&stage.claim_for(&name, 60.0)).await?.lease;
    stage.pull(Lever::LoseData)?;
    bare.held(&stage.claim(&name)).await?;
    assert!(Moment::now() < lease.end(), "the first lease is over");
    Ok(())
}

async fn a_lock_survives_a_step_of_the_servers_clock(stage: Stage) -> Outcome {
    stage.pull(Lever::StepClock(0))?;
    let bare = stage.bare().await?;
    let claim = stage.claim_for(&stage.name(), 60.0);
    bare.held(&claim).await?;
    for hours in [1, -2, 25] {
        stage.pull(Lever::StepClock(hours * 3600))?;
        bare.busy(&stage.claim(&claim.name)).await?;
        assert!(matches!(bare.renew(&claim).await?, Renewal::Kept(_)));
    }
    Ok(())
}

/// Why exclusion through a clock step is not promised: the server's clock ends the lease.
async fn a_step_of_the_servers_clock_lets_two_hold(stage: Stage) -> Outcome {
    stage.pull(Lever::StepClock(0))?;
    let bare = stage.bare().await?;
    let name = stage.name();
    let lease = bare.held(&stage.claim_for(&name, 60.0)).await?.lease;
    stage.pull(Lever::StepClock(3600))?;
    bare.held(&stage.claim(&name)).await?;
    assert!(Moment::now() < lease.end(), "the first lease is over");
    Ok(())
}
