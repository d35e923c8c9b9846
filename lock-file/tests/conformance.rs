//! The shared suite against a directory.

use std::{io, process::ExitCode};

use lock_conformance::{Fixture, Need, Server, servers::Directory};
use lock_core::{Backend, Guarantees, Name, Result, Url};
use lock_file::DRIVER;

/// A directory in memory, which promises a little less than one on a disk.
#[derive(Debug)]
struct FileFixture;

#[async_trait::async_trait]
impl Fixture for FileFixture {
    fn name(&self) -> &'static str {
        "file"
    }

    fn guarantees(&self) -> Guarantees {
        (DRIVER.guarantees)()
    }

    fn offers(&self) -> &'static [Need] {
        &[Need::DeleteRecord, Need::LoseData]
    }

    fn serve(&self) -> io::Result<Box<dyn Server>> {
        Ok(Box::new(Directory::new("file")?))
    }

    async fn connect(&self, url: &str) -> Result<Box<dyn Backend>> {
        (DRIVER.connect)(Url::parse(url)?).await
    }

    fn record(&self, url: &str, name: &Name) -> Result<String> {
        (DRIVER.key)(&Url::parse(url)?, name)
    }
}

fn main() -> ExitCode {
    lock_conformance::main(FileFixture)
}
