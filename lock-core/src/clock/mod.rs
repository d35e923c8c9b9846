//! Time that counts suspend: [`Moment`], and the [`Clock`] that core waits with.

mod moment;
mod paused;
mod system;

use std::{fmt, future::Future, pin::Pin};

pub use moment::Moment;
pub use paused::PausedClock;
pub use system::SystemClock;

/// What core reads and waits with. [`SystemClock`] everywhere but in tests of time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Moment;

    /// Resolves at the moment or soon after; at once if it has passed.
    ///
    /// # Cancel safety
    ///
    /// Dropping it only forgets the alarm.
    fn sleep_until(&self, deadline: Moment) -> Sleep;
}

/// The future of [`Clock::sleep_until`].
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;
