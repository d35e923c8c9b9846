use std::time::Duration;

use lock_core::Moment;

/// The longest lease that the server is asked for: a hundred years. Its own limit is 9e9 s.
const LONGEST: u64 = 100 * 365 * 24 * 3600;

/// A lease of the server's, as far as it is known here. One claim uses it at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    /// What was asked for: leases are pooled by it.
    pub(crate) asked: i64,
    /// What the server gives, which may be more.
    pub(crate) granted: i64,
    /// A moment before the request that last proved it.
    pub(crate) since: Moment,
}

impl Lease {
    /// The server keeps it for at least so long after its last proof.
    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs(self.granted.try_into().unwrap_or(0))
    }

    pub(crate) fn age(&self) -> Duration {
        Moment::now().saturating_since(self.since)
    }

    /// Whether it was proved so recently that there is nothing to gain from doing it again.
    pub(crate) fn is_fresh(&self) -> bool {
        self.age() < self.length() / 10
    }

    /// Whether enough of it is left to begin with.
    pub(crate) fn is_usable(&self) -> bool {
        self.age() <= self.length() / 2
    }

    pub(crate) fn is_over(&self) -> bool {
        self.age() >= self.length()
    }

    pub(crate) fn word(&self) -> lock_core::Lease {
        lock_core::Lease::new(self.since, self.length())
    }
}

/// What to ask the server for: whole seconds, rounded up, at least one.
pub(crate) fn seconds(lease: Duration) -> i64 {
    let whole = lease.as_secs().saturating_add(u64::from(lease.subsec_nanos() > 0));
    i64::try_from(whole.clamp(1, LONGEST)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_rounded_up_to_whole_seconds() {
        for (lease, expected) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_secs(1), 1),
            (Duration::from_millis(1_200), 2),
            (Duration::from_secs(33), 33),
            (Duration::MAX, 3_153_600_000),
        ] {
            assert_eq!(seconds(lease), expected, "{lease:?}");
        }
    }
}
