//! How fast a lock passes on: sixteen waiters in four processes on one name, each of which holds it for no
//! time at all. The server's data is in memory. And what the server can do at most, by the driver alone: a node
//! made and deleted by each of 64 tasks as often as they can.
//!
//! `cargo bench -p lock-zookeeper --bench handover`

mod server;

use std::{
    env,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use lock_core::{Locks, Options};
use lock_zookeeper::{ZookeeperBackend, ZookeeperOptions};
use server::Server;
use zookeeper_client::{Acls, Client, CreateMode};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PROCESSES: usize = 4;
const TASKS: usize = 4;
/// The server's code is compiled while it runs, so it is slow at first.
const SERVERS_WARM_UP: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(5);
/// Where a child finds the server.
const SERVER: &str = "POLYLOCK_HANDOVER_SERVER";

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Ok(address) = env::var(SERVER) {
        return runtime.block_on(contend(&address));
    }
    let server = Server::start()?;
    runtime.block_on(pairs(&server.address, SERVERS_WARM_UP))?;
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
    let pairs = runtime.block_on(pairs(&server.address, MEASURED))?;
    report(&shares, pairs.into_iter().sum::<u64>() as f64 / MEASURED.as_secs_f64())
}

/// How often each of the tasks, on one connection, makes and deletes a node of its own.
async fn pairs(address: &str, span: Duration) -> Result<Vec<u64>, Failure> {
    let client = Client::connect(address).await?;
    let end = Instant::now() + span;
    let tasks = (0..64).map(|task| {
        let (client, path) = (client.clone(), format!("/pairs-{task}-"));
        tokio::spawn(async move {
            let (mut count, ephemeral) = (0, CreateMode::EphemeralSequential.with_acls(Acls::anyone_all()));
            while Instant::now() < end {
                let (_, number) = client.create(&path, b"host:1234", &ephemeral).await?;
                client.delete(&format!("{path}{number}"), None).await?;
                count += 1;
            }
            Ok::<u64, zookeeper_client::Error>(count)
        })
    });
    let mut counts = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        counts.push(task.await??);
    }
    Ok(counts)
}

/// One process: its tasks take the lock in turn, as often as they can.
#[allow(clippy::print_stdout)] // The parent reads it.
async fn contend(address: &str) -> Result<(), Failure> {
    // What the server's ticks allow, so that nobody is warned.
    let options = Options::default().with_ttl(Duration::from_secs(20));
    let locks = Locks::with_options(connected(address).await?, options)?;
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

async fn connected(address: &str) -> Result<ZookeeperBackend, Failure> {
    let options = ZookeeperOptions::new([address]).root("/locks")?;
    Ok(ZookeeperBackend::connect(options.connect_timeout(Duration::from_secs(10))).await?)
}

#[allow(clippy::print_stdout)] // The report is what the program is for.
fn report(shares: &[u64], pairs: f64) -> Result<(), Failure> {
    let (most, least) = (shares.iter().max().ok_or("no shares")?, shares.iter().min().ok_or("no shares")?);
    let rate = shares.iter().sum::<u64>() as f64 / MEASURED.as_secs_f64();
    println!("{} waiters in {PROCESSES} processes: {rate:.0} hand-overs a second", shares.len());
    println!("the server makes and deletes {pairs:.0} nodes a second: {:.2} of that", rate / pairs);
    println!("shares {least}..{most}, largest to smallest {:.2}", *most as f64 / *least as f64);
    Ok(())
}
