//! One end of a TCP connection, sans-IO: data, windows and acknowledgements of RFC 9293, slow start (RFC 5681), and
//! go-back-N after a timeout, like the TCP of the 1990s. A connection exists when programs begin, and is never closed.
//!
//! No maintained library fits. Figure 1 depends on when Linux 2.0 acknowledged: as soon as a program has read a full
//! segment (RFC 1122, 4.2.3.3: the window opens by one). It also depends on times far below the microseconds in which
//! smoltcp counts.
//!
//! Byte numbers have 64 bits here, of which segments carry the low 32.

use std::collections::VecDeque;

use niclab_model::time::{Span, Time};

/// Parameters of both ends.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Maximum number of data bytes in a segment.
    pub segment_bytes: u64,
    /// Size of the receiver's buffer in bytes.
    pub window_bytes: u64,
    /// A segment that is not full waits while another one is unacknowledged.
    pub nagle: bool,
    /// Acknowledgements wait for more data to acknowledge, or for data to send.
    pub delayed_acks: bool,
}

/// Delay of an acknowledgement (RFC 1122, 4.2.3.2: below half a second; Berkeley's stacks used 200 ms).
const DELAYED_ACK: Span = Span::from_ns(200_000_000);
/// Time after which unacknowledged data is sent again. It doubles with each retransmission, up to `MAX_DOUBLINGS`
/// times.
const TIME_OUT: Span = Span::from_ns(200_000_000);
const MAX_DOUBLINGS: u32 = 3;

/// The header of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Number of its first byte.
    pub first: u32,
    /// The byte that its sender expects next.
    pub expected: u32,
    /// Number of bytes from there for which the sender has room.
    pub window: u16,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    terms: Terms,
    /// Bytes that the program has written and the other end has not acknowledged, from byte `unacknowledged` on.
    outgoing: VecDeque<u8>,
    unacknowledged: u64,
    /// The next byte to send, and the first byte that was never sent.
    next: u64,
    unsent: u64,
    /// The first byte that the other end does not accept yet.
    offered: u64,
    /// The congestion window in bytes, and the size from which it grows slowly.
    congestion: u64,
    threshold: u64,
    /// Time of the next retransmission, and number of consecutive retransmissions.
    resend_at: Option<Time>,
    doublings: u32,
    /// The window has been closed for long, so the connection sends one byte as a probe.
    probes: bool,
    /// Received bytes that the program has not read, up to byte `expected`.
    incoming: VecDeque<u8>,
    expected: u64,
    /// The last acknowledgement sent: all bytes below `acknowledged` have arrived, and the other end may send up to
    /// `advertised`.
    acknowledged: u64,
    advertised: u64,
    /// An acknowledgement is due at once, or at this time.
    owes: bool,
    owes_at: Option<Time>,
    /// Number of retransmissions.
    pub resent: u64,
}

