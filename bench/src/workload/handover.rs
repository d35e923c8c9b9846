//! Sixteen waiters on one name, each of which holds it for no time at all: how fast a lock passes on, to
//! whom, and whether it ever has two holders.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Arena, Findings, WAITERS, rounds, together};
use crate::{
    child::{Child, Order, Word},
    contender::Client,
    failure::{Failure, Result},
    measure::{Spread, now},
    record::{Figures, Outcome, Workload},
};

const PROCESSES: usize = 4;
/// A JVM has compiled nothing in less.
const WARM_UP: Duration = Duration::from_millis(200);

/// Once held; times on the clock that processes share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Hold {
    waiter: usize,
    asked: u64,
    acquired: u64,
    /// When its release was called.
    released: u64,
}

impl Hold {
    /// Reads `waiter asked acquired released`.
    pub(crate) fn read(line: &str) -> Result<Self> {
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
        match numbers[..] {
            [waiter, asked, acquired, released] => {
                Ok(Self { waiter: usize::try_from(waiter)?, asked, acquired, released })
            }
            _ => Err(Failure::new(format!("this is no hold: {line}"))),
        }
    }
}

/// All that was held in one turn.
struct Turn {
    holds: Vec<Hold>,
    begin: u64,
    end: u64,
    /// What the server took for all of them.
    server_cpu: Option<Duration>,
}

/// The waiters of one process.
pub(crate) async fn within(arena: &Arena<'_>) -> Findings {
    let (name, span) = (arena.place.name("handover"), arena.plan.span());
    let turn = |client| {
        let name = name.clone();
        async move {
            let begin = now() + span.as_nanos() as u64 / 5;
            let end = begin + span.as_nanos() as u64;
            let before = arena.server_cpu();
            let holds = contend(client, &name, 0..WAITERS, end).await?;
            Ok(Turn { holds, begin, end, server_cpu: arena.server_cpu_since(before) })
        }
    };
    rounds(arena, Workload::HandoverWithin, turn, figures).await
}

/// As many waiters in four processes.
pub(crate) async fn between(arena: &Arena<'_>) -> Findings {
    if let Some(absent) = arena.one_process() {
        return arena.ours(absent);
    }
    let mut findings = Findings::new();
    let mut runners = Vec::new();
    for entrant in &arena.entrants {
        match entrant.client_for(Workload::HandoverBetween) {
            Ok(_) => runners.push((&entrant.who, Ok(Vec::new()))),
            Err(without) => findings.push((entrant.who.clone(), without.into())),
        }
    }
    let total = (runners.len() * arena.plan.rounds) as u64;
    arena.progress.begin(&arena.title(Workload::HandoverBetween), total);
    for round in 0..arena.plan.rounds {
        let count = runners.len();
        for i in 0..count {
            let (who, turns) = &mut runners[(i + round) % count];
            arena.progress.step(&who.name);
            if let Ok(done) = turns {
                match between_turn(arena, &who.name).await {
                    Ok(turn) => done.push(turn),
                    Err(failure) => *turns = Err(failure),
                }
            }
        }
    }
    for (who, turns) in runners {
        let outcome = match turns {
            Ok(turns) => Outcome::Measured(figures(turns)),
            Err(failure) => Outcome::Failed(failure.text().into()),
        };
        findings.push((who.clone(), outcome));
    }
    findings
}

async fn between_turn(arena: &Arena<'_>, contender: &str) -> Result<Turn> {
    let span = arena.plan.span();
    let each = WAITERS / PROCESSES;
    let mut children = Vec::new();
    for process in 0..PROCESSES {
        let order = Order::Contend {
            contender: contender.into(),
            name: arena.place.name("handover"),
            spare: arena.place.name("handover-first"),
            waiters: process * each..(process + 1) * each,
            warm_up: WARM_UP.max(span / 2),
        };
        children.push(Child::start(arena.place, order).await?);
    }
    for child in &mut children {
        child.hear("ready").await?;
    }
    let before = arena.server_cpu();
    let begin = now() + span.as_nanos() as u64 / 5;
    let end = begin + span.as_nanos() as u64;
    for child in &mut children {
        child.tell(end).await?;
    }
    let mut holds = Vec::new();
    for child in &mut children {
        match child.word(span * 2 + Duration::from_secs(20)).await? {
            Word::Holds(own) => holds.extend(own),
            other => return Err(Failure::new(format!("a child said {other:?}"))),
        }
    }
    Ok(Turn { holds, begin, end, server_cpu: arena.server_cpu_since(before) })
}

/// Acquires and releases by each waiter in turn, until the end.
pub(crate) async fn contend(
    client: Arc<dyn Client>,
    name: &str,
    waiters: std::ops::Range<usize>,
    end: u64,
) -> Result<Vec<Hold>> {
    if let Some(foreign) = client.foreign() {
        return foreign.contend(name, waiters, end).await;
    }
    let tasks = waiters.map(|waiter| {
        let lock = client.lock(name);
        async move {
            let (mut lock, mut holds) = (lock?, Vec::new());
            loop {
                let asked = now();
                if asked >= end {
                    return Ok(holds);
                }
                lock.acquire().await?;
                let acquired = now();
                // One thread runs them all: were nobody else's turn while it is held, nobody could be seen to
                // hold it, too. The hand-over is counted from the release.
                tokio::task::yield_now().await;
                holds.push(Hold { waiter, asked, acquired, released: now() });
                lock.release().await?;
            }
        }
    });
    Ok(together(tasks).await?.into_iter().flatten().collect())
}

