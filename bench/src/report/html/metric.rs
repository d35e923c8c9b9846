//! Which figures of a workload are drawn, and how.

use crate::record::{Figures, Since, Workload};

use super::super::number::{number, time};
use super::super::section::{after_lease, even_shares, extent};
use super::figures::Panel;
use super::palette::Ink;
use super::plot::{self, Axis, Bar, Mark};

/// A figure's marks, and the figure in words.
type Marked = (Vec<Mark>, String);

/// One figure out of a measurement.
pub(super) struct Metric {
    title: &'static str,
    reading: &'static str,
    axis: Axis,
    marks: fn(&Figures) -> Option<Marked>,
}

impl Metric {
    /// Nothing if nobody was measured by it.
    pub(super) fn panel<'a>(&self, rows: impl Iterator<Item = (String, Ink, &'a Figures)>) -> Option<Panel> {
        let rows: Vec<_> = rows
            .filter_map(|(label, ink, figures)| {
                let (marks, value) = (self.marks)(figures)?;
                Some(Bar { label, value, ink, marks })
            })
            .collect();
        let &Self { title, reading, .. } = self;
        (!rows.is_empty()).then(|| Panel { title, reading, svg: plot::rows(title, &self.axis, &rows) })
    }
}

const fn amount(text: &'static str) -> Axis {
    Axis { text, times: false, reference: None }
}

fn bar(value: f64, unit: &str) -> Marked {
    (vec![Mark::Bar(value)], format!("{}{unit}", number(value)))
}

pub(super) fn metrics(workload: Workload) -> Vec<Metric> {
    match workload {
        Workload::Uncontended => vec![Metric {
            title: "Acquire and release together",
            reading: "The dot is the median, the line goes to p99.",
            axis: Axis { text: "time, logarithmic", times: true, reference: None },
            marks: |figures| match figures {
                Figures::Uncontended { pair, .. } => {
                    Some((vec![Mark::Span(pair.p50, pair.p99), Mark::Dot(pair.p50)], time(pair.p50)))
                }
                _ => None,
            },
        }],
        Workload::Throughput => vec![
            Metric {
                title: "Throughput",
                reading: "More is better.",
                axis: amount("pairs of acquire and release a second"),
                marks: |figures| match figures {
                    Figures::Throughput { pairs_per_second, .. } => Some(bar(*pairs_per_second, "/s")),
                    _ => None,
                },
            },
            Metric {
                title: "Processor time of the client",
                reading: "Less is better.",
                axis: amount("µs for a pair"),
                marks: |figures| match figures {
                    Figures::Throughput { cpu_us_per_pair, .. } => Some(bar(*cpu_us_per_pair, " µs")),
                    _ => None,
                },
            },
        ],
        Workload::HandoverWithin | Workload::HandoverBetween => vec![
            Metric {
                title: "Hand-over rate",
                reading: "To another waiter. More is better.",
                axis: amount("hand-overs a second"),
                marks: |figures| match figures {
                    Figures::Handover { handovers_per_second, .. } => Some(bar(*handovers_per_second, "/s")),
                    _ => None,
                },
            },
            Metric {
                title: "Hand-over time",
                reading: "From one's release to the next one's lock. The dot is the median, the line goes to p99.",
                axis: Axis { text: "time, logarithmic", times: true, reference: None },
                marks: |figures| match figures {
                    Figures::Handover { time: taken, .. } => {
                        Some((vec![Mark::Span(taken.p50, taken.p99), Mark::Dot(taken.p50)], time(taken.p50)))
                    }
                    _ => None,
                },
            },
            Metric {
                title: "Fairness",
                reading: "A dot for each waiter. All on the line is fair.",
                axis: Axis {
                    text: "share, as a multiple of an even one",
                    times: false,
                    reference: Some(1.0),
                },
                marks: |figures| match figures {
                    Figures::Handover { shares, .. } => {
                        let shares = even_shares(shares);
                        let (fewest, most) = extent(&shares)?;
                        let told = format!("{fewest:.2} to {most:.2}");
                        Some((shares.into_iter().map(Mark::Dot).collect(), told))
                    }
                    _ => None,
                },
            },
        ],
        Workload::Waiting => load("What the server was asked while nothing happened. Less is better."),
        Workload::Holding | Workload::HoldingMany => {
            load("What renewing asks of the server. Less is better.")
        }
        Workload::Crash => vec![Metric {
            title: "Take-over after the lease's end",
            reading: "A dot for each kill; the short upright line is what is promised at most, where that \
                      counts from the lease.",
            axis: Axis { text: "ms from the end of the lease", times: false, reference: Some(0.0) },
            marks: |figures| match figures {
                Figures::Crash { takeovers, allowed_ms, allowed_since } => {
                    let after: Vec<_> = takeovers.iter().map(after_lease).collect();
                    let (least, most) = extent(&after)?;
                    let told = format!("{} to {} ms", number(least), number(most));
                    // A time from the kill has no place on this axis.
                    let limit = (*allowed_since == Since::Lease).then_some(Mark::Limit(*allowed_ms));
                    let marks = after.into_iter().map(Mark::Dot).chain(limit);
                    Some((marks.collect(), told))
                }
                _ => None,
            },
        }],
    }
}

/// What locks cost that only wait, or are only held.
fn load(reading: &'static str) -> Vec<Metric> {
    vec![
        Metric {
            title: "Commands",
            reading,
            axis: amount("commands a second"),
            marks: |figures| match figures {
                Figures::Waiting { commands_per_second: rate, .. }
                | Figures::Holding { commands_per_second: rate, .. } => Some(bar((*rate)?, "/s")),
                _ => None,
            },
        },
        Metric {
            title: "Server CPU",
            reading: "Less is better.",
            axis: amount("% of a core"),
            marks: |figures| match figures {
                Figures::Waiting { server_cpu_percent: cpu, .. }
                | Figures::Holding { server_cpu_percent: cpu, .. } => Some(bar((*cpu)?, " %")),
                _ => None,
            },
        },
        Metric {
            title: "Client CPU",
            reading: "Less is better.",
            axis: amount("% of a core"),
            marks: |figures| match figures {
                Figures::Waiting { client_cpu_percent: cpu, .. }
                | Figures::Holding { client_cpu_percent: cpu, .. } => Some(bar(*cpu, " %")),
                _ => None,
            },
        },
    ]
}
