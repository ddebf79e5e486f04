//! An ULTRA card as a program sees it: slices, status line, interrupts. Two cards on a wire that takes no time.

use niclab_abi::FromBytes;
use niclab_abi::bar::{CODE_ACKNOWLEDGE, CODE_INTERRUPT, CODE_NOTIFY};
use niclab_abi::control::{OP_PORT_CLOSE, OP_REVOKE, PortName, Reply, Revoke, STATUS_OK};
use niclab_abi::event::{CAUSE_ARMED, CAUSE_MESSAGE};
use niclab_abi::receive::{REFUSED_RELEASE, SLICE_BYTES, SliceStatus};
use niclab_model::models::ultra::{Config, Ultra};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::{Input, Nic, Observed, Output, Register};
use niclab_model::platform::ledger::{Line, Transaction};
use niclab_model::platform::profile::Profile;
use niclab_model::time::Time;

use crate::support::{HostMemory, authorize_request, control, open_port, request, route_request, store};

const BASE: u64 = 0x1000;
const SLICES_ADDRESS: u64 = BASE + 64;
const SLICES: u32 = 8;

/// Node 0 sends from its port 0 to node 1's.
struct Pair {
    nics: [Alone<Ultra>; 2],
    memories: [HostMemory; 2],
    /// Writes of node 1, in order: address and number of words.
    bursts: Vec<(u64, usize)>,
    /// Interrupts of node 1, in order.
    causes: Vec<u32>,
    /// Status lines of node 0, in order.
    lines: Vec<[u64; 6]>,
    /// Number of node 0's next frames that the wire drops.
    swallow: usize,
}

impl Pair {
    fn connected(credits: u32) -> Self {
        let card = |node| Alone::new(Ultra::new(Config::new(node, 2, Profile::ultra_200mhz_htx())).unwrap());
        let mut pair = Self {
            nics: [card(0), card(1)],
            memories: Default::default(),
            bursts: Vec::new(),
            causes: Vec::new(),
            lines: Vec::new(),
            swallow: 0,
        };
        for nic in &mut pair.nics {
            assert_eq!(open_port(nic, SLICES, BASE, 0), 0);
        }
        pair.control(1, &authorize_request(0, 0, 0, credits));
        pair.control(0, &route_request(0, 1, 0));
        pair
    }

    fn control(&mut self, node: usize, request: &[u8]) {
        let (status, _, outputs) = control(&mut self.nics[node], Time::ZERO, request);
        assert_eq!(status, STATUS_OK);
        for output in outputs {
            self.carry_out(node, output);
        }
    }

    fn handle(&mut self, node: usize, input: Input<'_>) {
        let now = self.nics[node].host_clock();
        self.nics[node].handle(now, input);
        self.carry(node);
    }

    fn carry(&mut self, node: usize) {
        while let Some(output) = self.nics[node].poll_output() {
            self.carry_out(node, output);
        }
    }

    fn carry_out(&mut self, node: usize, output: Output) {
        match output {
            Output::Frame { .. } if node == 0 && self.swallow > 0 => self.swallow -= 1,
            Output::Frame { at, tail, frame, message } => {
                self.nics[1 - node].handle(tail, Input::Frame { head: at, frame: &frame, message });
                self.carry(1 - node);
            }
            Output::DmaWrite { address, words, .. } => {
                self.memories[node].write(address, &words);
                match node {
                    0 => self.lines.push(self.memories[0].status_line(BASE)),
                    _ => self.bursts.push((address, words.len())),
                }
            }
            Output::Interrupt { cause, port, .. } => {
                assert_eq!((node, port), (1, 0));
                self.causes.push(cause);
            }
            other => panic!("unexpected output {other:?}"),
        }
    }

    fn launch(&mut self, payload: &[u64], flags: u16) {
        assert!(self.nics[0].accepts_store(0));
        self.handle(0, Input::PageStore(store(0, payload, [0xa, 0xb], flags)));
    }

    fn register(&mut self, register: Register) {
        self.handle(1, Input::Register { port: 0, register });
    }
}

#[test]
fn a_slice_is_one_burst_that_ends_at_its_status() {
    let mut pair = Pair::connected(8);
    pair.launch(&[1, 2, 3], CODE_INTERRUPT);
    pair.launch(&[], 0);
    pair.launch(&[1, 2, 3, 4, 5, 6, 7, 8], CODE_ACKNOWLEDGE);
    let (first, second, third) =
        (SLICES_ADDRESS, SLICES_ADDRESS + SLICE_BYTES, SLICES_ADDRESS + 2 * SLICE_BYTES);
    assert_eq!(pair.bursts, [(first + 5 * 8, 6), (second + 8 * 8, 3), (third, 11)]);
    let (status, payload, tag) = pair.memories[1].slice(SLICES_ADDRESS, 0).unwrap();
    let expected = SliceStatus {
        words: 3,
        interrupt: true,
        acknowledge: false,
        source_port: 0,
        source_node: 0,
        number: 1,
    };
    assert_eq!((status, payload, tag), (expected, vec![1, 2, 3], [0xa, 0xb]));
    let (status, payload, _) = pair.memories[1].slice(SLICES_ADDRESS, 2).unwrap();
    assert_eq!((status.number, status.acknowledge, payload.len()), (3, true, 8));
}

