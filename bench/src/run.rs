//! A run: every workload on every server.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::time::timeout;

use crate::{
    contender::{self, Contender},
    failure::{Failure, Result},
    measure,
    place::Place,
    record::{self, Measurement, Outcome, Record, Settings, Workload},
    server::{self, Server},
    workload::{self, Arena, Entrant, Findings},
};

/// What to measure, where, and for how long.
#[derive(Clone)]
pub struct Plan {
    /// The servers, by their URLs.
    pub urls: Vec<String>,
    /// What is done on each.
    pub workloads: BTreeSet<Workload>,
    /// How often each contender has its turn, and how often a holder is killed.
    pub rounds: usize,
    /// How long one turn is, in seconds.
    pub seconds: f64,
    /// How long the waiters of [`Workload::Waiting`] are looked at.
    pub waiting: Duration,
    /// How long the locks of [`Workload::Holding`] are held.
    pub holding: Duration,
    /// The ttl of the held locks.
    pub ttl: Duration,
    /// Whether other lock libraries take part.
    pub peers: bool,
    /// Put behind what servers tell of their durability, such as where their data is.
    pub note: Option<String>,
    /// The commit of polylock, if it is known.
    pub commit: Option<String>,
}

impl Plan {
    /// Every workload, for as long as it takes to trust the figures.
    #[must_use]
    pub fn new(urls: impl IntoIterator<Item: Into<String>>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            workloads: Workload::ALL.iter().copied().collect(),
            rounds: 5,
            seconds: 3.0,
            waiting: Duration::from_secs(10),
            holding: Duration::from_secs(60),
            ttl: Duration::from_secs(30),
            peers: false,
            note: None,
            commit: None,
        }
    }

    /// Everything for a short time: figures to look at, not to trust.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.rounds = 2;
        self.seconds = 0.5;
        self.waiting = Duration::from_secs(2);
        // Long enough for renewals.
        self.holding = Duration::from_secs(8);
        self.ttl = Duration::from_secs(20);
        self
    }

    /// Whether this build can measure on these servers, before anything is done.
    ///
    /// # Errors
    ///
    /// For a URL that cannot be read, or a backend that is not in this build. No text repeats a URL.
    pub fn check(&self) -> std::result::Result<(), Failure> {
        for url in &self.urls {
            Place::new(url)?;
        }
        let legal = self.seconds.is_finite() && self.seconds > 0.0 && self.rounds > 0;
        if legal { Ok(()) } else { Err(Failure::new("there is at least one round, of some time")) }
    }

    pub(crate) fn span(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// The JVM compiles a server's code while it runs.
    pub(crate) fn warm_up(&self, backend: &str) -> Duration {
        if backend == "zookeeper" { self.span() * 4 } else { self.span() / 2 }
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan")
            .field("servers", &self.urls.len())
            .field("workloads", &self.workloads)
            .field("rounds", &self.rounds)
            .field("seconds", &self.seconds)
            .finish_non_exhaustive()
    }
}

impl Workload {
    /// All, in the order in which they are run.
    pub const ALL: &'static [Self] = &[
        Self::Uncontended,
        Self::Throughput,
        Self::HandoverWithin,
        Self::HandoverBetween,
        Self::Waiting,
        Self::Holding,
        Self::HoldingMany,
        Self::Crash,
    ];
}

/// What a run tells while it is under way.
pub trait Progress: Send + Sync {
    /// So many steps of something begin.
    fn begin(&self, what: &str, steps: u64);

    /// The next of them begins.
    fn step(&self, what: &str);
}

/// Tells nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: u64) {}

    fn step(&self, _: &str) {}
}

