//! A small seeded simulation: nodes with ULTRA cards, the programs that use them, the fabric between them, and checkers
//! that compare received with sent messages. The same seed replays the same run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use niclab_abi::FromBytes;
use niclab_abi::bar::{CODE_ACKNOWLEDGE, CODE_INTERRUPT, CODE_NOTIFY};
use niclab_abi::control::{OP_PORT_CLOSE, OP_REVOKE, PortName, PortOpened, Revoke, STATUS_OK};
use niclab_abi::event::{CAUSE_ARMED, CAUSE_MESSAGE};
use niclab_abi::receive::SLICE_BYTES;
use niclab_model::fabric::faults::Faults;
use niclab_model::fabric::link::LinkConfig;
use niclab_model::fabric::{Deliveries, Fabric, FabricConfig, Forwarding};
use niclab_model::models::ultra::config::{FlowControl, PORTS};
use niclab_model::models::ultra::counters::Counters;
use niclab_model::models::ultra::{Config, Ultra};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::{Input, Nic, Output, Register};
use niclab_model::platform::profile::Profile;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::random::Random;
use niclab_model::time::{Passage, Span, Time};

use super::{HostMemory, authorize_request, control, open_request, request, route_request, store};

/// A port of a node, held open by one program. `life` differs for each time that the port is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    pub node: usize,
    pub port: u32,
    pub life: u64,
}

/// The messages that were sent under one route.
#[derive(Debug)]
struct Stream {
    from: End,
    to: End,
    /// Payload words and flags of each message.
    sent: Vec<(usize, u16)>,
    /// Numbers of the messages that arrived.
    received: Vec<u64>,
}

/// A program with an open port.
#[derive(Debug)]
struct Program {
    end: End,
    base: u64,
    slices: u64,
    /// Number of the stream that it currently sends.
    stream: Option<u64>,
    consumed: u64,
    released: u64,
    /// Credits that it granted, by remote node and port.
    given: BTreeMap<(usize, u32), u32>,
    message_interrupts_due: u64,
    message_interrupts: u64,
    armed_interrupts: u64,
}

pub struct Node {
    pub nic: Alone<Ultra>,
    memory: HostMemory,
    programs: BTreeMap<u32, Program>,
    next_base: u64,
}

/// Limits of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub nodes: usize,
    pub slices: u32,
    pub flow_control: FlowControl,
    /// Faults of every link until [`Simulation::settle`].
    pub faults: Faults,
    /// Whether programs close ports, change routes and revoke authorizations.
    pub is_restless: bool,
}

pub struct Simulation {
    rules: Rules,
    random: Random,
    pub nodes: Vec<Node>,
    pub fabric: Fabric,
    /// Frames in flight, in the order of their arrival.
    in_flight: BTreeMap<(Time, u64), Flight>,
    frames: u64,
    streams: HashMap<u64, Stream>,
    lives: u64,
    clock: Time,
}

/// A frame in flight: destination node, arrival of its head, bytes, and the message that it belongs to.
type Flight = (usize, Time, SharedFrame, Option<TraceTag>);

/// Length of the status line.
const STATUS_BYTES: u64 = 64;

