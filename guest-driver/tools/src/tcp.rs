//! The TCP transport: the baseline, one connection with `TCP_NODELAY`.
//!
//! A message on the wire consists of the tag, 16 bytes, and the payload: the words that a slice would carry. A message
//! takes one system call at each end as long as the socket's buffers have room.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use niclab_user::WaitPolicy;
use niclab_user::slices::Flags;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};

use crate::Failure;
use crate::channel::{Channel, Tag};

/// Bytes of a tag on the wire.
pub const TAG_BYTES: usize = 16;
/// Largest payload.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// Pause between two attempts to connect to a peer that does not listen yet.
const RETRY: Duration = Duration::from_millis(20);

/// The connection to open, and how to wait.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// Address at which the lower rank of the pair listens.
    pub listen: SocketAddr,
    /// Whether this is the lower rank.
    pub is_listener: bool,
    /// Address of the peer.
    pub peer: IpAddr,
    /// Largest payload of the run.
    pub payload_bytes: usize,
    /// How to wait for a message.
    pub policy: WaitPolicy,
    /// Longest wait, wall time.
    pub timeout: Duration,
}

/// A connection.
pub struct TcpChannel {
    stream: TcpStream,
    peer: String,
    policy: WaitPolicy,
    /// Received bytes that are not yet messages: `incoming[begin..end]`.
    incoming: Vec<u8>,
    begin: usize,
    end: usize,
    /// The message being sent, of which `sent` bytes are with the kernel.
    outgoing: Vec<u8>,
    sent: usize,
}

impl TcpChannel {
    /// Listens or connects, depending on the end, until the peer is there.
    ///
    /// # Errors
    ///
    /// [`Failure::Socket`], [`Failure::PeerAbsent`].
    pub fn open(options: &TcpOptions, command: &'static str) -> Result<Self, Failure> {
        let stream = if options.is_listener { accept(options, command)? } else { connect(options, command)? };
        let peer =
            stream.peer_addr().map_or_else(|_| options.peer.to_string(), |address| address.to_string());
        let prepare = || {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(false)?;
            stream.set_write_timeout(Some(options.timeout))?;
            stream.set_read_timeout(Some(options.timeout))
        };
        prepare().map_err(socket_failure("set up the connection to", &peer))?;
        let frame = TAG_BYTES + options.payload_bytes.max(64);
        Ok(Self {
            stream,
            peer,
            policy: options.policy,
            incoming: vec![0; (2 * frame).max(1 << 16)],
            begin: 0,
            end: 0,
            outgoing: Vec::with_capacity(frame),
            sent: 0,
        })
    }

    fn encode(&mut self, payload: &[u8], tag: Tag) {
        self.outgoing.clear();
        self.sent = 0;
        for word in tag.encode() {
            self.outgoing.extend_from_slice(&word.to_le_bytes());
        }
        self.outgoing.extend_from_slice(payload);
    }