#[test]
fn the_status_line_is_written_every_eight_posts_or_on_request() {
    let mut pair = Pair::connected(8);
    (0..7).for_each(|_| pair.launch(&[], 0));
    assert!(pair.lines.is_empty());
    pair.launch(&[], 0);
    assert_eq!(pair.lines, [[8, 0, 0, 8, 0, 0]]);
    pair.register(Register::Released(8));
    pair.launch(&[], CODE_NOTIFY);
    assert_eq!(pair.lines[1..], [[9, 1, 0, 9, 0, 0]]);
    pair.launch(&[], CODE_ACKNOWLEDGE);
    assert_eq!(pair.lines[2..], [[10, 1, 1, 10, 0, 0]]);
    assert_eq!(pair.nics[1].counters().card.acknowledgements_sent, 1);
}

#[test]
fn without_credit_posts_wait_and_nothing_is_lost() {
    let mut pair = Pair::connected(2);
    (0..3).for_each(|_| pair.launch(&[], CODE_NOTIFY));
    assert_eq!(pair.bursts.len(), 2);
    assert_eq!(pair.lines.last().unwrap()[3], 2, "sent");
    pair.register(Register::Released(1));
    assert_eq!(pair.bursts.len(), 3);
    assert_eq!(pair.lines.last().unwrap()[..4], [3, 3, 0, 3]);
}

#[test]
fn a_route_may_be_set_before_the_authorization() {
    let mut pair = Pair::connected(8);
    pair.control(1, &request(OP_PORT_CLOSE, &PortName::default()));
    open_port(&mut pair.nics[1], SLICES, BASE, 0);
    pair.control(0, &request(OP_PORT_CLOSE, &PortName::default()));
    open_port(&mut pair.nics[0], SLICES, BASE, 0);
    pair.control(0, &route_request(0, 1, 0));
    pair.launch(&[], 0);
    assert!(pair.bursts.is_empty());
    pair.control(1, &authorize_request(0, 0, 0, 2));
    assert_eq!(pair.bursts.len(), 1, "offered, requested, announced, sent: no timer needed");
}

#[test]
fn credit_of_lost_packets_returns_with_the_next_packet() {
    let mut pair = Pair::connected(4);
    pair.swallow = 3;
    (0..3).for_each(|_| pair.launch(&[], 0));
    assert_eq!((pair.swallow, pair.bursts.len()), (0, 0));
    (0..4).for_each(|_| pair.launch(&[], 0));
    assert_eq!((pair.bursts.len(), pair.nics[1].counters().missing), (4, 3));
    assert_eq!(pair.nics[0].poll_timeout(), None, "nothing waits");
    pair.launch(&[], 0);
    assert_eq!(pair.bursts.len(), 4, "the limit of four slices is reached");
}

#[test]
fn a_lost_credit_request_is_repeated_with_backoff() {
    let mut pair = Pair::connected(4);
    pair.swallow = usize::MAX;
    pair.control(0, &route_request(0, 1, 0));
    pair.launch(&[], 0);
    let mut waits_ps = Vec::new();
    let mut now = pair.nics[0].host_clock();
    for _ in 0..20 {
        let deadline = pair.nics[0].poll_timeout().unwrap();
        waits_ps.push(deadline.since(now).as_ps());
        now = deadline;
        pair.nics[0].handle(now, Input::Timeout);
        pair.carry(0);
    }
    let config = pair.nics[0].config();
    assert!(waits_ps[1..].windows(2).all(|two| two[1] == (two[0] * 2).min(config.credit_probe_most.as_ps())));
    assert_eq!(waits_ps[19], config.credit_probe_most.as_ps());
    pair.swallow = 0;
    pair.nics[0].handle(pair.nics[0].poll_timeout().unwrap(), Input::Timeout);
    pair.carry(0);
    assert_eq!((pair.bursts.len(), pair.nics[0].poll_timeout()), (1, None));
}

#[test]
fn each_requested_interrupt_is_raised_once() {
    let mut pair = Pair::connected(8);
    pair.launch(&[], 0);
    assert_eq!(pair.causes, []);
    pair.launch(&[], CODE_INTERRUPT);
    assert_eq!(pair.causes, [CAUSE_MESSAGE]);
    pair.register(Register::Armed(2));
    assert_eq!(pair.causes, [CAUSE_MESSAGE, CAUSE_ARMED], "stored already");
    pair.register(Register::Armed(4));
    pair.launch(&[], 0);
    assert_eq!(pair.causes.len(), 2);
    pair.launch(&[], 0);
    assert_eq!(pair.causes[2..], [CAUSE_ARMED]);
    pair.launch(&[], 0);
    assert_eq!(pair.causes.len(), 3, "one shot");
    pair.register(Register::Armed(6));
    pair.register(Register::Armed(0));
    pair.launch(&[], 0);
    assert_eq!(pair.causes.len(), 3, "disarmed");
    assert_eq!(pair.nics[1].counters().card.interrupts, 3);
}

