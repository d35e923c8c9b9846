//! polylock itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use polylock::{
    Attempt, Backend, Claim, Guarantees, Guard, Lease, Locks, Moment, Options, Owner, Released, Renewal, Url,
};

use super::{Client, Contender, Lock, rust};
use crate::{
    failure::{Failure, Result},
    place::Place,
    record::{self, Kind},
};

/// polylock, through its facade.
pub(crate) struct Ours;

#[async_trait]
impl Contender for Ours {
    fn who(&self) -> record::Contender {
        rust("polylock", Kind::Ours, env!("CARGO_PKG_VERSION"))
    }

    async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
        Ok(Arc::new(Opened(connect(place, Options::default()).await?)))
    }
}

/// Our locks at a place. What its URL says wins over the options.
pub(crate) async fn connect(place: &Place, options: Options) -> Result<Locks> {
    Ok(polylock::connect_with(&place.ours(), options).await?)
}

struct Opened(Locks);

#[async_trait]
impl Client for Opened {
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        Ok(Box::new(Handle { lock: self.0.lock(name)?, guard: None }))
    }

    async fn close(&self) {
        self.0.close(Duration::from_secs(2)).await;
    }
}

struct Handle {
    lock: polylock::Lock,
    guard: Option<Guard>,
}

#[async_trait]
impl Lock for Handle {
    async fn acquire(&mut self) -> Result {
        self.guard = Some(self.lock.acquire().await?);
        Ok(())
    }

    async fn release(&mut self) -> Result {
        let guard = self.guard.take().ok_or_else(|| Failure::new("not held"))?;
        match guard.release().await? {
            polylock::Release::Released => Ok(()),
            other => Err(Failure::new(format!("the release gave {other:?}"))),
        }
    }
}

/// A backend whose leases are looked at: how late its renewals are, and what is left of the newest lease.
#[derive(Debug)]
pub(crate) struct Watched {
    backend: Box<dyn Backend>,
    options: Options,
    renewals: Arc<Renewals>,
}

impl Watched {
    /// Our locks at a place, and what becomes of their leases.
    pub(crate) async fn connect(place: &Place, options: Options, renewals: Arc<Renewals>) -> Result<Locks> {
        let mut url = Url::parse(&place.ours())?;
        let options = url.take_core_options(options)?;
        let backend = (place.driver()?.connect)(url).await?;
        let watched = Self { backend, options: options.clone(), renewals };
        Ok(Locks::with_options(watched, options)?)
    }

    fn given(&self, claim: &Claim, lease: Lease) {
        self.renewals.given(claim, lease, &self.options, Moment::now());
    }
}

/// What [`Watched`] has seen.
#[derive(Debug, Default)]
pub(crate) struct Renewals(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    leases: HashMap<Owner, Lease>,
    worst: Duration,
    newest: Option<Lease>,
}

impl Renewals {
    /// With room for so many claims, in memory already.
    pub(crate) fn with_room(claims: usize) -> Result<Self> {
        let mut leases = HashMap::new();
        for _ in 0..claims {
            leases.insert(Owner::random()?, Lease::new(Moment::now(), Duration::ZERO));
        }
        leases.clear();
        Ok(Self(Mutex::new(Seen { leases, ..Seen::default() })))
    }

    /// By how much the latest renewal was answered after the latest moment that is planned for one.
    pub(crate) fn worst_lateness(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).worst
    }

    /// The lease that was given last.
    pub(crate) fn newest(&self) -> Option<Lease> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).newest
    }

    fn given(&self, claim: &Claim, lease: Lease, options: &Options, now: Moment) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.newest = Some(lease);
        if let Some(before) = seen.leases.insert(claim.owner, lease) {
            let late = now.saturating_since(before.since + renewal_after(claim, before.length, options));
            seen.worst = seen.worst.max(late);
        }
    }

    fn ended(&self, claim: &Claim) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).leases.remove(&claim.owner);
    }
}

/// How long after the beginning of a lease its renewal is planned at the latest: a third of what the holder may
/// use of it, that is without grace, drift and margin.
fn renewal_after(claim: &Claim, length: Duration, options: &Options) -> Duration {
    let grace = claim.lease.saturating_sub(options.ttl);
    let usable = length.saturating_sub(grace).mul_f64(1.0 - options.drift).saturating_sub(options.margin);
    usable / 3
}

#[async_trait]
impl Backend for Watched {
    fn guarantees(&self) -> Guarantees {
        self.backend.guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> polylock::Result<Attempt> {
        let attempt = self.backend.acquire(claim).await?;
        if let Attempt::Held(grant) = &attempt {
            self.given(claim, grant.lease);
        }
        Ok(attempt)
    }

    async fn renew(&self, claim: &Claim) -> polylock::Result<Renewal> {
        let renewal = self.backend.renew(claim).await?;
        if let Renewal::Kept(lease) = renewal {
            self.given(claim, lease);
        }
        Ok(renewal)
    }

    async fn release(&self, claim: &Claim) -> polylock::Result<Released> {
        self.renewals.ended(claim);
        self.backend.release(claim).await
    }
}

#[cfg(test)]
mod tests {
    use polylock::Name;

    use super::*;

    #[test]
    fn a_renewal_after_the_latest_planned_moment_is_late() {
        let options = Options::default().with_ttl(Duration::from_secs(30));
        let asked = Duration::from_secs(33);
        let begin = Moment::from_start(Duration::from_secs(100));
        // What the server gives, and when the renewal is answered.
        let lateness = |length: Duration, answered: Duration| {
            let renewals = Renewals::default();
            let claim = Claim::new(Name::new("a").unwrap(), Owner::random().unwrap(), asked);
            renewals.given(&claim, Lease::new(begin, length), &options, begin);
            let now = begin + answered;
            renewals.given(&claim, Lease::new(now, length), &options, now);
            renewals.worst_lateness()
        };
        // A third of 30 s less 1 % less 3 ms.
        assert_eq!(lateness(asked, Duration::from_millis(9_899)), Duration::ZERO);
        assert_eq!(lateness(asked, Duration::from_millis(9_900)), Duration::from_millis(1));
        assert_eq!(lateness(asked, Duration::from_millis(10_900)), Duration::from_millis(1_001));
        // A server that gives twice as much is asked later.
        assert_eq!(lateness(asked * 2, Duration::from_secs(20)), Duration::ZERO);
    }
}
