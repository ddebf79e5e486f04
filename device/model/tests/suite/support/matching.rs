//! Hosts with Match cards on one wire: byte-addressed memory, and programs that post commands and read events.

use std::collections::{BTreeMap, VecDeque};

use niclab_abi::FromBytes;
use niclab_abi::control::{OP_PORT_OPEN, PORT_ANY, PortOpen, PortOpened, Reply};
use niclab_abi::matching::{
    ANY_NODE, ANY_PORT, COMMAND_APPEND, COMMAND_GET, COMMAND_PUT, COUNTERS_OFFSET, ENTRY_PUT, ListEvent,
    event_kind, event_result,
};
use niclab_abi::receive::SLICE_BYTES;
use niclab_abi::region::{Extent, OP_REGION_CLOSE, OP_REGION_OPEN, RegionName, RegionOpen, RegionOpened};
use niclab_model::fabric::ethernet::HEADER_BYTES;
use niclab_model::fabric::frame_head::FrameHead;
use niclab_model::models::matching::wire::Frame;
use niclab_model::models::matching::{Config, Match};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::{HostRange, Input, Nic, Output, PageStore, Register};
use niclab_model::platform::profile::Profile;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Time;

use super::{counters, request};

/// Bytes of a host's memory.
pub const MEMORY_BYTES: usize = 4 << 20;
/// Address of the ports' pages: each port has its status page, followed by its event queue.
pub const PORTS_ADDRESS: u64 = 0x10_0000;
const PORT_BYTES: u64 = 0x10_0000 / 8;
/// Default length of a port's event queue.
pub const EVENTS: u32 = 64;

/// A host with its card.
pub struct Host {
    pub nic: Alone<Match>,
    pub memory: Vec<u8>,
    /// Events read by each port.
    pub read: [u64; 8],
    pub events: [u32; 8],
    pub replies: Vec<(u64, Vec<u8>)>,
    pub interrupts: Vec<(u32, u32)>,
    /// Number of reads that succeed before one fails.
    pub reads_until_failure: Option<u32>,
    /// Memory that the card may access, in tests that check this.
    pub given: Option<Vec<HostRange>>,
    /// The payload that the card borrowed last.
    loan: Vec<u8>,
}

/// A decoded event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub kind: u32,
    pub result: u32,
    pub portal: u32,
    pub node: u32,
    pub port: u32,
    pub handle: u32,
    pub words: ListEvent,
}

/// A frame on the wire.
#[derive(Clone, Debug)]
pub struct Flying {
    pub at: Time,
    pub frame: SharedFrame,
    pub message: Option<TraceTag>,
}

/// Cards on one wire that takes no time.
pub struct Cluster {
    pub hosts: Vec<Host>,
    pub wire: VecDeque<Flying>,
    pub frames: usize,
    /// Whether cards borrow payload: they then get the head of an intact frame without its payload.
    pub borrows: bool,
    /// Number of reads that were answered with borrowed payload.
    pub borrowed: usize,
    /// All frames that were sent, with their times.
    pub sent: Vec<(Time, Vec<u8>)>,
}

pub fn config(node: u16, nodes: u32) -> Config {
    Config::new(node, nodes, Profile::ultra_200mhz_htx())
}

impl Cluster {
    pub fn new(nodes: u32) -> Self {
        Self::with(nodes, |_| ())
    }

    pub fn with(nodes: u32, change: impl Fn(&mut Config)) -> Self {
        let host = |node| {
            let mut config = config(node as u16, nodes);
            change(&mut config);
            Host {
                nic: Alone::new(Match::new(config).unwrap()),
                memory: vec![0; MEMORY_BYTES],
                read: [0; 8],
                events: [EVENTS; 8],
                replies: Vec::new(),
                interrupts: Vec::new(),
                reads_until_failure: None,
                given: None,
                loan: Vec::new(),
            }
        };
        let (hosts, wire) = ((0..nodes).map(host).collect(), VecDeque::new());
        Self { hosts, wire, frames: 0, borrows: false, borrowed: 0, sent: Vec::new() }
    }

    /// Carries out a card's outputs.
    pub fn carry(&mut self, node: usize) {
        while let Some(output) = self.hosts[node].nic.poll_output() {
            self.carry_out(node, output, None);
        }
    }

