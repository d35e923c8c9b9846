//! What is decided under the lock on a lease's row, without any I/O.

use std::time::Duration;

use lock_core::{Claim, Released};

use crate::bell::Clapper;

/// All that the server knows of a name. `left` is in microseconds, and not positive when it is over.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) lease: Option<LeaseRow>,
    /// In the order of their tickets.
    pub(crate) queue: Vec<Waiter>,
}

#[derive(Debug)]
pub(crate) struct LeaseRow {
    pub(crate) left: i64,
    pub(crate) owner: Option<Vec<u8>>,
    pub(crate) version: u64,
}

/// A place in the queue, with a lease of its own.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) left: i64,
    pub(crate) owner: Vec<u8>,
    pub(crate) ticket: u64,
    pub(crate) label: Vec<u8>,
    pub(crate) bell: Option<Clapper>,
}

/// One change to the rows of a name. `waiting` is how many places the queue then has.
#[derive(Debug)]
pub(crate) enum Change<'a> {
    /// These owners lose their places.
    Leave(Vec<&'a [u8]>),
    /// The claim takes a place, or keeps it for a further lease.
    Queue { claim: &'a Claim, ticket: u64, bell: Option<Clapper> },
    /// The claim gets the lock, with a new token.
    Take { claim: &'a Claim, waiting: usize },
    /// The claim keeps the lock for a further lease.
    Keep { claim: &'a Claim, waiting: usize },
    /// The waiter gets the lock, with a new token and the lease of its place.
    Promote { waiter: &'a Waiter, waiting: usize },
    /// Nobody has the lock.
    Free { waiting: usize },
    /// The queue has changed.
    Count { waiting: usize },
}

/// What to write, and what that means.
#[derive(Debug)]
pub(crate) struct Plan<'a, T> {
    pub(crate) changes: Vec<Change<'a>>,
    pub(crate) answer: T,
    /// Who got the lock, and is to be woken once that is written.
    pub(crate) promoted: Option<&'a Waiter>,
}

/// The answer to an acquire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Held, with the token that the last change has told.
    Held,
    /// Busy; when to ask again at the latest.
    Busy(Duration),
}

impl Found {
    /// Takes the lock, keeps it, or takes a place in the queue. `None` if the name has no row yet.
    pub(crate) fn acquire<'a>(&'a self, claim: &'a Claim, bell: Option<&Clapper>) -> Option<Plan<'a, Word>> {
        let lease = self.lease.as_ref()?;
        let me = claim.owner.as_bytes().as_slice();
        let is_held = lease.left > 0;
        let is_next = self.live().next().is_none_or(|head| head.owner == me);
        if is_held && lease.owner.as_deref() == Some(me) {
            return Some(self.hold(me, |waiting| Change::Keep { claim, waiting }));
        }
        if !is_held && is_next {
            return Some(self.hold(me, |waiting| Change::Take { claim, waiting }));
        }

        let promoted = if is_held { None } else { self.live().next() };
        let holder_left = promoted.map_or(lease.left, |waiter| waiter.left);
        let place = self.live().find(|waiter| waiter.owner == me);
        let others =
            self.live().filter(|waiter| waiter.owner != me).count() - usize::from(promoted.is_some());
        let waiting = others + usize::from(claim.queue);
        let mut changes = Vec::new();
        // What has run out, and what a try must not leave behind.
        changes.extend(self.leave(|waiter| waiter.left <= 0 || (waiter.owner == me && !claim.queue)));
        let stays = changes.is_empty() && (place.is_some() || !claim.queue);
        match promoted {
            Some(waiter) => changes.push(Change::Promote { waiter, waiting }),
            None if !stays => changes.push(Change::Count { waiting }),
            None => {}
        }
        if claim.queue {
            let ticket = place.map_or(lease.version + 1, |place| place.ticket);
            changes.push(Change::Queue { claim, ticket, bell: bell.cloned() });
        }

        let in_front = self.live().filter(|waiter| {
            waiter.owner != me
                && promoted.is_none_or(|promoted| promoted.owner != waiter.owner)
                && place.is_none_or(|place| waiter.ticket < place.ticket)
        });
        // Only the first in the queue looks whether the holder lives; the others keep their places.
        let third = claim.lease / 3;
        let recheck = match (claim.queue, in_front.count()) {
            (false, _) => micros(holder_left),
            (true, 0) => third.min(micros(holder_left)),
            (true, _) => third,
        };
        Some(Plan { changes, answer: Word::Busy(recheck), promoted })
    }

    /// Gives up the lock or the place in the queue, and hands a lock that is free to the next.
    pub(crate) fn release(&self, claim: &Claim) -> Plan<'_, Released> {
        let me = claim.owner.as_bytes().as_slice();
        let is_held = self.lease.as_ref().is_some_and(|lease| lease.left > 0);
        let is_mine = is_held && self.lease.as_ref().is_some_and(|lease| lease.owner.as_deref() == Some(me));
        let is_queued = self.queue.iter().any(|waiter| waiter.owner == me);
        let mut changes = Vec::new();
        changes.extend(self.leave(|waiter| waiter.left <= 0 || waiter.owner == me));
        let mut promoted = None;
        if self.lease.is_some() {
            let mut others = self.live().filter(|waiter| waiter.owner != me);
            let waiting = others.clone().count();
            let is_free = is_mine || !is_held;
            match others.next() {
                Some(waiter) if is_free => {
                    changes.push(Change::Promote { waiter, waiting: waiting - 1 });
                    promoted = Some(waiter);
                }
                None if is_mine => changes.push(Change::Free { waiting }),
                _ if !changes.is_empty() => changes.push(Change::Count { waiting }),
                _ => {}
            }
        }
        let answer = if is_mine || is_queued { Released::Released } else { Released::Absent };
        Plan { changes, answer, promoted }
    }

    fn hold<'a>(&'a self, me: &[u8], change: impl FnOnce(usize) -> Change<'a>) -> Plan<'a, Word> {
        let waiting = self.live().filter(|waiter| waiter.owner != me).count();
        let mut changes = Vec::new();
        changes.extend(self.leave(|waiter| waiter.left <= 0 || waiter.owner == me));
        changes.push(change(waiting));
        Plan { changes, answer: Word::Held, promoted: None }
    }

    fn live(&self) -> impl Iterator<Item = &Waiter> + Clone {
        self.queue.iter().filter(|waiter| waiter.left > 0)
    }

    fn leave(&self, which: impl Fn(&Waiter) -> bool) -> Option<Change<'_>> {
        let owners: Vec<_> =
            self.queue.iter().filter(|waiter| which(waiter)).map(|waiter| waiter.owner.as_slice()).collect();
        (!owners.is_empty()).then_some(Change::Leave(owners))
    }
}

