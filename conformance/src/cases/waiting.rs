//! Waiting: whoever waits is woken, in order, by what concerns it; and costs next to nothing meanwhile.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use lock_core::{Claim, FencingToken, Moment, Name, Options, Promise, Released};
use tokio::{sync::oneshot, task::JoinSet};

use super::renewal::patient;
use crate::{
    Need, Stage,
    case::{Case, Failure, Outcome, case},
    held::Held,
    link::Way,
    stage::{Bare, Client},
};

pub(crate) const CASES: &[Case] = &[
    case!(a_release_wakes_a_waiter, Need::Promised(Promise::Push)),
    case!(a_release_before_the_waiter_listens_wakes_it, Need::Promised(Promise::Push)),
    case!(a_missed_wake_costs_one_poll_at_most, Need::DeleteRecord),
    case!(one_subscription_serves_all_names, Need::OwnServer, Need::Commands),
    case!(waiters_that_gave_up_do_not_wake_later_ones, Need::Promised(Promise::Push)),
    case!(a_hundred_waiters_cost_what_one_costs, Need::OwnServer, Need::Promised(Promise::Push)),
    case!(tasks_of_one_client_are_served_in_order),
    case!(an_aborted_waiter_does_not_hold_up_the_others),
    case!(clients_are_served_in_the_order_of_their_claims, Need::Promised(Promise::Fifo)),
    case!(a_hand_over_wakes_few_of_many_clients, Need::Promised(Promise::Fifo)),
    case!(a_claim_whose_lease_is_over_is_passed_over, Need::Promised(Promise::Fifo)),
    case!(a_hand_over_keeps_the_lease_of_who_waited, Need::Promised(Promise::Fifo), Need::Promised(Promise::Push)),
];

/// Waits until it is so.
pub(super) async fn until(stage: &Stage, what: &str, condition: impl Fn() -> bool + Send + Sync) -> Outcome {
    let so = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    stage.within(20.0, what, so).await
}

/// Options under which neither the lease nor the poll can end a wait within a case, only a wake.
fn long(stage: &Stage) -> Options {
    patient(stage).with_ttl(stage.part(60.0))
}

/// Starts to wait; returns when the server has said that the lock is busy, so that the wake is armed.
async fn wait(stage: &Stage, client: &Arc<Client>, name: &Name, waiting: &mut JoinSet<Waited>) -> Outcome {
    let asked = client.locks.statistics().acquire.answers;
    start(client, name, waiting);
    until(stage, "the word that the lock is busy", || client.locks.statistics().acquire.answers > asked).await
}

fn start(client: &Arc<Client>, name: &Name, waiting: &mut JoinSet<Waited>) -> tokio::task::AbortHandle {
    let (client, name) = (client.clone(), name.clone());
    waiting.spawn(async move { client.acquire(&name).await })
}

type Waited = lock_core::Result<Held>;

/// The next of them to hold the lock.
async fn woken(stage: &Stage, what: &str, waiting: &mut JoinSet<Waited>) -> Result<Held, Failure> {
    let held = stage.within(4.0, what, waiting.join_next()).await?;
    Ok(held.ok_or("nobody waits")???)
}

/// A lock that a bare client holds for a long time.
async fn blocked(stage: &Stage, holder: &Bare) -> Result<Claim, Failure> {
    let claim = stage.claim_for(&stage.name(), 60.0);
    holder.held(&claim).await?;
    Ok(claim)
}

async fn a_release_wakes_a_waiter(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.bare().await?, Arc::new(stage.client_with(long(&stage)).await?));
    let mut waiting = JoinSet::new();
    for _ in 0..stage.rounds(20, 500) {
        let claim = blocked(&stage, &holder).await?;
        wait(&stage, &waiter, &claim.name, &mut waiting).await?;
        assert_eq!(holder.release(&claim).await?, Released::Released);
        woken(&stage, "the wake", &mut waiting).await?.release().await?;
    }
    Ok(())
}

/// On a slow link the lock is released at every stage of the waiter's asking.
async fn a_release_before_the_waiter_listens_wakes_it(stage: Stage) -> Outcome {
    for way in [Way::ToServer, Way::ToClient] {
        let (holder, waiter) = (stage.bare().await?, Arc::new(stage.client_with(long(&stage)).await?));
        let mut claims = Vec::new();
        for _ in 0..12 {
            claims.push(blocked(&stage, &holder).await?);
        }
        waiter.link.delay(way, stage.part(0.08));
        let (begun, mut waiting) = (Moment::now(), JoinSet::new());
        for claim in &claims {
            start(&waiter, &claim.name, &mut waiting);
        }
        for (number, claim) in (0_u32..).zip(&claims) {
            let at = begun + stage.part(0.03) * number;
            tokio::time::sleep(at.saturating_since(Moment::now())).await;
            assert_eq!(holder.release(claim).await?, Released::Released);
        }
        while !waiting.is_empty() {
            woken(&stage, "the wake", &mut waiting).await?;
        }
    }
    Ok(())
}

