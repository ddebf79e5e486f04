//! From a workload to flows and scripts: who sends to whom, over which ports, and what each program does.

use niclab_model::fabric::faults::Random;
use niclab_spec::{SimConfig, Workload, WorkloadKind};

use crate::recording::Recording;
use crate::script::Script;

/// Number of a flow: its place in [`Plan::flows`].
pub type FlowId = u32;

/// A port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    /// The node's rank.
    pub node: u16,
    /// Its port, counted from 0 among those that can be opened.
    pub port: u16,
}

/// Messages from one port to another, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Who sends.
    pub from: End,
    /// Who receives.
    pub to: End,
}

/// All that a workload makes the nodes do.
#[derive(Debug)]
pub struct Plan {
    /// The flows, by number.
    pub flows: Vec<Flow>,
    /// One script for each node, by rank: the messages before the measured ones.
    pub warmup: Vec<Script>,
    /// And the measured ones.
    pub measured: Vec<Script>,
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
        let mut plan = Self { flows: Vec::new(), warmup: Vec::new(), measured: Vec::new() };
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
            WorkloadKind::Replay => plan.connect(recording.map(Recording::pairs).unwrap_or_default(), nodes),
        }
        plan.warmup = (0..nodes).map(|node| plan.script(config, recording, node, true)).collect();
        plan.measured = (0..nodes).map(|node| plan.script(config, recording, node, false)).collect();
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
            let to = End { node: receiver, port: number % Workload::ULTRA_PORTS as u16 };
            self.flows.push(Flow { from: End { node, port: 0 }, to });
        }
    }

    fn script(
        &self,
        config: &SimConfig,
        recording: Option<&Recording>,
        node: u16,
        is_warmup: bool,
    ) -> Script {
        let workload = &config.workload;
        let count = if is_warmup { workload.warmup } else { workload.count };
        let flows = (0..).zip(&self.flows);
        let own: Vec<FlowId> = flows.filter(|(_, f)| f.from.node == node).map(|(id, _)| id).collect();
        let is_first = node.is_multiple_of(2);
        let Some(&flow) = own.first() else { return Script::idle() };
        match workload.kind {
            WorkloadKind::PingPong if is_first => Script::ping(workload, flow, count),
            WorkloadKind::PingPong => Script::pong(workload, flow, count),
            WorkloadKind::Stream if is_first => Script::burst(workload, own, count),
            WorkloadKind::Stream => Script::confirm(workload, flow, count),
            WorkloadKind::AllToAll | WorkloadKind::NeighbourExchange | WorkloadKind::Incast => {
                Script::burst(workload, own, count)
            }
            WorkloadKind::Random => {
                let stream = PROGRAM_STREAM + 2 * u64::from(node) + u64::from(is_warmup);
                Script::random(workload, own, count, Random::new(config.seed, stream))
            }
            WorkloadKind::Replay if is_warmup => Script::idle(),
            WorkloadKind::Replay => {
                let flow_to = |to: u16| {
                    own.iter()
                        .copied()
                        .find(|&id| self.flows.get(id as usize).is_some_and(|f| f.to.node == to))
                };
                Script::replay(recording.map(|r| r.messages_of(node)).unwrap_or_default(), flow_to)
            }
        }
    }
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
