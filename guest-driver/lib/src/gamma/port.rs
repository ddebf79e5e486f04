//! An active port.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use niclab_abi::config::FEATURE_RINGS;
use niclab_abi::control::PORT_ANY;
use niclab_abi::gamma::ACTIVE_PORT_MAX_MESSAGE_BYTES;
use niclab_abi::ioctl::{
    ACTIVE_ERROR_INCOMPLETE, ACTIVE_ERROR_LOST, ACTIVE_ERROR_NO_BUFFER, ACTIVE_ERROR_TOO_LONG,
    ACTIVE_NO_BUFFER, ACTIVE_SEND_BLOCK, ACTIVE_SEND_MORE, ActiveOpen, ActiveReceive, ActiveSend,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::requests;
use crate::backing::request_error;
use crate::wait::WaitClock;
use crate::{Address, Batching, Device, Error, SharedMemory, WaitPolicy};

/// Polls between two clock reads.
const LOOKS_PER_CLOCK: u32 = 64;
/// Longest sleep between two polls. A wait checks at the same interval whether the device is alive.
const SLEEP: Duration = Duration::from_millis(100);
/// The same, if the card does not interrupt.
const BLIND_SLEEP: Duration = Duration::from_millis(1);
/// Maximum number of messages in flight before a send waits for them.
const MAX_IN_FLIGHT: usize = 64;

/// How to open a port; the default is any free port with 64 buffers for messages of 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOptions {
    port: Option<u32>,
    buffers: u32,
    buffer_bytes: u32,
    policy: WaitPolicy,
}

impl Default for PortOptions {
    fn default() -> Self {
        Self { port: None, buffers: 64, buffer_bytes: 64 << 10, policy: WaitPolicy::Spin }
    }
}

impl PortOptions {
    /// Opens this port only.
    #[must_use]
    pub fn port(self, port: u32) -> Self {
        Self { port: Some(port), ..self }
    }

    /// Number of receive buffers, each for one message of at most `buffer_bytes` bytes.
    #[must_use]
    pub fn buffers(self, buffers: u32, buffer_bytes: u32) -> Self {
        Self { buffers, buffer_bytes, ..self }
    }

    /// How to wait for messages: by polling, or asleep until the card interrupts.
    #[must_use]
    pub fn policy(self, policy: WaitPolicy) -> Self {
        Self { policy, ..self }
    }
}

/// A message, as passed to a handler.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    source: Address,
    number: u64,
    memory: &'a SharedMemory,
    begin: usize,
    bytes: usize,
}

impl Message<'_> {
    /// Its sender.
    pub fn source(&self) -> Address {
        self.source
    }

    /// Its number among the port's messages and errors, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies its bytes from `offset` on into `out`, as many as there are and fit. Returns their number.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> usize {
        let bytes = self.bytes.saturating_sub(offset).min(out.len());
        let is_there = self.memory.copy_out(self.begin + offset.min(self.bytes), &mut out[..bytes]);
        debug_assert!(is_there, "the driver names a buffer of the port");
        bytes
    }
}

/// An active port: an open file of the character device that owns it.
#[derive(Debug)]
pub struct Port {
    device: String,
    address: Address,
    /// Closed before the memory is freed, which it has pinned.
    file: File,
    memory: SharedMemory,
    buffer_bytes: usize,
    buffers: u32,
    policy: WaitPolicy,
    is_interrupted: bool,
    /// The buffer of the last message, returned to the driver at the next poll.
    done: u32,
    /// Memory of messages that may not have left.
    in_flight: Vec<SharedMemory>,
    /// Number of open batches.
    batches: u32,
}

