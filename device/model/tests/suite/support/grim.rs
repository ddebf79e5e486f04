//! Hosts with GRIM cards on a wire with faults: byte-addressed memory, payload windows, and programs that push and
//! receive messages. A host fails the test if its card writes outside of the memory that the programs gave to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use niclab_abi::control::{OP_PORT_CLOSE, OP_PORT_OPEN, PortName, PortOpen, Reply};
use niclab_abi::grim::{
    BulkHeader, CHANNEL_BULK, CHANNEL_INTERRUPT, CHANNEL_MEMORY, CHANNEL_PAYLOAD_BYTES, CHANNEL_SEGMENT,
    CHANNEL_SHORT, ChannelExpose, ChannelPayload, MemoryHeader, MessageHeader, OP_CHANNEL_EXPOSE,
    OP_CHANNEL_PAYLOAD, Segment, WINDOW_CHANNEL_PAYLOAD,
};
use niclab_abi::receive::{SLICE_BYTES, SLICE_STATUS_WORD, SLICE_TAG_WORD, SliceStatus, StatusLine};
use niclab_abi::region::RegionOpened;
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::models::grim::{Config, Grim};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::{HostRange, Input, Nic, Output, PageStore, Register};
use niclab_model::platform::profile::{MachineCycles, Price, Profile};
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::random::Random;
use niclab_model::time::{Span, Time};

pub use super::inic::Faults;
use super::matching::region_request;
use super::request;

/// Memory of each program: a status line, slices, the payload region, and the memory that remote nodes may write.
const PROGRAM_BYTES: u64 = 0x8_0000;
const SLICES: u64 = 0x1000;
const PAYLOAD: u64 = 0x1_0000;
const EXPOSED: u64 = 0x4_0000;
/// Maximum number of programs of a host.
const PROGRAMS: u32 = 4;
/// Time of flight of a frame.
const FLIGHT: Span = Span::from_ns(1_000);

/// Prices similar to the testbed's: a bus of 33 MHz and a slow processor.
pub fn profile() -> Arc<Profile> {
    let bus = Price { latency_ps: 175_000, fixed_ps: 60_000, per_word_ps: 60_000, burst_bytes: 256 };
    let cycles = |fixed: u64, word: u64| MachineCycles {
        fixed_millicycles: fixed * 1_000,
        per_word_millicycles: word * 1_000,
        closing_millicycles: 0,
    };
    let mut profile = Profile::default();
    profile.host.send_ps = 1_000_000;
    profile.bus.pio_write = Price { burst_bytes: 32, ..bus };
    profile.bus.pio_write_uncombined = Price { burst_bytes: 8, ..bus };
    (profile.bus.dma_write, profile.bus.dma_read) = (bus, bus);
    profile.bus.device_to_device = bus;
    profile.ni.clock_ps = 30_000;
    profile.ni.machines = [
        ("processor_send", cycles(70, 1)),
        ("processor_receive", cycles(70, 1)),
        ("processor_acknowledge", cycles(20, 0)),
        ("scan", cycles(4, 0)),
        ("io_card_receive", cycles(100, 2)),
        ("io_card_send", cycles(60, 1)),
        ("function_card", cycles(10, 1)),
    ]
    .into_iter()
    .collect();
    profile.into()
}

/// A card like the paper's.
pub fn config(node: u16, nodes: u32) -> Config {
    let us = |us: u64| Span::from_ns(us * 1_000);
    Config {
        node,
        nodes,
        mtu_bytes: 1_500,
        channels: 8,
        headers: 64,
        payload_bytes: 48 << 10,
        weights: [1; 8].into(),
        card_memory_bytes: 1 << 20,
        window_frames: 64,
        first_wait: us(1_000),
        first_pause: us(20),
        longest_wait: us(10_000),
        stall: us(20_000),
        peripherals: Vec::new(),
        regions_per_port: 8,
        extents_per_port: 64,
        profile: profile(),
    }
}

