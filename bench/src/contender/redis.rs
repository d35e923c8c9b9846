//! The bare driver on Redis: our scripts, the cheapest sequence, and a stand-in for Redisson's scheme.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use polylock::Name;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Script, Value, aio::MultiplexedConnection, cmd};
use tokio::{sync::watch, time::timeout};

use super::{Client, Contender, LEASE, Lock, no_wait, rust};
use crate::{
    failure::{Failure, Result},
    place::Place,
    record::{self, Kind, Workload},
    server::redis::{dial, dial_with},
};

const VERSION: &str = "redis 1.8";

pub(super) fn add(all: &mut Vec<Box<dyn Contender>>, peers: bool) {
    all.extend([Box::new(Raw) as Box<dyn Contender>, Box::new(Unfenced)]);
    if peers {
        all.push(Box::new(SubscribeAndRace));
    }
}

/// The scripts of our backend on the bare driver, called as it calls them.
struct Raw;

#[async_trait]
impl Contender for Raw {
    fn who(&self) -> record::Contender {
        rust("raw", Kind::Raw, VERSION)
    }

    fn lacks(&self, workload: Workload) -> Option<&str> {
        no_wait(workload)
    }

    async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
        let mut connection = dial(place).await?;
        let queue = include_str!("../../../lock-redis/src/scripts/queue.lua");
        let acquire = [queue, include_str!("../../../lock-redis/src/scripts/acquire.lua")].concat();
        let release = [queue, include_str!("../../../lock-redis/src/scripts/release.lua")].concat();
        let (acquire, release) = (Script::new(&acquire), Script::new(&release));
        for script in [&acquire, &release] {
            script.load_async(&mut connection).await?;
        }
        Ok(Arc::new(RawClient { connection, acquire, release, place: place.clone() }))
    }
}

struct RawClient {
    connection: MultiplexedConnection,
    acquire: Script,
    release: Script,
    place: Place,
}

#[async_trait]
impl Client for RawClient {
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        let key = (self.place.driver()?.key)(&self.place.parsed()?, &Name::new(format!("{name}-raw"))?)?;
        Ok(Box::new(RawLock {
            connection: self.connection.clone(),
            acquire: self.acquire.get_hash().into(),
            release: self.release.get_hash().into(),
            fence: format!("{key}:fence"),
            queue: format!("{key}:queue"),
            key,
            owner: String::new(),
        }))
    }
}

struct RawLock {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    key: String,
    fence: String,
    queue: String,
    owner: String,
}

#[async_trait]
impl Lock for RawLock {
    async fn acquire(&mut self) -> Result {
        self.owner = format!("{}:", polylock::Owner::random()?.to_hex());
        let mut call = cmd("EVALSHA");
        call.arg(&self.acquire).arg(3).arg(&self.key).arg(&self.fence).arg(&self.queue);
        call.arg(&self.owner).arg(LEASE.as_millis() as u64).arg(":host:1234").arg("").arg("1");
        match call.query_async::<Value>(&mut self.connection).await? {
            Value::Int(_) => Ok(()),
            other => Err(Failure::new(format!("the bare lock is taken: {other:?}"))),
        }
    }

    async fn release(&mut self) -> Result {
        let mut call = cmd("EVALSHA");
        call.arg(&self.release).arg(3).arg(&self.key).arg(&self.fence).arg(&self.queue).arg(&self.owner);
        released(call.query_async(&mut self.connection).await?)
    }
}

fn released(count: u32) -> Result {
    if count == 1 { Ok(()) } else { Err(Failure::new("the lock was not held")) }
}

const DELETE_IF_OWNER: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// `SET NX PX`, and a script that deletes.
struct Unfenced;

#[async_trait]
impl Contender for Unfenced {
    fn who(&self) -> record::Contender {
        rust("raw, unfenced", Kind::Unfenced, VERSION)
    }

    fn lacks(&self, workload: Workload) -> Option<&str> {
        no_wait(workload)
    }

    async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
        let mut connection = dial(place).await?;
        let delete = Script::new(DELETE_IF_OWNER);
        delete.load_async(&mut connection).await?;
        Ok(Arc::new(UnfencedClient { connection, delete }))
    }
}

struct UnfencedClient {
    connection: MultiplexedConnection,
    delete: Script,
}

#[async_trait]
impl Client for UnfencedClient {
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        Ok(Box::new(UnfencedLock {
            connection: self.connection.clone(),
            delete: self.delete.get_hash().into(),
            key: format!("{name}-unfenced"),
            owner: String::new(),
        }))
    }
}

struct UnfencedLock {
    connection: MultiplexedConnection,
    delete: String,
    key: String,
    owner: String,
}

#[async_trait]
impl Lock for UnfencedLock {
    async fn acquire(&mut self) -> Result {
        self.owner = polylock::Owner::random()?.to_hex();
        let mut set = cmd("SET");
        set.arg(&self.key).arg(&self.owner).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        let set: Option<String> = set.query_async(&mut self.connection).await?;
        set.map(drop).ok_or_else(|| Failure::new("the unfenced lock is taken"))
    }

