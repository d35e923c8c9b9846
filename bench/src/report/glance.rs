//! polylock on every server in one table: one figure of each workload.

use crate::record::{Figures, Kind, Outcome, Record, Workload};

use super::number::{NOTHING, median, number, time};
use super::section::{after_lease, even_shares, extent, server_label};

pub(super) struct Glance {
    pub(super) heads: Vec<&'static str>,
    /// A server, and a cell under each head.
    pub(super) rows: Vec<(String, Vec<String>)>,
}

struct Column {
    head: &'static str,
    workload: Workload,
    cell: fn(&Figures) -> Option<String>,
}

const COLUMNS: [Column; 6] = [
    Column {
        head: "lock and unlock",
        workload: Workload::Uncontended,
        cell: |figures| match figures {
            Figures::Uncontended { pair, .. } => Some(time(pair.p50)),
            _ => None,
        },
    },
    Column {
        head: "locks a second",
        workload: Workload::Throughput,
        cell: |figures| match figures {
            Figures::Throughput { pairs_per_second, .. } => Some(number(*pairs_per_second)),
            _ => None,
        },
    },
    Column {
        head: "hand-over to another process",
        workload: Workload::HandoverBetween,
        cell: |figures| match figures {
            Figures::Handover { time: taken, .. } => Some(time(taken.p50)),
            _ => None,
        },
    },
    Column {
        head: "unluckiest waiter's share of an even one",
        workload: Workload::HandoverBetween,
        cell: |figures| match figures {
            Figures::Handover { shares, .. } => {
                Some(format!("{:.0} %", extent(&even_shares(shares))?.0 * 1e2))
            }
            _ => None,
        },
    },
    Column {
        head: "commands a second for 100 waiters",
        workload: Workload::Waiting,
        cell: |figures| match figures {
            Figures::Waiting { commands_per_second, .. } => commands_per_second.map(number),
            _ => None,
        },
    },
    Column {
        head: "after a crash, from the lease's end",
        workload: Workload::Crash,
        cell: |figures| match figures {
            Figures::Crash { takeovers, .. } => {
                median(takeovers.iter().map(after_lease).collect()).map(|after| time(after * 1e3))
            }
            _ => None,
        },
    },
];

/// Nothing if nothing of it was measured; a workload or a server that was not is left out.
pub(super) fn glance(record: &Record) -> Option<Glance> {
    let columns: Vec<_> = COLUMNS
        .iter()
        .map(|column| {
            (column.head, (0..record.servers.len()).map(|it| column.of(record, it)).collect::<Vec<_>>())
        })
        .filter(|(_, cells)| cells.iter().any(Option::is_some))
        .collect();
    let rows: Vec<_> = (0..record.servers.len())
        .filter(|server| columns.iter().any(|(_, cells)| cells[*server].is_some()))
        .map(|server| {
            let cells = columns.iter().map(|(_, cells)| cells[server].clone());
            let cells = cells.map(|cell| cell.unwrap_or_else(|| NOTHING.to_owned()));
            (server_label(&record.servers, server), cells.collect())
        })
        .collect();
    (!rows.is_empty()).then(|| Glance { heads: columns.iter().map(|(head, _)| *head).collect(), rows })
}

impl Column {
    fn of(&self, record: &Record, server: usize) -> Option<String> {
        let ours = record.measurements.iter().find(|it| {
            it.server == server && it.workload == self.workload && it.contender.kind == Kind::Ours
        })?;
        match &ours.outcome {
            Outcome::Measured(figures) => (self.cell)(figures),
            Outcome::Failed(_) | Outcome::Absent(_) => None,
        }
    }
}
