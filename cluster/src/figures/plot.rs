//! Line plots as SVG: as much as the papers' figures need, and the same bytes for the same numbers.

use std::fmt::Write as _;

/// One plot: an area with axes and lines.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What stands above it.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Across and up, in the units of the axes.
    pub points: Vec<(f64, f64)>,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Joined, with a mark at each, in this colour.
    Line(&'static str),
    /// Rings of this colour, not joined: what somebody else measured.
    Rings(&'static str),
}

const WIDTH: f64 = 640.0;
const PANEL_HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
/// About how many lines of a grid a reader can follow.
const GRID_LINES: f64 = 6.0;

/// The panels, one below the other.
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

/// One axis: from 0 to its end, in steps that people count in.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    end: f64,
    step: f64,
    /// Where 0 is drawn, and where the end.
    from: f64,
    to: f64,
}

impl Axis {
    fn new(largest: f64, from: f64, to: f64) -> Self {
        let rough = largest.max(f64::MIN_POSITIVE) / GRID_LINES;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0].map(|nice| nice * decade).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * decade);
        Self { end: (largest / step).ceil().max(1.0) * step, step, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + value / self.end * (self.to - self.from)
    }

    fn ticks(self) -> impl Iterator<Item = f64> {
        (0..=(self.end / self.step).round() as u32).map(move |tick| f64::from(tick) * self.step)
    }
}

fn draw(panel: &Panel, svg: &mut String) {
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let largest = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
    let x = Axis::new(largest(|point| point.0), LEFT, WIDTH - RIGHT);
    let y = Axis::new(largest(|point| point.1), PANEL_HEIGHT - BOTTOM, TOP);
    grid(panel, x, y, svg);
    for (number, series) in panel.series.iter().enumerate() {
        draw_series(series, x, y, svg);
        legend(series, number, svg);
    }
}

fn grid(panel: &Panel, x: Axis, y: Axis, svg: &mut String) {
    let (left, right, bottom, top) = (x.from, x.to, y.from, y.to);
    for tick in x.ticks() {
        let at = x.place(tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {bottom:.1}V{top:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            bottom + 16.0
        );
    }
    for tick in y.ticks() {
        let at = y.place(tick);
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

fn draw_series(series: &Series, x: Axis, y: Axis, svg: &mut String) {
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

/// One line of the legend, in the area's upper left, where lines that rise leave room.
fn legend(series: &Series, number: usize, svg: &mut String) {
    let (x, y) = (LEFT + 16.0, TOP + 16.0 + 17.0 * number as f64);
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
        fn an_axis_holds_its_largest_value_and_few_round_ticks(largest in 0.001..1e9_f64) {
            let axis = Axis::new(largest, 0.0, 100.0);
            prop_assert!(axis.end >= largest * 0.999_999 && axis.end <= largest * 2.0);
            let ticks: Vec<f64> = axis.ticks().collect();
            prop_assert!((3..=8).contains(&ticks.len()), "{:?}", ticks);
            prop_assert!(axis.place(largest) <= 100.000_1);
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
