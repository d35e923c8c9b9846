use std::fmt;

/// A number that grows with every grant of one name on one server.
///
/// Send it along with every write that the lock protects, and let the written-to store refuse a
/// number smaller than the largest it has seen: that is the only thing that stops a holder which was
/// paused, or cut off, past the end of its lease (Kleppmann, "How to do distributed locking", 2016).
/// Compare tokens of one name on one server only. See [`Guarantees::fencing`](crate::Guarantees) for
/// the faults under which a backend's tokens keep growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// A token from the number that a server gave.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number to send with a write.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
