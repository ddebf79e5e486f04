//! From a workload to flows and scripts: who sends to whom, over which ports, and what each program does.

use std::collections::BTreeMap;

use niclab_model::parts::random::Random;
use niclab_spec::{NicConfig, SimConfig, Workload, WorkloadKind};

use niclab_workloads::{End, Flow, FlowId, Outgoing, Script, Sizes};

use crate::recording::{Recorded, Recording, Route};

/// All that a workload makes the nodes do.
#[derive(Debug)]
pub struct Plan {
    /// The flows, by number.
    pub flows: Vec<Flow>,
    /// One script for each node, by rank: the messages before the measured ones.
    pub warmup: Vec<Script>,
    /// And the measured ones.
    pub measured: Vec<Script>,
    /// The flow that carries what was recorded on a node's route.
    routes: BTreeMap<(u16, Route), FlowId>,
}

/// Stream of the seed from which partners are drawn; links have the streams from 0 on.
const PARTNERS_STREAM: u64 = 1 << 40;
/// Streams from which each node's program draws.
const PROGRAM_STREAM: u64 = 1 << 41;

impl Plan {
    /// The plan of a workload that [`Workload::problems`] found nothing wrong with.
    #[must_use]
    pub fn new(config: &SimConfig, recording: Option<&Recording>) -> Self {
        let workload = &config.workload;
        let nodes = config.nodes.len() as u16;
        let mut plan =
            Self { flows: Vec::new(), warmup: Vec::new(), measured: Vec::new(), routes: BTreeMap::new() };
        match workload.kind {
            WorkloadKind::PingPong | WorkloadKind::Stream => {
                plan.connect((0..nodes / 2).map(|pair| (2 * pair, 2 * pair + 1)), nodes);
            }
            WorkloadKind::AllToAll => {
                plan.connect((0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b))), nodes);
            }
            WorkloadKind::NeighbourExchange => {
                plan.connect(ring(nodes, workload.partners(nodes.into())), nodes)
            }
            WorkloadKind::Random => {
                let ranks = shuffled(nodes, &mut Random::new(config.seed, PARTNERS_STREAM));
                let edges = ring(nodes, workload.partners(nodes.into())).into_iter();
                let rank = |place: u16| ranks.get(usize::from(place)).copied().unwrap_or(place);
                plan.connect(edges.map(|(a, b)| (rank(a), rank(b))), nodes);
            }
            WorkloadKind::Incast => plan.gather(workload.receiver.unwrap_or(0) as u16, nodes),
            WorkloadKind::Replay => {
                let numbers: Vec<_> = config.nodes.iter().map(|node| port_numbers(&node.nic)).collect();
                for node in 0..nodes {
                    let routes = recording.map(|recording| recording.routes_of(node)).unwrap_or_default();
                    plan.route(node, &routes, &numbers);
                }
            }
        }
        let mut flows_of = vec![Vec::new(); usize::from(nodes)];
        for (id, flow) in (0..).zip(&plan.flows) {
            flows_of
                .get_mut(usize::from(flow.from.node))
                .into_iter()
                .for_each(|own: &mut Vec<_>| own.push(id));
        }
        let of_nodes = || (0..nodes).zip(&flows_of);
        plan.warmup = of_nodes().map(|(node, own)| plan.script(config, recording, node, own, true)).collect();
        plan.measured =
            of_nodes().map(|(node, own)| plan.script(config, recording, node, own, false)).collect();
        plan
    }

    /// A port at each end of every pair, and a flow in each direction.
    fn connect(&mut self, pairs: impl IntoIterator<Item = (u16, u16)>, nodes: u16) {
        let mut used = vec![0; usize::from(nodes)];
        let mut next_port = |node: u16| {
            let port = used[usize::from(node)];
            used[usize::from(node)] += 1;
            End { node, port }
        };
        for (a, b) in pairs {
            let (a, b) = (next_port(a), next_port(b));
            self.flows.extend([Flow { from: a, to: b }, Flow { from: b, to: a }]);
        }
    }

    /// Every node sends to one, whose ports share the senders evenly.
    fn gather(&mut self, receiver: u16, nodes: u16) {
        let senders = (0..nodes).filter(|&node| node != receiver);
        for (number, node) in (0..).zip(senders) {
            let to = End { node: receiver, port: number % Workload::MAX_PORTS as u16 };
            self.flows.push(Flow { from: End { node, port: 0 }, to });
        }
    }

    /// A flow for each of a node's recorded routes, from the port that it had. A port sends to one other: for a
    /// second route the node takes another one, so that its messages go where they went. `numbers` are those of the ports
    /// that can be opened, by node.
    fn route(&mut self, node: u16, routes: &[Route], numbers: &[Vec<u16>]) {
        let place_of =
            |node: u16, number: u16| numbers.get(usize::from(node))?.iter().position(|open| *open == number);
        let mut is_taken = vec![false; numbers.get(usize::from(node)).map_or(0, Vec::len)];
        let mut places = vec![None; routes.len()];
        for (place, route) in places.iter_mut().zip(routes) {
            let own = place_of(node, route.port).filter(|&own| !is_taken[own]);
            own.into_iter().for_each(|own| is_taken[own] = true);
            *place = own;
        }
        for (place, route) in places.into_iter().zip(routes) {
            let free = || is_taken.iter().position(|is_taken| !is_taken);
            // The recording was refused if there are more routes than ports.
            let Some(place) = place.or_else(free) else { continue };
            is_taken[place] = true;
            let from = End { node, port: place as u16 };
            let to_place = place_of(route.to, route.to_port).map_or(route.to_port, |place| place as u16);
            let to = End { node: route.to, port: to_place };
            self.flows.push(Flow { from, to });
            self.routes.insert((node, *route), self.flows.len() as FlowId - 1);
        }
    }

    fn script(
        &self,
        config: &SimConfig,
        recording: Option<&Recording>,
        node: u16,
        own: &[FlowId],
        is_warmup: bool,
    ) -> Script {
        let workload = &config.workload;
        if is_warmup && workload.warmup == 0 {
            return Script::idle();
        }
        let count = if is_warmup { workload.warmup } else { workload.count };
        let is_first = node.is_multiple_of(2);
        let sizes = Sizes { bytes: workload.message_bytes, interrupt_every: workload.interrupt_every };
        let Some(&flow) = own.first() else { return Script::idle() };
        match workload.kind {
            WorkloadKind::PingPong if is_first => Script::ping(sizes, flow, count),
            WorkloadKind::PingPong => Script::pong(sizes, flow, count),
            WorkloadKind::Stream if is_first => Script::burst(sizes, own.to_vec(), count),
            WorkloadKind::Stream => Script::confirm(sizes, flow, count),
            WorkloadKind::AllToAll | WorkloadKind::NeighbourExchange | WorkloadKind::Incast => {
                Script::burst(sizes, own.to_vec(), count)
            }
            WorkloadKind::Random => {
                let stream = PROGRAM_STREAM + 2 * u64::from(node) + u64::from(is_warmup);
                Script::random(sizes, own.to_vec(), count, Random::new(config.seed, stream))
            }
            WorkloadKind::Replay if is_warmup => Script::idle(),
            WorkloadKind::Replay => {
                let messages = recording.map(|r| r.messages_of(node)).unwrap_or_default();
                Script::replay(messages.iter().filter_map(|message| self.outgoing(node, message)).collect())
            }
        }
    }

    /// What a node sends where it sent this.
    fn outgoing(&self, node: u16, message: &Recorded) -> Option<Outgoing> {
        let flow = *self.routes.get(&(node, Route::of(message)))?;
        let (bytes, interrupts) = (message.bytes, message.interrupt);
        Some(Outgoing { flow, bytes, interrupts, not_before_ps: message.model_time_ps })
    }
}

