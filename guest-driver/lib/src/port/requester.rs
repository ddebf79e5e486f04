//! Launching from the requester page.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;

use niclab_abi::bar::{
    LAUNCH_SEQUENCE_SHIFT, RECEIVED_KNOWN, SLOT_LAUNCH_WORD, SLOT_RECEIVED_WORD, SLOT_WORDS, SLOTS, slot_of,
};
use niclab_abi::receive::{
    REFUSED_COMMAND, REFUSED_LENGTH, REFUSED_NO_ROUTE, REFUSED_RELEASE, REFUSED_RESERVED_BITS,
};

use super::Link;
use crate::memory::{load, store, store_fence};
use crate::wait::{Next, Quiet, Wait};
use crate::{Deadline, Error, Memory, WaitPolicy};

/// Words of the status line, in the order of `niclab_abi::receive::StatusLine`.
const STATUS_LAUNCHED: usize = 0;
const STATUS_WORDS: usize = 6;

/// The requester page of a port: slots that are filled and launched in turn.
#[derive(Debug)]
pub(crate) struct Requester {
    link: Arc<Link>,
    page: Memory,
    status: Memory,
    /// Slots launched since the port was opened.
    launched: u64,
    /// Of these, known to be free again. At most [`SLOTS`] behind.
    taken: u64,
    /// Refusals that were already reported as an error.
    refused: u64,
    policy: WaitPolicy,
    quiet: Quiet,
}

impl Requester {
    pub(super) fn new(link: Arc<Link>, page: Memory, status: Memory, launched: u64) -> Self {
        Self {
            link,
            page,
            status,
            launched,
            taken: launched,
            refused: 0,
            policy: WaitPolicy::ADAPTIVE,
            quiet: Quiet::default(),
        }
    }

    pub(crate) fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.policy = policy;
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Launches since the port was opened.
    pub(crate) fn launched(&self) -> u64 {
        self.launched
    }

    /// The status line as the device last wrote it.
    pub(crate) fn status(&self) -> Status {
        let mut line = [0; STATUS_WORDS];
        for (value, word) in line.iter_mut().zip(self.status.words()) {
            *value = load(word);
        }
        let [launched, notified, acknowledged, sent, refused, refusal] = line;
        Status { launched, notified, acknowledged, sent, refused, refusal: Refusal::from_number(refusal) }
    }

    /// Whether a slot is free; looks at the status line only when none is known to be.
    #[inline]
    pub(crate) fn has_slot(&mut self) -> Result<bool, Error> {
        if self.in_flight() < u64::from(SLOTS) {
            return Ok(true);
        }
        self.refresh()?;
        Ok(self.in_flight() < u64::from(SLOTS))
    }

    fn in_flight(&self) -> u64 {
        self.launched.wrapping_sub(self.taken)
    }

    /// Whether all that was launched is known to be taken. Reads the status line.
    pub(crate) fn is_drained(&mut self) -> Result<bool, Error> {
        self.refresh()?;
        Ok(self.in_flight() == 0)
    }

    /// Learns from the status line which slots are free, and whether launches were refused.
    pub(crate) fn refresh(&mut self) -> Result<(), Error> {
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
        // The command's own event says more, and says it in its place.
        if status.refusal == Some(Refusal::Command) {
            return Ok(());
        }
        Err(Error::Launch {
            device: self.link.name(),
            port: self.link.address.port,
            count,
            reason: status.refusal.map_or("the device does not say why", Refusal::reason),
        })
    }

    /// Stores `words` from word `begin` of the next slot on, which is free, and launches it with `code`, the lower half of
    /// the launch word. The page may be write-combining: the words are stored in ascending order, then a store fence, then
    /// the launch word alone.
    #[inline]
    pub(crate) fn launch<'a>(
        &mut self,
        begin: usize,
        words: impl Iterator<Item = &'a u64>,
        code: u32,
    ) -> u64 {
        self.launched = self.launched.wrapping_add(1);
        // The launch word carries the low half: sequence numbers wrap at 2^32 (`niclab_abi::bar::slot_of`).
        let sequence = self.launched as u32;
        let (slots, _) = self.page.words().as_chunks::<SLOT_WORDS>();
        if let Some(slot) = slots.get(slot_of(sequence) as usize) {
            for (word, &value) in slot[begin..SLOT_RECEIVED_WORD].iter().zip(words) {
                store(word, value);
            }
            let received = self.link.received.load(Ordering::Relaxed);
            store(&slot[SLOT_RECEIVED_WORD], RECEIVED_KNOWN | u64::from(received as u32));
            store_fence();
            store(&slot[SLOT_LAUNCH_WORD], u64::from(code) | u64::from(sequence) << LAUNCH_SEQUENCE_SHIFT);
        }
        self.link.announce();
        self.launched
    }

    #[cold]
    pub(crate) fn wait_for_slot(&mut self, operation: &'static str, deadline: Deadline) -> Result<(), Error> {
        self.wait_until(operation, deadline, Self::has_slot)
    }

    pub(crate) fn wait_until(
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

/// A port's status line: counts since the port was opened, as of the device's last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Slots taken out of the requester page.
    pub launched: u64,
    /// Messages that asked for a notification, and left the requester.
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
    /// The port has no route: [`crate::ultra::Port::route`] comes first.
    NoRoute,
    /// More slices were released than stored.
    Release,
    /// The command was refused (Match): an event says why.
    Command,
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
            REFUSED_COMMAND => Some(Self::Command),
            other => Some(Self::Other(other)),
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::ReservedBits => "reserved bits of the launch word were set",
            Self::Length => "the length field holds no length",
            Self::NoRoute => "the port has no route: set one before sending",
            Self::Release => "more slices were released than stored",
            Self::Command => "a command was none that the device carries out: its event says why",
            Self::Other(_) => "of a reason that this library does not know: build device and program alike",
        }
    }
}