    /// Takes the next message out of the received bytes; `None` if it is not complete.
    fn decode(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        let bytes = self.incoming.get(self.begin..self.end).unwrap_or_default();
        let Some((first, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
        let Some((second, rest)) = rest.split_first_chunk::<8>() else { return Ok(None) };
        let words = [u64::from_le_bytes(*first), u64::from_le_bytes(*second)];
        let tag = Tag::decode(words).filter(|tag| tag.bytes as usize + TAG_BYTES <= self.incoming.len());
        let Some(tag) = tag else {
            return Err(Failure::OutOfStep {
                peer: self.peer.clone(),
                expected: "a message of niclab-perf".into(),
                found: format!("{words:x?}"),
            });
        };
        let Some(payload) = rest.get(..tag.bytes as usize) else { return Ok(None) };
        let copied = payload.len().min(buffer.len());
        buffer[..copied].copy_from_slice(&payload[..copied]);
        self.begin += TAG_BYTES + payload.len();
        Ok(Some(tag))
    }

    /// Receives some bytes; `false` if there are none. A blocking call returns `false` only after its timeout.
    fn fill(&mut self, flags: MsgFlags) -> Result<bool, Failure> {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        } else if self.begin > self.incoming.len() / 2 {
            self.incoming.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let room = self.incoming.get_mut(self.end..).unwrap_or_default();
        match recv(self.stream.as_raw_fd(), room, flags) {
            Ok(0) => Err(Failure::PeerLeft { peer: self.peer.clone() }),
            Ok(bytes) => {
                self.end += bytes;
                Ok(true)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
            Err(Errno::ECONNRESET) => Err(Failure::PeerLeft { peer: self.peer.clone() }),
            Err(errno) => Err(socket_failure("receive from", &self.peer)(errno.into())),
        }
    }

    /// Passes the message being sent to the kernel, as far as it has room. Returns whether all of it was passed.
    fn try_flush(&mut self) -> Result<bool, Failure> {
        while let Some(rest) = self.outgoing.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match send(self.stream.as_raw_fd(), rest, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::EAGAIN) => return Ok(false),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(socket_failure("send to", &self.peer)(errno.into())),
            }
        }
        Ok(true)
    }

    /// Polls for a message for as long as the policy requires.
    fn spin(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        let limit = match self.policy {
            WaitPolicy::Block => return Ok(None),
            WaitPolicy::Adaptive { spin } => spin,
            WaitPolicy::Spin => self.stream.read_timeout().ok().flatten().unwrap_or(Duration::MAX),
        };
        let began = Instant::now();
        while began.elapsed() < limit {
            if let Some(tag) = self.try_receive(buffer)? {
                return Ok(Some(tag));
            }
            std::hint::spin_loop();
        }
        Ok(None)
    }
}

impl AsFd for TcpChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Channel for TcpChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn try_send(&mut self, payload: &[u8], tag: Tag, _: Flags) -> Result<bool, Failure> {
        if !self.try_flush()? {
            return Ok(false);
        }
        self.encode(payload, tag);
        self.try_flush()?;
        Ok(true)
    }

    fn send(&mut self, payload: &[u8], tag: Tag, _: Flags) -> Result<(), Failure> {
        self.flush()?;
        self.encode(payload, tag);
        self.flush()
    }

    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        if let Some(tag) = self.decode(buffer)? {
            return Ok(Some(tag));
        }
        if self.fill(MsgFlags::MSG_DONTWAIT)? { self.decode(buffer) } else { Ok(None) }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure> {
        if let Some(tag) = self.spin(buffer)? {
            return Ok(tag);
        }
        loop {
            if let Some(tag) = self.decode(buffer)? {
                return Ok(tag);
            }
            if !self.fill(MsgFlags::empty())? {
                return Err(socket_failure("receive from", &self.peer)(io::ErrorKind::TimedOut.into()));
            }
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let rest = self.outgoing.get(self.sent..).unwrap_or_default();
        if !rest.is_empty() {
            (&self.stream).write_all(rest).map_err(socket_failure("send to", &self.peer))?;
            self.sent = self.outgoing.len();
        }
        Ok(())
    }
}

/// Makes a [`Failure::Socket`] of an operation, an address and an I/O error.
pub fn socket_failure(operation: &'static str, address: &str) -> impl Fn(io::Error) -> Failure {
    move |source| Failure::Socket { operation, address: address.to_owned(), source }
}

fn accept(options: &TcpOptions, command: &'static str) -> Result<TcpStream, Failure> {
    let place = options.listen.to_string();
    let failure = socket_failure("listen at", &place);
    let listener = TcpListener::bind(options.listen).map_err(&failure)?;
    let deadline = Instant::now() + options.timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        let mut files = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut files, PollTimeout::try_from(left_ms).unwrap_or(PollTimeout::MAX)) {
            Ok(0) => return Err(absent(options, command)),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(failure(errno.into())),
        }
        let (stream, address) = listener.accept().map_err(&failure)?;
        // Attack: the port is open to the whole network, so connections from other hosts are closed.
        if address.ip() == options.peer {
            return Ok(stream);
        }
    }
}

fn connect(options: &TcpOptions, command: &'static str) -> Result<TcpStream, Failure> {
    let deadline = Instant::now() + options.timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(absent(options, command));
        }
        match TcpStream::connect_timeout(&options.listen, left) {
            Ok(stream) => return Ok(stream),
            // The peer does not listen yet, or its node is not up. No event announces that, so retry.
            Err(error) if is_early(&error) => thread::sleep(RETRY.min(left)),
            Err(source) => return Err(socket_failure("connect to", &options.listen.to_string())(source)),
        }
    }
}

fn is_early(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut)
}

fn absent(options: &TcpOptions, command: &'static str) -> Failure {
    Failure::PeerAbsent { peer: options.peer.to_string(), waited: options.timeout, command }
}
