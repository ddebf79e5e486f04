//! The memory that a port shares with its device, as one host sees it.

use niclab_abi::receive::SLICE_WORDS;

/// The device's reports for a port: the page that begins with its status line.
pub trait Reports {
    /// Word `index` of the page, as far as the device's stores are visible to this host; zero beyond its end.
    fn status_word(&self, index: usize) -> u64;

    /// Orders all later operations after the loads of [`Reports::status_word`] before it.
    fn acquire(&self) {}
}

/// A port's requester page, and the device's reports for it.
pub trait Page: Reports {
    /// Stores `words` from word `begin` of a slot on, then `received` into its word
    /// (`niclab_abi::bar::SLOT_RECEIVED_WORD`). Last, once all of that is visible, stores the launch word.
    fn launch(
        &mut self,
        slot: u32,
        begin: usize,
        words: impl Iterator<Item = u64>,
        received: u64,
        launch_word: u64,
    );
}

/// A port's receive queue, and the registers of its completer page.
pub trait Records {
    /// One record of the queue.
    type Record<'a>: Record
    where
        Self: 'a;

    /// The record at this index of the queue; `None` if the device has never written it.
    fn record(&self, index: u32) -> Option<Self::Record<'_>>;

    /// Stores a register after all earlier reads: the device must not write to a record that is still being read.
    fn store(&mut self, register: Register, value: u64);

    /// Orders all later reads after the loads before it.
    fn acquire(&self) {}
}

/// The words of a record; the last is its status.
pub trait Record {
    /// Word `index`, below [`SLICE_WORDS`].
    fn word(&self, index: usize) -> u64;
}

impl Record for &[u64; SLICE_WORDS] {
    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.get(index).copied().unwrap_or(0)
    }
}

/// A register of the completer page (`niclab_abi::bar::CompleterPage`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// Records consumed since the port was opened.
    Released,
    /// Number of the record that interrupts when the device stores it.
    Armed,
    /// Records between two releases.
    ReleaseInterval,
}

impl Register {
    /// Byte offset in the page.
    pub const fn offset(self) -> u64 {
        match self {
            Self::Released => niclab_abi::bar::COMPLETER_RELEASED_OFFSET,
            Self::Armed => niclab_abi::bar::COMPLETER_ARMED_OFFSET,
            Self::ReleaseInterval => niclab_abi::bar::COMPLETER_INTERVAL_OFFSET,
        }
    }
}
