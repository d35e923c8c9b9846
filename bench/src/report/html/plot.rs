//! Plots as SVG, drawn with plotters.
//!
//! A plot is drawn for a third of a desktop's width and the whole of a phone's, more than twice as large as it
//! is shown, because plotters knows whole pixels only.

use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::record::Times;

use super::super::text::shortened;
use super::escape;
use super::palette::{FAINT, GRID, Ink, TEXT};
use super::scale::Scale;

const WIDTH: i32 = 880;
const SMALL: i32 = 28;
const LARGE: i32 = 31;
/// What the middle of a tick's text needs beside the plot.
const EDGE: i32 = 58;
const BELOW: i32 = 96;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// One line of a row plot.
pub(super) struct Bar {
    pub(super) label: String,
    /// The figure in words, at the right.
    pub(super) value: String,
    pub(super) ink: Ink,
    pub(super) marks: Vec<Mark>,
}

pub(super) enum Mark {
    /// From zero to here.
    Bar(f64),
    Dot(f64),
    /// From here to there.
    Span(f64, f64),
    /// As far as it may go.
    Limit(f64),
}

/// One line of a distribution.
pub(super) struct Curve<'a> {
    pub(super) label: String,
    pub(super) ink: Ink,
    pub(super) shape: usize,
    pub(super) times: &'a Times,
}

/// What the axis below a row plot is.
pub(super) struct Axis {
    pub(super) text: &'static str,
    pub(super) times: bool,
    /// Where a line stands through all rows.
    pub(super) reference: Option<f64>,
}

/// A row for each contender or server: its name, its figure, and below them its marks.
pub(super) fn rows(title: &str, axis: &Axis, rows: &[Bar]) -> String {
    const ROW: i32 = 90;
    let values = rows.iter().flat_map(|row| &row.marks).flat_map(Mark::values).chain(axis.reference);
    let scale = if axis.times { Scale::times(values) } else { Scale::linear(values) };
    let bottom = 10 + ROW * rows.len() as i32;
    let x = |value: f64| EDGE + (scale.place(value) * f64::from(WIDTH - 2 * EDGE)).round() as i32;
    let told: Vec<_> = rows.iter().map(|row| format!("{}: {}", row.label, row.value)).collect();
    drawing(title, &told.join("; "), bottom + BELOW, |area| {
        horizontal_axis(area, &scale, axis.text, 4, bottom, x)?;
        if let Some(value) = axis.reference {
            line(area, &[(x(value), 4), (x(value), bottom)], FAINT, 3)?;
        }
        for (index, row) in rows.iter().enumerate() {
            let top = 10 + ROW * index as i32;
            let room = (f64::from(WIDTH) / (f64::from(LARGE) * 0.53)) as usize;
            let label = shortened(&row.label, room.saturating_sub(row.value.chars().count() + 2));
            write_text(area, &label, (0, top + 2), LARGE, TEXT, HPos::Left, VPos::Top)?;
            write_text(area, &row.value, (WIDTH, top + 2), LARGE, FAINT, HPos::Right, VPos::Top)?;
            for mark in &row.marks {
                mark.draw(area, row.ink, top + 53, x)?;
            }
        }
        Ok(())
    })
}

