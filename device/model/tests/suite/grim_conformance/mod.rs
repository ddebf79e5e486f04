//! GRIM cards on a wire that loses, duplicates, delays and damages frames: messages arrive intact, once and in the
//! order of their channel, and no byte of card memory leaks.

mod ends;
mod wire_time;

use std::collections::VecDeque;

use niclab_model::models::grim::Config;
use niclab_model::models::grim::wire::{HEAD_BYTES, OVERHEAD_BYTES};
use niclab_model::random::Random;
use proptest::prelude::*;

use crate::support::grim::{Came, Faults, Message, Opening, PLAIN, To, Wire, config};
use crate::support::matching::pattern;

const NODES: u16 = 3;
const PORTS: u32 = 2;
const MAX_STEPS: u32 = 400_000;
/// Bytes of exposed memory that each sender writes for itself.
const AREA: u64 = 16 << 10;

/// A port of a node.
type End = (usize, u32);

fn ends() -> impl Iterator<Item = End> {
    (0..NODES.into()).flat_map(|node| (0..PORTS).map(move |port| (node, port)))
}

fn number_of(end: End) -> usize {
    end.0 * PORTS as usize + end.1 as usize
}

/// The messages that one channel sent to one endpoint.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// Handler messages that have not arrived, each with the number of memory messages sent before it.
    waiting: VecDeque<(Message, u32)>,
    /// Payloads of the memory messages; each overwrites the previous one.
    written: Vec<Vec<u8>>,
}

/// Programs that check the messages of the others.
struct Simulation {
    wire: Wire,
    region_bytes: u64,
    streams: Vec<Stream>,
    came: usize,
}

impl Simulation {
    fn new(seed: u64, faults: Faults, opening: Opening, card: impl Fn(u16) -> Config) -> Self {
        let region_bytes = card(0).payload_bytes;
        let mut wire = Wire::new(seed, faults, NODES, card);
        ends().for_each(|(node, port)| wire.open(node, port, opening));
        let streams = vec![Stream::default(); ends().count() * ends().count()];
        Self { wire, region_bytes, streams, came: 0 }
    }

    fn stream(&mut self, from: End, to: End) -> &mut Stream {
        &mut self.streams[number_of(from) * ends().count() + number_of(to)]
    }

    /// Sends a message of `bytes`; false if there is no room for it.
    fn send(&mut self, from: End, to: End, bytes: u64, segment: usize, random: u32) -> bool {
        let arguments = [random, random >> 3, !random, random.wrapping_mul(7)];
        let mut message = Message {
            node: to.0 as u16,
            endpoint: to.1 as u16,
            to: To::Handler { handler: random >> 8, arguments },
            payload: pattern(random.into(), bytes as usize),
            segment,
            interrupt: random.is_multiple_of(5),
        };
        let is_memory = random.is_multiple_of(4) && (4..=AREA).contains(&bytes);
        let region = self.wire.program(to.0, to.1).exposed_region;
        let number = self.stream(from, to).written.len() as u32;
        if is_memory {
            message.payload[..4].copy_from_slice(&number.to_le_bytes());
            message.to = To::Memory { region, place: number_of(from) as u64 * AREA };
            message.interrupt = false;
        }
        if !self.wire.send(from.0, from.1, &message, self.region_bytes) {
            return false;
        }
        let stream = self.stream(from, to);
        if is_memory {
            stream.written.push(message.payload);
        } else {
            stream.waiting.push_back((message, number));
        }
        true
    }

    fn area(&self, from: End, to: End) -> &[u8] {
        &self.wire.hosts[to.0].exposed(to.1)[number_of(from) * AREA as usize..][..AREA as usize]
    }

    /// Reads at most `most` messages of a port.
    fn read(&mut self, end: End, most: u64) {
        for _ in 0..most {
            let Some(came) = self.wire.receive(end.0, end.1) else { return };
            let from = (usize::from(came.node), u32::from(came.channel));
            let (message, written) =
                self.stream(from, end).waiting.pop_front().expect("a message that was sent");
            let To::Handler { handler, arguments } = message.to else { panic!("{message:?}") };
            let (node, channel) = (from.0 as u16, from.1 as u8);
            let Message { payload, interrupt, .. } = message;
            let sent = Came { node, channel, handler, arguments, payload, interrupt };
            assert!(came == sent, "{from:?} to {end:?}: not the next message of the channel");
            // Memory messages that its channel sent earlier have been written.
            let number = u32::from_le_bytes(self.area(from, end)[..4].try_into().unwrap());
            assert!(number + 1 >= written, "overtook memory message {written}; only {number} is written");
            self.came += 1;
        }
    }

    fn read_all(&mut self) {
        for end in ends() {
            self.read(end, u64::MAX);
            let program = self.wire.program(end.0, end.1);
            if program.read > program.released {
                self.wire.release(end.0, end.1);
            }
        }
    }

    /// Runs until no frame, deadline or message is left.
    fn settle(&mut self) {
        let mut steps = 0;
        loop {
            let before = self.came;
            self.read_all();
            // Released slices make room for waiting messages, even if no frame or deadline is left.
            if !self.wire.step() && self.came == before {
                return;
            }
            steps += 1;
            assert!(steps < MAX_STEPS, "it never rests");
        }
    }

