//! Rules of the device programmer's manual ([`niclab_abi::rules`]): what a node's driver and programs do is held to
//! them, where somebody wants that (`rules` of the cluster file). Nothing of this is there otherwise.
//!
//! A rule is named only where what was seen proves that it was broken, by the order of stores and never by a clock: a
//! guest may be kept from going on at any instruction, for as long as its host likes.
//!
//! * [`book`]: what was broken, with the operations before it;
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
    OP_PORT_CLOSE, OP_PORT_OPEN, OP_RESET, PortName, PortOpen, PortOpened, Reply, Request, STATUS_OK,
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
use self::ports::Port;
use self::requests::{Asked, Requests};
use self::rings::Rings;
use super::control::RequestBytes;
use super::pages::Pages;
use crate::memory::DmaMemory;
use crate::ring::{Burst, RingError};
use crate::vring::{Bell, Vring};

/// What of a node is looked at, and what it has broken.
#[derive(Debug)]
pub struct Rules {
    /// The broken rules.
    pub book: Book,
    /// By number; none of a port that is not open.
    ports: Vec<Option<Port>>,
    requests: Requests,
    rings: Rings,
    /// Memory named by a request that is being carried out.
    opening: Option<PortMemory>,
    spared: Spared,
    /// Doorbells heard.
    heard: u64,
    /// The driver has given the event queue a buffer, or may have.
    is_event_queue_filled: bool,
    /// Slices carry events of commands.
    has_lists: bool,
}

impl Rules {
    /// Begins to look at a card, which may be at work already: what it was told before is not known.
    pub fn begin(book: Book, pages: &Pages, open: &[bool], is_running: bool, features: u64) -> Self {
        let has_lists = features & FEATURE_LISTS != 0;
        let port = |(number, open): (u32, &bool)| open.then(|| Port::new(number, None, pages, has_lists));
        let mut this = Self {
            book,
            ports: (0..).zip(open).map(port).collect(),
            requests: Requests::default(),
            rings: Rings::default(),
            opening: None,
            spared: Spared::default(),
            heard: 0,
            is_event_queue_filled: is_running,
            has_lists,
        };
        if open.iter().any(|open| *open) {
            // When it found the word wanted is not known, nor whether it did.
            this.spared.on_open_unseen();
        }
        this
    }

    /// The host's clock.
    pub fn at(&mut self, now: Time) {
        self.book.at(now);
    }

    /// The device has looked for the next launch of `port`, and has taken it or not.
    #[inline]
    pub fn on_look(&mut self, pages: &Pages, vrings: &[Vring], port: u32, taken: Option<&PageStore>) {
        let Self { book, ports, .. } = self;
        if let Some(port) = ports.get_mut(port as usize).and_then(Option::as_mut) {
            port.on_look(pages, taken, || bell(vrings), book);
        }
    }

    /// Looks whether a launch waits of which nobody told, and takes none.
    pub fn peek(&mut self, pages: &Pages, vrings: &[Vring]) {
        let Self { book, ports, .. } = self;
        ports.iter_mut().flatten().for_each(|port| port.on_look(pages, None, || bell(vrings), book));
    }

    /// The device looks at all ports, because somebody rang or for another reason.
    pub fn on_doorbells(&mut self, pages: &Pages, vrings: &[Vring]) {
        let Some(bell) = bell(vrings) else { return };
        let rings = bell.kicks.wrapping_sub(self.heard);
        if rings > 0 {
            self.heard = bell.kicks;
            self.book.note(Operation::Doorbells(rings));
        }
        let unwanted = self.spared.unwanted(pages, Some(bell));
        for _ in 0..unwanted.min(MAX_UNWANTED) {
            self.book.broken(
                "doorbell-unwanted",
                None,
                "a doorbell was rung, and the word was DOORBELL_SPARED all the time",
            );
        }
    }

    /// A register of `port` was read that had changed; the model has stored `delivered` slices for it.
    pub fn on_register(&mut self, port: u32, register: Register, delivered: u64) {
        let Self { book, ports, .. } = self;
        if let Some(port) = ports.get_mut(port as usize).and_then(Option::as_mut) {
            port.on_register(register, delivered, book);
        }
    }

    /// A request was taken, and will be carried out. `is_again`: its chain is one that is taken already.
    pub fn on_request(&mut self, memory: &DmaMemory, token: u64, bytes: &RequestBytes, is_again: bool) {
        self.requests.on_request(token, bytes, is_again, &mut self.book);
        let body = bytes.get(Request::BYTES..).unwrap_or_default();
        let Self { book, ports, rings, .. } = self;
        match requests::operation_of(bytes) {
            OP_PORT_OPEN => {
                self.opening = PortOpen::from_bytes(body).and_then(|open| PortMemory::new(memory, &open));
            }
            OP_RING_START => RingStart::from_bytes(body).iter().for_each(|start| rings.on_start(start)),
            // It is the device's until this was answered.
            OP_PORT_CLOSE => {
                let named = PortName::from_bytes(body).and_then(|name| ports.get_mut(name.port as usize));
                named.into_iter().flatten().for_each(|port| port.check_memory(memory, book));
            }
            OP_RESET => ports.iter_mut().flatten().for_each(|port| port.check_memory(memory, book)),
            _ => {}
        }
    }