impl Port {
    /// Opens an active port of `device`.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFeature`], [`Error::BadValue`], [`Error::PortBusy`], [`Error::NoMemory`], [`Error::Refused`],
    /// [`Error::DeviceGone`].
    pub fn open(device: &Device, options: PortOptions) -> Result<Self, Error> {
        device.expect(FEATURE_RINGS, "descriptor rings")?;
        let PortOptions { port, buffers, buffer_bytes, policy } = options;
        let bytes = buffers as usize * buffer_bytes as usize;
        let memory = SharedMemory::pages(bytes).map_err(|source| Error::NoMemory { bytes, source })?;
        let file = device.open_file()?;
        let port = port.unwrap_or(PORT_ANY);
        let mut argument = ActiveOpen { port, buffers, buffer_bytes, ..ActiveOpen::default() };
        requests::open(&file, &mut argument, &memory).map_err(|errno| match errno {
            Errno::EBUSY => Error::PortBusy { device: device.name().into(), port: port.to_string() },
            Errno::ENOSPC => Error::PortBusy { device: device.name().into(), port: "any".into() },
            errno => request_error(
                device.name(),
                errno,
                format!("open an active port with {buffers} buffers of {buffer_bytes} bytes"),
            ),
        })?;
        Ok(Self {
            device: device.name().into(),
            address: Address { node: device.info().node, port: argument.port },
            file,
            memory,
            buffer_bytes: buffer_bytes as usize,
            buffers,
            policy,
            is_interrupted: argument.interrupt_frames > 0,
            done: ACTIVE_NO_BUFFER,
            in_flight: Vec::new(),
            batches: 0,
        })
    }

    /// The port's own address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Sends a message from the program's memory and returns once it has left. Waits until the window allows it.
    ///
    /// # Errors
    ///
    /// [`Error::Stalled`] after `limit`, [`Error::BadValue`], [`Error::Refused`], [`Error::DeviceGone`].
    pub fn send(&self, target: Address, message: &[u8], limit: Duration) -> Result<(), Error> {
        let address = message.as_ptr().expose_provenance() as u64;
        let argument = self.argument(target, address, message.len(), ACTIVE_SEND_BLOCK, limit)?;
        requests::send(&self.file, &argument).map_err(|errno| self.send_error(errno, target, limit))
    }

