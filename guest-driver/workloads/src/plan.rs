//! Derives flows, ports and scripts from a workload.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use niclab_random::Random;

use crate::{End, Flow, FlowId, Outgoing, Pattern, PortPlan, Recorded, Route, Script, Sizes, Workload};

/// What the nodes do for a workload.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The flows, by number. Their ports have the cards' numbers.
    pub flows: Vec<Flow>,
    /// The ports that each node opens, by rank.
    pub ports: Vec<Vec<PortPlan>>,
    /// One script for each node, by rank: the messages before the measurement.
    pub warmup: Vec<Script>,
    /// The same for the measured messages.
    pub measured: Vec<Script>,
}

/// The stream of the seed from which partners are drawn; links use the streams from 0.
const PARTNERS_STREAM: u64 = 1 << 40;
/// The streams from which each node's program draws.
const PROGRAM_STREAM: u64 = 1 << 41;

impl Plan {
    /// The plan of a workload that [`Workload::check`] accepts.
    #[must_use]
    pub fn new(workload: &Workload) -> Self {
        let mut draft = Draft { workload, flows: Vec::new(), routes: BTreeMap::new() };
        draft.connect_all();
        let Draft { flows, routes, .. } = draft;
        let mut flows_of = vec![Vec::new(); workload.ports.len()];
        for (id, flow) in (0..).zip(&flows) {
            let own = flows_of.get_mut(usize::from(flow.from.node));
            own.into_iter().for_each(|own: &mut Vec<FlowId>| own.push(id));
        }
        let scripts = |is_warmup: bool| {
            let of_nodes = workload.ranks().zip(&flows_of);
            of_nodes.map(|(node, own)| script(workload, &routes, node, own, is_warmup)).collect()
        };
        let (warmup, measured) = (scripts(true), scripts(false));
        let flows: Vec<Flow> = flows.iter().map(|flow| numbered(flow, &workload.ports)).collect();
        let mut ports = port_plans(&flows, workload.ports.len());
        if workload.pattern == Pattern::Reduce {
            ports.iter_mut().flatten().for_each(|port| port.group = workload.ranks().collect());
        }
        if let Pattern::Echo(peripherals) = &workload.pattern {
            for (node, own) in workload.ranks().zip(&mut ports) {
                let sends = own.iter_mut().flat_map(|port| &mut port.sends);
                sends.for_each(|(_, target)| *target = echoing(peripherals, node).unwrap_or(*target));
            }
        }
        Self { ports, flows, warmup, measured }
    }

    /// The ports that a node opens. In lockstep each node opens at least one, over which it receives its grants.
    #[must_use]
    pub fn ports_of(&self, workload: &Workload, node: u16, takes_turns: bool) -> Vec<PortPlan> {
        let mut ports = self.ports.get(usize::from(node)).cloned().unwrap_or_default();
        if takes_turns && ports.is_empty() {
            let spare = workload.ports.get(usize::from(node)).and_then(|numbers| numbers.first());
            ports.extend(spare.map(|number| PortPlan { number: u32::from(*number), ..PortPlan::default() }));
        }
        ports
    }

    /// The largest number of flows that any port receives, plus its own.
    #[must_use]
    pub fn max_partners(&self) -> u64 {
        let partners = self.ports.iter().flatten().map(|port| port.partners.len() as u64);
        partners.max().unwrap_or(0) + 1
    }

    /// Messages that a node receives if all nodes run these scripts and none is lost.
    #[must_use]
    pub fn expected(&self, scripts: &[Script], node: u16) -> u64 {
        let senders: BTreeSet<u16> =
            self.flows.iter().filter(|flow| flow.to.node == node).map(|flow| flow.from.node).collect();
        let sent =
            senders.iter().filter_map(|sender| scripts.get(usize::from(*sender))).flat_map(Script::messages);
        sent.filter(|(id, _)| self.flows.get(*id as usize).is_some_and(|flow| flow.to.node == node))
            .map(|(_, count)| count)
            .sum()
    }
}

/// Flows under construction: their ports are indices into the lists of usable ports.
struct Draft<'a> {
    workload: &'a Workload,
    flows: Vec<Flow>,
    /// The flow that carries the recorded messages of a route.
    routes: BTreeMap<Route, FlowId>,
}

