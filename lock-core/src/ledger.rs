use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use crate::{Name, Owner};

/// The claims of ours that the server may still know, for the list that `Locks::close` returns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    claims: Mutex<HashMap<Owner, Name>>,
    keeps_abandoned: AtomicBool,
}

/// One line of the ledger.
#[derive(Debug)]
pub(crate) struct Entry {
    ledger: Ledger,
    owner: Owner,
}

impl Ledger {
    pub(crate) fn enter(&self, owner: Owner, name: Name) -> Entry {
        self.0.claims.lock().unwrap_or_else(PoisonError::into_inner).insert(owner, name);
        Entry { ledger: self.clone(), owner }
    }

    /// From now on abandoned claims stay in it. Before, nobody would ever read them.
    pub(crate) fn keep_abandoned(&self) {
        self.0.keeps_abandoned.store(true, SeqCst);
    }

    /// The names in it, each once, in order.
    pub(crate) fn names(&self) -> Vec<Name> {
        let claims = self.0.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<Name> = claims.values().cloned().collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Entry {
    /// Whether the server answered that the claim is gone; if not, its lease will end it.
    pub(crate) fn close(self, answered: bool) {
        let ledger = &self.ledger.0;
        if answered || !ledger.keeps_abandoned.load(SeqCst) {
            ledger.claims.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.owner);
        }
    }
}
