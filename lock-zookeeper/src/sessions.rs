use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lock_core::{Error, ErrorKind, Result};
use tokio::{runtime::Handle, sync::watch};

use crate::{dial::Dialer, place::Place, session::Session};

/// The pause before a dial doubles with every failure from here …
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// … to here, so that a server that is back is found soon, and one that is down is asked rarely.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// One session for each length of lease, opened anew when it is over and somebody needs it.
#[derive(Debug)]
pub(crate) struct Sessions {
    dialer: Arc<Dialer>,
    runtime: Handle,
    /// By the timeout that was asked for.
    slots: Mutex<BTreeMap<Duration, Slot>>,
}

#[derive(Debug)]
struct Slot {
    /// The last dial: under way, or what came of it.
    last: watch::Receiver<Option<Dialed>>,
    failures: u32,
}

type Dialed = Result<Arc<Session>>;

impl Sessions {
    /// Must be called in a runtime: sessions live on it, whoever asks for them.
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { dialer: Arc::new(dialer), runtime: Handle::current(), slots: Mutex::default() }
    }

    /// The session that keeps this claim; else one whose leases are as long as asked.
    ///
    /// Dropping the future does not stop a dial, which others may wait for.
    pub(crate) async fn session(&self, place: &Place, lease: Duration) -> Dialed {
        if let Some(session) = self.keeping(place) {
            return Ok(session);
        }
        let timeout = self.dialer.timeout(lease)?;
        loop {
            let mut last = match self.current(timeout) {
                Ok(session) => return Ok(session),
                Err(dial) => dial,
            };
            match last.wait_for(Option::is_some).await.ok().and_then(|dialed| dialed.clone()) {
                // From its slot, or it may be closed as one that nobody uses.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => {
                    let text = "the runtime of the zookeeper session is gone";
                    return Err(Error::new(ErrorKind::NoRuntime, text));
                }
            }
        }
    }

    fn keeping(&self, place: &Place) -> Option<Arc<Session>> {
        let slots = self.slots();
        slots.values().find_map(|slot| slot.open().filter(|session| session.knows(place)))
    }

    /// The open session, or the dial to wait for.
    fn current(&self, timeout: Duration) -> Result<Arc<Session>, watch::Receiver<Option<Dialed>>> {
        let mut slots = self.slots();
        let failures = match slots.get(&timeout) {
            None => 0,
            Some(slot) => {
                if let Some(session) = slot.open() {
                    return Ok(session);
                }
                match &*slot.last.borrow() {
                    None => return Err(slot.last.clone()),
                    Some(Ok(_)) => 0,
                    Some(Err(_)) => slot.failures.saturating_add(1),
                }
            }
        };
        // Those that nobody uses would be kept alive for nothing.
        slots.retain(|_, slot| !slot.is_unused());
        let last = self.dial(timeout, pause(failures));
        slots.insert(timeout, Slot { last: last.clone(), failures });
        Err(last)
    }

    /// Dials in a task of its own; it ends early when nobody is left to use the session.
    fn dial(&self, timeout: Duration, pause: Duration) -> watch::Receiver<Option<Dialed>> {
        let (outcome, last) = watch::channel(None);
        let dialer = self.dialer.clone();
        self.runtime.spawn(async move {
            let dialed = async {
                tokio::time::sleep(pause).await;
                dialer.dial(timeout).await
            };
            tokio::select! {
                dialed = dialed => drop(outcome.send_replace(Some(dialed))),
                () = outcome.closed() => {}
            }
        });
        last
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<Duration, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Whether its session has no claims, and no verb that might make one.
    fn is_unused(&self) -> bool {
        match &*self.last.borrow() {
            Some(Ok(session)) => session.is_idle() && Arc::strong_count(session) == 1,
            _ => false,
        }
    }

    fn open(&self) -> Option<Arc<Session>> {
        match &*self.last.borrow() {
            Some(Ok(session)) if !session.is_over() => Some(session.clone()),
            _ => None,
        }
    }
}

/// Grows with the failures, and is drawn from its upper half, so that clients do not dial in step.
fn pause(failures: u32) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let longest = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_PAUSE);
    let draw = RandomState::new().hash_one(failures) as u32;
    longest / 2 + (longest / 2).mul_f64(f64::from(draw) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        assert_eq!(pause(0), Duration::ZERO);
        assert!((FIRST_PAUSE / 2..=FIRST_PAUSE).contains(&pause(1)));
        assert!((LONGEST_PAUSE / 2..=LONGEST_PAUSE).contains(&pause(u32::MAX)));
        let drawn: std::collections::HashSet<_> = (0..20).map(|_| pause(9)).collect();
        assert!(drawn.len() > 10, "{drawn:?}");
    }
}
