//! What a lock costs over the bare driver: acquire and release without contention, client and server pinned
//! to one core.
//!
//! `cargo bench -p lock-mysql --bench latency`

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lock_core::{Attempt, Backend, Claim, Lock, Locks, Name, Owner, Released};
use lock_mysql::MysqlBackend;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sqlx::{Connection, Executor, MySqlConnection, mysql::MySqlConnectOptions};
use support::Server;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const WARM_UP: u32 = 500;
const ROUNDS: u32 = 5_000;

fn main() -> Result<(), Failure> {
    let allowed = sched_getaffinity(None)?;
    pin(&allowed)?;
    let server = Server::start(&[]);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(compare(&server))
}

/// Alternates pair by pair, so that all see the same machine.
async fn compare(server: &Server) -> Result<(), Failure> {
    let lock = Locks::new(server.backend().await)?.lock("benchmark")?;
    let backend = server.backend().await;
    let mut bare = Bare::connect(server.port).await?;
    let mut spent = [(); 3].map(|()| Histogram::<u64>::new(3)).into_iter().collect::<Result<Vec<_>, _>>()?;
    for round in 0..WARM_UP + ROUNDS {
        let times = [ours(&lock).await?, verbs(&backend).await?, bare.same_statements().await?];
        if round >= WARM_UP {
            for (spent, time) in spent.iter_mut().zip(times) {
                spent.record(u64::try_from(time.as_nanos())?)?;
            }
        }
    }
    report(&spent);
    Ok(())
}

async fn ours(lock: &Lock) -> Result<Duration, Failure> {
    let start = Instant::now();
    lock.acquire().await?.release().await?;
    Ok(start.elapsed())
}

/// The backend without the core: no time limits, no renewing, no line of waiters.
async fn verbs(backend: &MysqlBackend) -> Result<Duration, Failure> {
    let start = Instant::now();
    let claim = Claim::new(Name::new("verbs")?, Owner::random()?, Duration::from_secs(33));
    let granted = backend.acquire(&claim).await?;
    let released = backend.release(&claim).await?;
    let spent = start.elapsed();
    match (granted, released) {
        (Attempt::Held(_), Released::Released) => Ok(spent),
        other => Err(format!("the verbs gave {other:?}").into()),
    }
}

/// The driver alone.
struct Bare(MySqlConnection);

impl Bare {
    async fn connect(port: u16) -> Result<Self, Failure> {
        let options = MySqlConnectOptions::new().host("127.0.0.1").port(port).database("app");
        let mut connection =
            MySqlConnection::connect_with(&options.username("locks").password("s3cr3t")).await?;
        connection.execute("INSERT INTO polylock (name) VALUES ('bare')").await?;
        Ok(Self(connection))
    }

    async fn same_statements(&mut self) -> Result<Duration, Failure> {
        let owner = [7_u8; 16].as_slice();
        let start = Instant::now();
        let taken = sqlx::query(include_str!("../src/statements/acquire.sql"))
            .bind(owner)
            .bind(owner)
            .bind("host:1234")
            .bind(33_000_000_u64)
            .bind("bare")
            .bind(owner)
            .execute(&mut self.0)
            .await?;
        let freed = sqlx::query(include_str!("../src/statements/release.sql"))
            .bind("bare")
            .bind(owner)
            .execute(&mut self.0)
            .await?;
        let spent = start.elapsed();
        let done = taken.rows_affected() == 1 && freed.rows_affected() == 1;
        if done { Ok(spent) } else { Err("the bare lock was not held".into()) }
    }
}

#[allow(clippy::print_stdout)] // The report is what the program is for.
fn report(spent: &[Histogram<u64>]) {
    let micros = |spent: &Histogram<u64>, part: f64| spent.value_at_quantile(part) as f64 / 1_000.0;
    println!("acquire + release, data in memory, one core, {ROUNDS} rounds");
    println!("{:<36}{:>10}{:>10}{:>14}", "", "p50 us", "p99 us", "p50 to bare");
    let base = micros(&spent[2], 0.5);
    let names = ["polylock", "its backend alone", "the same statements, bare driver"];
    for (name, spent) in names.into_iter().zip(spent) {
        let (half, most) = (micros(spent, 0.5), micros(spent, 0.99));
        println!("{name:<36}{half:>10.1}{most:>10.1}{:>13.2}x", half / base);
    }
}

/// Client and server on one core, or the numbers are those of the scheduler.
fn pin(allowed: &CpuSet) -> Result<(), Failure> {
    let core = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).ok_or("no core to run on")?;
    let mut one = CpuSet::new();
    one.set(core);
    // The server inherits it.
    Ok(sched_setaffinity(None, &one)?)
}
