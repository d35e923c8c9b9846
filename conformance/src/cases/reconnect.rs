//! Links and servers that fail and come back: every step ends in time, nothing is lost without need, and
//! nobody is kept busy meanwhile.

use std::{future::Future, time::Duration};

use lock_core::{Fault, Loss, Moment, Promise, Release};
use tokio::{join, task::JoinSet};

use super::{
    runtime::{cpu_time, on_a_thread},
    waiting::until,
};
use crate::{
    Lever, Need, Stage,
    case::{Case, Failure, Outcome, case},
    link::Way,
    stage::Client,
};

const RESTART: Promise = Promise::Exclusion(Fault::ServerRestart);

pub(crate) const CASES: &[Case] = &[
    case!(every_step_ends_in_time_while_the_link_is_silent),
    case!(every_step_ends_in_time_while_connections_are_reset),
    case!(every_step_ends_in_time_while_the_server_is_stopped, Need::ServerProcess),
    case!(every_step_ends_in_time_while_the_server_is_down, Need::ServerProcess),
    case!(a_waiter_goes_on_after_the_server_was_stopped, Need::ServerProcess),
    case!(a_waiter_goes_on_after_its_own_link_was_silent),
    case!(holder_and_waiter_outlive_a_server_restart, Need::ServerProcess, Need::Promised(RESTART)),
    case!(a_server_that_comes_back_empty_tells_its_holders, Need::ServerProcess),
    case!(short_breaks_of_the_link_cost_no_lock),
    case!(connections_that_the_server_breaks_cost_no_lock, Need::KillClients),
    case!(a_silent_connection_is_replaced, Need::Wire),
    case!(attempts_are_few_while_nothing_can_be_reached),
];

/// What fails, for one client or for all.
#[derive(Clone, Copy)]
enum Outage {
    SilentLink,
    ResetLink,
    StoppedServer,
    KilledServer,
}

impl Outage {
    fn begin(self, stage: &Stage, client: &Client) -> Outcome {
        match self {
            Self::SilentLink => client.link.blackhole(Way::Both),
            Self::ResetLink => client.link.down(),
            Self::StoppedServer => stage.pull(Lever::Stop)?,
            Self::KilledServer => stage.pull(Lever::Kill)?,
        }
        Ok(())
    }

    fn end(self, stage: &Stage, client: &Client) -> Outcome {
        match self {
            Self::SilentLink | Self::ResetLink => client.link.heal(),
            Self::StoppedServer => stage.pull(Lever::Continue)?,
            Self::KilledServer => stage.pull(Lever::Start)?,
        }
        Ok(())
    }
}

async fn every_step_ends_in_time_while_the_link_is_silent(stage: Stage) -> Outcome {
    every_step_ends_in_time(&stage, Outage::SilentLink).await
}

async fn every_step_ends_in_time_while_connections_are_reset(stage: Stage) -> Outcome {
    every_step_ends_in_time(&stage, Outage::ResetLink).await
}

async fn every_step_ends_in_time_while_the_server_is_stopped(stage: Stage) -> Outcome {
    every_step_ends_in_time(&stage, Outage::StoppedServer).await
}

async fn every_step_ends_in_time_while_the_server_is_down(stage: Stage) -> Outcome {
    every_step_ends_in_time(&stage, Outage::KilledServer).await
}

/// Acquiring, trying, waiting, renewing and releasing, all at once; and the same client locks again when
/// it is over.
async fn every_step_ends_in_time(stage: &Stage, outage: Outage) -> Outcome {
    let (client, other) = (stage.client().await?, stage.client().await?);
    let [free, tried, waited, kept, released] = std::array::from_fn(|_| stage.name());
    let guard = client.acquire(&kept).await?;
    let _busy = other.acquire(&waited).await?;
    let asked = next_request(&client);
    let waiting = tokio::spawn({
        let (lock, patience) = (client.lock(&waited), stage.part(2.0));
        async move { timed(lock.acquire_within(patience)).await }
    });
    asked.await;
    let released_guard = client.acquire(&released).await?;

    outage.begin(stage, &client)?;
    let (acquired, tried_too, (loss, lost), given_back, waiting) = join!(
        timed(client.acquire_within(&free, stage.ttl())),
        timed(client.try_acquire(&tried)),
        timed(guard.lost()),
        timed(released_guard.release()),
        waiting,
    );
    let in_time = |what: &str, took: Duration, patience: f64| {
        // The last request may begin as the patience ends, and takes a ttl; the rest is for a busy machine.
        let bound = stage.part(patience + 1.0 + 4.0);
        assert!(took <= bound, "{what} took {took:?}, more than {bound:?}");
    };
    assert!(acquired.0.is_err(), "{acquired:?}, without the server's word");
    in_time("the acquire", acquired.1, 1.0);
    assert!(tried_too.0.is_err(), "{tried_too:?}, without the server's word");
    in_time("the try", tried_too.1, 0.0);
    assert_eq!(loss, Loss::Expired);
    in_time("the loss", lost, 1.0);
    assert!(given_back.0.is_err(), "{given_back:?}, without the server's word");
    in_time("the release", given_back.1, 0.0);
    let (waiting, took) = waiting?;
    assert!(!matches!(waiting, Ok(Some(_))), "{waiting:?}, without the server's word");
    in_time("the wait", took, 2.0);

    outage.end(stage, &client)?;
    drop(guard);
    let patience = stage.takeover() + stage.part(4.0);
    for name in [&free, &tried, &kept, &released] {
        let again = client.acquire_within(name, patience).await?;
        drop(again.ok_or("still busy, long after the outage")?);
    }
    Ok(())
}

