//! The state machine alone: its posts, and its reactions to events. `niclab-tests` runs it over cards.

use std::cell::RefCell;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

use niclab_abi::from_words;
use niclab_abi::matching::{
    AppendCommand, COMMAND_APPEND, COMMAND_GET, COMMAND_MASK, COMMAND_PUT, ENTRY_OVERFLOW, TransferCommand,
};

use super::*;
use crate::matching::Handle;

const EAGER: u64 = 16;

/// A region of bytes.
#[derive(Clone, Debug)]
struct Bytes(Rc<RefCell<Vec<u8>>>);

impl Bytes {
    fn new(bytes: u64) -> Self {
        Self(Rc::new(RefCell::new(vec![0; bytes as usize])))
    }

    fn part(&self, region: u32, offset: u64, bytes: u64) -> BufferPart<Self> {
        BufferPart { buffer: self.clone(), part: Part { region, offset, bytes } }
    }
}

impl Buffer for Bytes {
    fn copy(&self, from: Part, other: &Self, to: Part) {
        let begin = from.offset as usize;
        let bytes = self.0.borrow()[begin..begin + from.bytes as usize].to_vec();
        let begin = to.offset as usize;
        other.0.borrow_mut()[begin..begin + bytes.len()].copy_from_slice(&bytes);
    }
}

/// Posted commands.
#[derive(Debug)]
enum Launched {
    Append(u32, AppendCommand),
    Put(TransferCommand),
    Get(TransferCommand),
}

/// Node 0 of two, each of which may be four messages ahead. Its initial posts are already taken.
struct Node {
    messages: Messages<Bytes>,
    overflow: Bytes,
}

impl Node {
    fn new() -> Self {
        let terms = Terms::new(64, 2, EAGER, 4).expect("enough");
        let overflow = Bytes::new(terms.overflow_bytes());
        let place = overflow.part(9, 0, terms.overflow_bytes());
        let mut this = Self { messages: Messages::new(Address { node: 0, port: 3 }, terms, place), overflow };
        let begin = this.launched();
        assert!(
            matches!(&begin[..], [slabs @ .., Launched::Append(..)] if slabs.len() as u64 == terms.slabs()),
            "{begin:?}"
        );
        this
    }

    /// A node to which node 1 has answered.
    fn greeted() -> Self {
        let mut this = Self::new();
        let memory = Bytes::new(8);
        let _request = this.messages.send(1, 0, memory.part(1, 0, 8));
        this.launched();
        this.event(EventKind::Acknowledged, OF_GREETING | 1, |_| {});
        this.event(EventKind::Acknowledged, 1, |_| {});
        this.launched();
        this
    }

    fn launched(&mut self) -> Vec<Launched> {
        let mut launched = Vec::new();
        while let Some(Encoded { words, code }) = self.messages.command().copied() {
            let transfer = || from_words::<TransferCommand>(&words).expect("long enough");
            launched.push(match code & COMMAND_MASK {
                COMMAND_APPEND => Launched::Append(code, from_words(&words).expect("long enough")),
                COMMAND_PUT => Launched::Put(transfer()),
                COMMAND_GET => Launched::Get(transfer()),
                other => panic!("command {other}"),
            });
            self.messages.on_launched();
        }
        launched
    }

    fn try_event(
        &mut self,
        kind: EventKind,
        user: u64,
        change: impl FnOnce(&mut Event),
    ) -> Result<(), Outcome> {
        let mut event = Event {
            kind,
            outcome: Outcome::Done,
            handle: Handle::from_number(0),
            user,
            initiator: Address { node: 1, port: 3 },
            portal: 0,
            match_bits: 0,
            header_data: 0,
            requested_bytes: 0,
            moved_bytes: 0,
            offset: 0,
        };
        change(&mut event);
        self.messages.on_event(&event)
    }

    fn event(&mut self, kind: EventKind, user: u64, change: impl FnOnce(&mut Event)) {
        assert_eq!(self.try_event(kind, user, change), Ok(()));
    }

