//! The drawings of a page, with the crate `plotters`. Each is an inline SVG, whose colours the page's style replaces in
//! the dark.

use std::io;

use maud::{Markup, PreEscaped, html};
use niclab_spec::{
    Report,
    report::{Histogram, parts},
};
use plotters::{
    coord::Shift,
    prelude::{
        ChartBuilder, Circle, DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, IntoSegmentedCoord,
        LineSeries, RGBColor, Rectangle, SVGBackend, SegmentValue, Text,
    },
    style::{
        Color, IntoFont, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    Run,
    figures::{PARTS, TimeParts, messages, part_name, time_parts},
};

/// A colour of drawings, and its replacement on a dark background.
#[derive(Clone, Copy)]
pub struct Colour {
    /// On a light background.
    pub light: RGBColor,
    /// On a dark background, as in CSS.
    pub dark: &'static str,
}

impl Colour {
    /// The light colour as the SVG has it.
    pub fn hex(self) -> String {
        let RGBColor(red, green, blue) = self.light;
        format!("#{red:02X}{green:02X}{blue:02X}")
    }
}

const fn colour(light: [u8; 3], dark: &'static str) -> Colour {
    Colour { light: RGBColor(light[0], light[1], light[2]), dark }
}

/// Letters.
pub const INK: Colour = colour([0x20, 0x21, 0x24], "#E8EAED");
/// Grid lines.
pub const GRID: Colour = colour([0xD6, 0xD9, 0xDE], "#3C4043");
/// A link with faults.
pub const BAD: Colour = colour([0xC5, 0x22, 0x1F], "#FF7B72");
/// A baseline.
pub const FADED: Colour = colour([0x8A, 0x8D, 0x93], "#9AA0A6");
/// The parts of model time, which also people tell apart who see few colours (Okabe and Ito).
pub const PART_COLOURS: [Colour; PARTS] = [
    colour([0x00, 0x72, 0xB2], "#56A8E0"),
    colour([0xE6, 0x9F, 0x00], "#F0B429"),
    colour([0x00, 0x9E, 0x73], "#2CC498"),
    colour([0xD5, 0x5E, 0x00], "#FF8A4C"),
    colour([0xCC, 0x79, 0xA7], "#E39AC4"),
    colour([0x5B, 0x4B, 0xA8], "#A68BEF"),
    colour([0x77, 0x77, 0x70], "#A0A090"),
    colour([0xC3, 0xC6, 0xCC], "#5F6368"),
];

/// All colours of drawings.
pub fn colours() -> impl Iterator<Item = Colour> {
    [INK, GRID, BAD, FADED].into_iter().chain(PART_COLOURS)
}

/// An area to draw on.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The result of drawing. SVG in memory has no errors of its own.
pub type Drawn = Result<(), DrawingAreaErrorKind<io::Error>>;

/// Width of charts, in pixels. A phone shows them at half this width, so letters are large.
const WIDTH: u32 = 600;
const LETTERS: u32 = 17;
/// Maximum characters of a name in a drawing; a report from a file may have longer ones.
const MAX_NAME: usize = 16;
/// Maximum number of nodes with a bar of their own.
const MAX_BARS: usize = 16;

/// A drawing of this size.
pub fn drawing(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Markup {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = draw(&area).and_then(|()| area.present());
    drop(area);
    match drawn {
        Ok(()) => PreEscaped(svg),
        Err(error) => html! { p { "This drawing failed: " (error) } },
    }
}

/// The style of letters of this size.
pub fn letters(size: u32, colour: Colour) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour.light)
}

/// The beginning of a name.
pub fn short(name: &str) -> String {
    if name.chars().count() <= MAX_NAME {
        return name.to_owned();
    }
    name.chars().take(MAX_NAME - 1).chain(['…']).collect()
}

/// The points of a latency's distribution, in microseconds.
fn points(latency: &Histogram) -> [f64; 6] {
    let Histogram { min_ps, p50_ps, p90_ps, p99_ps, p999_ps, max_ps, .. } = *latency;
    #[expect(clippy::cast_precision_loss, reason = "drawn, not compared")]
    [min_ps, p50_ps, p90_ps, p99_ps, p999_ps, max_ps].map(|ps| ps as f64 / 1e6)
}

const POINTS: [&str; 6] = ["min", "50 %", "90 %", "99 %", "99.9 %", "max"];