impl Simulation {
    pub fn new(seed: u64, rules: Rules) -> Self {
        let profile = Profile::ultra_200mhz_htx();
        let mut fabric = Fabric::new(&FabricConfig {
            links: vec![LinkConfig::ethernet(10_000_000_000); rules.nodes],
            forwarding: Forwarding::CutThrough,
            switch_fall_through: Span::from_ns(90),
            seed,
        })
        .unwrap();
        for port in 0..rules.nodes {
            fabric.set_faults(port as u16, rules.faults);
        }
        let node = |node: usize| {
            let mut config = Config::new(node as u16, rules.nodes as u32, profile.clone());
            config.flow_control = rules.flow_control;
            Node {
                nic: Alone::new(Ultra::new(config).unwrap()),
                memory: HostMemory::default(),
                programs: BTreeMap::new(),
                next_base: 0x1_0000,
            }
        };
        Self {
            rules,
            random: Random::new(seed, u64::MAX),
            nodes: (0..rules.nodes).map(node).collect(),
            fabric,
            in_flight: BTreeMap::new(),
            frames: 0,
            streams: HashMap::new(),
            lives: 0,
            clock: Time::ZERO,
        }
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u32) as usize
    }

    fn host_now(&self, node: usize) -> Time {
        self.clock.max(self.nodes[node].nic.host_clock())
    }

    /// Carries out a card's outputs.
    pub fn carry(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].nic.poll_output() {
            self.carry_out(node, output);
        }
    }

    fn carry_out(&mut self, node: usize, output: Output) {
        match output {
            Output::DmaWrite { address, words, .. } => self.write(node, address, &words),
            Output::Interrupt { cause, port, .. } => {
                let program = self.nodes[node].programs.get_mut(&port).expect("interrupt for a closed port");
                match cause {
                    CAUSE_MESSAGE => program.message_interrupts += 1,
                    CAUSE_ARMED => program.armed_interrupts += 1,
                    other => panic!("interrupt with unexpected cause {other}"),
                }
            }
            Output::Frame { at, tail, frame, message } => {
                self.send(node, Passage { head: at, tail }, &frame, message);
            }
            other => panic!("unexpected output {other:?}"),
        }
    }

    /// Puts a frame on a node's link.
    pub fn send(&mut self, node: usize, at: impl Into<Passage>, frame: &[u8], message: Option<TraceTag>) {
        let mut deliveries = Deliveries::new();
        self.fabric.forward(at, node as u16, frame, message, &mut deliveries);
        for delivery in deliveries {
            let mut bytes = SharedFrame::from(frame);
            if let Some(bit) = delivery.corrupt {
                bytes.flip(bit);
            }
            self.frames += 1;
            self.in_flight
                .insert((delivery.at, self.frames), (delivery.to.into(), delivery.head, bytes, message));
        }
    }

    /// Checks and stores a write of the card. It must be a complete status line, or one slice from the beginning of its
    /// payload to its end. The card must not overwrite a slice that the program has not released.
    fn write(&mut self, node: usize, address: u64, words: &[u64]) {
        let end = address + words.len() as u64 * 8;
        let owner = self.nodes[node].programs.values().find(|program| {
            let slices = program.base + STATUS_BYTES;
            address >= program.base && end <= slices + program.slices * SLICE_BYTES
        });
        let program = owner.unwrap_or_else(|| panic!("write to {address:#x} outside of the ports' memory"));
        if address == program.base {
            assert_eq!(words.len(), 8);
            let before = self.nodes[node].memory.status_line(address);
            assert!(before.iter().zip(words).take(5).all(|(old, new)| old <= new), "a count fell");
        } else {
            let offset = address - program.base - STATUS_BYTES;
            assert_eq!((end - program.base - STATUS_BYTES) % SLICE_BYTES, 0, "ends at the status word");
            assert_eq!(words.len() as u64 * 8 + offset % SLICE_BYTES, SLICE_BYTES, "one burst");
            let number = words.last().unwrap() >> 32;
            assert_eq!((number - 1) % program.slices, offset / SLICE_BYTES, "the slices are a ring");
            assert!(number <= program.released + program.slices, "overwrites a slice that was not released");
        }
        self.nodes[node].memory.write(address, words);
    }

    /// Delivers the next frame; false if none is in flight.
    pub fn deliver_one(&mut self) -> bool {
        let Some(((at, _), (node, head, frame, message))) = self.in_flight.pop_first() else { return false };
        self.clock = self.clock.max(at);
        self.nodes[node].nic.handle(at, Input::Frame { head, frame: &frame, message });
        self.carry(node);
        true
    }

    /// Lets the earliest timer expire; false if none runs.
    pub fn expire_one(&mut self) -> bool {
        let next =
            (0..self.nodes.len()).filter_map(|node| Some((self.nodes[node].nic.poll_timeout()?, node))).min();
        let Some((deadline, node)) = next else { return false };
        self.clock = self.clock.max(deadline);
        self.nodes[node].nic.handle(self.clock, Input::Timeout);
        self.carry(node);
        true
    }

    fn control(&mut self, node: usize, request: &[u8]) -> (u32, Vec<u8>) {
        let now = self.host_now(node);
        let (status, body, outputs) = control(&mut self.nodes[node].nic, now, request);
        for output in outputs {
            self.carry_out(node, output);
        }
        (status, body)
    }

    pub fn open(&mut self, node: usize) -> Option<End> {
        let slices = self.rules.slices;
        let base = self.nodes[node].next_base;
        let (status, body) = self.control(node, &open_request(slices, base, 0));
        if status != STATUS_OK {
            assert_eq!(self.nodes[node].programs.len(), PORTS);
            return None;
        }
        self.nodes[node].next_base += 0x1_0000;
        self.lives += 1;
        let port = PortOpened::from_bytes(&body).unwrap().port;
        let end = End { node, port, life: self.lives };
        let program = Program {
            end,
            base,
            slices: slices.into(),
            stream: None,
            consumed: 0,
            released: 0,
            given: BTreeMap::new(),
            message_interrupts_due: 0,
            message_interrupts: 0,
            armed_interrupts: 0,
        };
        assert!(self.nodes[node].programs.insert(port, program).is_none());
        Some(end)
    }

    pub fn close(&mut self, end: End) {
        let close = request(OP_PORT_CLOSE, &PortName { port: end.port, reserved: 0 });
        assert_eq!(self.control(end.node, &close).0, STATUS_OK);
        self.nodes[end.node].programs.remove(&end.port);
    }

    /// Sets a route; false while posted packets have not left.
    pub fn route(&mut self, from: End, to: End) -> bool {
        let (status, _) = self.control(from.node, &route_request(from.port, to.node as u32, to.port));
        if status == STATUS_OK {
            let number = self.streams.len() as u64;
            self.streams.insert(number, Stream { from, to, sent: Vec::new(), received: Vec::new() });
            self.program(from).stream = Some(number);
        }
        status == STATUS_OK
    }

    pub fn authorize(&mut self, at: End, remote: End, credits: u32) -> bool {
        let remote = (remote.node, remote.port);
        let (status, _) =
            self.control(at.node, &authorize_request(at.port, remote.0 as u32, remote.1, credits));
        if status == STATUS_OK {
            self.program(at).given.insert(remote, credits);
        }
        status == STATUS_OK
    }

    pub fn revoke(&mut self, at: End, remote: End) {
        let (port, node, node_port) = (at.port, remote.node as u32, remote.port);
        let (status, _) =
            self.control(at.node, &request(OP_REVOKE, &Revoke { port, node, node_port, reserved: 0 }));
        let was_given = self.program(at).given.remove(&(remote.node, remote.port)).is_some();
        assert_eq!(status == STATUS_OK, was_given);
    }

    fn program(&mut self, end: End) -> &mut Program {
        self.nodes[end.node].programs.get_mut(&end.port).expect("open")
    }

    /// All open ports.
    pub fn ends(&self) -> Vec<End> {
        self.nodes.iter().flat_map(|node| node.programs.values().map(|program| program.end)).collect()
    }

    /// Posts one message with random length and flags; false if the page takes no store or the port has no route.
    pub fn launch(&mut self, end: End) -> bool {
        let Some(number) = self.program(end).stream else { return false };
        if !self.nodes[end.node].nic.accepts_store(end.port) {
            return false;
        }
        let payload_words = self.below(9);
        let flags = [CODE_NOTIFY, CODE_INTERRUPT, CODE_ACKNOWLEDGE];
        let flags = flags.into_iter().filter(|_| self.random.below(4) == 0).fold(0, |all, flag| all | flag);
        let stream = self.streams.get_mut(&number).unwrap();
        let sequence = stream.sent.len() as u64;
        stream.sent.push((payload_words, flags));
        let burst = store(end.port, &payload(number, sequence, payload_words), [number, sequence], flags);
        let now = self.host_now(end.node);
        self.nodes[end.node].nic.handle(now, Input::PageStore(burst));
        self.carry(end.node);
        true
    }

    /// Reads the next slice, if it has arrived, and compares it with the sent message.
    pub fn consume(&mut self, end: End) -> bool {
        let node = &self.nodes[end.node];
        let program = &node.programs[&end.port];
        let place = program.consumed % program.slices;
        let Some((status, words, [number, sequence])) = node.memory.slice(program.base + STATUS_BYTES, place)
        else {
            return false;
        };
        if u64::from(status.number) != program.consumed + 1 {
            return false;
        }
        let stream = self.streams.get_mut(&number).expect("a tag that was sent");
        // After a port was closed and reopened, its next program may have authorized the same sender.
        assert_eq!((stream.to.node, stream.to.port), (end.node, end.port), "delivered to the wrong port");
        assert!(self.rules.is_restless || stream.to == end, "delivered to the wrong program");
        assert_eq!(
            (stream.from.node, stream.from.port),
            (status.source_node.into(), status.source_port.into())
        );
        let &(payload_words, flags) = stream.sent.get(sequence as usize).expect("a message that was sent");
        assert_eq!(words, payload(number, sequence, payload_words));
        assert_eq!(status.interrupt, flags & CODE_INTERRUPT != 0);
        assert!(stream.received.last().is_none_or(|&last| last < sequence), "duplicated or reordered");
        stream.received.push(sequence);
        let program = self.program(end);
        program.consumed += 1;
        program.message_interrupts_due += u64::from(status.interrupt);
        true
    }

    pub fn release(&mut self, end: End) {
        let program = self.program(end);
        program.released = program.consumed;
        let register = Register::Released(program.consumed);
        self.register(end, register);
    }

    fn register(&mut self, end: End, register: Register) {
        let now = self.host_now(end.node);
        self.nodes[end.node].nic.handle(now, Input::Register { port: end.port, register });
        self.carry(end.node);
    }

    /// Performs one random action of a program, a frame or a timer.
    pub fn step(&mut self) {
        let ends = self.ends();
        if ends.is_empty() {
            let node = self.below(self.nodes.len());
            self.open(node);
            return;
        }
        let end = ends[self.below(ends.len())];
        let other = ends[self.below(ends.len())];
        match self.below(32) {
            0..=11 => drop(self.launch(end)),
            12..=19 => drop(self.deliver_one()),
            20..=24 => drop(self.consume(end)),
            25..=27 => self.release(end),
            28 => {
                let slice = self.program(end).consumed + 1 + self.below(4) as u64;
                self.register(end, Register::Armed(slice));
            }
            29 if self.in_flight.is_empty() => drop(self.expire_one()),
            _ if self.rules.is_restless => self.step_restlessly(end, other),
            _ => {}
        }
    }

    fn step_restlessly(&mut self, end: End, other: End) {
        match self.below(10) {
            0 => self.close(end),
            1 | 2 => drop(self.open(end.node)),
            3 | 4 => drop(self.route(end, other)),
            5..=7 => {
                let credits = 1 + self.below(self.rules.slices as usize) as u32;
                self.authorize(end, other, credits);
            }
            _ => self.revoke(end, other),
        }
    }

    /// Ends all faults, and lets programs consume until the simulation is idle.
    pub fn settle(&mut self) {
        for port in self.fabric.ports() {
            self.fabric.set_faults(port, Faults::NONE);
        }
        // Timers keep running while packets wait for a receiver that does not take them, so a state in which only
        // timers expire counts as idle.
        let mut idle_expirations = 0;
        while idle_expirations < 50 {
            let mut has_moved = false;
            while self.deliver_one() {}
            for end in self.ends() {
                while self.consume(end) {}
                let program = self.program(end);
                if program.released != program.consumed {
                    self.release(end);
                    has_moved = true;
                }
            }
            if has_moved {
                idle_expirations = 0;
            } else if self.expire_one() {
                idle_expirations += 1;
            } else if self.in_flight.is_empty() {
                return;
            }
        }
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        self.nodes.iter().flat_map(|node| node.programs.values())
    }

    /// Whether the program that now has the receiving port open has granted credits to `end`.
    pub fn is_connected(&self, end: End) -> bool {
        let program = &self.nodes[end.node].programs[&end.port];
        let Some(to) = program.stream.map(|stream| self.streams[&stream].to) else { return false };
        let receiver = self.nodes[to.node].programs.get(&to.port);
        receiver.is_some_and(|receiver| receiver.given.contains_key(&(end.node, end.port)))
    }

    /// Numbers of messages sent and received, over all streams.
    pub fn totals(&self) -> (usize, usize) {
        let count = |of: fn(&Stream) -> usize| self.streams.values().map(of).sum();
        (count(|stream| stream.sent.len()), count(|stream| stream.received.len()))
    }

    /// Streams that miss a message.
    pub fn incomplete(&self) -> BTreeSet<u64> {
        let streams = self.streams.iter();
        streams
            .filter(|(_, stream)| stream.sent.len() != stream.received.len())
            .map(|(number, _)| *number)
            .collect()
    }

    /// Sum of a counter over all cards.
    pub fn count(&self, of: fn(&Counters) -> u64) -> u64 {
        self.nodes.iter().map(|node| of(node.nic.counters())).sum()
    }

    /// Checks that the counts of notifications, interrupts and acknowledgements are exactly the requested ones. Valid
    /// only if no frame was lost and no port was closed.
    pub fn check_exact_counts(&self) {
        for program in self.programs() {
            let node = &self.nodes[program.end.node];
            let [launched, notified, acknowledged, sent, refusal, refused] =
                node.memory.status_line(program.base);
            let of_port = || self.streams.values().filter(|stream| stream.from == program.end);
            let sent_in_all: usize = of_port().map(|stream| stream.sent.len()).sum();
            let asked = |flag: u16| {
                of_port().flat_map(|stream| &stream.sent).filter(|(_, flags)| flags & flag != 0).count()
                    as u64
            };
            assert_eq!(notified, asked(CODE_NOTIFY), "notifications");
            assert_eq!(acknowledged, asked(CODE_ACKNOWLEDGE), "acknowledgements");
            assert_eq!((refused, refusal), (0, 0));
            assert!(launched + 8 > sent_in_all as u64 && launched <= sent_in_all as u64);
            assert!(sent <= sent_in_all as u64);
            assert_eq!(program.message_interrupts, program.message_interrupts_due, "interrupts");
        }
    }
}

fn payload(stream: u64, sequence: u64, words: usize) -> Vec<u64> {
    let mut random = Random::new(stream, sequence);
    (0..words).map(|_| random.next()).collect()
}
