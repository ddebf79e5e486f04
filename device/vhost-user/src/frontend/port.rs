//! One open port, at the level of pages and slices.
//!
//! The user library does the same with more comfort; this one has none, so that a benchmark measures the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use niclab_abi::FromBytes;
use niclab_abi::bar::{
    CODE_LENGTH_SHIFT, COMPLETER_ARMED_OFFSET, COMPLETER_INTERVAL_OFFSET, COMPLETER_RELEASED_OFFSET,
    PAYLOAD_WORDS, RECEIVED_KNOWN, SLOT_LAUNCH_WORD, SLOT_RECEIVED_WORD, SLOT_TAG_WORD, SLOT_WORDS, SLOTS,
    TAG_WORDS, completer_page, launch_word, requester_page, slot_of,
};
use niclab_abi::control::{
    Authorize, OP_AUTHORIZE, OP_PORT_CLOSE, OP_PORT_OPEN, OP_ROUTE, PORT_ANY, PortName, PortOpen, PortOpened,
    Route,
};
use niclab_abi::receive::{
    SLICE_BYTES, SLICE_NUMBER_SHIFT, SLICE_STATUS_WORD, SLICE_TAG_WORD, SLICE_WORDS, SliceStatus, StatusLine,
};

use super::{ClusterGuest, FrontendError};

const STATUS_WORDS: usize = size_of::<StatusLine>() / 8;

/// A received slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it, and how.
    pub status: SliceStatus,
    /// Payload; the first [`SliceStatus::words`] count.
    pub payload: [u64; PAYLOAD_WORDS],
    /// Tag.
    pub tag: [u64; TAG_WORDS],
}

/// An open port. Dropping it does not close it, as a crashed program would not.
pub struct GuestPort {
    guest: Arc<ClusterGuest>,
    port: u32,
    slices: u32,
    slices_address: u64,
    status_address: u64,
    launched: u32,
    taken: u64,
    released: u64,
    /// The last [`StatusLine::launched`] that was seen.
    seen_launched: u64,
}

