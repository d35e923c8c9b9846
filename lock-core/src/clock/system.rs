use super::{Clock, Moment, Sleep};
use crate::Result;

/// The system's clock that counts suspend, with one timer for all who wait.
///
/// On Linux the timer is a `timerfd` on CLOCK_BOOTTIME, so that a deadline which passed during suspend
/// fires on wake-up. Elsewhere waiting is a re-check every second at the latest.
#[derive(Debug)]
pub struct SystemClock {
    #[cfg(target_os = "linux")]
    alarms: std::sync::Arc<linux::Alarms>,
    #[cfg(target_os = "linux")]
    driver: tokio::task::AbortHandle,
}

impl SystemClock {
    /// Creates the timer, and the task that serves it on the current runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) outside a tokio runtime;
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) if there is no file descriptor to be had.
    ///
    /// # Panics
    ///
    /// On Linux, if the current runtime was built without `enable_io`, as tokio's own sockets do.
    #[cfg(target_os = "linux")]
    pub fn new() -> Result<Self> {
        let runtime = crate::locks::current_runtime()?;
        let (alarms, driver) = linux::Alarms::start(&runtime)?;
        Ok(Self { alarms, driver })
    }

    /// Creates the clock.
    ///
    /// # Errors
    ///
    /// None on this platform.
    #[cfg(not(target_os = "linux"))]
    pub fn new() -> Result<Self> {
        Ok(Self {})
    }
}

#[cfg(target_os = "linux")]
impl Drop for SystemClock {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment::now()
    }

    #[cfg(target_os = "linux")]
    fn sleep_until(&self, deadline: Moment) -> Sleep {
        Box::pin(linux::Alarm::new(self.alarms.clone(), deadline))
    }

    #[cfg(not(target_os = "linux"))]
    fn sleep_until(&self, deadline: Moment) -> Sleep {
        Box::pin(async move {
            while Moment::now() < deadline {
                let left = deadline.saturating_since(Moment::now());
                tokio::time::sleep(left.min(std::time::Duration::from_secs(1))).await;
            }
        })
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        collections::BTreeMap,
        future::Future,
        os::fd::OwnedFd,
        pin::Pin,
        sync::{Arc, Mutex, PoisonError},
        task::{Context, Poll, Waker},
    };

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::{io::unix::AsyncFd, runtime::Handle, task::AbortHandle};

    use crate::{Error, ErrorKind, Moment, Result};

    /// Everybody who waits, by deadline, in front of one timer.
    #[derive(Debug)]
    pub(super) struct Alarms {
        timer: AsyncFd<OwnedFd>,
        waiting: Mutex<Waiting>,
    }

    #[derive(Debug, Default)]
    struct Waiting {
        by_deadline: BTreeMap<(Moment, u64), Waker>,
        next_id: u64,
        /// When the timer will fire. Early is harmless, and saves setting it for every short wait.
        armed: Option<Moment>,
    }

    impl Alarms {
        pub(super) fn start(runtime: &Handle) -> Result<(Arc<Self>, AbortHandle)> {
            let failed =
                |e: std::io::Error| Error::new(ErrorKind::Internal, "no timer could be made").with_source(e);
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Boottime, flags).map_err(|e| failed(e.into()))?;
            // Its replacement needs `unsafe` to promise that the descriptor stays the same and open: an
            // `OwnedFd`'s does.
            #[allow(deprecated)]
            let timer = AsyncFd::new(timer).map_err(failed)?;
            let alarms = Arc::new(Self { timer, waiting: Mutex::default() });
            let driver = runtime.spawn(alarms.clone().serve());
            Ok((alarms, driver.abort_handle()))
        }

        async fn serve(self: Arc<Self>) {
            while let Ok(mut ready) = self.timer.readable().await {
                // Reading is what makes the timer unready; how often it expired does not matter.
                let mut expirations = [0; 8];
                let _ = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?));
                drop(ready);
                for waker in self.expire() {
                    waker.wake();
                }
            }
        }

        /// Takes out all whose time has come, and arms the timer for the next.
        fn expire(&self) -> Vec<Waker> {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let later = waiting.by_deadline.split_off(&(Moment::now(), u64::MAX));
            let due = std::mem::replace(&mut waiting.by_deadline, later);
            waiting.armed = waiting.by_deadline.first_key_value().map(|((next, _), _)| *next);
            if let Some(next) = waiting.armed {
                self.arm(next);
            }
            due.into_values().collect()
        }

        fn add(&self, deadline: Moment, waker: &Waker) -> u64 {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let id = waiting.next_id;
            waiting.next_id += 1;
            waiting.by_deadline.insert((deadline, id), waker.clone());
            if waiting.armed.is_none_or(|armed| deadline < armed) {
                waiting.armed = Some(deadline);
                self.arm(deadline);
            }
            id
        }

        fn replace(&self, key: (Moment, u64), waker: &Waker) {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.by_deadline.insert(key, waker.clone());
        }

        fn forget(&self, key: (Moment, u64)) {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.by_deadline.remove(&key);
        }

        fn arm(&self, deadline: Moment) {
            let since_boot = deadline.since_start();
            let at = Timespec {
                tv_sec: i64::try_from(since_boot.as_secs()).unwrap_or(i64::MAX),
                // An all-zero time would disarm the timer.
                tv_nsec: i64::from(since_boot.subsec_nanos().max(1)),
            };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
            if let Err(error) = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once) {
                tracing::error!(%error, "the timer could not be set");
            }
        }
    }

    pub(super) struct Alarm {
        alarms: Arc<Alarms>,
        deadline: Moment,
        id: Option<u64>,
    }

    impl Alarm {
        pub(super) fn new(alarms: Arc<Alarms>, deadline: Moment) -> Self {
            Self { alarms, deadline, id: None }
        }
    }

    impl Future for Alarm {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if Moment::now() >= self.deadline {
                return Poll::Ready(());
            }
            let waker = context.waker();
            match self.id {
                None => self.id = Some(self.alarms.add(self.deadline, waker)),
                Some(id) => self.alarms.replace((self.deadline, id), waker),
            }
            Poll::Pending
        }
    }

    impl Drop for Alarm {
        fn drop(&mut self) {
            if let Some(id) = self.id {
                self.alarms.forget((self.deadline, id));
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn many_alarms_ring_in_order_and_not_early() {
        let clock = SystemClock::new().unwrap();
        // Late enough that all are set before the first one rings.
        let start = clock.now() + Duration::from_secs(1);
        let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
        for millis in [30, 10, 20, 0, 25] {
            let tx = tx.clone();
            let alarm = clock.sleep_until(start + Duration::from_millis(millis));
            tokio::spawn(async move {
                alarm.await;
                tx.send((millis, Moment::now())).unwrap();
            });
        }
        drop(clock.sleep_until(start + Duration::from_millis(5)));
        let mut order = Vec::new();
        for _ in 0..5 {
            let (millis, rang) = rx.recv().await.unwrap();
            assert!(rang >= start + Duration::from_millis(millis));
            order.push(millis);
        }
        assert_eq!(order, [0, 10, 20, 25, 30]);
    }

    #[tokio::test]
    async fn an_alarm_in_the_past_rings_at_once() {
        let clock = SystemClock::new().unwrap();
        clock.sleep_until(Moment::from_start(Duration::ZERO)).await;
    }
}
