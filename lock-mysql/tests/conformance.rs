//! The shared suite against MariaDB.

use std::{io, process::ExitCode};

use async_trait::async_trait;
use lock_conformance::{Fixture, Need, Server, servers::Mysql};
use lock_core::{Backend, Fault, Guarantees, Name, Result, Url, Wakeup};
use lock_mysql::DRIVER;

fn main() -> ExitCode {
    lock_conformance::main(MariaDbFixture)
}

/// A server as it comes.
#[derive(Debug)]
struct MariaDbFixture;

#[async_trait]
impl Fixture for MariaDbFixture {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = (DRIVER.guarantees)();
        guarantees.exclusion = guarantees.exclusion.with(Fault::ServerRestart);
        guarantees.wakeup = Wakeup::Push;
        guarantees
    }

    fn offers(&self) -> &'static [Need] {
        Mysql::OFFERS
    }

    fn serve(&self) -> io::Result<Box<dyn Server>> {
        Ok(Box::new(Mysql::mariadb(&[])?))
    }

    async fn connect(&self, url: &str) -> Result<Box<dyn Backend>> {
        (DRIVER.connect)(Url::parse(url)?).await
    }

    fn record(&self, url: &str, name: &Name) -> Result<String> {
        (DRIVER.key)(&Url::parse(url)?, name)
    }
}
