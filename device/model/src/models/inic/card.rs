//! State of the card that components share: host, port, memory, and the sends and receives that programs have posted.

use alloc::collections::{BTreeMap, VecDeque};

use niclab_abi::control::PortOpen;
use niclab_abi::event::CAUSE_MESSAGE;
use niclab_abi::inic::{
    POST_BAD_RANGE, POST_BAD_REGION, POST_EVENT_DONE, POST_EVENT_FAILED, POST_EVENT_RECEIVED,
    POST_EVENT_REFUSED, POST_EVENT_SENT, POST_HANDED_OVER, POST_OK, POST_TRUNCATED, PostEvent,
    post_event_status,
};
use niclab_abi::receive::{REFUSED_COMMAND, SLICE_NUMBER_SHIFT, SLICE_WORDS};
use niclab_abi::to_words;

use crate::models::inic::command::{Receive, RegionPart, Send};
use crate::models::inic::config::Config;
use crate::models::inic::counters::Effects;
use crate::models::inic::per_node::PerNode;
use crate::models::inic::send_memory::SendMemory;
use crate::models::inic::token::{Data, Message, Payload};
use crate::nic::frame::SharedFrame;
use crate::nic::{Content, DmaWords, FrameBytes, HostRanges};
use crate::parts::effects::WORD_BYTES;
use crate::parts::fragments::Cutter;
use crate::parts::port::{Promise, ReceiveQueue, RequesterPage};
use crate::parts::regions::Regions;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Number of the only port: the header contains nodes, but no ports.
pub(super) const PORT: usize = 0;
/// Bits of an event's status word for the event's type. The number in it shows that the event is valid.
const STATUS_BITS: u64 = (1 << SLICE_NUMBER_SHIFT) - 1;

/// The open port.
#[derive(Debug)]
pub(super) struct InicPort {
    pub(super) page: RequesterPage,
    pub(super) queue: ReceiveQueue,
    /// When the last data stored for it is visible.
    data_visible: Time,
}

impl InicPort {
    fn last_effect(&self) -> Time {
        self.page.visible().max(self.queue.visible()).max(self.data_visible)
    }
}

/// A message in flight.
#[derive(Debug)]
struct SendState {
    send: Send,
    cutter: Cutter,
    /// Number among the messages to its node.
    number: u32,
    /// Packets so far.
    packets: u32,
    /// Packets that are not finished. A packet is finished when it is sent, or if the assembly uses acknowledgements,
    /// when it is acknowledged.
    open_packets: u32,
    is_cut: bool,
    /// Promised slice for the event that the card has read the data; none after that event.
    promise: Option<Promise>,
    message: TraceTag,
}

/// Room for a message.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) receive: Receive,
    /// When the card received it.
    pub(super) ready: Time,
    promise: Promise,
}

/// An event from another card.
#[derive(Debug)]
pub(super) enum News {
    /// A message from that card.
    Message { at: Time, source: u16, message: FrameBytes },
    /// That card does not answer.
    Unreachable { at: Time, node: u16 },
}

/// A packet of a message.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) payload: Payload,
    pub(super) is_last: bool,
    pub(super) message: Option<TraceTag>,
}

/// How a message ended at its receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) source: u16,
    pub(super) number: u32,
    /// Bytes received, with or without room.
    pub(super) bytes: u64,
    /// `POST_OK` or `POST_INCOMPLETE`.
    pub(super) result: u32,
    pub(super) message: Option<TraceTag>,
    /// A component requests an interrupt of the host.
    pub(super) interrupts: bool,
}

/// Bytes of packets that wait, by the node that sent them.
#[derive(Debug, Default)]
pub(super) struct Waiting(PerNode<usize>);

impl Waiting {
    /// Bytes of a node's packets.
    pub(super) fn of(&self, node: u16) -> usize {
        self.0.get(node).copied().unwrap_or(0)
    }

    /// Bytes of all nodes' packets.
    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Adds a waiting packet.
    pub(super) fn add(&mut self, node: u16, bytes: usize) {
        *self.0.of(node) += bytes;
    }

    /// Removes a packet that no longer waits.
    pub(super) fn remove(&mut self, node: u16, bytes: usize) {
        if let Some(known) = self.0.known(node) {
            *known = known.saturating_sub(bytes);
        }
    }
}

