//! Many names held and renewed by one process: what a held lock costs, and whether each is renewed in time.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use polylock::{Guard, Locks, Options};

use super::{Arena, Findings, HELD, HELD_MANY, numbered};
use crate::{
    child::{Child, Order, Parent, Word},
    contender::{Renewals, Watched},
    failure::{Failure, Result},
    measure::{cpu_time, resident},
    place::Place,
    record::{Figures, Outcome, Workload},
    server::Server,
};

/// How many are acquired and released at once.
const AT_ONCE: usize = 64;

pub(crate) async fn holding(arena: &mut Arena<'_>, workload: Workload, server: &mut dyn Server) -> Findings {
    arena.disconnect().await;
    let locks = if workload == Workload::HoldingMany { HELD_MANY } else { HELD };
    arena.progress.begin(&arena.title(workload), 1);
    arena.progress.step("polylock");
    arena.ours(match turn(arena, locks, server).await {
        Ok(figures) => Outcome::Measured(figures),
        Err(failure) => Outcome::Failed(failure.text().into()),
    })
}

async fn turn(arena: &Arena<'_>, locks: usize, server: &mut dyn Server) -> Result<Figures> {
    let (ttl, span) = (arena.plan.ttl, arena.plan.holding);
    let mut child = Child::start(arena.place, Order::HoldMany { locks, ttl, span }).await?;
    match child.word(Duration::from_secs(120)).await? {
        Word::Ready => {}
        other => return Err(Failure::new(format!("a child said {other:?}"))),
    }
    let (before, server_before) = (server.commands().await, arena.server_cpu());
    let begin = std::time::Instant::now();
    let Word::Held { bytes_per_lock, cpu, worst_lateness, lost } =
        child.word(span * 2 + Duration::from_secs(20)).await?
    else {
        return Err(Failure::new("a child did not say what it held"));
    };
    let seconds = begin.elapsed().as_secs_f64();
    let (server_cpu, after) = (arena.server_cpu_since(server_before), server.commands().await);
    child.tell(0).await?;
    child.hear("released").await?;
    let percent = |cpu: Duration| cpu.as_secs_f64() * 100.0 / seconds;
    Ok(Figures::Holding {
        locks,
        commands_per_second: before.zip(after).map(|(before, after)| after.since(&before, seconds).total),
        server_cpu_percent: server_cpu.map(percent),
        client_cpu_percent: percent(cpu),
        bytes_per_lock,
        worst_lateness_ms: worst_lateness.as_secs_f64() * 1e3,
        lost,
    })
}

/// What the child does.
pub(crate) async fn hold_many(
    place: &Place,
    parent: &mut Parent,
    locks: usize,
    ttl: Duration,
    span: Duration,
) -> Result {
    let renewals = Arc::new(Renewals::with_room(locks)?);
    let options = Options::default().with_ttl(ttl);
    let all = Watched::connect(place, options, renewals.clone()).await?;
    let names = numbered(place, "holding", locks);
    // All connections are made before the memory is looked at.
    release(acquire(&all, &names[..AT_ONCE]).await?).await?;
    let before = resident()?;
    let guards = acquire(&all, &names).await?;
    let bytes_per_lock = resident()?.saturating_sub(before) as f64 / locks as f64;
    parent.say(&Word::Ready).await?;

    let cpu = cpu_time();
    tokio::time::sleep(span).await;
    let cpu = cpu_time() - cpu;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    parent.say(&Word::Held { bytes_per_lock, cpu, worst_lateness: renewals.worst_lateness(), lost }).await?;
    parent.told().await?;
    let released = release(guards).await;
    all.close(Duration::from_secs(5)).await;
    released?;
    parent.say(&Word::Said("released".into())).await
}

async fn acquire(all: &Locks, names: &[String]) -> Result<Vec<Guard>> {
    let guards = stream::iter(names).map(|name| {
        let lock = all.lock(name);
        async move { Result::Ok(lock?.acquire().await?) }
    });
    guards.buffer_unordered(AT_ONCE).try_collect().await
}

async fn release(guards: Vec<Guard>) -> Result {
    let releases = stream::iter(guards).map(|guard| async { guard.release().await });
    releases.buffer_unordered(AT_ONCE).map(|released| Ok(released.map(drop)?)).try_collect().await
}
