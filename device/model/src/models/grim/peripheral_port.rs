//! Common code of peripherals: queues for received and sent messages, and a processor that handles one message at a
//! time.
//!
//! The cards write into each other's memory over the node's bus. The NIC writes headers, payload and status. The
//! peripheral writes its messages into the outbound queue of its channel. A message's room is free after its handler.
//! The next handler runs only when all messages of the previous one are in the outbound queue. So any input needs
//! bounded memory.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use niclab_abi::grim::CHANNEL_UNKNOWN;
use niclab_abi::receive::REFUSED_NO_PAYLOAD;

use crate::fabric::ethernet::mac_of_endpoint;
use crate::models::grim::channel::Channel;
use crate::models::grim::command::{Message, Payload};
use crate::models::grim::config::{Config, HEADER_BYTES};
use crate::models::grim::endpoint::Verdict;
use crate::models::grim::peripherals::{
    Arrival, Peripheral, PeripheralContext, PeripheralKind, Sending, Work,
};
use crate::models::grim::wire::{Fragment, Purpose};
use crate::nic::frame::SharedFrame;
use crate::nic::{Address, FrameBytes};
use crate::parts::effects::WORD_BYTES;
use crate::parts::host_interface::{BusTransfer, HostInterface, Machine};
use crate::parts::port::RequesterPage;
use crate::platform::ledger::Ledger;
use crate::platform::node_bus::NodeBus;
use crate::platform::profile::MachineCycles;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Maximum frames that wait at its Ethernet port. (The attack: a guest floods the port, and loses its own frames.)
/// Ours: a bound.
const MAX_FRAMES: usize = 64;

/// Work of handling a message, for [`crate::nic::Nic::work_done`]: allocations, a handler, an answer. Ours: how work
/// is counted.
const HANDLED_WORK: u64 = 40;

/// Bytes that a handler copies, sums or looks up per work unit. Ours: how work is counted.
const BYTES_IN_UNIT: u64 = 16;

/// A message or frame that waits for the processor.
#[derive(Debug)]
enum Waiting {
    Message { arrival: Arrival, visible: Time, tag: Option<TraceTag> },
    Frame { frame: SharedFrame, at: Time },
}

/// The processor's current job.
#[derive(Debug)]
struct Job {
    done: Time,
    /// Bytes of memory that the end of the job frees.
    bytes: u64,
    work: Work,
    tag: Option<TraceTag>,
}

/// Results of a finished job.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) at: Time,
    /// The handled message.
    pub(super) tag: Option<TraceTag>,
    /// Frames for the Ethernet port.
    pub(super) frames: Vec<FrameBytes>,
}

/// A peripheral and its channel.
pub(super) struct PeripheralPort {
    pub(super) number: u8,
    kind: &'static PeripheralKind,
    card: Box<dyn Peripheral>,
    /// Its outbound queue at the NIC.
    pub(super) channel: Channel,
    node: u16,
    interface: HostInterface,
    processor: Machine,
    receive: MachineCycles,
    send: MachineCycles,
    /// Bytes of memory of messages that have begun to arrive and are not handled.
    taken: u64,
    waiting: VecDeque<Waiting>,
    frames: usize,
    job: Option<Job>,
    send_queue: VecDeque<(Sending, Time)>,
    /// Messages with payload in the outbound queue, by number, the oldest first.
    in_queue: VecDeque<(u64, u64)>,
    queue_bytes: u64,
    /// Messages to send that are too long for the channel, name no node of the cluster, or were not delivered.
    pub(super) unsendable: u64,
    /// Frames that its full Ethernet port dropped.
    pub(super) dropped_frames: u64,
    /// Handled messages.
    pub(super) handled: u64,
    /// Work of all handled messages and frames, for [`crate::nic::Nic::work_done`].
    pub(super) spent: u64,
}

