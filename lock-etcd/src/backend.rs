mod find;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use find::Found;
use lock_core::{
    Attempt, Backend, Busy, Claim, Error, ErrorKind, FencingToken, Grant, Guarantees, Moment, Released,
    Renewal, Result, Wake,
};
use tokio::{runtime::Handle, try_join};

use crate::{
    EtcdOptions,
    claims::{Claims, Entry},
    cluster::Cluster,
    error::{self, Failure},
    keys::{Keys, Prefix},
    lease::Lease,
    pool::Pool,
    queue,
    view::Place,
    watch::{Ear, Watches},
};

/// Locks on one etcd cluster.
///
/// A claim is a key with a lease, `<prefix>/<name>/<owner>`; the oldest key of a name holds its lock, and
/// the revision that made it is the fencing token. See the [crate's documentation](crate) for what is
/// promised, what the server's user must be allowed, and what an operator sees.
///
/// One member of the cluster is asked at a time, over one connection, the next one when it fails. What
/// lies idle is closed and given back when the backend is dropped.
pub struct EtcdBackend {
    cluster: Arc<Cluster>,
    prefix: Prefix,
    claims: Claims,
    pool: Pool,
    watches: Watches,
}

impl EtcdBackend {
    async fn attempt(&self, claim: &Claim, keys: &Keys) -> Result<Attempt, Failure> {
        // An ear from before the claim was made hears all that was in front of it.
        let mut ear = if claim.queue { self.watches.ear(&keys.queue) } else { None };
        let mut is_repeated = self.claims.of(claim).is_some();
        loop {
            match self.find(claim, keys, ear.as_ref(), is_repeated).await? {
                Found::First(entry) => return Ok(Attempt::Held(grant(entry)?)),
                Found::Taken(holder) => {
                    let recheck = holder.unwrap_or(claim.lease);
                    return Ok(Attempt::Busy(Busy::new(None, recheck)));
                }
                Found::Behind(entry, _) if !claim.queue => {
                    self.leave(claim, keys).await?;
                    return Ok(Attempt::Busy(Busy::new(None, entry.lease.length())));
                }
                Found::Behind(entry, created) => {
                    if let Some(ear) = ear {
                        return Ok(busy(Some(wake(ear, keys.clone(), created)), entry.lease));
                    }
                    ear = self.watch(keys).await?;
                    if ear.is_none() {
                        return Ok(busy(None, entry.lease));
                    }
                    is_repeated = false;
                }
            }
        }
    }

    /// Ends a claim whose key is there, or may be, though a later request for it was refused, as when the
    /// password was changed. What to say of it: the refusal, unless something may be left that core does not
    /// know of.
    async fn take_back(&self, claim: &Claim, keys: &Keys, refusal: Error) -> Error {
        match self.leave(claim, keys).await {
            Err(failure) if claim.fresh => {
                let text = format!("{refusal}, and the claim is left behind: {}", failure.error);
                Error::new(ErrorKind::Unavailable, text)
            }
            _ => refusal,
        }
    }

    /// Connects, and makes sure that a member answers this user.
    ///
    /// Connections live on the runtime that is current here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for options that cannot be used, [`ErrorKind::Denied`] for a wrong user,
    /// password or certificate, or a user that may not read the prefix, [`ErrorKind::Unavailable`] if no
    /// member answers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    ///
    /// ```no_run
    /// # async fn f() -> lock_core::Result<()> {
    /// use lock_etcd::{EtcdBackend, EtcdOptions};
    ///
    /// let backend = EtcdBackend::connect(EtcdOptions::new(["127.0.0.1:2379"])?).await?;
    /// let locks = lock_core::Locks::new(backend)?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(options: EtcdOptions) -> Result<Self> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::new(ErrorKind::NoRuntime, "etcd needs a tokio runtime"))?;
        let cluster = Arc::new(Cluster::new(&options, runtime.clone())?);
        let mut member = cluster.member().await;
        for _ in 1..options.addresses().len() {
            if member.as_ref().is_err_and(|failure| failure.error.is_transient()) {
                member = cluster.member().await;
            }
        }
        drop(member?);
        Ok(Self {
            prefix: options.prefix,
            claims: Claims::new(),
            pool: Pool::new(cluster.clone(), &runtime),
            watches: Watches::new(cluster.clone(), &runtime),
            cluster,
        })
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    fn guarantees(&self) -> Guarantees {
        crate::guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let keys = self.prefix.keys(claim);
        match self.attempt(claim, &keys).await {
            Err(refusal) if refusal.error.is_refusal() && self.claims.of(claim).is_some() => {
                Err(self.take_back(claim, &keys, refusal.error).await)
            }
            answer => Ok(answer?),
        }
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        let keys = self.prefix.keys(claim);
        let known = self.claims.of(claim).filter(|entry| entry.created.is_some());
        // Both at once. The lease was alive and the key was there after both were asked, and nobody but
        // an operator takes the one without the other.
        let (kept, oldest) = try_join!(
            async {
                match known {
                    Some(entry) => self.cluster.keep_alive(entry.lease).await,
                    None => Ok(None),
                }
            },
            self.cluster.get(&keys.queue, queue::holder()),
        )?;
        let Some(own) = queue::own(&keys, &oldest) else { return Ok(self.lost(claim)) };
        let lease = match known {
            Some(entry) if entry.created != Some(own.create_revision()) => return Ok(self.lost(claim)),
            Some(entry) if entry.lease.id != own.lease() => return Err(error::foreign(&keys.own).into()),
            Some(entry) => match kept {
                Some(lease) => {
                    self.claims.remember(claim, Entry { lease, ..entry });
                    Some(lease)
                }
                None => None,
            },
            None => self.adopt(claim, &keys, own).await?.map(|entry| entry.lease),
        };
        Ok(lease.map_or_else(|| self.lost(claim), |lease| Renewal::Kept(lease.word())))
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let keys = self.prefix.keys(claim);
        let left = self.leave(claim, &keys).await?;
        Ok(if left { Released::Released } else { Released::Absent })
    }
}

