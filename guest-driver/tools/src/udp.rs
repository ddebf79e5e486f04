//! The UDP transport: a stream of datagrams; the receiver counts those that arrive.
//!
//! Messages that must not be lost use a TCP connection: greetings, the exchange at cues, and the end of a stream. A
//! datagram consists of a tag and a payload, like a message over TCP. Only the sender's socket paces it, so a slower
//! receiver loses datagrams; none is retransmitted.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use niclab_user::slices::Flags;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};

use crate::Failure;
use crate::bench::{Buffers, End, Outcome, Step};
use crate::channel::{Channel, MessageKind, Tag, receive};
use crate::tcp::{TAG_BYTES, TcpChannel, socket_failure};

/// Bytes of a datagram with its tag. It fits into any Ethernet frame.
const DATAGRAM_BYTES: usize = 1408;
/// Largest payload.
pub const MAX_PAYLOAD_BYTES: usize = DATAGRAM_BYTES - TAG_BYTES;
/// Longest gap between datagrams in flight after the last one was sent: longer than the delay of any link.
const QUIET: Duration = Duration::from_millis(200);
/// Datagrams taken between two polls of the connection. Attack: a host that floods the port cannot block the run.
const BATCH: usize = 256;

/// A socket for datagrams, and the connection to the same peer.
pub struct UdpChannel {
    control: TcpChannel,
    socket: UdpSocket,
    timeout: Duration,
    /// Number of the stream. Each datagram carries it, so that a late one does not count in the next stream.
    streams: u8,
}

impl UdpChannel {
    /// Exchanges the UDP ports with the peer, which both ends have met over `control`.
    ///
    /// # Errors
    ///
    /// [`Failure::Socket`], [`Failure::OutOfStep`], or those of the connection.
    pub fn open(
        mut control: TcpChannel,
        own: IpAddr,
        peer: IpAddr,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let place = format!("a UDP port of {own}");
        let failure = socket_failure("open", &place);
        let socket = UdpSocket::bind((own, 0)).map_err(&failure)?;
        let at = |port: u16| Tag { kind: MessageKind::Data, step: 0, bytes: 2, number: port.into() };
        let own_port = socket.local_addr().map_err(&failure)?.port();
        control.send(&own_port.to_le_bytes(), at(own_port), Flags::NONE)?;
        let mut bytes = [0; 2];
        let tag = receive(&mut control, &mut bytes)?;
        let peer_port = u16::from_le_bytes(bytes);
        tag.expect(at(peer_port), control.peer())?;
        socket.connect((peer, peer_port)).map_err(&failure)?;
        socket.set_write_timeout(Some(timeout)).map_err(&failure)?;
        Ok(Self { control, socket, timeout, streams: 0 })
    }

    /// The connection, for the end of the run.
    pub fn control(&mut self) -> &mut TcpChannel {
        &mut self.control
    }

    /// Runs the step: a warm-up stream, if there is one, then the measured stream. The first end sends and gets the
    /// outcome.
    ///
    /// # Errors
    ///
    /// [`Failure::Socket`], [`Failure::OutOfStep`], or those of the connection.
    pub fn stream(&mut self, step: &Step, buffers: &mut Buffers) -> Result<Option<Outcome>, Failure> {
        let mut outcome = None;
        for count in [step.warmup, step.iterations].into_iter().filter(|count| *count > 0) {
            self.streams = self.streams.wrapping_add(1);
            outcome = match step.end {
                End::First => Some(self.send(count, buffers.payload(step))?),
                End::Second => self.count(count)?,
            };
        }
        Ok(outcome)
    }

    fn done(&self, bytes: u32, number: u64) -> Tag {
        Tag { kind: MessageKind::Done, step: self.streams, bytes, number }
    }

