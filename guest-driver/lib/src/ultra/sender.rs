//! The sending half: the requester page (section 3.3).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;

use niclab_abi::bar::{
    CODE_LENGTH_SHIFT, RECEIVED_KNOWN, SLOT_LAUNCH_WORD, SLOT_RECEIVED_WORD, SLOT_TAG_WORD, SLOT_WORDS,
    SLOTS, launch_word, slot_of,
};
use niclab_abi::receive::{REFUSED_LENGTH, REFUSED_NO_ROUTE, REFUSED_RELEASE, REFUSED_RESERVED_BITS};

use super::message::pack;
use super::{Flags, Link, PAYLOAD_BYTES, PAYLOAD_WORDS, TAG_WORDS};
use crate::memory::{load, store, store_fence};
use crate::wait::{Next, Quiet, Wait};
use crate::{Deadline, Error, Memory, WaitPolicy};

/// Words of the status line, in the order of `niclab_abi::receive::StatusLine`.
const STATUS_LAUNCHED: usize = 0;
const STATUS_WORDS: usize = 6;

/// Sends from a port.
#[derive(Debug)]
pub struct Sender {
    link: Arc<Link>,
    requester: Memory,
    status: Memory,
    /// Packets launched since the port was opened.
    launched: u64,
    /// Of these, slots known to be free again. At most [`SLOTS`] behind.
    taken: u64,
    /// Refusals that were already reported as an error.
    refused: u64,
    /// Whether the status line will tell when the last packet left.
    last_reports: bool,
    policy: WaitPolicy,
    quiet: Quiet,
}

