//! One distributed-lock API over the coordination servers that people already run.
//!
//! An application picks a backend by Cargo feature and by URL. It gets the same guard, the same loss
//! signal and the same fencing token behind every one of them, proved by one conformance suite.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = polylock::connect("memory:").await?; // or file:///var/lib/locks, redis://127.0.0.1
//! let lock = locks.lock("orders/42")?;
//!
//! let guard = lock.acquire().await?;
//! let token = guard.fencing_token(); // grows with every grant: send it along with every write
//! let charged = guard.run(async move { charge(token).await }).await?; // stopped if the lock is lost
//! guard.release().await?; // dropping the guard releases too, in the background
//! # assert!(charged);
//! # Ok(())
//! # }
//! # async fn charge(_: polylock::FencingToken) -> bool { true }
//! ```
//!
//! # A tour
//!
//! ## Waiting, or not
//!
//! [`Lock::acquire`] waits as long as others hold the lock. [`Lock::try_acquire`] asks once, and
//! [`Lock::acquire_within`] has a patience; both say `None` when another holds the lock. `None` is never
//! a guess: an unreachable server is an [`Error`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> polylock::Result<()> {
//! use std::time::Duration;
//!
//! let locks = polylock::connect("memory:").await?;
//! let lock = locks.lock("nightly-report")?;
//! let guard = lock.acquire().await?;
//!
//! assert!(lock.try_acquire().await?.is_none());
//! assert!(lock.acquire_within(Duration::from_millis(20)).await?.is_none());
//! guard.release().await?;
//! assert!(lock.try_acquire().await?.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! Every acquiring future may be dropped at any await: what it leaves on the server is removed in the
//! background. A lock is never re-entrant: a task is not a thread. Share a guard as `Arc<Guard>`.
//!
//! ## Losing a lock
//!
//! A server keeps a lock for a *lease*, which the guard's keeper renews. When no renewal is confirmed in
//! time (the network is down, the process was stopped) the lock is *lost*, and the guard says so before
//! anyone else can hold it: the server is asked for [`Options::grace`] more than the guard uses. Lost is
//! final.
//!
//! - [`Guard::run`] stops the work by dropping it, and returns the [`Loss`].
//! - [`Guard::lost`] is a future of the loss, and [`Guard::cancellation`] a `CancellationToken`, for work
//!   that must stop in its own way.
//! - [`Guard::ensure`] refuses to start a step that is longer than what is left of the lease.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> polylock::Result<()> {
//! use std::time::Duration;
//!
//! let locks = polylock::connect("memory:?max_hold=100ms").await?;
//! let guard = locks.lock("hung-task")?.acquire().await?;
//! let outcome = guard.run(std::future::pending::<()>()).await;
//! assert_eq!(outcome, Err(polylock::Loss::MaxHold));
//! assert!(!guard.is_held());
//! assert!(guard.ensure(Duration::from_secs(1)).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! ## Fencing
//!
//! No lock service can stop a client that passed its last check already and was paused before its write
//! arrived. The [fencing token](Guard::fencing_token) can, if the store that is written to refuses a
//! token smaller than the largest it has seen:
//!
//! ```sql
//! UPDATE orders SET state = 'charged', fence = :token WHERE id = 42 AND fence <= :token
//! ```
//!
//! ## What is promised
//!
//! Guarantees are data, as far as the server's configuration could be read. Require what you rely on;
//! an unmet requirement is an error at the start, not a surprise later.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> polylock::Result<()> {
//! use polylock::{Fault, Promise};
//!
//! let locks = polylock::connect("memory:").await?;
//! let error = locks.require([Promise::Fencing(Fault::DataLoss)]).unwrap_err();
//! assert_eq!(error.kind(), polylock::ErrorKind::Unmet);
//! # Ok(())
//! # }
//! ```
//!
//! # Cargo features
//!
//! | feature | default | URL |
//! | --- | --- | --- |
//! | `file` | yes | `file:///var/lib/locks`: the processes of one machine, no server |
//! | `memory` | yes | `memory:`: the tasks of one process, for tests |
//! | `redis` | no | `redis://…`, `rediss://…`: one Redis server |
//! | `etcd` | no | `etcd://…`, `etcds://…`: an etcd cluster; building it needs `protoc` |
//! | `zookeeper` | no | `zookeeper://…`: a ZooKeeper ensemble |
//! | `mysql` | no | `mysql://…`, `mariadb://…`: one MySQL or MariaDB server |
//! | `all` | no | all of these |
//!
//! A feature adds a backend and changes nothing else.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod drivers;

pub use drivers::drivers;
pub use lock_core::*;

/// Locks in a directory, across the processes of one machine.
#[cfg(feature = "file")]
#[cfg_attr(docsrs, doc(cfg(feature = "file")))]
pub use lock_file as file;

/// Locks on one Redis server.
#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub use lock_redis as redis;

/// Locks on an etcd cluster.
#[cfg(feature = "etcd")]
#[cfg_attr(docsrs, doc(cfg(feature = "etcd")))]
pub use lock_etcd as etcd;

/// Locks on a ZooKeeper ensemble.
#[cfg(feature = "zookeeper")]
#[cfg_attr(docsrs, doc(cfg(feature = "zookeeper")))]
pub use lock_zookeeper as zookeeper;

/// Locks on a MySQL or MariaDB server.
#[cfg(feature = "mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
pub use lock_mysql as mysql;

// The code in these documents is compiled with the documentation's tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/fencing.md")]
mod documents {}

/// Connects to the backend of a URL, with the options that the URL's query gives: `file:///var/lib/locks`,
/// `redis://127.0.0.1?ttl=10s`.
///
/// [`Options`] lists what every URL may carry; a backend's own options are in its crate's documentation.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> polylock::Result<()> {
/// let locks = polylock::connect("memory:?ttl=10s").await?;
/// let guard = locks.lock("orders/42")?.acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// - [`ErrorKind::InvalidInput`]: the URL cannot be read, or no backend answers to its scheme.
/// - [`ErrorKind::Unsupported`]: the scheme's Cargo feature is off; the text names it.
/// - [`ErrorKind::NoRuntime`]: not called inside a tokio runtime.
/// - What the backend says: `Unavailable` for a server that cannot be reached, `Denied` for a wrong
///   password.
///
/// # Cancel safety
///
/// Dropping the future opens nothing and leaves nothing behind.
pub async fn connect(url: &str) -> Result<Locks> {
    connect_with(url, Options::default()).await
}

/// Connects to the backend of a URL, with options. What the URL's query gives wins over `options`, so
/// that an operator can change what the program has as its default.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> polylock::Result<()> {
/// use std::time::Duration;
///
/// let options = polylock::Options::default().with_ttl(Duration::from_secs(10));
/// let locks = polylock::connect_with("memory:", options).await?;
/// let guard = locks.lock("orders/42")?.acquire().await?;
/// assert!(guard.ttl() < Duration::from_secs(10)); // less drift and margin
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of [`connect`], and [`ErrorKind::InvalidInput`] for options out of bounds.
///
/// # Cancel safety
///
/// Dropping the future opens nothing and leaves nothing behind.
pub async fn connect_with(url: &str, options: Options) -> Result<Locks> {
    let mut url = Url::parse(url)?;
    let driver = drivers::of(&url)?;
    let options = url.take_core_options(options)?;
    let backend = (driver.connect)(url).await?;
    Locks::with_options(backend, options)
}