    /// Sends `count` datagrams, and asks the peer how many arrived.
    fn send(&mut self, count: u64, payload: &[u8]) -> Result<Outcome, Failure> {
        let mut datagram = [&[0; TAG_BYTES], payload].concat();
        let began = Instant::now();
        for number in 1..=count {
            let tag =
                Tag { kind: MessageKind::Data, step: self.streams, bytes: payload.len() as u32, number }
                    .encode();
            for (bytes, word) in datagram.as_chunks_mut::<8>().0.iter_mut().zip(tag) {
                *bytes = word.to_le_bytes();
            }
            self.socket.send(&datagram).map_err(socket_failure("send to", self.control.peer()))?;
        }
        let sent = self.done(0, count);
        self.control.send(&[], sent, Flags::NONE)?;
        let mut waited_ns = [0; 8];
        let answer = self.control.receive(&mut waited_ns)?;
        let elapsed = began.elapsed().saturating_sub(Duration::from_nanos(u64::from_le_bytes(waited_ns)));
        let arrived = answer.number.min(count);
        answer.expect(self.done(8, arrived), self.control.peer())?;
        Ok(Outcome { messages: arrived, elapsed, lost: Some(count - arrived), ..Outcome::default() })
    }

    /// Counts arriving datagrams of a stream of `count`, and reports their number to the sender.
    fn count(&mut self, count: u64) -> Result<Option<Outcome>, Failure> {
        let mut seen = Seen::new(self.streams, count);
        let mut last = Instant::now();
        let mut take = |channel: &Self, last: &mut Instant| -> Result<u64, Failure> {
            let before = seen.arrived;
            channel.take(&mut seen)?;
            if seen.arrived > before {
                *last = Instant::now();
            }
            Ok(count - seen.arrived)
        };
        loop {
            take(self, &mut last)?;
            if let Some(tag) = self.control.try_receive(&mut [])? {
                tag.expect(self.done(0, count), self.control.peer())?;
                break;
            }
            if !self.await_any(&[self.socket.as_fd(), self.control.as_fd()], self.timeout)? {
                let late = io::ErrorKind::TimedOut.into();
                return Err(socket_failure("receive from", self.control.peer())(late));
            }
        }
        let deadline = Instant::now() + self.timeout;
        let mut missing = take(self, &mut last)?;
        while missing > 0 && Instant::now() < deadline && self.await_any(&[self.socket.as_fd()], QUIET)? {
            missing = take(self, &mut last)?;
        }
        // The time spent waiting for lost datagrams is not part of the stream's time.
        let waited = if missing > 0 { last.elapsed() } else { Duration::ZERO };
        let answer = self.done(8, count - missing);
        self.control.send(&(waited.as_nanos() as u64).to_le_bytes(), answer, Flags::NONE)?;
        Ok(None)
    }

    /// Takes the datagrams that have arrived.
    fn take(&self, seen: &mut Seen) -> Result<(), Failure> {
        // One byte more than the longest datagram, so that a longer one is recognised.
        let mut datagram = [0; DATAGRAM_BYTES + 1];
        for _ in 0..BATCH {
            match recv(self.socket.as_raw_fd(), &mut datagram, MsgFlags::MSG_DONTWAIT) {
                Ok(bytes) => seen.note(datagram.get(..bytes).unwrap_or_default()),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    return Err(socket_failure("receive from", self.control.peer())(errno.into()));
                }
            }
        }
        Ok(())
    }

    /// Sleeps until a file is readable or `limit` has passed. Returns whether a file may be readable.
    fn await_any(&self, files: &[BorrowedFd<'_>], limit: Duration) -> Result<bool, Failure> {
        let mut files: Vec<PollFd<'_>> =
            files.iter().map(|file| PollFd::new(*file, PollFlags::POLLIN)).collect();
        match poll(&mut files, PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(true),
            Err(errno) => Err(socket_failure("receive from", self.control.peer())(errno.into())),
        }
    }
}

/// The datagrams of a stream that have arrived.
struct Seen {
    stream: u8,
    count: u64,
    /// A bit for each number.
    came: Vec<u64>,
    arrived: u64,
}

