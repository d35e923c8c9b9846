//! Redis, configured to keep what it answered, against the suite.

mod fixture;

use std::process::ExitCode;

use fixture::RedisFixture;
use lock_conformance::servers::Redis;
use lock_core::Fault;

fn main() -> ExitCode {
    lock_conformance::main(RedisFixture {
        name: "redis",
        settings: Redis::DURABLE,
        survives: &[Fault::ServerRestart, Fault::Eviction],
    })
}
