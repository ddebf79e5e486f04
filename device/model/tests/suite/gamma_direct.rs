//! GAMMA cards with CPU-driven transfers: received frames wait in the card's FIFO. The driver reads their headers and
//! takes the data directly to its destination.

use std::sync::Arc;

use niclab_abi::control::{
    OP_RESET, Reply, STATUS_BAD_ADDRESS, STATUS_BAD_OPERATION, STATUS_BAD_VALUE, STATUS_NOT_FOUND, STATUS_OK,
    STATUS_PORT_BUSY,
};
use niclab_abi::gamma::{FRAME_DATA, FRAME_FIRST, FRAME_LAST, FrameHead};
use niclab_abi::rings::{
    FifoHead, FifoSend, FifoTake, OP_FIFO_LOOK, OP_FIFO_SEND, OP_FIFO_TAKE, OP_RING_INTERRUPTS,
    OP_RING_START, RING_RECEIVE, RING_STATUS_DAMAGED, RingInterrupts, RingStart,
};
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::fabric::ethernet::{ETHER_TYPE_CLUSTER, Header, mac_of_node};
use niclab_model::models::gamma::Gamma;
use niclab_model::models::gamma::descriptor::{MODEL, config};
use niclab_model::models::gamma::wire::PROTOCOL;
use niclab_model::nic::alone::Alone;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::registry::{CardContext, Value, Values};
use niclab_model::nic::{HostRange, Input, Nic, Observed, Output};
use niclab_model::platform::ledger::Transaction;
use niclab_model::platform::profile::Profile;
use niclab_model::time::Time;

use crate::support::{bare_request, request};

const MEMORY_BYTES: u64 = 0x10_0000;
const HEAD_BYTES: u32 = 22;

struct Node {
    card: Alone<Gamma>,
    memory: Vec<u8>,
    frames: Vec<SharedFrame>,
    stored: Vec<HostRange>,
    replies: Vec<(Time, u32, Vec<u8>)>,
    interrupts: usize,
    now: Time,
}

impl Node {
    fn new(node: u16, transfer: &str) -> Self {
        let mut profile = Profile::default();
        profile.bus.pio_read.latency_ps = 500_000;
        let values = Values::defaults(&MODEL)
            .with("transfer", Value::Word(transfer.to_owned()))
            .with("window_frames", Value::Number(0));
        let profile = Arc::new(profile);
        let card =
            Gamma::new(config(&values, CardContext { node, nodes: 4, mtu_bytes: 1_500, profile })).unwrap();
        Self {
            card: Alone::new(card),
            memory: (0..MEMORY_BYTES).map(|at| at as u8).collect(),
            frames: Vec::new(),
            stored: Vec::new(),
            replies: Vec::new(),
            interrupts: 0,
            now: Time::ZERO,
        }
    }