impl Sender {
    pub(super) fn new(link: Arc<Link>, requester: Memory, status: Memory, launched: u64) -> Self {
        Self {
            link,
            requester,
            status,
            launched,
            taken: launched,
            refused: 0,
            last_reports: launched == 0,
            policy: WaitPolicy::ADAPTIVE,
            quiet: Quiet::default(),
        }
    }

    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.policy = policy;
    }

    /// Sends a message: up to [`PAYLOAD_WORDS`] words and a tag. Returns its number, the first is 1. Waits while the page
    /// is full, because the device lags or the receiver consumed too little.
    ///
    /// The message is on its way when this returns; whether it arrived, only [`Flags::ACKNOWLEDGE`] tells.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] for a payload too long; [`Error::TimedOut`], [`Error::DeviceGone`],
    /// [`Error::Launch`], [`Error::Inconsistent`]: nothing was sent.
    #[inline]
    pub fn send(
        &mut self,
        payload: &[u64],
        tag: [u64; TAG_WORDS],
        flags: Flags,
        deadline: impl Into<Deadline>,
    ) -> Result<u64, Error> {
        if let Some(number) = self.try_send(payload, tag, flags)? {
            return Ok(number);
        }
        self.wait_for_slot(deadline.into())?;
        Ok(self.launch(payload, tag, flags))
    }

    /// Sends a message if the page has a free slot, else returns `None` at once.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`], but for the waiting.
    #[inline]
    pub fn try_send(
        &mut self,
        payload: &[u64],
        tag: [u64; TAG_WORDS],
        flags: Flags,
    ) -> Result<Option<u64>, Error> {
        if payload.len() > PAYLOAD_WORDS {
            return Err(too_long("the payload in words", payload.len(), PAYLOAD_WORDS));
        }
        if self.has_slot()? { Ok(Some(self.launch(payload, tag, flags))) } else { Ok(None) }
    }

    /// [`Sender::send`] of up to [`PAYLOAD_BYTES`] bytes, as little-endian words, the last one padded with zeros. The
    /// length in bytes does not travel.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`].
    #[inline]
    pub fn send_bytes(
        &mut self,
        payload: &[u8],
        tag: [u64; TAG_WORDS],
        flags: Flags,
        deadline: impl Into<Deadline>,
    ) -> Result<u64, Error> {
        let (words, count) = pack_checked(payload)?;
        self.send(&words[..count], tag, flags, deadline)
    }

    /// [`Sender::send_bytes`] if the page has a free slot, else returns `None` at once.
    ///
    /// # Errors
    ///
    /// As [`Sender::try_send`].
    #[inline]
    pub fn try_send_bytes(
        &mut self,
        payload: &[u8],
        tag: [u64; TAG_WORDS],
        flags: Flags,
    ) -> Result<Option<u64>, Error> {
        let (words, count) = pack_checked(payload)?;
        self.try_send(&words[..count], tag, flags)
    }

    /// Waits until every message sent so far left the requester. The last one must carry [`Flags::NOTIFY`] or
    /// [`Flags::ACKNOWLEDGE`]: the device reports the others only every eighth.
    ///
    /// # Errors
    ///
    /// [`Error::NothingReported`] when it carried neither; [`Error::Launch`] when messages were refused;
    /// [`Error::TimedOut`], [`Error::DeviceGone`], [`Error::Inconsistent`].
    pub fn flush(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        if !self.last_reports {
            let address = self.link.address;
            return Err(Error::NothingReported { device: self.link.name(), port: address.port });
        }
        self.wait_until("flush", deadline.into(), |sender| {
            sender.refresh()?;
            Ok(sender.taken == sender.launched)
        })
    }

    /// Waits until `count` acknowledgements returned since the port was opened.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`], [`Error::Launch`], [`Error::Inconsistent`].
    pub fn wait_acknowledged(&mut self, count: u64, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.wait_until("wait for an acknowledgement", deadline.into(), |sender| {
            sender.refresh()?;
            Ok(sender.status().acknowledged >= count)
        })
    }

    /// The status line as the device last wrote it.
    pub fn status(&self) -> Status {
        let mut line = [0; STATUS_WORDS];
        for (value, word) in line.iter_mut().zip(self.status.words()) {
            *value = load(word);
        }
        let [launched, notified, acknowledged, sent, refused, refusal] = line;
        Status { launched, notified, acknowledged, sent, refused, refusal: Refusal::from_number(refusal) }
    }

    /// Messages launched since the port was opened.
    pub fn launched(&self) -> u64 {
        self.launched
    }

    /// Whether a slot is free; looks at the status line only when none is known to be.
    #[inline]
    fn has_slot(&mut self) -> Result<bool, Error> {
        if self.in_flight() < u64::from(SLOTS) {
            return Ok(true);
        }
        self.refresh()?;
        Ok(self.in_flight() < u64::from(SLOTS))
    }

    fn in_flight(&self) -> u64 {
        self.launched.wrapping_sub(self.taken)
    }

    /// Learns from the status line which slots are free, and whether launches were refused.
    fn refresh(&mut self) -> Result<(), Error> {
        let Some(word) = self.status.words().get(STATUS_LAUNCHED) else { return Ok(()) };
        let taken = load(word);
        // The slots are stored to after this: not before the device is known to have read them.
        fence(Ordering::Acquire);
        if taken != self.taken {
            if self.launched.wrapping_sub(taken) > self.in_flight() {
                return Err(Error::Inconsistent {
                    device: self.link.name(),
                    what: format!(
                        "the status line of port {} says that {taken} slots were taken, after {} of {} launched",
                        self.link.address.port, self.taken, self.launched
                    ),
                });
            }
            self.taken = taken;
            self.quiet.on_progress();
        }
        self.report_refusals()
    }

    fn report_refusals(&mut self) -> Result<(), Error> {
        let status = self.status();
        if status.refused <= self.refused {
            return Ok(());
        }
        let count = status.refused - self.refused;
        self.refused = status.refused;
        Err(Error::Launch {
            device: self.link.name(),
            port: self.link.address.port,
            count,
            reason: status.refusal.map_or("the device does not say why", Refusal::reason),
        })
    }

    /// Stores a message into the next slot, which is free, and launches it. The page may be write-combining: the words
    /// are stored in ascending order, then a store fence, then the launch word alone.
    #[inline]
    fn launch(&mut self, payload: &[u64], tag: [u64; TAG_WORDS], flags: Flags) -> u64 {
        self.launched = self.launched.wrapping_add(1);
        self.last_reports = flags.intersects(Flags::NOTIFY | Flags::ACKNOWLEDGE);
        // The launch word carries the low half: sequence numbers wrap at 2^32 (`niclab_abi::bar::slot_of`).
        let sequence = self.launched as u32;
        let (slots, _) = self.requester.words().as_chunks::<SLOT_WORDS>();
        let begin = SLOT_TAG_WORD - payload.len();
        if let Some(slot) = slots.get(slot_of(sequence) as usize) {
            for (word, &value) in slot[begin..].iter().zip(payload.iter().chain(&tag)) {
                store(word, value);
            }
            let received = self.link.received.load(Ordering::Relaxed);
            store(&slot[SLOT_RECEIVED_WORD], RECEIVED_KNOWN | u64::from(received as u32));
            store_fence();
            let code = (begin as u16) << CODE_LENGTH_SHIFT | flags.code();
            store(&slot[SLOT_LAUNCH_WORD], launch_word(code, sequence));
        }
        self.link.announce();
        self.launched
    }

    #[cold]
    fn wait_for_slot(&mut self, deadline: Deadline) -> Result<(), Error> {
        self.wait_until("send", deadline, Self::has_slot)
    }

    fn wait_until(
        &mut self,
        operation: &'static str,
        deadline: Deadline,
        mut done: impl FnMut(&mut Self) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut wait = Wait::new(operation, self.policy, deadline);
        while !done(self)? {
            match wait.next(&mut self.quiet, &*self.link.backing)? {
                Next::Look => {}
                Next::Sleep(limit) => thread::sleep(limit.min(WaitPolicy::SENDER_SLEEP)),
            }
        }
        Ok(())
    }
}

