//! Redis, configured to forget, against the suite: what is not promised is seen to be absent.

mod fixture;

use std::process::ExitCode;

use fixture::RedisFixture;
use lock_conformance::servers::Redis;

fn main() -> ExitCode {
    lock_conformance::main(RedisFixture { name: "redis-volatile", settings: Redis::VOLATILE, survives: &[] })
}