impl Draft<'_> {
    fn connect_all(&mut self) {
        let workload = self.workload;
        let nodes = workload.nodes();
        match &workload.pattern {
            Pattern::PingPong | Pattern::Stream => {
                self.connect((0..nodes / 2).map(|pair| ((2 * pair) as u16, (2 * pair + 1) as u16)));
            }
            Pattern::AllToAll => {
                let ranks = workload.ranks();
                self.connect(
                    ranks.clone().flat_map(|a| ranks.clone().skip(usize::from(a) + 1).map(move |b| (a, b))),
                );
            }
            Pattern::NeighbourExchange(partners) => self.connect(ring(nodes, *partners)),
            Pattern::Random(partners) => {
                let ranks = shuffled(nodes, &mut Random::new(workload.seed, PARTNERS_STREAM));
                let rank = |place: u16| ranks.get(usize::from(place)).copied().unwrap_or(place);
                self.connect(ring(nodes, *partners).into_iter().map(|(a, b)| (rank(a), rank(b))));
            }
            Pattern::Incast(receiver) => self.gather(*receiver),
            Pattern::Reduce => {
                let own = workload.ranks().map(|node| End { node, port: 0 });
                self.flows.extend(own.map(|end| Flow { from: end, to: end }));
            }
            Pattern::Echo(peripherals) => {
                let senders = workload.ranks().filter(|node| echoing(peripherals, *node).is_some());
                let own = senders.map(|node| End { node, port: 0 });
                self.flows.extend(own.map(|end| Flow { from: end, to: end }));
            }
            Pattern::Replay(messages) => {
                let mut seen = BTreeSet::new();
                let mut routes = vec![Vec::new(); workload.ports.len()];
                for route in messages.iter().map(|message| message.route).filter(|route| seen.insert(*route))
                {
                    routes.get_mut(usize::from(route.node)).into_iter().for_each(|own| own.push(route));
                }
                workload.ranks().zip(routes).for_each(|(node, routes)| self.route(node, &routes));
            }
        }
    }

    /// Opens a port at each end of every pair, with a flow in each direction.
    fn connect(&mut self, pairs: impl IntoIterator<Item = (u16, u16)>) {
        let mut used = vec![0; self.workload.ports.len()];
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

    /// Every node sends to one receiver, whose ports share the senders evenly.
    fn gather(&mut self, receiver: u16) {
        let senders = self.workload.ranks().filter(|&node| node != receiver);
        for (number, node) in (0..).zip(senders) {
            let to = End { node: receiver, port: number % Workload::MAX_PORTS as u16 };
            self.flows.push(Flow { from: End { node, port: 0 }, to });
        }
    }

    /// Adds a flow for each of a node's recorded routes, from the recorded port. If a port has only one target, a
    /// second route from it takes another port, so that its messages reach the recorded target.
    fn route(&mut self, node: u16, routes: &[Route]) {
        let numbers = &self.workload.ports;
        let place_of =
            |node: u16, number: u16| numbers.get(usize::from(node))?.iter().position(|open| *open == number);
        let mut is_taken = vec![false; numbers.get(usize::from(node)).map_or(0, Vec::len)];
        let mut places = vec![None; routes.len()];
        for (place, route) in places.iter_mut().zip(routes) {
            let own = place_of(node, route.port).filter(|&own| !is_taken[own]);
            own.into_iter().for_each(|own| is_taken[own] = !self.workload.sends_to_many);
            *place = own;
        }
        for (place, route) in places.into_iter().zip(routes) {
            let free = || is_taken.iter().position(|is_taken| !is_taken);
            // The caller refuses a recording with more routes than ports.
            let Some(place) = place.or_else(free) else { continue };
            is_taken[place] = !self.workload.sends_to_many;
            let from = End { node, port: place as u16 };
            let to_place = place_of(route.to, route.to_port).map_or(route.to_port, |place| place as u16);
            let to = End { node: route.to, port: to_place };
            self.flows.push(Flow { from, to });
            self.routes.insert(*route, self.flows.len() as FlowId - 1);
        }
    }
}

/// The script of a node over its own flows.
fn script(
    workload: &Workload,
    routes: &BTreeMap<Route, FlowId>,
    node: u16,
    own: &[FlowId],
    is_warmup: bool,
) -> Script {
    let count = if is_warmup { workload.warmup } else { workload.count };
    let is_first = node.is_multiple_of(2);
    let sizes = Sizes { bytes: workload.message_bytes, interrupt_every: workload.interrupt_every };
    let Some(&flow) = own.first().filter(|_| !is_warmup || count > 0) else { return Script::idle() };
    match &workload.pattern {
        Pattern::PingPong if is_first => Script::ping(sizes, flow, count),
        Pattern::PingPong => Script::pong(sizes, flow, count),
        Pattern::Reduce | Pattern::Echo(_) => Script::ping(sizes, flow, count),
        Pattern::Stream if is_first => Script::burst(sizes, own.to_vec(), count),
        Pattern::Stream => Script::confirm(sizes, flow, count),
        Pattern::AllToAll | Pattern::NeighbourExchange(_) | Pattern::Incast(_) => {
            Script::burst(sizes, own.to_vec(), count)
        }
        Pattern::Random(_) => {
            let stream = PROGRAM_STREAM + 2 * u64::from(node) + u64::from(is_warmup);
            Script::random(sizes, own.to_vec(), count, Random::new(workload.seed, stream))
        }
        Pattern::Replay(_) if is_warmup => Script::idle(),
        Pattern::Replay(messages) => {
            let own = messages.iter().filter(|message| message.route.node == node);
            Script::replay(own.filter_map(|message| outgoing(routes, message)).collect())
        }
    }
}

