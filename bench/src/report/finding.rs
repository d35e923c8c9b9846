//! What the figures of polylock add up to, in sentences. Nothing is said about what was not measured.

use crate::record::{Figures, Kind, Outcome, Record, Workload};

use super::number::{count, median, number, of, time};
use super::ratio::{self, Ratio};
use super::section::{after_lease, even_shares, extent, sections, server_label};
use super::workload;

pub(super) struct Finding {
    pub(super) text: String,
    /// Something that must not be.
    pub(super) alarm: bool,
}

/// First what must not be, then what a user chooses by.
pub(super) fn findings(record: &Record) -> Vec<Finding> {
    let alarms = alarms(record).into_iter().map(|text| Finding { text, alarm: true });
    let plain = [uncontended(record), throughput(record), overhead(record)]
        .into_iter()
        .chain([Workload::HandoverWithin, Workload::HandoverBetween].map(|workload| hand_over(record, workload)))
        .chain([fairness(record), waiting(record), crash(record)])
        .flatten()
        .map(|text| Finding { text, alarm: false });
    alarms.chain(plain).collect()
}

/// One server's figures of polylock in one workload.
struct Standing<'a> {
    server: String,
    figures: &'a Figures,
    to_raw: Option<Ratio>,
}

fn standings(record: &Record, workload: Workload) -> Vec<Standing<'_>> {
    let mut ours: Vec<_> = record
        .measurements
        .iter()
        .filter(|it| it.workload == workload && it.contender.kind == Kind::Ours)
        .collect();
    ours.sort_by_key(|it| it.server);
    let standings = ours.into_iter().filter_map(|measurement| match &measurement.outcome {
        Outcome::Measured(figures) => Some(Standing {
            server: server_label(&record.servers, measurement.server),
            figures,
            to_raw: Ratio::to_raw(record, measurement),
        }),
        Outcome::Failed(_) | Outcome::Absent(_) => None,
    });
    standings.collect()
}