    fn feed(&mut self, input: Input<'_>) {
        self.card.handle(self.now, input);
        while let Some(output) = self.card.poll_output() {
            match output {
                Output::DmaRead { at, token, ranges, into, .. } => {
                    let mut bytes = into;
                    let is_whole = ranges.iter().all(|range| range.address + range.bytes <= MEMORY_BYTES);
                    for range in ranges.iter().filter(|_| is_whole) {
                        bytes.extend_from_slice(
                            &self.memory[range.address as usize..][..range.bytes as usize],
                        );
                    }
                    self.card.handle(at, Input::DmaData { token, bytes, is_whole });
                }
                Output::DmaFrame { frame, bytes, ranges, .. } => {
                    let [range] = ranges[..] else { panic!("{ranges:?}") };
                    self.memory[range.address as usize..][..bytes.len()].copy_from_slice(&frame[bytes]);
                    self.stored.push(range);
                }
                Output::Frame { frame, .. } => self.frames.push(frame),
                Output::Interrupt { .. } => self.interrupts += 1,
                Output::Reply { at, bytes, .. } => {
                    let status = Reply::from_bytes(&bytes).unwrap().status;
                    self.replies.push((at, status, bytes[Reply::BYTES..].to_vec()));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends a control request. Returns the answer's status and body.
    fn ask(&mut self, request: &[u8]) -> (u32, Vec<u8>) {
        self.feed(Input::Control { token: 3, request });
        let (at, status, body) = self.replies.pop().expect("an answer");
        self.now = self.now.max(at);
        (status, body)
    }

    fn look(&mut self) -> FifoHead {
        let (status, body) = self.ask(&bare_request(OP_FIFO_LOOK));
        assert_eq!(status, STATUS_OK);
        FifoHead::from_bytes(&body).unwrap()
    }

    fn take(&mut self, address: u64, skip_bytes: u32, bytes: u32) -> u32 {
        self.ask(&request(OP_FIFO_TAKE, &FifoTake { address, skip_bytes, bytes })).0
    }

    fn arrive(&mut self, frame: &SharedFrame) {
        let head = self.now;
        self.now = Time::from_ps(head.as_ps() + 200_000_000);
        self.feed(Input::Frame { frame, head, message: None });
    }

    fn rest(&mut self) {
        while let Some(at) = self.card.poll_timeout() {
            self.now = self.now.max(at);
            self.feed(Input::Timeout);
        }
    }

    fn count(&self, name: &str) -> u64 {
        let counters = Observed::counters(&self.card.nic);
        counters.into_iter().find(|(known, _)| *known == name).expect("a counter").1
    }
}

fn send(from: u16, address: u64, bytes: u32) -> FifoSend {
    let header =
        Header { destination: mac_of_node(1), source: mac_of_node(from), ether_type: ETHER_TYPE_CLUSTER };
    let mut head = header.emit().to_vec();
    head.resize(24, 0);
    let kind = FRAME_DATA | FRAME_FIRST | FRAME_LAST;
    let active = FrameHead { protocol: PROTOCOL, kind, source_port: 1, target_port: 2, number: 1 };
    active.to_bytes(&mut head[14..]).unwrap();
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    FifoSend {
        head_0: word(0),
        head_1: word(8),
        head_2: word(16),
        head_bytes: HEAD_BYTES,
        bytes,
        address,
        message_bytes: bytes.into(),
    }
}

fn sent(bytes: u32) -> SharedFrame {
    let mut a = Node::new(0, "cpu-driven");
    assert_eq!(a.ask(&request(OP_FIFO_SEND, &send(0, 0x100, bytes))).0, STATUS_OK);
    a.frames.pop().expect("it is sent")
}

#[test]
fn a_message_goes_to_its_destination_while_the_cpu_waits() {
    let mut a = Node::new(0, "cpu-driven");
    assert_eq!(a.ask(&request(OP_FIFO_SEND, &send(0, 0x100, 300))).0, STATUS_OK);
    let line = |node: &Node, transaction| node.card.ledger().line(transaction);
    assert_eq!((line(&a, Transaction::DmaRead).bytes, line(&a, Transaction::HostSend).count), (300, 1));
    assert_eq!((line(&a, Transaction::PioRead).count, line(&a, Transaction::Doorbell).count), (1, 0));
    let frame = a.frames.pop().expect("it is sent");

    let mut b = Node::new(1, "cpu-driven");
    assert_eq!(b.look(), FifoHead::default());
    b.arrive(&frame);
    let found = b.look();
    let head = [found.head_0, found.head_1, found.head_2].map(u64::to_le_bytes).concat();
    assert_eq!((found.bytes, found.status, &head[..], b.interrupts), (322, 0, &frame[..24], 0));
    let before = b.now;
    assert_eq!(b.take(0x8_0003, HEAD_BYTES, 300), STATUS_OK);
    assert!(b.now > before, "the processor waited");
    assert_eq!(b.memory[0x8_0003..][..300], a.memory[0x100..][..300]);
    assert_eq!(b.stored, [HostRange { address: 0x8_0003, bytes: 300 }], "only its data");
    // One read of the empty FIFO, four of status and header, one for the transfer.
    assert_eq!((line(&b, Transaction::PioRead).count, line(&b, Transaction::HostCopy).count), (6, 0));
    assert_eq!((line(&b, Transaction::HostReceive).count, b.card.nic.delivered(2)), (1, 1));
    assert_eq!((b.look().bytes, b.take(0, 0, 0)), (0, STATUS_NOT_FOUND));
}

#[test]
fn frames_wait_in_the_fifo_and_overflows_are_counted() {
    let frame = sent(1_400);
    let mut b = Node::new(1, "cpu-driven");
    (0..4).for_each(|_| b.arrive(&frame));
    assert_eq!((b.count("fifo_overflows"), b.count("frames_in")), (2, 0), "4,096 bytes hold two");
    for _ in 0..2 {
        assert_eq!(b.take(0x8_0000, HEAD_BYTES, 1_400), STATUS_OK);
    }
    assert_eq!((b.look().bytes, b.count("frames_in")), (0, 2));
    b.arrive(&frame);
    assert_eq!(b.look().bytes, 1_422);
}

#[test]
fn one_interrupt_covers_all_frames_until_the_fifo_is_empty() {
    let frame = sent(100);
    let mut b = Node::new(1, "cpu-driven");
    let wanted = RingInterrupts { frames: 1, delay_ns: 0, reserved: 0 };
    assert_eq!(b.ask(&request(OP_RING_INTERRUPTS, &wanted)).0, STATUS_OK);
    b.arrive(&frame);
    b.arrive(&frame);
    assert_eq!(b.interrupts, 1);
    for _ in 0..2 {
        assert_eq!((b.look().bytes, b.take(0x8_0000, HEAD_BYTES, 100)), (122, STATUS_OK));
    }
    assert_eq!(b.look().bytes, 0);
    b.arrive(&frame);
    assert_eq!(b.interrupts, 2);
}

#[test]
fn a_damaged_frame_is_reported_and_dropped() {
    let mut damaged = sent(50).to_vec();
    damaged[40] ^= 4;
    let mut b = Node::new(1, "cpu-driven");
    b.arrive(&SharedFrame::from(niclab_model::nic::FrameBytes::from_slice(&damaged)));
    assert_eq!(b.look().status, RING_STATUS_DAMAGED);
    assert_eq!((b.take(0, 0, 0), b.stored.len()), (STATUS_OK, 0));
    assert_eq!((b.look().bytes, b.card.nic.delivered(2)), (0, 0));
}

#[test]
fn invalid_fifo_requests_are_refused_and_block_nothing() {
    let mut b = Node::new(1, "cpu-driven");
    b.arrive(&sent(100));
    for (skip, bytes) in [(0, 123), (122, 1), (u32::MAX, u32::MAX)] {
        assert_eq!(b.take(0x8_0000, skip, bytes), STATUS_BAD_VALUE);
    }
    assert_eq!(b.take(u64::MAX - 3, 0, 100), STATUS_BAD_ADDRESS);
    assert_eq!((b.look().bytes, b.stored.len()), (122, 0), "the frame is still there");
    let start = RingStart { ring: RING_RECEIVE, skip_bytes: 8, first: 0x1000, reserved: 0 };
    assert_eq!(b.ask(&request(OP_RING_START, &start)).0, STATUS_BAD_OPERATION);

    let mut a = Node::new(0, "cpu-driven");
    let good = send(0, 0x100, 300);
    for (wrong, expected) in [
        (send(2, 0x100, 300), STATUS_BAD_VALUE),
        (FifoSend { head_bytes: 13, ..good }, STATUS_BAD_VALUE),
        (FifoSend { head_bytes: 25, ..good }, STATUS_BAD_VALUE),
        (FifoSend { bytes: 1_489, ..good }, STATUS_BAD_VALUE),
        (FifoSend { bytes: u32::MAX, ..good }, STATUS_BAD_VALUE),
        (FifoSend { address: u64::MAX - 9, ..good }, STATUS_BAD_ADDRESS),
        (FifoSend { address: MEMORY_BYTES - 9, ..good }, STATUS_BAD_ADDRESS),
        (good, STATUS_OK),
    ] {
        assert_eq!(a.ask(&request(OP_FIFO_SEND, &wrong)).0, expected, "{wrong:?}");
    }
    let counts = ["transmit_forged", "transmit_bad_length", "transmit_bad_address"].map(|name| a.count(name));
    assert_eq!((counts, a.frames.len()), ([1, 4, 1], 1));
    let mut rings = Node::new(0, "descriptors");
    for refused in [request(OP_FIFO_SEND, &good), bare_request(OP_FIFO_LOOK)] {
        assert_eq!(rings.ask(&refused).0, STATUS_BAD_OPERATION);
    }
}

#[test]
fn only_one_send_waits_for_room_and_a_reset_answers_it() {
    let mut a = Node::new(0, "cpu-driven");
    let full = request(OP_FIFO_SEND, &send(0, 0x100, 1_488));
    (0..2).for_each(|_| assert_eq!(a.ask(&full).0, STATUS_OK));
    a.feed(Input::Control { token: 4, request: &full });
    assert!(a.replies.is_empty(), "the FIFO is full");
    assert_eq!(a.ask(&full).0, STATUS_PORT_BUSY);
    a.rest();
    let (_, status, _) = a.replies.pop().expect("it is sent in the end");
    assert_eq!((status, a.frames.len()), (STATUS_OK, 3));
    (0..2).for_each(|_| assert_eq!(a.ask(&full).0, STATUS_OK));
    a.feed(Input::Control { token: 5, request: &full });
    a.feed(Input::Control { token: 6, request: &bare_request(OP_RESET) });
    let statuses: Vec<u32> = a.replies.iter().map(|(_, status, _)| *status).collect();
    assert_eq!(statuses, [STATUS_PORT_BUSY, STATUS_OK]);
}
