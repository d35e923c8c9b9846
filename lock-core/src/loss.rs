use std::fmt;

/// Why a guard stopped being held. Final: a lost lock never comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// No renewal was confirmed before the lease ran out by the local clock.
    ///
    /// The server keeps the lock for at least the grace longer, so that the work can stop before
    /// anyone else holds it.
    Expired,
    /// The server says that the claim is gone: deleted, taken, or forgotten by the server.
    Revoked,
    /// It was held for `max_hold`, the most that the options allow.
    MaxHold,
    /// [`Locks::close`](crate::Locks::close) was called.
    Closed,
    /// The runtime that renewed it has shut down.
    RuntimeGone,
    /// Not a loss: the guard was released or dropped by its owner.
    Released,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "no renewal was confirmed before its lease ran out",
            Self::Revoked => "the server no longer knows the claim",
            Self::MaxHold => "it was held for the longest time allowed",
            Self::Closed => "the locks were closed",
            Self::RuntimeGone => "the runtime that renewed it has shut down",
            Self::Released => "it was released",
        })
    }
}

impl std::error::Error for Loss {}