    /// Carries out one output of a card. `came` is the frame that the card is processing, if any.
    fn carry_out(&mut self, node: usize, output: Output, came: Option<&SharedFrame>) {
        let host = &mut self.hosts[node];
        match output {
            Output::DmaWrite { address, words, .. } => {
                host.check(address, words.len() as u64 * 8);
                for (place, word) in words.iter().enumerate() {
                    let at = address as usize + 8 * place;
                    host.memory[at..at + 8].copy_from_slice(&word.to_le_bytes());
                }
            }
            Output::DmaFrame { frame, bytes, ranges, .. } => host.store(&frame[bytes], &ranges),
            Output::DmaBorrowed { bytes, ranges, .. } => host.store(&came.expect("a frame")[bytes], &ranges),
            Output::DmaRead { at, token, ranges, mut into, .. } => {
                let left = host.reads_until_failure;
                host.reads_until_failure = left.and_then(|left| left.checked_sub(1));
                let is_whole = left != Some(0);
                for range in ranges.iter().filter(|_| is_whole) {
                    host.check(range.address, range.bytes);
                    into.extend_from_slice(&host.memory[range.address as usize..][..range.bytes as usize]);
                }
                let data: u64 = ranges.iter().map(|range| range.bytes).sum();
                let head = into.len().saturating_sub(data as usize);
                if self.borrows && is_whole && head > 0 {
                    host.loan = into[head..].to_vec();
                    into.truncate(head);
                    host.nic.handle(at, Input::Borrowed { token, into });
                    self.borrowed += 1;
                    let next = host.nic.poll_output().expect("a frame");
                    assert!(matches!(next, Output::BorrowedFrame { .. }), "{next:?} comes next");
                    return self.carry_out(node, next, None);
                }
                host.nic.handle(at, Input::DmaData { token, bytes: into, is_whole });
            }
            Output::BorrowedFrame { at, head, message, .. } => {
                let mut frame = head;
                frame.extend_from_slice(&host.loan);
                host.nic.borrows().expect("it has borrowed")(&mut frame);
                self.send(at, frame.into(), message);
            }
            Output::Frame { at, frame, message, .. } => self.send(at, frame, message),
            Output::Interrupt { cause, port, .. } => host.interrupts.push((cause, port)),
            other @ (Output::Complete { .. } | Output::WindowRead { .. }) => {
                panic!("unexpected output {other:?}")
            }
            Output::Reply { token, bytes, .. } => host.replies.push((token, bytes.to_vec())),
        }
    }

    fn send(&mut self, at: Time, frame: SharedFrame, message: Option<TraceTag>) {
        self.frames += 1;
        self.sent.push((at, frame.to_vec()));
        self.wire.push_back(Flying { at, frame, message });
    }

    /// Delivers a frame to the node that its address names.
    pub fn deliver(&mut self, flying: &Flying) {
        let to = usize::from(u16::from_be_bytes([flying.frame[4], flying.frame[5]]));
        let Flying { at, frame, message } = flying;
        // A damaged frame is delivered complete, never as a borrowed one.
        let data = Frame::parse(frame)
            .ok()
            .map(|parsed| parsed.data)
            .filter(|data| self.borrows && !data.is_empty());
        let Some(data) = data else {
            self.hosts[to].nic.handle(*at, Input::Frame { head: *at, frame, message: *message });
            return self.carry(to);
        };
        let mut head = frame[..data.start].to_vec();
        // The check word of a borrowed frame is never computed.
        head[HEADER_BYTES + 16..][..8].fill(0);
        let borrowed = FrameHead { bytes: &head, frame_bytes: frame.len() };
        self.hosts[to]
            .nic
            .handle(*at, Input::BorrowedFrame { frame: borrowed, head: *at, message: *message });
        while let Some(output) = self.hosts[to].nic.poll_output() {
            self.carry_out(to, output, Some(frame));
        }
    }

    /// Delivers all frames on the wire, and the frames that follow from them.
    pub fn settle(&mut self) {
        while let Some(flying) = self.wire.pop_front() {
            self.deliver(&flying);
        }
    }

    pub fn handle(&mut self, node: usize, input: Input<'_>) {
        let now = self.hosts[node].nic.host_clock();
        self.hosts[node].nic.handle(now, input);
        self.carry(node);
    }

