//! What a server tells of itself: its version, what a write survives, and how many commands it has run.

#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
mod none;
pub(crate) mod process;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::{failure::Result, place::Place, record};

/// A server that is measured, looked at from outside the locks.
#[async_trait]
pub(crate) trait Server: Send + Sync {
    /// What it is.
    async fn describe(&mut self) -> Result<record::Server>;

    /// The commands that it has run so far; `None` if it does not tell.
    async fn commands(&mut self) -> Option<Commands> {
        None
    }

    /// Removes what a run left there.
    async fn tidy(&mut self) -> Result {
        Ok(())
    }
}

/// Commands since the server's start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands {
    pub(crate) total: f64,
    pub(crate) by_kind: BTreeMap<String, f64>,
}

impl Commands {
    /// What came since an earlier look, each second.
    pub(crate) fn since(&self, before: &Self, seconds: f64) -> Self {
        let rate = |now: f64, then: f64| ((now - then) / seconds).max(0.0);
        let by_kind = self.by_kind.iter().map(|(kind, count)| {
            (kind.clone(), rate(*count, before.by_kind.get(kind).copied().unwrap_or(0.0)))
        });
        Self {
            total: rate(self.total, before.total),
            by_kind: by_kind.filter(|(_, rate)| *rate > 0.0).collect(),
        }
    }
}

/// Connects to the server of a place.
pub(crate) async fn of(place: &Place) -> Result<Box<dyn Server>> {
    Ok(match place.backend() {
        #[cfg(feature = "redis")]
        "redis" => Box::new(redis::Redis::connect(place).await?),
        #[cfg(feature = "etcd")]
        "etcd" => Box::new(etcd::Etcd::connect(place).await?),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => Box::new(zookeeper::ZooKeeper::connect(place).await?),
        #[cfg(feature = "mysql")]
        "mysql" => Box::new(mysql::Mysql::connect(place).await?),
        _ => Box::new(none::NoServer::new(place)),
    })
}

/// The process ids of the servers of a place that run on this machine.
pub(crate) fn processes(place: &Place) -> Vec<u32> {
    let usual = match place.backend() {
        "redis" => 6379,
        "etcd" => 2379,
        "zookeeper" => 2181,
        "mysql" => 3306,
        _ => return Vec::new(),
    };
    let Ok((addresses, _)) = place.addresses(usual) else { return Vec::new() };
    let mut found: Vec<_> =
        addresses.iter().flat_map(|address| process::listening(&address.host, address.port)).collect();
    found.sort_unstable();
    found.dedup();
    found
}
