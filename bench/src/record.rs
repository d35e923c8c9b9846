//! What a run has measured: written as JSON, read by the reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Everything that one run has measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// When the run ended: RFC 3339, UTC.
    pub made: String,
    /// The commit of polylock, if it is known.
    pub commit: Option<String>,
    pub machine: Machine,
    pub settings: Settings,
    pub servers: Vec<Server>,
    pub measurements: Vec<Measurement>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cpus: usize,
    pub cpu: String,
    pub memory_bytes: u64,
    pub system: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// How often each contender had its turn.
    pub rounds: usize,
    /// How long one turn is, in seconds.
    pub seconds: f64,
    /// Whether client and server of the uncontended workload shared one core.
    pub pinned: bool,
    /// How long waiters were looked at, in seconds.
    pub waiting: f64,
    /// How long many locks were held, in seconds.
    pub holding: f64,
    /// The leases' ttl, in seconds.
    pub ttl: f64,
    /// That of the holder that is killed, in seconds: short, since its end is waited for.
    pub crash_ttl: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    /// The backend's name: `redis`, `etcd`, …
    pub backend: String,
    /// Without its password.
    pub url: String,
    /// As the server tells it.
    pub version: String,
    /// What a write survives: `appendonly no`, `innodb_flush_log_at_trx_commit=1`, …
    pub durability: String,
    /// `one server`, `three members`, …
    pub topology: String,
}

/// One contender on one server in one workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// Index into [`Record::servers`].
    pub server: usize,
    pub workload: Workload,
    pub contender: Contender,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// One client, one name: acquire, release.
    Uncontended,
    /// 64 tasks of one process, a name each.
    Throughput,
    /// 16 waiters on one name in one process.
    HandoverWithin,
    /// 16 waiters on one name in four processes.
    HandoverBetween,
    /// 100 waiters on a name that is held.
    Waiting,
    /// 1,000 names held and renewed.
    Holding,
    /// 10,000 names held and renewed.
    HoldingMany,
    /// The holder's process is killed while another one waits.
    Crash,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Contender {
    /// `polylock`, `raw`, `raw, unfenced`, or a peer's name.
    pub name: String,
    pub kind: Kind,
    pub language: String,
    pub version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Ours,
    /// The same statements that our backend sends, on the bare driver.
    Raw,
    /// The cheapest sequence, without fencing tokens.
    Unfenced,
    Peer,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Measured(Figures),
    /// Why it came to nothing.
    Failed(String),
    /// Why it cannot be: a peer that does not wait, a server that does not tell its counters.
    Absent(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "figures")]
pub enum Figures {
    Uncontended {
        acquire: Times,
        release: Times,
        pair: Times,
        rounds: Vec<f64>,
    },
    Throughput {
        pairs_per_second: f64,
        cpu_us_per_pair: f64,
        rounds: Vec<f64>,
    },
    Handover {
        /// To another waiter.
        handovers_per_second: f64,
        acquisitions_per_second: f64,
        /// Release called to next acquire returned.
        time: Times,
        /// Acquisitions of each waiter.
        shares: Vec<u64>,
        longest_wait_ms: f64,
        /// What the server's processes took for each acquisition and its release, if they can be looked at.
        server_cpu_us: Option<f64>,
        /// Acquired before the last one was released: must be none.
        overlaps: u64,
        rounds: Vec<f64>,
    },
    Waiting {
        commands_per_second: Option<f64>,
        by_kind: BTreeMap<String, f64>,
        server_cpu_percent: Option<f64>,
        client_cpu_percent: f64,
    },
    Holding {
        locks: usize,
        commands_per_second: Option<f64>,
        server_cpu_percent: Option<f64>,
        client_cpu_percent: f64,
        bytes_per_lock: f64,
        worst_lateness_ms: f64,
        lost: usize,
    },
    Crash {
        takeovers: Vec<Takeover>,
        /// The expiry lag that the backend declares, and 100 ms.
        allowed_ms: f64,
        /// What that is counted from.
        allowed_since: Since,
    },
}

/// What the time of a take-over is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Since {
    /// The backend declares that the lock of a dead holder is free at once.
    Kill,
    /// The end of the holder's lease on the server.
    Lease,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Takeover {
    /// What was left of the server's lease at the kill.
    pub lease_left_ms: f64,
    /// From the kill to the next acquire's return.
    pub took_ms: f64,
}

impl Takeover {
    /// When the next one had the lock; negative is before the end of the lease.
    #[must_use]
    pub fn after_ms(&self, since: Since) -> f64 {
        match since {
            Since::Kill => self.took_ms,
            Since::Lease => self.took_ms - self.lease_left_ms,
        }
    }
}

/// A distribution of times, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    /// Percentile and value, ascending, enough to draw the distribution.
    pub points: Vec<(f64, f64)>,
}
