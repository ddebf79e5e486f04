//! The cluster function's driver: configuration, control queue, event queue, doorbell.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use niclab_abi::bar::INFO_DOORBELL_OFFSET;
use niclab_abi::config::{CONFIG_BYTES, DeviceConfig, name_in};
use niclab_abi::control::{
    COUNTERS_PER_REPLY, Counter, CountersFrom, CountersHead, MAX_COUNTERS, OP_COUNTERS, OP_PING, OP_RESET,
    Reply, Request, STATUS_OK,
};
use niclab_abi::event::Event;
use niclab_abi::grim::WINDOW_CHANNEL_PAYLOAD;
use niclab_abi::{FromBytes, MAGIC, QUEUE_DOORBELL, QUEUE_SIZE, QUEUES, ToBytes};
use niclab_port::Windows;
use niclab_port::doorbell::ring_if_needed;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering;
use vmm_sys_util::eventfd::EventFd;

use super::{Connection, DriverRing, FrontendError, GuestMemory, MappedBar};
use crate::ring::Buffer;

/// Time limit of a control request, and of the mapping of the BAR.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest reply is that with counters.
const REPLY_ROOM: usize = Reply::BYTES + CountersHead::BYTES + COUNTERS_PER_REPLY as usize * Counter::BYTES;
const REQUEST_ROOM: usize = niclab_model::nic::MAX_CONTROL_BYTES;

/// The driver's side of the queues.
struct Queues {
    control: DriverRing,
    event: DriverRing,
    transmit: DriverRing,
    receive: DriverRing,
    request: u64,
    reply: u64,
    /// One buffer for each descriptor of the event queue, in the order of their numbers.
    events: u64,
}

/// A guest's driver of the cluster function.
pub struct ClusterGuest {
    connection: Mutex<Connection>,
    memory: Arc<GuestMemory>,
    bar: Arc<MappedBar>,
    windows: Windows,
    config: DeviceConfig,
    queues: Mutex<Queues>,
    doorbell: EventFd,
    /// The number of the device's sleep for which it was rung last.
    rung_for: AtomicU64,
}

