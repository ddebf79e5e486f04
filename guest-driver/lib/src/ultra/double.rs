//! A test double of the device: the other side of a port's memory, driven step by step.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use niclab_abi::bar::{
    CODE_ACKNOWLEDGE, CODE_INTERRUPT, CODE_LENGTH_SHIFT, CODE_NOTIFY, COMPLETER_ARMED_OFFSET,
    COMPLETER_RELEASED_OFFSET, DOORBELL_SPARED, DOORBELL_WANTED, INFO_DOORBELL_OFFSET, LAUNCH_SEQUENCE_SHIFT,
    SLOT_LAUNCH_WORD, SLOT_TAG_WORD, SLOT_WORDS, launch_word, slot_of,
};
use niclab_abi::receive::{
    SLICE_STATUS_WORD, SLICE_TAG_WORD, SLICE_WORDS, STATUS_LINE_INTERVAL, SliceStatus,
};

use super::{Parts, Port, Progress};
use crate::{Address, Backing, Error, Memory};
use niclab_port::atomic::{load, store};

/// A packet on its way between two doubles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) code: u16,
    pub(super) payload: Vec<u64>,
    pub(super) tag: [u64; 2],
    pub(super) source: Address,
}

/// What port and device share besides memory.
#[derive(Default)]
pub(super) struct Wires {
    dead: AtomicBool,
    doorbell: Mutex<Doorbell>,
    rung: Condvar,
    interrupts: Mutex<u64>,
    interrupted: Condvar,
}

/// What a device that sleeps waits for. The end is no ring: a ring that came before the device counted them would wake
/// nobody.
#[derive(Default)]
struct Doorbell {
    rings: u64,
    is_over: bool,
}

impl Wires {
    pub(super) fn rings(&self) -> u64 {
        self.doorbell.lock().unwrap().rings
    }

    /// Sleeps until the doorbell was rung more often than `seen` times, or the device is to end; says whether it goes on.
    pub(super) fn wait_ring(&self, seen: u64) -> bool {
        let doorbell = self.doorbell.lock().unwrap();
        let is_quiet = |doorbell: &mut Doorbell| doorbell.rings == seen && !doorbell.is_over;
        !self.rung.wait_while(doorbell, is_quiet).unwrap().is_over
    }

    /// Ends the device, whether it sleeps, goes to sleep or is busy.
    pub(super) fn end(&self) {
        self.doorbell.lock().unwrap().is_over = true;
        self.rung.notify_all();
    }

    pub(super) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    fn interrupt(&self) {
        *self.interrupts.lock().unwrap() += 1;
        self.interrupted.notify_all();
    }
}

/// The port's end.
pub(super) struct PortEnd(Arc<Wires>);

impl Backing for PortEnd {
    fn name(&self) -> &str {
        "double"
    }

    fn ring(&self) {
        self.0.doorbell.lock().unwrap().rings += 1;
        self.0.rung.notify_all();
    }

    fn wait_interrupts(&self, timeout: Duration) -> Result<u64, Error> {
        let none = self.0.interrupts.lock().unwrap();
        let (mut count, _) =
            self.0.interrupted.wait_timeout_while(none, timeout, |count| *count == 0).unwrap();
        Ok(std::mem::take(&mut count))
    }

    fn check(&self) -> Result<(), Error> {
        if self.0.dead.load(Ordering::SeqCst) {
            Err(Error::DeviceGone { device: "double".into() })
        } else {
            Ok(())
        }
    }

    fn route(&self, _: Address) -> Result<(), Error> {
        self.check()
    }

    fn authorize(&self, _: Address, _: u32) -> Result<(), Error> {
        self.check()
    }

    fn revoke(&self, _: Address) -> Result<(), Error> {
        self.check()
    }

    fn register(&self, _: &Memory) -> Result<u32, Error> {
        unreachable!("ULTRA has no regions")
    }

    fn deregister(&self, _: u32) -> Result<(), Error> {
        unreachable!("ULTRA has no regions")
    }
}

