//! One open port: the host's half that guests also run ([`niclab_port`]), over this guest's memory and BAR.
//!
//! The user library adds waiting and convenience to the host's half. This port has none, so a benchmark measures the
//! device, and a test can send values that no library would.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use niclab_abi::FromBytes;
use niclab_abi::PAGE_BYTES;
use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS, WINDOW_COMPLETER, WINDOW_REQUESTER};
use niclab_abi::control::{
    Authorize, OP_AUTHORIZE, OP_PORT_CLOSE, OP_PORT_OPEN, OP_ROUTE, PORT_ANY, PortName, PortOpen, PortOpened,
    Route,
};
use niclab_abi::receive::{SLICE_BYTES, SLICE_WORDS};
use niclab_port::atomic::{AtomicPage, AtomicRecords};
use niclab_port::slices::{self, Flags, Message, Slice};
use niclab_port::{Kind, Queue, Records, Register, Requester, Status};
use niclab_workloads::AtomicMemory;

use super::{ClusterGuest, FrontendError};

/// Words of the page that begins with the status line.
const STATUS_WORDS: usize = PAGE_BYTES as usize / 8;

/// An open port. Dropping it leaves the port open, as a crashed program does.
pub struct GuestPort<K = Slice> {
    guest: Arc<ClusterGuest>,
    port: u32,
    requester_page: u32,
    completer_page: u32,
    slices_address: u64,
    status_address: u64,
    requester: Requester,
    queue: Queue<K>,
}

impl GuestPort {
    /// Opens any free port with `slices` slices.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn open(guest: &Arc<ClusterGuest>, slices: u32) -> Result<Self, FrontendError> {
        Self::open_for(guest, slices)
    }

    /// Stores payload and tag into the next slot and posts it with `CODE_` constants as flags, without a doorbell.
    /// False if the page is full.
    #[inline]
    pub fn try_launch(&mut self, payload: &[u64], tag: [u64; TAG_WORDS], flags: u16) -> bool {
        let has_room = self.has_slot() && payload.len() <= PAYLOAD_WORDS;
        if has_room {
            let (received, flags) = (self.queue.received(), Flags::from_code(flags));
            let Self { guest, requester_page, requester, .. } = self;
            let mut page = AtomicPage { requester: guest.bar().page(*requester_page), status: &[] };
            slices::launch(requester, &mut page, payload, tag, flags, received);
        }
        has_room
    }

    /// Takes the next message, if it has arrived.
    #[inline]
    pub fn try_receive(&mut self) -> Option<Message> {
        self.with_records(|queue, records| slices::take(queue, records)).map(|(message, _)| message)
    }

    /// Takes all messages that have arrived. It translates the queue's address once, as a guest's program does by
    /// mapping.
    #[inline]
    pub fn receive_all(&mut self, mut take: impl FnMut(Message)) {
        self.with_records(|queue, records| {
            while let Some((message, _)) = slices::take(queue, records) {
                take(message);
            }
        });
    }
}