fn micros(left: i64) -> Duration {
    Duration::from_micros(u64::try_from(left).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use lock_core::{Name, Owner};

    use super::*;

    fn claim(owner: u8) -> Claim {
        let owner = Owner::from_bytes([owner; 16]);
        Claim::new(Name::new("x").unwrap(), owner, Duration::from_secs(3)).queued(true)
    }

    fn waiter(owner: u8, left: i64) -> Waiter {
        let bell = Some(Clapper { connection: owner.into(), nonce: "n".into() });
        Waiter { left, owner: vec![owner; 16], ticket: owner.into(), label: Vec::new(), bell }
    }

    fn found(holder: u8, left: i64, queue: impl IntoIterator<Item = Waiter>) -> Found {
        let lease = LeaseRow { left, owner: Some(vec![holder; 16]), version: 40 };
        Found { lease: Some(lease), queue: queue.into_iter().collect() }
    }

    /// The changes in short.
    fn short<T>(plan: &Plan<'_, T>) -> Vec<String> {
        let one = |change: &Change<'_>| match change {
            Change::Leave(owners) => format!("leave {:?}", owners.iter().map(|o| o[0]).collect::<Vec<_>>()),
            Change::Queue { ticket, .. } => format!("queue {ticket}"),
            Change::Take { waiting, .. } => format!("take, {waiting}"),
            Change::Keep { waiting, .. } => format!("keep, {waiting}"),
            Change::Promote { waiter, waiting } => format!("promote {}, {waiting}", waiter.owner[0]),
            Change::Free { waiting } => format!("free, {waiting}"),
            Change::Count { waiting } => format!("count {waiting}"),
        };
        plan.changes.iter().map(one).collect()
    }

    #[test]
    fn a_new_waiter_goes_to_the_end_of_the_queue_and_an_old_one_stays() {
        let held = found(1, 900, [waiter(2, 500), waiter(3, 500)]);
        let me = claim(4);
        let plan = held.acquire(&me, None).unwrap();
        assert_eq!(short(&plan), ["count 3", "queue 41"]);
        assert_eq!(plan.answer, Word::Busy(Duration::from_secs(1)));
        let me = claim(2);
        let plan = held.acquire(&me, None).unwrap();
        assert_eq!(short(&plan), ["queue 2"]);
        assert_eq!(plan.answer, Word::Busy(Duration::from_micros(900)), "the first watches the holder");
    }

    #[test]
    fn a_free_lock_goes_to_the_first_that_lives() {
        let free = found(1, 0, [waiter(2, -1), waiter(3, 500), waiter(4, 500)]);
        let me = claim(4);
        let plan = free.acquire(&me, None).unwrap();
        assert_eq!(short(&plan), ["leave [2]", "promote 3, 1", "queue 4"]);
        assert_eq!(plan.answer, Word::Busy(Duration::from_micros(500)));
        assert_eq!(plan.promoted.unwrap().ticket, 3);
        let me = claim(3);
        let plan = free.acquire(&me, None).unwrap();
        assert_eq!(short(&plan), ["leave [2, 3]", "take, 1"]);
        let dead = found(1, -5, [waiter(2, 0)]);
        let me = claim(9);
        assert_eq!(short(&dead.acquire(&me, None).unwrap()), ["leave [2]", "take, 0"]);
    }

    #[test]
    fn a_try_overtakes_nobody_and_leaves_nothing() {
        let free = found(1, 0, [waiter(2, 500)]);
        let me = claim(4).queued(false);
        let plan = free.acquire(&me, None).unwrap();
        assert_eq!(short(&plan), ["promote 2, 0"]);
        let held = found(1, 900, [waiter(4, 500)]);
        assert_eq!(short(&held.acquire(&me, None).unwrap()), ["leave [4]", "count 0"]);
        let held = found(1, 900, []);
        assert!(held.acquire(&me, None).unwrap().changes.is_empty());
    }

    #[test]
    fn the_holder_keeps_what_it_holds() {
        let held = found(1, 900, [waiter(2, 500)]);
        let me = claim(1);
        let plan = held.acquire(&me, None).unwrap();
        assert_eq!((short(&plan), plan.answer), (vec!["keep, 1".to_owned()], Word::Held));
    }

    #[test]
    fn a_release_hands_the_lock_to_the_next_that_lives() {
        let held = found(1, 900, [waiter(2, 0), waiter(3, 500), waiter(4, 500)]);
        let plan = held.release(&claim(1));
        assert_eq!(short(&plan), ["leave [2]", "promote 3, 1"]);
        assert_eq!((plan.answer, plan.promoted.unwrap().ticket), (Released::Released, 3));
        let held = found(1, 900, [waiter(2, 0)]);
        assert_eq!(short(&held.release(&claim(1))), ["leave [2]", "free, 0"]);
    }

    #[test]
    fn a_release_takes_nothing_from_others() {
        let held = found(1, 900, [waiter(2, 500), waiter(3, 500)]);
        let plan = held.release(&claim(2));
        assert_eq!(
            (short(&plan), plan.answer),
            (vec!["leave [2]".into(), "count 1".into()], Released::Released)
        );
        let plan = held.release(&claim(9));
        assert_eq!((short(&plan), plan.answer), (vec![], Released::Absent));
        let over = found(1, 0, [waiter(2, 500)]);
        let plan = over.release(&claim(1));
        assert_eq!((short(&plan), plan.answer), (vec!["promote 2, 0".into()], Released::Absent));
        let missing = Found { lease: None, queue: vec![waiter(2, 500)] };
        assert_eq!(short(&missing.release(&claim(2))), ["leave [2]"]);
    }
}