    /// A control request: status and body of the answer.
    pub fn control(&mut self, node: usize, request: &[u8]) -> (u32, Vec<u8>) {
        self.handle(node, Input::Control { token: 7, request });
        let (token, reply) = self.hosts[node].replies.pop().expect("an answer");
        assert_eq!(token, 7);
        assert!(self.hosts[node].replies.is_empty());
        let head = Reply::from_bytes(&reply).unwrap();
        assert_eq!(reply.len(), Reply::BYTES + head.body_bytes as usize);
        (head.status, reply[Reply::BYTES..].to_vec())
    }

    /// Opens the next port of a node.
    pub fn open(&mut self, node: usize) -> u32 {
        self.open_with(node, EVENTS)
    }

    pub fn open_with(&mut self, node: usize, events: u32) -> u32 {
        let port = (0..8).find(|port| !self.hosts[node].nic.is_open(*port)).unwrap();
        let page = PORTS_ADDRESS + u64::from(port) * PORT_BYTES;
        let open = PortOpen {
            port: PORT_ANY,
            slices: events,
            slices_address: page + 4096,
            status_address: page,
            fifo_words: 0,
            flags: 0,
        };
        self.hosts[node].memory[page as usize..][..PORT_BYTES as usize].fill(0);
        let (status, body) = self.control(node, &request(OP_PORT_OPEN, &open));
        assert_eq!(status, 0);
        let port = PortOpened::from_bytes(&body).unwrap().port;
        self.hosts[node].read[port as usize] = 0;
        self.hosts[node].events[port as usize] = events;
        port
    }

    /// Registers memory in extents.
    pub fn register(&mut self, node: usize, port: u32, extents: &[(u64, u64)]) -> u32 {
        let (status, body) = self.control(node, &region_request(port, extents));
        assert_eq!(status, 0);
        RegionOpened::from_bytes(&body).unwrap().region
    }

    pub fn deregister(&mut self, node: usize, port: u32, region: u32) -> u32 {
        let name = RegionName { port, region, extents: 0, reserved: 0 };
        self.control(node, &request(OP_REGION_CLOSE, &name)).0
    }

    pub fn statistics(&mut self, node: usize) -> BTreeMap<String, u64> {
        counters(|request| self.control(node, request))
    }

    /// Posts a command.
    pub fn launch(&mut self, node: usize, port: u32, code: u32, words: [u64; 10]) {
        assert!(self.hosts[node].nic.accepts_store(port), "the port takes no command");
        self.handle(node, Input::PageStore(PageStore { port, code, words }));
    }

    pub fn put(&mut self, node: usize, port: u32, flags: u32, transfer: &Transfer) {
        self.launch(node, port, COMMAND_PUT | flags, transfer.words());
    }

    pub fn get(&mut self, node: usize, port: u32, flags: u32, transfer: &Transfer) {
        self.launch(node, port, COMMAND_GET | flags, transfer.words());
    }

    pub fn append(&mut self, node: usize, port: u32, flags: u32, entry: &Posted) {
        self.launch(node, port, COMMAND_APPEND | flags, entry.words());
    }

    /// The port's next event, if it has arrived.
    pub fn event(&mut self, node: usize, port: u32) -> Option<Event> {
        let host = &mut self.hosts[node];
        let read = &mut host.read[port as usize];
        let place = *read % u64::from(host.events[port as usize]);
        let page = PORTS_ADDRESS + u64::from(port) * PORT_BYTES;
        let at = (page + 4096 + place * SLICE_BYTES) as usize;
        let words = ListEvent::from_bytes(&host.memory[at..]).unwrap();
        if words.status >> 32 != (*read + 1) & 0xffff_ffff {
            return None;
        }
        *read += 1;
        Some(Event {
            kind: event_kind(words.status),
            result: event_result(words.status),
            portal: (words.status >> 16 & 0xff) as u32,
            node: (words.source >> 48) as u32,
            port: (words.source >> 32 & 0xffff) as u32,
            handle: words.source as u32,
            words,
        })
    }

    /// Kinds and results of all events that have arrived.
    pub fn kinds(&mut self, node: usize, port: u32) -> Vec<(u32, u32)> {
        std::iter::from_fn(|| self.event(node, port)).map(|event| (event.kind, event.result)).collect()
    }

    /// Reads all events that have arrived. Returns the last one.
    pub fn last_event(&mut self, node: usize, port: u32) -> Event {
        std::iter::from_fn(|| self.event(node, port)).last().expect("an event")
    }

