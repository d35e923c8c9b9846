//! One client, one name, nobody else: what a lock costs over the statements that it is made of.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{Arena, Findings, PAIR, Without};
use crate::{
    contender::{Client, Lock},
    failure::{Failure, Result},
    measure::{Pinned, Spread, now},
    record::{Figures, Outcome, Workload},
};

struct Runner {
    lock: Box<dyn Lock>,
    // Closes the connection when dropped.
    _client: Arc<dyn Client>,
    acquire: Spread,
    release: Spread,
    pair: Spread,
    round: Spread,
    medians: Vec<f64>,
}

/// Pair by pair in turn, on one core with the server; also whether that could be.
pub(crate) async fn uncontended(arena: &Arena<'_>) -> (Findings, bool) {
    let pinned = Pinned::new(&arena.processes).filter(|_| arena.is_local());
    let name = arena.place.name("uncontended");
    let start = |client: Arc<dyn Client>| match client.lock(&name) {
        Ok(lock) => Ok(Runner::new(lock, client)),
        Err(failure) => Err(Without::from(failure)),
    };
    let mut runners: Vec<_> = arena
        .entrants
        .iter()
        .map(|entrant| entrant.client_for(Workload::Uncontended).and_then(start))
        .collect();
    arena.progress.begin(&arena.title(Workload::Uncontended), arena.plan.rounds as u64 + 1);
    arena.progress.step("warming up");
    alternate(&mut runners, arena.plan.warm_up(arena.place.backend()), |_, _, _| {}).await;
    for round in 0..arena.plan.rounds {
        arena.progress.step(&format!("round {} of {}, pair by pair in turn", round + 1, arena.plan.rounds));
        alternate(&mut runners, arena.plan.span(), Runner::add).await;
        runners.iter_mut().flatten().for_each(Runner::end_round);
    }
    let outcomes = runners.into_iter().map(|runner| match runner {
        Ok(runner) => Outcome::Measured(runner.figures()),
        Err(without) => without.into(),
    });
    (arena.entrants.iter().map(|entrant| entrant.who.clone()).zip(outcomes).collect(), pinned.is_some())
}

/// One pair each, over and over, in an order that is drawn anew each time: nobody always comes right after the
/// one who leaves the caches cold.
async fn alternate(
    runners: &mut [std::result::Result<Runner, Without>],
    span: Duration,
    add: impl Fn(&mut Runner, u64, u64) + Send + Sync,
) {
    let end = now() + span.as_nanos() as u64;
    let mut order: Vec<_> = (0..runners.len()).collect();
    while now() < end {
        fastrand::shuffle(&mut order);
        for &i in &order {
            let slot = &mut runners[i];
            let Ok(runner) = slot else { continue };
            match paired(runner).await {
                Ok((acquire, release)) => add(runner, acquire, release),
                Err(failure) => *slot = Err(failure.into()),
            }
        }
        if runners.iter().all(std::result::Result::is_err) {
            return;
        }
    }
}

async fn paired(runner: &mut Runner) -> Result<(u64, u64)> {
    match timeout(PAIR, runner.lock.pair()).await {
        Ok(times) => times,
        Err(_) => Err(Failure::new(format!("no pair within {PAIR:?}"))),
    }
}

impl Runner {
    fn new(lock: Box<dyn Lock>, client: Arc<dyn Client>) -> Self {
        let [acquire, release, pair, round] = [(); 4].map(|()| Spread::new());
        Self { lock, _client: client, acquire, release, pair, round, medians: Vec::new() }
    }

    fn add(&mut self, acquire: u64, release: u64) {
        self.acquire.add(acquire);
        self.release.add(release);
        self.round.add(acquire + release);
    }

    fn end_round(&mut self) {
        self.medians.push(self.round.median());
        self.pair.join(&std::mem::replace(&mut self.round, Spread::new()));
    }

    fn figures(self) -> Figures {
        Figures::Uncontended {
            acquire: self.acquire.times(),
            release: self.release.times(),
            pair: self.pair.times(),
            rounds: self.medians,
        }
    }
}

impl Arena<'_> {
    /// Whether there is no server, or one on this machine.
    fn is_local(&self) -> bool {
        !self.processes.is_empty() || matches!(self.place.backend(), "file" | "memory")
    }
}
