//! A contender against the bare driver on the same server.

use std::fmt;

use crate::record::{Figures, Kind, Measurement, Outcome, Record};

use super::number::{median, number_if};

/// What a contender's figure is of the raw one's, round by round: rounds that lie side by side share
/// whatever else the machine was doing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    pub(super) middle: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    rounds: usize,
}

impl Ratio {
    /// Nothing if the raw contender was not measured there, or the workload is no contest.
    pub(super) fn to_raw(record: &Record, measurement: &Measurement) -> Option<Self> {
        let raw = record.measurements.iter().find(|other| {
            other.server == measurement.server
                && other.workload == measurement.workload
                && other.contender.kind == Kind::Raw
        })?;
        let (Outcome::Measured(figures), Outcome::Measured(raw)) = (&measurement.outcome, &raw.outcome)
        else {
            return None;
        };
        let (rounds, whole) = contest(figures)?;
        let (raw_rounds, raw_whole) = contest(raw)?;
        let mut ratios: Vec<f64> = rounds.iter().zip(raw_rounds).map(|(ours, raw)| ours / raw).collect();
        if ratios.is_empty() {
            ratios.push(whole / raw_whole);
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
