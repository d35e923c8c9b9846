use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{Attempt, Backend, Claim, Error, ErrorKind, Guarantees, Released, Renewal, Result};

/// Fails, hangs and loses replies as a [`Script`] says: the simulated wire of core's tests.
#[derive(Debug)]
pub struct Faulty<B> {
    backend: B,
    script: Script,
}

/// One of the three verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// [`Backend::acquire`].
    Acquire,
    /// [`Backend::renew`].
    Renew,
    /// [`Backend::release`].
    Release,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Injection {
    /// Nothing: it passes.
    Pass,
    /// It never reaches the server: `Unavailable` at once.
    Refuse,
    /// The server says that the caller may not: `Denied` at once.
    Deny,
    /// It is done, and the reply is lost: `Unavailable` afterwards.
    LoseReply,
    /// It hangs until [`Script::heal`], and is done then.
    HangBefore,
    /// It is done at once, and the reply hangs until [`Script::heal`].
    HangAfter,
}

/// What the calls of one [`Faulty`] meet; clones share it.
#[derive(Clone, Debug)]
pub struct Script(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    plan: Mutex<Plan>,
    healed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Plan {
    next: VecDeque<(Verb, Injection)>,
    always: Vec<(Verb, Injection)>,
    calls: Vec<Verb>,
}

impl<B: Backend> Faulty<B> {
    /// Wraps a backend; everything passes until the script says otherwise.
    #[must_use]
    pub fn new(backend: B) -> (Self, Script) {
        let script = Script(Arc::new(Inner { plan: Mutex::default(), healed: watch::Sender::new(0) }));
        (Self { backend, script: script.clone() }, script)
    }
}

impl Script {
    /// The next call of the verb that has no earlier plan meets this.
    pub fn next(&self, verb: Verb, injection: Injection) {
        self.plan().next.push_back((verb, injection));
    }

    /// Every later call of the verb without a plan of its own meets this.
    pub fn always(&self, verb: Verb, injection: Injection) {
        let mut plan = self.plan();
        plan.always.retain(|(planned, _)| *planned != verb);
        plan.always.push((verb, injection));
    }

    /// Forgets all plans and lets go of all calls that hang.
    pub fn heal(&self) {
        let mut plan = self.plan();
        plan.next.clear();
        plan.always.clear();
        drop(plan);
        self.0.healed.send_modify(|times| *times += 1);
    }

    /// How often the verb was called so far.
    #[must_use]
    pub fn calls(&self, verb: Verb) -> usize {
        self.plan().calls.iter().filter(|called| **called == verb).count()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, verb: Verb) -> Injection {
        let mut plan = self.plan();
        plan.calls.push(verb);
        let planned = plan.next.iter().position(|(planned, _)| *planned == verb);
        if let Some((_, injection)) = planned.and_then(|index| plan.next.remove(index)) {
            return injection;
        }
        let always = plan.always.iter().find(|(planned, _)| *planned == verb);
        always.map_or(Injection::Pass, |(_, injection)| *injection)
    }

    /// Lets a call of the verb meet what is planned for it.
    async fn play<T: Send>(&self, verb: Verb, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let injection = self.begin(verb);
        self.before(injection).await?;
        let answer = call.await;
        self.after(injection).await?;
        answer
    }

    async fn before(&self, injection: Injection) -> Result<()> {
        match injection {
            Injection::Refuse => Err(Error::new(ErrorKind::Unavailable, "injected: the request was lost")),
            Injection::Deny => Err(Error::new(ErrorKind::Denied, "injected: permission denied")),
            Injection::HangBefore => {
                self.hang().await;
                Ok(())
            }
            Injection::Pass | Injection::LoseReply | Injection::HangAfter => Ok(()),
        }
    }

    async fn after(&self, injection: Injection) -> Result<()> {
        match injection {
            Injection::LoseReply => Err(Error::new(ErrorKind::Unavailable, "injected: the reply was lost")),
            Injection::HangAfter => {
                self.hang().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn hang(&self) {
        // Cannot fail: this script holds the sender.
        let _ = self.0.healed.subscribe().changed().await;
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for Faulty<B> {
    fn guarantees(&self) -> Guarantees {
        self.backend.guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.script.play(Verb::Acquire, self.backend.acquire(claim)).await
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        self.script.play(Verb::Renew, self.backend.renew(claim)).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.script.play(Verb::Release, self.backend.release(claim)).await
    }
}
