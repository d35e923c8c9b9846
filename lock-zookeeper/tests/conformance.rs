//! The shared suite against a ZooKeeper server.

mod fixture;

use std::{process::ExitCode, time::Duration};

use fixture::ZooKeeperFixture;
use lock_conformance::servers::ZooKeeper;

fn main() -> ExitCode {
    lock_conformance::main(ZooKeeperFixture {
        name: "zookeeper",
        start: ZooKeeper::start,
        ttl: Duration::from_secs(1),
    })
}
