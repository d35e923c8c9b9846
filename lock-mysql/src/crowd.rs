use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use lock_core::{Claim, Name, Owner};

/// How many names are remembered.
const MOST: usize = 1000;

/// For which names others waited when this process last looked, and which of its own claims was called since.
///
/// The short statements, which are for locks that nobody waits for, would be in vain there. It is a guess: the
/// rows decide, and every statement is right for every lock.
#[derive(Debug, Default)]
pub(crate) struct Crowd(Mutex<HashMap<Name, Option<Owner>>>);

impl Crowd {
    /// Whether somebody waits for this lock.
    pub(crate) fn waits_for(&self, name: &Name) -> bool {
        self.lock().contains_key(name)
    }

    /// Whether this claim has to take its place behind others. One that was called is in front, the first
    /// time that it asks.
    pub(crate) fn stands_before(&self, claim: &Claim) -> bool {
        let mut names = self.lock();
        let Some(called) = names.get_mut(&claim.name) else { return false };
        called.take_if(|owner| *owner == claim.owner).is_none()
    }

    /// What the row said.
    pub(crate) fn learn(&self, name: &Name, waiting: bool) {
        let mut names = self.lock();
        if !waiting {
            names.remove(name);
        } else if !names.contains_key(name) {
            if names.len() >= MOST {
                names.clear();
            }
            names.insert(name.clone(), None);
        }
    }

    /// A claim was told that it may have the lock.
    pub(crate) fn call(&self, name: &Name, owner: Owner) {
        if let Some(called) = self.lock().get_mut(name) {
            *called = Some(owner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Option<Owner>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn claim(name: &str) -> Claim {
        Claim::new(Name::new(name).unwrap(), Owner::random().unwrap(), Duration::from_secs(1))
    }

    #[test]
    fn a_crowd_stands_before_all_but_the_one_that_was_called() {
        let (crowd, called, other) = (Crowd::default(), claim("a"), claim("a"));
        assert!(!crowd.stands_before(&called) && !crowd.waits_for(&called.name));
        crowd.learn(&called.name, true);
        assert!(crowd.stands_before(&called) && crowd.waits_for(&called.name));
        crowd.call(&called.name, called.owner);
        crowd.learn(&called.name, true);
        assert!(crowd.stands_before(&other));
        assert!(!crowd.stands_before(&called), "it was called");
        assert!(crowd.stands_before(&called), "that was for once");
        crowd.learn(&called.name, false);
        crowd.call(&called.name, called.owner);
        assert!(!crowd.stands_before(&other) && !crowd.waits_for(&called.name));
    }

    #[test]
    fn only_so_many_names_are_remembered() {
        let crowd = Crowd::default();
        for number in 0..=MOST {
            crowd.learn(&Name::new(number.to_string()).unwrap(), true);
        }
        assert_eq!(crowd.lock().len(), 1);
    }
}
