//! A hundred waiters on a name that is held: what waiting costs while nothing happens.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Arena, Entrant, Findings, PAIR, PARKED};
use crate::{
    failure::{Failure, Result},
    measure::cpu_time,
    record::{Figures, Outcome, Workload},
    server::{Server, process},
};

/// Until everybody waits.
const SETTLING: Duration = Duration::from_secs(1);

pub(crate) async fn waiting(arena: &Arena<'_>, server: &mut dyn Server) -> Findings {
    let mut findings = Findings::new();
    arena.progress.begin(&arena.title(Workload::Waiting), arena.entrants.len() as u64);
    for entrant in &arena.entrants {
        arena.progress.step(&entrant.who.name);
        let outcome = match entrant.client_for(Workload::Waiting) {
            Ok(_) => match turn(arena, entrant, server).await {
                Ok(figures) => Outcome::Measured(figures),
                Err(failure) => Outcome::Failed(failure.text().into()),
            },
            Err(without) => without.into(),
        };
        findings.push((entrant.who.clone(), outcome));
    }
    findings
}

async fn turn(arena: &Arena<'_>, entrant: &Entrant, server: &mut dyn Server) -> Result<Figures> {
    let name = arena.place.name("waiting");
    // The holder has a connection of its own where there is one.
    let holder = match arena.place.backend() {
        "memory" => entrant.client.clone()?,
        _ => entrant.contender.open(arena.place).await?,
    };
    let mut held = holder.lock(&name)?;
    timeout(PAIR, held.acquire()).await.map_err(|_| Failure::new("the name cannot be held"))??;
    let waiters = entrant.client.clone()?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..PARKED {
        let mut lock = waiters.lock(&name)?;
        tasks.spawn(async move { lock.acquire().await });
    }
    sleep(SETTLING).await;

    let (before, server_before) = (server.commands().await, process::cpu_time(&arena.processes));
    let (begin, cpu) = (std::time::Instant::now(), cpu_time());
    sleep(arena.plan.waiting).await;
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_time() - cpu);
    let (server_after, after) = (process::cpu_time(&arena.processes), server.commands().await);

    if let Some(early) = tasks.try_join_next() {
        early??;
        return Err(Failure::new("a waiter acquired the name that is held"));
    }
    tasks.shutdown().await;
    timeout(PAIR, held.release()).await.map_err(|_| Failure::new("no release"))??;
    holder.close().await;
    let commands = before.zip(after).map(|(before, after)| after.since(&before, seconds));
    let percent = |cpu: Duration| cpu.as_secs_f64() * 100.0 / seconds;
    Ok(Figures::Waiting {
        commands_per_second: commands.as_ref().map(|commands| commands.total),
        by_kind: commands.map(|commands| commands.by_kind).unwrap_or_default(),
        server_cpu_percent: server_before.zip(server_after).map(|(before, after)| percent(after - before)),
        client_cpu_percent: percent(cpu),
    })
}
