//! Checks a node's driver and programs against the rules of the device programmer's manual ([`niclab_abi::rules`]), if
//! the cluster file has `rules`.
//!
//! The check reports a rule only if what the device saw proves that the rule was broken. The proof uses the order of
//! stores, never a clock: the host may stop a guest at any instruction, for any time.
//!
//! * [`book`]: the broken rules, each with the operations before it;
//! * [`ports`]: slots, registers, the status line; [`doorbell`]; [`memory`]: what belongs to the device while a port is
//!   open;
//! * [`requests`]: the control queue; [`rings`]: descriptors in rings.

pub mod book;
mod doorbell;
mod memory;
mod ports;
mod requests;
mod rings;

use niclab_abi::FromBytes;
use niclab_abi::config::FEATURE_LISTS;
use niclab_abi::control::{
    OP_PORT_CLOSE, OP_PORT_OPEN, OP_RESET, PORT_BATCHES, PortName, PortOpen, PortOpened, Reply, Request,
    STATUS_OK,
};
use niclab_abi::event::{CAUSE_ARMED, CAUSE_MESSAGE};
use niclab_abi::region::{Extent, OP_REGION_EXTEND, OP_REGION_OPEN, RegionName, RegionOpen};
use niclab_abi::rings::{OP_RING_START, RingStart};
use niclab_abi::{QUEUE_DOORBELL, QUEUE_EVENT};
use niclab_model::nic::{HostRange, PageStore, Register};
use niclab_model::time::Time;

use self::book::{Book, Operation};
use self::doorbell::Spared;
use self::memory::PortMemory;
use self::ports::PortRules;
use self::requests::{Asked, Requests};
use self::rings::Rings;
use super::control::RequestBytes;
use super::pages::Pages;
use crate::memory::DmaMemory;
use crate::ring::{Burst, RingError};
use crate::vring::{Bell, Vring};

/// A port that the driver opens.
#[derive(Debug)]
struct Opening {
    memory: PortMemory,
    /// Its posts may share a doorbell.
    batches: bool,
}

/// The check of a node, and the rules that the node has broken.
#[derive(Debug)]
pub struct Rules {
    /// The broken rules.
    pub book: Book,
    /// By number. None for a closed port.
    ports: Vec<Option<PortRules>>,
    requests: Requests,
    rings: Rings,
    /// Memory that the pending `OP_PORT_OPEN` names.
    opening: Option<Opening>,
    spared: Spared,
    /// Doorbells noted so far.
    noted_doorbells: u64,
    /// The state of the doorbell when the device's sleep began. None if it began before the check.
    asleep: Option<Bell>,
    /// The driver has given the event queue a buffer, or may have.
    is_event_queue_filled: bool,
    /// Slices carry events of commands.
    has_lists: bool,
}

impl Rules {
    /// Starts to check a card. The card may run already: the check does not know what happened before.
    pub fn begin(book: Book, pages: &Pages, open: &[bool], is_running: bool, features: u64) -> Self {
        let has_lists = features & FEATURE_LISTS != 0;
        let port =
            |(number, open): (u32, &bool)| open.then(|| PortRules::new(number, None, true, pages, has_lists));
        let mut this = Self {
            book,
            ports: (0..).zip(open).map(port).collect(),
            requests: Requests::default(),
            rings: Rings::default(),
            opening: None,
            spared: Spared::default(),
            noted_doorbells: 0,
            asleep: None,
            is_event_queue_filled: is_running,
            has_lists,
        };
        if open.iter().any(|open| *open) {
            // Programs may have loaded the number of a sleep at any time before.
            this.spared.on_open_unseen();
        }
        this
    }

    /// Sets the host's clock, in model time.
    pub fn at(&mut self, now: Time) {
        self.book.at(now);
    }

    /// The device has polled `port` for its next post, and has taken it if `taken` is some.
    #[inline]
    pub fn on_look(&mut self, pages: &Pages, vrings: &[Vring], port: u32, taken: Option<&PageStore>) {
        let Self { book, ports, asleep, .. } = self;
        if let Some(port) = ports.get_mut(port as usize).and_then(Option::as_mut) {
            port.on_look(pages, taken, (*asleep, || bell(vrings)), book);
        }
    }

    /// Checks all ports for posts without a doorbell. Takes none.
    pub fn peek(&mut self, pages: &Pages, vrings: &[Vring]) {
        let Self { book, ports, asleep, .. } = self;
        for port in ports.iter_mut().flatten() {
            port.on_look(pages, None, (*asleep, || bell(vrings)), book);
        }
    }

    /// The device is about to begin a new sleep: it enables doorbells with a new number.
    pub fn on_sleep(&mut self, vrings: &[Vring]) {
        self.asleep = bell(vrings);
    }

