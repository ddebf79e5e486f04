//! Resources of groups: the unit's machine, host memory through the card, and messages to send.

use alloc::collections::{BTreeMap, VecDeque};

use niclab_abi::inic::{POST_OK, PostEvent};

use crate::models::inic::card::{Card, Received};
use crate::models::inic::collectives::message::{HEAD_BYTES, Head};
use crate::models::inic::command::RegionPart;
use crate::nic::FrameBytes;
use crate::nic::frame::SharedFrame;
use crate::parts::host_interface::Machine;
use crate::parts::port::Promise;
use crate::time::Time;

/// Minimum data of a message after its header, even with short packets. Ours: a bound.
const MIN_PIECE_BYTES: usize = 32;

/// An operation that the host has posted.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) user: u64,
    pub(super) memory: RegionPart,
    pub(super) interrupt: bool,
    /// Promised slice of its event.
    pub(super) place: Promise,
}

impl Local {
    /// Reports the operation's result to the host.
    pub(super) fn tell(self, io: &mut Io<'_>, group: u32, moved: usize, result: u32) {
        let Self { user, memory, interrupt, place } = self;
        let event = PostEvent {
            user,
            bytes: memory.bytes,
            moved_bytes: moved as u64,
            source: group.into(),
            ..PostEvent::default()
        };
        io.card.effects.counters.collectives += u64::from(result == POST_OK);
        io.card.tell_done(io.at, place, result, event, interrupt);
    }
}

/// Name of a multicast: its root, and the root's number for it.
pub(super) type Name = (u16, u32);

/// Purpose of a read of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Values of an operation, by its number.
    Round(u32),
    /// Data of a multicast.
    Cast(u32),
}

/// A pending read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Name of the group, and this card's membership.
    pub(super) group: (u32, u32),
    pub(super) of: Of,
    pub(super) here: Time,
}

/// A message to another card.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) at: Time,
    pub(super) node: u16,
    pub(super) message: SharedFrame,
}

/// State that all groups share.
#[derive(Debug)]
pub(super) struct Unit {
    machine: Machine,
    /// Max bytes of a message.
    message_bytes: usize,
    pub(super) send_queue: VecDeque<Outgoing>,
    pub(super) reads: BTreeMap<u64, Reading>,
    /// Complete multicasts that wait for room, by group and membership.
    pub(super) whole: VecDeque<(u32, u32, Name)>,
}

impl Unit {
    pub(super) const fn new(machine: Machine) -> Self {
        Self {
            machine,
            message_bytes: 0,
            send_queue: VecDeque::new(),
            reads: BTreeMap::new(),
            whole: VecDeque::new(),
        }
    }

    /// Sets the length of the assembly's packets.
    pub(super) const fn set_packet_bytes(&mut self, bytes: usize) {
        self.message_bytes = bytes;
    }

    /// Max bytes of data in a message: a whole number of the longest values.
    pub(super) fn piece_bytes(&self) -> usize {
        let room = self.message_bytes.saturating_sub(HEAD_BYTES).max(MIN_PIECE_BYTES);
        room / size_of::<u64>() * size_of::<u64>()
    }

    /// Adds a multicast that waits for room.
    pub(super) fn wait_for_room(&mut self, group: u32, own: u32, name: Name) {
        self.whole.push_back((group, own, name));
    }
}

/// The environment of a group. Its instant advances with the unit's work.
pub(super) struct Io<'a> {
    pub(super) card: &'a mut Card,
    pub(super) unit: &'a mut Unit,
    pub(super) at: Time,
}

impl Io<'_> {
    /// Charges work on this number of bytes.
    pub(super) fn work(&mut self, bytes: usize) {
        self.at = self.card.effects.interface.work(&mut self.unit.machine, self.at, bytes as u64).end;
        self.card.effects.spend(bytes as u64 >> 6);
    }

    /// Sends a message.
    pub(super) fn send(&mut self, node: u16, head: Head, data: &[u8]) {
        self.work(0);
        let message = head.emit(data).into();
        self.unit.send_queue.push_back(Outgoing { at: self.at, node, message });
    }

    /// Reads host memory.
    pub(super) fn read(&mut self, memory: RegionPart, group: (u32, u32), of: Of) {
        let ranges = self.card.ranges(&memory, 0, memory.bytes);
        let effects = &mut self.card.effects;
        let token = effects.next_token();
        let here = effects.dma_read(self.at, token, ranges, FrameBytes::new());
        self.unit.reads.insert(token, Reading { group, of, here });
    }

    /// Stores a part of a result.
    pub(super) fn store(&mut self, memory: RegionPart, offset: usize, data: &[u8]) {
        if !data.is_empty() {
            let frame = SharedFrame::from(data);
            self.card.write(self.at, &memory, offset as u64, &frame, 0..data.len());
        }
    }

    /// Stores another host's message into the room that was posted first.
    pub(super) fn deliver(&mut self, source: u16, data: &[u8]) {
        let Some(room) = self.card.take_room() else { return };
        let at = self.at.max(room.ready);
        let frame = SharedFrame::from(data);
        let visible = self.card.store(at, &room, 0, &frame, 0..data.len());
        let received = Received {
            source,
            number: 0,
            bytes: data.len() as u64,
            result: POST_OK,
            message: None,
            interrupts: false,
        };
        self.card.on_received(visible, room, &received);
    }
}