    fn claim(&mut self, request: &Request, slab: u64, offset: u64, bytes: u64) {
        let overflow = EventKind::Claimed { overflow: Handle::from_number(1), overflow_user: OF_SLAB | slab };
        self.event(overflow, request.number(), |event| {
            (event.offset, event.requested_bytes) = (offset, bytes);
        });
    }
}

#[test]
fn credits_are_limited_by_the_room_for_events() {
    let credits = |events, nodes, wanted| Terms::new(events, nodes, EAGER, wanted).map(|terms| terms.credits);
    assert_eq!(credits(256, 2, 16), Ok(16));
    assert_eq!(credits(64, 2, 16), Ok(7));
    assert!(credits(64, 32, 16).is_err() && credits(256, 2, 1).is_err());
}

#[test]
fn an_absent_peer_is_greeted_until_it_is_ready() {
    let mut node = Node::new();
    let memory = Bytes::new(8);
    let request = node.messages.send(1, 5, memory.part(1, 0, 8));
    for _ in 0..2 {
        let [Launched::Put(greeting)] = &node.launched()[..] else { panic!("a greeting") };
        assert_eq!((greeting.portal, greeting.bytes, greeting.node, greeting.port), (CREDITS as u8, 0, 1, 3));
        assert!(!node.messages.waits_for_greeting());
        node.event(EventKind::Acknowledged, greeting.user, |event| event.outcome = Outcome::NoTarget);
        assert!(node.messages.waits_for_greeting() && node.launched().is_empty());
        node.messages.greet_again();
    }
    node.launched();
    node.event(EventKind::Acknowledged, OF_GREETING | 1, |_| {});
    let [Launched::Put(put)] = &node.launched()[..] else { panic!("the message") };
    assert_eq!((put.portal, put.match_bits, put.region, put.bytes), (MESSAGES as u8, 5, 1, 8));
    assert_eq!(node.messages.take_ended(&request), Ended::No);
    node.event(EventKind::Acknowledged, request.number(), |_| {});
    let message = Message { node: 1, tag: 5, bytes: 8, is_cut: false };
    assert_eq!(node.messages.take_ended(&request), Ended::Done(message));
    assert_eq!(node.messages.take_ended(&request), Ended::Unknown);
}

#[test]
fn a_sender_is_never_ahead_by_more_than_its_credit() {
    let mut node = Node::greeted();
    let memory = Bytes::new(8);
    for _ in 0..6 {
        let _request = node.messages.send(1, 0, memory.part(1, 0, 8));
    }
    // One of the four was sent before, by `greeted`.
    assert_eq!(node.launched().len(), 3);
    node.event(EventKind::Put, NO_REQUEST, |event| event.header_data = 2);
    assert_eq!(node.launched().len(), 2);
    // Attack: the peer claims more than were sent.
    node.event(EventKind::Put, NO_REQUEST, |event| event.header_data = u64::MAX);
    assert_eq!(node.launched().len(), 1);
}

#[test]
fn a_refused_message_costs_no_credit() {
    let mut node = Node::greeted();
    let memory = Bytes::new(8);
    for _ in 0..10 {
        let request = node.messages.send(1, 0, memory.part(1, 0, 8));
        assert_eq!(node.launched().len(), 1);
        node.event(EventKind::Acknowledged, request.number(), |event| event.outcome = Outcome::NoRoom);
        assert_eq!(node.messages.take_ended(&request), Ended::Failed(Outcome::NoRoom));
    }
}

