//! Servers that fixtures and other tests share, each a child process of the test's own.

mod clock;
mod directory;
mod etcd;
mod mysql;
mod redis;
mod resp;
mod scratch;
mod zookeeper;

pub use directory::Directory;
pub use etcd::Etcd;
pub use mysql::Mysql;
pub use redis::Redis;
pub(crate) use scratch::{Scratch, scratch, shared};
pub use zookeeper::ZooKeeper;

/// What a test program that starts servers, but is not the suite, does first in its `main`, which needs
/// `harness = false`: if this process was started to become a server, it does, and does not come back but
/// with an exit code.
#[must_use]
pub fn reexecuted() -> Option<std::process::ExitCode> {
    crate::process::become_guarded()
}