/// Work that must end before the card loads another assembly. It only decreases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Left {
    messages: usize,
    waiting_bytes: usize,
    kept_bytes: usize,
}

/// The card.
pub(super) struct Card {
    pub(super) node: u16,
    pub(super) effects: Effects,
    pub(super) port: Option<InicPort>,
    pub(super) regions: [Regions; 1],
    /// Transactions on the card's internal bus for each sent packet, and for each received packet.
    pub(super) crossings: [u32; 2],
    sends: BTreeMap<u64, SendState>,
    /// Messages between cards that are in flight, with their destinations: messages of the groups to their neighbours.
    own: BTreeMap<u64, (u16, SharedFrame)>,
    news: VecDeque<News>,
    /// Message numbers start after this one.
    first_number: u32,
    /// Number of the last message to each node.
    numbers: PerNode<u32>,
    rooms: VecDeque<Room>,
    /// Failed messages that are not yet reported to the program.
    failures: VecDeque<(u32, PostEvent)>,
    /// Unacknowledged packets.
    pub(super) kept: SendMemory,
    /// Received packets that wait for room in the host's memory, or for an earlier packet.
    pub(super) waiting: Waiting,
}

impl Card {
    pub(super) fn new(config: &Config, effects: Effects, regions: Regions) -> Self {
        Self {
            node: config.node,
            effects,
            port: None,
            regions: [regions],
            crossings: config.crossings,
            sends: BTreeMap::new(),
            own: BTreeMap::new(),
            news: VecDeque::new(),
            first_number: config.first_number,
            numbers: PerNode::default(),
            rooms: VecDeque::new(),
            failures: VecDeque::new(),
            kept: SendMemory::default(),
            waiting: Waiting::default(),
        }
    }

    /// Whether the card can take a command: only if the queue has a free slice for its event. A command never waits
    /// for other nodes. Otherwise room that is posted after it would wait as well, and two nodes could deadlock. So
    /// the queue's slices limit the commands, and the outstanding limit limits the messages whose data the card has.
    pub(super) fn accepts_command(&self) -> bool {
        self.port.as_ref().is_some_and(|port| port.queue.has_room(1))
    }

    /// Opens the port.
    pub(super) fn open(&mut self, open: &PortOpen) {
        let page = RequesterPage::new(open.status_address);
        self.port = Some(InicPort { page, queue: ReceiveQueue::new(open), data_visible: Time::ZERO });
    }

    /// Closes the port. Its messages end, except for packets that were sent. Returns when the last effect is visible.
    pub(super) fn close(&mut self) -> Option<Time> {
        let port = self.port.take()?;
        let sends = core::mem::take(&mut self.sends);
        self.effects.card().discarded_at_close += sends.values().filter(|send| !send.is_cut).count() as u64;
        sends.into_values().filter_map(|send| send.promise).for_each(Promise::void);
        self.failures.clear();
        self.rooms.drain(..).for_each(|room| room.promise.void());
        self.regions[PORT].close_all();
        Some(port.last_effect())
    }

    /// When the last effect of the port is visible.
    pub(super) fn last_effect(&self) -> Time {
        self.port.as_ref().map_or(Time::ZERO, InicPort::last_effect)
    }

    /// Checks that memory is part of one of the port's regions.
    ///
    /// # Errors
    /// The result that reports why it is not.
    pub(super) fn check(&self, memory: &RegionPart) -> Result<(), u32> {
        let region = self.regions[PORT].get(memory.region).ok_or(POST_BAD_REGION)?;
        if region.holds(memory.offset, memory.bytes) { Ok(()) } else { Err(POST_BAD_RANGE) }
    }

    /// The ranges of some bytes of memory; none if its region was closed.
    pub(super) fn ranges(&self, memory: &RegionPart, offset: u64, bytes: u64) -> HostRanges {
        let region = self.regions[PORT].get(memory.region);
        region.map_or_else(HostRanges::new, |region| region.ranges(memory.offset + offset, bytes))
    }

    /// Posts a message. Returns its token.
    pub(super) fn send(&mut self, send: Send, message: TraceTag) -> Option<Message> {
        let port = self.port.as_mut()?;
        let number = count(&mut self.numbers, send.node, self.first_number);
        let promise = Some(port.queue.promise(1));
        let id = self.effects.next_token();
        let sending = SendState {
            cutter: Cutter::new(send.memory.bytes),
            number,
            packets: 0,
            open_packets: 0,
            is_cut: false,
            promise,
            message,
            send,
        };
        let node = sending.send.node;
        self.sends.insert(id, sending);
        Some(Message { node, send: id })
    }