impl GuestPort {
    /// Opens any free port with `slices` slices.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn open(guest: &Arc<ClusterGuest>, slices: u32) -> Result<Self, FrontendError> {
        let memory = guest.memory();
        let slices_address = memory.allocate(u64::from(slices) * SLICE_BYTES, 64)?;
        // A page, as for a card that writes counters behind the status line.
        let status_address = memory.allocate(niclab_abi::PAGE_BYTES, niclab_abi::PAGE_BYTES)?;
        let open = PortOpen { port: PORT_ANY, slices, slices_address, status_address, ..PortOpen::default() };
        let opened = guest.command(OP_PORT_OPEN, &open)?;
        let opened = PortOpened::from_bytes(&opened).ok_or(FrontendError::Malformed("a short PortOpened"))?;
        Ok(Self {
            guest: Arc::clone(guest),
            port: opened.port,
            slices,
            slices_address,
            status_address,
            launched: 0,
            taken: 0,
            released: 0,
            seen_launched: 0,
        })
    }

    /// The port's number.
    pub const fn number(&self) -> u32 {
        self.port
    }

    /// Guest-physical addresses of the slices and of the status line.
    pub const fn addresses(&self) -> (u64, u64) {
        (self.slices_address, self.status_address)
    }

    /// Whose port it is.
    pub const fn guest(&self) -> &Arc<ClusterGuest> {
        &self.guest
    }

    /// Sets where the port sends.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn route(&self, node: u32, node_port: u32) -> Result<(), FrontendError> {
        let route = Route { port: self.port, node, node_port, reserved: 0 };
        self.guest.command(OP_ROUTE, &route).map(drop)
    }

    /// Lets a remote port send to this one.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn authorize(&self, node: u32, node_port: u32, credits: u32) -> Result<(), FrontendError> {
        let authorize = Authorize { port: self.port, node, node_port, credits };
        self.guest.command(OP_AUTHORIZE, &authorize).map(drop)
    }

    /// Closes the port.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn close(self) -> Result<(), FrontendError> {
        self.guest.command(OP_PORT_CLOSE, &PortName { port: self.port, reserved: 0 }).map(drop)
    }

    /// Stores payload and tag into the next slot and launches it, without a doorbell. False when the page is full.
    #[inline]
    pub fn try_launch(&mut self, payload: &[u64], tag: [u64; TAG_WORDS], flags: u16) -> bool {
        if self.is_page_full() {
            return false;
        }
        let Some(begin) = SLOT_TAG_WORD.checked_sub(payload.len()) else { return false };
        self.store_slot(begin, payload, tag, begin_code(begin) | flags);
        true
    }

    /// The same for a command: all words of the slot, and the lower half of the launch word. Returns the launch's number.
    #[inline]
    pub fn try_command(&mut self, code: u32, words: &[u64; PAYLOAD_WORDS + TAG_WORDS]) -> Option<u32> {
        (!self.is_page_full()).then(|| {
            self.launch_raw(code, words);
            self.launched
        })
    }

    /// Whether the next slot still holds a launch that the device has not taken, as far as it has told.
    #[inline]
    fn is_page_full(&mut self) -> bool {
        let is_full = |port: &Self| u64::from(port.launched) >= port.seen_launched + u64::from(SLOTS);
        if is_full(self) {
            self.seen_launched = self.status_word(0);
        }
        is_full(self)
    }

    /// Launches the next slot with any code at all, page full or not.
    pub fn launch_raw(&mut self, code: u32, words: &[u64; PAYLOAD_WORDS + TAG_WORDS]) {
        self.launched = self.launched.wrapping_add(1);
        let Some(slot) = self.slot(self.launched) else { return };
        for (place, word) in slot.iter().zip(words) {
            place.store(word.to_le(), Ordering::Relaxed);
        }
        self.store_received(slot);
        if let Some(launch) = slot.get(SLOT_LAUNCH_WORD) {
            let word = launch_word(0, self.launched) | u64::from(code);
            launch.store(word.to_le(), Ordering::Release);
        }
    }

    #[inline]
    fn store_slot(&mut self, begin: usize, payload: &[u64], tag: [u64; TAG_WORDS], code: u16) {
        self.launched = self.launched.wrapping_add(1);
        let Some(slot) = self.slot(self.launched) else { return };
        let burst = slot.get(begin..).unwrap_or_default();
        for (place, word) in burst.iter().zip(payload.iter().chain(&tag)) {
            place.store(word.to_le(), Ordering::Relaxed);
        }
        self.store_received(slot);
        if let Some(launch) = slot.get(SLOT_LAUNCH_WORD) {
            launch.store(launch_word(code, self.launched).to_le(), Ordering::Release);
        }
    }

    /// Says beside a launch what was received before it.
    #[inline]
    fn store_received(&self, slot: &[AtomicU64]) {
        if let Some(received) = slot.get(SLOT_RECEIVED_WORD) {
            received.store((RECEIVED_KNOWN | u64::from(self.taken as u32)).to_le(), Ordering::Relaxed);
        }
    }

    #[inline]
    fn slot(&self, sequence: u32) -> Option<&[AtomicU64]> {
        let page = self.guest.bar().page(requester_page(self.port));
        let first = slot_of(sequence) as usize * SLOT_WORDS;
        page.get(first..first + SLOT_WORDS)
    }

    /// Takes the next slice if it has arrived.
    #[inline]
    pub fn try_receive(&mut self) -> Option<Received> {
        let slice = self.next_slice()?;
        let word = u64::from_le(slice.get(SLICE_STATUS_WORD)?.load(Ordering::Acquire));
        let status = SliceStatus::decode(word)?;
        if status.number != (self.taken as u32).wrapping_add(1) {
            return None;
        }
        let mut received = Received { status, payload: [0; PAYLOAD_WORDS], tag: [0; TAG_WORDS] };
        let words = usize::from(status.words);
        let begin = slice.get(SLICE_TAG_WORD - words..).unwrap_or_default();
        let targets = received.payload.iter_mut().take(words).chain(&mut received.tag);
        for (target, word) in targets.zip(begin) {
            *target = u64::from_le(word.load(Ordering::Relaxed));
        }
        self.taken += 1;
        Some(received)
    }

    /// Takes the words of the next slice as they are, if it has arrived: an event of a card whose slices are events.
    #[inline]
    pub fn try_take(&mut self) -> Option<[u64; SLICE_WORDS]> {
        let slice = self.next_slice()?;
        let status = u64::from_le(slice.get(SLICE_STATUS_WORD)?.load(Ordering::Acquire));
        if (status >> SLICE_NUMBER_SHIFT) as u32 != (self.taken as u32).wrapping_add(1) {
            return None;
        }
        let mut words = [0; SLICE_WORDS];
        for (word, place) in words.iter_mut().zip(slice) {
            *word = u64::from_le(place.load(Ordering::Relaxed));
        }
        self.taken += 1;
        Some(words)
    }

    /// Where the next slice will be.
    #[inline]
    fn next_slice(&self) -> Option<&[AtomicU64]> {
        let index = self.taken % u64::from(self.slices);
        self.guest.memory().atomics(self.slices_address + index * SLICE_BYTES, SLICE_WORDS).ok()
    }

    /// Tells the device that [`Self::release_lazily`] will be called after each slice. Before a sender is authorized.
    pub fn promise_lazy_release(&self) {
        self.store_register(COMPLETER_INTERVAL_OFFSET, u64::from(self.slices / 4).max(1));
    }

    /// Frees what was taken, once a quarter of the queue came together; true when a doorbell may be due.
    #[inline]
    pub fn release_lazily(&mut self) -> bool {
        let due = self.taken - self.released >= u64::from(self.slices / 4).max(1);
        if due {
            self.release(self.taken);
        }
        due
    }

    /// Stores the register that says how many slices were consumed.
    pub fn release(&mut self, slices: u64) {
        self.released = slices;
        self.store_register(COMPLETER_RELEASED_OFFSET, slices);
    }

    /// Asks for one interrupt when slice `number` is there.
    pub fn arm(&self, number: u64) {
        self.store_register(COMPLETER_ARMED_OFFSET, number);
    }

    fn store_register(&self, offset: u64, value: u64) {
        let page = self.guest.bar().page(completer_page(self.port));
        if let Some(register) = page.get(offset as usize / 8) {
            register.store(value.to_le(), Ordering::Release);
        }
    }

    /// Slices taken since the port was opened.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Rings the doorbell if the device wants one.
    #[inline]
    pub fn announce(&self) {
        self.guest.announce();
    }

    /// The status line.
    pub fn status_line(&self) -> StatusLine {
        StatusLine {
            launched: self.status_word(0),
            notified: self.status_word(1),
            acknowledged: self.status_word(2),
            sent: self.status_word(3),
            refused: self.status_word(4),
            refusal: self.status_word(5),
            ..StatusLine::default()
        }
    }

    #[inline]
    fn status_word(&self, index: usize) -> u64 {
        let line = self.guest.memory().atomics::<AtomicU64>(self.status_address, STATUS_WORDS);
        line.ok()
            .and_then(|line| line.get(index))
            .map_or(0, |word| u64::from_le(word.load(Ordering::Acquire)))
    }
}

/// The page-offset code of a burst that begins at word `begin` of the slot.
const fn begin_code(begin: usize) -> u16 {
    (begin as u16) << CODE_LENGTH_SHIFT
}
