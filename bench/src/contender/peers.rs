//! Other lock libraries in Rust, each used as its documentation shows.

use std::sync::Arc;

use async_trait::async_trait;

#[cfg(any(feature = "etcd", feature = "redis"))]
use super::LEASE;
use super::{Client, Contender, Lock, rust};
use crate::{
    failure::{Failure, Result},
    place::Place,
    record::{self, Kind, Workload},
};

pub(super) fn add(backend: &str, all: &mut Vec<Box<dyn Contender>>) {
    match backend {
        #[cfg(feature = "redis")]
        "redis" => {
            all.extend([Box::new(redis::Rslock) as Box<dyn Contender>, Box::new(redis::DistributedLock)])
        }
        #[cfg(feature = "etcd")]
        "etcd" => all.push(Box::new(etcd::LockCall)),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => all.push(Box::new(zookeeper::LockRecipe)),
        _ => {}
    }
}

/// Peers are measured where they acquire and release; each renews in a way of its own, or not at all.
fn no_renewal(workload: Workload) -> Option<&'static str> {
    matches!(workload, Workload::Holding | Workload::HoldingMany | Workload::Crash)
        .then_some("not measured of peers")
}

#[cfg(feature = "redis")]
mod redis {
    use distributed_lock_core::{DistributedLock as _, LockHandle, LockProvider};
    use distributed_lock_redis::{RedisDistributedLock, RedisLockHandle, RedisLockProvider};
    use fred::{clients::RedisClient, interfaces::ClientLike, types::RedisConfig};
    use rslock::{LockGuard, LockManager};

    use super::*;

    /// The URL as peers take it.
    fn plain_url(place: &Place) -> Result<String> {
        let (addresses, database) = place.addresses(6379)?;
        let address = addresses.first().ok_or_else(|| Failure::new("the URL names no server"))?;
        if place.credentials()? != (None, None) || place.parsed()?.scheme() != "redis" {
            return Err(Failure::new("measured without password and TLS only"));
        }
        Ok(format!("redis://{address}/{database}"))
    }

    /// Polls; no fencing, no renewal.
    pub(super) struct Rslock;

    #[async_trait]
    impl Contender for Rslock {
        fn who(&self) -> record::Contender {
            rust("rslock", Kind::Peer, "0.10.0")
        }

        fn lacks(&self, workload: Workload) -> Option<&str> {
            no_renewal(workload)
        }

        async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
            Ok(Arc::new(Manager(LockManager::new(vec![plain_url(place)?]))))
        }
    }

    struct Manager(LockManager);

    #[async_trait]
    impl Client for Manager {
        fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
            Ok(Box::new(Handle { manager: self.0.clone(), key: format!("{name}-rslock"), guard: None }))
        }
    }

    struct Handle {
        manager: LockManager,
        key: String,
        guard: Option<LockGuard>,
    }

    #[async_trait]
    impl Lock for Handle {
        async fn acquire(&mut self) -> Result {
            self.guard = Some(self.manager.acquire(self.key.as_str(), LEASE).await?);
            Ok(())
        }

        async fn release(&mut self) -> Result {
            let guard = self.guard.take().ok_or_else(|| Failure::new("not held"))?;
            guard.release().await;
            Ok(())
        }
    }

    /// Asks once, whatever the timeout; no fencing; renews.
    pub(super) struct DistributedLock;

    #[async_trait]
    impl Contender for DistributedLock {
        fn who(&self) -> record::Contender {
            rust("distributed-lock-redis", Kind::Peer, "0.2.0")
        }

        fn lacks(&self, workload: Workload) -> Option<&str> {
            let waits =
                matches!(workload, Workload::HandoverWithin | Workload::HandoverBetween | Workload::Waiting);
            let why = waits.then_some("it does not wait: if the lock is held, acquire fails at once");
            why.or_else(|| no_renewal(workload))
        }

        async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
            // As the provider connects by itself; but its own connection would outlive it.
            let config = RedisConfig::from_url(&plain_url(place)?)?;
            let connection = RedisClient::new(config, None, None, None);
            connection.connect();
            connection.wait_for_connect().await?;
            let provider = RedisLockProvider::builder().client(connection.clone()).build().await?;
            Ok(Arc::new(Provider { provider, connection }))
        }
    }

    struct Provider {
        provider: RedisLockProvider,
        connection: RedisClient,
    }

    #[async_trait]
    impl Client for Provider {
        fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
            // On the server, the key is `distributed-lock:` and this.
            Ok(Box::new(Named { lock: self.provider.create_lock(name), handle: None }))
        }

        async fn close(&self) {
            let _ = self.connection.quit().await;
        }
    }

    struct Named {
        lock: RedisDistributedLock,
        handle: Option<RedisLockHandle>,
    }

    #[async_trait]
    impl Lock for Named {
        async fn acquire(&mut self) -> Result {
            self.handle = Some(self.lock.acquire(None).await?);
            Ok(())
        }

        async fn release(&mut self) -> Result {
            let handle = self.handle.take().ok_or_else(|| Failure::new("not held"))?;
            Ok(handle.release().await?)
        }
    }
}

