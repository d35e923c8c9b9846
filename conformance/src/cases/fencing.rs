//! Tokens grow in the order of grants: through release, expiry, crash, deletion, restart.

use lock_core::{Claim, Fault, FencingToken, Moment, Promise, Renewal};

use super::{renewal::patient, waiting::until};
use crate::{
    Lever, Need, Stage,
    case::{Case, Failure, Outcome, case},
    history::Register,
    stage::Bare,
};

const RESTART: Promise = Promise::Fencing(Fault::ServerRestart);
const DATA_LOSS: Promise = Promise::Fencing(Fault::DataLoss);

pub(crate) const CASES: &[Case] = &[
    case!(tokens_grow_with_every_grant),
    case!(tokens_grow_through_expiry),
    case!(busy_tries_do_not_disturb_the_tokens),
    case!(a_repeat_or_a_renewal_leaves_the_token_alone),
    case!(the_guard_has_the_servers_token),
    case!(a_stale_holders_write_is_refused),
    case!(tokens_grow_through_a_crash, Need::Processes, Need::Promised(Promise::Fencing(Fault::HolderCrash))),
    case!(tokens_grow_through_the_deletion_of_a_lock, Need::DeleteRecord, Need::Promised(DATA_LOSS)),
    case!(tokens_grow_through_the_loss_of_all_data, Need::LoseData, Need::Promised(DATA_LOSS)),
    case!(tokens_start_again_when_all_data_is_lost, Need::LoseData, Need::Absent(DATA_LOSS)),
    case!(tokens_grow_through_a_server_restart, Need::ServerProcess, Need::Promised(RESTART)),
    case!(
        tokens_grow_through_steps_of_the_servers_clock,
        Need::StepClock,
        Need::Promised(Promise::Fencing(Fault::ServerClockStep))
    ),
    case!(tokens_grow_through_an_empty_restart, Need::ServerProcess, Need::Promised(DATA_LOSS)),
];

/// Acquires and releases so often; the last token.
async fn grow(
    bare: &Bare,
    stage: &Stage,
    name: &lock_core::Name,
    times: u32,
) -> Result<FencingToken, Failure> {
    let mut last = None;
    for _ in 0..times {
        let claim = stage.claim(name);
        let token = bare.held(&claim).await?.token;
        assert!(last.is_none_or(|last| token > last), "{token} after {last:?}");
        last = Some(token);
        bare.release(&claim).await?;
    }
    last.ok_or_else(|| Failure::new("no grant"))
}

async fn tokens_grow_with_every_grant(stage: Stage) -> Outcome {
    let (first, second) = (stage.bare().await?, stage.bare().await?);
    let name = stage.name();
    let mut last = grow(&first, &stage, &name, 3).await?;
    for _ in 0..stage.rounds(5, 500) {
        for bare in [&second, &first] {
            let token = grow(bare, &stage, &name, 2).await?;
            assert!(token > last, "{token} after {last}");
            last = token;
        }
    }
    Ok(())
}

/// The next owner's token is larger, and so is the same owner's when it is granted anew.
async fn tokens_grow_through_expiry(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let (expired, next) = (stage.claim_for(&name, 0.5), stage.claim_for(&name, 0.5));
    let first = bare.held(&expired).await?.token;
    let second = stage.within(6.0, "the end of a lease", bare.held_at_last(&next)).await??.token;
    let third = stage.within(6.0, "the end of a lease", bare.held_at_last(&expired)).await??.token;
    assert!(first < second && second < third, "{first}, {second}, {third}");
    Ok(())
}

async fn busy_tries_do_not_disturb_the_tokens(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let claim = stage.claim_for(&name, 60.0);
    let token = bare.held(&claim).await?.token;
    for _ in 0..10 {
        bare.busy(&stage.claim(&name)).await?;
    }
    assert_eq!(bare.held(&claim).await?.token, token);
    bare.release(&claim).await?;
    assert!(bare.held(&stage.claim(&name)).await?.token > token);
    Ok(())
}

async fn a_repeat_or_a_renewal_leaves_the_token_alone(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let claim = stage.claim_for(&name, 60.0);
    let token = bare.held(&claim).await?.token;
    for _ in 0..100 {
        assert!(matches!(bare.renew(&claim).await?, Renewal::Kept(_)));
        assert_eq!(bare.held(&claim).await?.token, token);
    }
    bare.release(&claim).await?;
    assert!(bare.held(&stage.claim(&name)).await?.token > token);
    Ok(())
}