    /// A request is answered; `now` is what stands in its buffers.
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
                if let (Some(opened), Some(memory)) = (opened, opening) {
                    self.on_open(pages, opened.port, memory);
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

    fn on_open(&mut self, pages: &Pages, number: u32, memory: PortMemory) {
        let others = self.ports.iter().flatten().filter(|port| port.number() != number);
        let twice = others.filter_map(|port| Some((port.number(), port.memory.as_ref()?)));
        let met = twice.filter(|(_, other)| memory.meets(other)).map(|(other, _)| other).next();
        if let Some(other) = met {
            let seen = format_args!("port {number} is opened on memory of port {other}");
            self.book.broken("port-memory-once", Some(number), seen);
        }
        if memory.is_twice() {
            let seen = format_args!("slices and status line of port {number} are in one place");
            self.book.broken("port-memory-once", Some(number), seen);
        }
        if let Some(place) = self.ports.get_mut(number as usize) {
            *place = Some(Port::new(number, Some(memory), pages, self.has_lists));
            self.spared.on_open(pages);
        }
    }

    /// The extents behind a body, which became part of a region.
    fn on_extents<Body: FromBytes>(&mut self, asked: &Asked) {
        let extents = asked.bytes.get(Request::BYTES + Body::BYTES..).unwrap_or_default();
        for extent in extents.chunks_exact(Extent::BYTES).filter_map(Extent::from_bytes) {
            if let Some(port) = self.port_with(extent.address, extent.bytes) {
                let seen = format_args!(
                    "a region has {} bytes at {:#x}, memory of port {port}",
                    extent.bytes, extent.address
                );
                self.book.broken("port-memory-once", Some(port), seen);
            }
        }
    }

    /// An open port to whose memory any of these bytes belong.
    fn port_with(&self, address: u64, bytes: u64) -> Option<u32> {
        let port = |port: &&Port| port.memory.as_ref().is_some_and(|memory| memory.overlaps(address, bytes));
        self.ports.iter().flatten().find(port).map(Port::number)
    }

    /// A chain of the control queue cannot be answered.
    pub fn on_unanswerable(&mut self) {
        self.book.broken(
            "request-answerable",
            None,
            "a chain without writable room for a Reply, or not in memory",
        );
    }

    /// A request names what is no memory.
    pub fn on_outside_memory(&mut self, token: u64) {
        self.requests.refused(token);
        self.book.broken("named-memory", None, "a request names what is not the guest's memory, or the BAR");
    }

    /// A chain of a descriptor queue has a part that is no memory.
    pub fn on_chain_outside(&mut self) {
        self.book.broken("named-memory", None, "a chain has a part that is not the guest's memory");
    }

    /// A queue is not sound.
    pub fn on_ring_error(&mut self, error: RingError) {
        self.book.broken("virtqueue-sound", None, error);
    }

    /// Some ports may have been opened or closed.
    pub fn follow(&mut self, open: &[bool]) {
        for (port, is_open) in self.ports.iter_mut().zip(open) {
            if !is_open {
                *port = None;
            }
        }
    }

    /// The card is about to interrupt.
    pub fn on_event(&mut self, memory: &DmaMemory, vrings: &[Vring], cause: u32, port: u32) {
        self.book.note(Operation::Event { cause, port });
        if self.is_event_queue_filled || !matches!(cause, CAUSE_MESSAGE | CAUSE_ARMED) {
            return;
        }
        let Some(vring) = vrings.get(QUEUE_EVENT as usize) else { return };
        let Ok(mut burst) = Burst::open(vring, memory) else { return };
        if matches!(burst.available(), Ok(0)) && burst.available_index() == 0 {
            let seen = "a cause is to be told, and the event queue never had a buffer";
            self.book.broken("event-queue-filled", Some(port), seen);
        } else {
            self.is_event_queue_filled = true;
        }
    }

    /// So many buffers of the event queue were too short, or not to be written.
    pub fn on_event_buffers(&mut self, unusable: u64) {
        for _ in 0..unusable {
            self.book.broken(
                "event-buffer-size",
                None,
                "a buffer of the event queue has no room for an Event",
            );
        }
    }

    /// The device is about to store words into the guest's memory.
    #[inline]
    pub fn on_write(&mut self, memory: &DmaMemory, pages: &Pages, address: u64, words: &[u64]) {
        let Self { book, ports, opening, rings, .. } = self;
        if let Some(opening) = opening {
            opening.on_write(memory, address, words);
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

    /// The device has loaded these bytes.
    #[inline]
    pub fn on_read(&mut self, ranges: &[HostRange], bytes: &[u8]) {
        self.rings.on_read(ranges, bytes, &mut self.book);
    }

    /// Looks through the memory of all open ports.
    pub fn check_memory(&mut self, memory: &DmaMemory) {
        let Self { book, ports, .. } = self;
        ports.iter_mut().flatten().for_each(|port| port.check_memory(memory, book));
    }

    /// The host is gone or begins anew.
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

/// Most doorbells in vain that are counted one by one for a look.
const MAX_UNWANTED: u64 = 64;

/// What was heard of the doorbell.
fn bell(vrings: &[Vring]) -> Option<Bell> {
    vrings.get(QUEUE_DOORBELL as usize).map(Vring::bell)
}
