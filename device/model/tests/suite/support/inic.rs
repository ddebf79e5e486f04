//! Hosts with INIC cards on a wire with faults: byte-addressed memory, and programs that post commands and read events.

use std::collections::BTreeMap;

use niclab_abi::control::{OP_PORT_OPEN, PORT_ANY, PortOpen, Reply};
use niclab_abi::event::CAUSE_HANDED_OVER;
use niclab_abi::inic::{
    BarrierCommand, MulticastCommand, OP_POST_GROUP, POST_BARRIER, POST_EVENT_DONE, POST_EVENT_SENT,
    POST_MULTICAST, POST_RECEIVE, POST_REDUCE, POST_SEND, PostEvent, PostGroup, ReduceCommand,
    post_event_kind, post_event_result,
};
use niclab_abi::receive::SLICE_BYTES;
use niclab_abi::region::RegionOpened;
use niclab_abi::{FromBytes, to_words};
use niclab_model::models::inic::{Config, Inic};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::firmware_reload::{FirmwareReloadError, FirmwareReloadStep};
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::{Input, Nic, Output, PageStore, Register};
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::random::Random;
use niclab_model::time::{Span, Time};

use super::matching::region_request;
use super::request;

const MEMORY_BYTES: usize = 1 << 20;
const QUEUE: u64 = 0x4000;
const EVENTS: u32 = 256;
/// Address of the registered memory; its length follows.
pub const REGION: u64 = 0x2_0000;
pub const REGION_BYTES: u64 = 0xd_0000;

/// Faults of frames, each as a rate per 1,000 frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: u32,
    pub duplicated: u32,
    pub damaged: u32,
    pub late: u32,
}

/// An event that a program has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub kind: u32,
    pub result: u32,
    pub words: PostEvent,
}

/// A host with its card.
pub struct Host {
    pub nic: Alone<Inic>,
    pub memory: Vec<u8>,
    pub region: u32,
    pub interrupts: u32,
    /// Interrupts after a firmware reload.
    pub firmware_reloads: u32,
    pub reads_until_failure: Option<u32>,
    reply: Option<Vec<u8>>,
    read: u64,
    is_open: bool,
}

/// Cards on one wire.
pub struct Wire {
    pub hosts: Vec<Host>,
    pub now: Time,
    pub faults: Faults,
    /// Nodes that are disconnected: the wire drops their frames in both directions.
    pub cut: Vec<usize>,
    pub frames: u64,
    random: Random,
    flying: BTreeMap<(Time, u64), (SharedFrame, Option<TraceTag>)>,
}

impl Wire {
    pub fn new(seed: u64, faults: Faults, config: impl Fn(u16) -> Config, nodes: u16) -> Self {
        let host = |node| Host {
            nic: Alone::new(Inic::new(config(node)).unwrap()),
            memory: vec![0; MEMORY_BYTES],
            region: 0,
            interrupts: 0,
            firmware_reloads: 0,
            reads_until_failure: None,
            reply: None,
            read: 0,
            is_open: false,
        };
        let mut wire = Self {
            hosts: (0..nodes).map(host).collect(),
            now: Time::ZERO,
            faults,
            cut: Vec::new(),
            frames: 0,
            random: Random::new(seed, 0),
            flying: BTreeMap::new(),
        };
        (0..usize::from(nodes)).for_each(|node| wire.open(node));
        wire
    }

    pub fn open(&mut self, node: usize) {
        let open = PortOpen {
            port: PORT_ANY,
            slices: EVENTS,
            slices_address: QUEUE,
            status_address: 0x1000,
            fifo_words: 0,
            flags: 0,
        };
        self.hosts[node].memory[..REGION as usize].fill(0);
        self.hosts[node].read = 0;
        assert_eq!(self.control(node, &request(OP_PORT_OPEN, &open)).0, 0);
        let (status, body) = self.control(node, &region_request(0, &[(REGION, REGION_BYTES)]));
        assert_eq!(status, 0);
        self.hosts[node].region = RegionOpened::from_bytes(&body).unwrap().region;
        self.hosts[node].is_open = true;
    }