/// Its record goes away without a word to anybody: the waiter finds out when it asks by itself.
async fn a_missed_wake_costs_one_poll_at_most(stage: Stage) -> Outcome {
    let options = stage.options().with_ttl(stage.part(9.0));
    let poll = (options.ttl / 3).max(Duration::from_secs(2));
    let (holder, waiter) = (stage.bare().await?, Arc::new(stage.client_with(options).await?));
    let (claim, mut waiting) = (blocked(&stage, &holder).await?, JoinSet::new());
    wait(&stage, &waiter, &claim.name, &mut waiting).await?;
    stage.delete_record(&claim.name)?;
    let found = tokio::time::timeout(poll + stage.part(8.0), waiting.join_next()).await;
    found.map_err(|_| Failure::new("a lock that is free was not found"))?.ok_or("nobody waits")???;
    Ok(())
}

/// Waiters on many names get the lock, lose patience, are aborted while they wait or before; and nothing is
/// left for any of them.
async fn one_subscription_serves_all_names(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.bare().await?, Arc::new(stage.client_with(long(&stage)).await?));
    let channels = || -> Result<usize, Failure> {
        Ok(stage.command(&["PUBSUB", "CHANNELS"])?.lines().count())
    };
    let (mut claims, mut waiting) = (Vec::new(), JoinSet::new());
    for number in 0..50_u32 {
        let claim = blocked(&stage, &holder).await?;
        let handle = start(&waiter, &claim.name, &mut waiting);
        let patience = stage.part(0.1 + 0.01 * f64::from(number % 7));
        let (client, name) = (waiter.clone(), claim.name.clone());
        let impatient = tokio::spawn(async move { client.acquire_within(&name, patience).await });
        claims.push((claim, handle, impatient));
        let hasty = start(&waiter, &stage.name(), &mut waiting);
        tokio::time::sleep(Duration::from_micros(u64::from(number * 37 % 500))).await;
        hasty.abort();
        assert!(channels()? <= 1, "more than one channel for one connection");
    }
    let mut released = Vec::new();
    for (number, (claim, handle, impatient)) in claims.into_iter().enumerate() {
        if number % 2 == 0 {
            handle.abort();
        }
        holder.release(&claim).await?;
        impatient.await??;
        released.push(claim.name);
    }
    while let Some(ended) = waiting.join_next().await {
        if let Ok(held) = ended {
            held?.release().await?;
        }
    }
    // Whoever has left has left the queue as well.
    let free = async {
        for name in released {
            let claim = stage.claim(&name);
            holder.held_at_last(&claim).await?;
            holder.release(&claim).await?;
        }
        Outcome::Ok(())
    };
    stage.within(4.0, "all of them, free again", free).await??;
    assert!(channels()? <= 1);
    Ok(())
}

/// Waiters give up in the moment of the release, many times; the next one waits as if nothing had been.
async fn waiters_that_gave_up_do_not_wake_later_ones(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.bare().await?, Arc::new(stage.client_with(long(&stage)).await?));
    let name = stage.name();
    let moment = stage.part(0.01);
    for round in 0..stage.rounds(100, 300) {
        let claim = stage.claim_for(&name, 60.0);
        stage.within(4.0, "a free lock", holder.held_at_last(&claim)).await??;
        // From well before the release to well after it.
        let patience = moment * (round % 9) / 4;
        let release = async {
            tokio::time::sleep(moment).await;
            holder.release(&claim).await
        };
        let (held, released) = tokio::join!(waiter.acquire_within(&name, patience), release);
        released?;
        if let Some(held) = held? {
            held.release().await?;
        }
    }

    let claim = stage.claim_for(&name, 60.0);
    stage.within(4.0, "a free lock", holder.held_at_last(&claim)).await??;
    let (sent, mut waiting) = (waiter.link.requests().total, JoinSet::new());
    wait(&stage, &waiter, &name, &mut waiting).await?;
    stage.pass(2.0).await;
    let sent = waiter.link.requests().total - sent;
    assert!(sent < 8, "{sent} requests for one wait");
    holder.release(&claim).await?;
    woken(&stage, "the wake", &mut waiting).await?;
    Ok(())
}

