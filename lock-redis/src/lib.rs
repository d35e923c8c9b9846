#![doc = include_str!("../README.md")]

mod backend;
mod options;

mod connection;
mod dial;
mod error;
mod keys;
mod link;
mod scripts;
mod server;
mod tls;
mod wake;

use lock_core::{Backend, Driver};

pub use backend::RedisBackend;
pub use options::{Protocol, RedisOptions};

/// `redis://` and `rediss://` URLs.
pub const DRIVER: Driver = Driver {
    name: "redis",
    schemes: &["redis", "rediss"],
    example: "redis://127.0.0.1:6379",
    guarantees: server::least,
    connect: |url| {
        Box::pin(async move {
            let backend = RedisBackend::connect(RedisOptions::from_url(url)?).await?;
            Ok(Box::new(backend) as Box<dyn Backend>)
        })
    },
    key: |url, name| Ok(RedisOptions::from_url(url.clone())?.prefix.keys(name).lock),
};
