//! Redis.

use async_trait::async_trait;
use polylock::{Address, Name};
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, aio::MultiplexedConnection, cmd};
use tokio::net::TcpStream;

use super::{Commands, Server};
use crate::{
    failure::{Failure, Result},
    place::Place,
    record,
    workload::names,
};

pub(super) struct Redis {
    connection: MultiplexedConnection,
    place: Place,
}

/// A connection as our backend makes it.
pub(crate) async fn dial(place: &Place) -> Result<MultiplexedConnection> {
    dial_with(place, AsyncConnectionConfig::new()).await
}

pub(crate) async fn dial_with(place: &Place, config: AsyncConnectionConfig) -> Result<MultiplexedConnection> {
    if place.parsed()?.scheme() != "redis" {
        return Err(Failure::new("the bare driver is measured without TLS only"));
    }
    let (addresses, database) = place.addresses(6379)?;
    let Address { host, port, .. } =
        addresses.first().ok_or_else(|| Failure::new("the URL names no server"))?;
    let socket = TcpStream::connect((host.as_str(), *port)).await?;
    socket.set_nodelay(true)?;
    let (user, password) = place.credentials()?;
    let mut who = RedisConnectionInfo::default()
        .set_db(database.parse().unwrap_or(0))
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    if let Some(user) = user {
        who = who.set_username(user);
    }
    if let Some(password) = password {
        who = who.set_password(password);
    }
    let config = config.set_response_timeout(None);
    let (connection, driver) = MultiplexedConnection::new_with_config(&who, socket, config).await?;
    tokio::spawn(driver);
    Ok(connection)
}

impl Redis {
    pub(super) async fn connect(place: &Place) -> Result<Self> {
        Ok(Self { connection: dial(place).await?, place: place.clone() })
    }

    async fn info(&mut self, section: &str) -> Result<String> {
        Ok(cmd("INFO").arg(section).query_async(&mut self.connection).await?)
    }

    /// A setting, or that the server does not tell it to this user.
    async fn setting(&mut self, name: &str) -> String {
        let told: redis::RedisResult<Vec<(String, String)>> =
            cmd("CONFIG").arg("GET").arg(name).query_async(&mut self.connection).await;
        let value = told.ok().and_then(|pairs| pairs.into_iter().next());
        value.map_or_else(
            || format!("{name} not told"),
            |(name, value)| format!("{name} {value}").trim_end().to_owned(),
        )
    }
}

/// Of `INFO replication`.
fn topology(told: &str) -> String {
    match told.lines().find_map(|line| line.strip_prefix("connected_slaves:")).map(str::trim) {
        None => "not told".into(),
        Some("0") => "one server".into(),
        Some("1") => "one primary, 1 replica".into(),
        Some(replicas) => format!("one primary, {replicas} replicas"),
    }
}

#[async_trait]
impl Server for Redis {
    async fn describe(&mut self) -> Result<record::Server> {
        let about = self.info("server").await?;
        let version = about.lines().find_map(|line| line.strip_prefix("redis_version:"));
        let append = self.setting("appendonly").await;
        let durability = if append.ends_with("yes") {
            format!("{append}, {}", self.setting("appendfsync").await)
        } else {
            append
        };
        Ok(record::Server {
            backend: "redis".into(),
            url: self.place.shown(),
            version: version.unwrap_or("not told").into(),
            durability,
            topology: topology(&self.info("replication").await.unwrap_or_default()),
        })
    }

    /// What scripts call is counted, too.
    async fn commands(&mut self) -> Option<Commands> {
        let told = self.info("commandstats").await.ok()?;
        let mut commands = Commands::default();
        for line in told.lines() {
            let Some((kind, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':'))
            else {
                continue;
            };
            let calls =
                rest.strip_prefix("calls=").and_then(|rest| rest.split(',').next()?.parse::<f64>().ok());
            // Those are our own questions.
            if kind != "info" {
                commands.total += calls?;
                commands.by_kind.insert(kind.to_lowercase(), calls?);
            }
        }
        Some(commands)
    }

    /// Counters of fencing tokens outlive their locks; locks whose holder was killed, a lease.
    async fn tidy(&mut self) -> Result {
        let key = self.place.driver()?.key;
        let url = self.place.parsed()?;
        let mut keys = Vec::new();
        for name in names(&self.place) {
            for name in [name.clone(), format!("{name}-raw")] {
                let lock = key(&url, &Name::new(name)?)?;
                keys.push(format!("{lock}:fence"));
                keys.push(lock);
            }
            keys.push(format!("{name}-unfenced"));
            keys.push(format!("{{{name}-race}}"));
            keys.push(format!("{name}-rslock"));
            keys.push(format!("distributed-lock:{name}"));
            keys.push(format!("{name}-redis-py"));
        }
        for some in keys.chunks(1_000) {
            let mut unlink = cmd("UNLINK");
            unlink.arg(some);
            unlink.query_async::<u64>(&mut self.connection).await?;
        }
        Ok(())
    }
}
