//! The rows of every table: what was measured, failed or absent, for each workload and server.

use crate::record::{
    Contender, Figures, Kind, Measurement, Outcome, Record, Server, Since, Takeover, Workload,
};

use super::number::{NOTHING, count, median, number, number_if, of};
use super::ratio::{self, Ratio};
use super::text::printable;
use super::workload;

/// One workload.
pub(super) struct Section<'a> {
    pub(super) workload: Workload,
    pub(super) columns: &'static [Column],
    pub(super) groups: Vec<Group<'a>>,
}

/// One server in it.
pub(super) struct Group<'a> {
    pub(super) server: usize,
    pub(super) rows: Vec<Row<'a>>,
}

/// One contender on it.
pub(super) struct Row<'a> {
    pub(super) measurement: &'a Measurement,
    /// A cell for each column, or why there is none.
    pub(super) cells: Result<Vec<String>, String>,
    /// What no column says.
    pub(super) note: Option<String>,
}

#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) figure: &'static str,
    pub(super) unit: &'static str,
}

const fn column(figure: &'static str, unit: &'static str) -> Column {
    Column { figure, unit }
}

/// The workloads that the record has, in their order; the servers in theirs; polylock first, then raw,
/// unfenced, and peers by name.
pub(super) fn sections(record: &Record) -> Vec<Section<'_>> {
    let sections = workload::ALL.map(|workload| {
        let mut measurements: Vec<_> =
            record.measurements.iter().filter(|measurement| measurement.workload == workload).collect();
        measurements.sort_by_key(|measurement| {
            let Contender { kind, name, .. } = &measurement.contender;
            (measurement.server, *kind, name)
        });
        let groups = measurements
            .chunk_by(|one, other| one.server == other.server)
            .map(|group| Group {
                server: group[0].server,
                rows: group.iter().map(|measurement| Row::new(record, measurement)).collect(),
            })
            .collect();
        Section { workload, columns: columns(workload), groups }
    });
    sections.into_iter().filter(|section| !section.groups.is_empty()).collect()
}

impl<'a> Row<'a> {
    fn new(record: &Record, measurement: &'a Measurement) -> Self {
        let (cells, note) = match &measurement.outcome {
            Outcome::Measured(figures) => {
                let cells = cells(figures, Ratio::of(record, measurement));
                if cells.len() == columns(measurement.workload).len() {
                    (Ok(cells), note(figures))
                } else {
                    (Err("its figures are of another workload".to_owned()), None)
                }
            }
            Outcome::Failed(why) => (Err(format!("failed: {}", printable(why))), None),
            Outcome::Absent(why) => (Err(format!("absent: {}", printable(why))), None),
        };
        Self { measurement, cells, note }
    }
}

fn columns(workload: Workload) -> &'static [Column] {
    match workload {
        Workload::Uncontended => {
            const {
                &[
                    column("acquire", "p50 µs"),
                    column("acquire", "p99 µs"),
                    column("release", "p50 µs"),
                    column("release", "p99 µs"),
                    column("pair", "p50 µs"),
                    column("pair", "p99 µs"),
                    column("time of a pair", "to raw"),
                ]
            }
        }
        Workload::Throughput => {
            const { &[column("pairs", "1/s"), column("client CPU", "µs/pair"), column("rate of pairs", "to raw")] }
        }
        Workload::HandoverWithin | Workload::HandoverBetween => {
            const {
                &[
                    column("hand-overs", "1/s"),
                    column("acquired", "1/s"),
                    column("time", "p50 µs"),
                    column("time", "p99 µs"),
                    column("shares", "% of even"),
                    column("longest", "wait ms"),
                    column("server CPU", "µs each"),
                    column("hand-over rate", "to the best other"),
                ]
            }
        }
        Workload::Waiting => {
            const { &[column("commands", "1/s"), column("server CPU", "%"), column("client CPU", "%")] }
        }
        Workload::Holding | Workload::HoldingMany => {
            const {
                &[
                    column("locks", ""),
                    column("commands", "1/s"),
                    column("server CPU", "%"),
                    column("client CPU", "%"),
                    column("memory", "bytes/lock"),
                    column("latest renewal", "ms"),
                    column("lost", ""),
                ]
            }
        }
        Workload::Crash => {
            const {
                &[
                    column("kills", ""),
                    column("lease left", "p50 ms"),
                    column("take-over", "p50 ms"),
                    column("after lease", "p50 ms"),
                    column("after lease", "max ms"),
                    column("promised", "max ms"),
                ]
            }
        }
    }
}

