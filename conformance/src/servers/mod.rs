//! Servers that several fixtures share: a directory, and a `redis-server` of the suite's own.

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
pub(crate) use scratch::scratch;
pub use zookeeper::ZooKeeper;
