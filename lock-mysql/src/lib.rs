#![doc = include_str!("../README.md")]

mod backend;
mod options;

mod acquires;
mod bell;
mod crowd;
mod dial;
mod error;
mod pool;
mod renewals;
mod server;
mod statements;
mod store;
mod table;

use lock_core::{Backend, Driver};

pub use backend::MysqlBackend;
pub use options::MysqlOptions;

/// `mysql://` and `mariadb://` URLs.
pub const DRIVER: Driver = Driver {
    name: "mysql",
    schemes: &["mysql", "mariadb"],
    example: "mysql://locks@127.0.0.1:3306/app?password_file=/run/secrets/mysql",
    guarantees: server::least,
    connect: |url| {
        Box::pin(async move {
            let backend = MysqlBackend::connect(MysqlOptions::from_url(url)?).await?;
            Ok(Box::new(backend) as Box<dyn Backend>)
        })
    },
    key: |url, name| {
        let options = MysqlOptions::from_url(url.clone())?;
        Ok(options.table.row(&options.database, name))
    },
};