impl Connection {
    /// A connection that is open.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            outgoing: VecDeque::new(),
            unacknowledged: 0,
            next: 0,
            unsent: 0,
            offered: terms.window_bytes,
            congestion: terms.segment_bytes,
            threshold: u64::MAX,
            resend_at: None,
            doublings: 0,
            probes: false,
            incoming: VecDeque::new(),
            expected: 0,
            acknowledged: 0,
            advertised: terms.window_bytes,
            owes: false,
            owes_at: None,
            resent: 0,
        }
    }

    /// Bytes of free room in the send buffer, which has the size of two windows.
    #[must_use]
    pub fn room(&self) -> u64 {
        (2 * self.terms.window_bytes).saturating_sub(self.outgoing.len() as u64)
    }

    /// The program writes. Returns the number of the byte after the last one.
    pub fn write(&mut self, bytes: &[u8]) -> u64 {
        self.outgoing.extend(bytes);
        self.end()
    }

    /// The number of the byte after the last one written.
    fn end(&self) -> u64 {
        self.unacknowledged + self.outgoing.len() as u64
    }

    /// Number of bytes that the program can read.
    #[must_use]
    pub fn available(&self) -> usize {
        self.incoming.len()
    }

    /// The program reads up to `most` bytes.
    pub fn read(&mut self, most: usize) -> Vec<u8> {
        let count = most.min(self.incoming.len());
        let bytes = self.incoming.drain(..count).collect();
        // The window opens by a full segment, so the other end is notified (RFC 1122, 4.2.3.3).
        let least = self.terms.segment_bytes.min(self.terms.window_bytes / 2);
        if self.right_edge().saturating_sub(self.advertised) >= least {
            self.owes = true;
        }
        bytes
    }

    /// The first byte that the other end may not send.
    fn right_edge(&self) -> u64 {
        self.expected + self.terms.window_bytes - self.incoming.len() as u64
    }

    /// A segment has arrived. Returns the number of the byte after the last one received in order.
    pub fn on_segment(&mut self, now: Time, segment: &Segment, data: &[u8]) -> u64 {
        self.on_acknowledged(now, segment);
        if data.is_empty() {
            return self.expected;
        }
        let first = near(segment.first, self.expected);
        let end = first + data.len() as u64;
        let is_next = first <= self.expected && end > self.expected && end <= self.right_edge();
        if !is_next {
            // The segment is out of order, a duplicate, or too long. It is acknowledged at once (RFC 5681, section
            // 4.2).
            self.owes = true;
            return self.expected;
        }
        self.incoming.extend(&data[(self.expected - first) as usize..]);
        self.expected = end;
        let waits =
            self.terms.delayed_acks && self.expected - self.acknowledged < 2 * self.terms.segment_bytes;
        if waits {
            self.owes_at.get_or_insert(now + DELAYED_ACK);
        } else {
            self.owes = true;
        }
        self.expected
    }

    fn on_acknowledged(&mut self, now: Time, segment: &Segment) {
        let acknowledged = near(segment.expected, self.unacknowledged);
        if acknowledged < self.unacknowledged || acknowledged > self.unsent {
            return;
        }
        self.offered = self.offered.max(acknowledged + u64::from(segment.window));
        let count = acknowledged - self.unacknowledged;
        if count == 0 {
            return;
        }
        self.outgoing.drain(..count as usize);
        self.unacknowledged = acknowledged;
        self.next = self.next.max(acknowledged);
        self.doublings = 0;
        let Terms { segment_bytes, window_bytes, .. } = self.terms;
        let grows = if self.congestion < self.threshold {
            segment_bytes
        } else {
            segment_bytes * segment_bytes / self.congestion
        };
        // More than the receiver's window has no effect.
        self.congestion = (self.congestion + grows).min(2 * window_bytes);
        self.resend_at = (self.next > acknowledged).then_some(now + TIME_OUT);
    }

    /// The next segment that may leave, with its data; without data if only an acknowledgement is due.
    pub fn poll_segment(&mut self, now: Time) -> Option<(Segment, Vec<u8>)> {
        let bytes = self.sendable();
        if bytes == 0 && !self.owes {
            return None;
        }
        let begin = (self.next - self.unacknowledged) as usize;
        let data: Vec<u8> = self.outgoing.iter().skip(begin).take(bytes as usize).copied().collect();
        let segment = Segment {
            first: self.next as u32,
            expected: self.expected as u32,
            window: u16::try_from(self.right_edge() - self.expected).unwrap_or(u16::MAX),
        };
        self.next += bytes;
        self.unsent = self.unsent.max(self.next);
        self.probes = false;
        if bytes > 0 {
            self.resend_at.get_or_insert(now + Span::from_ps(TIME_OUT.as_ps() << self.doublings));
        }
        (self.owes, self.owes_at) = (false, None);
        (self.acknowledged, self.advertised) = (self.expected, self.right_edge());
        Some((segment, data))
    }

    /// Whether [`Self::poll_segment`] returns a segment.
    #[must_use]
    pub fn has_segment(&self) -> bool {
        self.owes || self.sendable() > 0
    }

    /// Number of data bytes in the next segment; 0 if none may be sent.
    fn sendable(&self) -> u64 {
        let Terms { segment_bytes, nagle, .. } = self.terms;
        let unsent = self.end() - self.next;
        if self.probes {
            return unsent.min(1);
        }
        let allowed = self.offered.min(self.unacknowledged + self.congestion);
        let bytes = unsent.min(segment_bytes).min(allowed.saturating_sub(self.next));
        let is_idle = self.next == self.unacknowledged;
        // A segment that the window has shortened waits. With Nagle's algorithm, so does the last segment of the
        // written data.
        let is_held = bytes < segment_bytes && !is_idle && (nagle || bytes < unsent);
        if is_held { 0 } else { bytes }
    }

    /// The time of the next timeout.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let shut = self.resend_at.filter(|_| self.next > self.unacknowledged || self.end() > self.next);
        [shut, self.owes_at].into_iter().flatten().min()
    }

    /// A timeout has expired.
    pub fn on_timeout(&mut self, now: Time) {
        if self.owes_at.take_if(|at| *at <= now).is_some() {
            self.owes = true;
        }
        if self.resend_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let in_flight = self.next - self.unacknowledged;
        if in_flight == 0 {
            self.probes = self.end() > self.next;
        } else {
            // All unacknowledged data is sent again, beginning with one segment (go-back-N).
            self.resent += 1;
            self.threshold = (in_flight / 2).max(2 * self.terms.segment_bytes);
            self.congestion = self.terms.segment_bytes;
            self.next = self.unacknowledged;
            // The segment that reported an open window may have been lost.
            self.probes = self.offered <= self.next;
        }
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        self.resend_at = Some(now + Span::from_ps(TIME_OUT.as_ps() << self.doublings));
    }

    /// Starts the timer of a probe if data waits for a closed window.
    pub fn watch_window(&mut self, now: Time) {
        let is_shut = self.next == self.unacknowledged && self.end() > self.next && self.sendable() == 0;
        if is_shut && !self.owes {
            self.resend_at.get_or_insert(now + TIME_OUT);
        }
    }

    /// Whether all written bytes are acknowledged, and all received bytes are read.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.outgoing.is_empty() && self.incoming.is_empty()
    }
}

