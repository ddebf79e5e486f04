//! The interface between a program and one kind of NIC.

use alloc::vec::Vec;

use niclab_port::{Kind, Page, Queue, Records, Reports, Requester};

use crate::{End, Mark};

/// The memory that a port shares with its device: pages, receive queue, and the region registered for it, if any.
pub trait Memory: Page + Records {
    /// Up to eight bytes of the region from `offset` on, as the low bytes of a little-endian word.
    fn load(&self, offset: u64, bytes: u64) -> u64;

    /// Stores the low bytes of a word, up to eight, to `offset` of the region.
    fn store_word(&mut self, offset: u64, bytes: u64, word: u64);

    /// The `bytes` of the region at `offset`, as words. The last word is zero beyond them.
    fn words(&self, offset: u64, bytes: u64) -> impl Iterator<Item = u64> {
        (0..bytes).step_by(8).map(move |at| self.load(offset + at, (bytes - at).min(8)))
    }

    /// Stores `bytes` of these words at `offset` of the region.
    fn store_words(&mut self, offset: u64, bytes: u64, words: impl Iterator<Item = u64>) {
        for (word, at) in words.zip((0..bytes).step_by(8)) {
            self.store_word(offset + at, (bytes - at).min(8), word);
        }
    }

    /// Stores words at `offset`, a multiple of 8, of the payload region of the port's outbound queue, if the card has
    /// one.
    fn push(&mut self, offset: u64, words: impl Iterator<Item = u64>);
}

/// The kind of a record that the program read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A message, which the listener received.
    Message,
    /// A record that serves only the transport.
    Other,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// An operation failed, or the message differs from the one that was sent.
    Contents,
    /// The record belongs to another port.
    Port,
    /// The memory differs from what the device reports.
    Memory,
}

/// Receives the messages and failures of a transport.
pub trait Listener {
    /// Port `at` received a message that, according to the NIC, port `from` sent.
    fn on_message(&mut self, at: End, from: End, mark: &Mark, payload: impl Iterator<Item = u64>);

    /// A check failed.
    fn on_wrong(&mut self, wrong: Wrong, what: impl FnOnce() -> alloc::string::String);
}

/// How a workload sends and receives messages over one open port of one kind of NIC.
pub trait Transport: Send {
    /// The records of the port's receive queue.
    type Records: Kind + Send;

    /// Whether a device writes all words of a record. Otherwise it omits the words in front of the content.
    const HAS_WHOLE_RECORDS: bool;

    /// Whether records are independent: if a faulty device omits or damages one, only the message that it reports is
    /// lost.
    const STANDS_ALONE: bool;

    /// Whether [`Transport::has_launches`] may be true between two messages.
    const OWES_LAUNCHES: bool;

    /// Records that the program consumes between two releases, for a queue of `records`.
    fn release_interval(&self, records: u32) -> u64;

    /// The smallest share of the receive queue that is reserved for a sender; `None` if credits do not limit senders.
    fn credits(&self, records: u32) -> Option<u32>;

    /// The message that a record reports. `words` may be only the last few words of the record.
    fn mark_of(words: &[u64]) -> Option<Mark>;

    /// Size of the region that the port needs.
    fn region_bytes(&self) -> u64;

    /// Whether the device may store these bytes of the region. All other bytes belong to the program.
    fn is_posted(&self, offset: u64, bytes: u64) -> bool;

    /// Starts the transport: the port is open and its region is registered as `region`.
    fn begin(&mut self, region: u32);

    /// The control requests that the card must execute after [`Transport::begin`], each with its body.
    fn requests(&self) -> Vec<(u32, Vec<u8>)> {
        Vec::new()
    }

    /// Whether a command waits to be posted.
    fn has_launches(&self) -> bool;

    /// Whether the port may not send for a reason other than a missing free slot.
    fn is_blocked(&self, page: &impl Reports) -> bool;

    /// Whether the port may be waiting for what the card makes visible next.
    fn waits_for_news(&self, requester: &Requester) -> bool;

    /// Queues the commands that send a message.
    fn send(&mut self, mark: &Mark, interrupts: bool, memory: &mut impl Memory);

    /// Posts the oldest waiting command, if there is one. A slot must be free.
    fn launch(&mut self, requester: &mut Requester, memory: &mut impl Memory, received: u64) -> bool;

    /// Reads the next record, if the card has written it.
    fn read(
        &mut self,
        queue: &mut Queue<Self::Records>,
        memory: &mut impl Memory,
        listener: &mut impl Listener,
    ) -> Option<Read>;
}