    /// Sends a message to another card. Returns its token.
    pub(super) fn send_own(&mut self, node: u16, message: SharedFrame) -> Message {
        let send = self.effects.next_token();
        self.own.insert(send, (node, message));
        Message { node, send }
    }

    /// Takes a message from another card.
    pub(super) fn on_message(&mut self, at: Time, data: &Data) {
        let message = FrameBytes::from_slice(data.frame.get(data.bytes.clone()).unwrap_or_default());
        self.news.push_back(News::Message { at, source: data.source, message });
    }

    /// The oldest event from other cards.
    pub(super) fn take_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Promises a slice for the event of an operation, if one is free.
    pub(super) fn promise(&mut self) -> Option<Promise> {
        let port = self.port.as_mut()?;
        port.queue.has_room(1).then(|| port.queue.promise(1))
    }

    /// Reports the end of a group's operation, once all its data is visible.
    pub(super) fn tell_done(
        &mut self,
        at: Time,
        place: Promise,
        result: u32,
        event: PostEvent,
        interrupt: bool,
    ) {
        let Some(port) = self.port.as_mut() else { return place.void() };
        self.effects.attribute(None);
        let at = at.max(port.data_visible);
        let (visible, _) = tell(port, at, place, (POST_EVENT_DONE, result), event, &mut self.effects);
        if interrupt {
            self.effects.interrupt(visible, CAUSE_MESSAGE, PORT, None);
        }
    }

    /// Adds posted room.
    pub(super) fn receive(&mut self, ready: Time, receive: Receive) {
        let Some(port) = self.port.as_mut() else { return };
        let promise = port.queue.promise(1);
        self.rooms.push_back(Room { receive, ready, promise });
    }

    /// Whether any room is posted.
    pub(super) fn has_room_posted(&self) -> bool {
        !self.rooms.is_empty()
    }

    /// The room that was posted first.
    pub(super) fn take_room(&mut self) -> Option<Room> {
        self.rooms.pop_front()
    }

    /// Drops room of a port that has closed.
    pub(super) fn drop_room(room: Room) {
        room.promise.void();
    }

    /// The next packet of a message, with at most `most` bytes of its data; none if the message has ended.
    pub(super) fn cut(&mut self, send: u64, most: u64, is_placed: bool) -> Option<Cut> {
        if let Some((_, message)) = self.own.get(&send) {
            return Some(Cut { payload: Payload::Own(message.clone()), is_last: true, message: None });
        }
        let sending = self.sends.get_mut(&send).filter(|sending| !sending.is_cut)?;
        let (bytes, is_last) = sending.cutter.next(most);
        let place = is_placed.then_some((sending.number, sending.packets));
        sending.packets = sending.packets.wrapping_add(1);
        sending.open_packets += 1;
        sending.is_cut = is_last;
        let payload = Payload::Host { send, bytes, place };
        Some(Cut { payload, is_last, message: Some(sending.message) })
    }

    /// The memory of a message's data; none if the message has ended.
    pub(super) fn memory_of(&self, send: u64) -> Option<RegionPart> {
        Some(self.sends.get(&send)?.send.memory)
    }

    /// The card has read the last data of a message at `at`.
    pub(super) fn on_read(&mut self, at: Time, send: u64) {
        let Some(sending) = self.sends.get_mut(&send) else { return };
        let counters = self.effects.card();
        counters.messages_sent += 1;
        counters.bytes_sent += sending.send.memory.bytes;
        let Some(port) = self.port.as_mut() else { return };
        port.page.line.sent += 1;
        let Some(place) = sending.promise.take() else { return };
        if sending.send.tell_sent {
            let event = sending.event();
            let event = PostEvent { moved_bytes: event.bytes, ..event };
            tell(port, at, place, (POST_EVENT_SENT, POST_OK), event, &mut self.effects);
        } else {
            port.queue.forgo(place);
            self.tell_failures(at);
        }
    }