/// Waits for one more request than the client has sent by this call.
pub(super) fn next_request(client: &Client) -> impl Future<Output = ()> {
    let before = client.link.requests().total;
    client.link.sent(move |requests| requests.total > before)
}

async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let began = Moment::now();
    let output = future.await;
    (output, Moment::now().saturating_since(began))
}

/// The server stands still for longer than any lease, with a holder and a waiter.
async fn a_waiter_goes_on_after_the_server_was_stopped(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.client().await?, stage.client().await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    let asked = next_request(&waiter);
    let pause = async {
        asked.await;
        stage.pull(Lever::Stop)?;
        stage.pass(2.0).await;
        assert!(!held.seen(), "held, although no renewal was answered for two ttls");
        stage.pull(Lever::Continue)?;
        Outcome::Ok(())
    };
    let (waited, paused) = join!(waiter.acquire_within(&name, stage.part(12.0)), pause);
    paused?;
    drop(waited?.ok_or("the waiter did not go on")?);
    Ok(())
}

/// What was released meanwhile, it gets.
async fn a_waiter_goes_on_after_its_own_link_was_silent(stage: Stage) -> Outcome {
    let (holder, waiter) = (stage.patient_client().await?, stage.client().await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    let asked = next_request(&waiter);
    let silence = async {
        asked.await;
        waiter.link.blackhole(Way::Both);
        assert_eq!(held.release().await?, Release::Released);
        stage.pass(1.5).await;
        waiter.link.heal();
        Outcome::Ok(())
    };
    let (waited, silent) = join!(waiter.acquire_within(&name, stage.part(12.0)), silence);
    silent?;
    drop(waited?.ok_or("the waiter did not go on")?);
    Ok(())
}

/// A client whose leases last longer than a server's restart, and whose requests are not given up, even on
/// a slow machine.
pub(super) async fn patient(stage: &Stage) -> Result<Client, Failure> {
    stage.client_with(stage.options().with_ttl(stage.part(10.0))).await
}

/// The holder's lease is renewed by the new server, and the waiter waits for its release.
async fn holder_and_waiter_outlive_a_server_restart(stage: Stage) -> Outcome {
    let (holder, waiter) = (patient(&stage).await?, patient(&stage).await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    let asked = next_request(&waiter);
    let restart = async {
        asked.await;
        stage.pull(Lever::Kill)?;
        stage.pull(Lever::Start)?;
        let renewals = holder.locks.statistics().renewals;
        let renewed = || holder.locks.statistics().renewals > renewals;
        until(&stage, "a renewal by the new server", renewed).await?;
        assert!(held.seen());
        assert_eq!(held.release().await?, Release::Released);
        Outcome::Ok(())
    };
    let (waited, restarted) = join!(waiter.acquire_within(&name, stage.part(24.0)), restart);
    restarted?;
    drop(waited?.ok_or("the waiter did not go on")?);
    Ok(())
}

/// At the next renewal, long before the deadline; and nobody makes the lock anew.
async fn a_server_that_comes_back_empty_tells_its_holders(stage: Stage) -> Outcome {
    let holder = patient(&stage).await?;
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    stage.pull(Lever::Kill)?;
    stage.pull(Lever::StartEmpty)?;
    let loss = stage.within(5.0, "the server's word of the loss", held.lost()).await?;
    assert_eq!(loss, Loss::Revoked);
    // Not by another client's grant, for its token may be smaller where fencing does not outlive this.
    stage.bare().await?.held(&stage.claim(&name)).await?;
    assert_eq!(held.release().await?, Release::AlreadyLost(Loss::Revoked));
    Ok(())
}

/// A renewal's reply is lost, the link is down for a moment, and so on; a rival never gets in.
async fn short_breaks_of_the_link_cost_no_lock(stage: Stage) -> Outcome {
    // The case lasts for longer than one of these leases.
    let options = stage.options().with_ttl(stage.part(3.0)).with_verb_limit(Duration::from_secs(2));
    let holder = stage.client_with(options).await?;
    let rival = stage.patient_client().await?;
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    for round in 0..stage.rounds(6, 200) {
        if round % 2 == 0 {
            let cuts = holder.link.cuts();
            holder.link.cut_after_requests(1);
            stage.within(8.0, "a renewal", holder.link.cut_more_than(cuts)).await?;
        } else {
            holder.link.down();
            stage.pass(0.2).await;
            holder.link.heal();
        }
        let before = holder.locks.statistics().renewals;
        let renewed = || holder.locks.statistics().renewals > before || !held.is_held();
        until(&stage, "a renewal after the break", renewed).await?;
        assert!(held.seen(), "lost in round {round}");
        assert!(rival.try_acquire(&name).await?.is_none(), "passed on in round {round}");
    }
    assert_eq!(held.release().await?, Release::Released);
    Ok(())
}

async fn connections_that_the_server_breaks_cost_no_lock(stage: Stage) -> Outcome {
    let (holder, waiter) = (patient(&stage).await?, patient(&stage).await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    let asked = next_request(&waiter);
    let breaks = async {
        asked.await;
        for round in 0..stage.rounds(10, 100) {
            stage.pull(Lever::KillClients)?;
            stage.pass(0.5).await;
            assert!(held.seen(), "lost in round {round}");
        }
        assert!(holder.link.requests().connections > 1, "no connection was broken");
        assert_eq!(held.release().await?, Release::Released);
        Outcome::Ok(())
    };
    let (waited, broken) = join!(waiter.acquire_within(&name, stage.part(60.0)), breaks);
    broken?;
    drop(waited?.ok_or("the waiter did not go on")?);
    Ok(())
}

/// A connection that neither answers nor ends, as after a lost route: another is opened.
async fn a_silent_connection_is_replaced(stage: Stage) -> Outcome {
    let client = stage.client().await?;
    drop(client.acquire(&stage.name()).await?);
    let before = client.link.requests().connections;
    client.link.blackhole(Way::Both);
    let name = stage.name();
    let replaced = async {
        let replaced = client.link.sent(|requests| requests.connections > before);
        let replaced = stage.within(8.0, "another connection", replaced).await;
        client.link.heal();
        replaced
    };
    let (acquired, replaced) = join!(client.acquire_within(&name, stage.part(12.0)), replaced);
    replaced?;
    drop(acquired?.ok_or("busy, although nobody else has ever asked")?);
    Ok(())
}

/// Ten tasks want something all the time; neither the network nor the processor notices.
async fn attempts_are_few_while_nothing_can_be_reached(stage: Stage) -> Outcome {
    on_a_thread(move || async move {
        let client = stage.client().await?;
        let mut guards = Vec::new();
        for _ in 0..5 {
            guards.push(client.acquire(&stage.name()).await?);
        }
        client.link.down();
        let (before, cpu, began) = (client.link.requests(), cpu_time()?, Moment::now());
        let mut waiting = JoinSet::new();
        for _ in 0..5 {
            let (lock, patience) = (client.lock(&stage.name()), stage.part(4.0));
            waiting.spawn(async move { lock.acquire_within(patience).await });
        }
        while let Some(waited) = waiting.join_next().await {
            assert!(waited?.is_err());
        }
        let (after, cpu, took) =
            (client.link.requests(), cpu_time()? - cpu, Moment::now().saturating_since(began));
        assert!(guards.iter().all(|guard| !guard.is_held()));
        let (requests, connections) = (after.total - before.total, after.connections - before.connections);
        assert!(requests + connections > 0, "nobody tried");
        let seconds = took.as_secs_f64();
        assert!(requests as f64 <= 200.0 * seconds.max(2.0), "{requests} requests in {took:?}");
        assert!(connections as f64 <= 50.0 * seconds.max(2.0), "{connections} connections in {took:?}");
        assert!(cpu < took / 5, "{cpu:?} of processor time in {took:?}");
        Ok(())
    })
    .await
}