    /// Reads all events that have arrived, and releases their slots.
    pub fn release_all(&mut self, node: usize, port: u32) {
        if std::iter::from_fn(|| self.event(node, port)).count() > 0 {
            self.release(node, port);
        }
    }

    /// Releases the slots of all events that were read.
    pub fn release(&mut self, node: usize, port: u32) {
        let released = self.hosts[node].read[port as usize];
        self.handle(node, Input::Register { port, register: Register::Released(released) });
    }

    /// The failure count and the success count of a counter.
    pub fn counter(&self, node: usize, port: u32, counter: u64) -> (u64, u64) {
        let page = PORTS_ADDRESS + u64::from(port) * PORT_BYTES;
        let at = (page + COUNTERS_OFFSET + 16 * counter) as usize;
        let word = |at: usize| u64::from_le_bytes(self.hosts[node].memory[at..at + 8].try_into().unwrap());
        (word(at), word(at + 8))
    }

    pub fn write(&mut self, node: usize, address: u64, bytes: &[u8]) {
        self.hosts[node].memory[address as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    pub fn read(&self, node: usize, address: u64, bytes: usize) -> &[u8] {
        &self.hosts[node].memory[address as usize..][..bytes]
    }
}

impl Host {
    fn store(&mut self, bytes: &[u8], ranges: &[HostRange]) {
        let mut data = bytes;
        for range in ranges {
            self.check(range.address, range.bytes);
            let (now, rest) = data.split_at(range.bytes as usize);
            self.memory[range.address as usize..][..now.len()].copy_from_slice(now);
            data = rest;
        }
        assert!(data.is_empty());
    }

    fn check(&self, address: u64, bytes: u64) {
        let Some(given) = &self.given else { return };
        let holds =
            |range: &HostRange| address >= range.address && address + bytes <= range.address + range.bytes;
        assert!(given.iter().any(holds), "{bytes} bytes at {address:#x}, in {given:x?}");
    }
}

pub fn region_request(port: u32, extents: &[(u64, u64)]) -> Vec<u8> {
    let bytes = extents.iter().map(|(_, bytes)| bytes).sum();
    let open = RegionOpen { port, extents: extents.len() as u32, bytes, reserved: 0 };
    let mut whole = request(OP_REGION_OPEN, &open);
    for &(address, bytes) in extents {
        whole.extend(&request(0, &Extent { address, bytes })[8..]);
    }
    let body = (whole.len() - 8) as u32;
    whole[4..8].copy_from_slice(&body.to_le_bytes());
    whole
}

/// Words of a put or a get.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transfer {
    pub match_bits: u64,
    pub header_data: u64,
    pub user: u64,
    pub node: u64,
    pub port: u64,
    pub portal: u64,
    pub region: u32,
    pub offset: u64,
    pub bytes: u64,
    pub remote_offset: u64,
    pub counter: u64,
}

impl Transfer {
    pub fn words(&self) -> [u64; 10] {
        let target = self.node << 48 | self.port << 40 | self.portal << 32 | u64::from(self.region);
        let Self { match_bits, header_data, user, offset, bytes, remote_offset, counter, .. } = *self;
        [match_bits, header_data, user, target, offset, bytes, remote_offset, counter, 0, 0]
    }
}

/// Words of an append.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    pub match_bits: u64,
    pub ignore_bits: u64,
    pub user: u64,
    pub node: u64,
    pub port: u64,
    pub portal: u64,
    pub region: u32,
    pub offset: u64,
    pub bytes: u64,
    pub threshold: u64,
    pub counter: u64,
    pub max_size: u64,
}

impl Default for Posted {
    fn default() -> Self {
        Self {
            match_bits: 0,
            ignore_bits: 0,
            user: 0,
            node: ANY_NODE,
            port: ANY_PORT,
            portal: 0,
            region: 0,
            offset: 0,
            bytes: 0,
            threshold: 1,
            counter: 0,
            max_size: 0,
        }
    }
}

impl Posted {
    pub fn words(&self) -> [u64; 10] {
        let source = self.node << 48 | self.port << 40 | self.portal << 32 | u64::from(self.region);
        [
            self.match_bits,
            self.ignore_bits,
            self.user,
            source,
            self.offset,
            self.bytes,
            self.threshold,
            self.counter,
            self.max_size,
            0,
        ]
    }
}

/// A pattern that differs at every offset and for every seed.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|place| ((place ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

pub const PUT_ENTRY: u32 = ENTRY_PUT;
