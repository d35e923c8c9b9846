use std::{fmt, time::Duration};

/// What a backend promises, as data.
///
/// It has four readers: users at run time (and [`Locks::require`](crate::Locks::require)), the table
/// in the documentation, the conformance suite, which attacks every promise with its fault and tests
/// every absent promise for absence, and the benchmarks. What a backend cannot know, because the
/// server does not tell its configuration, is not promised.
///
/// Two promises are separate. *Exclusion*: no two guards of one name are [held](crate::Guard::is_held)
/// at the same moment, by their own clocks. *Fencing*: the tokens of one name grow in the order of its
/// grants. No lock service can stop a client that passed its last check already; only the fencing
/// token, checked by the store that is written to, can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// The backend, as people call it: `"Redis"`.
    pub backend: &'static str,
    /// How far apart the contenders may be.
    pub scope: Scope,
    /// The faults under which exclusion holds.
    pub exclusion: Faults,
    /// The faults under which fencing tokens of one name keep growing.
    pub fencing: Faults,
    /// When the lock of a killed holder can be taken.
    pub takeover: Takeover,
    /// How long after the end of a lease the server may still refuse the lock to others.
    pub expiry_lag: Duration,
    /// Who is next, between processes. (Inside one process it is always first come, first served.)
    pub fairness: Fairness,
    /// How a waiter learns that the lock may be free.
    pub wakeup: Wakeup,
}

impl Guarantees {
    /// Promises nothing; a backend adds what it can prove.
    #[must_use]
    pub const fn nothing(backend: &'static str, scope: Scope) -> Self {
        Self {
            backend,
            scope,
            exclusion: Faults::NONE,
            fencing: Faults::NONE,
            takeover: Takeover::AfterLease,
            expiry_lag: Duration::ZERO,
            fairness: Fairness::None,
            wakeup: Wakeup::Poll,
        }
    }

    /// Whether this much is promised.
    #[must_use]
    pub fn meets(&self, promise: Promise) -> bool {
        match promise {
            Promise::Exclusion(fault) => self.exclusion.contains(fault),
            Promise::Fencing(fault) => self.fencing.contains(fault),
            Promise::Scope(scope) => self.scope >= scope,
            Promise::TakeoverAtOnce => self.takeover == Takeover::AtOnce,
            Promise::Fifo => self.fairness == Fairness::FifoByClaim,
            Promise::Push => self.wakeup == Wakeup::Push,
        }
    }
}

/// How far apart contenders may be. Ordered: a wider scope is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// Tasks of one process.
    Process,
    /// Processes of one machine.
    Machine,
    /// Machines of one network.
    Network,
}

/// A fault that a promise may or may not survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The holder's process is killed.
    HolderCrash,
    /// The holder's process is stopped for longer than its lease: SIGSTOP, a long collection, suspend.
    HolderPause,
    /// The holder cannot reach the server, or gets no answers.
    Partition,
    /// The server process is killed and started again with the data it kept. Not a loss of power.
    ServerRestart,
    /// Another server takes over, perhaps without the last writes.
    Failover,
    /// The server's wall clock steps, forwards or back.
    ServerClockStep,
    /// The server drops keys because its memory is full.
    Eviction,
    /// The server's data is gone: flushed, or started again empty.
    DataLoss,
}

impl Fault {
    /// Every fault, in the order of the documentation's table.
    pub const ALL: &'static [Self] = &[
        Self::HolderCrash,
        Self::HolderPause,
        Self::Partition,
        Self::ServerRestart,
        Self::Failover,
        Self::ServerClockStep,
        Self::Eviction,
        Self::DataLoss,
    ];

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::HolderCrash => "holder crash",
            Self::HolderPause => "holder pause",
            Self::Partition => "partition",
            Self::ServerRestart => "server restart",
            Self::Failover => "failover",
            Self::ServerClockStep => "server clock step",
            Self::Eviction => "eviction",
            Self::DataLoss => "data loss",
        })
    }
}

/// A set of [`Fault`]s.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults(u16);

impl Faults {
    /// No fault is survived.
    pub const NONE: Self = Self(0);

    /// The set of these faults.
    #[must_use]
    pub const fn of(faults: &[Fault]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < faults.len() {
            bits |= faults[i].bit();
            i += 1;
        }
        Self(bits)
    }

    /// The set with one more fault.
    #[must_use]
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | fault.bit())
    }

    /// Whether the fault is in the set.
    #[must_use]
    pub const fn contains(self, fault: Fault) -> bool {
        self.0 & fault.bit() != 0
    }

    /// The faults in the set, in the order of [`Fault::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Fault> {
        Fault::ALL.iter().copied().filter(move |fault| self.contains(*fault))
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// When the lock of a killed holder can be taken by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Takeover {
    /// When its lease has run out, plus [`Guarantees::expiry_lag`].
    AfterLease,
    /// At once: the operating system tells that the process is gone.
    AtOnce,
}

/// Who gets a lock that several processes wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fairness {
    /// Whoever asks first after the release.
    None,
    /// The claim that was made first.
    FifoByClaim,
}

/// How a waiter learns that a lock may be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wakeup {
    /// It asks again from time to time.
    Poll,
    /// It is told; it asks again rarely, in case the word was lost.
    Push,
}

/// One promise that an application can [require](crate::Locks::require).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Promise {
    /// Exclusion survives this fault.
    Exclusion(Fault),
    /// Fencing tokens keep growing through this fault.
    Fencing(Fault),
    /// Contenders may be at least this far apart.
    Scope(Scope),
    /// A killed holder's lock is free at once.
    TakeoverAtOnce,
    /// Between processes the lock goes to the claim that was made first.
    Fifo,
    /// Waiters are told, they do not poll.
    Push,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusion(fault) => write!(f, "exclusion through {fault}"),
            Self::Fencing(fault) => write!(f, "growing fencing tokens through {fault}"),
            Self::Scope(scope) => write!(f, "contenders across one {}", format!("{scope:?}").to_lowercase()),
            Self::TakeoverAtOnce => f.write_str("take-over from a killed holder at once"),
            Self::Fifo => f.write_str("first come, first served between processes"),
            Self::Push => f.write_str("waiters that are told rather than poll"),
        }
    }
}
