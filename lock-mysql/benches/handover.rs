//! How fast a lock passes on: sixteen waiters in four processes on one name, each of which holds it for no
//! time at all. The server's data is in memory; each commit is written and synced to it.
//!
//! `cargo bench -p lock-mysql --bench handover`

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    env,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use lock_core::Locks;
use lock_mysql::{MysqlBackend, MysqlOptions};
use support::Server;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(5);
/// Where a child finds the server.
const PORT: &str = "POLYLOCK_HANDOVER_PORT";

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Ok(port) = env::var(PORT) {
        return runtime.block_on(contend(port.parse()?));
    }
    let server = Server::start(&["--innodb-flush-log-at-trx-commit=1"]);
    runtime.block_on(server.backend());
    let before = statements(&server)?;
    let children = (0..PROCESSES)
        .map(|_| {
            let mut child = Command::new(env::current_exe()?);
            child.env(PORT, server.port.to_string()).stdout(Stdio::piped()).spawn()
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut shares = Vec::new();
    for child in children {
        let told = String::from_utf8(child.wait_with_output()?.stdout)?;
        shares.extend(told.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?);
    }
    report(&shares, statements(&server)? - before)
}

/// One process: its tasks take the lock in turn, as often as they can.
#[allow(clippy::print_stdout)] // The parent reads it.
async fn contend(port: u16) -> Result<(), Failure> {
    let options = MysqlOptions::new("127.0.0.1", "app", "locks").port(port).password("s3cr3t");
    let locks = Locks::new(MysqlBackend::connect(options).await?)?;
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

/// How many statements the server has run.
fn statements(server: &Server) -> Result<u64, Failure> {
    let count =
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'";
    Ok(server.sql(count).trim().parse()?)
}

#[allow(clippy::print_stdout)] // The report is what the program is for.
fn report(shares: &[u64], statements: u64) -> Result<(), Failure> {
    let (most, least) = (shares.iter().max().ok_or("no shares")?, shares.iter().min().ok_or("no shares")?);
    let (passed, all) = (shares.iter().sum::<u64>() as f64, (WARM_UP + MEASURED).as_secs_f64());
    let rate = passed / MEASURED.as_secs_f64();
    println!("{} waiters in {PROCESSES} processes: {rate:.0} hand-overs a second", shares.len());
    println!("shares {least}..{most}, largest to smallest {:.2}", *most as f64 / *least as f64);
    println!("{:.1} statements for each", statements as f64 / all / rate);
    Ok(())
}