#[cfg(feature = "etcd")]
mod etcd {
    use etcd_client::{Client as Driver, LockOptions};

    use super::*;

    /// The server's own Lock call; the revision of its key could fence.
    pub(super) struct LockCall;

    #[async_trait]
    impl Contender for LockCall {
        fn who(&self) -> record::Contender {
            rust("etcd-client lock()", Kind::Peer, "0.21")
        }

        fn lacks(&self, workload: Workload) -> Option<&str> {
            no_renewal(workload)
        }

        async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
            let mut driver = crate::server::etcd::dial(place).await?;
            let ttl = LEASE.as_secs().cast_signed();
            let first = driver.lease_grant(ttl, None).await?.id();
            let leases = Arc::new(tokio::sync::Mutex::new(vec![first]));
            Ok(Arc::new(Server { driver, leases }))
        }
    }

    /// A lease holds a name once: those that contend for one name have a lease each.
    struct Server {
        driver: Driver,
        leases: Arc<tokio::sync::Mutex<Vec<i64>>>,
    }

    #[async_trait]
    impl Client for Server {
        fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
            let (driver, leases) = (self.driver.clone(), self.leases.clone());
            Ok(Box::new(Handle {
                driver,
                leases,
                name: format!("{name}-call"),
                lease: None,
                key: Vec::new(),
            }))
        }

        async fn close(&self) {
            for lease in self.leases.lock().await.drain(..) {
                let _ = self.driver.lease_client().revoke(lease).await;
            }
        }
    }

    struct Handle {
        driver: Driver,
        leases: Arc<tokio::sync::Mutex<Vec<i64>>>,
        name: String,
        lease: Option<i64>,
        key: Vec<u8>,
    }

    #[async_trait]
    impl Lock for Handle {
        async fn acquire(&mut self) -> Result {
            let lease = match self.lease {
                Some(lease) => lease,
                None => {
                    let made = self.driver.lease_grant(LEASE.as_secs().cast_signed(), None).await?.id();
                    self.leases.lock().await.push(made);
                    self.lease = Some(made);
                    made
                }
            };
            let options = LockOptions::new().with_lease(lease);
            self.key = self.driver.lock(self.name.as_str(), Some(options)).await?.key().to_vec();
            Ok(())
        }

        async fn release(&mut self) -> Result {
            self.driver.unlock(std::mem::take(&mut self.key)).await?;
            Ok(())
        }
    }
}

#[cfg(feature = "zookeeper")]
mod zookeeper {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use zookeeper_client::{Acls, Client as Driver, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

    use super::*;
    use crate::server::zookeeper::{base, dial, make};

    /// The driver's own recipe. Its release is a deletion in the background, whose end cannot be awaited.
    pub(super) struct LockRecipe;

    #[async_trait]
    impl Contender for LockRecipe {
        fn who(&self) -> record::Contender {
            rust("zookeeper-client LockClient", Kind::Peer, "0.11.2")
        }

        fn lacks(&self, workload: Workload) -> Option<&str> {
            no_renewal(workload)
        }

        async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
            let (driver, acls) = dial(place).await?;
            let base = base(place)?;
            make(&driver, &base, acls).await?;
            Ok(Arc::new(Session { driver, acls, base, next: AtomicU64::new(0) }))
        }
    }

    struct Session {
        driver: Driver,
        acls: Acls<'static>,
        base: String,
        next: AtomicU64,
    }

    #[async_trait]
    impl Client for Session {
        fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
            Ok(Box::new(Handle {
                driver: self.driver.clone(),
                acls: self.acls,
                // No two handles of a session may share a prefix.
                prefix: format!("{}/{name}-recipe/{}-lock-", self.base, self.next.fetch_add(1, Relaxed)),
                held: None,
            }))
        }
    }

    struct Handle {
        driver: Driver,
        acls: Acls<'static>,
        prefix: String,
        held: Option<OwnedLockClient>,
    }

    #[async_trait]
    impl Lock for Handle {
        async fn acquire(&mut self) -> Result {
            let prefix = LockPrefix::new_custom(self.prefix.clone(), "-lock-")?;
            let parents = CreateMode::Persistent.with_acls(self.acls);
            let options = LockOptions::new(self.acls).with_ancestor_options(parents)?;
            self.held = Some(self.driver.lock(prefix, b"", options).await?.into_owned());
            Ok(())
        }

        async fn release(&mut self) -> Result {
            self.held.take().map(drop).ok_or_else(|| Failure::new("not held"))
        }
    }
}
