//! The shared suite against a ZooKeeper server.

use std::{io, net::SocketAddr, process::ExitCode, thread, time::Duration};

use async_trait::async_trait;
use lock_conformance::{Fixture, Lever, Need, Server, servers::ZooKeeper};
use lock_core::{Backend, Guarantees, Name, Result, Url};
use lock_zookeeper::{DRIVER, ZookeeperBackend, ZookeeperOptions};
use zookeeper_client::Client;

fn main() -> ExitCode {
    lock_conformance::main(ZooKeeperFixture)
}

#[derive(Debug)]
struct ZooKeeperFixture;

#[async_trait]
impl Fixture for ZooKeeperFixture {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = (DRIVER.guarantees)();
        guarantees.expiry_lag = 2 * ZooKeeper::TICK + Duration::from_millis(100);
        guarantees
    }

    fn offers(&self) -> &'static [Need] {
        &[Need::Wire, Need::ServerProcess, Need::DeleteRecord]
    }

    /// A session for this lasts 33 ticks, and one for a fifth of it still the six that it must.
    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn serve(&self) -> io::Result<Box<dyn Server>> {
        Ok(Box::new(WithClient(ZooKeeper::start()?)))
    }

    async fn connect(&self, url: &str) -> Result<Box<dyn Backend>> {
        let options = ZookeeperOptions::from_url(Url::parse(url)?)?;
        Ok(Box::new(ZookeeperBackend::connect(options).await?))
    }

    fn record(&self, url: &str, name: &Name) -> Result<String> {
        (DRIVER.key)(&Url::parse(url)?, name)
    }
}

/// A server, and an operator with a client to delete nodes by hand.
#[derive(Debug)]
struct WithClient(ZooKeeper);

impl WithClient {
    fn delete_children(&self, directory: &str) -> io::Result<()> {
        let address = self.0.address().to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Client::connect(&address).await.map_err(io::Error::other)?;
            for child in client.list_children(directory).await.map_err(io::Error::other)? {
                client.delete(&format!("{directory}/{child}"), None).await.map_err(io::Error::other)?;
            }
            Ok(())
        })
    }
}

impl Server for WithClient {
    fn url(&self, link: Option<SocketAddr>) -> String {
        self.0.url(link)
    }

    fn wire(&self) -> Option<SocketAddr> {
        self.0.wire()
    }

    fn pull(&self, lever: Lever<'_>) -> io::Result<()> {
        let Lever::DeleteRecord(directory) = lever else { return self.0.pull(lever) };
        // Not on a runtime's own thread.
        thread::scope(|scope| scope.spawn(|| self.delete_children(directory)).join())
            .unwrap_or_else(|_| Err(io::Error::other("the client panicked")))
    }
}
