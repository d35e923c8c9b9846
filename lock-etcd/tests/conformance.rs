//! One etcd against the suite.

use std::{io, process::ExitCode, time::Duration};

use async_trait::async_trait;
use lock_conformance::{Fixture, Need, Server, servers::Etcd};
use lock_core::{Backend, Guarantees, Name, Result, Url};
use lock_etcd::DRIVER;

fn main() -> ExitCode {
    lock_conformance::main(EtcdFixture)
}

#[derive(Debug)]
struct EtcdFixture;

#[async_trait]
impl Fixture for EtcdFixture {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn guarantees(&self) -> Guarantees {
        (DRIVER.guarantees)()
    }

    fn offers(&self) -> &'static [Need] {
        Etcd::OFFERS
    }

    /// With the grace that is a whole second, which is the shortest lease.
    fn ttl(&self) -> Duration {
        Duration::from_millis(900)
    }

    fn serve(&self) -> io::Result<Box<dyn Server>> {
        Ok(Box::new(Etcd::start()?))
    }

    async fn connect(&self, url: &str) -> Result<Box<dyn Backend>> {
        (DRIVER.connect)(Url::parse(url)?).await
    }

    fn record(&self, url: &str, name: &Name) -> Result<String> {
        (DRIVER.key)(&Url::parse(url)?, name)
    }
}
