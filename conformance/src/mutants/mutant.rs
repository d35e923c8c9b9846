use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{
    Attempt, Backend, Busy, Claim, Error, ErrorKind, FencingToken, Grant, Guarantees, Lease, Moment, Name,
    Owner, Released, Renewal, Result,
};
use tokio_util::sync::CancellationToken;

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    DropLivesOn,
    ErrorForAbsent,
    HeldAlthoughBusy,
    KeptAlthoughLost,
    ReleasedForAbsent,
    ReleasesAnyone,
    ReleasesOwnOnly,
    RenewCreates,
    RenewExtendsNothing,
    RepeatExtendsNothing,
    SinceJoining,
    SinceReply,
    SwallowsRelease,
    TokenInflates,
    TokenRepeats,
    TryStays,
    UnarmedLook,
    Waits,
    WordForError,
}

/// A good backend, made bad.
#[derive(Debug)]
pub(super) struct Mutant {
    fault: Fault,
    backend: Arc<dyn Backend>,
    /// The claims that were granted through this client.
    own: Mutex<HashSet<Owner>>,
}

/// What the mutants of all clients remember together, as a bad server would.
#[derive(Debug, Default)]
struct Server {
    /// The last claim that was granted, by name.
    granted: HashMap<Name, (Claim, FencingToken)>,
    /// The last lease that was proved, by owner.
    leases: HashMap<Owner, Lease>,
}

fn server() -> MutexGuard<'static, Server> {
    static SERVER: LazyLock<Mutex<Server>> = LazyLock::new(Mutex::default);
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When a slow reply would come.
fn late(claim: &Claim) -> Moment {
    Moment::now() + claim.lease / 6
}

impl Mutant {
    pub(super) fn new(fault: Fault, backend: Arc<dyn Backend>) -> Self {
        Self { fault, backend, own: Mutex::default() }
    }

    fn own(&self) -> MutexGuard<'_, HashSet<Owner>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn granted(&self, claim: &Claim, mut grant: Grant) -> Attempt {
        self.own().insert(claim.owner);
        let first = self.first_token(claim, grant.token);
        match self.fault {
            Fault::SinceReply => grant.lease.since = late(claim),
            Fault::TokenRepeats => grant.token = first.unwrap_or(grant.token),
            Fault::TokenInflates if first.is_some() => {
                grant.token = FencingToken::new(grant.token.value() + 1)
            }
            _ => {}
        }
        Attempt::Held(grant)
    }

    /// The token of the last grant of this name, if there was one; for inflation, of this very claim.
    fn first_token(&self, claim: &Claim, token: FencingToken) -> Option<FencingToken> {
        let mut server = server();
        let last = server.granted.get(&claim.name).cloned();
        let repeated = last.as_ref().is_some_and(|(last, _)| last.owner == claim.owner);
        let kept = match (self.fault, &last) {
            (Fault::TokenRepeats, Some((_, first))) => *first,
            _ => token,
        };
        server.granted.insert(claim.name.clone(), (claim.clone(), kept));
        let relevant = self.fault != Fault::TokenInflates || repeated;
        last.filter(|_| relevant).map(|(_, token)| token)
    }

    /// A lease that is said to be proved now, without asking, if one was proved before.
    fn pretended(&self, claim: &Claim) -> Option<Lease> {
        server().leases.get(&claim.owner).map(|lease| Lease::new(Moment::now(), lease.length))
    }

    async fn busy(&self, claim: &Claim, busy: Busy) -> Result<Attempt> {
        match self.fault {
            Fault::HeldAlthoughBusy => {
                let token = server().granted.get(&claim.name).map_or(0, |(_, token)| token.value());
                let grant = Grant::new(FencingToken::new(token + 1), Lease::new(Moment::now(), claim.lease));
                return Ok(self.granted(claim, grant));
            }
            Fault::TryStays if !claim.queue => {
                tokio::spawn(stay(self.backend.clone(), claim.clone()));
            }
            Fault::UnarmedLook => {
                let wake = busy.wake.map(|_| Box::pin(std::future::pending()) as lock_core::Wake);
                return Ok(Attempt::Busy(Busy::new(wake, busy.recheck_within)));
            }
            Fault::Waits => {
                let mut busy = busy;
                loop {
                    let pause = busy.recheck_within.min(Duration::from_millis(10));
                    tokio::time::sleep(pause).await;
                    match self.backend.acquire(claim).await? {
                        Attempt::Busy(again) => busy = again,
                        held => return Ok(held),
                    }
                }
            }
            _ => {}
        }
        Ok(Attempt::Busy(busy))
    }
}

