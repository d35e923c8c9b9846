#![doc = include_str!("../README.md")]

mod backend;
mod options;

mod ahead;
mod claims;
mod dial;
mod error;
mod own;
mod place;
mod promises;
mod pulse;
mod queue;
mod reaper;
mod session;
mod sessions;
mod vigil;

use lock_core::{Backend, Driver};

pub use backend::ZookeeperBackend;
pub use options::ZookeeperOptions;

/// `zookeeper://` URLs.
pub const DRIVER: Driver = Driver {
    name: "zookeeper",
    schemes: &["zookeeper"],
    example: "zookeeper://zk1:2181,zk2:2181,zk3:2181/locks",
    guarantees: promises::least,
    connect: |url| {
        Box::pin(async move {
            let backend = ZookeeperBackend::connect(ZookeeperOptions::from_url(url)?).await?;
            Ok(Box::new(backend) as Box<dyn Backend>)
        })
    },
    key: |url, name| Ok(ZookeeperOptions::from_url(url.clone())?.root.directory(name)),
};
