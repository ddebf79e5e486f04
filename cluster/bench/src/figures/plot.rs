//! Line plots as SVG for the papers' figures. The same numbers give the same bytes.

use std::fmt::Write as _;

/// One plot: an area with axes and lines.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The heading.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// The scale of both axes.
    pub scale: Scale,
    /// Position of the legend.
    pub legend: Legend,
    /// The series to draw.
    pub series: Vec<Series>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from 0.
    Linear,
    /// Logarithmic; all numbers are above 0.
    Logarithmic,
}

/// Position of the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legend {
    /// In the upper left of the plot area, for rising lines.
    Inside,
    /// To the right of the plot area.
    Beside,
}

/// A series of points.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// The style of its points.
    pub style: Style,
    /// (x, y) in the units of the axes.
    pub points: Vec<(f64, f64)>,
}

/// The style of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line in this colour, with a mark at each point.
    Line(&'static str),
    /// Rings in this colour, without a line: published measurements.
    Rings(&'static str),
}

const WIDTH: f64 = 640.0;
const PANEL_HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
/// Width of a legend to the right of the plot area.
const LEGEND: f64 = 160.0;
/// Approximate number of grid lines.
const GRID_LINES: f64 = 6.0;

/// The panels, from top to bottom.
#[must_use]
pub fn svg(panels: &[Panel]) -> String {
    let height = PANEL_HEIGHT * panels.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (number, panel) in panels.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", PANEL_HEIGHT * number as f64);
        draw(panel, &mut svg);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

/// An axis with its ticks.
#[derive(Clone, Debug, PartialEq)]
struct Axis {
    scale: Scale,
    /// The first and last number, and their positions.
    begin: f64,
    end: f64,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

/// Distances of ticks within a decade.
const NICE: [f64; 3] = [1.0, 2.0, 5.0];

impl Axis {
    /// For numbers from `smallest` to `largest`, drawn between two positions.
    fn new(scale: Scale, (smallest, largest): (f64, f64), (from, to): (f64, f64)) -> Self {
        let ticks = match scale {
            Scale::Linear => linear_ticks(largest),
            Scale::Logarithmic => logarithmic_ticks(smallest, largest),
        };
        let begin = ticks.first().copied().unwrap_or_default();
        let end = ticks.last().copied().unwrap_or(1.0);
        Self { scale, begin, end, from, to, ticks }
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.begin) / (self.end - self.begin),
            Scale::Logarithmic => (value / self.begin).ln() / (self.end / self.begin).ln(),
        };
        self.from + share * (self.to - self.from)
    }
}

/// From 0 in equal steps to the first tick at or above `largest`.
fn linear_ticks(largest: f64) -> Vec<f64> {
    let rough = largest.max(f64::MIN_POSITIVE) / GRID_LINES;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = NICE.map(|nice| nice * decade).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * decade);
    let steps = (largest / step).ceil().max(1.0) as u32;
    (0..=steps).map(|tick| f64::from(tick) * step).collect()
}

/// 1, 2 and 5 of each decade, from the last tick at or below `smallest` to the first at or above `largest`.
fn logarithmic_ticks(smallest: f64, largest: f64) -> Vec<f64> {
    let smallest = smallest.max(f64::MIN_POSITIVE);
    let decades = smallest.log10().floor() as i32..=largest.max(smallest).log10().floor() as i32 + 1;
    // Below 1 by division: the quotient is the number closest to the decimal value, and is printed as such.
    let decade = |power: i32| if power < 0 { 1.0 / 10_f64.powi(-power) } else { 10_f64.powi(power) };
    let all: Vec<f64> = decades.flat_map(|power| NICE.map(|nice| nice * decade(power))).collect();
    let begin = all.iter().rposition(|tick| *tick <= smallest).unwrap_or_default();
    let end = all.iter().position(|tick| *tick >= largest).unwrap_or(all.len() - 1);
    all.get(begin..=end.max(begin + 1)).unwrap_or_default().to_vec()
}

fn draw(panel: &Panel, svg: &mut String) {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold((f64::INFINITY, 0.0), |(least, most), value| {
            (f64::min(least, value), f64::max(most, value))
        })
    };
    let (right, legend_x) = match panel.legend {
        Legend::Inside => (WIDTH - RIGHT, LEFT + 16.0),
        Legend::Beside => (WIDTH - RIGHT - LEGEND, WIDTH - LEGEND),
    };
    let x = Axis::new(panel.scale, range(|point| point.0), (LEFT, right));
    let y = Axis::new(panel.scale, range(|point| point.1), (PANEL_HEIGHT - BOTTOM, TOP));
    grid(panel, &x, &y, svg);
    for (number, series) in panel.series.iter().enumerate() {
        draw_series(series, &x, &y, svg);
        legend(series, legend_x, number, svg);
    }
}