/// Fewer than two requests a second, the holder's renewals among them, at the default ttl of 30 s.
async fn a_hundred_waiters_cost_what_one_costs(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.client_with(long(&stage)).await?, stage.client_with(long(&stage)).await?);
    let (name, waiter, mut waiting) = (stage.name(), Arc::new(waiter), JoinSet::new());
    let held = holder.acquire(&name).await?;
    let asked_before = waiter.link.requests().total;
    wait(&stage, &waiter, &name, &mut waiting).await?;
    for _ in 1..100 {
        start(&waiter, &name, &mut waiting);
    }
    until(&stage, "a hundred waiters", || waiter.locks.statistics().waiting == 100).await?;

    let sent = || holder.link.requests().total + waiter.link.requests().total;
    let (sent_before, ran_before) = (sent(), commands(&stage)?);
    let seconds = stage.rounds(2, 30);
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let (sent, ran) = (sent() - sent_before, commands(&stage)? - ran_before);
    let most = u64::from(2 * seconds);
    assert!(sent < most, "{sent} requests in {seconds} s");
    assert!(ran < most, "{ran} commands in {seconds} s");
    let asked = waiter.link.requests().total - asked_before;
    assert!(asked < most + 8, "{asked} requests for a hundred waiters");

    held.release().await?;
    woken(&stage, "the wake", &mut waiting).await?.release().await?;
    woken(&stage, "the wake of the next", &mut waiting).await?.release().await?;
    waiting.shutdown().await;
    Ok(())
}

/// How many commands the server has run, where it tells; those of scripts are among them, its own
/// question is not.
fn commands(stage: &Stage) -> Result<u64, Failure> {
    if !stage.fixture().offers().contains(&Need::Commands) {
        return Ok(0);
    }
    let told = stage.command(&["INFO", "commandstats"])?;
    let lines = told.lines().filter(|line| line.starts_with("cmdstat_") && !line.contains("_info:"));
    let calls = lines.filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok());
    Ok(calls.sum())
}

async fn tasks_of_one_client_are_served_in_order(stage: Stage) -> Outcome {
    let (holder, client) = (stage.bare().await?, Arc::new(stage.client_with(long(&stage)).await?));
    let claim = blocked(&stage, &holder).await?;
    let (order, mut waiting) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
    for number in 0..20 {
        let (client, name, order) = (client.clone(), claim.name.clone(), order.clone());
        let (in_line, told) = oneshot::channel();
        waiting.spawn(async move {
            let mut acquired = pin!(client.acquire(&name));
            // The first poll takes the place in the line.
            let at_once = poll_fn(|context| Poll::Ready(acquired.as_mut().poll(context).is_ready())).await;
            assert!(!at_once, "two hold it at once");
            let _ = in_line.send(());
            let held = acquired.await?;
            order.lock().unwrap_or_else(PoisonError::into_inner).push((number, held.fencing_token()));
            held.release().await?;
            Outcome::Ok(())
        });
        told.await?;
    }
    holder.release(&claim).await?;
    while !waiting.is_empty() {
        let ended = stage.within(4.0, "the next in line", waiting.join_next()).await?;
        ended.ok_or("nobody waits")???;
    }
    let order = order.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(order.len(), 20);
    let in_order = order.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
    assert!(in_order, "{order:?}");
    Ok(())
}

/// The first in line, one in the middle, and the only one of another client are aborted.
async fn an_aborted_waiter_does_not_hold_up_the_others(stage: Stage) -> Outcome {
    let holder = stage.bare().await?;
    let (client, other) =
        (stage.client_with(long(&stage)).await?, Arc::new(stage.client_with(long(&stage)).await?));
    let client = Arc::new(client);
    for _ in 0..stage.rounds(4, 50) {
        let (claim, mut waiting) = (blocked(&stage, &holder).await?, JoinSet::new());
        let asked = client.locks.statistics().acquire.answers;
        let mine: Vec<_> = (0..4).map(|_| start(&client, &claim.name, &mut waiting)).collect();
        let theirs = start(&other, &claim.name, &mut waiting);
        until(&stage, "the waiters", || {
            client.locks.statistics().waiting == 4
                && client.locks.statistics().acquire.answers > asked
                && other.locks.statistics().waiting == 1
        })
        .await?;
        for aborted in [&mine[0], &mine[2], &theirs] {
            aborted.abort();
        }
        holder.release(&claim).await?;
        let mut got_it = 0;
        while let Some(ended) = stage.within(4.0, "the others' turn", waiting.join_next()).await? {
            match ended {
                Ok(held) => {
                    held?.release().await?;
                    got_it += 1;
                }
                Err(aborted) => assert!(aborted.is_cancelled(), "{aborted}"),
            }
        }
        assert!(got_it >= 2, "{got_it} of the two that waited on got the lock");
    }
    Ok(())
}

