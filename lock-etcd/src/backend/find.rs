//! Where a claim stands in its queue: made, looked up, or followed by the watch.

use std::time::Duration;

use etcd_client::KeyValue;
use lock_core::{Claim, Moment};
use tokio::try_join;

use super::EtcdBackend;
use crate::{
    claims::Entry,
    error::{self, Failure, Nature},
    keys::Keys,
    lease::Lease,
    queue::{self, Entered},
    view::Place,
    watch::Ear,
};

/// Where a claim stands.
pub(super) enum Found {
    /// In front.
    First(Entry),
    /// In the queue since this revision, behind another.
    Behind(Entry, i64),
    /// Nowhere: the lock is taken, by a lease of this length if it is known.
    Taken(Option<Duration>),
}

impl EtcdBackend {
    /// Finds where the claim stands, and makes it if it is nowhere.
    pub(super) async fn find(
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
                    None => self.look(claim, keys, created, entry.lease, entry.lease.is_fresh()).await?,
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

    /// Finds the place of a claim that was made, and keeps it for a further lease unless this one lasts.
    /// `None`: it is not there any more.
    async fn look(
        &self,
        claim: &Claim,
        keys: &Keys,
        created: i64,
        lease: Lease,
        lasts: bool,
    ) -> Result<Option<Found>, Failure> {
        let placed = Moment::now();
        let (kept, place) = try_join!(
            async { if lasts { Ok(Some(lease)) } else { self.cluster.keep_alive(lease).await } },
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
            return self.look(claim, keys, created, entry.lease, entry.lease.is_fresh()).await;
        }
        trial.answered();
        let place = || ear.borrow().place(&keys.own, created);
        let is_kept = match place() {
            Place::First => entry.lease.is_usable(),
            _ if !is_repeated => true,
            Place::Behind if entry.placed_for() > entry.lease.length() => {
                // Should the watch ever have missed something, nobody waits for longer than this. A lease of
                // which enough is left is kept the next time: so this is one request as well.
                let lasts = entry.lease.age() <= entry.lease.length() * 2 / 5;
                let found = self.look(claim, keys, created, entry.lease, lasts).await?;
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
    pub(super) async fn adopt(
        &self,
        claim: &Claim,
        keys: &Keys,
        own: &KeyValue,
    ) -> Result<Option<Entry>, Failure> {
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
}