fn figures(turns: Vec<Turn>) -> Figures {
    let (mut time, mut shares) = (Spread::new(), vec![0; WAITERS]);
    let (mut longest, mut overlaps, mut seconds) = (0, 0, 0.0);
    let (mut acquisitions, mut handovers) = (0_u64, 0_u64);
    let mut rates = Vec::new();
    let held: usize = turns.iter().map(|turn| turn.holds.len()).sum();
    let server_cpu: Option<Duration> = turns.iter().map(|turn| turn.server_cpu).sum();
    for Turn { mut holds, begin, end, .. } in turns {
        holds.sort_unstable_by_key(|hold| hold.acquired);
        let mut last: Option<Hold> = None;
        let mut passed_on = 0;
        for hold in holds {
            if let Some(last) = last {
                overlaps += u64::from(hold.acquired < last.released);
                if hold.waiter != last.waiter && (begin..end).contains(&hold.acquired) {
                    passed_on += 1;
                    time.add(hold.acquired.saturating_sub(last.released));
                }
            }
            // Whoever was released last, should two ever have held it.
            last = Some(last.filter(|last| last.released > hold.released).unwrap_or(hold));
            if hold.acquired >= begin {
                longest = longest.max(hold.acquired - hold.asked.max(begin));
            }
            if (begin..end).contains(&hold.acquired) {
                acquisitions += 1;
                shares[hold.waiter] += 1;
            }
        }
        let span = (end - begin) as f64 / 1e9;
        seconds += span;
        handovers += passed_on;
        rates.push(passed_on as f64 / span);
    }
    Figures::Handover {
        handovers_per_second: handovers as f64 / seconds,
        acquisitions_per_second: acquisitions as f64 / seconds,
        time: time.times(),
        shares,
        longest_wait_ms: longest as f64 / 1e6,
        server_cpu_us: server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / held.max(1) as f64),
        overlaps,
        rounds: rates,
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use tokio::{
        sync::{Mutex, OwnedMutexGuard},
        time::sleep,
    };

    use super::*;
    use crate::contender::Lock;

    /// A lock that excludes if it has a mutex, and else grants to everyone.
    struct Fake(Option<Arc<Mutex<()>>>);

    struct Handle {
        mutex: Option<Arc<Mutex<()>>>,
        guard: Option<OwnedMutexGuard<()>>,
    }

    #[async_trait]
    impl Client for Fake {
        fn lock(&self, _: &str) -> Result<Box<dyn Lock>> {
            Ok(Box::new(Handle { mutex: self.0.clone(), guard: None }))
        }
    }

    #[async_trait]
    impl Lock for Handle {
        async fn acquire(&mut self) -> Result {
            // As slow as a server.
            sleep(Duration::from_millis(1)).await;
            if let Some(mutex) = self.mutex.clone() {
                self.guard = Some(mutex.lock_owned().await);
            }
            Ok(())
        }

        async fn release(&mut self) -> Result {
            self.guard = None;
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_lock_that_excludes_nobody_is_seen_within_one_process() {
        let begin = now();
        // Long enough for each waiter to have a turn on a machine that stands still for a while.
        let end = begin + 3_000_000_000;
        let overlaps = |fake: Fake| async move {
            let holds = contend(Arc::new(fake), "a", 0..WAITERS, end).await.unwrap();
            assert!(holds.len() >= WAITERS, "{holds:?}");
            let Figures::Handover { overlaps, .. } =
                figures(vec![Turn { holds, begin, end, server_cpu: None }])
            else {
                panic!("other figures");
            };
            overlaps
        };
        let (broken, exclusive) =
            tokio::join!(overlaps(Fake(None)), overlaps(Fake(Some(Arc::new(Mutex::new(()))))));
        assert!(broken > 0);
        assert_eq!(exclusive, 0);
    }

    fn hold(waiter: usize, asked: u64, acquired: u64, released: u64) -> Hold {
        Hold { waiter, asked, acquired, released }
    }

    #[test]
    fn a_lock_that_goes_back_to_the_same_waiter_is_not_handed_over() {
        let holds =
            vec![hold(0, 0, 10_000, 20_000), hold(0, 21_000, 30_000, 40_000), hold(1, 5_000, 45_000, 50_000)];
        let turn = Turn { holds, begin: 0, end: 1_000_000_000, server_cpu: Some(Duration::from_micros(600)) };
        let Figures::Handover {
            handovers_per_second,
            acquisitions_per_second,
            time,
            shares,
            server_cpu_us,
            ..
        } = figures(vec![turn])
        else {
            panic!("other figures");
        };
        assert_eq!((handovers_per_second, acquisitions_per_second), (1.0, 3.0));
        assert_eq!((time.count, time.max.round()), (1, 5.0));
        assert_eq!(shares[..3], [2, 1, 0]);
        assert_eq!(server_cpu_us, Some(200.0));
    }

    #[test]
    fn two_holders_at_once_are_seen() {
        let holds = vec![hold(0, 0, 10, 100), hold(1, 0, 20, 30), hold(2, 0, 50, 60), hold(3, 0, 100, 110)];
        let Figures::Handover { overlaps, .. } =
            figures(vec![Turn { holds, begin: 0, end: 1_000, server_cpu: None }])
        else {
            panic!("other figures");
        };
        assert_eq!(overlaps, 2);
    }
}
