//! Launching from the requester page.

use niclab_abi::bar::{LAUNCH_SEQUENCE_SHIFT, RECEIVED_KNOWN, SLOTS, slot_of};

use crate::{Fault, Page, Refusal, Reports, Status};

/// Word of the status line, in the order of `niclab_abi::receive::StatusLine`, with the launches that were taken.
const STATUS_LAUNCHED: usize = 0;

/// The requester page of a port: slots that are filled and launched in turn.
#[derive(Clone, Debug, Default)]
pub struct Requester {
    /// Slots launched since the port was opened.
    launched: u64,
    /// Of these, known to be free again. At most [`SLOTS`] behind.
    taken: u64,
    /// Refusals that were already reported.
    refused: u64,
}

impl Requester {
    /// The page of a port from which so many slots were launched and taken.
    #[must_use]
    pub const fn new(launched: u64) -> Self {
        Self { launched, taken: launched, refused: 0 }
    }

    /// Launches since the port was opened.
    #[must_use]
    pub const fn launched(&self) -> u64 {
        self.launched
    }

    /// Of these, known to be taken.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Launches that are not known to be taken.
    #[inline]
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.launched.wrapping_sub(self.taken)
    }

    /// Whether every slot holds a launch that is not known to be taken: only the status line can tell of a free one.
    #[inline]
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.in_flight() >= SLOTS as u64
    }

    /// Whether a slot is free; looks at the status line only when none is known to be.
    ///
    /// # Errors
    /// [`Fault::Taken`], [`Fault::Refused`].
    #[inline]
    pub fn has_slot(&mut self, page: &impl Reports) -> Result<bool, Fault> {
        if !self.is_full() {
            return Ok(true);
        }
        self.refresh(page)?;
        Ok(!self.is_full())
    }

    /// What [`Self::has_slot`] would say, learning nothing.
    #[inline]
    #[must_use]
    pub fn would_have_slot(&self, page: &impl Reports) -> bool {
        // A status line that cannot be says nothing.
        let is_free =
            |taken: u64| self.launched.checked_sub(taken).is_some_and(|busy| busy < u64::from(SLOTS));
        !self.is_full() || is_free(page.status_word(STATUS_LAUNCHED))
    }

    /// Learns from the status line which slots are free, and whether launches were refused.
    ///
    /// # Errors
    /// [`Fault::Taken`], after which nothing has changed; [`Fault::Refused`], once for each refusal.
    pub fn refresh(&mut self, page: &impl Reports) -> Result<(), Fault> {
        let said = page.status_word(STATUS_LAUNCHED);
        // The slots are stored to after this: not before the device is known to have read them.
        page.acquire();
        if said != self.taken {
            if self.launched.wrapping_sub(said) > self.in_flight() {
                return Err(Fault::Taken { said, known: self.taken, launched: self.launched });
            }
            self.taken = said;
        }
        let status = Status::read(page);
        if status.refused <= self.refused {
            return Ok(());
        }
        let count = status.refused - self.refused;
        self.refused = status.refused;
        // The command's own event says more, and says it in its place.
        if status.refusal == Some(Refusal::Command) {
            return Ok(());
        }
        Err(Fault::Refused { count, refusal: status.refusal })
    }

    /// Stores `words` from word `begin` of the next slot on, which must be free, and launches it with `code`, the lower
    /// half of the launch word. `received` is what the port's queue had consumed by then. Returns the launch's number;
    /// the device must be told of it.
    #[inline]
    pub fn launch(
        &mut self,
        page: &mut impl Page,
        begin: usize,
        words: impl Iterator<Item = u64>,
        code: u32,
        received: u64,
    ) -> u64 {
        self.launched = self.launched.wrapping_add(1);
        // The launch word carries the low half: sequence numbers wrap at 2^32 (`niclab_abi::bar::slot_of`).
        let sequence = self.launched as u32;
        let received = RECEIVED_KNOWN | u64::from(received as u32);
        let launch_word = u64::from(code) | u64::from(sequence) << LAUNCH_SEQUENCE_SHIFT;
        page.launch(slot_of(sequence), begin, words, received, launch_word);
        self.launched
    }
}
