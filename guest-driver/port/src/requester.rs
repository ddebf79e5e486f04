//! Posting from the requester page.

use niclab_abi::bar::{LAUNCH_SEQUENCE_SHIFT, RECEIVED_KNOWN, SLOTS, slot_of};

use crate::{Fault, Page, Refusal, Reports, Status};

/// Word of the status line, in the order of `niclab_abi::receive::StatusLine`, with the number of taken posts.
const STATUS_LAUNCHED: usize = 0;

/// The requester page of a port: slots that are filled and posted in order.
#[derive(Clone, Debug, Default)]
pub struct Requester {
    /// Slots posted since the port was opened.
    launched: u64,
    /// Slots of these that are known to be free again. At most [`SLOTS`] fewer.
    taken: u64,
    /// Refusals that were already reported.
    refused: u64,
}

impl Requester {
    /// The page of a port from which `launched` slots were posted and taken.
    #[must_use]
    pub const fn new(launched: u64) -> Self {
        Self { launched, taken: launched, refused: 0 }
    }

    /// Posts since the port was opened.
    #[must_use]
    pub const fn launched(&self) -> u64 {
        self.launched
    }

    /// Posts of these that are known to be taken.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Posts that are not known to be taken.
    #[inline]
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.launched.wrapping_sub(self.taken)
    }

    /// Whether every slot holds a post that is not known to be taken. Then only the status line can report a free slot.
    #[inline]
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.in_flight() >= SLOTS as u64
    }

    /// Whether a slot is free; reads the status line only if no slot is known to be free.
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

    /// The result of [`Self::has_slot`], without changing the state.
    #[inline]
    #[must_use]
    pub fn would_have_slot(&self, page: &impl Reports) -> bool {
        // An invalid status line is ignored.
        let is_free =
            |taken: u64| self.launched.checked_sub(taken).is_some_and(|busy| busy < u64::from(SLOTS));
        !self.is_full() || is_free(page.status_word(STATUS_LAUNCHED))
    }

    /// Reads from the status line which slots are free, and whether posts were refused.
    ///
    /// # Errors
    /// [`Fault::Taken`], after which nothing has changed; [`Fault::Refused`], once for each refusal.
    pub fn refresh(&mut self, page: &impl Reports) -> Result<(), Fault> {
        let said = page.status_word(STATUS_LAUNCHED);
        // The acquire orders stores to the freed slots after the device has read them.
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
        // The command's own event reports the refusal in more detail.
        if status.refusal == Some(Refusal::Command) {
            return Ok(());
        }
        Err(Fault::Refused { count, refusal: status.refusal })
    }

    /// Stores `words` from word `begin` of the next slot on, which must be free, and posts it with `code`, the lower
    /// half of the launch word. `received` is the number of records that the port's queue has consumed. Returns the
    /// number of the post; the device must be notified of it.
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
