//! Barriers, multicasts and reductions of INIC cards. Every member gets the result of plain arithmetic over all
//! members' values. No member leaves a barrier before all have entered it. Only hosts that requested an interrupt are
//! woken.

use std::collections::BTreeMap;
use std::sync::Arc;

use niclab_abi::control::{
    OP_PORT_CLOSE, PortName, STATUS_BAD_OPERATION, STATUS_BAD_VALUE, STATUS_NO_SPACE, STATUS_NOT_FOUND,
};
use niclab_abi::inic::{
    OP_POST_RULES, POST_ANY_SOURCE, POST_BAD_RANGE, POST_BAD_REGION, POST_BAD_VALUE, POST_DOUBLE,
    POST_EVENT_DONE, POST_EVENT_RECEIVED, POST_EVENT_REFUSED, POST_GROUPS, POST_INTERRUPT, POST_LEFT,
    POST_MAX, POST_MAX_COLLECTIVE_BYTES, POST_MIN, POST_NO_GROUP, POST_NOT_RELIABLE, POST_OK, POST_SIGNED_32,
    POST_SIGNED_64, POST_SUM, POST_UNALIKE, POST_UNREACHABLE, POST_UNSIGNED_32, POST_UNSIGNED_64, PostRules,
};
use niclab_abi::region::{OP_REGION_CLOSE, RegionName};
use niclab_components::{Bundled, Flow, Recipe};
use niclab_model::models::inic::Config;
use niclab_model::models::inic::descriptor::{MODEL, config};
use niclab_model::nic::Nic;
use niclab_model::nic::firmware_reload::{FirmwareReloadStep, Progress, Switch};
use niclab_model::nic::registry::{CardContext, Value, Values};
use niclab_model::platform::profile::Profile;
use niclab_model::random::Random;
use niclab_model::time::{Span, Time};
use proptest::prelude::*;

use crate::support::inic::{Faults, Told, Wire};
use crate::support::matching::pattern;
use crate::support::request;

const RELIABLE: [&str; 5] = ["conf2", "conf3", "conf4", "selective_repeat", "rate_controlled"];
const NODES: u16 = 7;
const GROUP: u32 = 0xfeed;
/// Maximum number of a member's operations in flight. Each has a buffer of `PLACE` bytes.
const IN_FLIGHT: usize = 5;
const PLACE: u64 = POST_MAX_COLLECTIVE_BYTES;
/// Receive buffers for multicasts, followed by the buffers from which multicasts are sent.
const ROOMS: u64 = 4;
const ROOM: u64 = IN_FLIGHT as u64 * PLACE;
const CASTS: u64 = ROOM + ROOMS * PLACE;
const CASTS_IN_FLIGHT: usize = 3;
/// First user values of receive buffers and of multicasts.
const ROOM_USER: u64 = 1 << 40;
const CAST_USER: u64 = 1 << 41;
const MAX_STEPS: u32 = 400_000;

fn card(values: &Values) -> impl Fn(u16) -> Config {
    let (values, profile) = (values.clone(), Arc::new(Profile::default()));
    move |node| {
        let context = CardContext { node, nodes: NODES.into(), mtu_bytes: 1_500, profile: profile.clone() };
        config(&values, context).unwrap()
    }
}

fn values(assembly: &str) -> Values {
    Values::defaults(&MODEL).with("assembly", Value::Word(assembly.into()))
}

/// An operation that all members post.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// None for a barrier.
    reduction: Option<(u32, u32)>,
    bytes: u64,
}

/// The values of a member for an operation.
fn data(step: &Step, number: usize, member: usize) -> Vec<u8> {
    if !matches!(step.reduction, Some((_, POST_DOUBLE))) {
        return pattern((number * 100 + member) as u64, step.bytes as usize);
    }
    let mut random = Random::new(number as u64, member as u64);
    let values = (0..step.bytes / 8).map(|_| match random.below(40) {
        0 => -0.0,
        1 => f64::NAN,
        2 => f64::INFINITY,
        3 => f64::NEG_INFINITY,
        _ => f64::from(random.below(1_000_000)) / 7.0 * 10_f64.powi(random.below(40) as i32 - 20),
    });
    values.flat_map(f64::to_le_bytes).collect()
}