impl ClusterGuest {
    /// Connects to the function's socket, starts its queues, sends the first request, and waits for the BAR and its
    /// magic word, as the kernel driver does.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn connect(socket: &Path, memory_bytes: u64) -> Result<Self, FrontendError> {
        let memory = Arc::new(GuestMemory::new(memory_bytes)?);
        let mut connection = Connection::new(socket, u64::from(QUEUES), 0, &memory)?;
        let config = DeviceConfig::from_bytes(&connection.config(CONFIG_BYTES)?)
            .filter(|config| config.magic == MAGIC)
            .ok_or(FrontendError::Malformed("the configuration space has no magic word"))?;
        let mut rings = Vec::new();
        for index in 0..QUEUES {
            let ring = DriverRing::new(&memory, QUEUE_SIZE as u16)?;
            connection.start_queue(index as usize, &ring, &memory)?;
            rings.push(ring);
        }
        let doorbell = rings
            .get(QUEUE_DOORBELL as usize)
            .ok_or(FrontendError::Malformed("no doorbell queue"))?
            .kick
            .try_clone()
            .map_err(|error| FrontendError::System { step: "sharing the doorbell", error })?;
        let mut rings = rings.into_iter();
        // In the order of their numbers.
        let (Some(control), Some(event), Some(transmit), Some(receive)) =
            (rings.next(), rings.next(), rings.next(), rings.next())
        else {
            return Err(FrontendError::Malformed("a queue is missing"));
        };
        let mut queues = Queues {
            request: memory.allocate(REQUEST_ROOM as u64, 8)?,
            reply: memory.allocate(REPLY_ROOM as u64, 8)?,
            events: memory.allocate(u64::from(QUEUE_SIZE) * Event::BYTES as u64, 8)?,
            control,
            event,
            transmit,
            receive,
        };
        request(&mut queues, &memory, OP_PING, &[])?;
        let bar = connection.wait_for_bar(TIMEOUT)?;
        wait_for_magic(&bar)?;
        let windows = Windows::read(bar.page(0))?;
        Ok(Self {
            connection: Mutex::new(connection),
            memory,
            bar,
            windows,
            config,
            queues: Mutex::new(queues),
            doorbell,
            rung_for: AtomicU64::new(0),
        })
    }

    /// The configuration space.
    pub const fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// The guest's memory.
    pub const fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// The BAR.
    pub const fn bar(&self) -> &Arc<MappedBar> {
        &self.bar
    }

    /// The first page of the BAR's window of this kind, or of the port's part of the window.
    ///
    /// # Errors
    /// [`FrontendError::Bar`].
    pub fn page_of(&self, kind: u32, port: u32) -> Result<u32, FrontendError> {
        Ok(self.windows.location(kind, port)?.pages.start)
    }

    /// The payload region of a port's outbound queue. Empty if the card has none.
    pub fn payload_of(&self, port: u32) -> &[AtomicU64] {
        let pages = self.windows.location(WINDOW_CHANNEL_PAYLOAD, port).map(|location| location.pages);
        pages.map_or(&[], |pages| self.bar.pages(pages))
    }

    /// The connection, for actions of QEMU rather than of a driver.
    pub fn connection(&self) -> parking_lot::MutexGuard<'_, Connection> {
        self.connection.lock()
    }

    /// Sends a control request and returns the reply's body.
    ///
    /// # Errors
    /// [`FrontendError::Refused`] with the status, or another [`FrontendError`].
    pub fn request(&self, operation: u32, body: &[u8]) -> Result<Vec<u8>, FrontendError> {
        request(&mut self.queues.lock(), &self.memory, operation, body)
    }

    /// Sends a control request whose body is a layout.
    ///
    /// # Errors
    /// As [`ClusterGuest::request`].
    pub fn command<T: ToBytes>(&self, operation: u32, body: &T) -> Result<Vec<u8>, FrontendError> {
        let mut bytes = vec![0; T::BYTES];
        body.to_bytes(&mut bytes);
        self.request(operation, &bytes)
    }

    /// The counters of the device, by name.
    ///
    /// # Errors
    /// As [`ClusterGuest::request`].
    pub fn statistics(&self) -> Result<BTreeMap<String, u64>, FrontendError> {
        let malformed = || FrontendError::Malformed("the reply with counters is invalid");
        let mut counters = BTreeMap::new();
        let mut first = 0;
        while first < MAX_COUNTERS {
            let body = self.command(OP_COUNTERS, &CountersFrom { first, reserved: 0 })?;
            let head = CountersHead::from_bytes(&body).ok_or_else(malformed)?;
            let places = body.get(CountersHead::BYTES..).unwrap_or_default().chunks_exact(Counter::BYTES);
            for counter in places.take(head.count as usize).filter_map(Counter::from_bytes) {
                let name = name_in(&counter.name_bytes()).ok_or_else(malformed)?.to_owned();
                counters.insert(name, counter.value);
            }
            first += head.count;
            if first >= head.total {
                return Ok(counters);
            }
            if head.count == 0 {
                break;
            }
        }
        Err(malformed())
    }

    /// Closes every port.
    ///
    /// # Errors
    /// As [`ClusterGuest::request`].
    pub fn reset(&self) -> Result<(), FrontendError> {
        self.request(OP_RESET, &[]).map(drop)
    }

    /// Rings the doorbell if the device has enabled it since the last one. Call this after a store into a page.
    #[inline]
    pub fn announce(&self) {
        let word = self.bar.words().get(INFO_DOORBELL_OFFSET as usize / 8);
        ring_if_needed(word, &self.rung_for, || self.ring());
    }

    /// Rings the doorbell, even if the device has not enabled it.
    pub fn ring(&self) {
        // The counter of an event cannot overflow: each ring adds one to 64 bits.
        let _ = self.doorbell.write(1);
    }

    /// Offers `count` buffers for events.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn offer_event_buffers(&self, count: u16) -> Result<(), FrontendError> {
        let mut queues = self.queues.lock();
        let events = queues.events;
        for _ in 0..count {
            // The ring hands out descriptors in no fixed order, so the descriptor determines the buffer.
            let Some(head) = queues.event.next_descriptor() else { break };
            let address = events + u64::from(head) * Event::BYTES as u64;
            let buffer = Buffer { address, bytes: Event::BYTES as u32, writable: true };
            queues.event.add(&[buffer]).map_err(|_| OUTSIDE)?;
        }
        queues.event.notify()
    }

    /// Takes the events that the device has written, and their buffers.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn take_events(&self) -> Result<Vec<Event>, FrontendError> {
        let mut queues = self.queues.lock();
        let mut events = Vec::new();
        while let Some((head, bytes)) = queues.event.poll_used().map_err(|_| OUTSIDE)? {
            queues.event.reclaim(head).map_err(|_| OUTSIDE)?;
            let mut event = [0; Event::BYTES];
            let address = queues.events + u64::from(head) * Event::BYTES as u64;
            self.memory.slice(address, Event::BYTES).map_err(|_| OUTSIDE)?.copy_to(&mut event);
            if bytes as usize == Event::BYTES {
                events.extend(Event::from_bytes(&event));
            }
        }
        Ok(events)
    }

    /// Interrupts of the event queue since the last call. Sleeps up to `timeout` for the first one.
    pub fn wait_interrupts(&self, timeout: Duration) -> u64 {
        let Ok(call) = self.queues.lock().event.call.try_clone() else { return 0 };
        wait_readable(&call, timeout);
        call.read().unwrap_or(0)
    }

    /// The control queue's ring, for hostile tests.
    pub fn with_control_ring<T>(&self, act: impl FnOnce(&mut DriverRing) -> T) -> T {
        act(&mut self.queues.lock().control)
    }

    /// The transmit and receive rings of the descriptor queues.
    pub fn with_descriptor_rings<T>(&self, act: impl FnOnce(&mut DriverRing, &mut DriverRing) -> T) -> T {
        let queues = &mut *self.queues.lock();
        act(&mut queues.transmit, &mut queues.receive)
    }

    /// The event queue's ring, for hostile tests.
    pub fn with_event_ring<T>(&self, act: impl FnOnce(&mut DriverRing) -> T) -> T {
        act(&mut self.queues.lock().event)
    }
}