    /// Sends part of `memory` if the window allows the message to begin now; otherwise returns `false`. Does not wait
    /// until the message has left: the memory must not change until a [flush](Self::flush). If the window ends within
    /// the message, waits up to `limit` for the rest.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`], [`Error::Refused`], [`Error::DeviceGone`], [`Error::Stalled`].
    pub fn try_send(
        &mut self,
        target: Address,
        memory: &SharedMemory,
        part: Range<usize>,
        limit: Duration,
    ) -> Result<bool, Error> {
        if part.end > memory.bytes() || part.start > part.end {
            let range = format!("at most {}", memory.bytes());
            return Err(Error::BadValue { what: "the end of a message", value: part.end as u64, range });
        }
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            self.flush(limit)?;
        }
        let address = memory.address() + part.start as u64;
        let flags = if self.batches > 0 { ACTIVE_SEND_MORE } else { 0 };
        let argument = self.argument(target, address, part.len(), flags, limit)?;
        let is_sent = self.try_request(&argument, target, limit)?;
        if is_sent {
            self.in_flight.push(memory.clone());
        }
        Ok(is_sent)
    }

    /// As [`Self::try_send`] in a batch, for memory that the caller of the C interface keeps unchanged.
    pub(crate) fn try_post(&self, target: Address, message: &[u8], limit: Duration) -> Result<bool, Error> {
        let address = message.as_ptr().expose_provenance() as u64;
        let argument = self.argument(target, address, message.len(), ACTIVE_SEND_MORE, limit)?;
        self.try_request(&argument, target, limit)
    }

    fn try_request(&self, argument: &ActiveSend, target: Address, limit: Duration) -> Result<bool, Error> {
        match requests::send(&self.file, argument) {
            Ok(()) => Ok(true),
            Err(Errno::EAGAIN) => Ok(false),
            Err(errno) => Err(self.send_error(errno, target, limit)),
        }
    }

    /// Waits until all messages have left.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] after `limit`, [`Error::Refused`], [`Error::DeviceGone`].
    pub fn flush(&mut self, limit: Duration) -> Result<(), Error> {
        let argument = ActiveSend { timeout_ms: millis(limit), ..ActiveSend::default() };
        requests::flush(&self.file, &argument).map_err(|errno| match errno {
            Errno::ETIMEDOUT | Errno::EAGAIN => self.timed_out("flush", limit),
            errno => request_error(&self.device, errno, "wait until messages have left".into()),
        })?;
        self.in_flight.clear();
        Ok(())
    }

    fn argument(
        &self,
        target: Address,
        address: u64,
        bytes: usize,
        flags: u32,
        limit: Duration,
    ) -> Result<ActiveSend, Error> {
        let most = ACTIVE_PORT_MAX_MESSAGE_BYTES;
        let Some(bytes) = u32::try_from(bytes).ok().filter(|bytes| u64::from(*bytes) <= most) else {
            let range = format!("at most {most}");
            return Err(Error::BadValue { what: "the length of a message", value: bytes as u64, range });
        };
        let Address { node, port } = target;
        Ok(ActiveSend { node, port, address, bytes, flags, timeout_ms: millis(limit), reserved: 0 })
    }

    fn send_error(&self, errno: Errno, target: Address, waited: Duration) -> Error {
        match errno {
            Errno::ETIMEDOUT => {
                Error::Stalled { device: self.device.clone(), port: self.address.port, target, waited }
            }
            errno => request_error(&self.device, errno, format!("send to {target}")),
        }
    }

    fn timed_out(&self, operation: &'static str, waited: Duration) -> Error {
        Error::TimedOut { device: self.device.clone(), operation, waited }
    }

    /// Polls the card's ring, and passes the next message to `handler`, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Raised`] for a loss, [`Error::DeviceGone`].
    pub fn try_receive<T>(&mut self, handler: impl FnOnce(&Message<'_>) -> T) -> Result<Option<T>, Error> {
        self.receive_within(Duration::ZERO, handler)
    }

    /// Like [`Self::try_receive`]; if the card interrupts, sleeps up to `sleep` for a message.
    fn receive_within<T>(
        &mut self,
        sleep: Duration,
        handler: impl FnOnce(&Message<'_>) -> T,
    ) -> Result<Option<T>, Error> {
        let done = std::mem::replace(&mut self.done, ACTIVE_NO_BUFFER);
        let mut event = ActiveReceive { buffer: done, timeout_ms: millis(sleep), ..ActiveReceive::default() };
        match requests::receive(&self.file, &mut event) {
            Ok(()) => {}
            Err(Errno::EAGAIN) => return Ok(None),
            Err(errno) => {
                self.done = done;
                return Err(request_error(&self.device, errno, "poll for a message".into()));
            }
        }
        let source = Address { node: event.node, port: event.port };
        if event.errors != 0 {
            return Err(self.raised(source, &event));
        }
        let bytes = event.bytes as usize;
        if event.buffer >= self.buffers || bytes > self.buffer_bytes {
            let what = format!(
                "port {}: a message in buffer {}, which does not exist",
                self.address.port, event.buffer
            );
            return Err(Error::Inconsistent { device: self.device.clone(), what });
        }
        self.done = event.buffer;
        let begin = event.buffer as usize * self.buffer_bytes;
        Ok(Some(handler(&Message { source, number: event.number, memory: &self.memory, begin, bytes })))
    }

    /// Waits for the next message, and passes it to `handler`.
    ///
    /// # Errors
    ///
    /// As [`Self::try_receive`]; [`Error::TimedOut`] after `limit`.
    pub fn receive<T>(
        &mut self,
        limit: Duration,
        handler: impl FnOnce(&Message<'_>) -> T,
    ) -> Result<T, Error> {
        let mut handler = Some(handler);
        let (mut clock, mut asked, mut looks) = (None, None, 0_u32);
        let is_blocking = self.policy == WaitPolicy::Block && self.is_interrupted;
        let mut sleep = if is_blocking { limit.min(SLEEP) } else { Duration::ZERO };
        loop {
            let look = |message: &Message<'_>| handler.take().map(|handler| handler(message));
            if let Some(seen) = self.receive_within(sleep, look)?.flatten() {
                return Ok(seen);
            }
            looks = looks.wrapping_add(1);
            if self.policy != WaitPolicy::Block && !looks.is_multiple_of(LOOKS_PER_CLOCK) {
                continue;
            }
            let now = Instant::now();
            let clock = clock.get_or_insert_with(|| WaitClock::start(now, limit.into()));
            let left = clock.advance(now);
            let waited = now.duration_since(clock.began);
            if left.is_zero() {
                return Err(self.timed_out("receive", waited));
            }
            if now.duration_since(*asked.get_or_insert(now)) >= SLEEP {
                self.check()?;
                asked = Some(now);
            }
            match self.policy {
                WaitPolicy::Spin => {}
                WaitPolicy::Adaptive { spin } if waited < spin => {}
                WaitPolicy::Adaptive { .. } | WaitPolicy::Block if self.is_interrupted => {
                    sleep = left.min(SLEEP);
                }
                WaitPolicy::Adaptive { .. } | WaitPolicy::Block => self.sleep_blindly()?,
            }
        }
    }

    /// Passes all received messages to `handler`. Returns their number.
    ///
    /// # Errors
    ///
    /// As [`Self::try_receive`]. Later messages are available at the next call.
    pub fn poll(&mut self, mut handler: impl FnMut(&Message<'_>)) -> Result<u64, Error> {
        let mut count = 0;
        while self.try_receive(&mut handler)?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    fn check(&self) -> Result<(), Error> {
        requests::check(&self.file)
            .map_err(|errno| request_error(&self.device, errno, "check the device".into()))
    }

    /// Sleeps for a while, or until another thread has found a message. The card does not interrupt.
    fn sleep_blindly(&self) -> Result<(), Error> {
        let timeout = PollTimeout::try_from(BLIND_SLEEP).unwrap_or(PollTimeout::MAX);
        let mut files = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        match poll(&mut files, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(request_error(&self.device, errno, "wait for a message".into())),
        }
    }

    #[cold]
    fn raised(&self, source: Address, event: &ActiveReceive) -> Error {
        let causes = [
            (ACTIVE_ERROR_LOST, "frames did not arrive"),
            (ACTIVE_ERROR_INCOMPLETE, "part of a message did not arrive, and the message is dropped"),
            (ACTIVE_ERROR_TOO_LONG, "a message was longer than a receive buffer, and the message is dropped"),
            (ACTIVE_ERROR_NO_BUFFER, "no receive buffer was free for a message, and the message is dropped"),
        ];
        let what = causes.iter().filter(|(flag, _)| event.errors & flag != 0).map(|(_, what)| *what);
        Error::Raised {
            device: self.device.clone(),
            port: self.address.port,
            source_address: source,
            lost_frames: event.lost_frames,
            what: what.collect::<Vec<_>>().join("; "),
        }
    }
}

/// Messages of [`Port::try_send`] share a notification of the card. Messages of [`Port::send`] have left when it
/// returns, so each has its own.
impl Batching for Port {
    fn begin_batch(&mut self) {
        self.batches += 1;
    }

    fn end_batch(&mut self) {
        self.batches = self.batches.saturating_sub(1);
        if self.batches == 0 {
            // Any flush notifies the card. Whether messages have left does not matter, and the next call reports
            // errors.
            let _ = requests::flush(&self.file, &ActiveSend::default());
        }
    }

    fn ring_deferred(&mut self) {
        // Any flush notifies the card. Whether messages have left does not matter, and the next call reports errors.
        let _ = requests::flush(&self.file, &ActiveSend::default());
    }
}

/// Whole milliseconds, rounded up.
fn millis(limit: Duration) -> u32 {
    u32::try_from(limit.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX)
}
