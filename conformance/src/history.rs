use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use lock_core::{FencingToken, Moment};

/// Who held what, from when to when: the oracle for exclusion and fencing.
///
/// Processes of one machine share the boot clock, so the moments of all of them are in one order. A
/// hold lasts from when its acquire returned to the first of: its release was called, its loss was seen,
/// its last known validity ended.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Vec<Hold>>);

#[derive(Clone, Debug)]
struct Hold {
    name: String,
    who: String,
    token: FencingToken,
    acquired: Moment,
    valid_until: Moment,
    ended: Option<Moment>,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, who, token, .. } = self;
        let (from, to) = (self.acquired.since_start(), self.end().since_start());
        write!(f, "{who} held {name:?} with token {token} from {from:?} to {to:?}")
    }
}

impl Hold {
    fn end(&self) -> Moment {
        self.ended.map_or(self.valid_until, |ended| ended.min(self.valid_until))
    }
}

/// One hold in a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldId(usize);

impl History {
    /// An acquire returned at `at`.
    pub(crate) fn acquired(
        &self,
        (name, who): (&str, &str),
        token: FencingToken,
        at: Moment,
        valid_until: Moment,
    ) -> HoldId {
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, who) = (name.to_owned(), who.to_owned());
        holds.push(Hold { name, who, token, acquired: at, valid_until, ended: None });
        HoldId(holds.len() - 1)
    }

    /// The holder found itself valid until then.
    pub(crate) fn confirmed(&self, hold: HoldId, valid_until: Moment) {
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hold = &mut holds[hold.0];
        hold.valid_until = hold.valid_until.max(valid_until);
    }

    /// The holder called release, saw its loss, or was killed, at that moment.
    pub(crate) fn ended(&self, hold: HoldId, at: Moment) {
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hold = &mut holds[hold.0];
        hold.ended = Some(hold.ended.map_or(at, |ended| ended.min(at)));
    }

    /// How many grants it knows.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Checks that no two holds of one name overlap, and that tokens grow from grant to grant.
    ///
    /// # Errors
    ///
    /// What is wrong with which holds.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut by_name: BTreeMap<String, Vec<Hold>> = BTreeMap::new();
        for hold in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            by_name.entry(hold.name.clone()).or_default().push(hold.clone());
        }
        for holds in by_name.values_mut() {
            holds.sort_by_key(|hold| hold.acquired);
            let mut last: Option<&Hold> = None;
            let mut newest: Option<&Hold> = None;
            for hold in holds.iter() {
                if let Some(last) = last.filter(|last| hold.acquired < last.end()) {
                    return Err(format!("two held at once:\n{last}\n{hold}"));
                }
                if let Some(newest) = newest.filter(|newest| hold.token <= newest.token) {
                    return Err(format!("a later grant's token is not larger:\n{newest}\n{hold}"));
                }
                if last.is_none_or(|last| hold.end() > last.end()) {
                    last = Some(hold);
                }
                newest = Some(hold);
            }
        }
        Ok(())
    }
}

/// A store that a lock protects: it refuses a token smaller than the largest that it has seen.
#[derive(Debug, Default)]
pub(crate) struct Register(Mutex<Option<FencingToken>>);

impl Register {
    /// Writes under this token; whether the write was accepted.
    pub(crate) fn write(&self, token: FencingToken) -> bool {
        let mut highest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let accepted = highest.is_none_or(|highest| token >= highest);
        if accepted {
            *highest = Some(token);
        }
        accepted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn at(millis: u64) -> Moment {
        Moment::from_start(Duration::from_millis(millis))
    }

    /// Holds as (name, token, acquired, valid until, ended).
    fn history(holds: &[(&str, u64, u64, u64, Option<u64>)]) -> History {
        let history = History::default();
        for &(name, token, acquired, valid_until, ended) in holds {
            let token = FencingToken::new(token);
            let id = history.acquired((name, "test"), token, at(acquired), at(valid_until));
            if let Some(ended) = ended {
                history.ended(id, at(ended));
            }
        }
        history
    }

    #[test]
    fn good_histories_pass() {
        let good: [&[_]; 5] = [
            &[],
            &[("a", 1, 0, 10, None), ("b", 1, 0, 10, None)],
            // Released early, lost early, ran out.
            &[
                ("a", 1, 0, 10, Some(5)),
                ("a", 2, 5, 15, Some(7)),
                ("a", 3, 7, 17, None),
                ("a", 9, 17, 20, None),
            ],
            // The loss was seen late, but the validity had ended before.
            &[("a", 1, 0, 10, Some(30)), ("a", 2, 10, 20, None)],
            // Recorded in another order than granted.
            &[("a", 2, 5, 15, None), ("a", 1, 0, 10, Some(5))],
        ];
        for holds in good {
            assert_eq!(history(holds).check(), Ok(()));
        }
    }

    #[test]
    fn bad_histories_are_found() {
        let bad: [&[_]; 7] = [
            // Valid at the same time, by one millisecond, and for long.
            &[("a", 1, 0, 10, None), ("a", 2, 9, 20, None)],
            &[("a", 1, 0, 10, Some(9)), ("a", 2, 8, 20, None)],
            // One inside another, and one after it that overlaps the first only.
            &[("a", 1, 0, 100, None), ("a", 2, 10, 20, None)],
            &[("b", 1, 0, 5, None), ("a", 1, 0, 100, None), ("a", 2, 50, 200, None)],
            // Tokens repeat, or go back.
            &[("a", 1, 0, 10, None), ("a", 1, 20, 30, None)],
            &[("a", 2, 0, 10, None), ("a", 1, 20, 30, None)],
            &[("a", 1, 0, 1, None), ("a", 3, 2, 3, None), ("a", 2, 4, 5, None)],
        ];
        for holds in bad {
            assert!(history(holds).check().is_err(), "{holds:?}");
        }
    }

    #[test]
    fn a_renewal_makes_a_hold_longer_and_only_the_first_end_counts() {
        let longer = history(&[("a", 1, 0, 10, None), ("a", 2, 12, 20, None)]);
        assert_eq!(longer.check(), Ok(()));
        longer.confirmed(HoldId(0), at(15));
        assert!(longer.check().is_err());
        longer.ended(HoldId(0), at(11));
        longer.ended(HoldId(0), at(14));
        assert_eq!(longer.check(), Ok(()));
    }

    #[test]
    fn the_register_refuses_what_is_stale() {
        let register = Register::default();
        assert!(register.write(FencingToken::new(5)));
        assert!(register.write(FencingToken::new(5)));
        assert!(!register.write(FencingToken::new(4)));
        assert!(register.write(FencingToken::new(6)));
    }
}
