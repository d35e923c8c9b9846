use std::{sync::Arc, time::Duration};

use crate::{Name, Owner};

/// One wish to hold one name, named by the caller before anything is sent.
///
/// Everything that a server keeps for a claim can be found by its name and owner alone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// What is locked.
    pub name: Name,
    /// Who claims it.
    pub owner: Owner,
    /// How long the server is asked to keep the claim after each `acquire` and `renew`: the user's ttl
    /// plus the grace. A backend rounds it up to what its server can do, and reports the real length.
    pub lease: Duration,
    /// `true` while the caller waits: a backend with a queue keeps the claim in it. `false` for a
    /// single try, which leaves nothing behind when the lock is busy.
    pub queue: bool,
    /// `true` if nothing was asked for this claim before, so that the server certainly knows nothing of it:
    /// a backend may skip the search for what an earlier attempt has left. Only the first attempt of a claim
    /// is so; `false` is always right.
    pub fresh: bool,
    /// Who this is, for people: `host:pid` by default, at most 64 printable ASCII characters without
    /// spaces. Servers store it beside the owner; it decides nothing.
    pub label: Arc<str>,
}

impl Claim {
    /// A claim that does not wait, labelled `-`.
    #[must_use]
    pub fn new(name: Name, owner: Owner, lease: Duration) -> Self {
        Self { name, owner, lease, queue: false, fresh: false, label: "-".into() }
    }

    /// The same claim, waiting or not.
    #[must_use]
    pub fn queued(mut self, queue: bool) -> Self {
        self.queue = queue;
        self
    }

    /// The same claim, never asked for before or perhaps asked for.
    #[must_use]
    pub fn fresh(mut self, fresh: bool) -> Self {
        self.fresh = fresh;
        self
    }

    /// The same claim with a label.
    #[must_use]
    pub fn labelled(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = label.into();
        self
    }
}