#[test]
fn a_long_message_is_announced_and_fetched() {
    let mut node = Node::greeted();
    let memory = Bytes::new(100);
    let send = node.messages.send(1, 7, memory.part(1, 40, 60));
    let [Launched::Append(_, entry), Launched::Put(header)] = &node.launched()[..] else { panic!() };
    assert_eq!((entry.portal, entry.region, entry.offset, entry.bytes), (MEMORY as u8, 1, 40, 60));
    assert_eq!((header.match_bits, header.bytes), (LONG | 7, 0));
    assert_eq!(header.header_data >> LONG_SERIAL_SHIFT, entry.match_bits);
    node.event(EventKind::Acknowledged, send.number(), |_| {});
    assert_eq!(node.messages.take_ended(&send), Ended::No, "it was only announced");
    node.event(EventKind::Get, send.number(), |_| {});
    let sent = Message { node: 1, tag: 7, bytes: 60, is_cut: false };
    assert_eq!(node.messages.take_ended(&send), Ended::Done(sent));

    // The other side, with less room.
    let header_data = header.header_data;
    let receive = node.messages.receive(None, None, memory.part(2, 8, 50));
    node.launched();
    node.event(EventKind::Put, receive.number(), |event| {
        (event.match_bits, event.header_data) = (LONG | 7, header_data);
    });
    let [Launched::Get(get)] = &node.launched()[..] else { panic!("the rest") };
    assert_eq!((get.portal, get.match_bits), (MEMORY as u8, header_data >> LONG_SERIAL_SHIFT));
    assert_eq!((get.region, get.offset, get.bytes), (2, 8, 50));
    node.event(EventKind::Reply, receive.number(), |_| {});
    let received = Message { node: 1, tag: 7, bytes: 50, is_cut: true };
    assert_eq!(node.messages.take_ended(&receive), Ended::Done(received));
}

#[test]
fn a_claimed_slab_is_linked_again_before_credit_is_returned() {
    let mut node = Node::new();
    let memory = Bytes::new(100);
    node.overflow.0.borrow_mut()[2 * 16 + 4..][..3].copy_from_slice(b"abc");
    for bytes in [3, 16] {
        node.event(EventKind::Unexpected, OF_SLAB | 1, |event| event.requested_bytes = bytes);
    }
    node.event(EventKind::Unlinked, OF_SLAB | 1, |_| {});
    assert!(node.launched().is_empty(), "it holds two messages");
    let first = node.messages.receive(Some(1), Some(0), memory.part(2, 10, 90));
    node.launched();
    node.claim(&first, 1, 4, 3);
    assert_eq!(memory.0.borrow()[9..14], *b"\0abc\0");
    let message = Message { node: 1, tag: 0, bytes: 3, is_cut: false };
    assert_eq!(node.messages.take_ended(&first), Ended::Done(message));
    assert!(node.launched().is_empty(), "half the credit is two messages");
    let second = node.messages.receive(Some(1), Some(0), memory.part(2, 10, 90));
    node.launched();
    node.claim(&second, 1, 16, 16);
    let launched = node.launched();
    let [Launched::Append(code, slab), Launched::Put(credit)] = &launched[..] else { panic!("{launched:?}") };
    assert_eq!((code & ENTRY_OVERFLOW, slab.offset, slab.bytes), (ENTRY_OVERFLOW, 32, 32));
    assert_eq!((credit.portal, credit.header_data), (CREDITS as u8, 2));
}

/// A faulty device may report any value.
#[test]
fn a_claim_outside_of_all_slabs_fails_and_copies_nothing() {
    for (slab, offset) in [(1, 30), (0, u64::MAX), (1 << 40, 0)] {
        let mut node = Node::new();
        let memory = Bytes::new(8);
        let request = node.messages.receive(None, None, memory.part(2, 0, 8));
        node.claim(&request, slab, offset, 8);
        assert_eq!(node.messages.take_ended(&request), Ended::Failed(Outcome::BadRange));
    }
}

#[test]
fn a_refused_command_ends_its_request_or_is_reported() {
    let mut node = Node::new();
    let memory = Bytes::new(8);
    let request = node.messages.receive(None, None, memory.part(2, 0, 8));
    node.event(EventKind::Refused, request.number(), |event| event.outcome = Outcome::ListFull);
    assert_eq!(node.messages.take_ended(&request), Ended::Failed(Outcome::ListFull));
    let told = node.try_event(EventKind::Refused, OF_SLAB, |event| event.outcome = Outcome::ListFull);
    assert_eq!(told, Err(Outcome::ListFull));
}