/// `quickest on redis: redis 45 µs, etcd 1.2 ms`: the leader, and everyone whose rounds overlap with its,
/// for between those the figures do not decide. A server alone leads nothing.
fn ranking(
    standings: &[Standing<'_>],
    best: &str,
    lower_is_better: bool,
    shown: impl Fn(&Figures) -> Option<String>,
) -> Option<String> {
    let mut ranked: Vec<_> = standings
        .iter()
        .filter_map(|standing| {
            let (rounds, whole) = ratio::contest(standing.figures)?;
            let (least, most) = extent(rounds).unwrap_or((whole, whole));
            Some((whole, least.min(whole), most.max(whole), &standing.server, shown(standing.figures)?))
        })
        .collect();
    ranked.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    if !lower_is_better {
        ranked.reverse();
    }
    let (_, least, most, ..) = *ranked.first()?;
    let leaders: Vec<_> = ranked
        .iter()
        .filter(|(_, low, high, ..)| *low <= most && *high >= least)
        .map(|(.., server, _)| server.as_str())
        .collect();
    let list: Vec<_> = ranked.iter().map(|(.., server, shown)| format!("{server} {shown}")).collect();
    let list = list.join(", ");
    Some(match leaders.as_slice() {
        _ if ranked.len() == 1 => list,
        [leader] => format!("{best} on {leader}: {list}"),
        _ => format!("{best} on {}, which overlap: {list}", leaders.join(" and ")),
    })
}

fn uncontended(record: &Record) -> Option<String> {
    let ranking = ranking(&standings(record, Workload::Uncontended), "quickest", true, |figures| match figures {
        Figures::Uncontended { pair, .. } => Some(time(pair.p50)),
        _ => None,
    })?;
    Some(format!("An uncontended lock, acquire and release (median), {ranking}."))
}

fn throughput(record: &Record) -> Option<String> {
    let ranking = ranking(&standings(record, Workload::Throughput), "most", false, |figures| match figures {
        Figures::Throughput { pairs_per_second, .. } => Some(format!("{}/s", number(*pairs_per_second))),
        _ => None,
    })?;
    Some(format!("Locks that one process takes at once, {ranking}."))
}

fn overhead(record: &Record) -> Option<String> {
    let standings = standings(record, Workload::Uncontended);
    let list: Vec<_> = standings
        .iter()
        .filter_map(|standing| Some(format!("{} {}", standing.server, standing.to_raw?)))
        .collect();
    (!list.is_empty()).then(|| {
        format!("What polylock takes of the time of the same statements on the bare driver: {}.", list.join(", "))
    })
}

fn hand_over(record: &Record, workload: Workload) -> Option<String> {
    let ranking = ranking(&standings(record, workload), "fastest", false, |figures| match figures {
        Figures::Handover { handovers_per_second, time: taken, .. } => {
            Some(format!("{}/s (median {})", number(*handovers_per_second), time(taken.p50)))
        }
        _ => None,
    })?;
    Some(format!("{}, {ranking}.", workload::title(workload)))
}

fn fairness(record: &Record) -> Option<String> {
    let between = standings(record, Workload::HandoverBetween);
    let (standings, place) = match between.is_empty() {
        true => (standings(record, Workload::HandoverWithin), "of one process"),
        false => (between, "in several processes"),
    };
    let mut fewest: Vec<_> = standings
        .iter()
        .filter_map(|standing| match standing.figures {
            Figures::Handover { shares, .. } => Some((extent(&even_shares(shares))?.0, &standing.server)),
            _ => None,
        })
        .collect();
    fewest.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let list: Vec<_> =
        fewest.iter().map(|(share, server)| format!("{server} {:.0} %", share * 1e2)).collect();
    (!list.is_empty()).then(|| {
        format!(
            "Fairness: of waiters {place}, the unluckiest got of an even share (100 % is fair): {}.",
            list.join(", ")
        )
    })
}

fn waiting(record: &Record) -> Option<String> {
    let standings = standings(record, Workload::Waiting);
    let list: Vec<_> = standings
        .iter()
        .filter_map(|standing| match standing.figures {
            Figures::Waiting { commands_per_second, server_cpu_percent, .. } => {
                let commands = commands_per_second.map(|rate| format!("{} commands/s", number(rate)));
                let load = server_cpu_percent.map(|percent| format!("{} % of a server's core", number(percent)));
                let costs: Vec<_> = commands.into_iter().chain(load).collect();
                (!costs.is_empty()).then(|| format!("{} {}", standing.server, costs.join(" and ")))
            }
            _ => None,
        })
        .collect();
    (!list.is_empty()).then(|| format!("100 waiters cost: {}.", list.join("; ")))
}

fn crash(record: &Record) -> Option<String> {
    let standings = standings(record, Workload::Crash);
    let list: Vec<_> = standings
        .iter()
        .filter_map(|standing| match standing.figures {
            Figures::Crash { takeovers, .. } => {
                let after = median(takeovers.iter().map(after_lease).collect())?;
                let when = if after < 0.0 { "before" } else { "after" };
                Some(format!("{} {} {when}", standing.server, time(after.abs() * 1e3)))
            }
            _ => None,
        })
        .collect();
    (!list.is_empty()).then(|| {
        format!("After a crash the next one has the lock (median, from the lease's end): {}.", list.join(", "))
    })
}

/// What polylock must not do, where it did.
fn alarms(record: &Record) -> Vec<String> {
    let mut alarms = Vec::new();
    for section in sections(record) {
        let title = workload::title(section.workload);
        for row in section.groups.iter().flat_map(|group| &group.rows) {
            let measurement = row.measurement;
            if measurement.contender.kind != Kind::Ours {
                continue;
            }
            let place = format!("{title}, {}", server_label(&record.servers, measurement.server));
            match &measurement.outcome {
                Outcome::Measured(figures) => alarms.extend(wrong(figures).map(|wrong| format!("{place}: {wrong}."))),
                Outcome::Failed(_) => alarms.push(format!("{place}: polylock failed.")),
                Outcome::Absent(_) => {}
            }
        }
    }
    alarms
}

fn wrong(figures: &Figures) -> Option<String> {
    match figures {
        Figures::Handover { overlaps, .. } if *overlaps > 0 => {
            Some(format!("acquired {} before the last holder released", of(*overlaps as usize, "time")))
        }
        Figures::Holding { lost, locks, .. } if *lost > 0 => {
            Some(format!("lost {} of {} locks", count(*lost), count(*locks)))
        }
        Figures::Crash { takeovers, allowed_over_lease_ms } => {
            let late = takeovers.iter().filter(|takeover| after_lease(takeover) > *allowed_over_lease_ms).count();
            (late > 0).then(|| format!("{} of {} later than promised", late, of(takeovers.len(), "take-over")))
        }
        _ => None,
    }
}