impl<K: Kind> GuestPort<K> {
    /// Opens any free port with `slices` slices of this kind.
    pub(super) fn open_for(guest: &Arc<ClusterGuest>, slices: u32) -> Result<Self, FrontendError> {
        let memory = guest.memory();
        let slices_address = memory.allocate(u64::from(slices) * SLICE_BYTES, 64)?;
        // A complete page, as for a card that writes counters after the status line.
        let status_address = memory.allocate(PAGE_BYTES, PAGE_BYTES)?;
        let open = PortOpen { port: PORT_ANY, slices, slices_address, status_address, ..PortOpen::default() };
        let opened = guest.command(OP_PORT_OPEN, &open)?;
        let opened = PortOpened::from_bytes(&opened).ok_or(FrontendError::Malformed("a short PortOpened"))?;
        Ok(Self {
            guest: Arc::clone(guest),
            port: opened.port,
            requester_page: guest.page_of(WINDOW_REQUESTER, opened.port)?,
            completer_page: guest.page_of(WINDOW_COMPLETER, opened.port)?,
            slices_address,
            status_address,
            requester: Requester::new(0),
            queue: Queue::new(slices, 0),
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

    /// The guest that owns the port.
    pub const fn guest(&self) -> &Arc<ClusterGuest> {
        &self.guest
    }

    /// Sets the destination of the port's messages.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn route(&self, node: u32, node_port: u32) -> Result<(), FrontendError> {
        let route = Route { port: self.port, node, node_port, reserved: 0 };
        self.guest.command(OP_ROUTE, &route).map(drop)
    }

    /// Authorizes a remote port to send to this one.
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

    /// Posts a command into the next slot: all of its words, and the lower half of the launch word. Returns the
    /// number of the post. None if the page is full.
    #[inline]
    pub fn try_command(&mut self, code: u32, words: &[u64; PAYLOAD_WORDS + TAG_WORDS]) -> Option<u32> {
        self.has_slot().then(|| self.launch_raw(code, words))
    }

    /// Whether the next slot is free, by the device's last status. Does not report refusals: a caller that provokes
    /// them reads [`Self::status_line`].
    #[inline]
    fn has_slot(&mut self) -> bool {
        if !self.requester.is_full() {
            return true;
        }
        let words = self.guest.memory().atomics(self.status_address, STATUS_WORDS).unwrap_or_default();
        let _ = self.requester.refresh(&AtomicPage { requester: &[], status: words });
        !self.requester.is_full()
    }

    /// Posts the next slot with any code, even if the page is full. Returns the number of the post.
    #[inline]
    pub fn launch_raw(&mut self, code: u32, words: &[u64; PAYLOAD_WORDS + TAG_WORDS]) -> u32 {
        let received = self.queue.received();
        let Self { guest, requester_page, requester, .. } = self;
        let mut page = AtomicPage { requester: guest.bar().page(*requester_page), status: &[] };
        requester.launch(&mut page, 0, words.iter().copied(), code, received) as u32
    }

    /// From now on releases taken slices whenever they are a quarter of the queue, and announces this interval to the
    /// device. Must be called before a sender is authorized.
    pub(super) fn release_by_itself(&mut self) {
        let interval = self.queue.usual_release_interval();
        self.with_records(|queue, records| queue.set_release_interval(interval, records));
    }

    /// Announces to the device that the caller calls [`Self::release_lazily`] after each slice. Must be called before
    /// a sender is authorized.
    pub fn promise_lazy_release(&self) {
        self.store(Register::ReleaseInterval, self.queue.usual_release_interval());
    }

    /// Releases taken slices if they are a quarter of the queue. True if the device may need a doorbell.
    #[inline]
    pub fn release_lazily(&mut self) -> bool {
        let due = self.taken() - self.queue.released() >= self.queue.usual_release_interval();
        if due {
            self.with_records(|queue, records| queue.release(records));
        }
        due
    }

    /// Stores any number into the register for the number of consumed slices.
    pub fn release(&self, slices: u64) {
        self.store(Register::Released, slices);
    }

    /// Requests one interrupt for slice `number`.
    pub fn arm(&self, number: u64) {
        self.store(Register::Armed, number);
    }

    fn store(&self, register: Register, value: u64) {
        let completer = self.guest.bar().page(self.completer_page);
        AtomicRecords { records: &[], completer }.store(register, value);
    }

    /// Slices taken since the port was opened.
    pub const fn taken(&self) -> u64 {
        self.queue.received()
    }

    /// Rings the doorbell if the device has enabled it.
    #[inline]
    pub fn announce(&self) {
        self.guest.announce();
    }

    /// The status line.
    pub fn status_line(&self) -> Status {
        Status::read(&AtomicPage { requester: &[], status: self.status_page() })
    }

    /// All memory that the port shares with the device, for callers that drive it by other code. `region` is guest
    /// memory, an address and its bytes.
    pub fn memory(&self, region: (u64, u64)) -> AtomicMemory<'_> {
        let (memory, bar) = (self.guest.memory(), self.guest.bar());
        let words = |address, count| memory.atomics(address, count).unwrap_or_default();
        let count = self.queue.capacity() as usize * SLICE_WORDS;
        AtomicMemory {
            page: AtomicPage { requester: bar.page(self.requester_page), status: self.status_page() },
            records: AtomicRecords {
                records: words(self.slices_address, count),
                completer: bar.page(self.completer_page),
            },
            region: words(region.0, (region.1 / 8) as usize),
            payload: self.guest.payload_of(self.port),
        }
    }

    fn status_page(&self) -> &[AtomicU64] {
        self.guest.memory().atomics(self.status_address, STATUS_WORDS).unwrap_or_default()
    }

    #[inline]
    pub(super) fn with_records<T>(
        &mut self,
        act: impl FnOnce(&mut Queue<K>, &mut AtomicRecords<'_>) -> T,
    ) -> T {
        let Self { guest, completer_page, queue, slices_address, .. } = self;
        let words = queue.capacity() as usize * SLICE_WORDS;
        let records = guest.memory().atomics(*slices_address, words).unwrap_or_default();
        act(queue, &mut AtomicRecords { records, completer: guest.bar().page(*completer_page) })
    }
}
