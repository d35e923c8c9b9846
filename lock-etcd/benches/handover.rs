//! How fast a lock passes on: sixteen waiters in four processes on one name, each of which holds it for no
//! time at all. The server's data is in memory.
//!
//! Beside it what the server gives the bare driver: pairs of a leased put and its delete, one after the
//! other. A hand-over needs as much, but for what it does at the same time.
//!
//! `cargo bench -p lock-etcd --bench handover`

use std::{
    env,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use etcd_client::{Client, PutOptions};
use lock_core::Locks;
use lock_etcd::{EtcdBackend, EtcdOptions};
use tempfile::TempDir;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(5);
/// Where a child finds the server.
const SERVER: &str = "POLYLOCK_HANDOVER_SERVER";

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Ok(address) = env::var(SERVER) {
        return runtime.block_on(contend(&address));
    }
    let server = Server::start()?;
    runtime.block_on(connected(&server.address)).map(drop)?;
    let pairs = runtime.block_on(bare(&server.address))?;
    let children = (0..PROCESSES)
        .map(|_| {
            Command::new(env::current_exe()?).env(SERVER, &server.address).stdout(Stdio::piped()).spawn()
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut shares = Vec::new();
    for child in children {
        let told = String::from_utf8(child.wait_with_output()?.stdout)?;
        shares.extend(told.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?);
    }
    report(&shares, pairs)
}

/// How many pairs of put and delete a second the bare driver does, each of a new key.
async fn bare(address: &str) -> Result<f64, Failure> {
    let mut client = Client::connect([address], None).await?;
    let lease = client.lease_grant(60, None).await?.id();
    let (begin, mut pairs) = (Instant::now(), 0_u32);
    while begin.elapsed() < WARM_UP {
        let key = format!("bare/{pairs}");
        client.put(&*key, "", Some(PutOptions::new().with_lease(lease))).await?;
        client.delete(&*key, None).await?;
        pairs += 1;
    }
    client.lease_revoke(lease).await?;
    Ok(f64::from(pairs) / begin.elapsed().as_secs_f64())
}

/// One process: its tasks take the lock in turn, as often as they can.
#[allow(clippy::print_stdout)] // The parent reads it.
async fn contend(address: &str) -> Result<(), Failure> {
    let locks = Locks::new(connected(address).await?)?;
    let (begin, end) = (Instant::now() + WARM_UP, Instant::now() + WARM_UP + MEASURED);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let lock = locks.lock("benchmark");
            tokio::spawn(async move {
                let (lock, mut share) = (lock?, 0);
                while Instant::now() < end {
                    let guard = lock.acquire().await?;
                    share += u64::from(Instant::now() >= begin);
                    guard.release().await?;
                }
                Ok::<u64, lock_core::Error>(share)
            })
        })
        .collect();
    for task in tasks {
        println!("{}", task.await??);
    }
    Ok(())
}

/// Connects as soon as the server answers.
async fn connected(address: &str) -> Result<EtcdBackend, Failure> {
    let since = Instant::now();
    loop {
        match EtcdBackend::connect(EtcdOptions::new([address])?).await {
            Err(error) if error.is_transient() && since.elapsed() < Duration::from_secs(10) => {}
            connected => return Ok(connected?),
        }
    }
}

#[allow(clippy::print_stdout)] // The report is what the program is for.
fn report(shares: &[u64], pairs: f64) -> Result<(), Failure> {
    let (most, least) = (shares.iter().max().ok_or("no shares")?, shares.iter().min().ok_or("no shares")?);
    let rate = shares.iter().sum::<u64>() as f64 / MEASURED.as_secs_f64();
    println!("{} waiters in {PROCESSES} processes: {rate:.0} hand-overs a second", shares.len());
    println!("bare pairs of put and delete: {pairs:.0} a second; hand-overs are {:.2} of it", rate / pairs);
    println!("shares {least}..{most}, largest to smallest {:.2}", *most as f64 / *least as f64);
    Ok(())
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
