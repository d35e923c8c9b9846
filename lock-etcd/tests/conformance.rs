//! One etcd against the suite.

mod fixture;

use std::process::ExitCode;

use fixture::EtcdFixture;

fn main() -> ExitCode {
    lock_conformance::main(EtcdFixture { name: "etcd", cluster_of: None })
}
