//! What is done with the locks.

mod crash;
mod handover;
mod holding;
mod throughput;
mod uncontended;
mod waiting;

use std::{sync::Arc, time::Duration};

pub(crate) use crash::{TTL as CRASH_TTL, crash, hold_one};
pub(crate) use handover::{Hold, between, contend, within};
pub(crate) use holding::{hold_many, holding};
pub(crate) use throughput::throughput;
use tokio::{task::JoinSet, time::timeout};
pub(crate) use uncontended::uncontended;
pub(crate) use waiting::waiting;

use crate::{
    contender::{Client, Contender},
    failure::{Failure, Result},
    place::Place,
    record::{self, Outcome, Workload},
    run::{Plan, Progress},
    server::process,
};

const TASKS: usize = 64;
const WAITERS: usize = 16;
const PARKED: usize = 100;
const HELD: usize = 1_000;
const HELD_MANY: usize = 10_000;

/// A backend with everyone who locks there.
pub(crate) struct Arena<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) place: &'a Place,
    /// The server's processes on this machine.
    pub(crate) processes: Vec<u32>,
    pub(crate) entrants: Vec<Entrant>,
    pub(crate) progress: &'a dyn Progress,
}

pub(crate) struct Entrant {
    pub(crate) who: record::Contender,
    pub(crate) contender: Box<dyn Contender>,
    /// Its connection, or why there is none.
    pub(crate) client: Result<Arc<dyn Client>>,
}

/// What came out, for everyone.
pub(crate) type Findings = Vec<(record::Contender, Outcome)>;

impl Entrant {
    pub(crate) async fn new(contender: Box<dyn Contender>, place: &Place) -> Self {
        let client = opened(&*contender, place).await;
        Self { who: contender.who(), contender, client }
    }

    /// One more connection.
    async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
        opened(&*self.contender, place).await
    }

    /// Its connection, or what is recorded instead of figures.
    fn client_for(&self, workload: Workload) -> std::result::Result<Arc<dyn Client>, Without> {
        if let Some(why) = self.contender.lacks(workload) {
            return Err(Without::Place(why.into()));
        }
        Ok(self.client.clone()?)
    }
}

async fn opened(contender: &dyn Contender, place: &Place) -> Result<Arc<dyn Client>> {
    match timeout(CONNECT, contender.open(place)).await {
        Ok(opened) => opened,
        Err(_) => Err(Failure::new(format!("no connection within {CONNECT:?}"))),
    }
}

/// Why there are no figures.
enum Without {
    /// It takes no part.
    Place(String),
    /// It failed.
    Success(Failure),
}

impl From<Failure> for Without {
    fn from(failure: Failure) -> Self {
        Self::Success(failure)
    }
}

impl From<Without> for Outcome {
    fn from(without: Without) -> Self {
        match without {
            Without::Place(why) => Self::Absent(why),
            Without::Success(failure) => Self::Failed(failure.text().into()),
        }
    }
}

const CONNECT: Duration = Duration::from_secs(10);
/// Longer than any acquire here waits.
const PAIR: Duration = Duration::from_secs(20);

/// Turn by turn, round by round, each round in another order; who fails once has no more turns.
async fn rounds<T, F>(
    arena: &Arena<'_>,
    workload: Workload,
    turn: impl Fn(Arc<dyn Client>) -> F + Send + Sync,
    figures: impl Fn(Vec<T>) -> record::Figures + Send + Sync,
) -> Findings
where
    T: Send,
    F: Future<Output = Result<T>> + Send,
{
    let limit = arena.plan.span().mul_f64(2.0) + PAIR;
    let mut states: Vec<_> = arena
        .entrants
        .iter()
        .map(|entrant| entrant.client_for(workload).map(|client| (client, Vec::new())))
        .collect();
    let runners: Vec<_> = (0..states.len()).filter(|i| states[*i].is_ok()).collect();
    arena.progress.begin(&arena.title(workload), (runners.len() * arena.plan.rounds) as u64);
    for round in 0..arena.plan.rounds {
        for place in 0..runners.len() {
            let i = runners[(place + round) % runners.len()];
            arena.progress.step(&arena.entrants[i].who.name);
            let Ok((client, turns)) = &mut states[i] else { continue };
            match timeout(limit, turn(client.clone())).await {
                Ok(Ok(done)) => turns.push(done),
                Ok(Err(failure)) => states[i] = Err(failure.into()),
                Err(_) => states[i] = Err(Failure::new(format!("no end within {limit:?}")).into()),
            }
        }
    }
    let outcome = |state| match state {
        Ok((_, turns)) => Outcome::Measured(figures(turns)),
        Err(without) => Outcome::from(without),
    };
    arena.entrants.iter().map(|entrant| entrant.who.clone()).zip(states.into_iter().map(outcome)).collect()
}

/// Runs these in tasks, which end with the future: a run that is stopped must not go on while it is tidied up.
async fn together<T, F>(futures: impl Iterator<Item = F>) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut tasks: JoinSet<_> = futures.collect();
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.push(done??);
    }
    Ok(all)
}

impl Arena<'_> {
    /// Ends everyone's connection: a connection that is idle talks to the server, too.
    pub(crate) async fn disconnect(&mut self) {
        for entrant in &mut self.entrants {
            if let Ok(client) = &entrant.client {
                client.close().await;
                entrant.client = Err(Failure::new("its connection was ended"));
            }
        }
    }

    /// What the server's processes have used, if they are on this machine.
    fn server_cpu(&self) -> Option<Duration> {
        process::cpu_time(&self.processes)
    }

    fn server_cpu_since(&self, before: Option<Duration>) -> Option<Duration> {
        before.zip(self.server_cpu()).map(|(before, after)| after.saturating_sub(before))
    }

    fn title(&self, workload: Workload) -> String {
        format!("{}: {}", self.place.backend(), workload.title())
    }

    /// We alone, with this outcome.
    fn ours(&self, outcome: Outcome) -> Findings {
        self.entrants.first().map(|ours| (ours.who.clone(), outcome)).into_iter().collect()
    }

    /// Why nothing can be measured between processes here.
    fn one_process(&self) -> Option<Outcome> {
        let text = "locks in memory are those of one process";
        (self.place.backend() == "memory").then(|| Outcome::Absent(text.into()))
    }
}

impl Workload {
    /// In a few words.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Uncontended => "uncontended",
            Self::Throughput => "throughput",
            Self::HandoverWithin => "hand-over within a process",
            Self::HandoverBetween => "hand-over between processes",
            Self::Waiting => "waiting",
            Self::Holding => "holding 1,000",
            Self::HoldingMany => "holding 10,000",
            Self::Crash => "crash",
        }
    }
}

fn numbered(place: &Place, of: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| place.name(&format!("{of}-{i}"))).collect()
}

/// Every name that a run uses.
#[cfg(feature = "redis")]
pub(crate) fn names(place: &Place) -> Vec<String> {
    let mut all: Vec<_> = ["uncontended", "handover", "handover-first", "waiting", "crash", "crash-first"]
        .map(|name| place.name(name))
        .into();
    all.extend(numbered(place, "throughput", TASKS));
    all.extend(numbered(place, "holding", HELD_MANY));
    all
}
