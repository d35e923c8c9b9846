//! Which plots a workload has.

use std::collections::BTreeSet;

use crate::record::{Figures, Kind, Outcome, Record, Workload};

use super::super::ratio::{self, Ratio};
use super::super::section::{Group, Section, contender_label, server_label};
use super::super::workload;
use super::metric::metrics;
use super::palette;
use super::plot::{self, Axis, Bar, Curve, Mark};

/// Plots side by side, and what their colours and shapes mean.
pub(super) struct Figure {
    pub(super) panels: Vec<Panel>,
    /// A sample and its meaning.
    pub(super) legend: Vec<(String, String)>,
}

/// The same for each server.
pub(super) struct Contest {
    pub(super) servers: Vec<(String, Vec<Panel>)>,
    pub(super) legend: Vec<(String, String)>,
}

/// Against raw or the best other lock: the plots, and for the table workload, contender and ratio.
pub(super) struct Ratios {
    pub(super) figure: Figure,
    pub(super) rows: Vec<(&'static str, String, String)>,
}

pub(super) struct Panel {
    pub(super) title: &'static str,
    /// How to read its marks.
    pub(super) reading: &'static str,
    pub(super) svg: String,
}

/// polylock on every server.
pub(super) fn comparison(record: &Record, section: &Section<'_>) -> Figure {
    let ours: Vec<_> = section
        .groups
        .iter()
        .flat_map(|group| measured(group).into_iter().map(|measured| (group.server, measured)))
        .filter(|(_, (_, kind, _))| *kind == Kind::Ours)
        .map(|(server, (.., figures))| (server, server_label(&record.servers, server), figures))
        .collect();
    let rows =
        || ours.iter().map(|(server, label, figures)| (label.clone(), palette::server(*server), *figures));
    let lines =
        ours.iter().map(|(server, label, it)| (label.clone(), palette::server(*server), *server, *it));
    let mut panels = distributions(lines);
    let shaped = !panels.is_empty();
    panels.extend(metrics(section.workload).into_iter().filter_map(|metric| metric.panel(rows())));
    let legend = ours.iter().map(|(server, label, _)| {
        (plot::swatch(palette::server(*server), shaped.then_some(*server)), label.clone())
    });
    Figure { legend: legend.collect(), panels }
}

/// Every contender, a server at a time, where there is more than one.
pub(super) fn contest(record: &Record, section: &Section<'_>) -> Contest {
    let mut servers = Vec::new();
    let mut kinds = BTreeSet::new();
    for group in &section.groups {
        let server = server_label(&record.servers, group.server);
        let measured = measured(group);
        if measured.len() < 2 {
            continue;
        }
        kinds.extend(measured.iter().map(|(_, kind, _)| *kind));
        let rows =
            || measured.iter().map(|(name, kind, figures)| (name.clone(), palette::kind(*kind), *figures));
        // Libraries are left out: nobody can follow a dozen lines.
        let lines = measured.iter().filter(|(_, kind, _)| *kind != Kind::Peer);
        let mut panels = distributions(
            lines.map(|(name, kind, it)| (name.clone(), palette::kind(*kind), *kind as usize, *it)),
        );
        panels.extend(metrics(section.workload).into_iter().filter_map(|metric| metric.panel(rows())));
        servers.push((server, panels));
    }
    let shaped = section.workload == Workload::Uncontended;
    let legend = kinds.into_iter().map(|kind| {
        (plot::swatch(palette::kind(kind), shaped.then_some(kind as usize)), kind_label(kind).to_owned())
    });
    let legend = legend.collect();
    Contest { servers, legend }
}

/// What polylock, and what locking without fencing tokens, costs against the bare driver, or for hand-overs
/// against the best other lock.
pub(super) fn ratios(record: &Record, sections: &[Section<'_>]) -> Ratios {
    const TIME: (&str, &str) =
        ("time of a pair, as a multiple of raw", "Left of the line is quicker than raw.");
    const RATE: (&str, &str) = ("rate, as a multiple of raw", "Right of the line is more than raw.");
    const HANDOVERS: (&str, &str) =
        ("rate, as a multiple of the best other's", "Right of the line is more than the best other lock.");
    let mut panels = Vec::new();
    let mut table = Vec::new();
    let mut kinds = BTreeSet::new();
    for section in sections {
        let mut rows = Vec::new();
        for row in section.groups.iter().flat_map(|group| &group.rows) {
            let kind = row.measurement.contender.kind;
            if !matches!(kind, Kind::Ours | Kind::Unfenced) {
                continue;
            }
            let Some(ratio) = Ratio::of(record, row.measurement) else { continue };
            kinds.insert(kind);
            let server = server_label(&record.servers, row.measurement.server);
            rows.push(Bar {
                label: format!("{server}: {}", contender_label(&row.measurement.contender)),
                value: ratio.to_string(),
                ink: palette::kind(kind),
                marks: vec![Mark::Span(ratio.least, ratio.most), Mark::Dot(ratio.middle)],
            });
        }
        if rows.is_empty() {
            continue;
        }
        let title = workload::title(section.workload);
        let (text, reading) = match section.workload {
            Workload::Uncontended => TIME,
            workload if ratio::is_handover(workload) => HANDOVERS,
            _ => RATE,
        };
        let svg = plot::rows(title, &Axis { text, times: false, reference: Some(1.0) }, &rows);
        panels.push(Panel { title, reading, svg });
        table.extend(rows.into_iter().map(|row| (title, row.label, row.value)));
    }
    let legend = kinds
        .into_iter()
        .map(|kind| (plot::swatch(palette::kind(kind), Some(0)), kind_label(kind).to_owned()));
    Ratios { figure: Figure { legend: legend.collect(), panels }, rows: table }
}

const DISTRIBUTION: &str =
    "How many of all took no longer. Left and steep is good; the marks are p50, p90, p99 and p99.9.";

type Measured<'a> = (String, Kind, &'a Figures);

fn measured<'a>(group: &Group<'a>) -> Vec<Measured<'a>> {
    let rows =
        group.rows.iter().filter(|row| row.cells.is_ok()).filter_map(|row| match &row.measurement.outcome {
            Outcome::Measured(figures) => {
                let contender = &row.measurement.contender;
                Some((contender_label(contender), contender.kind, figures))
            }
            Outcome::Failed(_) | Outcome::Absent(_) => None,
        });
    rows.collect()
}

/// Acquire and release apart, a line for each.
fn distributions<'a>(lines: impl Iterator<Item = (String, palette::Ink, usize, &'a Figures)>) -> Vec<Panel> {
    let mut curves = [Vec::new(), Vec::new()];
    for (label, ink, shape, figures) in lines {
        if let Figures::Uncontended { acquire, release, .. } = figures {
            for (curves, times) in curves.iter_mut().zip([acquire, release]) {
                curves.push(Curve { label: label.clone(), ink, shape, times });
            }
        }
    }
    let drawn = ["Acquire", "Release"].into_iter().zip(curves).filter(|(_, curves)| !curves.is_empty());
    drawn
        .map(|(title, curves)| Panel {
            title,
            reading: DISTRIBUTION,
            svg: plot::distribution(title, &curves),
        })
        .collect()
}

fn kind_label(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours => "polylock",
        Kind::Raw => "raw",
        Kind::Unfenced => "raw, unfenced",
        Kind::Peer => "other libraries",
    }
}