    pub fn control(&mut self, node: usize, request: &[u8]) -> (u32, Vec<u8>) {
        self.handle(node, Input::Control { token: 1, request });
        let reply = self.hosts[node].reply.take().expect("an answer");
        (Reply::from_bytes(&reply).unwrap().status, reply[Reply::BYTES..].to_vec())
    }

    pub fn handle(&mut self, node: usize, input: Input<'_>) {
        let now = self.now;
        self.hosts[node].nic.handle(now, input);
        self.carry(node);
    }

    /// Gives a card one step of a firmware reload.
    pub fn reload_firmware(
        &mut self,
        node: usize,
        step: FirmwareReloadStep<'_>,
    ) -> Result<(), FirmwareReloadError> {
        let now = self.now;
        let begun = self.hosts[node].nic.reload_firmware(now, step);
        self.carry(node);
        begun
    }

    /// Whether a frame is in flight.
    pub fn is_flying(&self) -> bool {
        !self.flying.is_empty()
    }

    fn carry(&mut self, node: usize) {
        while let Some(output) = self.hosts[node].nic.poll_output() {
            let host = &mut self.hosts[node];
            match output {
                Output::DmaWrite { address, words, .. } => {
                    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                    host.memory[address as usize..][..bytes.len()].copy_from_slice(&bytes);
                }
                Output::DmaFrame { frame, bytes, ranges, .. } => {
                    let mut data = &frame[bytes];
                    for range in ranges {
                        let (part, rest) = data.split_at(range.bytes as usize);
                        host.memory[range.address as usize..][..part.len()].copy_from_slice(part);
                        data = rest;
                    }
                    assert!(data.is_empty());
                }
                Output::DmaRead { token, ranges, mut into, .. } => {
                    let left = host.reads_until_failure;
                    host.reads_until_failure = left.and_then(|left| left.checked_sub(1));
                    let is_whole = left != Some(0);
                    for range in ranges.iter().filter(|_| is_whole) {
                        into.extend_from_slice(
                            &host.memory[range.address as usize..][..range.bytes as usize],
                        );
                    }
                    let now = self.now;
                    host.nic.handle(now, Input::DmaData { token, bytes: into, is_whole });
                }
                Output::Frame { at, frame, message, .. } => self.fly(at, frame, message),
                Output::Interrupt { cause: CAUSE_HANDED_OVER, .. } => host.firmware_reloads += 1,
                Output::Interrupt { .. } => host.interrupts += 1,
                Output::Reply { bytes, .. } => host.reply = Some(bytes.to_vec()),
                other @ (Output::Complete { .. }
                | Output::WindowRead { .. }
                | Output::BorrowedFrame { .. }
                | Output::DmaBorrowed { .. }) => {
                    panic!("unexpected output {other:?}")
                }
            }
        }
    }