/// What a forgotten entry in a queue does: it gets the lock at last.
async fn stay(backend: Arc<dyn Backend>, claim: Claim) {
    let until = Moment::now() + claim.lease * 4;
    while Moment::now() < until {
        if let Ok(Attempt::Held(_)) = backend.acquire(&claim).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Keeps a claim of which the caller has given up.
async fn live_on(backend: Arc<dyn Backend>, claim: Claim, given_up: CancellationToken) {
    given_up.cancelled().await;
    loop {
        let _ = backend.acquire(&claim).await;
        tokio::time::sleep(claim.lease / 4).await;
    }
}

#[async_trait]
impl Backend for Mutant {
    fn guarantees(&self) -> Guarantees {
        self.backend.guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        if self.fault == Fault::RepeatExtendsNothing
            && let Some(lease) = self.pretended(claim)
        {
            let token = server().granted.get(&claim.name).map(|(_, token)| *token);
            return Ok(Attempt::Held(Grant::new(token.unwrap_or(FencingToken::new(0)), lease)));
        }
        let dropped = CancellationToken::new();
        let guard = (self.fault == Fault::DropLivesOn).then(|| dropped.clone().drop_guard());
        if guard.is_some() {
            tokio::spawn(live_on(self.backend.clone(), claim.clone(), dropped));
            tokio::task::yield_now().await;
        }
        let attempt = self.backend.acquire(claim).await;
        if let Some(guard) = guard {
            guard.disarm();
        }
        match attempt {
            Ok(Attempt::Held(grant)) => {
                server().leases.insert(claim.owner, grant.lease);
                Ok(self.granted(claim, grant))
            }
            Ok(Attempt::Busy(busy)) => self.busy(claim, busy).await,
            Err(_) if self.fault == Fault::WordForError => Ok(Attempt::Busy(Busy::new(None, claim.lease))),
            other => other,
        }
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        let joining = Moment::now();
        if matches!(self.fault, Fault::RenewExtendsNothing | Fault::SinceJoining)
            && let Some(proved) = self.pretended(claim)
        {
            // A batch is on its way for half a lease; whoever asks meanwhile joins it.
            let batch = server().leases.get(&claim.owner).map_or(joining, |lease| lease.since);
            let young = joining.saturating_since(batch) < claim.lease / 2;
            if young || self.fault == Fault::RenewExtendsNothing {
                return Ok(Renewal::Kept(proved));
            }
        }
        match self.backend.renew(claim).await {
            Ok(Renewal::Kept(mut lease)) => {
                server().leases.insert(claim.owner, lease);
                if self.fault == Fault::SinceReply {
                    lease.since = late(claim);
                }
                Ok(Renewal::Kept(lease))
            }
            Ok(Renewal::Lost) if self.fault == Fault::KeptAlthoughLost => {
                Ok(Renewal::Kept(Lease::new(joining, claim.lease)))
            }
            Ok(Renewal::Lost) if self.fault == Fault::RenewCreates => {
                match self.backend.acquire(claim).await? {
                    Attempt::Held(grant) => Ok(Renewal::Kept(grant.lease)),
                    _ => Ok(Renewal::Lost),
                }
            }
            Err(_) if self.fault == Fault::WordForError => Ok(Renewal::Lost),
            other => other,
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        if self.fault == Fault::SwallowsRelease {
            return Ok(Released::Released);
        }
        if self.fault == Fault::ReleasesOwnOnly && !self.own().contains(&claim.owner) {
            return Ok(Released::Absent);
        }
        match self.backend.release(claim).await {
            Ok(Released::Absent) if self.fault == Fault::ReleasedForAbsent => Ok(Released::Released),
            Ok(Released::Absent) if self.fault == Fault::ErrorForAbsent => {
                Err(Error::new(ErrorKind::Internal, "there is no such claim"))
            }
            Ok(Released::Absent) if self.fault == Fault::ReleasesAnyone => {
                let holder = server().granted.get(&claim.name).map(|(holder, _)| holder.clone());
                match holder {
                    Some(holder) => self.backend.release(&holder).await,
                    None => Ok(Released::Absent),
                }
            }
            Err(_) if self.fault == Fault::WordForError => Ok(Released::Absent),
            other => other,
        }
    }
}