/// The vertical axis: linear from 0, or logarithmic if the values differ much.
struct Scale {
    is_logarithmic: bool,
    low: f64,
    high: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, largest) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
        if least > 0.0 && largest > 50.0 * least {
            return Self { is_logarithmic: true, low: least.log10().floor(), high: largest.log10().ceil() };
        }
        Self { is_logarithmic: false, low: 0.0, high: if largest > 0.0 { largest * 1.1 } else { 1.0 } }
    }

    fn position(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.log10() } else { value }
    }

    fn label(&self, position: f64) -> String {
        if self.is_logarithmic { number(10_f64.powf(position)) } else { number(position) }
    }

    fn labels(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 20 decades")]
        if self.is_logarithmic { (self.high - self.low) as usize + 1 } else { 5 }
    }
}

/// A number with three significant digits at least.
fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

/// The distribution of the messages' latency, next to the baseline's. Without messages there is no drawing.
pub fn latency(run: &Run) -> Option<Markup> {
    let latency_of = |report: &Report| Some(report.model.latency).filter(|latency| latency.count > 0);
    let new = points(&latency_of(run.report()?)?);
    let base = run.baseline().and_then(latency_of).map(|latency| points(&latency));
    let lines: Vec<(Colour, [f64; 6])> =
        base.map(|base| (FADED, base)).into_iter().chain([(PART_COLOURS[0], new)]).collect();
    let scale = Scale::of(lines.iter().flat_map(|(_, line)| line.iter().copied()));
    let svg = drawing((WIDTH, 340), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .margin_right(34)
            .x_label_area_size(34)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..5.0, scale.low..scale.high)?;
        chart
            .configure_mesh()
            .x_labels(POINTS.len())
            .y_labels(scale.labels())
            .light_line_style(GRID.light.mix(0.0))
            .bold_line_style(GRID.light)
            .axis_style(GRID.light)
            .label_style(letters(LETTERS, INK))
            .x_label_formatter(&|x: &f64| {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 5")]
                POINTS.get(x.round() as usize).map_or_else(String::new, |name| (*name).to_owned())
            })
            .y_label_formatter(&|y: &f64| scale.label(*y))
            .draw()?;
        for (colour, line) in &lines {
            let line: Vec<(f64, f64)> =
                (0..).map(f64::from).zip(line.iter().map(|value| scale.position(*value))).collect();
            chart.draw_series(LineSeries::new(line.clone(), colour.light.stroke_width(3)))?;
            chart.draw_series(line.iter().map(|point| Circle::new(*point, 4, colour.light.filled())))?;
        }
        Ok(())
    });
    let scale = if scale.is_logarithmic { ", logarithmic" } else { "" };
    Some(html! {
        figure {
            (svg)
            @if base.is_some() { (legend(&[("this run", PART_COLOURS[0]), ("baseline", FADED)])) }
            figcaption {
                "Message latency in microseconds of model time" (scale) ". A point shows the time within which that \
                 share of the messages arrived."
            }
        }
    })
}

/// A bar of model time per message: its name and its parts, in microseconds.
type Bar = (String, TimeParts);

/// The bars: the baseline's, the run's, and the contributions of nodes and network.
fn bars(run: &Run) -> Vec<Bar> {
    #[expect(clippy::cast_precision_loss, reason = "drawn, not compared")]
    let per_message = |parts: TimeParts, report: &Report| {
        let messages = messages(report).max(1) as f64;
        parts.map(|ps| ps / messages / 1e6)
    };
    let all = |report: &Report| per_message(time_parts(parts(&report.nodes, &report.fabric)), report);
    let mut bars: Vec<Bar> = Vec::new();
    bars.extend(run.baseline().map(|report| ("baseline".to_owned(), all(report))));
    let Some(report) = run.report() else { return bars };
    bars.push(("this run".to_owned(), all(report)));
    if report.nodes.len() <= MAX_BARS {
        let of_node = report.nodes.iter().map(|node| {
            let ledgers = node.ledgers().flat_map(|(_, ledger)| ledger);
            (node.name.clone(), per_message(time_parts(ledgers), report))
        });
        bars.extend(of_node);
        bars.push(("network".to_owned(), per_message(time_parts(&report.fabric.ledger), report)));
    }
    bars
}

