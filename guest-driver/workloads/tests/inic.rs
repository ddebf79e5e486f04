//! Workloads over ports that post messages, against minimal cards that share no code with the models.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use niclab_abi::bar::{SLOT_LAUNCH_WORD, SLOT_WORDS, slot_of};
use niclab_abi::from_words;
use niclab_abi::inic::{
    POST_EVENT_RECEIVED, POST_EVENT_SENT, POST_INCOMPLETE, POST_INTERRUPT, POST_OK, POST_RECEIVE, POST_SEND,
    POST_TELL_SENT, POST_TRUNCATED, PostEvent, ReceiveCommand, SendCommand, post_event_status,
};
use niclab_abi::receive::{SLICE_STATUS_WORD, SLICE_WORDS};
use niclab_port::atomic::{AtomicPage, AtomicRecords};
use niclab_workloads::inic::PostTransport;
use niclab_workloads::{
    AtomicMemory, Pattern, Plan, Ports, Program, Promise, Receive, Script, Transport, Verifier, Workload,
};

const SLICES: u32 = 16;
/// More rounds than any of these workloads needs.
const MAX_ROUNDS: usize = 100_000;

fn zeros(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// What the network does to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Reliable,
    /// Loses every fifth message.
    Loses,
    /// Loses a part of every fifth message.
    Truncates,
    /// Delivers every fifth message twice.
    Duplicates,
    /// Flips a bit of every fifth message.
    Damages,
}

/// A message in flight.
struct Packet {
    from: u16,
    to: u16,
    bytes: Vec<u8>,
}

/// A node: the memory that program and card share, and the state of the card.
struct Node {
    rank: u16,
    requester: Vec<AtomicU64>,
    status: Vec<AtomicU64>,
    records: Vec<AtomicU64>,
    completer: Vec<AtomicU64>,
    region: Vec<AtomicU64>,
    taken: u64,
    events: u64,
    receives: VecDeque<(ReceiveCommand, u32)>,
    /// Messages whose data is still in memory.
    sends: VecDeque<(SendCommand, u32)>,
    interrupts: u64,
}

impl Ports for Node {
    type Memory<'a> = AtomicMemory<'a>;

    fn memory(&mut self, _: usize) -> AtomicMemory<'_> {
        AtomicMemory {
            page: AtomicPage { requester: &self.requester, status: &self.status },
            records: AtomicRecords { records: &self.records, completer: &self.completer },
            region: &self.region,
            payload: &[],
        }
    }

    fn announce(&mut self) {}

    fn completer(&self) -> &[AtomicU64] {
        &self.completer
    }
}

impl Node {
    fn new(rank: u16) -> Self {
        Self {
            rank,
            requester: zeros(512),
            status: zeros(512),
            records: zeros(SLICES as usize * SLICE_WORDS),
            completer: zeros(512),
            region: Vec::new(),
            taken: 0,
            events: 0,
            receives: VecDeque::new(),
            sends: VecDeque::new(),
            interrupts: 0,
        }
    }

    fn byte(&self, offset: u64) -> (&AtomicU64, u64) {
        (&self.region[(offset / 8) as usize], 8 * (offset % 8))
    }

    fn load(&self, offset: u64, bytes: u64) -> Vec<u8> {
        let one = |offset| {
            let (word, shift) = self.byte(offset);
            (word.load(Ordering::Relaxed) >> shift) as u8
        };
        (offset..offset + bytes).map(one).collect()
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        for (offset, byte) in (offset..).zip(bytes) {
            let (word, shift) = self.byte(offset);
            let others = word.load(Ordering::Relaxed) & !(0xff << shift);
            word.store(others | u64::from(*byte) << shift, Ordering::Relaxed);
        }
    }