/// The result of plain arithmetic over the values of all members, in the order of the group.
fn expected(step: &Step, parts: &[Vec<u8>]) -> Vec<u8> {
    let Some((operator, element)) = step.reduction else { return Vec::new() };
    let width = if [POST_SIGNED_32, POST_UNSIGNED_32].contains(&element) { 4 } else { 8 };
    let of = |part: &[u8], at: usize| {
        let mut word = [0; 8];
        word[..width].copy_from_slice(&part[at..at + width]);
        word
    };
    let mut result = Vec::new();
    for at in (0..step.bytes as usize).step_by(width) {
        let words: Vec<[u8; 8]> = parts.iter().map(|part| of(part, at)).collect();
        let wide: Vec<i128> = words
            .iter()
            .map(|word| match element {
                POST_SIGNED_32 => u64::from_le_bytes(*word) as i32 as i128,
                POST_SIGNED_64 => i64::from_le_bytes(*word).into(),
                _ => u64::from_le_bytes(*word).into(),
            })
            .collect();
        let made = match (element, operator) {
            (POST_DOUBLE, _) => {
                let doubles: Vec<f64> = words.iter().map(|word| f64::from_le_bytes(*word)).collect();
                expected_double(operator, &doubles).to_bits()
            }
            (_, POST_SUM) => wide.iter().sum::<i128>() as u64,
            (_, POST_MIN) => *wide.iter().min().unwrap() as u64,
            _ => *wide.iter().max().unwrap() as u64,
        };
        result.extend_from_slice(&made.to_le_bytes()[..width]);
    }
    result
}

fn expected_double(operator: u32, doubles: &[f64]) -> f64 {
    let quiet = f64::from_bits(0x7ff8_0000_0000_0000);
    if doubles.iter().any(|value| value.is_nan()) {
        return quiet;
    }
    // By value; negative zero sorts before positive zero.
    let mut sorted = doubles.to_vec();
    sorted.sort_by(|one, other| {
        one.partial_cmp(other).unwrap().then(other.is_sign_negative().cmp(&one.is_sign_negative()))
    });
    match operator {
        POST_MIN => sorted[0],
        POST_MAX => sorted[sorted.len() - 1],
        _ => tree_sum(doubles, 0).filter(|sum| !sum.is_nan()).unwrap_or(quiet),
    }
}

/// The documented order of a sum: the member's own value, the subtree of its first child, the subtree of its second.
fn tree_sum(doubles: &[f64], place: usize) -> Option<f64> {
    let own = *doubles.get(place)?;
    let below = [2 * place + 1, 2 * place + 2].into_iter().filter_map(|child| tree_sum(doubles, child));
    Some(below.fold(own, |sum, below| sum + below))
}

/// A member's program.
#[derive(Debug, Default)]
struct Program {
    /// Operations posted. `done` counts the completed ones.
    asked: usize,
    done: usize,
    /// Bytes of each multicast that this member sends. `casts_asked` and `casts_done` count the posted and the
    /// completed.
    casts: Vec<u64>,
    casts_asked: usize,
    casts_done: usize,
    /// Number of received multicasts, by root.
    came: BTreeMap<usize, usize>,
    interrupts: u32,
}

struct Simulation {
    wire: Wire,
    /// The members, in the order of the group.
    members: Vec<usize>,
    steps: Vec<Step>,
    programs: BTreeMap<usize, Program>,
    random: Random,
}

impl Simulation {
    fn new(seed: u64, faults: Faults, values: &Values, members: &[usize], steps: Vec<Step>) -> Self {
        let mut wire = Wire::new(seed, faults, card(values), NODES);
        let named: Vec<u32> = members.iter().map(|member| *member as u32).collect();
        for node in members {
            assert_eq!(wire.group(*node, GROUP, &named), 0);
            for room in 0..ROOMS {
                assert!(wire.receive(*node, 0, ROOM_USER + room, ROOM + room * PLACE, PLACE));
            }
        }
        let programs = members.iter().map(|member| (*member, Program::default())).collect();
        Self { wire, members: members.to_vec(), steps, programs, random: Random::new(seed, 9) }
    }

    fn flags(&mut self, node: usize) -> u32 {
        if self.random.below(4) > 0 {
            return 0;
        }
        self.programs.get_mut(&node).unwrap().interrupts += 1;
        POST_INTERRUPT
    }

    /// Posts a member's next operation, if it has a free buffer.
    fn ask(&mut self, node: usize) {
        let (number, done) = (self.programs[&node].asked, self.programs[&node].done);
        let Some(step) = self.steps.get(number).copied().filter(|_| number - done < IN_FLIGHT) else {
            return;
        };
        let place = (number % IN_FLIGHT) as u64 * PLACE;
        let flags = self.flags(node);
        let user = number as u64;
        let is_taken = match step.reduction {
            None => self.wire.barrier(node, flags, user, GROUP),
            Some(reduction) => {
                self.wire.write(node, place, &data(&step, number, node));
                self.wire.reduce(node, flags, user, GROUP, (place, step.bytes), reduction)
            }
        };
        assert!(is_taken);
        self.programs.get_mut(&node).unwrap().asked += 1;
    }

