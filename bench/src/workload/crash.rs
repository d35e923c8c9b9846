//! The holder's process is killed while another one waits: when does the lock pass on?

use std::{sync::Arc, time::Duration};

use polylock::{Moment, Options, Promise};
use tokio::time::{sleep, timeout};

use super::{Arena, Findings};
use crate::{
    child::{Child, Order, Parent, Word},
    contender::{Renewals, Watched, connect},
    failure::{Failure, Result},
    place::Place,
    record::{Figures, Outcome, Since, Takeover, Workload},
};

/// Short, since it is waited for; a server may give more.
pub(crate) const TTL: Duration = Duration::from_secs(5);
/// What a take-over may take on top of the lag that the backend declares, and of the lease where that has to end.
const ALLOWANCE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn crash(arena: &Arena<'_>) -> Findings {
    if let Some(absent) = arena.one_process() {
        return arena.ours(absent);
    }
    arena.progress.begin(&arena.title(Workload::Crash), arena.plan.rounds as u64);
    arena.ours(match turns(arena).await {
        Ok(figures) => Outcome::Measured(figures),
        Err(failure) => Outcome::Failed(failure.text().into()),
    })
}

async fn turns(arena: &Arena<'_>) -> Result<Figures> {
    let locks = connect(arena.place, Options::default().with_ttl(TTL)).await?;
    let mut takeovers = Vec::new();
    for round in 0..arena.plan.rounds {
        arena.progress.step(&format!("kill {} of {}", round + 1, arena.plan.rounds));
        let mut holder = Child::start(arena.place, Order::HoldOne { ttl: TTL }).await?;
        holder.word(PATIENCE).await?.lease()?;
        let lock = locks.lock(arena.place.name("crash"))?;
        let waiter = tokio::spawn(async move { (lock.acquire().await, Moment::now()) });
        // Until the waiter waits, and then between two renewals: one that is under way at the kill would
        // keep the lock for a time that nobody knows.
        while locks.statistics().waiting == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        let mut lease = holder.word(PATIENCE).await?.lease()?;
        sleep(Duration::from_millis(100 + 250 * (round as u64 % 5))).await;
        while let Some(newer) = holder.try_word().await? {
            lease = newer.lease()?;
        }
        holder.kill().await?;
        let killed = Moment::now();
        let (acquired, at) = timeout(PATIENCE, waiter)
            .await
            .map_err(|_| Failure::new(format!("no take-over within {PATIENCE:?}")))??;
        acquired?.release().await?;
        takeovers.push(Takeover {
            lease_left_ms: millis(lease.saturating_since(killed)),
            took_ms: millis(at.saturating_since(killed)),
        });
    }
    let promised = locks.guarantees();
    locks.close(Duration::from_secs(2)).await;
    Ok(Figures::Crash {
        takeovers,
        allowed_ms: millis(promised.expiry_lag + ALLOWANCE),
        allowed_since: match promised.meets(Promise::TakeoverAtOnce) {
            true => Since::Kill,
            false => Since::Lease,
        },
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Word {
    /// When the lease ends.
    fn lease(self) -> Result<Moment> {
        match self {
            Self::Lease { end } => Ok(Moment::from_start(end)),
            other => Err(Failure::new(format!("the holder said {other:?}"))),
        }
    }
}

/// How long the server keeps a lease of which a backend promises so much: in ZooKeeper it is a session, of
/// which a third is kept back.
fn on_the_server(place: &Place, length: Duration) -> Duration {
    if place.backend() == "zookeeper" { length * 3 / 2 } else { length }
}

/// What the child does until it is killed: holds, and tells of each new lease when it ends.
pub(crate) async fn hold_one(place: &Place, parent: &mut Parent, ttl: Duration) -> Result {
    let renewals = Arc::new(Renewals::default());
    let locks = Watched::connect(place, Options::default().with_ttl(ttl), renewals.clone()).await?;
    // A lease counts from before the request, on the server from when it is there: no connection is made, and
    // no table, in between.
    locks.lock(place.name("crash-first"))?.acquire().await?.release().await?;
    let guard = locks.lock(place.name("crash"))?.acquire().await?;
    let mut told = None;
    while guard.is_held() {
        let newest = renewals.newest().map(|lease| lease.since + on_the_server(place, lease.length));
        if newest != told {
            told = newest;
            if let Some(end) = newest {
                parent.say(&Word::Lease { end: end.since_start() }).await?;
            }
        }
        sleep(Duration::from_millis(5)).await;
    }
    Err(Failure::new("the lock was lost"))
}