/// The number closest to `known` with these low 32 bits.
fn near(low: u32, known: u64) -> u64 {
    let ahead = low.wrapping_sub(known as u32) as i32;
    known.saturating_add_signed(ahead.into())
}

#[cfg(test)]
mod tests {
    use niclab_model::random::Random;

    use super::*;

    const SEGMENT: u64 = 1_460;

    fn terms() -> Terms {
        Terms { segment_bytes: SEGMENT, window_bytes: 32_767, nagle: false, delayed_acks: true }
    }

    fn pair(terms: Terms) -> [Connection; 2] {
        [Connection::new(terms), Connection::new(terms)]
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at % 251) as u8).collect()
    }

    /// Sends all segments of `from` to `to`. Returns the lengths of their data.
    fn flush(now: Time, from: &mut Connection, to: &mut Connection) -> Vec<usize> {
        let mut sent = Vec::new();
        while let Some((segment, data)) = from.poll_segment(now) {
            to.on_segment(now, &segment, &data);
            sent.push(data.len());
        }
        sent
    }

    #[test]
    fn data_is_split_into_segments_with_slow_start() {
        let [mut a, mut b] = pair(terms());
        a.write(&bytes(10_000));
        assert_eq!(flush(Time::ZERO, &mut a, &mut b), [1_460], "one segment is in flight at first");
        assert_eq!(b.read(20_000).len(), 1_460);
        assert_eq!(flush(Time::ZERO, &mut b, &mut a), [0], "a full segment was read");
        assert_eq!(flush(Time::ZERO, &mut a, &mut b), [1_460, 1_460]);
        let read = b.read(20_000);
        assert_eq!(read, bytes(10_000)[1_460..4_380]);
    }

    #[test]
    fn short_message_is_acknowledged_by_its_answer_or_late() {
        let [mut a, mut b] = pair(terms());
        a.write(&bytes(100));
        flush(Time::ZERO, &mut a, &mut b);
        b.read(100);
        assert!(!b.has_segment(), "it waits for an answer");
        assert_eq!(b.deadline(), Some(Time::ZERO + DELAYED_ACK));
        b.write(&bytes(100));
        assert_eq!(flush(Time::ZERO, &mut b, &mut a), [100]);
        assert!(a.outgoing.is_empty() && b.deadline() == Some(Time::ZERO + TIME_OUT));
        a.read(100);
        let late = a.deadline().unwrap();
        a.on_timeout(late);
        assert_eq!(flush(late, &mut a, &mut b), [0]);
        assert!(a.is_quiet() && b.is_quiet() && b.deadline().is_none());
    }

    #[test]
    fn undelayed_or_second_segment_is_acknowledged_at_once() {
        let [mut a, mut b] = pair(Terms { delayed_acks: false, ..terms() });
        a.write(&bytes(100));
        flush(Time::ZERO, &mut a, &mut b);
        assert!(b.owes);
        let [mut a, mut b] = pair(terms());
        a.congestion = 4 * SEGMENT;
        a.write(&bytes(2 * SEGMENT as usize));
        let (segment, data) = a.poll_segment(Time::ZERO).unwrap();
        b.on_segment(Time::ZERO, &segment, &data);
        assert!(!b.owes);
        let (segment, data) = a.poll_segment(Time::ZERO).unwrap();
        b.on_segment(Time::ZERO, &segment, &data);
        assert!(b.owes);
    }

    #[test]
    fn nagle_holds_a_partial_segment_until_the_acknowledgement() {
        let sent = |nagle| {
            let [mut a, mut b] = pair(Terms { nagle, ..terms() });
            a.congestion = 4 * SEGMENT;
            a.write(&bytes(1_750));
            flush(Time::ZERO, &mut a, &mut b)
        };
        assert_eq!((sent(false), sent(true)), (vec![1_460, 290], vec![1_460]));
    }

    #[test]
    fn closed_window_is_probed() {
        let [mut a, mut b] = pair(terms());
        a.congestion = 1 << 20;
        a.write(&bytes(40_000));
        let sent: usize = flush(Time::ZERO, &mut a, &mut b).iter().sum();
        assert_eq!(sent, 22 * 1_460, "what is left of the window is less than a segment");
        flush(Time::ZERO, &mut b, &mut a);
        assert_eq!(flush(Time::ZERO, &mut a, &mut b), [32_767 - 22 * 1_460], "no other segment is in flight");
        flush(Time::ZERO, &mut b, &mut a);
        // The segment that reports the open window is lost.
        let read = b.read(40_000);
        assert!(b.poll_segment(Time::ZERO).is_some());
        a.watch_window(Time::ZERO);
        let at = a.deadline().unwrap();
        a.on_timeout(at);
        let mut all = read;
        for _ in 0..4 {
            flush(at, &mut a, &mut b);
            all.extend(b.read(40_000));
            flush(at, &mut b, &mut a);
        }
        assert_eq!(all, bytes(40_000));
    }

    #[test]
    fn data_arrives_once_and_in_order_despite_ten_percent_loss() {
        for seed in 0..20 {
            let mut random = Random::new(seed, 0);
            let [mut a, mut b] = pair(Terms { nagle: seed % 2 == 0, delayed_acks: seed % 3 != 0, ..terms() });
            let wanted = bytes(150_000);
            let (mut written, mut got, mut now) = (0, Vec::new(), Time::ZERO);
            while got.len() < wanted.len() || !a.is_quiet() {
                let room = (a.room() as usize).min(wanted.len() - written);
                a.write(&wanted[written..written + room]);
                written += room;
                while let Some((segment, data)) = a.poll_segment(now) {
                    if random.below(10) > 0 {
                        b.on_segment(now, &segment, &data);
                    }
                    got.extend(b.read(2_000));
                }
                got.extend(b.read(100_000));
                while let Some((segment, data)) = b.poll_segment(now) {
                    if random.below(10) > 0 {
                        a.on_segment(now, &segment, &data);
                    }
                }
                a.watch_window(now);
                if !a.has_segment() && !b.has_segment() {
                    let Some(at) = [a.deadline(), b.deadline()].into_iter().flatten().min() else { continue };
                    now = at;
                    a.on_timeout(now);
                    b.on_timeout(now);
                }
            }
            assert_eq!(got, wanted, "seed {seed}");
            assert!(a.resent > 0);
        }
    }

    #[test]
    fn byte_numbers_exceed_32_bits() {
        assert_eq!(near(3, (1 << 32) - 2), (1 << 32) + 3);
        assert_eq!(near(u32::MAX, (1 << 32) + 3), (1 << 32) - 1);
        assert_eq!(near(5, 0), 5);
    }
}