    /// The device polls all ports, because of a doorbell or for another reason.
    pub fn on_doorbells(&mut self, pages: &Pages, vrings: &[Vring]) {
        let Some(bell) = bell(vrings) else { return };
        let rings = bell.kicks.wrapping_sub(self.noted_doorbells);
        if rings > 0 {
            self.noted_doorbells = bell.kicks;
            self.book.note(Operation::Doorbells(rings));
        }
        let unwanted = self.spared.unwanted(pages, Some(bell));
        for _ in 0..unwanted.min(MAX_UNWANTED) {
            self.book.broken(
                "doorbell-unwanted",
                None,
                "a doorbell was rung, and the word has been DOORBELL_SPARED since before any port was opened",
            );
        }
    }

    /// The device has read a changed register of `port`. The model has stored `delivered` slices for the port so far.
    pub fn on_register(&mut self, port: u32, register: Register, delivered: u64) {
        let Self { book, ports, .. } = self;
        if let Some(port) = ports.get_mut(port as usize).and_then(Option::as_mut) {
            port.on_register(register, delivered, book);
        }
    }

    /// The device took a request, and will process it. `is_again`: it has taken the request's chain already.
    pub fn on_request(
        &mut self,
        memory: &DmaMemory,
        (pages, vrings): (&Pages, &[Vring]),
        token: u64,
        bytes: &RequestBytes,
        is_again: bool,
    ) {
        let bell = || bell(vrings);
        self.requests.on_request(token, bytes, is_again, &mut self.book);
        let body = bytes.get(Request::BYTES..).unwrap_or_default();
        let Self { book, ports, rings, .. } = self;
        match requests::operation_of(bytes) {
            OP_PORT_OPEN => {
                self.opening = PortOpen::from_bytes(body).and_then(|open| {
                    let batches = open.flags & PORT_BATCHES != 0;
                    Some(Opening { memory: PortMemory::new(memory, &open)?, batches })
                });
            }
            OP_RING_START => RingStart::from_bytes(body).iter().for_each(|start| rings.on_start(start)),
            OP_PORT_CLOSE => {
                let named = PortName::from_bytes(body).and_then(|name| ports.get_mut(name.port as usize));
                named.into_iter().flatten().for_each(|port| port.on_closing(memory, pages, bell, book));
            }
            // A program may post until its driver resets the device, so a doorbell may be missing.
            OP_RESET => ports.iter_mut().flatten().for_each(|port| port.check_memory(memory, book)),
            _ => {}
        }
    }

    /// The device replies to a request. `now`: the current bytes of the request's buffers.
    pub fn on_reply(&mut self, pages: &Pages, token: u64, now: Option<&RequestBytes>, reply: &[u8]) {
        let Some((asked, head)) = self.requests.on_reply(token, now, reply, &mut self.book) else { return };
        let opening = if asked.operation() == OP_PORT_OPEN { self.opening.take() } else { None };
        self.rings.on_answered(&asked, head.status == STATUS_OK);
        if head.status != STATUS_OK {
            return;
        }
        match asked.operation() {
            OP_PORT_OPEN => {
                let opened = reply.get(Reply::BYTES..).and_then(PortOpened::from_bytes);
                if let (Some(opened), Some(opening)) = (opened, opening) {
                    self.on_open(pages, opened.port, opening);
                }
            }
            OP_REGION_OPEN => self.on_extents::<RegionOpen>(&asked),
            OP_REGION_EXTEND => self.on_extents::<RegionName>(&asked),
            _ => {}
        }
        if let Some((ring, first)) = self.rings.begins(&asked)
            && let Some(port) = self.port_with(first, 1)
        {
            let seen = format_args!(
                "the {} ring begins at {first:#x}, which is memory of port {port}",
                book::ring_name(ring)
            );
            self.book.broken("port-memory-once", Some(port), seen);
        }
    }

    fn on_open(&mut self, pages: &Pages, number: u32, Opening { memory, batches }: Opening) {
        let others = self.ports.iter().flatten().filter(|port| port.number() != number);
        let with_memory = others.filter_map(|port| Some((port.number(), port.memory.as_ref()?)));
        let overlapped = with_memory.filter(|(_, other)| memory.meets(other)).map(|(other, _)| other).next();
        if let Some(other) = overlapped {
            let seen = format_args!("port {number} is opened on memory of port {other}");
            self.book.broken("port-memory-once", Some(number), seen);
        }
        if memory.is_twice() {
            let seen = format_args!("slices and status line of port {number} overlap");
            self.book.broken("port-memory-once", Some(number), seen);
        }
        if let Some(port) = self.ports.get_mut(number as usize) {
            *port = Some(PortRules::new(number, Some(memory), batches, pages, self.has_lists));
            self.spared.on_open(pages);
        }
    }

    /// The device has added the extents after the request's body to a region.
    fn on_extents<Body: FromBytes>(&mut self, asked: &Asked) {
        let extents = asked.bytes.get(Request::BYTES + Body::BYTES..).unwrap_or_default();
        for extent in extents.chunks_exact(Extent::BYTES).filter_map(Extent::from_bytes) {
            if let Some(port) = self.port_with(extent.address, extent.bytes) {
                let seen = format_args!(
                    "a region has {} bytes at {:#x}, which are memory of port {port}",
                    extent.bytes, extent.address
                );
                self.book.broken("port-memory-once", Some(port), seen);
            }
        }
    }