impl PeripheralPort {
    pub(super) fn new(number: u8, kind: &'static PeripheralKind, config: &Config) -> Self {
        let context =
            PeripheralContext { mac: mac_of_endpoint(config.node, number), mtu_bytes: config.mtu_bytes };
        let interface = HostInterface::new(Arc::clone(&config.profile));
        let [receive, send] = kind.machines;
        Self {
            number,
            kind,
            card: (kind.build)(context),
            // The channel has no page: the NIC writes its status to the card.
            channel: Channel::new(RequesterPage::new(0), config.headers),
            node: config.node,
            processor: interface.machine(receive, kind.name),
            receive: config.profile.ni.machines.get(receive),
            send: config.profile.ni.machines.get(send),
            interface,
            taken: 0,
            waiting: VecDeque::new(),
            frames: 0,
            job: None,
            send_queue: VecDeque::new(),
            in_queue: VecDeque::new(),
            queue_bytes: 0,
            unsendable: 0,
            dropped_frames: 0,
            handled: 0,
            spent: 0,
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        self.kind.name
    }

    pub(super) const fn has_mac_endpoint(&self) -> bool {
        self.kind.has_mac_endpoint
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        self.interface.ledger()
    }

    pub(super) const fn ledger_mut(&mut self) -> &mut Ledger {
        self.interface.ledger_mut()
    }

    /// Whether the peripheral can take a message that begins with this fragment.
    pub(super) fn judge(&self, fragment: &Fragment) -> Verdict {
        let bytes = HEADER_BYTES + u64::from(fragment.bytes);
        match fragment.purpose {
            // It exposes no memory: other nodes reach it only through handlers.
            Purpose::Memory { .. } => Verdict::Never(niclab_abi::receive::REFUSED_MEMORY),
            Purpose::Handler { .. } if bytes > self.kind.memory_bytes => Verdict::Never(REFUSED_NO_PAYLOAD),
            Purpose::Handler { .. } if self.taken + bytes > self.kind.memory_bytes => Verdict::Wait,
            Purpose::Handler { .. } => Verdict::Now,
        }
    }

    /// Reserves memory for the payload of a message that begins to arrive.
    pub(super) const fn take_room(&mut self, bytes: u32) {
        self.taken += HEADER_BYTES + bytes as u64;
    }

    /// Frees the memory of a message that will not complete.
    pub(super) const fn give_room_back(&mut self, bytes: u32) {
        self.taken -= HEADER_BYTES + bytes as u64;
    }

    /// A complete message has arrived, whose room was reserved.
    pub(super) fn deliver(&mut self, arrival: Arrival, visible: Time, tag: Option<TraceTag>) {
        self.waiting.push_back(Waiting::Message { arrival, visible, tag });
        self.start();
    }

    /// A frame has arrived at its Ethernet port.
    pub(super) fn on_frame(&mut self, at: Time, frame: &SharedFrame) {
        if self.frames == MAX_FRAMES {
            self.dropped_frames += 1;
            return;
        }
        self.frames += 1;
        self.waiting.push_back(Waiting::Frame { frame: frame.clone(), at });
        self.start();
    }

    /// Starts the next job if the processor is idle and all messages of the previous job are in the outbound queue.
    fn start(&mut self) {
        if self.job.is_some() || !self.send_queue.is_empty() {
            return;
        }
        let mut work = Work::default();
        let (ready, bytes, tag) = match self.waiting.pop_front() {
            None => return,
            Some(Waiting::Message { arrival, visible, tag }) => {
                self.handled += 1;
                if !self.card.on_message(&arrival, &mut work) {
                    work.answer(&arrival, CHANNEL_UNKNOWN, [arrival.handler, 0, 0, 0], Vec::new());
                }
                (visible, HEADER_BYTES + arrival.payload.len() as u64, tag)
            }
            Some(Waiting::Frame { frame, at }) => {
                self.frames -= 1;
                self.card.on_frame(&frame, &mut work);
                (at, 0, None)
            }
        };
        let made = work.sendings.iter().map(|sending| sending.payload.len() as u64).sum::<u64>();
        self.spent += HANDLED_WORK + (bytes + made + work.bytes) / BYTES_IN_UNIT;
        self.interface.ledger_mut().attribute(tag);
        let span = self.interface.profile().ni.span(self.receive, work.bytes.div_ceil(WORD_BYTES));
        let done = self.interface.work_for(&mut self.processor, ready, work.bytes, span).end;
        self.job = Some(Job { done, bytes, work, tag });
    }

    /// When the current job ends.
    pub(super) fn due(&self) -> Option<Time> {
        self.job.as_ref().map(|job| job.done)
    }

    /// Ends the current job if it is done by `now`. Frees its memory and returns its results.
    pub(super) fn finish(&mut self, now: Time) -> Option<Done> {
        let Job { done, bytes, work, tag } = self.job.take_if(|job| job.done <= now)?;
        self.taken -= bytes;
        self.send_queue.extend(work.sendings.into_iter().map(|sending| (sending, done)));
        Some(Done { at: done, tag, frames: work.frames })
    }

    /// Whether a message with `bytes` of payload has room in the outbound queue.
    fn has_room(&self, bytes: u64, config: &Config) -> bool {
        let room = bytes == 0 || self.queue_bytes + bytes <= config.payload_bytes;
        self.channel.has_room() && room
    }

    /// Pushes messages while the outbound queue has room, over the bus that the NIC holds. `messages` numbers the
    /// messages of this node. Returns whether it pushed any.
    pub(super) fn push(&mut self, config: &Config, messages: &mut u64, bus: &mut HostInterface) -> bool {
        let mut any = false;
        while let Some((sending, ready)) = self.send_queue.pop_front() {
            let bytes = sending.payload.len() as u64;
            if bytes > config.max_bulk_bytes() || u32::from(sending.to.node) >= config.nodes {
                self.unsendable += 1;
                continue;
            }
            if !self.has_room(bytes, config) {
                self.send_queue.push_front((sending, ready));
                break;
            }
            *messages += 1;
            let tag = TraceTag {
                node: self.node,
                port: self.number.into(),
                number: *messages,
                launched: ready,
                bytes: bytes as u32,
            };
            self.interface.ledger_mut().attribute(Some(tag));
            let span = self.interface.profile().ni.span(self.send, bytes.div_ceil(WORD_BYTES));
            let made = self.interface.work_for(&mut self.processor, ready, bytes, span).end;
            let there = on_bus(&mut self.interface, bus, |interface| {
                interface.transfer(BusTransfer::DeviceToDevice, made, HEADER_BYTES + bytes).end
            });
            self.launch(sending, tag, there);
            any = true;
        }
        self.start();
        any
    }

    fn launch(&mut self, sending: Sending, tag: TraceTag, there: Time) {
        let Sending { to: Address { node, port }, handler, arguments, payload, interrupt } = sending;
        let bytes = payload.len() as u32;
        let message = Message {
            node,
            endpoint: port.into(),
            purpose: Purpose::Handler { handler, arguments },
            interrupt,
            notify: false,
            payload: Payload { offset: 0, bytes },
            pushed: bytes,
        };
        let number = self.channel.launch_whole(message, tag, there, payload.into());
        if bytes > 0 {
            self.in_queue.push_back((number, bytes.into()));
            self.queue_bytes += u64::from(bytes);
        }
    }

    /// Frees the payload room of messages that have left the outbound queue.
    pub(super) fn on_left(&mut self) {
        let left = self.channel.left();
        while let Some((_, bytes)) = self.in_queue.front().filter(|(number, _)| *number < left) {
            self.queue_bytes -= bytes;
            self.in_queue.pop_front();
        }
    }
}

/// Acts as one bus master on the bus that another master holds.
fn on_bus<R>(
    master: &mut HostInterface,
    other: &mut HostInterface,
    act: impl FnOnce(&mut HostInterface) -> R,
) -> R {
    let mut node = NodeBus::default();
    other.leave(&mut node);
    master.enter(&node);
    let result = act(master);
    master.leave(&mut node);
    other.enter(&node);
    result
}
