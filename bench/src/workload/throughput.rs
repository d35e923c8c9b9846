//! Many tasks of one process, a name each: how much the client and the server can do.

use std::{sync::Arc, time::Duration};

use super::{Arena, Findings, TASKS, numbered, rounds, together};
use crate::{
    contender::Client,
    failure::Result,
    measure::{cpu_time, now},
    record::{Figures, Workload},
};

struct Turn {
    pairs: u64,
    seconds: f64,
    cpu: Duration,
}

pub(crate) async fn throughput(arena: &Arena<'_>) -> Findings {
    let names: Arc<[String]> = numbered(arena.place, "throughput", TASKS).into();
    let span = arena.plan.span();
    let prefix = arena.place.name("throughput");
    let turn = |client: Arc<dyn Client>| {
        let (names, prefix) = (names.clone(), prefix.clone());
        async move {
            match client.foreign() {
                Some(foreign) => {
                    foreign.throughput(&prefix, TASKS, warm_up(span)).await?;
                    let (pairs, cpu) = foreign.throughput(&prefix, TASKS, span).await?;
                    Ok(Turn { pairs, seconds: span.as_secs_f64(), cpu })
                }
                None => pairs(client, names, span).await,
            }
        }
    };
    rounds(arena, Workload::Throughput, turn, figures).await
}

/// A tenth of what is measured, for everyone.
fn warm_up(span: Duration) -> Duration {
    span / 10
}

/// As many pairs as can be in the time.
async fn pairs(client: Arc<dyn Client>, names: Arc<[String]>, span: Duration) -> Result<Turn> {
    run(&client, &names, warm_up(span)).await?;
    let (begin, cpu) = (now(), cpu_time());
    let pairs = run(&client, &names, span).await?;
    Ok(Turn { pairs, seconds: (now() - begin) as f64 / 1e9, cpu: cpu_time() - cpu })
}

async fn run(client: &Arc<dyn Client>, names: &[String], span: Duration) -> Result<u64> {
    let end = now() + span.as_nanos() as u64;
    let tasks = names.iter().map(|name| {
        let lock = client.lock(name);
        async move {
            let (mut lock, mut count) = (lock?, 0);
            while now() < end {
                lock.acquire().await?;
                lock.release().await?;
                count += 1;
            }
            Ok(count)
        }
    });
    Ok(together(tasks).await?.iter().sum())
}

fn figures(turns: Vec<Turn>) -> Figures {
    let pairs = turns.iter().map(|turn| turn.pairs).sum::<u64>() as f64;
    let cpu = turns.iter().map(|turn| turn.cpu).sum::<Duration>();
    Figures::Throughput {
        pairs_per_second: pairs / turns.iter().map(|turn| turn.seconds).sum::<f64>(),
        cpu_us_per_pair: cpu.as_secs_f64() * 1e6 / pairs.max(1.0),
        rounds: turns.iter().map(|turn| turn.pairs as f64 / turn.seconds).collect(),
    }
}