    /// A packet of a message is finished: the card waits for nothing more of it.
    pub(super) fn on_packet_over(&mut self, send: u64) {
        if self.own.remove(&send).is_some() {
            return;
        }
        let Some(sending) = self.sends.get_mut(&send) else { return };
        sending.open_packets = sending.open_packets.saturating_sub(1);
        if !(sending.is_cut && sending.open_packets == 0) {
            return;
        }
        debug_assert!(sending.promise.is_none(), "a message whose packets are finished was read");
        if let Some(place) = self.sends.remove(&send).and_then(|sending| sending.promise) {
            place.void();
        }
    }

    /// Fails a message. If the event that its memory is free is due, the card reports that first. The failure's event
    /// waits for a free slice.
    pub(super) fn fail(&mut self, at: Time, send: u64, result: u32) {
        if let Some((node, _)) = self.own.remove(&send) {
            self.news.push_back(News::Unreachable { at, node });
        }
        let (Some(sending), Some(port)) = (self.sends.remove(&send), self.port.as_mut()) else { return };
        let event = sending.event();
        match sending.promise {
            Some(place) if sending.send.tell_sent => {
                tell(port, at, place, (POST_EVENT_SENT, POST_OK), event, &mut self.effects);
            }
            Some(place) => port.queue.forgo(place),
            None => {}
        }
        self.failures.push_back((result, event));
        self.tell_failures(at);
    }

    /// Reports failed messages while the queue has free slices. At most as many reports wait as messages were in
    /// flight.
    pub(super) fn tell_failures(&mut self, at: Time) {
        let Some(port) = self.port.as_mut() else { return };
        while port.queue.has_room(1)
            && let Some((result, event)) = self.failures.pop_front()
        {
            let place = port.queue.promise(1);
            tell(port, at, place, (POST_EVENT_FAILED, result), event, &mut self.effects);
        }
    }

    /// Whether a message with a smaller name is in flight.
    pub(super) fn has_sends_before(&self, name: u64) -> bool {
        self.sends.range(..name).next().is_some() || self.own.range(..name).next().is_some()
    }

    /// The remaining messages with names before this one, and the remaining packets.
    pub(super) fn left_before(&self, name: u64) -> Left {
        let messages = self.sends.range(..name).count() + self.own.range(..name).count();
        Left { messages, kept_bytes: self.kept.bytes(), waiting_bytes: self.waiting.bytes() }
    }

    /// Fails the messages with names before this one, because the assembly that sends them ends.
    pub(super) fn fail_before(&mut self, at: Time, name: u64) {
        let sends = self.sends.range(..name).map(|(send, _)| *send);
        let sends = sends.chain(self.own.range(..name).map(|(send, _)| *send));
        let sends: alloc::vec::Vec<u64> = sends.collect();
        for send in sends {
            self.fail(at, send, POST_HANDED_OVER);
        }
    }

    /// Prepares for the next assembly: frees the memory of all packets, and renumbers messages. Messages that wait for
    /// the assembly get the first numbers.
    pub(super) fn restart(&mut self) {
        self.kept = SendMemory::default();
        self.waiting = Waiting::default();
        self.numbers = PerNode::default();
        for sending in self.sends.values_mut() {
            sending.number = count(&mut self.numbers, sending.send.node, self.first_number);
        }
    }

    /// Ends the messages that read a region, and drops room in it.
    pub(super) fn close_region(&mut self, at: Time, region: u32) {
        let reading = self
            .sends
            .iter()
            .filter(|(_, it)| it.send.memory.region == region && !it.is_cut)
            .map(|(id, _)| *id);
        let reading: alloc::vec::Vec<u64> = reading.collect();
        for send in reading {
            self.fail(at, send, POST_BAD_REGION);
        }
        let rooms = core::mem::take(&mut self.rooms);
        for room in rooms {
            if room.receive.memory.region != region {
                self.rooms.push_back(room);
            } else if let Some(port) = self.port.as_mut() {
                let event = PostEvent { user: room.receive.user, ..PostEvent::default() };
                let told = (POST_EVENT_FAILED, POST_BAD_REGION);
                tell(port, at, room.promise, told, event, &mut self.effects);
            }
        }
    }

    /// Reports that a command was refused.
    pub(super) fn refuse_command(&mut self, at: Time, user: u64, result: u32) {
        let Some(port) = self.port.as_mut() else { return };
        self.effects.counters.commands_refused += 1;
        let place = port.queue.promise(1);
        let event = PostEvent { user, ..PostEvent::default() };
        tell(port, at, place, (POST_EVENT_REFUSED, result), event, &mut self.effects);
        port.page.refuse(at, REFUSED_COMMAND, &mut self.effects);
    }

