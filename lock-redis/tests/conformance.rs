//! Redis, configured to keep what it answered, against the suite.

use std::{io, process::ExitCode};

use async_trait::async_trait;
use lock_conformance::{Fixture, Need, Server, servers::Redis};
use lock_core::{Backend, Fault, Guarantees, Name, Result, Url, Wakeup};
use lock_redis::DRIVER;

fn main() -> ExitCode {
    lock_conformance::main(RedisFixture)
}

#[derive(Debug)]
struct RedisFixture;

#[async_trait]
impl Fixture for RedisFixture {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = (DRIVER.guarantees)();
        guarantees.exclusion = guarantees.exclusion.with(Fault::ServerRestart).with(Fault::Eviction);
        guarantees.wakeup = Wakeup::Push;
        guarantees
    }

    fn offers(&self) -> &'static [Need] {
        Redis::OFFERS
    }

    fn serve(&self) -> io::Result<Box<dyn Server>> {
        Ok(Box::new(Redis::start(Redis::DURABLE)?))
    }

    async fn connect(&self, url: &str) -> Result<Box<dyn Backend>> {
        (DRIVER.connect)(Url::parse(url)?).await
    }

    fn record(&self, url: &str, name: &Name) -> Result<String> {
        (DRIVER.key)(&Url::parse(url)?, name)
    }
}
