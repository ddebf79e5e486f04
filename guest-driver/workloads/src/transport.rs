//! How the messages of a workload are sent and received over one open port.

use alloc::vec::Vec;

use niclab_port::{Kind, Page, Queue, Records, Reports, Requester};

use crate::{End, Mark};

/// All that a port shares with its device: pages, receive queue, and the region that was registered for it, if any.
pub trait Memory: Page + Records {
    /// Up to eight bytes of the region from `offset` on, as the low bytes of a little-endian word.
    fn load(&self, offset: u64, bytes: u64) -> u64;

    /// Stores the low bytes of a word, up to eight, to `offset` of the region.
    fn store_word(&mut self, offset: u64, bytes: u64, word: u64);

    /// So many bytes of the region from `offset` on, as words; what the last one has beyond them is zero.
    fn words(&self, offset: u64, bytes: u64) -> impl Iterator<Item = u64> {
        (0..bytes).step_by(8).map(move |at| self.load(offset + at, (bytes - at).min(8)))
    }

    /// Stores so many bytes of these words to `offset` of the region.
    fn store_words(&mut self, offset: u64, bytes: u64, words: impl Iterator<Item = u64>) {
        for (word, at) in words.zip((0..bytes).step_by(8)) {
            self.store_word(offset + at, (bytes - at).min(8), word);
        }
    }

    /// Stores words into the payload region of the port's outbound queue from `offset` on, a multiple of 8, where the
    /// card has one.
    fn push(&mut self, offset: u64, words: impl Iterator<Item = u64>);
}

/// What was read from a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A message, of which the listener was told.
    Message,
    /// Something that keeps the transport going.
    Other,
}

/// What is not as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// An operation failed, or a message is another than the one that was sent.
    Contents,
    /// Something that concerns another port.
    Port,
    /// Memory that is not what the device says.
    Memory,
}

/// Who is told what a transport receives.
pub trait Listener {
    /// A message is there, at port `at`, which the NIC says came from `from`.
    fn on_message(&mut self, at: End, from: End, mark: &Mark, payload: impl Iterator<Item = u64>);

    /// Something is not as it must be.
    fn on_wrong(&mut self, wrong: Wrong, what: impl FnOnce() -> alloc::string::String);
}

/// How the messages of a workload are sent and received over one open port of one kind of NIC.
pub trait Transport: Send {
    /// What stands in the port's receive queue.
    type Records: Kind + Send;

    /// Whether a device writes records whole; otherwise it leaves words out that come before their content.
    const HAS_WHOLE_RECORDS: bool;

    /// Whether each record stands for itself: one that a faulty device left out or damaged costs the message that it is
    /// about, and nothing else.
    const STANDS_ALONE: bool;

    /// Whether it ever owes launches to others: [`Transport::has_launches`] between two messages.
    const OWES_LAUNCHES: bool;

    /// Records consumed between two releases, of a queue of so many.
    fn release_interval(&self, records: u32) -> u64;

    /// The smallest share of the receive queue that is set aside for a sender; none where that is not how senders are
    /// held back.
    fn credits(&self, records: u32) -> Option<u32>;

    /// The message that a record is about, of whose words only the last few may be given.
    fn mark_of(words: &[u64]) -> Option<Mark>;

    /// Bytes of the region that it needs.
    fn region_bytes(&self) -> u64;

    /// Whether a device may store bytes there in the region, which is the program's otherwise.
    fn is_posted(&self, offset: u64, bytes: u64) -> bool;

    /// The port is open and its region is registered by this name.
    fn begin(&mut self, region: u32);

    /// What the card is then asked for: control requests, each with its body.
    fn requests(&self) -> Vec<(u32, Vec<u8>)> {
        Vec::new()
    }

    /// Whether something is to be launched that the transport owes to others.
    fn has_launches(&self) -> bool;

    /// Whether it may not send for another reason than that no slot is free.
    fn is_blocked(&self, page: &impl Reports) -> bool;

    /// Whether what becomes visible next may be what this port waits for.
    fn waits_for_news(&self, requester: &Requester) -> bool;

    /// Sends a message: it is launched next.
    fn send(&mut self, mark: &Mark, interrupts: bool, memory: &mut impl Memory);

    /// Launches what waits longest, if something does. A slot must be free.
    fn launch(&mut self, requester: &mut Requester, memory: &mut impl Memory, received: u64) -> bool;

    /// Reads the next record, if it is there.
    fn read(
        &mut self,
        queue: &mut Queue<Self::Records>,
        memory: &mut impl Memory,
        listener: &mut impl Listener,
    ) -> Option<Read>;
}