/// Clients that wait in the order of their numbers, each with its first answer.
async fn queue(
    stage: &Stage,
    name: &Name,
    length: usize,
) -> Result<(Vec<Arc<Client>>, JoinSet<Result<(usize, FencingToken), Failure>>), Failure> {
    let (mut clients, mut waiting) = (Vec::new(), JoinSet::new());
    for number in 0..length {
        let client = Arc::new(stage.client_with(long(stage)).await?);
        let (task, name) = (client.clone(), name.clone());
        waiting.spawn(async move {
            let held = task.acquire(&name).await?;
            let token = held.fencing_token();
            // Time for all who were woken to ask.
            tokio::time::sleep(Duration::from_millis(5)).await;
            held.release().await?;
            Ok((number, token))
        });
        until(stage, "a place in the queue", || client.locks.statistics().acquire.answers == 1).await?;
        clients.push(client);
    }
    Ok((clients, waiting))
}

async fn clients_are_served_in_the_order_of_their_claims(stage: Stage) -> Outcome {
    let holder = stage.bare().await?;
    let claim = blocked(&stage, &holder).await?;
    let (_clients, mut waiting) = queue(&stage, &claim.name, 12).await?;
    holder.release(&claim).await?;
    let mut order = Vec::new();
    while let Some(served) = stage.within(4.0, "the next in the queue", waiting.join_next()).await? {
        order.push(served??);
    }
    // Their words may be heard out of order; the tokens tell the order of the grants.
    order.sort_by_key(|(_, token)| *token);
    let order: Vec<_> = order.into_iter().map(|(number, _)| number).collect();
    assert_eq!(order, (0..12).collect::<Vec<_>>());
    Ok(())
}

async fn a_hand_over_wakes_few_of_many_clients(stage: Stage) -> Outcome {
    let holder = stage.bare().await?;
    let claim = blocked(&stage, &holder).await?;
    let (clients, mut waiting) = queue(&stage, &claim.name, 30).await?;
    let sent = || clients.iter().map(|client| client.link.requests().total).sum::<u64>();
    let before = sent();
    holder.release(&claim).await?;
    while let Some(served) = stage.within(4.0, "the next in the queue", waiting.join_next()).await? {
        served??;
    }
    let each = (sent() - before) / 30;
    assert!(each <= 10, "{each} requests for each hand-over");
    Ok(())
}

/// The first in the queue has not been heard of for longer than its lease.
async fn a_claim_whose_lease_is_over_is_passed_over(stage: Stage) -> Outcome {
    let (holder, gone) = (stage.bare().await?, stage.bare().await?);
    let next = Arc::new(stage.client_with(long(&stage)).await?);
    let claim = blocked(&stage, &holder).await?;
    gone.busy(&stage.claim(&claim.name).queued(true)).await?;
    let mut waiting = JoinSet::new();
    wait(&stage, &next, &claim.name, &mut waiting).await?;
    tokio::time::sleep(stage.takeover()).await;
    holder.release(&claim).await?;
    woken(&stage, "the lock, for the first that lives", &mut waiting).await?.release().await?;
    Ok(())
}

/// It may hold until then without a word to the server.
async fn a_hand_over_keeps_the_lease_of_who_waited(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.bare().await?, stage.bare().await?);
    let claim = blocked(&stage, &holder).await?;
    let waiting = stage.claim_for(&claim.name, 4.0).queued(true);
    let wake = waiter.busy(&waiting).await?.wake.ok_or("push was promised, and there is no wake")?;
    stage.pass(1.0).await;
    holder.release(&claim).await?;
    let lease = match stage.within(2.0, "the wake", wake).await? {
        Some(grant) => grant.lease,
        None => waiter.held(&waiting).await?.lease,
    };
    assert!(lease.length >= waiting.lease, "{lease:?}");
    holder.held_at_last(&stage.claim(&claim.name)).await?;
    let early = lease.end().saturating_since(Moment::now());
    assert!(early.is_zero(), "it was lost {early:?} before its lease was over");
    Ok(())
}
