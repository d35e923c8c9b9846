//! What the figures of polylock add up to, in sentences. Nothing is said about what was not measured.

use crate::record::{Figures, Kind, Outcome, Record, Since, Workload};

use super::number::{count, median, number, of, time};
use super::ratio::{self, Ratio};
use super::section::{even_shares, extent, sections, server_label};
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
        .chain(
            [Workload::HandoverWithin, Workload::HandoverBetween].map(|workload| hand_over(record, workload)),
        )
        .chain([best_other(record), fairness(record), waiting(record), crash(record)])
        .flatten()
        .map(|text| Finding { text, alarm: false });
    alarms.chain(plain).collect()
}

/// One server's figures of polylock in one workload.
struct Standing<'a> {
    server: String,
    figures: &'a Figures,
    ratio: Option<Ratio>,
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
            ratio: Ratio::of(record, measurement),
        }),
        Outcome::Failed(_) | Outcome::Absent(_) => None,
    });
    standings.collect()
}

/// `quickest on redis (45 µs), slowest on etcd (1.2 ms)`. With the first and with the last stands everyone whose
/// rounds overlap with theirs, for between those the figures do not decide. A server alone leads nothing.
fn ranking(
    standings: &[Standing<'_>],
    [best, worst]: [&str; 2],
    lower_is_better: bool,
    shown: impl Fn(&Figures) -> Option<String>,
) -> Option<String> {
    let mut ranked: Vec<_> = standings.iter().filter_map(|it| Ranked::of(it, &shown)).collect();
    ranked.sort_by(|one, other| one.whole.total_cmp(&other.whole));
    if !lower_is_better {
        ranked.reverse();
    }
    let (first, last) = (ranked.first()?, ranked.last()?);
    if ranked.len() == 1 {
        return Some(format!("{} on {}", first.shown, first.server));
    }
    let (leaders, others): (Vec<_>, Vec<_>) = ranked.iter().partition(|it| it.overlaps(first));
    if others.is_empty() {
        return Some(format!("no different on {}: their rounds overlap", named(&leaders)));
    }
    let laggards: Vec<_> = others.into_iter().filter(|it| it.overlaps(last)).collect();
    let level = if leaders.len() > 1 { ", whose rounds overlap" } else { "" };
    let leaders = format!("{best} on {}{level}", named(&leaders));
    Some(if laggards.is_empty() { leaders } else { format!("{leaders}, {worst} on {}", named(&laggards)) })
}

/// A server's place, and how far its rounds reach.
struct Ranked<'a> {
    server: &'a str,
    shown: String,
    whole: f64,
    least: f64,
    most: f64,
}

impl<'a> Ranked<'a> {
    fn of(standing: &'a Standing<'_>, shown: impl Fn(&Figures) -> Option<String>) -> Option<Self> {
        let (rounds, whole) = ratio::contest(standing.figures)?;
        let (least, most) = extent(rounds).unwrap_or((whole, whole));
        let shown = shown(standing.figures)?;
        Some(Self { server: &standing.server, shown, whole, least: least.min(whole), most: most.max(whole) })
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.least <= other.most && self.most >= other.least
    }
}