fn grid(panel: &Panel, x: &Axis, y: &Axis, svg: &mut String) {
    let (left, right, bottom, top) = (x.from, x.to, y.from, y.to);
    for tick in &x.ticks {
        let at = x.place(*tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {bottom:.1}V{top:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            bottom + 16.0
        );
    }
    for tick in &y.ticks {
        let at = y.place(*tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{left:.1} {at:.1}H{right:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    let (across, up) = (f64::midpoint(left, right), f64::midpoint(bottom, top));
    let _ = writeln!(
        svg,
        "<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"black\"/>\n\
         <text x=\"{across:.1}\" y=\"20\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>\n\
         <text x=\"{across:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text transform=\"translate(18 {up:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        escape(&panel.title),
        bottom + 36.0,
        escape(&panel.x_label),
        escape(&panel.y_label)
    );
}

fn draw_series(series: &Series, x: &Axis, y: &Axis, svg: &mut String) {
    let places: Vec<(f64, f64)> =
        series.points.iter().map(|point| (x.place(point.0), y.place(point.1))).collect();
    if let Style::Line(colour) = series.style {
        let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let line = line.join(" ");
        let _ = writeln!(
            svg,
            "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
    }
    for (x, y) in places {
        mark(series.style, x, y, svg);
    }
}

fn mark(style: Style, x: f64, y: f64, svg: &mut String) {
    let _ = match style {
        Style::Line(colour) => {
            writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>")
        }
        Style::Rings(colour) => writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        ),
    };
}

/// One line of the legend.
fn legend(series: &Series, x: f64, number: usize, svg: &mut String) {
    let y = TOP + 16.0 + 17.0 * number as f64;
    mark(series.style, x, y - 4.0, svg);
    let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x + 12.0, escape(&series.name));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn axis_contains_its_maximum_and_has_few_round_ticks(largest in 0.001..1e9_f64) {
            let axis = Axis::new(Scale::Linear, (0.0, largest), (0.0, 100.0));
            prop_assert!(axis.end >= largest * 0.999_999 && axis.end <= largest * 2.0);
            prop_assert!((3..=8).contains(&axis.ticks.len()), "{:?}", axis.ticks);
            prop_assert!(axis.place(largest) <= 100.000_1);
        }

        #[test]
        fn logarithmic_axis_contains_its_numbers_between_ticks(smallest in 0.001..1e6_f64, times in 1.0..1e6_f64) {
            let axis = Axis::new(Scale::Logarithmic, (smallest, smallest * times), (0.0, 100.0));
            prop_assert!(axis.begin <= smallest && axis.begin * 2.5 >= smallest * 0.999_999, "{:?}", axis);
            prop_assert!(axis.end >= smallest * times && axis.ticks.len() >= 2, "{:?}", axis);
            let (first, last) = (axis.place(smallest), axis.place(smallest * times));
            prop_assert!(0.0 <= first && first <= last && last <= 100.000_1, "{} {}", first, last);
            let middle = axis.place((axis.begin * axis.end).sqrt());
            prop_assert!((middle - 50.0).abs() < 1e-6, "{}", middle);
        }
    }

    #[test]
    fn every_point_is_drawn_and_text_cannot_break_the_document() {
        let series = |style| Series {
            name: "a < b & c".to_owned(),
            style,
            points: vec![(16.0, 115.0), (80.0, 380.0)],
        };
        let panel = Panel {
            title: "<t>".to_owned(),
            x_label: "x".to_owned(),
            y_label: "y".to_owned(),
            scale: Scale::Linear,
            legend: Legend::Inside,
            series: vec![series(Style::Line("blue")), series(Style::Rings("red"))],
        };
        let text = svg(&[panel]);
        // Two points and one mark in the legend for each series.
        assert_eq!(text.matches("<circle").count(), 6);
        assert_eq!(text.matches("<polyline").count(), 1);
        assert!(text.contains("a &lt; b &amp; c") && text.contains("&lt;t&gt;"), "{text}");
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
    }
}