impl EtcdBackend {
    /// Ends the claim; whether it was there.
    async fn leave(&self, claim: &Claim, keys: &Keys) -> Result<bool, Failure> {
        let answer = self.cluster.delete(&keys.own).await?;
        let deleted = answer.deleted() > 0;
        match self.claims.of(claim) {
            Some(entry) => {
                if entry.in_doubt || entry.created.is_none() {
                    // A request to make the key may still be under way; without its lease it comes to nothing.
                    self.cluster.revoke(entry.lease.id).await?;
                } else if deleted {
                    self.pool.put(entry.lease);
                } else {
                    self.pool.revoke(entry.lease);
                }
                self.claims.forget(claim);
            }
            None => {
                if let Some(own) = answer.prev_kvs().first().filter(|own| own.lease() != 0) {
                    let lease = Lease { id: own.lease(), asked: 1, granted: 1, since: Moment::now() };
                    self.pool.revoke(lease);
                }
            }
        }
        Ok(deleted)
    }

    /// Gives the lease of a claim back that was not made.
    async fn settle(&self, entry: Entry) -> Result<(), Failure> {
        if entry.in_doubt {
            self.cluster.revoke(entry.lease.id).await?;
        } else {
            self.pool.put(entry.lease);
        }
        Ok(())
    }

    /// Drops what is remembered of a claim that is not on the server, and its lease.
    fn forget(&self, claim: &Claim) {
        if let Some(entry) = self.claims.forget(claim) {
            self.pool.revoke(entry.lease);
        }
    }

    /// What was looked for is gone.
    fn forgotten<T, E>(&self, claim: &Claim) -> Result<Option<T>, E> {
        self.forget(claim);
        Ok(None)
    }

    fn lost(&self, claim: &Claim) -> Renewal {
        self.forget(claim);
        Renewal::Lost
    }

    /// An ear at the queue, once the server watches it.
    async fn watch(&self, keys: &Keys) -> Result<Option<Ear>, Failure> {
        let member = self.cluster.member().await?;
        let trial = self.cluster.trial(member.turn);
        let ear = self.watches.subscribe(&keys.queue).await;
        trial.answered();
        Ok(ear)
    }
}

impl fmt::Debug for EtcdBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdBackend").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

fn grant(entry: Entry) -> Result<Grant, Failure> {
    let created = entry.created.and_then(|created| u64::try_from(created).ok());
    Ok(Grant::new(FencingToken::new(created.ok_or_else(error::unexpected)?), entry.lease.word()))
}

/// To be asked again when a third of the claim's own lease is over: that keeps its place in the queue.
fn busy(wake: Option<Wake>, lease: Lease) -> Attempt {
    Attempt::Busy(Busy::new(wake, lease.length() / 3))
}

/// Wakes when no other key is in front any more, or when the claim's own is gone: then it has to be made
/// again. And when the watch has ended.
fn wake(mut ear: Ear, keys: Keys, created: i64) -> Wake {
    Box::pin(async move {
        let _ = ear.wait_for(|view| view.place(&keys.own, created) != Place::Behind).await;
        None
    })
}