    fn fly(&mut self, at: Time, frame: SharedFrame, message: Option<TraceTag>) {
        self.frames += 1;
        let Faults { lost, duplicated, damaged, late } = self.faults;
        let mut hits = |chance: u32| self.random.below(1_000) < chance;
        let (is_lost, is_duplicated, is_damaged) = (hits(lost), hits(duplicated), hits(damaged));
        let mut delays = [1, 1].map(|us| us + if hits(late) { 40 } else { 0 });
        delays[1] += 1;
        let (to, from) = (node_at(&frame, 0), node_at(&frame, 6));
        if is_lost || self.cut.contains(&to) || self.cut.contains(&from) {
            return;
        }
        for delay in delays.iter().take(1 + usize::from(is_duplicated)) {
            let mut frame = frame.clone();
            if is_damaged {
                frame.flip(self.random.below(frame.len() as u32 * 8));
            }
            let at = at.max(self.now) + Span::from_ns(delay * 1_000);
            self.flying.insert((at, self.frames * 2 + delay % 2), (frame, message));
        }
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

    /// Posts a command, if the card takes one.
    pub fn launch(&mut self, node: usize, code: u32, words: [u64; 10]) -> bool {
        let accepts = self.hosts[node].nic.accepts_store(0);
        if accepts {
            self.handle(node, Input::PageStore(PageStore { port: 0, code, words }));
        }
        accepts
    }

    pub fn send(&mut self, node: usize, flags: u32, to: u16, user: u64, offset: u64, bytes: u64) -> bool {
        let target = u64::from(self.hosts[node].region) | u64::from(to) << 32;
        self.launch(node, POST_SEND | flags, [user, target, offset, bytes, 0, 0, 0, 0, 0, 0])
    }

    pub fn receive(&mut self, node: usize, flags: u32, user: u64, offset: u64, bytes: u64) -> bool {
        let region = self.hosts[node].region.into();
        self.launch(node, POST_RECEIVE | flags, [user, region, offset, bytes, 0, 0, 0, 0, 0, 0])
    }

    /// Creates a group of these members, or deletes it if there are none. Returns the status.
    pub fn group(&mut self, node: usize, name: u32, members: &[u32]) -> u32 {
        let head = PostGroup { port: 0, group: name, members: members.len() as u32, reserved: 0 };
        let mut body = request(OP_POST_GROUP, &head);
        body.extend(members.iter().flat_map(|member| member.to_le_bytes()));
        let length = (body.len() - 8) as u32;
        body[4..8].copy_from_slice(&length.to_le_bytes());
        self.control(node, &body).0
    }

    pub fn barrier(&mut self, node: usize, flags: u32, user: u64, group: u32) -> bool {
        self.launch(node, POST_BARRIER | flags, to_words(&BarrierCommand { user, group, reserved: 0 }))
    }

    pub fn multicast(
        &mut self,
        node: usize,
        flags: u32,
        user: u64,
        group: u32,
        (offset, bytes): (u64, u64),
    ) -> bool {
        let region = self.hosts[node].region;
        let command = MulticastCommand { user, region, group, offset, bytes };
        self.launch(node, POST_MULTICAST | flags, to_words(&command))
    }

    pub fn reduce(
        &mut self,
        node: usize,
        flags: u32,
        user: u64,
        group: u32,
        (offset, bytes): (u64, u64),
        (operator, element): (u32, u32),
    ) -> bool {
        let region = self.hosts[node].region;
        let command = ReduceCommand { user, region, group, offset, bytes, operator, element };
        self.launch(node, POST_REDUCE | flags, to_words(&command))
    }

    /// The next event, if it has arrived. Releases its slot.
    pub fn event(&mut self, node: usize) -> Option<Told> {
        let host = &mut self.hosts[node];
        let at = QUEUE + host.read % u64::from(EVENTS) * SLICE_BYTES;
        let words = PostEvent::from_bytes(&host.memory[at as usize..])?;
        if words.status >> 32 != (host.read + 1) & 0xffff_ffff {
            return None;
        }
        host.read += 1;
        let released = host.read;
        self.handle(node, Input::Register { port: 0, register: Register::Released(released) });
        let (kind, result) = (post_event_kind(words.status), post_event_result(words.status));
        assert!((POST_EVENT_SENT..=POST_EVENT_DONE).contains(&kind), "{words:?}");
        Some(Told { kind, result, words })
    }

    pub fn bytes(&self, node: usize, offset: u64, bytes: u64) -> &[u8] {
        &self.hosts[node].memory[(REGION + offset) as usize..][..bytes as usize]
    }

    pub fn write(&mut self, node: usize, offset: u64, bytes: &[u8]) {
        self.hosts[node].memory[(REGION + offset) as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// The node that an Ethernet address in a frame names.
fn node_at(frame: &[u8], place: usize) -> usize {
    u16::from_be_bytes([frame[place + 4], frame[place + 5]]).into()
}