/// How a program opens its port.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    pub slices: u32,
    /// Zero if the port takes no payload.
    pub payload_bytes: u64,
    pub exposed_bytes: u64,
}

pub const PLAIN: Opening = Opening { slices: 64, payload_bytes: 64 << 10, exposed_bytes: 128 << 10 };

/// Destination of a message at its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Handler { handler: u32, arguments: [u32; 4] },
    Memory { region: u32, place: u64 },
}

/// A message at its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub node: u16,
    pub endpoint: u16,
    pub to: To,
    pub payload: Vec<u8>,
    /// Bytes of the first segment; zero if the program pushes the message at once.
    pub segment: usize,
    pub interrupt: bool,
}

/// A message at its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Came {
    pub node: u16,
    pub channel: u8,
    pub handler: u32,
    pub arguments: [u32; 4],
    pub payload: Vec<u8>,
    pub interrupt: bool,
}

/// A program with an open port.
#[derive(Debug)]
pub struct Program {
    opening: Opening,
    pub payload_region: u32,
    pub exposed_region: u32,
    /// Slices that the program has read. `released` are those that it has released.
    pub read: u64,
    pub released: u64,
    /// Messages posted. `in_flight` has number, begin and end of the payload of those that have not left.
    pub launched: u64,
    in_flight: Vec<(u64, u64, u64)>,
}

/// A frame that a card sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub from: usize,
    pub head: Time,
    pub tail: Time,
    pub frame: SharedFrame,
}

/// A host with its card.
pub struct Host {
    pub nic: Alone<Grim>,
    pub memory: Vec<u8>,
    windows: Vec<Vec<u8>>,
    pub programs: BTreeMap<u32, Program>,
    pub interrupts: u32,
    reply: Option<Vec<u8>>,
    /// Time at which the wire is free for the next frame.
    wire_free: Time,
}

/// Cards on one wire.
pub struct Wire {
    pub hosts: Vec<Host>,
    pub now: Time,
    pub faults: Faults,
    /// Nodes that are disconnected: the wire drops their frames in both directions.
    pub cut: BTreeSet<usize>,
    /// All frames, if the test records them.
    pub record: Option<Vec<Sent>>,
    /// Number of outputs of the last input.
    pub outputs: usize,
    frames: u64,
    random: Random,
    flying: BTreeMap<(Time, u64), (SharedFrame, Option<TraceTag>)>,
}

impl Host {
    fn new(config: Config) -> Self {
        Self {
            nic: Alone::new(Grim::new(config).unwrap()),
            memory: vec![0; (PROGRAM_BYTES * u64::from(PROGRAMS)) as usize],
            windows: vec![vec![0; CHANNEL_PAYLOAD_BYTES as usize]; PROGRAMS as usize],
            programs: BTreeMap::new(),
            interrupts: 0,
            reply: None,
            wire_free: Time::ZERO,
        }
    }

