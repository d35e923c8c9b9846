//! How fast a lock passes on: sixteen waiters in four processes on one name, each of which holds it for no
//! time at all.
//!
//! Beside it, in turn, a stand-in for what most clients of Redis do, after Redisson: the lock is a hash, a
//! release publishes on the name's channel, each process wakes one waiter for each message, and those race.
//!
//! `cargo bench -p lock-redis --bench handover`

use std::{
    env,
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use lock_core::{Lock, Locks};
use lock_redis::{RedisBackend, RedisOptions};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Script, aio::MultiplexedConnection};
use tokio::sync::Notify;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(2);
/// Where a child finds the server, and what it does there.
const PORT: &str = "POLYLOCK_HANDOVER_PORT";
const SCHEME: &str = "POLYLOCK_HANDOVER_SCHEME";

fn main() -> Result<(), Failure> {
    if let Ok(port) = env::var(PORT) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(contend(port.parse()?, env::var(SCHEME)? == "race"));
    }
    let server = Server::start()?;
    let (mut ours, mut races) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(measure(server.port, "promotion")?);
        races.push(measure(server.port, "race")?);
    }
    report(&mut ours, &mut races);
    Ok(())
}

/// What came of one round.
struct Round {
    acquired: f64,
    /// To another waiter than before, a second.
    handed_over: f64,
    /// The largest share of a waiter to the smallest.
    shares: f64,
}

fn measure(port: u16, scheme: &str) -> Result<Round, Failure> {
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        let mut child = Command::new(env::current_exe()?);
        child.env(PORT, port.to_string()).env(SCHEME, scheme);
        children.push(child.stdout(Stdio::piped()).spawn()?);
    }
    // When, and by whom.
    let (mut grants, mut waiters) = (Vec::<(u64, usize)>::new(), 0);
    for child in children {
        let told = child.wait_with_output()?;
        for waiter in String::from_utf8(told.stdout)?.lines() {
            for grant in waiter.split_whitespace() {
                grants.push((grant.parse()?, waiters));
            }
            waiters += 1;
        }
    }
    grants.sort_unstable();
    let others = grants.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    let mut shares = [0_u32; PROCESSES * TASKS];
    for (_, waiter) in &grants {
        *shares.get_mut(*waiter).ok_or("more waiters than were started")? += 1;
    }
    let [least, most] = [shares.iter().min(), shares.iter().max()].map(|share| share.copied().unwrap_or(0));
    let span = MEASURED.as_secs_f64();
    Ok(Round {
        acquired: grants.len() as f64 / span,
        handed_over: others as f64 / span,
        shares: f64::from(most) / f64::from(least),
    })
}

/// One process: its tasks take the lock in turn, as often as they can. Prints a line for each, of moments.
#[allow(clippy::print_stdout)] // The parent reads it.
async fn contend(port: u16, race: bool) -> Result<(), Failure> {
    let options = RedisOptions::new("127.0.0.1").port(port);
    let lock = Locks::new(RedisBackend::connect(options).await?)?.lock("benchmark")?;
    let raced = Raced::connect(port).await?;
    let (begin, end) = (Instant::now() + WARM_UP, Instant::now() + WARM_UP + MEASURED);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (lock, mut raced) = (lock.clone(), raced.clone());
            tokio::spawn(async move {
                let owner = format!("{}:{task}", std::process::id());
                let mut grants = String::new();
                while Instant::now() < end {
                    let at = if race { raced.pair(&owner).await? } else { pair(&lock).await? };
                    if Instant::now() >= begin {
                        grants += &format!("{} ", at.duration_since(SystemTime::UNIX_EPOCH)?.as_nanos());
                    }
                }
                Ok::<_, Failure>(grants)
            })
        })
        .collect();
    for task in tasks {
        println!("{}", task.await??);
    }
    Ok(())
}

/// Acquires and releases; when it was held.
async fn pair(lock: &Lock) -> Result<SystemTime, Failure> {
    let guard = lock.acquire().await?;
    let at = SystemTime::now();
    guard.release().await?;
    Ok(at)
}

/// The stand-in.
#[derive(Clone)]
struct Raced {
    connection: MultiplexedConnection,
    _listening: MultiplexedConnection,
    lock: Arc<Script>,
    unlock: Arc<Script>,
    told: Arc<Notify>,
}

impl Raced {
    async fn connect(port: u16) -> Result<Self, Failure> {
        let told = Arc::new(Notify::new());
        let waiters = told.clone();
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Message {
                waiters.notify_one();
            }
            Ok::<(), std::convert::Infallible>(())
        });
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/?protocol=resp3"))?;
        // Redisson, too, has connections for its subscriptions and others for its commands.
        let mut listening = client.get_multiplexed_async_connection_with_config(&config).await?;
        listening.subscribe("raced:channel").await?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let lock = Script::new(
            "if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then \
               redis.call('HINCRBY', KEYS[1], ARGV[2], 1) \
               redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
               return nil \
             end \
             return redis.call('PTTL', KEYS[1])",
        );
        let unlock = Script::new(
            "if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return nil end \
             if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then \
               redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
               return 0 \
             end \
             redis.call('DEL', KEYS[1]) \
             redis.call('PUBLISH', KEYS[2], '0') \
             return 1",
        );
        for script in [&lock, &unlock] {
            script.load_async(&mut connection).await?;
        }
        Ok(Self { connection, _listening: listening, lock: lock.into(), unlock: unlock.into(), told })
    }

    /// Takes the lock, or says for how long it is another's.
    async fn look(&mut self, owner: &str) -> Result<Option<u64>, Failure> {
        let mut lock = self.lock.key("raced");
        Ok(lock.arg(30_000).arg(owner).invoke_async(&mut self.connection).await?)
    }

    async fn pair(&mut self, owner: &str) -> Result<SystemTime, Failure> {
        let mut left = self.look(owner).await?;
        if left.is_some() {
            // It looks again once it is sure to be subscribed, as it is here from the start.
            left = self.look(owner).await?;
        }
        while let Some(milliseconds) = left {
            let _ = tokio::time::timeout(Duration::from_millis(milliseconds), self.told.notified()).await;
            left = self.look(owner).await?;
        }
        let at = SystemTime::now();
        let mut unlock = self.unlock.key("raced");
        let unlock = unlock.key("raced:channel").arg(30_000).arg(owner);
        let freed: Option<u32> = unlock.invoke_async(&mut self.connection).await?;
        if freed == Some(1) { Ok(at) } else { Err("the raced lock was not held".into()) }
    }
}

#[allow(clippy::print_stdout)] // The report is what the program is for.
fn report(ours: &mut [Round], races: &mut [Round]) {
    let waiters = PROCESSES * TASKS;
    println!("{waiters} waiters in {PROCESSES} processes; medians of {ROUNDS} rounds, a second");
    println!("{:<22}{:>10}{:>14}{:>28}", "", "acquired", "handed over", "shares, largest to smallest");
    let line = |name: &str, rounds: &mut [Round]| {
        rounds.sort_by(|one, other| one.handed_over.total_cmp(&other.handed_over));
        let Round { acquired, handed_over, .. } = rounds[rounds.len() / 2];
        let worst = rounds.iter().map(|round| round.shares).fold(0.0, f64::max);
        println!("{name:<22}{acquired:>10.0}{handed_over:>14.0}{worst:>23.2} worst");
        handed_over
    };
    let (ours, races) = (line("polylock", ours), line("subscribe and race", races));
    println!("hand-overs to another waiter: {:.2} of the race's", ours / races);
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