    fn cast(&mut self, node: usize) {
        let program = &self.programs[&node];
        let number = program.casts_asked;
        if number == program.casts.len() || number - program.casts_done == CASTS_IN_FLIGHT {
            return;
        }
        let bytes = program.casts[number];
        let at = CASTS + (number % CASTS_IN_FLIGHT) as u64 * PLACE;
        // The rest of the region has 40,000 bytes for each multicast.
        let at = at.min(CASTS + (number % CASTS_IN_FLIGHT) as u64 * 40_000);
        self.wire.write(node, at, &pattern(cast_seed(node, number), bytes as usize));
        let flags = self.flags(node);
        assert!(self.wire.multicast(node, flags, CAST_USER + number as u64, GROUP, (at, bytes)));
        self.programs.get_mut(&node).unwrap().casts_asked += 1;
    }

    fn read(&mut self) {
        let mut casts_done = Vec::new();
        for node in 0..usize::from(NODES) {
            while let Some(told) = self.wire.event(node) {
                match told.kind {
                    POST_EVENT_DONE if told.words.user >= CAST_USER => casts_done.push((node, told)),
                    POST_EVENT_DONE => self.on_done(node, &told),
                    POST_EVENT_RECEIVED => self.on_received(node, &told),
                    _ => panic!("{node}: {told:?}"),
                }
            }
        }
        // All events were read. So once a root's multicast is done, every member has received it.
        for (node, told) in casts_done {
            assert_eq!((told.result, told.words.source), (POST_OK, GROUP.into()));
            let program = self.programs.get_mut(&node).unwrap();
            assert_eq!(told.words.user, CAST_USER + program.casts_done as u64);
            assert_eq!(told.words.moved_bytes, program.casts[program.casts_done]);
            program.casts_done += 1;
            let count = program.casts_done;
            for other in self.members.iter().filter(|other| **other != node) {
                assert!(self.programs[other].came.get(&node).copied().unwrap_or(0) >= count);
            }
        }
    }

    fn on_done(&mut self, node: usize, told: &Told) {
        let program = self.programs.get_mut(&node).expect("a member");
        let number = program.done;
        assert_eq!((told.result, told.words.user), (POST_OK, number as u64), "{node}: {told:?}");
        assert_eq!(told.words.source, GROUP.into());
        program.done += 1;
        let step = self.steps[number];
        assert_eq!((told.words.bytes, told.words.moved_bytes), (step.bytes, step.bytes));
        assert!(self.programs.values().all(|program| program.asked > number), "{number} is done too early");
        let parts: Vec<Vec<u8>> = self.members.iter().map(|member| data(&step, number, *member)).collect();
        let place = (number % IN_FLIGHT) as u64 * PLACE;
        let found = self.wire.bytes(node, place, step.bytes);
        assert!(found == expected(&step, &parts), "{node}: operation {number}, {step:?}");
    }

    fn on_received(&mut self, node: usize, told: &Told) {
        let root = told.words.source as usize;
        let at = ROOM + (told.words.user - ROOM_USER) * PLACE;
        let roots = &self.programs[&root];
        let before = self.programs[&node].came.get(&root).copied().unwrap_or(0);
        // Multicasts arrive in the order in which their root posted them.
        let bytes = *roots.casts.get(before).expect("a multicast that was posted");
        assert_eq!((told.result, told.words.bytes, told.words.moved_bytes), (POST_OK, bytes, bytes));
        assert!(self.wire.bytes(node, at, bytes) == pattern(cast_seed(root, before), bytes as usize));
        *self.programs.get_mut(&node).unwrap().came.entry(root).or_default() += 1;
        assert!(self.wire.receive(node, 0, told.words.user, at, PLACE));
    }

    fn is_done(&self) -> bool {
        self.programs
            .values()
            .all(|program| program.done == self.steps.len() && program.casts_done == program.casts.len())
    }