    /// Carries out a store of the card, and checks that the memory belongs to a program that gave it to the card.
    fn store(&mut self, address: u64, bytes: &[u8], parts: impl Fn(&Opening) -> Vec<Range<u64>>) {
        let (port, place) = ((address / PROGRAM_BYTES) as u32, address % PROGRAM_BYTES);
        let program =
            self.programs.get(&port).unwrap_or_else(|| panic!("{address:#x}: port {port} is closed"));
        let end = place + bytes.len() as u64;
        let is_inside = parts(&program.opening).iter().any(|part| part.start <= place && end <= part.end);
        assert!(is_inside, "{address:#x}: {} bytes outside of the memory of port {port}", bytes.len());
        self.memory[address as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn store_parts(&mut self, mut data: &[u8], ranges: &[HostRange]) {
        let parts = |opening: &Opening| {
            let exposed = EXPOSED..EXPOSED + opening.exposed_bytes;
            vec![PAYLOAD..PAYLOAD + opening.payload_bytes, exposed]
        };
        for range in ranges {
            let (part, rest) = data.split_at(range.bytes as usize);
            self.store(range.address, part, parts);
            data = rest;
        }
        assert!(data.is_empty());
    }

    fn word(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.memory[address as usize..][..8].try_into().unwrap())
    }

    pub fn line(&self, port: u32) -> StatusLine {
        StatusLine::from_bytes(&self.memory[(u64::from(port) * PROGRAM_BYTES) as usize..]).unwrap()
    }

    pub fn counter(&self, name: &str) -> u64 {
        let counters = niclab_model::nic::Observed::counters(&self.nic.nic);
        counters.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1
    }

    /// The exposed memory of a program.
    pub fn exposed(&self, port: u32) -> &[u8] {
        let begin = (u64::from(port) * PROGRAM_BYTES + EXPOSED) as usize;
        &self.memory[begin..(u64::from(port + 1) * PROGRAM_BYTES) as usize]
    }
}

impl Wire {
    pub fn new(seed: u64, faults: Faults, nodes: u16, config: impl Fn(u16) -> Config) -> Self {
        Self {
            hosts: (0..nodes).map(|node| Host::new(config(node))).collect(),
            now: Time::ZERO,
            faults,
            cut: BTreeSet::new(),
            record: None,
            outputs: 0,
            frames: 0,
            random: Random::new(seed, 0),
            flying: BTreeMap::new(),
        }
    }

    pub fn open(&mut self, node: usize, port: u32, opening: Opening) {
        let base = u64::from(port) * PROGRAM_BYTES;
        self.hosts[node].memory[base as usize..][..PROGRAM_BYTES as usize].fill(0);
        let open = PortOpen {
            port,
            slices: opening.slices,
            slices_address: base + SLICES,
            status_address: base,
            fifo_words: 0,
            flags: 0,
        };
        assert_eq!(self.control(node, &request(OP_PORT_OPEN, &open)).0, 0);
        let program = Program {
            opening,
            payload_region: 0,
            exposed_region: 0,
            read: 0,
            released: 0,
            launched: 0,
            in_flight: Vec::new(),
        };
        self.hosts[node].programs.insert(port, program);
        if opening.payload_bytes > 0 {
            let region = self.region(node, port, base + PAYLOAD, opening.payload_bytes);
            let payload = ChannelPayload { port, region, offset: 0, bytes: opening.payload_bytes };
            assert_eq!(self.control(node, &request(OP_CHANNEL_PAYLOAD, &payload)).0, 0);
            self.program(node, port).payload_region = region;
        }
        if opening.exposed_bytes > 0 {
            let region = self.region(node, port, base + EXPOSED, opening.exposed_bytes);
            assert_eq!(self.expose(node, port, region, true), 0);
            self.program(node, port).exposed_region = region;
        }
    }

    /// Registers whole pages.
    fn region(&mut self, node: usize, port: u32, address: u64, bytes: u64) -> u32 {
        let (status, body) = self.control(node, &region_request(port, &[(address, bytes)]));
        assert_eq!(status, 0);
        RegionOpened::from_bytes(&body).unwrap().region
    }

    pub fn expose(&mut self, node: usize, port: u32, region: u32, is_exposed: bool) -> u32 {
        let expose = ChannelExpose { port, region, is_exposed: is_exposed.into(), reserved: 0 };
        self.control(node, &request(OP_CHANNEL_EXPOSE, &expose)).0
    }

    /// Closes the port, as at the end of its program.
    pub fn close(&mut self, node: usize, port: u32) {
        assert_eq!(self.control(node, &request(OP_PORT_CLOSE, &PortName { port, reserved: 0 })).0, 0);
        self.hosts[node].programs.remove(&port);
    }

    pub fn host_reset(&mut self, node: usize) {
        self.hosts[node].programs.clear();
        self.handle(node, Input::HostReset);
    }

    pub fn program(&mut self, node: usize, port: u32) -> &mut Program {
        self.hosts[node].programs.get_mut(&port).expect("an open port")
    }

