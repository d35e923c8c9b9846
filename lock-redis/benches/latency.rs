//! What a lock costs over the bare driver: acquire and release without contention, one connection, client
//! and server pinned to one core.
//!
//! `cargo bench -p lock-redis --bench latency`

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use lock_core::{Attempt, Backend, Claim, Lock, Locks, Name, Owner, Released};
use lock_redis::{RedisBackend, RedisOptions};
use redis::{Script, aio::MultiplexedConnection, cmd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const WARM_UP: u32 = 2_000;
const ROUNDS: u32 = 20_000;

fn main() -> Result<(), Failure> {
    pin()?;
    let server = Server::start()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(compare(server.port))
}

/// Alternates pair by pair, so that all see the same machine.
async fn compare(port: u16) -> Result<(), Failure> {
    let options = RedisOptions::new("127.0.0.1").port(port);
    let lock = Locks::new(RedisBackend::connect(options.clone()).await?)?.lock("benchmark")?;
    let backend = RedisBackend::connect(options).await?;
    let mut bare = Bare::connect(port).await?;
    let mut spent = [(); 4].map(|()| Histogram::<u64>::new(3)).into_iter().collect::<Result<Vec<_>, _>>()?;
    for round in 0..WARM_UP + ROUNDS {
        let times =
            [ours(&lock).await?, verbs(&backend).await?, bare.same_scripts().await?, bare.unfenced().await?];
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
async fn verbs(backend: &RedisBackend) -> Result<Duration, Failure> {
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
struct Bare {
    connection: MultiplexedConnection,
    acquire: Script,
    release: Script,
    delete: Script,
}

impl Bare {
    async fn connect(port: u16) -> Result<Self, Failure> {
        let client = redis::Client::open(("127.0.0.1", port))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let queue = include_str!("../src/scripts/queue.lua");
        let acquire = Script::new(&[queue, include_str!("../src/scripts/acquire.lua")].concat());
        let release = Script::new(&[queue, include_str!("../src/scripts/release.lua")].concat());
        let delete = Script::new(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
        );
        for script in [&acquire, &release, &delete] {
            script.load_async(&mut connection).await?;
        }
        Ok(Self { connection, acquire, release, delete })
    }

    async fn same_scripts(&mut self) -> Result<Duration, Failure> {
        const OWNER: &str = "00010203040506070809101112131415:";
        const KEYS: [&str; 3] = ["polylock:{bare}", "polylock:{bare}:fence", "polylock:{bare}:queue"];
        let start = Instant::now();
        let _token: u64 = cmd("EVALSHA")
            .arg(self.acquire.get_hash())
            .arg(3)
            .arg(&KEYS)
            .arg(OWNER)
            .arg("33000")
            .arg(":host:1234")
            .arg("")
            .query_async(&mut self.connection)
            .await?;
        let released: u32 = cmd("EVALSHA")
            .arg(self.release.get_hash())
            .arg(3)
            .arg(&KEYS)
            .arg(OWNER)
            .query_async(&mut self.connection)
            .await?;
        let spent = start.elapsed();
        if released == 1 { Ok(spent) } else { Err("the bare lock was not held".into()) }
    }

    async fn unfenced(&mut self) -> Result<Duration, Failure> {
        const OWNER: &str = "00010203040506070809101112131415";
        let start = Instant::now();
        let set = cmd("SET").arg("unfenced").arg(OWNER).arg("NX").arg("PX").arg("33000").to_owned();
        set.exec_async(&mut self.connection).await?;
        let deleted: u32 = cmd("EVALSHA")
            .arg(self.delete.get_hash())
            .arg(1)
            .arg("unfenced")
            .arg(OWNER)
            .query_async(&mut self.connection)
            .await?;
        let spent = start.elapsed();
        if deleted == 1 { Ok(spent) } else { Err("the unfenced lock was not held".into()) }
    }
}

#[allow(clippy::print_stdout)] // The report is what the program is for.
fn report(spent: &[Histogram<u64>]) {
    let micros = |spent: &Histogram<u64>, part: f64| spent.value_at_quantile(part) as f64 / 1_000.0;
    println!("acquire + release, one connection, one core, {ROUNDS} rounds");
    println!("{:<34}{:>10}{:>10}{:>14}", "", "p50 us", "p99 us", "p50 to bare");
    let base = micros(&spent[2], 0.5);
    let names =
        ["polylock", "its backend alone", "the same scripts, bare driver", "SET NX PX and script, unfenced"];
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

struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start() -> Result<Self, Failure> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()])
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| {
                format!("redis-server must be installed (Debian: apt-get install redis-server): {e}")
            })?;
        let server = Self { process, port };
        let since = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if since.elapsed() > Duration::from_secs(10) {
                return Err("redis-server does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