    /// Stores a part of a frame into room, up to its end. Returns when it is visible.
    pub(super) fn store(
        &mut self,
        ready: Time,
        room: &Room,
        offset: u64,
        frame: &SharedFrame,
        bytes: core::ops::Range<usize>,
    ) -> Time {
        self.write(ready, &room.receive.memory, offset, frame, bytes)
    }

    /// Stores a part of a frame into memory, up to its end. Returns when it is visible.
    pub(super) fn write(
        &mut self,
        ready: Time,
        memory: &RegionPart,
        offset: u64,
        frame: &SharedFrame,
        bytes: core::ops::Range<usize>,
    ) -> Time {
        let fits = (bytes.len() as u64).min(memory.bytes.saturating_sub(offset));
        let ranges = self.ranges(memory, offset, fits);
        if ranges.is_empty() {
            return ready;
        }
        let visible = self.effects.dma_frame(ready, frame, bytes.start..bytes.start + fits as usize, ranges);
        if let Some(port) = self.port.as_mut() {
            port.data_visible = port.data_visible.max(visible);
        }
        visible
    }

    /// Reports a message that ended in this room.
    pub(super) fn on_received(&mut self, at: Time, room: Room, received: &Received) {
        let Some(port) = self.port.as_mut() else { return room.promise.void() };
        let Received { source, number, bytes, result, message, interrupts } = *received;
        let moved_bytes = bytes.min(room.receive.memory.bytes);
        let has_memory = self.regions[PORT].get(room.receive.memory.region).is_some();
        let result = if result == POST_OK && !has_memory { POST_BAD_REGION } else { result };
        let is_cut = moved_bytes < bytes && result == POST_OK;
        let result = if is_cut { POST_TRUNCATED } else { result };
        let event = PostEvent {
            user: room.receive.user,
            bytes,
            moved_bytes,
            source: source.into(),
            message: number.into(),
            ..PostEvent::default()
        };
        self.effects.attribute(message);
        let told = (POST_EVENT_RECEIVED, result);
        let (visible, consumed) = tell(port, at, room.promise, told, event, &mut self.effects);
        let counters = &mut self.effects.counters;
        counters.truncated += u64::from(is_cut);
        if result == POST_OK || is_cut {
            counters.card.messages_received += 1;
            counters.card.bytes_received += moved_bytes;
            if let Some(message) = message {
                self.effects.interface.ledger_mut().complete(&message, consumed);
            }
        } else {
            counters.incomplete += 1;
        }
        if room.receive.interrupt || interrupts {
            let cause = CAUSE_MESSAGE;
            self.effects.interrupt(visible, cause, PORT, message);
        }
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        self.close();
    }
}

/// The number of the next message to a node.
fn count(numbers: &mut PerNode<u32>, node: u16, first: u32) -> u32 {
    let number = numbers.of_or(node, || first);
    *number = number.wrapping_add(1);
    *number
}

impl SendState {
    fn event(&self) -> PostEvent {
        PostEvent {
            user: self.send.user,
            bytes: self.send.memory.bytes,
            source: self.send.node.into(),
            message: self.number.into(),
            ..PostEvent::default()
        }
    }
}

/// Stores an event into its promised slice. Returns when it is visible, and when the program has it.
fn tell(
    port: &mut InicPort,
    ready: Time,
    place: Promise,
    (kind, result): (u32, u32),
    event: PostEvent,
    effects: &mut Effects,
) -> (Time, Time) {
    let place = port.queue.store(place);
    let event = PostEvent { status: post_event_status(kind, result, place.number as u32), ..event };
    let words = DmaWords::from_slice(&to_words::<SLICE_WORDS>(&event));
    let visible = effects.dma_write(ready, place.address, words, Content::Completion { status: STATUS_BITS });
    port.queue.on_visible(visible);
    effects.counters.events += 1;
    let consumed = effects.interface.host_receive(visible, SLICE_WORDS as u64 * WORD_BYTES);
    effects.unattributed(|effects| port.queue.on_consumed(consumed, effects));
    let message = effects.interface.ledger().attributed();
    port.queue.wake(visible, PORT, message, effects);
    (visible, consumed)
}