/// The device's end.
pub(super) struct Nic {
    pub(super) wires: Arc<Wires>,
    source: Address,
    info: Memory,
    requester: Memory,
    completer: Memory,
    pub(super) status: Memory,
    slices: Memory,
    slice_count: u64,
    taken: u64,
    reported: u64,
    stored: u64,
    released: u64,
    armed: u64,
    counts: Counts,
    waiting: VecDeque<Packet>,
    /// What goes wrong next.
    fault: Option<Fault>,
}

/// What the device does to one slice or status line that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The status word of a slice, or all of a status line, is not written.
    Stale,
    /// The data of a slice ends before its last word.
    Short,
    /// These bits of a slice's status are flipped.
    BadStatus(u64),
    /// The interrupt of a slice is not raised.
    LostInterrupt,
    /// The interrupt of a slice is raised twice.
    DoubledInterrupt,
}

#[derive(Default)]
struct Counts {
    notified: u64,
    acknowledged: u64,
    refused: u64,
    refusal: u64,
}

fn zeroed(words: usize) -> Memory {
    Memory::from_words((0..words).map(|_| AtomicU64::new(0)).collect())
}

/// A port that is as far as `progress`, and its device.
pub(super) fn port(node: u32, slice_count: u32, progress: Progress) -> (Port, Nic) {
    let wires = Arc::new(Wires::default());
    let address = Address { node, port: 0 };
    let nic = Nic {
        wires: Arc::clone(&wires),
        source: address,
        info: zeroed(512),
        requester: zeroed(512),
        completer: zeroed(512),
        status: zeroed(8),
        slices: zeroed(SLICE_WORDS * slice_count as usize),
        slice_count: slice_count.into(),
        taken: progress.launched,
        reported: progress.launched,
        stored: progress.received,
        released: progress.received,
        armed: 0,
        counts: Counts::default(),
        waiting: VecDeque::new(),
        fault: None,
    };
    nic.write_status();
    nic.fill_requester(progress.launched);
    store(&nic.completer.words()[(COMPLETER_RELEASED_OFFSET / 8) as usize], progress.received);
    let port = Port::from_parts(Parts {
        address,
        info: nic.info.clone(),
        requester: nic.requester.clone(),
        completer: nic.completer.clone(),
        status: nic.status.clone(),
        slices: nic.slices.clone(),
        backing: Box::new(PortEnd(wires)),
        progress,
    })
    .expect("all parts are large enough");
    (port, nic)
}

impl Nic {
    /// Leaves the launch words of the last `launched` packets in the page, as a port that is so far has them: a zeroed
    /// page would launch number zero when the numbers wrap.
    fn fill_requester(&self, launched: u64) {
        let (slots, _) = self.requester.words().as_chunks::<SLOT_WORDS>();
        for number in (1..=launched).rev().take(slots.len()) {
            let slot = &slots[slot_of(number as u32) as usize];
            store(&slot[SLOT_LAUNCH_WORD], launch_word(0, number as u32));
        }
    }

    /// Says whether doorbells are wanted.
    pub(super) fn set_doorbell(&self, wanted: bool) {
        let value = if wanted { DOORBELL_WANTED } else { DOORBELL_SPARED };
        store(&self.info.words()[(INFO_DOORBELL_OFFSET / 8) as usize], value);
        fence(Ordering::SeqCst);
    }

    /// Takes the next launched slot.
    pub(super) fn take(&mut self) -> Option<Packet> {
        let sequence = self.taken.wrapping_add(1) as u32;
        let (slots, _) = self.requester.words().as_chunks::<SLOT_WORDS>();
        let slot = &slots[slot_of(sequence) as usize];
        let launch = load(&slot[SLOT_LAUNCH_WORD]);
        if (launch >> LAUNCH_SEQUENCE_SHIFT) as u32 != sequence {
            return None;
        }
        fence(Ordering::Acquire);
        let code = launch as u16;
        let begin = usize::from(code >> CODE_LENGTH_SHIFT & 0xf);
        let packet = Packet {
            code,
            payload: slot[begin..SLOT_TAG_WORD].iter().map(load).collect(),
            tag: [load(&slot[SLOT_TAG_WORD]), load(&slot[SLOT_TAG_WORD + 1])],
            source: self.source,
        };
        self.taken += 1;
        let notify = code & CODE_NOTIFY != 0;
        self.counts.notified += u64::from(notify);
        if notify || self.taken - self.reported >= u64::from(STATUS_LINE_INTERVAL) {
            self.reported = self.taken;
            if self.fault.take().is_none() {
                self.write_status();
            }
        }
        Some(packet)
    }

