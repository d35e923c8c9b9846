//! From a value to a place between the two ends of an axis.

use super::super::number::{number, time};

pub(super) struct Scale {
    from: f64,
    to: f64,
    logarithmic: bool,
    /// Where a line is drawn, and what stands there.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Scale {
    /// From the smallest value to the largest, to whole steps; about five steps of 1, 2 or 5.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        let (least, most) = match (least, most) {
            _ if least < most => (least, most),
            _ if least.is_finite() && least != 0.0 => (least - least.abs() / 2.0, least + least.abs() / 2.0),
            _ => (0.0, 1.0),
        };
        let span = most - least;
        let rough = span / 4.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * decade)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(decade);
        let first = (least / step).floor();
        let last = (most / step).ceil();
        let steps = (last - first) as i32;
        let ticks =
            (0..=steps).map(|index| (first + f64::from(index)) * step).map(|at| (at, round(at, step)));
        Self { from: first * step, to: last * step, logarithmic: false, ticks: ticks.collect() }
    }

    /// Times in microseconds, over whole decades; a single one has more ticks than its ends.
    pub(super) fn times(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = values
            .filter(|value| value.is_finite())
            .map(|value| value.max(Self::SHORTEST))
            .fold((f64::INFINITY, Self::SHORTEST), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        let first = least.min(most).log10().floor() as i32;
        let last = (most.log10().ceil() as i32).max(first + 1);
        let steps: &[f64] = if last - first == 1 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let ticks = (first..last)
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
            .chain([10_f64.powi(last)])
            .map(|at| (at, whole_time(at)));
        Self { from: f64::from(first), to: f64::from(last), logarithmic: true, ticks: ticks.collect() }
    }

    /// A logarithm has no zero: what was too short to be measured stands here.
    const SHORTEST: f64 = 0.01;

    /// 0 at the one end, 1 at the other.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(Self::SHORTEST).log10() } else { value };
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }
}

fn round(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    if decimals > 0 {
        format!("{value:.decimals$}")
    } else {
        number(value.round()).replace(".00", "").replace(".0", "")
    }
}

/// `100 µs`, not `100.0 µs`: a tick stands at its value exactly.
fn whole_time(microseconds: f64) -> String {
    time(microseconds).replace(".00 ", " ").replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_hold_every_value() {
        let scale = Scale::linear([0.0, 77_500.0].into_iter());
        assert_eq!(ticks(&scale), ["0", "20,000", "40,000", "60,000", "80,000"]);
        assert!((scale.place(80_000.0) - 1.0).abs() < 1e-9);
        let below = Scale::linear([-3805.0, 1710.0].into_iter());
        assert_eq!(ticks(&below), ["-4,000", "-2,000", "0", "2,000"]);
        assert_eq!(ticks(&Scale::linear([0.84, 1.0, 1.12].into_iter())), ["0.8", "0.9", "1.0", "1.1", "1.2"]);
        assert_eq!(ticks(&Scale::linear([1.0, 1.0].into_iter())), ["0.5", "1.0", "1.5"]);
        assert_eq!(ticks(&Scale::linear([0.0, 0.06].into_iter())), ["0.00", "0.02", "0.04", "0.06"]);
    }

    #[test]
    fn an_axis_of_nothing_has_two_ends() {
        for scale in
            [Scale::linear([0.0].into_iter()), Scale::times([0.0].into_iter()), Scale::times([].into_iter())]
        {
            assert!(scale.ticks.len() >= 2);
            assert!((0.0..=1.0).contains(&scale.place(0.0)));
        }
    }

    #[test]
    fn times_stand_on_decades() {
        let scale = Scale::times([31.0, 2_400.0].into_iter());
        assert_eq!(ticks(&scale), ["10 µs", "100 µs", "1 ms", "10 ms"]);
        assert!((scale.place(100.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(ticks(&Scale::times([31.0, 77.0].into_iter())), ["10 µs", "20 µs", "50 µs", "100 µs"]);
    }
}
