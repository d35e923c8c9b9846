//! Releases: what they say, and that each frees its own lock, once, from wherever it is called.

use std::time::Duration;

use lock_core::{ErrorKind, Guard, Loss, Options, Release, Released, Renewal};

use super::{renewal::patient, waiting::until};
use crate::{
    Need, Stage,
    case::{Case, Failure, Outcome, case},
    link::Way,
    polled::polled,
    stage::{Bare, Client},
};

pub(crate) const CASES: &[Case] = &[
    case!(a_stale_guard_does_nothing_to_the_next_owner),
    case!(verbs_on_a_claim_that_is_gone_say_so),
    case!(a_release_says_what_became_of_the_lock),
    case!(a_release_without_a_server_is_an_error_and_is_made_up_for),
    case!(a_release_whose_reply_was_lost_is_asked_again),
    case!(a_lock_is_released_once),
    case!(an_aborted_release_frees_the_lock_all_the_same),
    case!(closing_releases_the_clients_own_locks_and_no_others),
    case!(one_lock_value_serves_many_tasks),
    case!(a_guard_can_end_on_any_thread),
];

/// Options whose lease is so long that only a release can free the lock within a case.
fn long(stage: &Stage) -> Options {
    patient(stage).with_ttl(stage.part(60.0))
}

/// Waits until the client's link works again after a fault.
async fn answers(stage: &Stage, client: &Client) -> Outcome {
    let lock = client.lock(&stage.name());
    let answered = async {
        while lock.try_acquire().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    stage.within(20.0, "answers, once the link has healed", answered).await
}

/// Waits until another client can have the lock, which its holder's lease does not allow for long.
async fn freed(stage: &Stage, rival: &Bare, name: &lock_core::Name) -> Outcome {
    let claim = stage.claim(name);
    stage.within(6.0, "a free lock", rival.held_at_last(&claim)).await??;
    assert_eq!(rival.release(&claim).await?, Released::Released);
    Ok(())
}

/// Cut off until another holds, it comes back with all that it has sent meanwhile, and is released.
async fn a_stale_guard_does_nothing_to_the_next_owner(stage: Stage) -> Outcome {
    let (client, next) =
        (stage.client_with(patient(&stage)).await?, stage.client_with(patient(&stage)).await?);
    let third = stage.bare().await?;
    let name = stage.name();
    let stale = client.acquire(&name).await?;
    client.link.blackhole(Way::Both);
    let held = stage.within(8.0, "the take-over", next.acquire(&name)).await??;
    assert!(!stale.seen());

    client.link.heal();
    answers(&stage, &client).await?;
    assert!(held.seen());
    third.busy(&stage.claim(&name)).await?;
    assert_eq!(stale.release().await?, Release::AlreadyLost(Loss::Expired));
    assert!(held.seen());
    third.busy(&stage.claim(&name)).await?;
    assert_eq!(held.release().await?, Release::Released);
    Ok(())
}

/// Expired, taken, taken and released, deleted: `Lost` and `Absent`, and nothing is disturbed.
async fn verbs_on_a_claim_that_is_gone_say_so(stage: Stage) -> Outcome {
    let (bare, other) = (stage.bare().await?, stage.bare().await?);
    let brief = || stage.claim_for(&stage.name(), 0.4);
    let (expired, taken, released) = (brief(), brief(), brief());
    let (owner, guest) = (stage.claim_for(&taken.name, 60.0), stage.claim_for(&released.name, 60.0));
    let mut gone = vec![("taken and released", released.clone()), ("taken", taken.clone())];
    for claim in [&expired, &taken, &released] {
        bare.held(claim).await?;
    }
    stage.within(6.0, "the take-over", other.held_at_last(&owner)).await??;
    stage.within(6.0, "the take-over", other.held_at_last(&guest)).await??;
    assert_eq!(other.release(&guest).await?, Released::Released);
    // Its lease began before the two that are over now.
    tokio::time::sleep(stage.fixture().guarantees().expiry_lag).await;
    gone.push(("expired", expired));
    if stage.fixture().offers().contains(&Need::DeleteRecord) {
        let deleted = stage.claim_for(&stage.name(), 60.0);
        bare.held(&deleted).await?;
        stage.delete_record(&deleted.name)?;
        gone.push(("deleted", deleted));
    }

    for (how, claim) in gone {
        assert_eq!(bare.renew(&claim).await?, Renewal::Lost, "{how}");
        assert_eq!(bare.release(&claim).await?, Released::Absent, "{how}");
        assert_eq!(bare.renew(&claim).await?, Renewal::Lost, "{how}, released");
        if how == "taken" {
            bare.busy(&stage.claim(&claim.name)).await?;
            assert!(matches!(other.renew(&owner).await?, Renewal::Kept(_)));
        } else {
            other.held(&stage.claim(&claim.name)).await?;
        }
    }
    Ok(())
}

async fn a_release_says_what_became_of_the_lock(stage: Stage) -> Outcome {
    let client = stage.client_with(patient(&stage)).await?;
    let name = stage.name();
    assert_eq!(client.acquire(&name).await?.release().await?, Release::Released);

    if stage.fixture().offers().contains(&Need::DeleteRecord) {
        let deleted = stage.name();
        let held = client.acquire(&deleted).await?;
        stage.delete_record(&deleted)?;
        // No renewal has seen it: the release is told.
        assert_eq!(held.release().await?, Release::AlreadyLost(Loss::Revoked));
    }

    let held = client.acquire(&name).await?;
    client.link.blackhole(Way::Both);
    assert_eq!(stage.within(4.0, "the loss", held.lost()).await?, Loss::Expired);
    client.link.heal();
    answers(&stage, &client).await?;
    assert_eq!(held.release().await?, Release::AlreadyLost(Loss::Expired));

    let held = client.acquire(&name).await?;
    let closing = client.locks.close(stage.part(10.0));
    let (left, told) = tokio::join!(closing, async {
        assert_eq!(held.lost().await, Loss::Closed);
        held.release().await
    });
    assert_eq!(left, []);
    assert_eq!(told?, Release::AlreadyLost(Loss::Closed));
    stage.bare().await?.held(&stage.claim(&name)).await?;
    Ok(())
}

async fn a_release_without_a_server_is_an_error_and_is_made_up_for(stage: Stage) -> Outcome {
    let (client, rival) = (stage.client_with(long(&stage)).await?, stage.bare().await?);
    let name = stage.name();
    let held = client.acquire(&name).await?;
    client.link.down();
    let told = stage.within(8.0, "an answer to the release", held.release()).await?;
    let Err(error) = told else { return Err(Failure::new(format!("{told:?}, without a server"))) };
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error:?}");
    assert!(error.is_transient(), "{error:?}");
    rival.busy(&stage.claim(&name)).await?;

    client.link.heal();
    stage.within(10.0, "the release", rival.held_at_last(&stage.claim(&name))).await??;
    assert_eq!(client.locks.statistics().abandoned, 0);
    Ok(())
}

