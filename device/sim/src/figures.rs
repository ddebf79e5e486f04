//! The counters of a simulation in the form of reports.

use niclab_assembly::figures;
use niclab_model::fabric::PortCounters;
use niclab_model::platform::histogram::Histogram;
use niclab_model::platform::ledger::Line;
use niclab_spec::SimConfig;
use niclab_spec::monitor::{DaemonStats, STATS_VERSION};
use niclab_spec::report::{ModelFigures, NodeFigures};

use crate::checker::Check;
use crate::host::Sum;
use crate::part::Node;
use crate::simulation::Simulation;

/// All counters since the simulation was set up.
pub fn stats(simulation: &Simulation, config: &SimConfig) -> DaemonStats {
    let nodes = simulation.nodes().iter().zip(&config.nodes).enumerate();
    DaemonStats {
        version: STATS_VERSION,
        wall_uptime_ns: 0,
        model: ModelFigures {
            time_ps: simulation.clock().as_ps(),
            is_exact: true,
            latency: figures::histogram(&latency(simulation)),
            ..ModelFigures::default()
        },
        nodes: nodes
            .map(|(number, (node, named))| {
                let counters = simulation.fabric().counters(number as u16).copied().unwrap_or_default();
                node_figures(node, &counters, &named.name)
            })
            .collect(),
        fabric: figures::fabric(simulation.fabric().all()),
    }
}

/// Latency of the messages of all nodes.
fn latency(simulation: &Simulation) -> Histogram {
    let mut latency = Histogram::default();
    for node in simulation.nodes() {
        latency.merge(node.host.ledger().latency());
    }
    latency
}

fn node_figures(node: &Node, counters: &PortCounters, name: &str) -> NodeFigures {
    let mut node_figures = node.host.figures();
    node_figures.name = name.to_owned();
    node_figures.model_time_ps = node.host.clock().as_ps();
    node_figures.link_events = figures::link_events(counters);
    node_figures
}

/// Compares every ledger with the traffic at its model's interface, which the host counts outside the model.
pub fn check_sums(simulation: &mut Simulation) {
    let mut wrong = Vec::new();
    for (number, node) in simulation.nodes().iter().enumerate() {
        let ledger = node.host.ledger();
        let sum = ledger.lines().fold(Line::default(), |mut sum, (_, line)| {
            sum.count += line.count;
            sum.bytes += line.bytes;
            sum.price_ps += line.price_ps;
            sum.waited_ps += line.waited_ps;
            sum
        });
        let mut sums = vec![
            Sum { what: "sum of picoseconds", entered: ledger.total().price_ps, seen: sum.price_ps },
            Sum { what: "sum of waiting", entered: ledger.total().waited_ps, seen: sum.waited_ps },
        ];
        sums.extend(node.host.sums());
        let different = sums.into_iter().filter(|sum| sum.entered != sum.seen);
        wrong.extend(different.map(|Sum { what, entered, seen }| {
            format!("node {number}: {what}: {entered} in the ledger, {seen} seen outside of the model")
        }));
    }
    wrong.extend(wire_difference(simulation));
    for what in wrong {
        simulation.checker_mut().fail(Check::LedgerSums, || what);
    }
}

/// Compares the fabric's counters with the frames that left the nodes.
fn wire_difference(simulation: &Simulation) -> Option<String> {
    let fabric = simulation.fabric();
    let entered: u64 = fabric.ports().filter_map(|port| fabric.counters(port)).map(|c| c.frames_in).sum();
    let sent: u64 = simulation.nodes().iter().map(|node| node.host.sent_frames()).sum();
    (entered != sent).then(|| format!("the fabric counts {entered} frames, and {sent} were sent"))
}