/// Which part of all took no longer than which time. Each step up the axis leaves a tenth of what was left.
pub(super) fn distribution(title: &str, curves: &[Curve<'_>]) -> String {
    const HEIGHT: i32 = 450;
    const LEFT: i32 = 138;
    let values = curves.iter().flat_map(|curve| points(curve.times)).map(|(_, time)| time);
    let scale = Scale::times(values);
    let x = |value: f64| LEFT + (scale.place(value) * f64::from(WIDTH - LEFT - EDGE)).round() as i32;
    let y =
        |percentile: f64| HEIGHT - (nines(percentile) / MOST_NINES * f64::from(HEIGHT - 20)).round() as i32;
    let told: Vec<_> = curves
        .iter()
        .map(|curve| {
            let Times { p50, p99, .. } = curve.times;
            format!("{}: p50 {}, p99 {}", curve.label, super::time(*p50), super::time(*p99))
        })
        .collect();
    drawing(title, &told.join("; "), HEIGHT + BELOW, |area| {
        line(area, &[(LEFT, HEIGHT), (WIDTH - EDGE, HEIGHT)], GRID, 2)?;
        for percentile in MARKED.into_iter().chain([99.99]) {
            line(area, &[(LEFT, y(percentile)), (WIDTH - EDGE, y(percentile))], GRID, 2)?;
            let text = format!("{percentile} %");
            write_text(area, &text, (LEFT - 12, y(percentile)), SMALL, FAINT, HPos::Right, VPos::Center)?;
        }
        horizontal_axis(area, &scale, "time, logarithmic", 20, HEIGHT, x)?;
        for curve in curves {
            let path: Vec<_> = points(curve.times).into_iter().map(|(at, time)| (x(time), y(at))).collect();
            line(area, &path, curve.ink, 4)?;
            for (at, time) in marked(curve.times) {
                symbol(area, (x(time), y(at)), curve.shape, curve.ink)?;
            }
        }
        Ok(())
    })
}

/// The sample of a legend.
pub(super) fn swatch(ink: Ink, shape: Option<usize>) -> String {
    let mut svg = String::new();
    let drawn = canvas(&mut svg, (56, 28), |area| match shape {
        None => filled(area, (0, 4), (56, 24), ink),
        Some(shape) => {
            line(area, &[(0, 14), (56, 14)], ink, 4)?;
            symbol(area, (28, 14), shape, ink)
        }
    });
    let (_, body) = svg.split_once('>').unwrap_or_default();
    match drawn {
        Ok(()) => format!("<svg class=\"swatch\" viewBox=\"0 0 56 28\" aria-hidden=\"true\">{body}"),
        Err(_) => String::new(),
    }
}

impl Mark {
    fn values(&self) -> [f64; 2] {
        match *self {
            Self::Bar(value) => [0.0, value],
            Self::Dot(value) | Self::Limit(value) => [value, value],
            Self::Span(from, to) => [from, to],
        }
    }

    fn draw(&self, area: &Area<'_>, ink: Ink, middle: i32, x: impl Fn(f64) -> i32) -> Drawn {
        match *self {
            Self::Bar(value) => {
                let (from, to) = (x(0.0).min(x(value)), x(0.0).max(x(value)));
                filled(area, (from, middle - 10), (to.max(from + 2), middle + 10), ink)
            }
            Self::Dot(value) => {
                area.draw(&Circle::new((x(value), middle), 9, ink.color().mix(0.75).filled()))
            }
            Self::Span(from, to) => line(area, &[(x(from), middle), (x(to), middle)], ink, 5),
            Self::Limit(value) => line(area, &[(x(value), middle - 14), (x(value), middle + 14)], TEXT, 4),
        }
    }
}

fn horizontal_axis(
    area: &Area<'_>,
    scale: &Scale,
    text: &str,
    top: i32,
    bottom: i32,
    x: impl Fn(f64) -> i32,
) -> Drawn {
    for (value, text) in &scale.ticks {
        line(area, &[(x(*value), top), (x(*value), bottom)], GRID, 2)?;
        write_text(area, text, (x(*value), bottom + 10), SMALL, FAINT, HPos::Center, VPos::Top)?;
    }
    write_text(area, text, (WIDTH / 2, bottom + 54), SMALL, FAINT, HPos::Center, VPos::Top)
}

/// Where a curve has a mark, and the axis a line.
const MARKED: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// An axis of percentiles ends where ten thousand samples do.
const MOST_NINES: f64 = 4.0;

/// 0 for 0 %, 1 for 90 %, 2 for 99 %.
fn nines(percentile: f64) -> f64 {
    (100.0 / (100.0 - percentile.clamp(0.0, 99.999_999))).log10().min(MOST_NINES)
}

/// The recorded points, or the few that always are, as far as the axis goes.
fn points(times: &Times) -> Vec<(f64, f64)> {
    let points: Vec<_> = times.points.iter().copied().filter(|(at, _)| reached(times, *at)).collect();
    if points.len() > 1 { points } else { marked(times) }
}

fn marked(times: &Times) -> Vec<(f64, f64)> {
    let Times { p50, p90, p99, p999, .. } = *times;
    MARKED.into_iter().zip([p50, p90, p99, p999]).filter(|(at, _)| reached(times, *at)).collect()
}

/// Whether a sample is left above this percentile: 99.9 % of a hundred samples is no more than the largest.
fn reached(times: &Times, percentile: f64) -> bool {
    let above = (1.0 - percentile / 100.0) * times.count as f64;
    nines(percentile) < MOST_NINES && (above >= 0.999 || percentile <= 50.0)
}

fn line(area: &Area<'_>, path: &[(i32, i32)], ink: Ink, width: u32) -> Drawn {
    area.draw(&PathElement::new(path, ink.color().stroke_width(width)))
}

fn filled(area: &Area<'_>, from: (i32, i32), to: (i32, i32), ink: Ink) -> Drawn {
    area.draw(&Rectangle::new([from, to], ink.color().filled()))
}

/// Shapes tell lines apart where colours do not.
fn symbol(area: &Area<'_>, (x, y): (i32, i32), shape: usize, ink: Ink) -> Drawn {
    let style = ink.color().filled();
    match shape % 6 {
        0 => area.draw(&Circle::new((x, y), 9, style)),
        1 => filled(area, (x - 8, y - 8), (x + 8, y + 8), ink),
        2 => area.draw(&Polygon::new([(x, y - 11), (x + 10, y + 8), (x - 10, y + 8)], style)),
        3 => area.draw(&Polygon::new([(x, y - 12), (x + 12, y), (x, y + 12), (x - 12, y)], style)),
        4 => area.draw(&Polygon::new([(x, y + 11), (x + 10, y - 8), (x - 10, y - 8)], style)),
        _ => area.draw(&Circle::new((x, y), 9, ink.color().stroke_width(4))),
    }
}

fn write_text(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: i32,
    ink: Ink,
    horizontal: HPos,
    vertical: VPos,
) -> Drawn {
    // plotters divides a font's size by this before it writes it.
    let font = ("system-ui, sans-serif", f64::from(size) * 1.24).into_font();
    let color = ink.color();
    let style = TextStyle::from(font).color(&color).pos(Pos::new(horizontal, vertical));
    area.draw(&Text::new(text.to_owned(), at, style))
}

/// The SVG of a plot, with what it shows in words for those who do not see it.
fn drawing(title: &str, told: &str, height: i32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    if let Err(error) = canvas(&mut svg, (WIDTH as u32, height as u32), draw) {
        return format!("<p>This plot could not be drawn: {}</p>", escape(&error.to_string()));
    }
    // The first tag fixes the size in pixels; ours leaves it to the page.
    let (_, body) = svg.split_once('>').unwrap_or_default();
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\"><desc>{told}</desc>{body}",
        title = escape(title),
        told = escape(told)
    );
    out
}

fn canvas(svg: &mut String, size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Drawn {
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    draw(&area)?;
    area.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_ends_where_its_samples_do() {
        let points = vec![(0.0, 1.0), (50.0, 2.0), (99.0, 3.0), (99.9, 4.0), (99.99, 4.0), (100.0, 4.0)];
        let mut times = Times { count: 500, p50: 2.0, p90: 2.5, p99: 3.0, p999: 4.0, max: 4.0, points };
        assert_eq!(super::points(&times), [(0.0, 1.0), (50.0, 2.0), (99.0, 3.0)]);
        assert_eq!(marked(&times), [(50.0, 2.0), (90.0, 2.5), (99.0, 3.0)]);
        times.count = 1000;
        assert_eq!(marked(&times).len(), 4);
        times.count = 1;
        assert_eq!(super::points(&times), [(0.0, 1.0), (50.0, 2.0)]);
    }
}