    /// Members post all of their operations, at random times.
    fn run(&mut self) {
        let mut steps = 0;
        while !self.is_done() {
            let node = self.members[self.random.below(self.members.len() as u32) as usize];
            match self.random.below(12) {
                0..=2 => self.ask(node),
                3 => self.cast(node),
                4..=5 => self.read(),
                _ => drop(self.wire.step()),
            }
            steps += 1;
            assert!(steps < MAX_STEPS, "the run does not end: {:#?}", self.programs);
        }
        self.wire.faults = Faults::default();
        let mut steps = 0;
        while self.wire.step() {
            steps += 1;
            assert!(steps < MAX_STEPS, "it never rests");
        }
        self.read();
        for (node, host) in self.wire.hosts.iter().enumerate() {
            let asked = self.programs.get(&node).map_or(0, |program| program.interrupts);
            assert_eq!(host.interrupts, asked, "only hosts that requested an interrupt are woken: {node}");
            assert_eq!(host.nic.counters().collective_strays, 0, "{node}");
        }
        for node in &self.members {
            let came: usize =
                self.programs.iter().filter(|(root, _)| *root != node).map(|(_, p)| p.casts.len()).sum();
            assert_eq!(self.programs[node].came.values().sum::<usize>(), came);
        }
    }
}

fn cast_seed(root: usize, number: usize) -> u64 {
    (root * 1_000 + number) as u64
}

fn any_step(most: u64) -> impl Strategy<Value = Step> {
    let barrier = Just(Step { reduction: None, bytes: 0 });
    let reduction = (POST_SUM..=POST_MAX, POST_SIGNED_32..=POST_DOUBLE, 1..=most).prop_map(
        |(operator, element, count)| {
            let width = if [POST_SIGNED_32, POST_UNSIGNED_32].contains(&element) { 4 } else { 8 };
            Step { reduction: Some((operator, element)), bytes: count * width }
        },
    );
    prop_oneof![1 => barrier, 3 => reduction]
}

#[test]
fn a_group_of_any_size_works() {
    let all = [3, 1, 6, 0, 2, 5, 4];
    for count in 1..=all.len() {
        let steps = (0..8)
            .map(|number| match number % 2 {
                0 => Step { reduction: None, bytes: 0 },
                _ => Step { reduction: Some((POST_SUM, POST_UNSIGNED_64)), bytes: 800 },
            })
            .collect();
        let mut simulation = Simulation::new(1, Faults::default(), &values("conf4"), &all[..count], steps);
        simulation.programs.get_mut(&3).unwrap().casts = vec![4, 40_000, 8_000, 12];
        simulation.run();
    }
}

