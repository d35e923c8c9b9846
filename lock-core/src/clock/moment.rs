use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// A moment on the clock that goes on while the machine is suspended.
///
/// `std::time::Instant` stops during suspend on Linux, so a laptop or virtual machine would wake up
/// believing in a lease that ended long ago. This is CLOCK_BOOTTIME on Linux and Android, and
/// elsewhere the monotonic clock that counts sleep. All arithmetic saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The present moment of the system's clock, for backends that talk to a real server.
    #[must_use]
    pub fn now() -> Self {
        Self(since_start())
    }

    /// A moment so long after the clock's start.
    #[must_use]
    pub const fn from_start(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// How long after the clock's start (the machine's boot, on Linux) this is.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// How much time lies between an earlier moment and this one; zero if `earlier` is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs))
    }
}

#[cfg(unix)]
fn since_start() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    // On Apple's systems this one counts sleep; elsewhere there may be none that does.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(not(unix))]
fn since_start() -> Duration {
    use std::{sync::OnceLock, time::Instant};

    // The performance counter behind `Instant` on Windows counts sleep; only its origin is unknown.
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