    /// Checks that all messages arrived, none was refused, and all slices and card memory are released.
    fn check(&mut self) {
        for (from, to) in ends().flat_map(|from| ends().map(move |to| (from, to))) {
            let stream = self.stream(from, to).clone();
            assert_eq!(stream.waiting, [], "{from:?} to {to:?}");
            if let Some(last) = stream.written.last() {
                assert!(self.area(from, to).starts_with(last), "{from:?} to {to:?}: memory");
            }
        }
        for (node, port) in ends() {
            let line = self.wire.hosts[node].line(port);
            let program = self.wire.program(node, port);
            assert_eq!((line.refused, program.read), (0, program.released));
        }
        self.wire.check_memory();
    }

    fn sum(&self, name: &str) -> u64 {
        self.wire.hosts.iter().map(|host| host.counter(name)).sum()
    }
}

/// Sends `count` random messages between random ends. Receivers read now and then.
fn run(seed: u64, simulation: &mut Simulation, longest: u64, segment: usize, count: usize) {
    let mut random = Random::new(seed, 1);
    let end = |random: &mut Random| (random.below(NODES.into()) as usize, random.below(PORTS));
    for _ in 0..count {
        let (from, to) = (end(&mut random), end(&mut random));
        let bytes = if random.below(2) == 0 { 0 } else { random.below(longest as u32 + 1).into() };
        let draw = random.next() as u32;
        let mut steps = 0;
        while !simulation.send(from, to, bytes, segment, draw) {
            // While a program waits for room, all programs keep reading; otherwise they would wait for one another.
            simulation.read_all();
            assert!(simulation.wire.step() && steps < MAX_STEPS, "room becomes free");
            steps += 1;
        }
        (0..random.below(5)).for_each(|_| {
            simulation.wire.step();
        });
        let reader = end(&mut random);
        simulation.read(reader, random.below(6).into());
        if random.below(3) == 0 {
            simulation.wire.release(reader.0, reader.1);
        }
    }
    simulation.wire.faults = Faults::default();
    simulation.settle();
    simulation.check();
}

/// A card whose inbound memory holds one frame and `more` bytes.
fn tight(card: Config, more: u64) -> Config {
    let outbound = u64::from(card.channels) * (u64::from(card.headers) * 32 + card.payload_bytes);
    let frame = u64::from(card.mtu_bytes) - OVERHEAD_BYTES as u64 + HEAD_BYTES as u64 + 4;
    Config { card_memory_bytes: outbound + frame + more, ..card }
}

#[test]
fn without_faults_nothing_is_retransmitted_or_lost() {
    let mut simulation = Simulation::new(1, Faults::default(), PLAIN, |node| config(node, NODES.into()));
    run(1, &mut simulation, 9_000, 32, 600);
    assert_eq!([simulation.sum("repeated"), simulation.sum("duplicated"), simulation.sum("ahead")], [0; 3]);
    assert!(simulation.sum("segments") > 100 && simulation.sum("memory_received") > 20);
}

#[test]
fn memory_of_one_frame_and_queues_of_eight_slices_are_enough() {
    let opening = Opening { slices: 8, payload_bytes: 6_016, ..PLAIN };
    let mut simulation =
        Simulation::new(2, Faults::default(), opening, |node| tight(config(node, NODES.into()), 0));
    run(2, &mut simulation, 6_000, 32, 800);
    assert!(
        simulation.sum("refusals_sent") > 20 && simulation.sum("queued") > 20,
        "{}",
        simulation.sum("queued")
    );
    assert_eq!(simulation.sum("refusals_sent"), simulation.sum("refusals_received"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn messages_arrive_intact_once_and_in_channel_order(
        seed: u64,
        (lost, duplicated, damaged, late) in (0..150_u32, 0..150_u32, 0..100_u32, 0..200_u32),
        mtu_bytes in prop_oneof![124..300_u32, 300..9_000_u32],
        (headers, window_frames) in (1..40_u32, 1..80_u32),
        more in prop_oneof![Just(0), 0..20_000_u64],
        slices in prop::sample::select(vec![8_u32, 16, 64]),
        longest in prop::sample::select(vec![0_u64, 100, 3_000, 12_000]),
        segment in prop::sample::select(vec![0_usize, 32, 200]),
        weights in prop::collection::vec(0..5_u32, 1..8),
        is_narrow: bool,
    ) {
        let longest = longest.min(40 * u64::from(mtu_bytes));
        let payload_bytes = longest.max(1).next_multiple_of(64);
        let card = |node| {
            let weights = weights.clone().into();
            let card = Config { mtu_bytes, headers, window_frames, weights, ..config(node, NODES.into()) };
            tight(Config { payload_bytes: if is_narrow { payload_bytes } else { 48 << 10 }, ..card }, more)
        };
        let payload_bytes = if is_narrow { payload_bytes } else { 3 * payload_bytes };
        let opening = Opening { slices, payload_bytes, ..PLAIN };
        let mut simulation = Simulation::new(seed, Faults { lost, duplicated, damaged, late }, opening, card);
        run(seed, &mut simulation, longest, segment, 120);
    }
}
