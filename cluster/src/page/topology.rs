//! The drawing of the cluster: the switch in the middle, a link to each node.

use std::f64::consts::TAU;

use maud::{Markup, html};
use niclab_spec::report::NodeFigures;
use plotters::{
    prelude::{Circle, PathElement, Rectangle, Text},
    style::{
        Color,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    charts::{Area, BAD, Drawn, FADED, GRID, INK, PART_COLOURS, drawing, letters, short},
    figures::millions_per_second,
};

/// Maximum number of nodes that fit around the switch.
const MAX_NODES: usize = 64;
/// Maximum number of nodes whose rates fit into the drawing.
const MAX_RATES: usize = 8;
/// The place of a name on the way from the switch to the edge.
const NAME: f64 = 0.84;
/// Width and height in pixels.
const SIZE: (i32, i32) = (600, 480);

/// Bytes that a node's link carried, in both directions, of both functions.
pub fn bytes_of(node: &NodeFigures) -> u64 {
    let functions = [&node.cluster, &node.ethernet];
    functions
        .iter()
        .fold(0, |sum, traffic| sum.wrapping_add(traffic.sent_bytes).wrapping_add(traffic.received_bytes))
}

/// Events on a node's link: lost, duplicated, delayed frames.
fn events_of(node: &NodeFigures) -> u64 {
    node.link_events.values().fold(0, |sum, count| sum.wrapping_add(*count))
}

/// The nodes, their links, and what happened on each. `time_ps` is the model time of the run. More nodes than fit have
/// no drawing.
pub fn topology(nodes: &[NodeFigures], time_ps: u64) -> Option<Markup> {
    if nodes.is_empty() || nodes.len() > MAX_NODES {
        return None;
    }
    let (width, height) = (SIZE.0.unsigned_abs(), SIZE.1.unsigned_abs());
    let most = nodes.iter().map(bytes_of).max().unwrap_or(0).max(1);
    let thickest = if nodes.len() <= 16 { 6_u32 } else { 2 };
    let svg = drawing((width, height), |area| {
        let middle = (SIZE.0 / 2, SIZE.1 / 2);
        for (at, node) in nodes.iter().enumerate() {
            let direction = Direction::of(at, nodes.len());
            let is_hit = events_of(node) > 0;
            let colour = if is_hit { BAD } else { PART_COLOURS[0] };
            // From 1 for an idle link to the maximum for the busiest one.
            let share = u128::from(bytes_of(node)) * u128::from(thickest) / u128::from(most);
            let thickness = 1 + u32::try_from(share).unwrap_or(thickest);
            let line = vec![middle, direction.at(0.72)];
            area.draw(&PathElement::new(line, colour.light.stroke_width(thickness)))?;
        }
        for (at, node) in nodes.iter().enumerate() {
            draw_node(area, (at, nodes.len()), node, time_ps)?;
        }
        let (x, y) = middle;
        area.draw(&Rectangle::new([(x - 40, y - 18), (x + 40, y + 18)], GRID.light.filled()))?;
        let style = letters(17, INK).pos(Pos::new(HPos::Center, VPos::Center));
        area.draw(&Text::new("switch", middle, style))
    });
    Some(html! {
        figure {
            (svg)
            figcaption {
                "Nodes and links. A thicker line carried more bytes. A red line had faults. The table of links has \
                 their counts."
                @if nodes.len() <= MAX_RATES { " Rates are in MB per second of model time, sent and received." }
            }
        }
    })
}

/// Draws the node with this rank among `count` nodes.
fn draw_node(area: &Area<'_>, (at, count): (usize, usize), node: &NodeFigures, time_ps: u64) -> Drawn {
    let direction = Direction::of(at, count);
    let radius = if count <= 16 { 12 } else { 5 };
    let has_failed = node.error.is_some();
    let colour = if has_failed { BAD } else { INK };
    area.draw(&Circle::new(direction.at(0.72), radius, colour.light.filled()))?;
    let size = if count <= 16 { 17 } else { 11 };
    // The names of many nodes overlap less in two circles.
    let (x, y) = direction.at(if count > 16 && at % 2 == 1 { 0.92 } else { NAME });
    // Above the switch, the second line of a label is nearest to the node.
    let y = if direction.y < -0.5 && count <= MAX_RATES { y - 18 } else { y };
    let place = Pos::new(direction.anchor(), VPos::Center);
    area.draw(&Text::new(short(&node.name), (x, y), letters(size, colour).pos(place)))?;
    if count > MAX_RATES {
        return Ok(());
    }
    let functions = [&node.cluster, &node.ethernet];
    let sent = functions.iter().fold(0_u64, |sum, traffic| sum.wrapping_add(traffic.sent_bytes));
    let received = bytes_of(node).wrapping_sub(sent);
    let rates =
        format!("{} / {}", millions_per_second(sent, time_ps), millions_per_second(received, time_ps));
    area.draw(&Text::new(rates, (x, y + 18), letters(14, FADED).pos(place)))
}

/// The direction of a node from the switch.
#[derive(Clone, Copy)]
struct Direction {
    x: f64,
    y: f64,
}

impl Direction {
    /// The nodes go around the switch with the clock. The first is at the top, but two nodes are left and right.
    #[expect(clippy::cast_precision_loss, reason = "at most 64 nodes")]
    fn of(at: usize, count: usize) -> Self {
        let first = if count == 2 { -TAU / 2.0 } else { -TAU / 4.0 };
        let (y, x) = (first + TAU * at as f64 / count as f64).sin_cos();
        Self { x, y }
    }

    /// A place on the way to the edge: 0 is the switch, 1 is the edge.
    #[expect(clippy::cast_possible_truncation, reason = "within the drawing")]
    fn at(self, part: f64) -> (i32, i32) {
        let (half_width, half_height) = (f64::from(SIZE.0) / 2.0, f64::from(SIZE.1) / 2.0);
        let x = half_width + self.x * part * (half_width - 60.0);
        let y = half_height + self.y * part * half_height;
        (x.round() as i32, y.round() as i32)
    }

    /// Names on the left end at their node, and names on the right begin there.
    fn anchor(self) -> HPos {
        match self.x {
            ..-0.2 => HPos::Right,
            -0.2..0.2 => HPos::Center,
            _ => HPos::Left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: usize) -> Vec<NodeFigures> {
        (0..count).map(|rank| NodeFigures::new(&format!("node{rank}"))).collect()
    }

    #[test]
    fn each_node_has_a_link_and_a_name() {
        for count in [1, 2, 3, 64] {
            let svg = topology(&nodes(count), 1).unwrap().into_string();
            assert_eq!(svg.matches("<polyline").count(), count);
            assert!(svg.contains(&format!("node{}\n", count - 1)), "{svg}");
        }
        assert!(topology(&nodes(65), 1).is_none() && topology(&[], 1).is_none());
    }

    #[test]
    fn link_with_faults_is_red() {
        let mut nodes = nodes(2);
        let red = BAD.hex();
        assert!(!topology(&nodes, 1).unwrap().into_string().contains(&red));
        nodes[1].link_events.insert("lost".to_owned(), 1);
        let svg = topology(&nodes, 1).unwrap().into_string();
        assert_eq!(svg.matches(&format!("stroke=\"{red}\"")).count(), 1, "{svg}");
    }

    #[test]
    fn places_stay_inside_the_drawing() {
        for count in 1..=MAX_NODES {
            for at in 0..count {
                let (x, y) = Direction::of(at, count).at(0.92);
                assert!((0..SIZE.0).contains(&x) && (0..SIZE.1).contains(&y), "{at} of {count}: {x}, {y}");
            }
        }
    }
}
