//! What a lock costs over the bare driver: acquire and release without contention, one connection, client
//! and server pinned to one core, the server's data in memory.
//!
//! `cargo bench -p lock-etcd --bench latency`

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, GetOptions, KvClient, PutOptions, SortOrder, SortTarget, Txn,
    TxnOp,
};
use hdrhistogram::Histogram;
use lock_core::{Attempt, Backend, Claim, Lock, Locks, Name, Owner, Released};
use lock_etcd::{EtcdBackend, EtcdOptions};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const WARM_UP: u32 = 500;
const ROUNDS: u32 = 2_000;
/// Longer than the benchmark runs.
const LEASE: Duration = Duration::from_secs(300);

fn main() -> Result<(), Failure> {
    pin()?;
    let server = Server::start()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(compare(&server.address))
}

/// Alternates pair by pair, so that all see the same machine.
async fn compare(address: &str) -> Result<(), Failure> {
    let options = EtcdOptions::new([address])?;
    let lock = Locks::new(connected(options.clone()).await?)?.lock("benchmark")?;
    let backend = EtcdBackend::connect(options).await?;
    let mut bare = Bare::connect(address).await?;
    let mut spent = [(); 4].map(|()| Histogram::<u64>::new(3)).into_iter().collect::<Result<Vec<_>, _>>()?;
    for round in 0..WARM_UP + ROUNDS {
        let times = [ours(&lock).await?, verbs(&backend).await?, bare.same().await?, bare.least().await?];
        if round >= WARM_UP {
            for (spent, time) in spent.iter_mut().zip(times) {
                spent.record(u64::try_from(time.as_nanos())?)?;
            }
        }
    }
    report(&spent);
    Ok(())
}

/// Connects as soon as the server answers.
async fn connected(options: EtcdOptions) -> Result<EtcdBackend, Failure> {
    let since = Instant::now();
    loop {
        match EtcdBackend::connect(options.clone()).await {
            Err(error) if error.is_transient() && since.elapsed() < Duration::from_secs(10) => {}
            connected => return Ok(connected?),
        }
    }
}

async fn ours(lock: &Lock) -> Result<Duration, Failure> {
    let start = Instant::now();
    lock.acquire().await?.release().await?;
    Ok(start.elapsed())
}

/// The backend without the core: no time limits, no renewing, no line of waiters.
async fn verbs(backend: &EtcdBackend) -> Result<Duration, Failure> {
    let start = Instant::now();
    let claim = Claim::new(Name::new("verbs")?, Owner::random()?, LEASE).queued(true);
    let granted = backend.acquire(&claim).await?;
    let released = backend.release(&claim).await?;
    let spent = start.elapsed();
    match (granted, released) {
        (Attempt::Held(_), Released::Released) => Ok(spent),
        other => Err(format!("the verbs gave {other:?}").into()),
    }
}

/// The driver alone, with one lease for all rounds.
struct Bare {
    kv: KvClient,
    lease: i64,
}

impl Bare {
    async fn connect(address: &str) -> Result<Self, Failure> {
        let mut client = Client::connect([address], None).await?;
        let lease = client.lease_grant(i64::try_from(LEASE.as_secs())?, None).await?.id();
        Ok(Self { kv: client.kv_client(), lease })
    }

    /// The requests that an uncontended pair makes, with a new key each time, as claims have: the server goes
    /// through those that were deleted until it is compacted.
    async fn same(&mut self) -> Result<Duration, Failure> {
        let start = Instant::now();
        let key = format!("polylock/bare/{}", Owner::random()?.to_hex());
        let newest = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Descend);
        let join = Txn::new()
            .when([Compare::create_revision(&*key, CompareOp::Equal, 0)])
            .and_then([
                TxnOp::put(&*key, "300 host:1234", Some(PutOptions::new().with_lease(self.lease))),
                TxnOp::get("polylock/bare/", Some(newest.with_limit(2))),
            ])
            .or_else([TxnOp::get(&*key, None)]);
        let joined = self.kv.txn(join).await?.succeeded();
        let deleted = self.kv.delete(&*key, Some(DeleteOptions::new().with_prev_key())).await?.deleted();
        let spent = start.elapsed();
        if joined && deleted == 1 { Ok(spent) } else { Err("the bare lock was not held".into()) }
    }

    /// A put with a lease if there is no key, and a delete: no queue.
    async fn least(&mut self) -> Result<Duration, Failure> {
        const KEY: &str = "least";
        let start = Instant::now();
        let take = Txn::new()
            .when([Compare::create_revision(KEY, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(KEY, "", Some(PutOptions::new().with_lease(self.lease)))]);
        let taken = self.kv.txn(take).await?.succeeded();
        let deleted = self.kv.delete(KEY, None).await?.deleted();
        let spent = start.elapsed();
        if taken && deleted == 1 { Ok(spent) } else { Err("the key was not taken".into()) }
    }
}

#[allow(clippy::print_stdout)] // The report is what the program is for.
fn report(spent: &[Histogram<u64>]) {
    let micros = |spent: &Histogram<u64>, part: f64| spent.value_at_quantile(part) as f64 / 1_000.0;
    println!("acquire + release, one connection, one core, {ROUNDS} rounds");
    println!("{:<34}{:>10}{:>10}{:>14}", "", "p50 us", "p99 us", "p50 to bare");
    let base = micros(&spent[2], 0.5);
    let names =
        ["polylock", "its backend alone", "the same requests, bare driver", "put and delete, no queue"];
    for (name, spent) in names.into_iter().zip(spent) {
        let (half, most) = (micros(spent, 0.5), micros(spent, 0.99));
        println!("{name:<34}{half:>10.1}{most:>10.1}{:>13.2}x", half / base);
    }
}

/// Client and server on one core, or the numbers are those of the scheduler.
fn pin() -> Result<(), Failure> {
    let allowed = sched_getaffinity(None)?;
    let core = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).ok_or("no core to run on")?;
    let mut only = CpuSet::new();
    only.set(core);
    Ok(sched_setaffinity(None, &only)?)
}

/// Two that differ, since both are bound at once.
fn free_addresses() -> Result<[String; 2], Failure> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (bind()?, bind()?);
    Ok([one.local_addr()?.to_string(), other.local_addr()?.to_string()])
}

struct Server {
    child: Child,
    address: String,
    _data: TempDir,
}

impl Server {
    fn start() -> Result<Self, Failure> {
        let [address, peers] = free_addresses()?;
        let memory = Path::new("/dev/shm");
        let data = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        let (at, peers) = (format!("http://{address}"), format!("http://{peers}"));
        let child = Command::new("etcd")
            .args(["--name", "n1", "--log-level", "error", "--data-dir"])
            .arg(data.path().join("data"))
            .args(["--listen-client-urls", &at, "--advertise-client-urls", &at])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("n1={peers}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("etcd must be installed: {error}"))?;
        Ok(Self { child, address, _data: data })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