/// The card's numbers of the ports that can be opened.
#[must_use]
pub fn port_numbers(nic: &NicConfig) -> Vec<u16> {
    nic.limits().open_ports
}

/// The pairs of a ring on which each node has `neighbours`: the closest first. An odd number needs an even ring, whose
/// last pairs are those of opposite nodes.
fn ring(nodes: u16, neighbours: u32) -> Vec<(u16, u16)> {
    let mut pairs = Vec::new();
    for distance in 1..=(neighbours / 2) as u16 {
        // Opposite nodes would be paired twice.
        let count = if 2 * distance == nodes { nodes / 2 } else { nodes };
        pairs.extend((0..count).map(|a| (a, (a + distance) % nodes)));
    }
    if neighbours % 2 == 1 {
        pairs.extend((0..nodes / 2).map(|a| (a, a + nodes / 2)));
    }
    pairs
}

/// The ranks in random order (Fisher and Yates).
fn shuffled(nodes: u16, random: &mut Random) -> Vec<u16> {
    let mut ranks: Vec<u16> = (0..nodes).collect();
    for last in (1..ranks.len()).rev() {
        ranks.swap(last, random.below(last as u32 + 1) as usize);
    }
    ranks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_node_of_a_ring_has_as_many_partners_as_it_shall(nodes in 2..40_u16, neighbours in 1..9_u32) {
            prop_assume!(neighbours < u32::from(nodes));
            prop_assume!(neighbours % 2 == 0 || nodes % 2 == 0);
            let pairs = ring(nodes, neighbours);
            let distinct: BTreeSet<_> = pairs.iter().map(|&(a, b)| (a.min(b), a.max(b))).collect();
            prop_assert_eq!(distinct.len(), pairs.len(), "no pair twice");
            for node in 0..nodes {
                let degree = pairs.iter().filter(|&&(a, b)| a == node || b == node).count();
                prop_assert_eq!(degree, neighbours as usize);
            }
        }
    }

    #[test]
    fn a_shuffle_loses_nobody() {
        let mut ranks = shuffled(50, &mut Random::new(7, 0));
        assert_ne!(ranks, (0..50).collect::<Vec<_>>());
        ranks.sort_unstable();
        assert_eq!(ranks, (0..50).collect::<Vec<_>>());
    }
}