/// `redis (45 µs) and file (47 µs)`.
fn named(ranked: &[&Ranked<'_>]) -> String {
    let names: Vec<_> = ranked.iter().map(|it| format!("{} ({})", it.server, it.shown)).collect();
    listed(&names)
}

fn uncontended(record: &Record) -> Option<String> {
    let standings = standings(record, Workload::Uncontended);
    let ranking = ranking(&standings, ["quickest", "slowest"], true, |figures| match figures {
        Figures::Uncontended { pair, .. } => Some(time(pair.p50)),
        _ => None,
    })?;
    Some(format!("An uncontended lock, acquired and released: {ranking}."))
}

fn throughput(record: &Record) -> Option<String> {
    let standings = standings(record, Workload::Throughput);
    let ranking = ranking(&standings, ["most", "fewest"], false, |figures| match figures {
        Figures::Throughput { pairs_per_second, .. } => Some(format!("{}/s", number(*pairs_per_second))),
        _ => None,
    })?;
    Some(format!("Locks that one process takes in a second: {ranking}."))
}

fn overhead(record: &Record) -> Option<String> {
    let standings = standings(record, Workload::Uncontended);
    let ratios: Vec<_> = standings.iter().filter_map(|it| Some((it.ratio?, &it.server))).collect();
    let (least, most) = extent(&ratios.iter().map(|(ratio, _)| ratio.middle).collect::<Vec<_>>())?;
    Some(match ratios.as_slice() {
        [(ratio, server)] => format!("polylock takes {ratio} the time of the bare driver on {server}."),
        _ => format!("polylock takes {least:.2} to {most:.2} times as long as the bare driver, by server."),
    })
}

fn hand_over(record: &Record, workload: Workload) -> Option<String> {
    let standings = standings(record, workload);
    let ranking = ranking(&standings, ["fastest", "slowest"], false, |figures| match figures {
        Figures::Handover { handovers_per_second, time: taken, .. } => {
            Some(format!("{}/s, median {}", number(*handovers_per_second), time(taken.p50)))
        }
        _ => None,
    })?;
    Some(format!("{}: {ranking}.", workload::title(workload)))
}

fn best_other(record: &Record) -> Option<String> {
    let standings = standings(record, Workload::HandoverBetween);
    let list = standings.iter().filter_map(|it| Some((format!("{:.2}x", it.ratio?.middle), it)));
    sentence("Hand-overs between processes, to the best other lock on the same server", list)
}

fn fairness(record: &Record) -> Option<String> {
    let between = standings(record, Workload::HandoverBetween);
    let (standings, place) = match between.is_empty() {
        true => (standings(record, Workload::HandoverWithin), "within a process"),
        false => (between, "between processes"),
    };
    let unluckiest = standings.iter().filter_map(|standing| match standing.figures {
        Figures::Handover { shares, .. } => Some((extent(&even_shares(shares))?.0 * 1e2, standing)),
        _ => None,
    });
    let list = unluckiest.map(|(percent, standing)| (format!("{percent:.0} %"), standing));
    sentence(&format!("What the unluckiest waiter gets of an even share, {place}"), list)
}

fn waiting(record: &Record) -> Option<String> {
    let standings = standings(record, Workload::Waiting);
    let list = standings.iter().filter_map(|standing| match standing.figures {
        Figures::Waiting { commands_per_second, .. } => Some((number((*commands_per_second)?), standing)),
        _ => None,
    });
    sentence("Commands a second that 100 waiters cost the server", list)
}

fn crash(record: &Record) -> Option<String> {
    let standings = standings(record, Workload::Crash);
    let list = standings.iter().filter_map(|standing| match standing.figures {
        Figures::Crash { takeovers, allowed_since, .. } => {
            let after = median(takeovers.iter().map(|takeover| takeover.after_ms(*allowed_since)).collect())?;
            let when = if after < 0.0 { "before" } else { "after" };
            let what = match allowed_since {
                Since::Kill => "the kill",
                Since::Lease => "the lease",
            };
            Some((format!("{} {when} {what}", time(after.abs() * 1e3)), standing))
        }
        _ => None,
    });
    sentence("The lock of a killed holder passes on (median)", list)
}

/// `subject: 0 on redis and etcd, 20.5 on mysql.`
fn sentence<'a>(subject: &str, list: impl Iterator<Item = (String, &'a Standing<'a>)>) -> Option<String> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (figure, standing) in list {
        match groups.iter_mut().find(|(known, _)| *known == figure) {
            Some((_, servers)) => servers.push(&standing.server),
            None => groups.push((figure, vec![&standing.server])),
        }
    }
    let list: Vec<_> =
        groups.iter().map(|(figure, servers)| format!("{figure} on {}", listed(servers))).collect();
    (!list.is_empty()).then(|| format!("{subject}: {}.", list.join("; ")))
}

/// `a, b and c`.
fn listed(names: &[impl AsRef<str>]) -> String {
    let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
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
                Outcome::Measured(figures) => {
                    alarms.extend(wrong(figures).map(|wrong| format!("{place}: {wrong}.")))
                }
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
        Figures::Crash { takeovers, allowed_ms, allowed_since } => {
            let late =
                takeovers.iter().filter(|takeover| takeover.after_ms(*allowed_since) > *allowed_ms).count();
            (late > 0)
                .then(|| format!("{} of {} later than promised", late, of(takeovers.len(), "take-over")))
        }
        _ => None,
    }
}
