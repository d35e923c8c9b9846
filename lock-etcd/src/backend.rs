use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use etcd_client::KeyValue;
use lock_core::{
    Attempt, Backend, Busy, Claim, Error, ErrorKind, FencingToken, Grant, Guarantees, Moment, Released,
    Renewal, Result, Wake,
};
use tokio::{runtime::Handle, try_join};

use crate::{
    EtcdOptions,
    claims::{Claims, Entry},
    cluster::Cluster,
    error::{self, Failure, Nature},
    keys::{Keys, Prefix},
    lease::Lease,
    pool::Pool,
    queue::{self, Entered},
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
        // An ear from before the claim was made hears all that was in front of it.
        let mut ear = if claim.queue { self.watches.ear(&keys.queue) } else { None };
        let mut is_repeated = self.claims.of(claim).is_some();
        loop {
            match self.find(claim, &keys, ear.as_ref(), is_repeated).await? {
                Found::First(entry) => return Ok(Attempt::Held(grant(entry)?)),
                Found::Taken(holder) => {
                    let recheck = holder.unwrap_or(claim.lease);
                    return Ok(Attempt::Busy(Busy::new(None, recheck)));
                }
                Found::Behind(entry, _) if !claim.queue => {
                    self.leave(claim, &keys).await?;
                    return Ok(Attempt::Busy(Busy::new(None, entry.lease.length())));
                }
                Found::Behind(entry, created) => {
                    if let Some(ear) = ear {
                        return Ok(busy(Some(wake(ear, keys, created)), entry.lease));
                    }
                    ear = self.watch(&keys).await?;
                    if ear.is_none() {
                        return Ok(busy(None, entry.lease));
                    }
                    is_repeated = false;
                }
            }
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

/// Where a claim stands.
enum Found {
    /// In front.
    First(Entry),
    /// In the queue since this revision, behind another.
    Behind(Entry, i64),
    /// Nowhere: the lock is taken, by a lease of this length if it is known.
    Taken(Option<Duration>),
}

impl EtcdBackend {
    /// Finds where the claim stands, and makes it if it is nowhere.
    async fn find(
        &self,
        claim: &Claim,
        keys: &Keys,
        ear: Option<&Ear>,
        is_repeated: bool,
    ) -> Result<Found, Failure> {
        loop {
            let found = match self.claims.of(claim) {
                Some(entry @ Entry { created: Some(created), .. }) => match ear.filter(|_| !entry.is_held) {
                    Some(ear) => self.follow(claim, keys, created, entry, ear.clone(), is_repeated).await?,
                    None => self.look(claim, keys, created, entry.lease).await?,
                },
                _ => self.enter(claim, keys, ear.is_some()).await?,
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    /// Makes the claim, with a lease of its own. `None`: look again.
    async fn enter(&self, claim: &Claim, keys: &Keys, is_watched: bool) -> Result<Option<Found>, Failure> {
        let entry = match self.claims.of(claim) {
            // The answer to an earlier attempt never came. The same request again does no harm.
            Some(entry) => match self.cluster.keep_alive(entry.lease).await? {
                Some(lease) => Entry { in_doubt: true, ..Entry::new(lease) },
                None => return self.forgotten(claim),
            },
            None => Entry::new(self.pool.take(claim.lease).await?),
        };
        // From here on a release finds it, whatever becomes of this future.
        self.claims.remember(claim, entry);
        let value = queue::value(entry.lease, &claim.label);
        let request = match (claim.queue, is_watched) {
            (true, true) => queue::join_unseen(keys, value, entry.lease),
            (true, false) => queue::join(keys, value, entry.lease),
            (false, _) => queue::take(keys, value, entry.lease),
        };
        let answer = match self.cluster.txn(request).await {
            Ok(answer) => queue::entered(keys, &answer)?,
            Err(failure) if failure.nature == Nature::LeaseGone => return self.forgotten(claim),
            Err(failure) => {
                if failure.nature == Nature::Told {
                    self.forget(claim);
                }
                return Err(failure);
            }
        };
        let made = |created| {
            let entry = Entry { created: Some(created), ..entry };
            self.claims.remember(claim, entry);
            entry
        };
        match answer {
            Entered::Made(created) if claim.queue => {
                made(created);
                Ok(None)
            }
            Entered::Made(created) | Entered::First(created) => Ok(Some(self.first(claim, made(created)))),
            Entered::Behind(created) => Ok(Some(Found::Behind(made(created), created))),
            Entered::Was(own) if own.lease() == entry.lease.id => {
                made(own.create_revision());
                Ok(None)
            }
            Entered::Was(own) => {
                self.settle(entry).await?;
                self.claims.forget(claim);
                self.adopt(claim, keys, &own).await.map(|_| None)
            }
            Entered::Taken(holder) => {
                self.settle(entry).await?;
                self.claims.forget(claim);
                Ok(Some(Found::Taken(holder)))
            }
        }
    }

    /// Finds the place of a claim that was made, and keeps it for a further lease. `None`: it is not there
    /// any more.
    async fn look(
        &self,
        claim: &Claim,
        keys: &Keys,
        created: i64,
        lease: Lease,
    ) -> Result<Option<Found>, Failure> {
        let placed = Moment::now();
        let (kept, place) = try_join!(
            async { if lease.is_fresh() { Ok(Some(lease)) } else { self.cluster.keep_alive(lease).await } },
            self.cluster.get(&keys.queue, queue::place(created)),
        )?;
        let own = queue::own(keys, &place).filter(|own| own.create_revision() == created);
        let (Some(own), Some(lease)) = (own, kept) else { return self.forgotten(claim) };
        if own.lease() != lease.id {
            return Err(error::foreign(&keys.own));
        }
        let Some(entry) = self.claims.of(claim) else { return Ok(None) };
        let entry = Entry { lease, placed, ..entry };
        self.claims.remember(claim, entry);
        Ok(Some(match place.kvs().get(1) {
            None => self.first(claim, entry),
            Some(_ahead) => Found::Behind(entry, created),
        }))
    }

    /// Finds the place of a claim that waits from what the watch has told, and keeps it for a further lease
    /// when it is asked for again. `None`: it is not there any more.
    async fn follow(
        &self,
        claim: &Claim,
        keys: &Keys,
        created: i64,
        entry: Entry,
        mut ear: Ear,
        is_repeated: bool,
    ) -> Result<Option<Found>, Failure> {
        let member = self.cluster.member().await?;
        let trial = self.cluster.trial(member.turn);
        if ear.wait_for(|view| view.place(&keys.own, created) != Place::Unseen).await.is_err() {
            // The watch has ended.
            return self.look(claim, keys, created, entry.lease).await;
        }
        trial.answered();
        let place = || ear.borrow().place(&keys.own, created);
        let is_kept = match place() {
            Place::First => entry.lease.is_usable(),
            _ if !is_repeated => true,
            Place::Behind if entry.placed_for() > entry.lease.length() => {
                // Should the watch ever have missed something, nobody waits for longer than this.
                let found = self.look(claim, keys, created, entry.lease).await?;
                if matches!(found, Some(Found::First(_))) && place() == Place::Behind {
                    tracing::debug!("a watch is late");
                    self.cluster.trial(member.turn).failed();
                }
                return Ok(found);
            }
            _ => false,
        };
        let lease = if is_kept { Some(entry.lease) } else { self.cluster.keep_alive(entry.lease).await? };
        let Some(lease) = lease else { return self.forgotten(claim) };
        let entry = Entry { lease, ..entry };
        self.claims.remember(claim, entry);
        match place() {
            Place::First => Ok(Some(self.first(claim, entry))),
            Place::Behind => Ok(Some(Found::Behind(entry, created))),
            Place::Unseen | Place::Gone => self.forgotten(claim),
        }
    }

    fn first(&self, claim: &Claim, entry: Entry) -> Found {
        let entry = Entry { is_held: true, ..entry };
        self.claims.remember(claim, entry);
        Found::First(entry)
    }

    /// Takes up a claim that another process made, or this one and forgot: its key says which lease it has.
    /// `None`: that is over.
    async fn adopt(&self, claim: &Claim, keys: &Keys, own: &KeyValue) -> Result<Option<Entry>, Failure> {
        if own.lease() == 0 {
            return Err(error::foreign(&keys.own));
        }
        let lease = Lease { id: own.lease(), asked: 0, granted: 0, since: Moment::now() };
        let told = try_join!(self.cluster.keep_alive(lease), self.cluster.granted(lease.id))?;
        let (Some(lease), Some(granted)) = told else { return Ok(None) };
        let lease = Lease { asked: granted, granted, ..lease };
        // What was asked for it elsewhere is not known.
        let entry = Entry { created: Some(own.create_revision()), in_doubt: true, ..Entry::new(lease) };
        self.claims.remember(claim, entry);
        Ok(Some(entry))
    }

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
            return self.cluster.revoke(entry.lease.id).await;
        }
        self.pool.put(entry.lease);
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