fn cells(figures: &Figures, ratio: Option<Ratio>) -> Vec<String> {
    match figures {
        Figures::Uncontended { acquire, release, pair, .. } => {
            let times = [acquire, release, pair].into_iter().flat_map(|times| [times.p50, times.p99]);
            times.map(number).chain([ratio::shown(ratio)]).collect()
        }
        Figures::Throughput { pairs_per_second, cpu_us_per_pair, .. } => {
            vec![number(*pairs_per_second), number(*cpu_us_per_pair), ratio::shown(ratio)]
        }
        Figures::Handover {
            handovers_per_second,
            acquisitions_per_second,
            time,
            shares,
            longest_wait_ms,
            server_cpu_us,
            ..
        } => {
            vec![
                number(*handovers_per_second),
                number(*acquisitions_per_second),
                number(time.p50),
                number(time.p99),
                extent(&even_shares(shares)).map_or_else(
                    || NOTHING.to_owned(),
                    |(fewest, most)| format!("{:.0}-{:.0}", fewest * 1e2, most * 1e2),
                ),
                number(*longest_wait_ms),
                number_if(*server_cpu_us),
                ratio::shown(ratio),
            ]
        }
        Figures::Waiting { commands_per_second, server_cpu_percent, client_cpu_percent, .. } => {
            vec![number_if(*commands_per_second), number_if(*server_cpu_percent), number(*client_cpu_percent)]
        }
        Figures::Holding {
            locks,
            commands_per_second,
            server_cpu_percent,
            client_cpu_percent,
            bytes_per_lock,
            worst_lateness_ms,
            lost,
        } => vec![
            count(*locks),
            number_if(*commands_per_second),
            number_if(*server_cpu_percent),
            number(*client_cpu_percent),
            number(*bytes_per_lock),
            number(*worst_lateness_ms),
            count(*lost),
        ],
        Figures::Crash { takeovers, allowed_ms, allowed_since } => {
            let middle = |part: fn(&Takeover) -> f64| number_if(median(takeovers.iter().map(part).collect()));
            vec![
                count(takeovers.len()),
                middle(|takeover| takeover.lease_left_ms),
                middle(|takeover| takeover.took_ms),
                middle(after_lease),
                number_if(takeovers.iter().map(after_lease).reduce(f64::max)),
                match allowed_since {
                    Since::Kill => format!("{} from kill", number(*allowed_ms)),
                    Since::Lease => number(*allowed_ms),
                },
            ]
        }
    }
}

fn note(figures: &Figures) -> Option<String> {
    match figures {
        Figures::Handover { overlaps, .. } if *overlaps > 0 => Some(format!(
            "NOT EXCLUSIVE: acquired {} times before the last holder released",
            count(*overlaps)
        )),
        Figures::Waiting { by_kind, .. } if !by_kind.is_empty() => {
            let mut kinds: Vec<_> = by_kind.iter().collect();
            kinds.sort_by(|(_, one), (_, other)| other.total_cmp(one));
            let kinds =
                kinds.into_iter().map(|(kind, rate)| format!("{} {}/s", printable(kind), number(*rate)));
            Some(kinds.collect::<Vec<_>>().join(", "))
        }
        _ => None,
    }
}

/// How long after the end of the lease the lock was taken over; negative is before it.
pub(super) fn after_lease(takeover: &Takeover) -> f64 {
    takeover.after_ms(Since::Lease)
}

/// What each waiter got of what an even split had given it.
pub(super) fn even_shares(shares: &[u64]) -> Vec<f64> {
    let even = shares.iter().sum::<u64>() as f64 / shares.len() as f64;
    shares.iter().map(|share| *share as f64 / even).filter(|share| share.is_finite()).collect()
}

/// The least and the most.
pub(super) fn extent(values: &[f64]) -> Option<(f64, f64)> {
    Some((values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?))
}

/// `redis`; where there are two, what tells them apart.
pub(super) fn server_label(servers: &[Server], index: usize) -> String {
    let Some(server) = servers.get(index) else {
        return format!("server {} (not described)", index + 1);
    };
    let alike: Vec<_> = servers.iter().filter(|other| other.backend == server.backend).collect();
    if alike.len() == 1 {
        return printable(&server.backend);
    }
    let parts: [fn(&Server) -> &str; 3] =
        [|server| &server.version, |server| &server.durability, |server| &server.topology];
    let telling = parts.into_iter().find(|part| {
        part(server).chars().count() <= 40
            && alike.iter().filter(|other| part(other) == part(server)).count() == 1
    });
    match telling {
        Some(part) => format!("{} {}", printable(&server.backend), printable(part(server))),
        None => format!("{} (server {})", printable(&server.backend), index + 1),
    }
}

/// `polylock`, `rslock 0.10.0 (Rust)`.
pub(super) fn contender_label(contender: &Contender) -> String {
    let Contender { name, kind, language, version } = contender;
    match kind {
        Kind::Peer => printable(&format!("{name} {version} ({language})")),
        Kind::Ours | Kind::Raw | Kind::Unfenced => printable(name),
    }
}

/// `2 CPUs (…), 7.8 GiB, Linux …`.
pub(super) fn machine(record: &Record) -> String {
    let machine = &record.machine;
    printable(&format!(
        "{} ({}), {} of memory, {}",
        of(machine.cpus, "CPU"),
        machine.cpu,
        super::number::gibibytes(machine.memory_bytes),
        machine.system
    ))
}

/// Rounds, lengths, leases, cores.
pub(super) fn settings(record: &Record) -> String {
    let settings = &record.settings;
    format!(
        "{} of {} s for each contender, waiting for {} s, holding for {} s, leases of {} s and in the crash of {} s, \
         client and server of the uncontended lock {}",
        of(settings.rounds, "round"),
        settings.seconds,
        settings.waiting,
        settings.holding,
        settings.ttl,
        settings.crash_ttl,
        if settings.pinned { "on one core" } else { "on any core" }
    )
}