/// Where model time goes: a stacked bar per message, by resource. Without transactions there is no drawing.
pub fn model_time(run: &Run) -> Option<Markup> {
    let bars = bars(run);
    let length = |parts: &TimeParts| parts.iter().sum::<f64>();
    let longest = bars.iter().map(|(_, parts)| length(parts)).fold(0.0, f64::max);
    if longest <= 0.0 {
        return None;
    }
    let count = i32::try_from(bars.len()).ok()?;
    let height = 60 + 34 * u32::try_from(bars.len()).ok()?;
    let row = |at: i32| count - 1 - at;
    let svg = drawing((WIDTH, height), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(120)
            .build_cartesian_2d(0.0..longest * 1.18, (0..count).into_segmented())?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_labels(5)
            .y_labels(bars.len())
            .light_line_style(GRID.light.mix(0.0))
            .bold_line_style(GRID.light)
            .axis_style(GRID.light)
            .label_style(letters(LETTERS, INK))
            .x_label_formatter(&|x: &f64| number(*x))
            .y_label_formatter(&|y| match y {
                SegmentValue::CenterOf(at) | SegmentValue::Exact(at) => usize::try_from(row(*at))
                    .ok()
                    .and_then(|bar| bars.get(bar))
                    .map_or_else(String::new, |(name, _)| short(name)),
                SegmentValue::Last => String::new(),
            })
            .draw()?;
        for (at, (_, parts)) in (0..).zip(&bars) {
            let mut begin = 0.0;
            for (part, colour) in parts.iter().zip(PART_COLOURS).filter(|(part, _)| **part > 0.0) {
                let corners =
                    [(begin, SegmentValue::Exact(row(at))), (begin + part, SegmentValue::Exact(row(at) + 1))];
                let mut bar = Rectangle::new(corners, colour.light.filled());
                bar.set_margin(5, 5, 0, 0);
                chart.draw_series([bar])?;
                begin += part;
            }
            let style = letters(LETTERS, INK).pos(Pos::new(HPos::Left, VPos::Center));
            let end = (begin + longest * 0.01, SegmentValue::CenterOf(row(at)));
            chart.draw_series([Text::new(number(begin), end, style)])?;
        }
        Ok(())
    });
    let is_shown = |part: &usize| bars.iter().any(|(_, parts)| parts[*part] > 0.0);
    let names: Vec<(&str, Colour)> =
        (0..PARTS).filter(is_shown).map(|part| (part_name(part), PART_COLOURS[part])).collect();
    Some(html! {
        figure {
            (svg)
            (legend(&names))
            figcaption {
                "Where model time goes: microseconds per received message. Work on different resources overlaps, so \
                 the sum is not the latency."
            }
        }
    })
}

/// Names with their colours.
fn legend(names: &[(&str, Colour)]) -> Markup {
    html! {
        ul.legend {
            @for (name, colour) in names {
                li { svg width="14" height="14" { rect width="14" height="14" fill=(colour.hex()) {} } " " (name) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::sample;

    fn run(reports: Vec<Report>) -> Run {
        Run {
            reports: reports.into_iter().map(|report| ("r".to_owned(), report)).collect(),
            ..Run::default()
        }
    }

    #[test]
    fn latency_has_a_line_for_run_and_baseline() {
        let lines = |run: &Run| {
            let svg = latency(run).unwrap().into_string();
            svg.matches("stroke-width=\"3\"").count()
        };
        assert_eq!(lines(&run(vec![sample()])), 1);
        assert_eq!(lines(&run(vec![sample(), sample()])), 2);
    }

    #[test]
    fn report_without_messages_has_no_drawings() {
        let empty = run(vec![Report::default()]);
        assert!(latency(&empty).is_none() && model_time(&empty).is_none());
        assert!(latency(&Run::default()).is_none() && model_time(&Run::default()).is_none());
    }

    #[test]
    fn scale_is_logarithmic_only_for_wide_ranges() {
        let scale = |values: &[f64]| Scale::of(values.iter().copied());
        let wide = scale(&[0.5, 900.0]);
        assert!(wide.is_logarithmic && (wide.low, wide.high) == (-1.0, 3.0), "{}", wide.high);
        assert_eq!((wide.label(-1.0).as_str(), wide.labels()), ("0.1", 5));
        let narrow = scale(&[1.0, 2.0]);
        assert!(!narrow.is_logarithmic && narrow.low == 0.0);
        assert!(scale(&[0.0, 0.0]).high > 0.0);
    }

    #[test]
    fn extreme_times_are_drawn() {
        let mut report = sample();
        report.nodes[0].ledger[0].model_price_ps = u64::MAX;
        report.model.latency.max_ps = u64::MAX;
        report.model.latency.min_ps = 0;
        let run = run(vec![report]);
        assert!(latency(&run).unwrap().into_string().contains("<svg"));
        assert!(model_time(&run).unwrap().into_string().contains("<svg"));
    }

    #[test]
    fn bars_of_nodes_and_network_add_up_to_the_run() {
        let bars = bars(&run(vec![sample()]));
        let names: Vec<&str> = bars.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["this run", "node0", "network"]);
        let sum = |bar: &Bar| bar.1.iter().sum::<f64>();
        assert!((sum(&bars[0]) - sum(&bars[1]) - sum(&bars[2])).abs() < 1e-12);
    }
}