    fn report(&mut self, event: PostEvent, kind: u32, result: u32) {
        let released = self.completer[0].load(Ordering::Relaxed);
        let due = self.receives.len() as u64;
        assert!(self.events - released + due < SLICES.into(), "more events are due than the queue holds");
        let first = (self.events % u64::from(SLICES)) as usize * SLICE_WORDS;
        self.events += 1;
        let event = PostEvent { status: post_event_status(kind, result, self.events as u32), ..event };
        let words: [u64; SLICE_WORDS] = niclab_abi::to_words(&event);
        for (place, word) in self.records[first..=first + SLICE_STATUS_WORD].iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// Takes the next command, if one is posted: its words and its code.
    fn next_command(&mut self) -> Option<(Vec<u64>, u32)> {
        let sequence = self.taken as u32 + 1;
        let first = slot_of(sequence) as usize * SLOT_WORDS;
        let slot = &self.requester[first..first + SLOT_WORDS];
        let slot: Vec<u64> = slot.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let launch = slot[SLOT_LAUNCH_WORD];
        if launch >> 32 != u64::from(sequence) {
            return None;
        }
        self.taken += 1;
        self.status[0].store(self.taken, Ordering::Relaxed);
        Some((slot[..10].to_vec(), launch as u32))
    }

    /// Takes all posted commands. Returns whether there were any.
    fn take_commands(&mut self) -> bool {
        let before = self.taken;
        while let Some((words, code)) = self.next_command() {
            match code & 0xff {
                POST_RECEIVE => self.receives.push_back((from_words(&words).expect("ten words"), code)),
                POST_SEND => self.sends.push_back((from_words(&words).expect("ten words"), code)),
                other => panic!("command {other}"),
            }
        }
        self.taken > before
    }

    /// Reads the data of the oldest message from memory.
    fn read(&mut self) -> Option<Packet> {
        let (SendCommand { user, node, offset, bytes, .. }, code) = self.sends.pop_front()?;
        assert!(bytes >= 4 && bytes.is_multiple_of(4), "{bytes}");
        let packet = Packet { from: self.rank, to: node, bytes: self.load(offset, bytes) };
        if code & POST_TELL_SENT != 0 {
            let event = PostEvent { user, bytes, ..PostEvent::default() };
            self.report(event, POST_EVENT_SENT, POST_OK);
        }
        Some(packet)
    }

    /// Stores a message that arrived, complete or not, into the place that was posted first.
    fn arrive(&mut self, packet: &Packet, is_incomplete: bool) {
        let (receive, code) = self.receives.pop_front().expect("the carrier checks for a posted place");
        let bytes = packet.bytes.len() as u64;
        let moved_bytes = bytes.min(receive.bytes);
        self.store(receive.offset, &packet.bytes[..moved_bytes as usize]);
        self.interrupts += u64::from(code & POST_INTERRUPT != 0);
        let result = match (is_incomplete, moved_bytes < bytes) {
            (true, _) => POST_INCOMPLETE,
            (false, true) => POST_TRUNCATED,
            (false, false) => POST_OK,
        };
        let source = packet.from.into();
        let event = PostEvent { user: receive.user, bytes, moved_bytes, source, ..PostEvent::default() };
        self.report(event, POST_EVENT_RECEIVED, result);
    }
}

/// Carries messages to nodes with a posted place.
struct Carrier {
    network: Network,
    packets: VecDeque<Packet>,
    carried: u64,
}

impl Carrier {
    /// Carries the oldest message. If its receiver has no posted place, the message goes to the end of the queue.
    fn carry(&mut self, nodes: &mut [(Node, Program<PostTransport>)]) {
        let Some(mut packet) = self.packets.pop_front() else { return };
        let node = &mut nodes[usize::from(packet.to)].0;
        let is_faulty = (self.carried + 1).is_multiple_of(5);
        let times = match self.network {
            Network::Loses if is_faulty => 0,
            Network::Duplicates if is_faulty => 2,
            _ => 1,
        };
        if node.receives.len() < times {
            return self.packets.push_back(packet);
        }
        self.carried += 1;
        if is_faulty && self.network == Network::Damages {
            packet.bytes[12] ^= 1;
        }
        (0..times).for_each(|_| node.arrive(&packet, is_faulty && self.network == Network::Truncates));
    }
}

/// Runs a workload. Returns the messages that each node received, the number of interrupts, and the first failure.
fn run(workload: &Workload, network: Network) -> (Vec<u64>, u64, Option<String>) {
    workload.check().expect("a valid workload");
    let plan = Plan::new(workload);
    let mut verifier = Verifier::new(plan.flows.clone(), workload.promise);
    let mut nodes: Vec<(Node, Program<PostTransport>)> = Vec::new();
    for rank in workload.ranks() {
        let (mut node, mut program) = (Node::new(rank), Program::default());
        for port in &plan.ports[usize::from(rank)] {
            let transport = PostTransport::new(rank, port, workload.post_terms());
            node.region = zeros(transport.region_bytes().div_ceil(8) as usize);
            program.open(port, transport, SLICES, &mut node);
            program.begin(0, 7);
        }
        program.perform(plan.measured.get(usize::from(rank)).cloned().unwrap_or_else(Script::idle));
        nodes.push((node, program));
    }
    let mut carrier = Carrier { network, packets: VecDeque::new(), carried: 0 };
    for round in 0..MAX_ROUNDS {
        let mut is_idle = carrier.packets.is_empty();
        for (node, program) in &mut nodes {
            is_idle &= !program.step(node, &mut verifier).expect("a device without fault");
            is_idle &= !node.take_commands() && node.sends.is_empty();
            // Cards are slower than programs.
            if round.is_multiple_of(8) {
                carrier.packets.extend(node.read());
            }
        }
        if is_idle {
            break;
        }
        carrier.carry(&mut nodes);
    }
    let received = nodes.iter().map(|(_, program)| program.received()).collect();
    (received, nodes.iter().map(|(node, _)| node.interrupts).sum(), verifier.take_wrong())
}

fn workload(pattern: Pattern) -> Workload {
    Workload {
        pattern,
        message_bytes: 60,
        count: 40,
        warmup: 0,
        interrupt_every: 0,
        slices: SLICES,
        receive: Receive::Posted,
        seed: 3,
        ports: vec![vec![0]; 4],
        sends_to_many: true,
        entries: 0,
        unexpected_messages: 0,
        payload_bytes: 0,
        first_segment_bytes: 0,
        // Later messages overtake one that waits for room.
        promise: UNORDERED,
    }
}

const UNORDERED: Promise = Promise { is_in_order: false, ..Promise::ALL };

#[test]
fn every_message_of_any_length_arrives_once_and_complete() {
    for message_bytes in [0, 1, 7, 8, 61, 64, 1000] {
        for (pattern, expected) in [
            (Pattern::PingPong, [40; 4]),
            (Pattern::Stream, [1, 40, 1, 40]),
            (Pattern::AllToAll, [120; 4]),
            (Pattern::NeighbourExchange(2), [80; 4]),
            (Pattern::Incast(3), [0, 0, 0, 120]),
        ] {
            let workload = Workload { message_bytes, ..workload(pattern) };
            let (received, interrupts, wrong) = run(&workload, Network::Reliable);
            assert_eq!((wrong, interrupts), (None, 0), "{:?} of {message_bytes}", workload.pattern);
            assert_eq!(received, expected, "{:?} of {message_bytes}", workload.pattern);
        }
    }
    let (received, _, wrong) = run(&workload(Pattern::Random(3)), Network::Reliable);
    assert_eq!((wrong, received.iter().sum::<u64>()), (None, 160));
}

#[test]
fn receivers_determine_which_messages_interrupt() {
    let every_eighth = Workload { interrupt_every: 8, ..workload(Pattern::Incast(0)) };
    assert_eq!(run(&every_eighth, Network::Reliable).1, 120 / 8);
}

#[test]
fn verifier_finds_each_fault_that_the_promise_excludes() {
    let lossy = Promise { is_delivered: false, ..UNORDERED };
    let duplicating = Promise { is_once: false, ..UNORDERED };
    let incast = |promise| Workload { promise, ..workload(Pattern::Incast(3)) };
    for (network, promise, expected) in [
        (Network::Loses, lossy, 96),
        (Network::Truncates, lossy, 96),
        (Network::Duplicates, duplicating, 144),
    ] {
        let (received, _, wrong) = run(&incast(promise), network);
        assert_eq!((wrong, received[3]), (None, expected), "{network:?}");
    }
    assert!(run(&incast(UNORDERED), Network::Duplicates).2.is_some());
    assert!(run(&incast(lossy), Network::Duplicates).2.is_some());
    assert!(run(&incast(Promise::ALL), Network::Loses).2.is_some());
    for promise in [Promise::ALL, lossy, duplicating] {
        assert!(run(&incast(promise), Network::Damages).2.is_some(), "{promise:?}");
    }
}