    /// The open port whose memory includes any of these bytes.
    fn port_with(&self, address: u64, bytes: u64) -> Option<u32> {
        let port =
            |port: &&PortRules| port.memory.as_ref().is_some_and(|memory| memory.overlaps(address, bytes));
        self.ports.iter().flatten().find(port).map(PortRules::number)
    }

    /// The device cannot reply to a chain of the control queue.
    pub fn on_unanswerable(&mut self) {
        self.book.broken(
            "request-answerable",
            None,
            "a chain of the control queue has no writable room for a Reply, or is not in the guest's memory",
        );
    }

    /// A request names an address outside the guest's memory.
    pub fn on_outside_memory(&mut self, token: u64) {
        self.requests.refused(token);
        self.book.broken(
            "named-memory",
            None,
            "a request names an address outside the guest's memory, or in the BAR",
        );
    }

    /// A chain of a descriptor queue has a buffer outside the guest's memory.
    pub fn on_chain_outside(&mut self) {
        self.book.broken(
            "named-memory",
            None,
            "a chain of a descriptor queue has a buffer outside the guest's memory",
        );
    }

    /// A queue is invalid.
    pub fn on_ring_error(&mut self, error: RingError) {
        self.book.broken("virtqueue-sound", None, error);
    }

    /// Forgets the ports that are closed now.
    pub fn follow(&mut self, open: &[bool]) {
        for (port, is_open) in self.ports.iter_mut().zip(open) {
            if !is_open {
                *port = None;
            }
        }
    }

    /// The card is about to report an event.
    pub fn on_event(&mut self, memory: &DmaMemory, vrings: &[Vring], cause: u32, port: u32) {
        self.book.note(Operation::Event { cause, port });
        if self.is_event_queue_filled || !matches!(cause, CAUSE_MESSAGE | CAUSE_ARMED) {
            return;
        }
        let Some(vring) = vrings.get(QUEUE_EVENT as usize) else { return };
        let Ok(mut burst) = Burst::open(vring, memory) else { return };
        if matches!(burst.available(), Ok(0)) && burst.available_index() == 0 {
            let seen =
                "the card has a cause to report, and the driver has never given the event queue a buffer";
            self.book.broken("event-queue-filled", Some(port), seen);
        } else {
            self.is_event_queue_filled = true;
        }
    }

    /// `unusable` buffers of the event queue were too short, or not writable.
    pub fn on_event_buffers(&mut self, unusable: u64) {
        for _ in 0..unusable {
            self.book.broken(
                "event-buffer-size",
                None,
                "a buffer of the event queue is too short for an Event, or not writable",
            );
        }
    }

    /// The device is about to store words into the guest's memory.
    #[inline]
    pub fn on_write(&mut self, memory: &DmaMemory, pages: &Pages, address: u64, words: &[u64]) {
        let Self { book, ports, opening, rings, .. } = self;
        if let Some(opening) = opening {
            opening.memory.on_write(memory, address, words);
        }
        let mut ports = ports.iter_mut().flatten();
        if !ports.any(|port| port.on_write(memory, pages, address, words, book)) {
            rings.on_write(memory, address, words, book);
        }
    }

    /// The device has stored bytes into the guest's memory.
    pub fn on_bytes(&mut self, memory: &DmaMemory, ranges: &[HostRange]) {
        for HostRange { address, bytes } in ranges {
            for own in self.ports.iter_mut().flatten().filter_map(|port| port.memory.as_mut()) {
                own.on_bytes(memory, *address, *bytes);
            }
        }
    }

    /// The device has read `bytes` from these ranges.
    #[inline]
    pub fn on_read(&mut self, ranges: &[HostRange], bytes: &[u8]) {
        self.rings.on_read(ranges, bytes, &mut self.book);
    }

    /// Checks the memory of all open ports.
    pub fn check_memory(&mut self, memory: &DmaMemory) {
        let Self { book, ports, .. } = self;
        ports.iter_mut().flatten().for_each(|port| port.check_memory(memory, book));
    }

    /// The host has reset the device, or is gone.
    pub fn on_reset(&mut self) {
        self.book.note(Operation::Reset);
        self.ports.iter_mut().for_each(|port| *port = None);
        self.requests.forget();
        self.rings = Rings::default();
        self.opening = None;
        self.spared = Spared::default();
        self.is_event_queue_filled = false;
    }
}

/// Max spurious doorbells that one poll reports.
const MAX_UNWANTED: u64 = 64;

/// The state of the doorbell queue's kick.
fn bell(vrings: &[Vring]) -> Option<Bell> {
    vrings.get(QUEUE_DOORBELL as usize).map(Vring::bell)
}
