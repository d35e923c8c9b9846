//! What each workload is called, and what it tells a user.

use crate::record::Workload;

/// In the order of the reports.
pub(super) const ALL: [Workload; 8] = [
    Workload::Uncontended,
    Workload::Throughput,
    Workload::HandoverWithin,
    Workload::HandoverBetween,
    Workload::Waiting,
    Workload::Holding,
    Workload::HoldingMany,
    Workload::Crash,
];

/// Words of the tables, and what they mean.
pub(super) const WORDS: [(&str, &str); 6] = [
    ("raw", "the statements that polylock sends, on the bare driver"),
    ("raw, unfenced", "the cheapest sequence that locks, without fencing tokens"),
    (
        "to raw",
        "what a contender's figure is of raw's on the same server, round by round: the median, and in brackets the \
         lowest and the highest round",
    ),
    (
        "to the best other",
        "the same for hand-overs, where raw does not wait: of the most hand-overs a second that a lock other than \
         polylock reached on the same server without ever having two holders, fenced or not",
    ),
    ("% of even", "what the unluckiest and the luckiest waiter got of an even share; 100-100 is fair"),
    ("p50, p99", "half, and 99 of 100, took no longer"),
];

pub(super) fn title(workload: Workload) -> &'static str {
    match workload {
        Workload::Uncontended => "Uncontended lock",
        Workload::Throughput => "Many locks at once",
        Workload::HandoverWithin => "Hand-over within a process",
        Workload::HandoverBetween => "Hand-over between processes",
        Workload::Waiting => "Waiting",
        Workload::Holding => "Holding 1,000 locks",
        Workload::HoldingMany => "Holding 10,000 locks",
        Workload::Crash => "Crash of the holder",
    }
}

/// One sentence: what is done, and what a user learns from it.
pub(super) fn meaning(workload: Workload) -> &'static str {
    match workload {
        Workload::Uncontended => {
            "One client locks and unlocks a name that nobody else wants: what a lock adds to a request in the \
             usual case."
        }
        Workload::Throughput => {
            "64 tasks of one process lock and unlock a name each: how many locks a second one process can take, \
             and the processor time that each costs it."
        }
        Workload::HandoverWithin => {
            "16 tasks of one process want one name: how fast it goes from one to the next, and whether each gets \
             its turn; and the processor time that each acquisition with its release costs the server."
        }
        Workload::HandoverBetween => {
            "16 waiters in four processes want one name: the same, where the processes meet only at the server."
        }
        Workload::Waiting => {
            "100 waiters want a name that is held all the time: what waiting costs while nothing happens. Commands are \
             the server's own count: Redis counts what scripts call, too; MySQL and MariaDB, the statements that \
             clients send (Questions), of which the kinds may count some twice; etcd, gRPC messages; ZooKeeper, packets."
        }
        Workload::Holding => {
            "1,000 names are held and renewed: what holding costs the server and the holder."
        }
        Workload::HoldingMany => {
            "10,000 names are held and renewed: the same at ten times the size, and whether renewals still come in \
             time."
        }
        Workload::Crash => {
            "The holder's process is killed while another one waits: how long after the end of its lease (or before \
             it, if negative) the waiter has the lock."
        }
    }
}