    pub fn control(&mut self, node: usize, request: &[u8]) -> (u32, Vec<u8>) {
        self.handle(node, Input::Control { token: 1, request });
        let reply = self.hosts[node].reply.take().expect("an answer");
        (Reply::from_bytes(&reply).unwrap().status, reply[Reply::BYTES..].to_vec())
    }

    pub fn handle(&mut self, node: usize, input: Input<'_>) {
        let now = self.now;
        self.hosts[node].nic.handle(now, input);
        self.outputs = 0;
        self.carry(node);
    }

    fn carry(&mut self, node: usize) {
        while let Some(output) = self.hosts[node].nic.poll_output() {
            self.outputs += 1;
            let host = &mut self.hosts[node];
            match output {
                Output::DmaWrite { address, words, .. } => {
                    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                    let slices = |opening: &Opening| SLICES..SLICES + u64::from(opening.slices) * SLICE_BYTES;
                    host.store(address, &bytes, |opening| vec![0..64, slices(opening)]);
                }
                Output::DmaFrame { frame, bytes, ranges, .. } => host.store_parts(&frame[bytes], &ranges),
                Output::WindowRead { token, range, mut into, .. } => {
                    assert_eq!(range.window, WINDOW_CHANNEL_PAYLOAD);
                    let window = &host.windows[range.port as usize];
                    into.extend_from_slice(&window[range.bytes.start as usize..range.bytes.end as usize]);
                    let now = self.now;
                    host.nic.handle(now, Input::DmaData { token, bytes: into, is_whole: true });
                }
                Output::Frame { at, tail, frame, message } => self.fly(node, (at, tail), frame, message),
                Output::Interrupt { .. } => host.interrupts += 1,
                Output::Reply { bytes, .. } => host.reply = Some(bytes.to_vec()),
                other @ (Output::Complete { .. }
                | Output::DmaRead { .. }
                | Output::BorrowedFrame { .. }
                | Output::DmaBorrowed { .. }) => {
                    panic!("unexpected output {other:?}")
                }
            }
        }
    }

    fn fly(
        &mut self,
        from: usize,
        (head, tail): (Time, Time),
        frame: SharedFrame,
        message: Option<TraceTag>,
    ) {
        assert!(head <= tail && !frame.is_empty());
        self.frames += 1;
        if let Some(record) = &mut self.record {
            record.push(Sent { from, head, tail, frame: frame.clone() });
        }
        let Faults { lost, duplicated, damaged, late } = self.faults;
        let mut hits = |chance: u32| self.random.below(1_000) < chance;
        let (is_lost, is_duplicated, is_damaged) = (hits(lost), hits(duplicated), hits(damaged));
        let delays = [0, 1].map(|copy| copy + if hits(late) { 40 } else { 0 });
        let host = &mut self.hosts[from];
        // A card has one wire, which carries one frame at a time.
        host.wire_free = host.wire_free.max(tail).max(self.now);
        let at = host.wire_free + FLIGHT;
        let to = node_at(&frame, 0);
        if is_lost || self.cut.contains(&to) || self.cut.contains(&from) {
            return;
        }
        for (copy, delay) in (0..).zip(delays).take(1 + usize::from(is_duplicated)) {
            let mut frame = frame.clone();
            if is_damaged {
                frame.flip(self.random.below(frame.len() as u32 * 8));
            }
            self.flying.insert((at + FLIGHT.times(delay), self.frames * 2 + copy), (frame, message));
        }
    }

    /// Delivers a frame that no card on this wire sent.
    pub fn inject(&mut self, to: usize, frame: &SharedFrame) {
        let head = self.now;
        self.handle(to, Input::Frame { frame, head, message: None });
    }