    /// Stores `packet`, or keeps it until there is room.
    pub(super) fn deliver(&mut self, packet: Packet) {
        self.waiting.push_back(packet);
        self.store_waiting();
    }

    /// Stores `packet`, to which `fault` happens.
    pub(super) fn deliver_with(&mut self, packet: Packet, fault: Fault) {
        self.fault = Some(fault);
        self.deliver(packet);
        assert_eq!(self.fault, None, "there was no room");
    }

    /// The next status line is not written.
    pub(super) fn lose_status_line(&mut self) {
        self.fault = Some(Fault::Stale);
    }

    /// Reads the registers of the completer page, and goes on with what they allow.
    pub(super) fn store_waiting(&mut self) {
        let released = self.register(COMPLETER_RELEASED_OFFSET);
        fence(Ordering::Acquire);
        assert!((self.released..=self.stored).contains(&released), "released {released} of {}", self.stored);
        self.released = released;
        while self.stored - self.released < self.slice_count {
            let Some(packet) = self.waiting.pop_front() else { break };
            self.store(&packet);
        }
        let armed = self.armed_register();
        if armed != self.armed && armed <= self.stored {
            self.armed = armed;
            if self.fault.take_if(|fault| *fault == Fault::LostInterrupt).is_none() {
                self.wires.interrupt();
            }
        }
    }

    /// The slice number that the port wants an interrupt for.
    pub(super) fn armed_register(&self) -> u64 {
        self.register(COMPLETER_ARMED_OFFSET)
    }

    fn register(&self, offset: u64) -> u64 {
        load(&self.completer.words()[(offset / 8) as usize])
    }

    fn store(&mut self, packet: &Packet) {
        let (slices, _) = self.slices.words().as_chunks::<SLICE_WORDS>();
        let slice = &slices[(self.stored % self.slice_count) as usize];
        self.stored += 1;
        let words = packet.payload.len();
        let wants_interrupt = packet.code & CODE_INTERRUPT != 0;
        // Without one of its own it is the interrupt that the port asked for.
        let fault = self.fault.take_if(|fault| *fault != Fault::LostInterrupt || wants_interrupt);
        let data = words + 2 - usize::from(fault == Some(Fault::Short));
        for (word, &value) in
            slice[SLICE_TAG_WORD - words..].iter().zip(packet.payload.iter().chain(&packet.tag)).take(data)
        {
            store(word, value);
        }
        fence(Ordering::Release);
        let status = SliceStatus {
            words: words as u8,
            interrupt: wants_interrupt,
            acknowledge: packet.code & CODE_ACKNOWLEDGE != 0,
            source_port: packet.source.port as u8,
            source_node: packet.source.node as u16,
            number: self.stored as u32,
        };
        let flipped = if let Some(Fault::BadStatus(bits)) = fault { bits } else { 0 };
        if fault != Some(Fault::Stale) {
            store(&slice[SLICE_STATUS_WORD], status.encode() ^ flipped);
        }
        let interrupts = match fault {
            Some(Fault::LostInterrupt) => 0,
            Some(Fault::DoubledInterrupt) => 2,
            _ => 1,
        };
        if status.interrupt {
            (0..interrupts).for_each(|_| self.wires.interrupt());
        }
    }

    /// An acknowledgement came back.
    pub(super) fn acknowledge(&mut self) {
        self.counts.acknowledged += 1;
        self.reported = self.taken;
        self.write_status();
    }

    /// Refuses the next launched slot.
    pub(super) fn refuse(&mut self, reason: u64) {
        self.taken += 1;
        self.reported = self.taken;
        self.counts.refused += 1;
        self.counts.refusal = reason;
        self.write_status();
    }

    pub(super) fn in_queue(&self) -> usize {
        self.waiting.len()
    }

    fn write_status(&self) {
        let counts = &self.counts;
        let line =
            [self.taken, counts.notified, counts.acknowledged, self.taken, counts.refused, counts.refusal];
        fence(Ordering::Release);
        for (word, value) in self.status.words().iter().zip(line) {
            store(word, value);
        }
    }
}
