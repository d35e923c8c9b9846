//! The shared suite against Oracle's MySQL: the `mysqld` that `POLYLOCK_MYSQLD` names, or that of the `PATH`.

use std::{io, process::ExitCode, time::Duration};

use async_trait::async_trait;
use lock_conformance::{Fixture, Need, Server, servers::Mysql};
use lock_core::{Backend, Fault, Guarantees, Name, Result, Url, Wakeup};
use lock_mysql::DRIVER;

fn main() -> ExitCode {
    if Mysql::find_oracle().is_none() {
        eprintln!(
            "\n*** MYSQL IS NOT TESTED: neither POLYLOCK_MYSQLD nor the PATH has a mysqld of Oracle's. ***\n"
        );
        return ExitCode::SUCCESS;
    }
    lock_conformance::main(OracleFixture)
}

/// A server as it comes.
#[derive(Debug)]
struct OracleFixture;

#[async_trait]
impl Fixture for OracleFixture {
    fn name(&self) -> &'static str {
        "mysql"
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

    /// It takes seconds to start again after a kill, which holders must outlive.
    fn ttl(&self) -> Duration {
        Duration::from_millis(1500)
    }

    fn serve(&self) -> io::Result<Box<dyn Server>> {
        let program = Mysql::find_oracle().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Mysql::oracle(program, &[])?))
    }

    async fn connect(&self, url: &str) -> Result<Box<dyn Backend>> {
        (DRIVER.connect)(Url::parse(url)?).await
    }

    fn record(&self, url: &str, name: &Name) -> Result<String> {
        (DRIVER.key)(&Url::parse(url)?, name)
    }
}
