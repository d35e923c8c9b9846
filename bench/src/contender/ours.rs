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
    renewals: Arc<Renewals>,
}

impl Watched {
    /// Our locks at a place, and what becomes of their leases.
    pub(crate) async fn connect(place: &Place, options: Options, renewals: Arc<Renewals>) -> Result<Locks> {
        let mut url = Url::parse(&place.ours())?;
        let options = url.take_core_options(options)?;
        let backend = (place.driver()?.connect)(url).await?;
        Ok(Locks::with_options(Self { backend, renewals }, options)?)
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

    /// By how much the latest renewal was answered after a third of its lease.
    pub(crate) fn worst_lateness(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).worst
    }

    /// The lease that was given last.
    pub(crate) fn newest(&self) -> Option<Lease> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).newest
    }

    fn given(&self, claim: &Claim, lease: Lease) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.newest = Some(lease);
        if let Some(before) = seen.leases.insert(claim.owner, lease) {
            let late = Moment::now().saturating_since(before.since + before.length / 3);
            seen.worst = seen.worst.max(late);
        }
    }

    fn ended(&self, claim: &Claim) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).leases.remove(&claim.owner);
    }
}

#[async_trait]
impl Backend for Watched {
    fn guarantees(&self) -> Guarantees {
        self.backend.guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> polylock::Result<Attempt> {
        let attempt = self.backend.acquire(claim).await?;
        if let Attempt::Held(grant) = &attempt {
            self.renewals.given(claim, grant.lease);
        }
        Ok(attempt)
    }

    async fn renew(&self, claim: &Claim) -> polylock::Result<Renewal> {
        let renewal = self.backend.renew(claim).await?;
        if let Renewal::Kept(lease) = renewal {
            self.renewals.given(claim, lease);
        }
        Ok(renewal)
    }

    async fn release(&self, claim: &Claim) -> polylock::Result<Released> {
        self.renewals.ended(claim);
        self.backend.release(claim).await
    }
}