fn pack_checked(payload: &[u8]) -> Result<([u64; PAYLOAD_WORDS], usize), Error> {
    pack(payload).ok_or_else(|| too_long("the payload in bytes", payload.len(), PAYLOAD_BYTES))
}

fn too_long(what: &'static str, length: usize, most: usize) -> Error {
    Error::BadValue { what, value: length as u64, range: format!("at most {most}") }
}

/// A port's status line: counts since the port was opened, as of the device's last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Slots taken out of the requester page.
    pub launched: u64,
    /// Messages with [`Flags::NOTIFY`] that left the requester.
    pub notified: u64,
    /// Acknowledgements that returned.
    pub acknowledged: u64,
    /// Packets that left for the network.
    pub sent: u64,
    /// Launches and register writes refused.
    pub refused: u64,
    /// Why the last one was.
    pub refusal: Option<Refusal>,
}

/// Why a launch or a register write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Reserved bits of the launch word were set.
    ReservedBits,
    /// The length field holds no length.
    Length,
    /// The port has no route: [`super::Port::route`] comes first.
    NoRoute,
    /// More slices were released than stored.
    Release,
    /// A reason that this library does not know, by its number.
    Other(u64),
}

impl Refusal {
    fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => None,
            REFUSED_RESERVED_BITS => Some(Self::ReservedBits),
            REFUSED_LENGTH => Some(Self::Length),
            REFUSED_NO_ROUTE => Some(Self::NoRoute),
            REFUSED_RELEASE => Some(Self::Release),
            other => Some(Self::Other(other)),
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::ReservedBits => "reserved bits of the launch word were set",
            Self::Length => "the length field holds no length",
            Self::NoRoute => "the port has no route: set one before sending",
            Self::Release => "more slices were released than stored",
            Self::Other(_) => "of a reason that this library does not know: build device and program alike",
        }
    }
}
