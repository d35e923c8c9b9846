//! What a lock costs over the bare driver: acquire and release without contention, one session, client and
//! server pinned to one core.
//!
//! `cargo bench -p lock-zookeeper --bench latency`

mod server;

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lock_core::{Attempt, Backend, Claim, Lock, Locks, Name, Options, Owner, Released};
use lock_zookeeper::{ZookeeperBackend, ZookeeperOptions};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use server::Server;
use zookeeper_client::{Acls, Client, CreateMode};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The server's compiler needs thousands of requests before it shows what it can do.
const WARM_UP: u32 = 5_000;
const ROUNDS: u32 = 10_000;

fn main() -> Result<(), Failure> {
    pin()?;
    let server = Server::start()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(compare(&server.address))
}

/// Alternates pair by pair, so that all see the same machine.
async fn compare(address: &str) -> Result<(), Failure> {
    let options = ZookeeperOptions::new([address]).root("/locks")?;
    let locks = Locks::with_options(
        ZookeeperBackend::connect(options.clone()).await?,
        Options::default().with_ttl(Duration::from_secs(20)),
    )?;
    let lock = locks.lock("benchmark")?;
    let backend = ZookeeperBackend::connect(options).await?;
    let bare = Client::connect(address).await?;
    bare.mkdir("/locks/bare", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
    let mut spent = [(); 3].map(|()| Histogram::<u64>::new(3)).into_iter().collect::<Result<Vec<_>, _>>()?;
    for round in 0..WARM_UP + ROUNDS {
        let times = [ours(&lock).await?, verbs(&backend).await?, pipelined(&bare).await?];
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
async fn verbs(backend: &ZookeeperBackend) -> Result<Duration, Failure> {
    let start = Instant::now();
    let claim = Claim::new(Name::new("verbs")?, Owner::random()?, Duration::from_secs(22));
    let granted = backend.acquire(&claim).await?;
    let released = backend.release(&claim).await?;
    let spent = start.elapsed();
    match (granted, released) {
        (Attempt::Held(_), Released::Released) => Ok(spent),
        other => Err(format!("the verbs gave {other:?}").into()),
    }
}

/// The driver alone, with the same requests.
async fn pipelined(client: &Client) -> Result<Duration, Failure> {
    const PREFIX: &str = "/locks/bare/_c_00010203040506070809101112131415-lock-";
    let start = Instant::now();
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let created = client.create(PREFIX, b"host:1234", &options);
    let children = client.list_children("/locks/bare");
    let (_, number) = created.await?;
    let children = children.await?;
    client.delete(&format!("{PREFIX}{number}"), None).await?;
    let spent = start.elapsed();
    if children.len() == 1 { Ok(spent) } else { Err(format!("others contend: {children:?}").into()) }
}

#[allow(clippy::print_stdout)] // The report is what the program is for.
fn report(spent: &[Histogram<u64>]) {
    let micros = |spent: &Histogram<u64>, part: f64| spent.value_at_quantile(part) as f64 / 1_000.0;
    println!("acquire + release, one session, one core, no fsync, {ROUNDS} rounds");
    println!("{:<34}{:>10}{:>10}{:>14}", "", "p50 us", "p99 us", "p50 to bare");
    let base = micros(&spent[2], 0.5);
    let names = ["polylock", "its backend alone", "the same requests, bare driver"];
    for (name, spent) in names.into_iter().zip(spent) {
        let (half, most) = (micros(spent, 0.5), micros(spent, 0.99));
        println!("{name:<34}{half:>10.1}{most:>10.1}{:>13.2}x", half / base);
    }
}

/// Client and server on one core, or the numbers are those of the scheduler.
fn pin() -> Result<(), Failure> {
    let allowed = sched_getaffinity(None)?;
    let core = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).ok_or("no core to run on")?;
    let mut one = CpuSet::new();
    one.set(core);
    // The server inherits it.
    Ok(sched_setaffinity(None, &one)?)
}