    async fn release(&mut self) -> Result {
        let mut call = cmd("EVALSHA");
        call.arg(&self.delete).arg(1).arg(&self.key).arg(&self.owner);
        released(call.query_async(&mut self.connection).await?)
    }
}

/// Redisson's documented scheme, in small: who is refused subscribes to the lock's channel, on a connection that
/// is there for subscriptions; a release publishes, which wakes one waiter of each process; the woken race for
/// the lock.
struct SubscribeAndRace;

const TAKE: &str = "if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then \
                    redis.call('HINCRBY', KEYS[1], ARGV[2], 1) redis.call('PEXPIRE', KEYS[1], ARGV[1]) \
                    return false end return redis.call('PTTL', KEYS[1])";
const GIVE: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end \
                    if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 2 end \
                    redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[2], '0') return 1";

#[async_trait]
impl Contender for SubscribeAndRace {
    fn who(&self) -> record::Contender {
        rust("subscribe and race (Redisson's scheme)", Kind::Peer, VERSION)
    }

    fn lacks(&self, workload: Workload) -> Option<&str> {
        matches!(workload, Workload::Holding | Workload::HoldingMany | Workload::Crash)
            .then_some("the stand-in has no renewals")
    }

    async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
        let channels = Arc::new(Channels::default());
        let heard = channels.clone();
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            if let (PushKind::Message, Some(Value::BulkString(channel))) = (push.kind, push.data.first()) {
                heard.wake(&String::from_utf8_lossy(channel));
            }
            Ok::<(), Infallible>(())
        });
        let subscriptions = dial_with(place, config).await?;
        let mut connection = dial(place).await?;
        let scripts = [Script::new(TAKE), Script::new(GIVE)];
        for script in &scripts {
            script.load_async(&mut connection).await?;
        }
        Ok(Arc::new(RaceClient { connection, subscriptions, scripts, channels, next: AtomicU64::new(0) }))
    }
}

/// Who waits for a message of a channel: one at a time is told.
#[derive(Default)]
struct Channels(Mutex<HashMap<String, Arc<Channel>>>);

struct Channel {
    permits: tokio::sync::Semaphore,
    subscribed: watch::Sender<bool>,
}

impl Channels {
    fn of(&self, name: &str) -> Arc<Channel> {
        let mut channels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            Arc::new(Channel {
                permits: tokio::sync::Semaphore::new(0),
                subscribed: watch::Sender::new(false),
            })
        };
        channels.entry(name.into()).or_insert_with(make).clone()
    }

    fn wake(&self, name: &str) {
        let channel = self.of(name);
        // A message that nobody waits for is kept once, as Redisson's latch does.
        if channel.permits.available_permits() == 0 {
            channel.permits.add_permits(1);
        }
    }
}

struct RaceClient {
    connection: MultiplexedConnection,
    subscriptions: MultiplexedConnection,
    scripts: [Script; 2],
    channels: Arc<Channels>,
    next: AtomicU64,
}

#[async_trait]
impl Client for RaceClient {
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        let key = format!("{{{name}-race}}");
        let channel = format!("{key}:channel");
        Ok(Box::new(RaceLock {
            connection: self.connection.clone(),
            subscriptions: self.subscriptions.clone(),
            hashes: [0, 1].map(|i| self.scripts[i].get_hash().to_owned()),
            owner: format!("{}:{}", polylock::Owner::random()?.to_hex(), self.next.fetch_add(1, Relaxed)),
            told: self.channels.of(&channel),
            key,
            channel,
        }))
    }
}

struct RaceLock {
    connection: MultiplexedConnection,
    subscriptions: MultiplexedConnection,
    hashes: [String; 2],
    key: String,
    channel: String,
    owner: String,
    told: Arc<Channel>,
}

impl RaceLock {
    /// `None` if it is held now, else when the holder's lease ends.
    async fn take(&mut self) -> Result<Option<Duration>> {
        let mut call = cmd("EVALSHA");
        call.arg(&self.hashes[0]).arg(1).arg(&self.key).arg(LEASE.as_millis() as u64).arg(&self.owner);
        let left: Option<i64> = call.query_async(&mut self.connection).await?;
        Ok(left.map(|left| Duration::from_millis(left.max(0).unsigned_abs())))
    }

    /// The first who waits subscribes for the whole process; this stand-in stays subscribed.
    async fn subscribe(&mut self) -> Result {
        if self.told.subscribed.send_if_modified(|subscribed| !std::mem::replace(subscribed, true)) {
            cmd("SUBSCRIBE").arg(&self.channel).exec_async(&mut self.subscriptions).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Lock for RaceLock {
    async fn acquire(&mut self) -> Result {
        if self.take().await?.is_none() {
            return Ok(());
        }
        self.subscribe().await?;
        while let Some(left) = self.take().await? {
            if let Ok(Ok(permit)) = timeout(left, self.told.permits.acquire()).await {
                permit.forget();
            }
        }
        Ok(())
    }

    async fn release(&mut self) -> Result {
        let mut call = cmd("EVALSHA");
        call.arg(&self.hashes[1]).arg(2).arg(&self.key).arg(&self.channel).arg(&self.owner);
        released(call.query_async(&mut self.connection).await?)
    }
}