    /// Processes the next frame or deadline; false if there is neither.
    pub fn step(&mut self) -> bool {
        let flying = self.flying.first_key_value().map(|((at, _), _)| *at);
        let deadlines =
            self.hosts.iter().enumerate().filter_map(|(node, host)| Some((host.nic.poll_timeout()?, node)));
        let deadline = deadlines.min();
        match (flying, deadline) {
            (Some(at), deadline) if deadline.is_none_or(|(due, _)| at <= due) => {
                let Some((_, (frame, message))) = self.flying.pop_first() else { return false };
                self.now = self.now.max(at);
                let to = node_at(&frame, 0);
                if to < self.hosts.len() {
                    self.handle(to, Input::Frame { frame: &frame, head: at, message });
                }
                true
            }
            (_, Some((due, node))) => {
                self.now = self.now.max(due);
                self.handle(node, Input::Timeout);
                true
            }
            _ => false,
        }
    }

    /// Posts a slot, if the card takes one. The words of the header end at the slot's last word.
    pub fn launch(&mut self, node: usize, port: u32, code: u32, header: &impl ToBytes) -> bool {
        fn bytes_of<T: ToBytes>(layout: &T) -> Vec<u8> {
            let mut bytes = vec![0; T::BYTES];
            layout.to_bytes(&mut bytes).unwrap();
            bytes
        }
        let bytes = bytes_of(header);
        let mut words = [0xdead_beef; 10];
        let begin = words.len() - bytes.len() / 8;
        for (word, bytes) in words[begin..].iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap());
        }
        self.launch_words(node, port, code, words)
    }

    pub fn launch_words(&mut self, node: usize, port: u32, code: u32, words: [u64; 10]) -> bool {
        let accepts = self.hosts[node].nic.accepts_store(port);
        if accepts {
            self.handle(node, Input::PageStore(PageStore { port, code, words }));
        }
        accepts
    }

    /// Offset of free room for the next message in the payload region.
    fn room(&mut self, node: usize, port: u32, bytes: u64, region_bytes: u64) -> Option<u64> {
        let left = self.hosts[node].line(port).sent;
        let program = self.program(node, port);
        program.in_flight.retain(|(number, ..)| *number >= left);
        let ends = program.in_flight.iter().map(|(.., end)| end.next_multiple_of(64));
        let mut begins = ends.chain([0]).filter(|begin| begin + bytes <= region_bytes);
        let is_free = |begin: &u64| {
            program.in_flight.iter().all(|(_, other, end)| begin + bytes <= *other || end <= begin)
        };
        begins.find(is_free)
    }

    /// Whether a message with `bytes` of payload could be sent now.
    pub fn has_room(&mut self, node: usize, port: u32, bytes: u64, region_bytes: u64) -> bool {
        self.hosts[node].nic.accepts_store(port) && self.room(node, port, bytes, region_bytes).is_some()
    }

    /// Stores payload at an offset of a channel's payload region.
    pub fn fill(&mut self, node: usize, port: u32, place: u64, payload: &[u8]) {
        self.hosts[node].windows[port as usize][place as usize..][..payload.len()].copy_from_slice(payload);
    }

    /// Posts a message's header; `pushed` bytes of its payload are stored.
    pub fn begin(&mut self, node: usize, port: u32, message: &Message, offset: u32, pushed: u32) -> bool {
        let Message { node: to, endpoint, payload, interrupt, .. } = message;
        let (bytes, flags) = (payload.len() as u32, if *interrupt { CHANNEL_INTERRUPT } else { 0 });
        let (node_of, endpoint) = (*to, *endpoint);
        match message.to {
            To::Memory { region, place } => {
                let header = MemoryHeader {
                    node: node_of,
                    endpoint,
                    region,
                    place,
                    offset,
                    bytes,
                    pushed,
                    reserved: 0,
                };
                self.launch(node, port, CHANNEL_MEMORY, &header)
            }
            To::Handler { handler, arguments: [argument0, argument1, argument2, argument3] } => {
                if bytes == 0 {
                    let header = MessageHeader {
                        node: node_of,
                        endpoint,
                        handler,
                        argument0,
                        argument1,
                        argument2,
                        argument3,
                        ..MessageHeader::default()
                    };
                    return self.launch(node, port, CHANNEL_SHORT | flags, &header);
                }
                let header = BulkHeader {
                    node: node_of,
                    endpoint,
                    handler,
                    argument0,
                    argument1,
                    argument2,
                    argument3,
                    offset,
                    bytes,
                    pushed,
                    reserved: 0,
                };
                self.launch(node, port, CHANNEL_BULK | flags, &header)
            }
        }
    }

    /// Posts a segment: `pushed` bytes of the last message's payload are stored.
    pub fn push(&mut self, node: usize, port: u32, pushed: u32) {
        assert!(self.launch(node, port, CHANNEL_SEGMENT, &Segment { pushed, reserved: 0 }));
    }

    /// Sends a message; false if there is no room for it.
    pub fn send(&mut self, node: usize, port: u32, message: &Message, region_bytes: u64) -> bool {
        let bytes = message.payload.len() as u64;
        if !self.hosts[node].nic.accepts_store(port) {
            return false;
        }
        let Some(offset) = self.room(node, port, bytes, region_bytes) else { return false };
        let mut pushed = if message.segment == 0 { bytes } else { bytes.min(message.segment as u64) };
        self.fill(node, port, offset, &message.payload[..pushed as usize]);
        assert!(self.begin(node, port, message, offset as u32, pushed as u32));
        while pushed < bytes {
            let more = (2 * pushed).min(bytes);
            self.fill(node, port, offset + pushed, &message.payload[pushed as usize..more as usize]);
            pushed = more;
            self.push(node, port, pushed as u32);
        }
        let program = self.program(node, port);
        let number = program.launched;
        program.launched += 1;
        if bytes > 0 {
            program.in_flight.push((number, offset, offset + bytes));
        }
        true
    }

    /// The next message, if it has arrived.
    pub fn receive(&mut self, node: usize, port: u32) -> Option<Came> {
        let host = &self.hosts[node];
        let Program { opening, read, released, .. } = host.programs.get(&port)?;
        let base = u64::from(port) * PROGRAM_BYTES;
        let slice = base + SLICES + read % u64::from(opening.slices) * SLICE_BYTES;
        let word = |place: usize| host.word(slice + 8 * place as u64);
        let status = SliceStatus::decode(word(SLICE_STATUS_WORD))?;
        if u64::from(status.number) != read + 1 {
            return None;
        }
        assert!(read - released < opening.slices.into(), "more unreleased slices than the queue has");
        let words: Vec<u64> =
            (SLICE_TAG_WORD - usize::from(status.words)..SLICE_TAG_WORD).map(word).collect();
        let (handler, payload) = match *words {
            [handler] => (handler, &[][..]),
            [place, handler] => {
                let (begin, bytes) = (place & 0xffff_ffff, place >> 32);
                assert!(begin + bytes <= opening.payload_bytes && bytes > 0, "{place:#x}");
                (handler, &host.memory[(base + PAYLOAD + begin) as usize..][..bytes as usize])
            }
            _ => panic!("{words:x?}"),
        };
        let [first, second] = [word(SLICE_TAG_WORD), word(SLICE_TAG_WORD + 1)];
        let came = Came {
            node: status.source_node,
            channel: status.source_port,
            handler: handler as u32,
            arguments: [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32],
            payload: payload.to_vec(),
            interrupt: status.interrupt,
        };
        self.program(node, port).read += 1;
        Some(came)
    }

    /// Releases all slices that were read.
    pub fn release(&mut self, node: usize, port: u32) {
        let program = self.program(node, port);
        program.released = program.read;
        let released = program.read;
        self.handle(node, Input::Register { port, register: Register::Released(released) });
    }

    /// Checks that no card holds any of its memory.
    pub fn check_memory(&self) {
        for (node, host) in self.hosts.iter().enumerate() {
            let [taken, freed] = ["queue_bytes_taken", "queue_bytes_freed"].map(|name| host.counter(name));
            assert_eq!(taken, freed, "node {node}: card memory is leaked");
        }
    }
}

/// The node that an Ethernet address in a frame names.
fn node_at(frame: &[u8], place: usize) -> usize {
    u16::from_be_bytes([frame[place + 4], frame[place + 5]]).into()
}
