use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{Clock, Moment, Sleep};

/// Tokio's clock, for tests with paused time; it can also be suspended.
///
/// Use it with the memory backend only: paused time runs past real sockets. Clones share one time.
#[derive(Clone, Debug)]
pub struct PausedClock {
    start: Instant,
    /// Nanoseconds spent in pretended suspends.
    suspended: Arc<AtomicU64>,
}

impl PausedClock {
    /// Starts at an arbitrary moment. Call it inside the runtime whose time it follows.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now(), suspended: Arc::default() }
    }

    /// Lets time pass as a suspended machine sees it: the clock has moved, no timer has fired.
    pub fn suspend(&self, length: Duration) {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.suspended.fetch_add(nanos, Ordering::SeqCst);
    }

    fn offset(&self) -> Duration {
        // An hour, so that a test can subtract from the first moment.
        Duration::from_secs(3600) + Duration::from_nanos(self.suspended.load(Ordering::SeqCst))
    }
}

impl Default for PausedClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Moment {
        Moment::from_start(self.start.elapsed() + self.offset())
    }

    fn sleep_until(&self, deadline: Moment) -> Sleep {
        let clock = self.clone();
        Box::pin(async move {
            // A suspend does not fire timers: what was armed before it fires late, as on a real machine.
            let length = deadline.saturating_since(clock.now());
            if !length.is_zero() {
                tokio::time::sleep(length).await;
            }
        })
    }
}