/// What the guard shows is what the server knows of its claim, also after renewals.
async fn the_guard_has_the_servers_token(stage: Stage) -> Outcome {
    let (client, bare) = (stage.client_with(patient(&stage)).await?, stage.bare().await?);
    let name = stage.name();
    let held = client.acquire(&name).await?;
    let claim = Claim::new(name.clone(), held.owner(), stage.lease());
    assert_eq!(bare.held(&claim).await?.token, held.fencing_token());
    let before = held.fencing_token();
    until(&stage, "two renewals", || client.locks.statistics().renewals >= 2).await?;
    assert!(held.seen());
    assert_eq!(held.fencing_token(), before);
    assert_eq!(bare.held(&claim).await?.token, before);
    Ok(())
}

/// Holders are cut off past their lease, and write when they are back: the register refuses them all.
async fn a_stale_holders_write_is_refused(stage: Stage) -> Outcome {
    let clients = [stage.client().await?, stage.client().await?, stage.client().await?];
    let name = stage.name();
    let register = Register::default();
    let mut stale = None;
    for round in 0..stage.rounds(4, 300) as usize {
        let (client, next) = (&clients[round % 3], &clients[(round + 1) % 3]);
        let held = stage.within(8.0, "the next grant", client.acquire(&name)).await??;
        assert!(register.write(held.fencing_token()), "the holder's own write was refused");
        if let Some(stale) = stale.replace(held.fencing_token()) {
            assert!(!register.write(stale), "a stale write was accepted");
        }
        client.link.blackhole(crate::link::Way::Both);
        let after = stage.within(8.0, "the take-over", next.acquire(&name)).await??;
        assert!(register.write(after.fencing_token()), "the new holder's write was refused");
        client.link.heal();
        assert!(!register.write(held.fencing_token()), "a stale write was accepted");
        assert!(!held.seen(), "a stale holder believes that it holds");
        after.release().await?;
    }
    Ok(())
}

async fn tokens_grow_through_a_crash(stage: Stage) -> Outcome {
    let name = stage.name();
    let client = stage.client().await?;
    let mut last = FencingToken::new(0);
    for _ in 0..stage.rounds(2, 20) {
        let mut holder = stage.holder().await?;
        let grip = stage.within(8.0, "the child's grant", holder.acquire(&name)).await??;
        holder.kill()?;
        let next = stage.within(8.0, "the take-over", client.acquire(&name)).await??;
        assert!(last < grip.token && grip.token < next.fencing_token());
        last = next.fencing_token();
        next.release().await?;
    }
    Ok(())
}

async fn tokens_grow_through_the_deletion_of_a_lock(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    grow(&bare, &stage, &name, 3).await?;
    let claim = stage.claim(&name);
    let held = bare.held(&claim).await?.token;
    stage.delete_record(&name)?;
    let next = bare.held(&stage.claim(&name)).await?.token;
    assert!(next > held, "{next} after {held}");
    Ok(())
}

async fn tokens_grow_through_the_loss_of_all_data(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    for _ in 0..3 {
        let last = grow(&bare, &stage, &name, 10).await?;
        stage.pull(Lever::LoseData)?;
        let next = grow(&bare, &stage, &name, 1).await?;
        assert!(next > last, "{next} after {last}");
    }
    Ok(())
}

/// Why fencing through data loss is not promised.
async fn tokens_start_again_when_all_data_is_lost(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let last = grow(&bare, &stage, &name, 10).await?;
    stage.pull(Lever::LoseData)?;
    let next = grow(&bare, &stage, &name, 1).await?;
    assert!(next <= last, "{next} after {last}: this could be promised");
    Ok(())
}

async fn tokens_grow_through_a_server_restart(stage: Stage) -> Outcome {
    restarted(&stage, Lever::Start).await
}

async fn tokens_grow_through_an_empty_restart(stage: Stage) -> Outcome {
    restarted(&stage, Lever::StartEmpty).await
}

async fn restarted(stage: &Stage, start: Lever<'_>) -> Outcome {
    let name = stage.name();
    let last = grow(&stage.bare().await?, stage, &name, 10).await?;
    stage.pull(Lever::Kill)?;
    stage.pull(start)?;
    let began = Moment::now();
    let next = grow(&stage.bare().await?, stage, &name, 1).await?;
    assert!(next > last, "{next} after {last}, {:?} after the start", Moment::now().saturating_since(began));
    Ok(())
}

async fn tokens_grow_through_steps_of_the_servers_clock(stage: Stage) -> Outcome {
    stage.pull(Lever::StepClock(0))?;
    let bare = stage.bare().await?;
    let name = stage.name();
    let mut last = grow(&bare, &stage, &name, 3).await?;
    for hours in [1, -24, 48, -1, -1000] {
        stage.pull(Lever::StepClock(hours * 3600))?;
        let next = grow(&bare, &stage, &name, 3).await?;
        assert!(next > last, "{next} after {last}, the clock moved by {hours} hours");
        last = next;
    }
    Ok(())
}
