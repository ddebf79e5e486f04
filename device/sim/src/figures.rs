//! The counters of a world in the form of reports.

use std::collections::BTreeMap;

use niclab_assembly::figures;
use niclab_model::fabric::PortCounters;
use niclab_model::nic::ShellCounts;
use niclab_model::parts::fault_injector::{Fault, FaultInjector};
use niclab_model::parts::histogram::Histogram;
use niclab_model::parts::ledger::{Crossing, Line};
use niclab_spec::SimConfig;
use niclab_spec::monitor::{DaemonStats, STATS_VERSION};
use niclab_spec::report::{ModelFigures, NodeFigures, PortFigures, TrafficStats};
use niclab_workloads::Transport;

use crate::checker::Check;
use crate::host::Sum;
use crate::host::card::CardHost;
use crate::host::ethernet::EthernetHost;
use crate::host::tally::{Interrupts, Tally};
use crate::world::{Node, World};

/// All counters since the world was made.
pub fn stats(world: &World, config: &SimConfig) -> DaemonStats {
    let nodes = world.nodes().iter().zip(&config.nodes).enumerate();
    DaemonStats {
        version: STATS_VERSION,
        wall_uptime_ns: 0,
        model: ModelFigures {
            time_ps: world.clock().as_ps(),
            is_exact: true,
            latency: figures::histogram(&latency(world)),
            ..ModelFigures::default()
        },
        nodes: nodes
            .map(|(number, (node, named))| {
                let counters = world.fabric().counters(number as u16).copied().unwrap_or_default();
                node_figures(node, &counters, &named.name)
            })
            .collect(),
        fabric: figures::fabric(world.fabric()),
    }
}

/// Latency of the messages of all nodes.
fn latency(world: &World) -> Histogram {
    let mut latency = Histogram::default();
    for node in world.nodes() {
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

/// Of a host with a modelled card.
pub fn card<T: Transport>(host: &CardHost<T>) -> NodeFigures {
    let tally = host.tally();
    let nic = host.nic();
    // The card of the simulator looks at every store as it is made: no doorbell is ever needed.
    let counts = ShellCounts { doorbells_spared: tally.launches, ..ShellCounts::default() };
    let model = nic.statistics(&counts);
    let (device_faults, device_fault_log) = figures::device_faults(nic);
    NodeFigures {
        device_faults,
        device_fault_log,
        messages_sent: model.packets_sent,
        messages_received: model.packets_received,
        bytes_sent: model.bytes_sent,
        bytes_received: model.bytes_received,
        cluster: traffic(tally),
        spared_doorbells: model.doorbells_spared,
        ledger: figures::entries(nic.ledger()),
        unordered: nic.unordered(),
        model_latency: figures::histogram(nic.ledger().latency()),
        interrupts: interrupts(&host.interrupts()),
        ports: host.ports().map(port_figures).collect(),
        nic_counts: figures::nic_counts(nic),
        violations: figures::refusals(&model),
        ..NodeFigures::default()
    }
}

/// Of a host with the Ethernet function.
pub fn ethernet(host: &EthernetHost) -> NodeFigures {
    let tally = host.tally();
    NodeFigures {
        ethernet: TrafficStats {
            sent_frames: tally.sent_frames,
            sent_bytes: tally.sent_bytes,
            received_frames: tally.received_frames,
            received_bytes: tally.received_bytes,
            dropped_frames: tally.dropped_frames,
        },
        doorbells: tally.doorbells,
        interrupts: figures::named([("ethernet_receive", tally.receive_interrupts)]),
        ethernet_ledger: figures::entries(host.nic().ledger()),
        ethernet_model_latency: figures::histogram(host.nic().ledger().latency()),
        ..NodeFigures::default()
    }
}

fn port_figures((port, launches, of_port): (u32, u64, Interrupts)) -> PortFigures {
    PortFigures { port, launches, interrupts: interrupts(&of_port) }
}

/// By the names that live runs use.
fn interrupts(interrupts: &Interrupts) -> BTreeMap<String, u64> {
    let Interrupts { message, armed, unauthorized, handed_over } = *interrupts;
    figures::named([
        ("message", message),
        ("armed", armed),
        ("unauthorized", unauthorized),
        ("handed-over", handed_over),
    ])
}

const fn traffic(tally: &Tally) -> TrafficStats {
    TrafficStats {
        sent_frames: tally.sent_frames,
        sent_bytes: tally.sent_bytes,
        received_frames: tally.received_frames,
        received_bytes: tally.received_bytes,
        dropped_frames: tally.dropped_frames,
    }
}

/// What a ledger has of a crossing, and what was seen.
const fn sum(what: &'static str, entered: u64, seen: u64) -> Sum {
    Sum { what, entered, seen }
}

/// The ledger of a modelled card.
pub fn card_sums<T: Transport>(host: &CardHost<T>) -> Vec<Sum> {
    let line = |crossing| host.nic().ledger().line(crossing);
    let tally = host.tally();
    let count = |fault| host.nic().fault_injector().map_or(0, |fault_injector| fault_injector.count(fault));
    let withheld_bytes = host.nic().fault_injector().map_or(0, FaultInjector::withheld_bytes);
    // What the card did, and the host saw otherwise by a fault of the device.
    let written_bytes = tally.dma_bytes + withheld_bytes;
    let raised = line(Crossing::Interrupt).count + count(Fault::DoubledInterrupt);
    let seen = host.interrupts().total() + count(Fault::LostInterrupt);
    vec![
        sum("bytes of DMA writes", line(Crossing::DmaWrite).bytes, written_bytes),
        sum("bytes of DMA reads", line(Crossing::DmaRead).bytes, tally.read_bytes),
        sum("bytes of programmed I/O", line(Crossing::PioWrite).bytes, tally.pio_bytes),
        sum("interrupts", raised, seen),
        sum("launches", line(Crossing::HostSend).count, tally.launches),
    ]
}

/// The ledger of an Ethernet function.
pub fn ethernet_sums(host: &EthernetHost) -> Vec<Sum> {
    let line = |crossing| host.nic().ledger().line(crossing);
    let tally = host.tally();
    vec![
        sum("bytes of DMA writes", line(Crossing::DmaWrite).bytes, tally.received_bytes),
        sum("bytes of DMA reads", line(Crossing::DmaRead).bytes, tally.sent_bytes),
        sum("interrupts", line(Crossing::Interrupt).count, tally.receive_interrupts),
        sum("doorbells", line(Crossing::Doorbell).count, tally.doorbells),
        sum("messages sent", line(Crossing::HostSend).count, tally.sent_frames),
    ]
}

/// Holds every ledger against what crossed the boundary of its model, counted outside of it.
pub fn check_sums(world: &mut World) {
    let mut wrong = Vec::new();
    for (number, node) in world.nodes().iter().enumerate() {
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
    wrong.extend(wire_difference(world));
    for what in wrong {
        world.checker_mut().fail(Check::LedgerSums, || what);
    }
}

/// The fabric's counters against the frames that left the nodes.
fn wire_difference(world: &World) -> Option<String> {
    let fabric = world.fabric();
    let entered: u64 =
        (0..fabric.ports()).filter_map(|port| fabric.counters(port)).map(|c| c.frames_in).sum();
    let sent: u64 = world.nodes().iter().map(|node| node.host.sent_frames()).sum();
    (entered != sent).then(|| format!("the fabric counts {entered} frames, and {sent} were sent"))
}