const OUTSIDE: FrontendError = FrontendError::Malformed("a ring is outside the guest's memory");

fn wait_readable(event: &EventFd, timeout: Duration) {
    // SAFETY: `event` is borrowed, hence open, while the result is in use.
    let descriptor = unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) };
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    let _ = poll(&mut [PollFd::new(descriptor, PollFlags::POLLIN)], timeout);
}

fn wait_for_magic(bar: &MappedBar) -> Result<(), FrontendError> {
    let begin = Instant::now();
    while bar.words().first().is_none_or(|word| u64::from_le(word.load(Ordering::Acquire)) != MAGIC) {
        if begin.elapsed() > TIMEOUT {
            let wall_ms = TIMEOUT.as_millis() as u64;
            return Err(FrontendError::TimedOut { what: "write the magic word into its BAR", wall_ms });
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn request(
    queues: &mut Queues,
    memory: &GuestMemory,
    operation: u32,
    body: &[u8],
) -> Result<Vec<u8>, FrontendError> {
    let mut bytes = vec![0; Request::BYTES];
    Request { operation, body_bytes: body.len() as u32 }.to_bytes(&mut bytes);
    bytes.extend_from_slice(body);
    let fits = Some(bytes.len()).filter(|length| *length <= REQUEST_ROOM);
    let length = fits.ok_or(FrontendError::Malformed("the request is too long"))?;
    memory.slice(queues.request, length).map_err(|_| OUTSIDE)?.copy_from(&bytes);
    let chain = [
        Buffer { address: queues.request, bytes: length as u32, writable: false },
        Buffer { address: queues.reply, bytes: REPLY_ROOM as u32, writable: true },
    ];
    let added = queues.control.add(&chain).map_err(|_| OUTSIDE)?;
    let head = added.ok_or(FrontendError::Malformed("the control queue is full"))?;
    queues.control.notify()?;
    let written = wait_used(&mut queues.control, head)?;
    queues.control.reclaim(head).map_err(|_| OUTSIDE)?;
    let mut reply = vec![0; (written as usize).min(REPLY_ROOM)];
    memory.slice(queues.reply, reply.len()).map_err(|_| OUTSIDE)?.copy_to(&mut reply);
    let header = Reply::from_bytes(&reply).ok_or(FrontendError::Malformed("the reply is too short"))?;
    if header.status != STATUS_OK {
        return Err(FrontendError::Refused { operation, status: header.status });
    }
    let body = reply.split_off(Reply::BYTES);
    if body.len() != header.body_bytes as usize {
        return Err(FrontendError::Malformed("the reply's length and its header differ"));
    }
    Ok(body)
}

/// Waits until the device returns `head`, and returns the number of written bytes. Drops other heads that come first.
fn wait_used(ring: &mut DriverRing, head: u16) -> Result<u32, FrontendError> {
    let begin = Instant::now();
    while begin.elapsed() < TIMEOUT {
        match ring.poll_used().map_err(|_| OUTSIDE)? {
            Some((used, bytes)) if used == head => return Ok(bytes),
            Some(_) => {}
            None => {
                wait_readable(&ring.call, Duration::from_millis(1));
                let _ = ring.call.read();
            }
        }
    }
    let wall_ms = TIMEOUT.as_millis() as u64;
    Err(FrontendError::TimedOut { what: "answer a control request", wall_ms })
}
