use std::time::Duration;

use crate::Moment;

/// The server's word how long it keeps a claim, and since when.
///
/// `since` was read, by the backend, *before* the request that proves the lease was sent: the server
/// keeps the claim at least until `since + length`. A renewal that rode on a heartbeat or a batch
/// already in flight carries that one's `since`, never its own; a lease taken from a pool carries the
/// moment of its last proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// A moment before the proving request could reach the server.
    pub since: Moment,
    /// How long the server keeps the claim from then on, as the server said.
    pub length: Duration,
}

impl Lease {
    /// A lease of this length, counted from before the request was sent.
    #[must_use]
    pub const fn new(since: Moment, length: Duration) -> Self {
        Self { since, length }
    }

    /// When the server may forget the claim, by the local clock.
    #[must_use]
    pub fn end(&self) -> Moment {
        self.since + self.length
    }
}
