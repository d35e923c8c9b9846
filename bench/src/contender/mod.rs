//! What is measured: our locks, the bare driver, and other lock libraries, all behind two small traits.

#[cfg(feature = "etcd")]
mod etcd;
mod foreign;
#[cfg(feature = "mysql")]
mod mysql;
mod ours;
#[cfg(feature = "peers")]
mod peers;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::sync::Arc;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "redis"))]
use std::time::Duration;

use async_trait::async_trait;
pub(crate) use foreign::Foreign;
pub(crate) use ours::{Ours, Renewals, Watched, connect};

use crate::{
    failure::{Failure, Result},
    measure::now,
    place::Place,
    record::{self, Kind, Workload},
};

/// One way to lock, before there is a connection.
#[async_trait]
pub(crate) trait Contender: Send + Sync {
    /// Who it is, for the record.
    fn who(&self) -> record::Contender;

    /// Why it cannot take part.
    fn lacks(&self, _workload: Workload) -> Option<&str> {
        None
    }

    /// Connects: all that is set up once by a process.
    async fn open(&self, place: &Place) -> Result<Arc<dyn Client>>;
}

/// What a process has one of.
#[async_trait]
pub(crate) trait Client: Send + Sync {
    /// A handle on one name, for one task.
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>>;

    /// A peer in another process, which measures itself.
    fn foreign(&self) -> Option<&Foreign> {
        None
    }

    /// Gives back what would outlive the process.
    async fn close(&self) {}
}

/// A name that is held or not.
#[async_trait]
pub(crate) trait Lock: Send {
    /// Waits until it is held.
    async fn acquire(&mut self) -> Result;

    /// Lets it go, and waits for the server's word where the library can.
    async fn release(&mut self) -> Result;

    /// Acquires and releases; how long each took, in nanoseconds.
    async fn pair(&mut self) -> Result<(u64, u64)> {
        let begin = now();
        self.acquire().await?;
        let held = now();
        self.release().await?;
        Ok((held - begin, now() - held))
    }
}

/// Everyone who locks on this backend, we first.
pub(crate) fn on(backend: &str, peers: bool) -> Vec<Box<dyn Contender>> {
    let mut all: Vec<Box<dyn Contender>> = vec![Box::new(Ours)];
    match backend {
        #[cfg(feature = "redis")]
        "redis" => redis::add(&mut all, peers),
        #[cfg(feature = "etcd")]
        "etcd" => etcd::add(&mut all),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => zookeeper::add(&mut all),
        #[cfg(feature = "mysql")]
        "mysql" => mysql::add(&mut all),
        _ => {}
    }
    #[cfg(feature = "peers")]
    if peers {
        peers::add(backend, &mut all);
    }
    if peers {
        foreign::add(backend, &mut all);
    }
    all
}

/// The one of this name.
pub(crate) fn named(backend: &str, name: &str) -> Result<Box<dyn Contender>> {
    let found = on(backend, true).into_iter().find(|contender| contender.who().name == name);
    found.ok_or_else(|| Failure::new(format!("there is no contender {name:?} on {backend}")))
}

/// Why the bare statements take no part where somebody waits.
#[cfg(any(feature = "etcd", feature = "mysql", feature = "redis", feature = "zookeeper"))]
fn no_wait(workload: Workload) -> Option<&'static str> {
    let waits = !matches!(workload, Workload::Uncontended | Workload::Throughput);
    waits.then_some("the bare statements do not wait")
}

fn rust(name: &str, kind: Kind, version: &str) -> record::Contender {
    record::Contender { name: name.into(), kind, language: "Rust".into(), version: version.into() }
}

/// Leases of the bare driver: longer than anybody measures.
#[cfg(any(feature = "etcd", feature = "mysql", feature = "redis"))]
const LEASE: Duration = Duration::from_secs(300);