#[test]
fn the_longest_operations_work_in_every_reliable_assembly() {
    for name in RELIABLE {
        let bytes = POST_MAX_COLLECTIVE_BYTES;
        let steps = (POST_SIGNED_32..=POST_DOUBLE)
            .map(|element| Step { reduction: Some((POST_SUM, element)), bytes })
            .collect();
        let mut simulation = Simulation::new(
            2,
            Faults { lost: 20, ..Faults::default() },
            &values(name),
            &[0, 2, 4, 6, 1],
            steps,
        );
        simulation.run();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn every_member_has_the_result_of_plain_arithmetic(
        seed: u64,
        name in prop::sample::select(RELIABLE.to_vec()),
        packet in 1..340_u64,
        order in Just((0..usize::from(NODES)).collect::<Vec<_>>()).prop_shuffle(),
        count in 1..=usize::from(NODES),
        steps in prop::collection::vec(any_step(300), 0..14),
        casts in prop::collection::vec((0..usize::from(NODES), 1..900_u64), 0..8),
        (lost, duplicated, damaged, late) in (0..100_u32, 0..100_u32, 0..50_u32, 0..200_u32),
    ) {
        let mut values = values(name).with("packet_bytes", Value::Number(4 * packet));
        if name != "rate_controlled" {
            values = values.with("timeout_us", Value::Number(100 + 2 * packet)).with("retries", Value::Number(60_000));
        }
        let faults = Faults { lost, duplicated, damaged, late };
        let mut simulation = Simulation::new(seed, faults, &values, &order[..count], steps);
        for (root, units) in casts {
            let root = order[root % count];
            simulation.programs.get_mut(&root).unwrap().casts.push(4 * units);
        }
        simulation.run();
    }
}

/// Members of a group. A test posts their operations.
struct Bench {
    wire: Wire,
    told: Vec<(usize, Told)>,
}

const MEMBERS: [u32; 7] = [0, 1, 2, 3, 4, 5, 6];
/// Longer than it takes to declare a node unreachable.
const LONG: Span = Span::from_ns(60_000_000_000);

impl Bench {
    fn new(name: &str) -> Self {
        let values = values(name);
        let is_reliable = RELIABLE.contains(&name);
        let values = if is_reliable { values.with("retries", Value::Number(3)) } else { values };
        Self { wire: Wire::new(4, Faults::default(), card(&values), NODES), told: Vec::new() }
    }

    /// A bench with a group of all nodes.
    fn with_group(name: &str) -> Self {
        let mut bench = Self::new(name);
        for node in MEMBERS {
            assert_eq!(bench.wire.group(node as usize, GROUP, &MEMBERS), 0);
        }
        bench.run();
        bench
    }

    fn read(&mut self) {
        for node in 0..usize::from(NODES) {
            while let Some(told) = self.wire.event(node) {
                self.told.push((node, told));
            }
        }
    }

    /// Runs for [`LONG`], or until no frame and no deadline is left. Waiting cards may send probes forever.
    fn run(&mut self) {
        let end = self.wire.now + LONG;
        while self.wire.now < end && self.wire.step() {
            self.read();
        }
        self.read();
    }

    /// Node, kind and result of all events since the last call.
    fn results(&mut self) -> Vec<(usize, u32, u32)> {
        let mut results: Vec<_> =
            self.told.drain(..).map(|(node, told)| (node, told.kind, told.result)).collect();
        results.sort_unstable();
        results
    }

    fn barrier(&mut self, nodes: impl IntoIterator<Item = usize>) {
        nodes.into_iter().for_each(|node| assert!(self.wire.barrier(node, 0, 7, GROUP)));
    }
}

fn all(nodes: impl IntoIterator<Item = usize>, result: u32) -> Vec<(usize, u32, u32)> {
    nodes.into_iter().map(|node| (node, POST_EVENT_DONE, result)).collect()
}

#[test]
fn an_unreachable_member_ends_operations_and_a_new_group_works() {
    for (name, gone) in RELIABLE.into_iter().take(4).flat_map(|name| (0..7).map(move |gone| (name, gone))) {
        let mut bench = Bench::with_group(name);
        let others = || (0..7).filter(|node| *node != gone);
        bench.wire.cut.push(gone);
        bench.barrier(others());
        bench.run();
        assert_eq!(bench.results(), all(others(), POST_UNREACHABLE), "{name} without {gone}");
        assert!(!bench.wire.step(), "no operation is left");
        // Later operations fail at once.
        bench.barrier(others());
        bench.read();
        assert_eq!(bench.results(), all(others(), POST_UNREACHABLE));
        // The others create a group of the same name without the unreachable node.
        let rest: Vec<u32> = others().map(|node| node as u32).collect();
        for node in others() {
            assert_eq!(bench.wire.group(node, GROUP, &[]), 0);
            assert_eq!(bench.wire.group(node, GROUP, &rest), 0);
        }
        bench.barrier(others());
        bench.run();
        assert_eq!(bench.results(), all(others(), POST_OK), "{name} again without {gone}");
    }
}

#[test]
fn a_leaving_program_ends_the_operations_of_the_others() {
    for name in RELIABLE {
        for leaves in 0..7 {
            for is_closed in [false, true] {
                let mut bench = Bench::with_group(name);
                let others = || (0..7).filter(|node| *node != leaves);
                // The first barrier completes everywhere, even if a member leaves right after its own completion.
                bench.barrier(0..7);
                while bench.wire.step() {
                    bench.read();
                    if bench.told.iter().any(|(node, _)| *node == leaves) {
                        break;
                    }
                }
                if is_closed {
                    let close = request(OP_PORT_CLOSE, &PortName { port: 0, reserved: 0 });
                    assert_eq!(bench.wire.control(leaves, &close).0, 0);
                    bench.wire.open(leaves);
                } else {
                    assert_eq!(bench.wire.group(leaves, GROUP, &[]), 0);
                }
                bench.run();
                assert_eq!(bench.results(), all(0..7, POST_OK), "{name} {leaves}");
                bench.barrier(others());
                bench.run();
                assert_eq!(bench.results(), all(others(), POST_LEFT), "{name} without {leaves}");
                assert!(!bench.wire.step(), "no operation is left");
            }
        }
    }
}

#[test]
fn a_group_starts_once_all_members_created_it_in_any_order() {
    for name in RELIABLE {
        for first in 0..7 {
            let mut bench = Bench::new(name);
            for step in 0..7 {
                let node = (first + step * 3) % 7;
                assert_eq!(bench.wire.group(node, GROUP, &MEMBERS), 0);
                bench.barrier([node]);
                assert_eq!(bench.results(), []);
                let end = bench.wire.now + Span::from_ns(50_000_000);
                while bench.wire.now < end && bench.wire.step() {}
                bench.read();
            }
            bench.run();
            assert_eq!(bench.results(), all(0..7, POST_OK), "{name} from {first}");
            assert!(!bench.wire.step());
        }
    }
}

#[test]
fn members_with_different_operations_get_an_error() {
    let reduce = |bytes, operator, element| (bytes, (operator, element));
    let plain = reduce(64, POST_SUM, POST_SIGNED_64);
    for odd in [
        reduce(56, POST_SUM, POST_SIGNED_64),
        reduce(64, POST_MAX, POST_SIGNED_64),
        reduce(64, POST_SUM, POST_DOUBLE),
    ] {
        for who in 0..7 {
            let mut bench = Bench::with_group("conf4");
            for node in 0..7 {
                let (bytes, task) = if node == who { odd } else { plain };
                assert!(bench.wire.reduce(node, 0, 0, GROUP, (0, bytes), task));
            }
            bench.run();
            assert_eq!(bench.results(), all(0..7, POST_UNALIKE), "{odd:?} of {who}");
        }
    }
    let mut bench = Bench::with_group("conf4");
    bench.barrier(1..7);
    assert!(bench.wire.reduce(0, 0, 0, GROUP, (0, 8), (POST_SUM, POST_DOUBLE)));
    bench.run();
    assert_eq!(bench.results(), all(0..7, POST_UNALIKE));
}

#[test]
fn members_with_different_member_lists_get_an_error() {
    for who in 0..7 {
        for other in [vec![6, 5, 4, 3, 2, 1, 0], vec![0, 1, 2, 3, 4, 6, 5], vec![who as u32]] {
            let mut bench = Bench::new("conf4");
            for node in 0..7 {
                let members = if node == who { &other } else { &MEMBERS[..] };
                assert_eq!(bench.wire.group(node, GROUP, members), 0);
            }
            let others = || (0..7).filter(|node| *node != who || other.len() > 1);
            bench.barrier(others());
            bench.run();
            let results = bench.results();
            let told: Vec<usize> = results.iter().map(|(node, ..)| *node).collect();
            assert_eq!(told, others().collect::<Vec<_>>(), "{who} {other:?}");
            let reasons = [POST_UNALIKE, POST_LEFT];
            assert!(results.iter().all(|(_, _, result)| reasons.contains(result)), "{results:?}");
        }
    }
}

#[test]
fn closed_or_unreadable_memory_ends_the_operation() {
    for who in 0..7 {
        let mut bench = Bench::with_group("conf3");
        for node in 0..7 {
            if node != (who + 1) % 7 {
                assert!(bench.wire.reduce(node, 0, 0, GROUP, (0, 8), (POST_SUM, POST_DOUBLE)));
            }
        }
        let region = bench.wire.hosts[who].region;
        let close = request(OP_REGION_CLOSE, &RegionName { port: 0, region, extents: 0, reserved: 0 });
        assert_eq!(bench.wire.control(who, &close).0, 0);
        bench.run();
        let result = |node| if node == who { POST_BAD_REGION } else { POST_LEFT };
        let expected: Vec<_> = (0..7)
            .filter(|node| *node != (who + 1) % 7)
            .map(|node| (node, POST_EVENT_DONE, result(node)))
            .collect();
        assert_eq!(bench.results(), expected, "{who}");
        // A failed read ends an operation, too.
        let mut bench = Bench::with_group("conf3");
        bench.wire.hosts[who].reads_until_failure = Some(0);
        assert!(bench.wire.multicast(who, 0, 0, GROUP, (0, 8)));
        bench.run();
        assert_eq!(bench.results(), all([who], POST_BAD_REGION));
    }
}

#[test]
fn a_multicast_waits_for_a_receive_buffer_at_every_member() {
    let mut bench = Bench::with_group("selective_repeat");
    bench.wire.write(5, 0, &pattern(1, 5_000));
    assert!(bench.wire.multicast(5, POST_INTERRUPT, 77, GROUP, (0, 5_000)));
    bench.run();
    assert_eq!(bench.results(), []);
    for node in [0, 1, 2, 3, 4, 6] {
        assert_eq!(bench.wire.hosts[5].interrupts, 0);
        assert!(bench.wire.receive(node, 0, 1, 100_000, 2_000));
        assert!(bench.wire.receive(node, 0, 2, 200_000, 2_000));
        bench.run();
        let told: Vec<_> = bench.told.drain(..).filter(|(node, _)| *node != 5).collect();
        let [(at, Told { kind: POST_EVENT_RECEIVED, words, .. })] = told[..] else { panic!("{told:?}") };
        assert_eq!((at, words.user, words.bytes, words.moved_bytes), (node, 1, 5_000, 2_000));
        assert_eq!((words.source, words.message), (5, 0));
        assert!(bench.wire.bytes(node, 100_000, 2_000) == &pattern(1, 5_000)[..2_000]);
    }
    assert_eq!(bench.wire.hosts[5].interrupts, 1);
    assert!(bench.wire.hosts.iter().all(|host| host.nic.counters().card.overruns == 0));
}

#[test]
fn invalid_collective_commands_are_refused_with_the_reason() {
    let mut bench = Bench::with_group("conf4");
    let mut refused = |result, ask: &dyn Fn(&mut Wire) -> bool| {
        assert!(ask(&mut bench.wire));
        bench.read();
        assert_eq!(bench.results(), [(3, POST_EVENT_REFUSED, result)]);
    };
    let sum = (POST_SUM, POST_DOUBLE);
    refused(POST_NO_GROUP, &|wire| wire.barrier(3, 0, 0, GROUP + 1));
    refused(POST_NO_GROUP, &|wire| wire.multicast(3, 0, 0, GROUP + 1, (0, 8)));
    refused(POST_NO_GROUP, &|wire| wire.reduce(3, 0, 0, GROUP + 1, (0, 8), sum));
    refused(POST_BAD_VALUE, &|wire| wire.barrier(3, 1 << 9, 0, GROUP));
    for bytes in [0, 6, POST_MAX_COLLECTIVE_BYTES + 4] {
        refused(POST_BAD_VALUE, &|wire| wire.multicast(3, 0, 0, GROUP, (0, bytes)));
    }
    for bytes in [0, 4, 12, POST_MAX_COLLECTIVE_BYTES + 8] {
        refused(POST_BAD_VALUE, &|wire| wire.reduce(3, 0, 0, GROUP, (0, bytes), sum));
    }
    for task in [(0, POST_DOUBLE), (4, POST_DOUBLE), (POST_SUM, 0), (POST_SUM, 6), (POST_SUM, 0x15)] {
        refused(POST_BAD_VALUE, &|wire| wire.reduce(3, 0, 0, GROUP, (0, 8), task));
    }
    refused(POST_BAD_RANGE, &|wire| wire.reduce(3, 0, 0, GROUP, (0xd_0000 - 4, 8), sum));
    refused(POST_BAD_RANGE, &|wire| wire.multicast(3, 0, 0, GROUP, (u64::MAX - 3, 8)));
    // None of the refused commands had an effect: all members are still at the same operation.
    bench.barrier(0..7);
    bench.run();
    assert_eq!(bench.results(), all(0..7, POST_OK));
    for name in ["conf1", "unreliable_ordered"] {
        let mut bench = Bench::new(name);
        assert_eq!(bench.wire.group(0, GROUP, &MEMBERS), STATUS_BAD_OPERATION);
        bench.barrier([0]);
        bench.run();
        assert_eq!(bench.results(), [(0, POST_EVENT_REFUSED, POST_NOT_RELIABLE)]);
    }
}

#[test]
fn invalid_groups_are_refused() {
    let mut wire = Wire::new(1, Faults::default(), card(&values("conf4")), NODES);
    for wrong in [&[0, 1, 1][..], &[0, 7], &[1, 2], &[0, 0x1_0000]] {
        assert_eq!(wire.group(0, 1, wrong), STATUS_BAD_VALUE, "{wrong:?}");
    }
    assert_eq!(wire.group(0, 1, &[]), STATUS_NOT_FOUND);
    for name in 0..POST_GROUPS {
        assert_eq!(wire.group(0, name * 77, &[0, 1]), 0);
        assert_eq!(wire.group(0, name * 77, &[0, 1]), STATUS_BAD_VALUE);
    }
    assert_eq!(wire.group(0, 1, &[0, 1]), STATUS_NO_SPACE);
    assert_eq!((wire.group(0, 77, &[]), wire.group(0, 1, &[0, 1])), (0, 0));
    assert_eq!(wire.now, Time::ZERO);
}

impl Bench {
    /// Reloads all cards with another assembly.
    fn reload_firmware(&mut self, name: &str) {
        let image = Bundled::named(name).unwrap().assembly().encode();
        for node in 0..usize::from(NODES) {
            let step = FirmwareReloadStep::Begin { image: &image, switch: Switch::Told { epoch: 1 } };
            self.wire.reload_firmware(node, step).unwrap();
        }
        let progress = |wire: &Wire, wanted| wire.hosts.iter().all(|host| host.nic.progress() == wanted);
        while self.wire.is_flying() || !progress(&self.wire, Progress::Drained) {
            assert!(self.wire.step());
        }
        (0..usize::from(NODES))
            .for_each(|node| self.wire.reload_firmware(node, FirmwareReloadStep::Switch).unwrap());
        while !progress(&self.wire, Progress::Runs) {
            assert!(self.wire.step());
        }
    }
}

#[test]
fn groups_survive_a_reload_of_a_reliable_assembly() {
    let sum = (POST_SUM, POST_UNSIGNED_64);
    for (before, after) in [("conf4", "conf2"), ("conf2", "selective_repeat"), ("conf3", "conf1")] {
        for steps in [0, 3, 10, 30] {
            let mut bench = Bench::with_group(before);
            for node in 0..7 {
                bench.wire.write(node, 0, &(1_u64 << (8 * node)).to_le_bytes().repeat(100));
            }
            let reduce =
                |bench: &mut Bench, node| assert!(bench.wire.reduce(node, 0, 7, GROUP, (0, 800), sum));
            [6, 1, 2, 3].into_iter().for_each(|node| reduce(&mut bench, node));
            (0..steps).for_each(|_| {
                bench.wire.step();
            });
            bench.reload_firmware(after);
            [0, 4, 5].into_iter().for_each(|node| reduce(&mut bench, node));
            bench.run();
            let results = bench.results();
            if after == "conf1" {
                let asked = [1, 2, 3, 6].map(|node| (node, POST_EVENT_DONE, POST_NOT_RELIABLE));
                let refused = [0, 4, 5].map(|node| (node, POST_EVENT_REFUSED, POST_NOT_RELIABLE));
                let mut expected = [&asked[..], &refused].concat();
                expected.sort_unstable();
                assert_eq!(results, expected);
            } else {
                assert_eq!(results, all(0..7, POST_OK), "{before} {after} {steps}");
                let made = 0x0001_0101_0101_0101_u64.to_le_bytes().repeat(100);
                assert!((0..7).all(|node| bench.wire.bytes(node, 0, 800) == made));
            }
        }
    }
}

#[test]
fn collective_packets_do_not_count_for_interrupts() {
    let recipe = Recipe {
        flow: Flow::GoBackN,
        finds_duplicates: true,
        controls_rate: false,
        mitigates: true,
        depth: 16,
    };
    let assembly = recipe.assembly().unwrap().check().unwrap();
    let conf4 = values("conf4");
    let plain = card(&conf4);
    let config = |node| Config { assembly: assembly.clone(), ..plain(node) };
    let mut bench = Bench { wire: Wire::new(1, Faults::default(), config, NODES), told: Vec::new() };
    let rules = PostRules {
        rcv_chunk_size: 40,
        min_message_bytes: 40,
        source: POST_ANY_SOURCE,
        ..PostRules::default()
    };
    for node in MEMBERS {
        assert_eq!(bench.wire.control(node as usize, &request(OP_POST_RULES, &rules)).0, 0);
        assert_eq!(bench.wire.group(node as usize, GROUP, &MEMBERS), 0);
    }
    (0..7).for_each(|node| assert!(bench.wire.reduce(node, 0, 0, GROUP, (0, 8), (POST_SUM, POST_DOUBLE))));
    bench.run();
    assert_eq!(bench.results(), all(0..7, POST_OK));
    // Only the hosts' messages count for interrupts: one message is less than a chunk, two are more.
    for interrupts in [0, 1] {
        for node in 0..7_u16 {
            assert!(bench.wire.receive(node.into(), 0, 1, ROOM, PLACE));
            assert!(bench.wire.send(usize::from(node + 1) % 7, 0, node, 2, 0, 36));
        }
        bench.run();
        assert!(bench.wire.hosts.iter().all(|host| host.interrupts == interrupts));
    }
}

#[test]
fn collective_packets_need_no_host_receive_buffers() {
    for name in ["conf2", "conf3"] {
        let mut bench = Bench::with_group(name);
        // The program posts no receive buffers, so messages fill the card's memory until not even one as short as a
        // collective packet fits.
        while bench.wire.hosts[1].nic.counters().card.overruns == 0 {
            assert!(bench.wire.send(0, 0, 1, 0, 0, 20));
            let end = bench.wire.now + Span::from_ns(100_000);
            while bench.wire.now < end && bench.wire.step() {}
        }
        bench.barrier(0..7);
        bench.run();
        assert_eq!(bench.results(), all(0..7, POST_OK), "{name}");
    }
}