#[test]
fn only_stored_slices_can_be_released_and_only_forward() {
    let mut pair = Pair::connected(8);
    (0..3).for_each(|_| pair.launch(&[], 0));
    pair.register(Register::Released(2));
    assert_eq!(pair.nics[1].counters().card.refused, 0);
    for (released, refused) in [(1, 1), (4, 2), (3, 2), (3, 2)] {
        pair.register(Register::Released(released));
        assert_eq!(pair.nics[1].counters().card.refused, refused, "{released}");
    }
    assert_eq!(pair.memories[1].status_line(BASE)[4..], [REFUSED_RELEASE, 2]);
}

#[test]
fn a_revoked_sender_is_discarded_until_authorized_again() {
    let mut pair = Pair::connected(8);
    pair.launch(&[], 0);
    pair.control(1, &request(OP_REVOKE, &Revoke { port: 0, node: 0, node_port: 0, reserved: 0 }));
    pair.launch(&[], 0);
    assert_eq!((pair.bursts.len(), pair.nics[1].counters().unauthorized), (1, 1));
    // The revoked account still holds one slice.
    let full = control(&mut pair.nics[1], Time::ZERO, &authorize_request(0, 0, 0, 8));
    assert_ne!(full.0, STATUS_OK);
    pair.control(1, &authorize_request(0, 0, 0, 7));
    (0..7).for_each(|_| pair.launch(&[], 0));
    assert_eq!(pair.bursts.len(), 8);
    pair.register(Register::Released(8));
    pair.launch(&[], 0);
    assert_eq!(pair.bursts.len(), 9);
}

#[test]
fn a_close_is_answered_after_its_last_effect() {
    let mut pair = Pair::connected(8);
    pair.launch(&[], CODE_NOTIFY);
    let last = pair.nics[0].host_clock();
    let close = request(OP_PORT_CLOSE, &PortName::default());
    pair.nics[0].handle(Time::ZERO, Input::Control { token: 9, request: &close });
    let Some(Output::Reply { at, token: 9, bytes }) = pair.nics[0].poll_output() else { panic!("an answer") };
    assert_eq!(Reply::from_bytes(&bytes).unwrap().status, STATUS_OK);
    assert!(at > last, "the status line was not visible before");
}

#[test]
fn the_ledger_has_each_transaction_of_a_message_once() {
    let mut pair = Pair::connected(8);
    let before = pair.nics.each_ref().map(|nic| nic.ledger().clone());
    pair.launch(&[1, 2], CODE_INTERRUPT);
    let profile = Profile::ultra_200mhz_htx();
    let found = |node: usize, transaction: Transaction| {
        let (now, then) = (pair.nics[node].ledger().line(transaction), before[node].line(transaction));
        (now.count - then.count, now.bytes - then.bytes, now.price_ps - then.price_ps)
    };
    let bus_word_ps = profile.bus.dma_write.per_word_ps;
    for (node, transaction, expected) in [
        (0, Transaction::HostSend, (1, 32, profile.host.send_ps)),
        (0, Transaction::PioWrite, (1, 32, 55_000 + 5_000 + 4 * bus_word_ps)),
        (0, Transaction::NiCycles, (2, 64, 5_000 * ((1 + 4 + 1) + (3 + 4 + 1)))),
        (0, Transaction::DmaWrite, (0, 0, 0)),
        (1, Transaction::NiCycles, (2, 64, 5_000 * ((3 + 4 + 1) + (1 + 4 + 1)))),
        (1, Transaction::DmaWrite, (1, 40, 35_000 + 5_000 + 5 * bus_word_ps)),
        (1, Transaction::HostReceive, (1, 32, profile.host.receive_ps)),
        (1, Transaction::Interrupt, (1, 0, profile.bus.interrupt_ps)),
        (1, Transaction::HostInterrupt, (1, 0, profile.host.interrupt_ps)),
    ] {
        assert_eq!(found(node, transaction), expected, "{transaction:?} of node {node}");
    }
    for nic in &pair.nics {
        let mut sum = Line::default();
        for (_, line) in nic.ledger().lines() {
            sum.count += line.count;
            sum.price_ps += line.price_ps;
        }
        assert_eq!((sum.count, sum.price_ps), (nic.ledger().total().count, nic.ledger().total().price_ps));
    }
}

/// The paper sums this path to "below 1 us" (section 4): host, core, card, card, core, host. Here without a switch.
#[test]
fn a_message_takes_under_a_microsecond_between_programs() {
    let mut pair = Pair::connected(8);
    let begin = Time::from_ps(1_000_000_000);
    pair.nics[0].handle(begin, Input::PageStore(store(0, &[], [1, 2], 0)));
    pair.carry(0);
    let taken_ns = pair.nics[1].host_clock().since(begin).as_ps() / 1_000;
    // Nanoseconds: 105 for software; 55 + 10 until the first word has arrived; 10 cycles until Store has it; 20 for the
    // burst, which does not wait for its last word; 35; and 105 for software.
    assert_eq!(taken_ns, 105 + 65 + 50 + 20 + 35 + 105);
}