impl Seen {
    fn new(stream: u8, count: u64) -> Self {
        // The maximum of the command line takes 12.5 MB.
        Self { stream, count, came: vec![0; (count / 64) as usize + 1], arrived: 0 }
    }

    /// Counts a datagram if it is intact, of this stream, and not a duplicate.
    fn note(&mut self, datagram: &[u8]) {
        let Some((tag, payload)) = datagram.split_first_chunk::<TAG_BYTES>() else { return };
        let &[first, second] = tag.as_chunks::<8>().0 else { return };
        let Some(tag) = Tag::decode([first, second].map(u64::from_le_bytes)) else { return };
        let is_ours =
            (tag.kind, tag.step, tag.bytes as usize) == (MessageKind::Data, self.stream, payload.len());
        if !is_ours || !(1..=self.count).contains(&tag.number) {
            return;
        }
        let bit = 1 << (tag.number % 64);
        if let Some(word) = self.came.get_mut((tag.number / 64) as usize).filter(|word| **word & bit == 0) {
            *word |= bit;
            self.arrived += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::thread;

    use niclab_user::WaitPolicy;

    use super::*;
    use crate::bench::FlagPlan;
    use crate::tcp::TcpOptions;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const LONG: Duration = Duration::from_secs(20);

    /// One end of a pair at this port.
    fn end(port: u16, is_listener: bool) -> UdpChannel {
        let listen = SocketAddr::new(HERE, port);
        let (policy, payload_bytes) = (WaitPolicy::Block, 64);
        let options = TcpOptions { listen, is_listener, peer: HERE, payload_bytes, policy, timeout: LONG };
        UdpChannel::open(TcpChannel::open(&options, "stream").unwrap(), HERE, HERE, LONG).unwrap()
    }

    /// A sender and a receiver.
    fn pair() -> [UdpChannel; 2] {
        let listener = std::net::TcpListener::bind((HERE, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        thread::scope(|scope| {
            let receiver = scope.spawn(|| end(port, true));
            [end(port, false), receiver.join().unwrap()]
        })
    }

    fn step(end: End, iterations: u64, warmup: u64) -> Step {
        Step {
            number: 1,
            end,
            payload_bytes: 16,
            iterations,
            warmup,
            flags: FlagPlan::default(),
            batch: None,
        }
    }

    /// Runs a stream. Returns the sender's outcome.
    fn stream([sender, receiver]: &mut [UdpChannel; 2], iterations: u64, warmup: u64) -> Outcome {
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let nothing =
                    receiver.stream(&step(End::Second, iterations, warmup), &mut Buffers::new(16)).unwrap();
                assert!(nothing.is_none());
            });
            let outcome = sender.stream(&step(End::First, iterations, warmup), &mut Buffers::new(16));
            other.join().unwrap();
            outcome.unwrap().unwrap()
        })
    }

    /// A link between both ends that treats each datagram as `fate` requires, by its number, until an empty one
    /// arrives. It passes a datagram on the given number of times, and then those that it held back. Once the sender is
    /// idle, it passes on all that are still held back.
    fn link(link: &UdpSocket, to: SocketAddr, fate: &dyn Fn(u64) -> Fate) {
        let (mut held, mut datagram) = (Vec::new(), [0; 2048]);
        link.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        let pass = |bytes: &[u8]| link.send_to(bytes, to).map(drop).unwrap();
        loop {
            let Ok(bytes) = link.recv(&mut datagram) else {
                held.drain(..).for_each(|late: Vec<u8>| pass(&late));
                continue;
            };
            let bytes = &datagram[..bytes];
            let Some(number) = bytes.get(8..16) else { return };
            match fate(u64::from_le_bytes(number.try_into().unwrap())) {
                Fate::Held => held.push(bytes.to_vec()),
                Fate::Passed(times) => {
                    (0..times).for_each(|_| pass(bytes));
                    held.drain(..).for_each(|late| pass(&late));
                }
            }
        }
    }

    enum Fate {
        Held,
        Passed(u32),
    }

