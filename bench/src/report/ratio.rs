//! A contender against the bare driver on the same server, or where that does not wait, the best other lock.

use std::fmt;

use crate::record::{Figures, Kind, Measurement, Outcome, Record, Workload};

use super::number::{median, number_if};

/// What a contender's figure is of another one's, round by round: rounds that lie side by side share
/// whatever else the machine was doing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub(super) middle: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    rounds: usize,
}

impl Ratio {
    /// To raw's figure, and in a hand-over, where raw does not wait, to that of the best lock which is not ours.
    /// Nothing if that was not measured there, or the workload is no contest.
    pub(super) fn of(record: &Record, measurement: &Measurement) -> Option<Self> {
        let Outcome::Measured(figures) = &measurement.outcome else { return None };
        let beside = record
            .measurements
            .iter()
            .filter(|other| other.server == measurement.server && other.workload == measurement.workload);
        let standard = if is_handover(measurement.workload) { best_other(beside)? } else { raw(beside)? };
        let (rounds, whole) = contest(figures)?;
        let (standard_rounds, standard_whole) = contest(standard)?;
        let pairs = rounds.iter().zip(standard_rounds);
        let mut ratios: Vec<f64> = pairs.map(|(figure, standard)| figure / standard).collect();
        if ratios.is_empty() {
            ratios.push(whole / standard_whole);
        }
        ratios.retain(|ratio| ratio.is_finite());
        Some(Self {
            least: ratios.iter().copied().reduce(f64::min)?,
            most: ratios.iter().copied().reduce(f64::max)?,
            rounds: ratios.len(),
            middle: median(ratios)?,
        })
    }
}

pub(super) fn is_handover(workload: Workload) -> bool {
    matches!(workload, Workload::HandoverWithin | Workload::HandoverBetween)
}

fn raw<'a>(mut beside: impl Iterator<Item = &'a Measurement>) -> Option<&'a Figures> {
    match &beside.find(|other| other.contender.kind == Kind::Raw)?.outcome {
        Outcome::Measured(figures) => Some(figures),
        Outcome::Failed(_) | Outcome::Absent(_) => None,
    }
}

/// The fastest that never had two holders.
fn best_other<'a>(beside: impl Iterator<Item = &'a Measurement>) -> Option<&'a Figures> {
    let others = beside.filter(|other| other.contender.kind != Kind::Ours);
    let rates = others.filter_map(|other| match &other.outcome {
        Outcome::Measured(figures @ Figures::Handover { handovers_per_second: rate, overlaps: 0, .. }) => {
            Some((*rate, figures))
        }
        _ => None,
    });
    rates.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, figures)| figures)
}

/// `1.12x (1.10-1.15)`; after a single round there is no spread to show.
impl fmt::Display for Ratio {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { middle, least, most, rounds } = *self;
        match rounds {
            1 => write!(formatter, "{middle:.2}x"),
            _ => write!(formatter, "{middle:.2}x ({least:.2}-{most:.2})"),
        }
    }
}

/// The figure that contenders are compared by: in each round, and over all.
pub(super) fn contest(figures: &Figures) -> Option<(&[f64], f64)> {
    match figures {
        Figures::Uncontended { pair, rounds, .. } => Some((rounds, pair.p50)),
        Figures::Throughput { pairs_per_second, rounds, .. } => Some((rounds, *pairs_per_second)),
        Figures::Handover { handovers_per_second, rounds, .. } => Some((rounds, *handovers_per_second)),
        Figures::Waiting { .. } | Figures::Holding { .. } | Figures::Crash { .. } => None,
    }
}

/// `–` where there is nothing to compare with.
pub(super) fn shown(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(|| number_if(None), |ratio| ratio.to_string())
}