/// Runs the plan, until `stop` resolves: what was measured until then is in the record.
///
/// A server or contender that fails is recorded so, and the others go on. Nothing is left on the servers.
/// The program's `main` must call [`reexecuted`](crate::reexecuted) first.
pub async fn run(plan: &Plan, progress: &dyn Progress, stop: impl Future<Output = ()> + Send) -> Record {
    let record = Mutex::new(Record {
        made: String::new(),
        commit: plan.commit.clone(),
        machine: measure::machine(),
        settings: Settings {
            rounds: plan.rounds,
            seconds: plan.seconds,
            pinned: true,
            waiting: plan.waiting.as_secs_f64(),
            holding: plan.holding.as_secs_f64(),
            ttl: plan.ttl.as_secs_f64(),
            crash_ttl: workload::CRASH_TTL.as_secs_f64(),
        },
        servers: Vec::new(),
        measurements: Vec::new(),
    });
    let places: Vec<_> = plan.urls.iter().map(|url| Place::new(url).map_err(Failure::from)).collect();
    let work = async {
        for place in places.iter().flatten() {
            measure_at(plan, place, progress, &record).await;
        }
    };
    let stopped = tokio::select! {
        () = work => false,
        () = stop => true,
    };
    if stopped {
        progress.begin("stopped: tidying up", places.len() as u64);
    }
    for place in places.iter().flatten().filter(|_| stopped) {
        // What was not reached, or cannot be any more, has nothing to tidy.
        let _ = timeout(TIDYING, async { server::of(place).await?.tidy().await }).await;
    }
    let mut record = record.into_inner().unwrap_or_else(PoisonError::into_inner);
    record.made = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    record
}

const TIDYING: Duration = Duration::from_secs(10);

async fn measure_at(plan: &Plan, place: &Place, progress: &dyn Progress, record: &Mutex<Record>) {
    let connecting = async {
        let mut server = server::of(place).await?;
        let described = server.describe().await?;
        Result::Ok((server, described))
    };
    let connected = match timeout(TIDYING, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(Failure::new(format!("no answer within {TIDYING:?}"))),
    };
    let note = |durability: String| match &plan.note {
        Some(note) => format!("{durability}; {note}"),
        None => durability,
    };
    let (mut server, described) = match connected {
        Ok((server, described)) => {
            let durability = note(described.durability.clone());
            (Some(server), record::Server { durability, ..described })
        }
        Err(failure) => {
            let (described, ours) = unreachable(place);
            let index = add_server(record, described);
            for workload in &plan.workloads {
                let failed = (ours.clone(), Outcome::Failed(failure.text().into()));
                add(record, place, index, *workload, vec![failed]);
            }
            return;
        }
    };
    let index = add_server(record, described);
    let mut entrants = Vec::new();
    for contender in contender::on(place.backend(), plan.peers) {
        entrants.push(Entrant::new(contender, place).await);
    }
    let processes = server::processes(place);
    let mut arena = Arena { plan, place, processes, entrants, progress };
    if let Some(server) = &mut server {
        for workload in &plan.workloads {
            let findings = one(&mut arena, *workload, server.as_mut(), record).await;
            add(record, place, index, *workload, findings);
        }
    }
    arena.disconnect().await;
    drop(arena);
    if let Some(mut server) = server {
        let tidied = timeout(TIDYING, server.tidy()).await;
        if let Ok(Err(failure)) = tidied {
            progress.begin(&format!("something is left there: {}", place.scrub(failure.text())), 0);
        }
    }
}

async fn one(
    arena: &mut Arena<'_>,
    workload: Workload,
    server: &mut dyn Server,
    record: &Mutex<Record>,
) -> Findings {
    match workload {
        Workload::Uncontended => {
            let (findings, pinned) = workload::uncontended(arena).await;
            record.lock().unwrap_or_else(PoisonError::into_inner).settings.pinned &= pinned;
            findings
        }
        Workload::Throughput => workload::throughput(arena).await,
        Workload::HandoverWithin => workload::within(arena).await,
        Workload::HandoverBetween => workload::between(arena).await,
        Workload::Waiting => workload::waiting(arena, server).await,
        Workload::Holding | Workload::HoldingMany => workload::holding(arena, workload, server).await,
        Workload::Crash => workload::crash(arena).await,
    }
}

/// What is recorded of a server that cannot be reached, and who failed there.
fn unreachable(place: &Place) -> (record::Server, record::Contender) {
    let unknown = || "unknown".to_owned();
    let server = record::Server {
        backend: place.backend().into(),
        url: place.shown(),
        version: unknown(),
        durability: unknown(),
        topology: unknown(),
    };
    (server, contender::Ours.who())
}

fn add_server(record: &Mutex<Record>, server: record::Server) -> usize {
    let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
    record.servers.push(server);
    record.servers.len() - 1
}

fn add(record: &Mutex<Record>, place: &Place, server: usize, workload: Workload, findings: Findings) {
    let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
    for (contender, outcome) in findings {
        let outcome = match outcome {
            Outcome::Failed(text) => Outcome::Failed(place.scrub(&text)),
            other => other,
        };
        record.measurements.push(Measurement { server, workload, contender, outcome });
    }
}