/// The first request did release it; what the second finds is no reason to doubt that.
async fn a_release_whose_reply_was_lost_is_asked_again(stage: Stage) -> Outcome {
    let (client, rival) = (stage.client_with(long(&stage)).await?, stage.bare().await?);
    for _ in 0..stage.rounds(3, 20) {
        let name = stage.name();
        let held = client.acquire(&name).await?;
        let cuts = client.link.cuts();
        client.link.lose_next_reply();
        assert_eq!(stage.within(8.0, "an answer", held.release()).await??, Release::Released);
        assert!(client.link.cuts() > cuts, "no reply was lost");
        rival.held(&stage.claim(&name)).await?;
    }
    Ok(())
}

async fn a_lock_is_released_once(stage: Stage) -> Outcome {
    let (client, rival) = (stage.client_with(long(&stage)).await?, stage.bare().await?);
    // What has to be sent once on every connection.
    client.acquire(&stage.name()).await?.release().await?;
    for dropped in [false, true] {
        let name = stage.name();
        let held = client.acquire(&name).await?;
        let (sent, called) = (client.link.requests().total, client.locks.statistics().release.calls);
        if dropped {
            drop(held);
        } else {
            assert_eq!(held.release().await?, Release::Released);
        }
        freed(&stage, &rival, &name).await?;
        stage.pass(0.3).await;
        assert_eq!(client.link.requests().total - sent, 1, "dropped: {dropped}");
        assert_eq!(client.locks.statistics().release.calls - called, 1, "dropped: {dropped}");
    }
    Ok(())
}