/// The target of a node's messages: the peripheral of the next other node on a ring that has one.
fn echoing(peripherals: &[Option<u16>], node: u16) -> Option<End> {
    let nodes = peripherals.len() as u32;
    let others = (1..nodes).map(|distance| ((u32::from(node) + distance) % nodes) as u16);
    others.into_iter().find_map(|node| Some(End { node, port: (*peripherals.get(usize::from(node))?)? }))
}

/// The message that replays a recorded message.
fn outgoing(routes: &BTreeMap<Route, FlowId>, message: &Recorded) -> Option<Outgoing> {
    let &Recorded { model_time_ps, route, bytes, interrupts } = message;
    let flow = *routes.get(&route)?;
    Some(Outgoing { flow, bytes, interrupts, not_before_ps: model_time_ps })
}

/// A flow with the cards' numbers of its ports instead of indices.
fn numbered(flow: &Flow, numbers: &[Vec<u16>]) -> Flow {
    let number = |end: End| {
        let of_node = numbers.get(usize::from(end.node)).map(Vec::as_slice).unwrap_or_default();
        let place = usize::from(end.port).checked_rem(of_node.len());
        End { port: place.and_then(|place| of_node.get(place).copied()).unwrap_or(end.port), ..end }
    };
    Flow { from: number(flow.from), to: number(flow.to) }
}

/// The ports of each node, by rank.
fn port_plans(flows: &[Flow], nodes: usize) -> Vec<Vec<PortPlan>> {
    let mut plans: Vec<Vec<PortPlan>> = vec![Vec::new(); nodes];
    let mut port = |end: End, change: &dyn Fn(&mut PortPlan)| {
        let Some(of_node) = plans.get_mut(usize::from(end.node)) else { return };
        let number = end.port.into();
        let place = of_node.iter().position(|plan| plan.number == number).unwrap_or_else(|| {
            of_node.push(PortPlan { number, ..PortPlan::default() });
            of_node.len() - 1
        });
        change(&mut of_node[place]);
    };
    for (id, flow) in (0..).zip(flows) {
        port(flow.from, &|plan| plan.sends.push((id, flow.to)));
        port(flow.to, &|plan| plan.partners.push((id, flow.from)));
    }
    plans
}

/// The pairs of a ring on which each node has `neighbours`, the closest first. An odd number needs an even ring, whose
/// last pairs are the opposite nodes.
fn ring(nodes: u32, neighbours: u32) -> Vec<(u16, u16)> {
    let mut pairs = Vec::new();
    for distance in 1..=neighbours / 2 {
        // Opposite nodes would form two pairs.
        let count = if 2 * distance == nodes { nodes / 2 } else { nodes };
        pairs.extend((0..count).map(|a| (a as u16, ((a + distance) % nodes) as u16)));
    }
    if neighbours % 2 == 1 {
        pairs.extend((0..nodes / 2).map(|a| (a as u16, (a + nodes / 2) as u16)));
    }
    pairs
}