    /// Runs a stream over such a link. Returns the sender's outcome.
    fn stream_over(fate: &(dyn Fn(u64) -> Fate + Sync), iterations: u64, warmup: u64) -> Outcome {
        let mut ends = pair();
        let between = UdpSocket::bind((HERE, 0)).unwrap();
        let (at, to) = (between.local_addr().unwrap(), ends[1].socket.local_addr().unwrap());
        ends.iter().for_each(|end| end.socket.connect(at).unwrap());
        thread::scope(|scope| {
            scope.spawn(|| link(&between, to, fate));
            let outcome = stream(&mut ends, iterations, warmup);
            ends[0].socket.send(&[]).unwrap();
            outcome
        })
    }

    #[test]
    fn all_datagrams_arrive_on_a_fault_free_link() {
        let mut ends = pair();
        for (iterations, warmup) in [(100, 10), (1, 0), (64, 64)] {
            let outcome = stream(&mut ends, iterations, warmup);
            assert_eq!((outcome.messages, outcome.lost), (iterations, Some(0)));
        }
    }

    #[test]
    fn datagrams_in_any_order_are_counted_once() {
        let fate = |number: u64| match number {
            _ if number.is_multiple_of(7) => Fate::Passed(0),
            _ if number.is_multiple_of(5) => Fate::Passed(3),
            // This includes the last one, which arrives after the sender announced the end.
            _ if number % 4 == 2 || number == 99 => Fate::Held,
            _ => Fate::Passed(1),
        };
        let outcome = stream_over(&fate, 99, 0);
        assert_eq!((outcome.messages, outcome.lost), (99 - 14, Some(14)));
    }

    #[test]
    fn late_datagrams_of_an_earlier_stream_do_not_count() {
        let mut ends = pair();
        stream(&mut ends, 10, 0);
        let late = Tag { kind: MessageKind::Data, step: ends[0].streams, bytes: 0, number: 1 };
        ends[0].socket.send(late.encode().map(u64::to_le_bytes).as_flattened()).unwrap();
        // To a socket that the receiver does not read.
        let elsewhere = UdpSocket::bind((HERE, 0)).unwrap();
        ends[0].socket.connect(elsewhere.local_addr().unwrap()).unwrap();
        let outcome = stream(&mut ends, 10, 0);
        assert_eq!((outcome.messages, outcome.lost), (0, Some(10)));
    }

    #[test]
    fn only_intact_datagrams_of_this_stream_are_counted() {
        let datagram = |kind, step, bytes: u32, number, payload: usize| {
            let words = Tag { kind, step, bytes, number }.encode().map(u64::to_le_bytes);
            [words.as_flattened(), &vec![0; payload]].concat()
        };
        let mut seen = Seen::new(3, 64);
        for foreign in [
            Vec::new(),
            vec![0; 40],
            datagram(MessageKind::Data, 2, 8, 1, 8),
            datagram(MessageKind::Done, 3, 8, 1, 8),
            datagram(MessageKind::Data, 3, 8, 1, 7),
            datagram(MessageKind::Data, 3, 8, 0, 8),
            datagram(MessageKind::Data, 3, 8, 65, 8),
            datagram(MessageKind::Data, 3, 8, u64::MAX, 8),
            datagram(MessageKind::Data, 3, 8, 1, 8)[..15].to_vec(),
        ] {
            seen.note(&foreign);
            assert_eq!(seen.arrived, 0, "{foreign:?}");
        }
        for number in [64, 1, 64, 63, 1] {
            seen.note(&datagram(MessageKind::Data, 3, 8, number, 8));
        }
        assert_eq!(seen.arrived, 3);
    }

    #[test]
    fn a_sender_that_leaves_is_an_error_and_no_loss() {
        let [sender, mut receiver] = pair();
        drop(sender);
        let failed = receiver.stream(&step(End::Second, 5, 0), &mut Buffers::new(16));
        assert!(matches!(failed, Err(Failure::PeerLeft { .. })), "{failed:?}");
    }
}
