use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use crate::{Attempt, Busy, Claim, FencingToken, Grant, Lease, Moment, Name, Owner, Released, Renewal};

/// Who holds and who waits, by name. Every method is one atomic step of the server that this models.
#[derive(Default)]
pub(super) struct Store {
    slots: HashMap<Name, Slot>,
    /// One counter for all names: it grows for each, and a forgotten name costs nothing.
    last_token: u64,
}

#[derive(Default)]
struct Slot {
    holder: Option<Holder>,
    queue: VecDeque<Waiting>,
}

struct Holder {
    owner: Owner,
    token: FencingToken,
    until: Moment,
}

/// A place in the queue. It has a lease of its own, which a promotion transfers.
struct Waiting {
    owner: Owner,
    lease: Lease,
    wake: oneshot::Sender<Option<Grant>>,
}

impl Store {
    pub(super) fn acquire(&mut self, claim: &Claim, now: Moment) -> Attempt {
        let lease = Lease::new(now, claim.lease);
        let Self { slots, last_token } = self;
        let slot = slots.entry(claim.name.clone()).or_default();
        slot.settle(now, last_token);
        match &mut slot.holder {
            Some(holder) if holder.owner == claim.owner => {
                holder.until = lease.end();
                Attempt::Held(Grant::new(holder.token, lease))
            }
            Some(holder) => {
                let left = holder.until.saturating_since(now);
                if !claim.queue {
                    return Attempt::Busy(Busy::new(None, left));
                }
                let wake = slot.enqueue(claim.owner, lease);
                let wake = Box::pin(async move { wake.await.unwrap_or_default() });
                Attempt::Busy(Busy::new(Some(wake), left.min(claim.lease / 2)))
            }
            None => {
                let token = next(last_token);
                slot.holder = Some(Holder { owner: claim.owner, token, until: lease.end() });
                Attempt::Held(Grant::new(token, lease))
            }
        }
    }

    pub(super) fn renew(&mut self, claim: &Claim, now: Moment) -> Renewal {
        let holder = self.slots.get_mut(&claim.name).and_then(|slot| slot.holder.as_mut());
        match holder {
            Some(holder) if holder.owner == claim.owner && holder.until > now => {
                let lease = Lease::new(now, claim.lease);
                holder.until = lease.end();
                Renewal::Kept(lease)
            }
            _ => Renewal::Lost,
        }
    }

    pub(super) fn release(&mut self, claim: &Claim, now: Moment) -> Released {
        let Some(slot) = self.slots.get_mut(&claim.name) else { return Released::Absent };
        slot.settle(now, &mut self.last_token);
        let held = slot.holder.as_ref().is_some_and(|holder| holder.owner == claim.owner);
        let queued = slot.queue.iter().position(|waiting| waiting.owner == claim.owner);
        if held {
            slot.holder = None;
            slot.settle(now, &mut self.last_token);
        }
        if let Some(index) = queued {
            slot.queue.remove(index);
        }
        if slot.holder.is_none() && slot.queue.is_empty() {
            self.slots.remove(&claim.name);
        }
        if held || queued.is_some() { Released::Released } else { Released::Absent }
    }

    pub(super) fn revoke(&mut self, name: &Name, now: Moment) -> bool {
        let Some(slot) = self.slots.get_mut(name) else { return false };
        let held = slot.holder.take().is_some_and(|holder| holder.until > now);
        slot.settle(now, &mut self.last_token);
        if slot.holder.is_none() {
            self.slots.remove(name);
        }
        held
    }

    pub(super) fn names(&self) -> usize {
        self.slots.len()
    }
}

impl Slot {
    /// Forgets whoever's lease is over, and promotes the first live claim in line if the lock is free.
    fn settle(&mut self, now: Moment, last_token: &mut u64) {
        self.queue.retain(|waiting| waiting.lease.end() > now);
        if self.holder.as_ref().is_some_and(|holder| holder.until > now) {
            return;
        }
        self.holder = None;
        let Some(first) = self.queue.pop_front() else { return };
        let token = next(last_token);
        self.holder = Some(Holder { owner: first.owner, token, until: first.lease.end() });
        // Whether anybody listens does not matter: its next `acquire` says the same.
        let _ = first.wake.send(Some(Grant::new(token, first.lease)));
        // The new head must learn until when the lock is held now: it asks again.
        if let Some(head) = self.queue.front_mut() {
            let _ = std::mem::replace(&mut head.wake, oneshot::channel().0).send(None);
        }
    }

    /// Keeps the claim's place, or gives it the last one; its earlier wake resolves.
    fn enqueue(&mut self, owner: Owner, lease: Lease) -> oneshot::Receiver<Option<Grant>> {
        let (wake, woken) = oneshot::channel();
        match self.queue.iter_mut().find(|waiting| waiting.owner == owner) {
            Some(waiting) => (waiting.lease, waiting.wake) = (lease, wake),
            None => self.queue.push_back(Waiting { owner, lease, wake }),
        }
        woken
    }
}

fn next(last_token: &mut u64) -> FencingToken {
    *last_token += 1;
    FencingToken::new(*last_token)
}