/// The ranks in random order (Fisher and Yates).
fn shuffled(nodes: u32, random: &mut Random) -> Vec<u16> {
    let mut ranks: Vec<u16> = (0..nodes).map(|rank| rank as u16).collect();
    for last in (1..ranks.len()).rev() {
        ranks.swap(last, random.below(last as u32 + 1) as usize);
    }
    ranks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_node_of_a_ring_has_the_given_number_of_partners(nodes in 2..40_u32, neighbours in 1..9_u32) {
            prop_assume!(neighbours < nodes);
            prop_assume!(neighbours % 2 == 0 || nodes % 2 == 0);
            let pairs = ring(nodes, neighbours);
            let distinct: BTreeSet<_> = pairs.iter().map(|&(a, b)| (a.min(b), a.max(b))).collect();
            prop_assert_eq!(distinct.len(), pairs.len(), "a pair occurs twice");
            for node in 0..nodes as u16 {
                let degree = pairs.iter().filter(|&&(a, b)| a == node || b == node).count();
                prop_assert_eq!(degree, neighbours as usize);
            }
        }
    }

    fn workload(pattern: Pattern) -> Workload {
        Workload {
            pattern,
            message_bytes: 64,
            count: 30,
            warmup: 5,
            interrupt_every: 0,
            slices: 64,
            receive: crate::Receive::Posted,
            seed: 11,
            ports: vec![vec![0, 2, 4, 6, 7]; 4],
            sends_to_many: false,
            entries: 0,
            unexpected_messages: 0,
            payload_bytes: 0,
            first_segment_bytes: 0,
            promise: crate::Promise::ALL,
        }
    }

    #[test]
    fn each_node_expects_all_messages_that_are_sent_to_it() {
        let route = |node, port, to, to_port| Route { node, port, to, to_port };
        let recorded = [route(0, 2, 1, 4), route(0, 2, 3, 0), route(3, 7, 1, 4), route(0, 2, 1, 4)];
        let recorded =
            recorded.map(|route| Recorded { model_time_ps: 0, route, bytes: 8, interrupts: false });
        for (pattern, expected) in [
            (Pattern::PingPong, [30, 30, 30, 30]),
            (Pattern::Stream, [1, 30, 1, 30]),
            (Pattern::AllToAll, [90; 4]),
            (Pattern::NeighbourExchange(2), [60; 4]),
            (Pattern::Incast(2), [0, 0, 90, 0]),
            (Pattern::Reduce, [30; 4]),
            (Pattern::Echo(vec![None, Some(5), None, None]), [30, 0, 30, 30]),
            (Pattern::Replay(recorded.to_vec()), [0, 3, 0, 1]),
        ] {
            let workload = workload(pattern);
            assert_eq!(workload.check(), Ok(()));
            let plan = Plan::new(&workload);
            let found = [0, 1, 2, 3].map(|node| plan.expected(&plan.measured, node));
            assert_eq!(found, expected, "{:?}", workload.pattern);
            let ends = plan.flows.iter().flat_map(|flow| [flow.from, flow.to]);
            assert!(ends.into_iter().all(|end| [0, 2, 4, 6, 7].contains(&end.port)), "{:?}", plan.flows);
        }
        let plan = Plan::new(&workload(Pattern::Random(3)));
        for (scripts, count) in [(&plan.warmup, 5), (&plan.measured, 30)] {
            let expected = (0..4).map(|node| plan.expected(scripts, node));
            assert_eq!(expected.sum::<u64>(), 4 * count, "each drawn message has a receiver");
        }
    }

    #[test]
    fn one_port_serves_all_flows_if_ports_send_to_many() {
        let route = |port, to, to_port| Route { node: 0, port, to, to_port };
        let recorded = [route(5, 1, 3), route(5, 2, 0), route(1, 1, 3)];
        let recorded =
            recorded.map(|route| Recorded { model_time_ps: 0, route, bytes: 8, interrupts: false });
        for (pattern, sent, expected) in [
            (Pattern::AllToAll, 3, [90; 4]),
            (Pattern::Incast(1), 1, [0, 90, 0, 0]),
            (Pattern::Replay(recorded.to_vec()), 3, [0, 2, 1, 0]),
        ] {
            let one = Workload { ports: vec![vec![2]; 4], sends_to_many: true, ..workload(pattern) };
            assert_eq!(one.check(), Ok(()));
            let plan = Plan::new(&one);
            let ends = plan.flows.iter().flat_map(|flow| [flow.from, flow.to]);
            assert!(ends.into_iter().all(|end| end.port == 2), "{:?}", plan.flows);
            assert!(plan.ports.iter().all(|ports| ports.len() <= 1), "{:?}", plan.ports);
            assert_eq!(plan.ports[0].first().map(|port| port.sends.len()), Some(sent));
            assert_eq!([0, 1, 2, 3].map(|node| plan.expected(&plan.measured, node)), expected);
        }
        let one = Workload { ports: vec![vec![0]; 4], ..workload(Pattern::AllToAll) };
        assert!(one.check().is_err(), "each partner needs a port");
    }

    #[test]
    fn last_of_65_536_nodes_has_both_ring_neighbours() {
        let ports = vec![vec![0, 1]; 1 << 16];
        let plan = Plan::new(&Workload { ports, ..workload(Pattern::NeighbourExchange(2)) });
        assert_eq!((plan.ports.len(), plan.measured.len(), plan.flows.len()), (65_536, 65_536, 2 * 65_536));
        let last = plan.ports.last().unwrap();
        let partners: BTreeSet<u16> =
            last.iter().flat_map(|port| &port.partners).map(|(_, end)| end.node).collect();
        assert_eq!(partners, [0, 65_534].into());
    }

    #[test]
    fn shuffle_is_a_permutation() {
        let mut ranks = shuffled(50, &mut Random::new(7, 0));
        assert_ne!(ranks, (0..50).collect::<Vec<_>>());
        ranks.sort_unstable();
        assert_eq!(ranks, (0..50).collect::<Vec<_>>());
    }
}
