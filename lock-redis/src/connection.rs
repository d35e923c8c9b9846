use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lock_core::{Error, ErrorKind, Result};
use tokio::{runtime::Handle, sync::watch};

use crate::{dial::Dialer, link::Link};

/// The pause before a dial doubles with every failure from here …
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// … to here, so that a server that is back is found soon, and one that is down is asked rarely.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The way to the server: one link at a time, replaced when it is dead and somebody needs it.
///
/// Nobody waits for more than one pause and one dial; all who come meanwhile wait for the same.
pub(crate) struct Connection {
    dialer: Arc<Dialer>,
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    /// The last dial: under way, or what came of it.
    last: watch::Receiver<Option<Dialed>>,
    failures: u32,
}

type Dialed = Result<Arc<Link>>;

impl Connection {
    /// Starts the first dial. Must be called in a runtime: links live on it, whoever asks for them.
    pub(crate) fn new(dialer: Dialer) -> Self {
        let (dialer, runtime) = (Arc::new(dialer), Handle::current());
        let last = dial(&runtime, Arc::clone(&dialer), Duration::ZERO);
        Self { dialer, runtime, state: Mutex::new(State { last, failures: 0 }) }
    }

    /// A link that was alive a moment ago.
    ///
    /// Dropping the future does not stop the dial, which others may wait for.
    pub(crate) async fn link(&self) -> Dialed {
        let mut last = match self.current() {
            Ok(link) => return Ok(link),
            Err(dial) => dial,
        };
        let dialed = last.wait_for(Option::is_some).await.ok().and_then(|dialed| dialed.clone());
        dialed.unwrap_or_else(|| {
            Err(Error::new(ErrorKind::NoRuntime, "the runtime of the redis connection is gone"))
        })
    }

    /// The open link, or the dial to wait for.
    fn current(&self) -> Result<Arc<Link>, watch::Receiver<Option<Dialed>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = match &*state.last.borrow() {
            None => return Err(state.last.clone()),
            Some(Ok(link)) if link.is_open() => return Ok(Arc::clone(link)),
            // A server that greets and hangs up is as good as none.
            Some(Ok(link)) => !link.has_answered(),
            Some(Err(_)) => true,
        };
        state.failures = if failed { state.failures.saturating_add(1) } else { 0 };
        state.last = dial(&self.runtime, Arc::clone(&self.dialer), pause(state.failures));
        Err(state.last.clone())
    }
}

/// Dials in a task of its own; it ends early when nobody is left to use the link.
fn dial(runtime: &Handle, dialer: Arc<Dialer>, pause: Duration) -> watch::Receiver<Option<Dialed>> {
    let (outcome, last) = watch::channel(None);
    runtime.spawn(async move {
        let dialed = async {
            tokio::time::sleep(pause).await;
            dialer.dial().await.map(Arc::new)
        };
        tokio::select! {
            dialed = dialed => drop(outcome.send_replace(Some(dialed))),
            () = outcome.closed() => {}
        }
    });
    last
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