/// Wherever and whenever it is aborted: only the answer is given up.
async fn an_aborted_release_frees_the_lock_all_the_same(stage: Stage) -> Outcome {
    let (client, rival) = (stage.client_with(long(&stage)).await?, stage.bare().await?);
    for polls in 0.. {
        let name = stage.name();
        let held = client.acquire(&name).await?;
        let told = polled(held.release(), polls).await.transpose()?;
        freed(&stage, &rival, &name).await?;
        if told.is_some() {
            break;
        }
    }
    for round in 0..stage.rounds(50, 300) {
        let name = stage.name();
        let held = client.acquire(&name).await?;
        let patience = Duration::from_micros(u64::from(round * 73 % 3000));
        if let Ok(told) = tokio::time::timeout(patience, held.release()).await {
            assert_eq!(told?, Release::Released);
        }
        freed(&stage, &rival, &name).await?;
    }
    assert_eq!(client.locks.statistics().abandoned, 0);
    Ok(())
}

async fn closing_releases_the_clients_own_locks_and_no_others(stage: Stage) -> Outcome {
    let (client, other) = (stage.client_with(long(&stage)).await?, stage.client_with(patient(&stage)).await?);
    let bare = stage.bare().await?;
    let (mine, also_mine, theirs) = (stage.name(), stage.name(), stage.name());
    let held = [client.acquire(&mine).await?, client.acquire(&also_mine).await?];
    let beside = other.acquire(&theirs).await?;
    let lock = client.lock(&theirs);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until(&stage, "the waiter", || client.locks.statistics().waiting == 1).await?;

    let left = stage.within(6.0, "the close", client.locks.close(Duration::ZERO)).await?;
    assert_eq!(left, []);
    for held in held {
        assert!(!held.seen());
        assert_eq!(held.lost().await, Loss::Closed);
        bare.held(&stage.claim(held.name())).await?;
    }
    let told = stage.within(2.0, "the end of the wait", waiting).await??;
    assert_eq!(told.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Closed));
    let told = client.try_acquire(&mine).await;
    assert_eq!(told.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Closed));

    assert!(beside.seen());
    bare.busy(&stage.claim(&theirs)).await?;
    assert_eq!(beside.release().await?, Release::Released);
    Ok(())
}

/// A task's guard runs out, another task has the lock by the same value, the stale guard is dropped.
async fn one_lock_value_serves_many_tasks(stage: Stage) -> Outcome {
    let (client, rival) = (stage.client_with(patient(&stage)).await?, stage.bare().await?);
    let name = stage.name();
    let lock = client.lock(&name);
    let stale = lock.acquire().await?;
    client.link.blackhole(Way::Both);
    assert_eq!(stage.within(4.0, "the loss", stale.lost()).await?, Loss::Expired);
    client.link.heal();
    answers(&stage, &client).await?;
    let next =
        stage.within(8.0, "the next hold", tokio::spawn(async move { lock.acquire().await })).await???;
    assert!(next.fencing_token() > stale.fencing_token());

    let answered = client.locks.statistics().release.answers;
    drop(stale);
    until(&stage, "the stale release", || client.locks.statistics().release.answers > answered).await?;
    stage.pass(0.5).await;
    assert!(next.is_held());
    rival.busy(&stage.claim(&name)).await?;
    assert_eq!(next.release().await?, Release::Released);
    Ok(())
}

/// It is renewed while a thread without a runtime holds it, and freed from there.
async fn a_guard_can_end_on_any_thread(stage: Stage) -> Outcome {
    let ends: [fn(Guard) -> Outcome; 2] = [
        |guard| {
            drop(guard);
            Ok(())
        },
        |guard| {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            assert_eq!(runtime.block_on(guard.release())?, Release::Released);
            Ok(())
        },
    ];
    // The server keeps it for long, so that nothing but the release can free it.
    let client = stage.client_with(patient(&stage).with_grace(stage.part(60.0))).await?;
    let (rival, name, hold) = (stage.bare().await?, stage.name(), stage.part(2.5));
    for end in ends {
        let guard = client.acquire(&name).await?.into_guard();
        let thread = tokio::task::spawn_blocking(move || {
            std::thread::spawn(move || {
                std::thread::sleep(hold);
                (guard.is_held(), end(guard))
            })
            .join()
        });
        let (held, ended) = thread.await?.map_err(|_| Failure::new("the thread panicked"))?;
        assert!(held, "lost on another thread");
        ended?;
        freed(&stage, &rival, &name).await?;
    }
    Ok(())
}
