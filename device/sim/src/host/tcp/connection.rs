//! One end of a TCP connection, sans-IO: what stands in RFC 9293 of data, windows and acknowledgements, slow start (RFC
//! 5681), and going back after a time-out, as the TCP of the 1990s did. A connection stands when programs begin:
//! nothing opens or closes it.
//!
//! No well-kept library fits: figure 1 hangs on when Linux 2.0 acknowledged, which is as soon as a program has read a
//! full segment's worth (RFC 1122, 4.2.3.3: the window opens by one), and on times far below the microseconds in which
//! smoltcp counts.
//!
//! Numbers of bytes are of 64 bits here, of which segments carry 32.

use std::collections::VecDeque;

use niclab_model::time::{Span, Time};

/// What both ends agree on.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Most bytes of a segment's data.
    pub segment_bytes: u64,
    /// Bytes of the receiver's buffer.
    pub window_bytes: u64,
    /// A segment that is not full waits while another is unacknowledged.
    pub nagle: bool,
    /// Acknowledgements wait for more to acknowledge, or for data to ride on.
    pub delayed_acks: bool,
}

/// How long an acknowledgement waits (RFC 1122, 4.2.3.2: below half a second; 200 ms is what Berkeley's stacks took).
const DELAYED_ACK: Span = Span::from_ns(200_000_000);
/// How long data stays unacknowledged before it is sent again, and the most after it was in vain several times.
const TIME_OUT: Span = Span::from_ns(200_000_000);
const MAX_DOUBLINGS: u32 = 3;

/// What a segment says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Number of its first byte.
    pub first: u32,
    /// The byte that its sender expects next.
    pub expected: u32,
    /// For how many bytes from there it has room.
    pub window: u16,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    terms: Terms,
    /// What the program has written and the other end has not acknowledged, from byte `unacknowledged` on.
    outgoing: VecDeque<u8>,
    unacknowledged: u64,
    /// The next byte to be sent, and the first that never was.
    next: u64,
    unsent: u64,
    /// The other end takes no byte from this one on.
    offered: u64,
    /// Bytes that may be under way for all that the network says, and from how many on it grows slowly.
    congestion: u64,
    threshold: u64,
    /// When what is unacknowledged is sent again, and how often it was in vain.
    resend_at: Option<Time>,
    doublings: u32,
    /// The window is shut and has been for long: a byte is sent all the same.
    probes: bool,
    /// What came and the program has not read, up to byte `expected`.
    incoming: VecDeque<u8>,
    expected: u64,
    /// What the other end was told last: that bytes below `acknowledged` came, and up to where it may send.
    acknowledged: u64,
    told: u64,
    /// An acknowledgement is due at once, or then.
    owes: bool,
    owes_at: Option<Time>,
    /// Times that data was sent again.
    pub resent: u64,
}

impl Connection {
    /// A connection that stands.
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
            told: terms.window_bytes,
            owes: false,
            owes_at: None,
            resent: 0,
        }
    }

    /// Bytes for which there is room in front of the connection: two windows.
    #[must_use]
    pub fn room(&self) -> u64 {
        (2 * self.terms.window_bytes).saturating_sub(self.outgoing.len() as u64)
    }

    /// The program writes. Returns the number behind the last byte.
    pub fn write(&mut self, bytes: &[u8]) -> u64 {
        self.outgoing.extend(bytes);
        self.end()
    }

    /// The byte behind the last that was written.
    fn end(&self) -> u64 {
        self.unacknowledged + self.outgoing.len() as u64
    }

    /// Bytes that the program can read.
    #[must_use]
    pub fn available(&self) -> usize {
        self.incoming.len()
    }

    /// The program reads so many bytes at most.
    pub fn read(&mut self, most: usize) -> Vec<u8> {
        let count = most.min(self.incoming.len());
        let bytes = self.incoming.drain(..count).collect();
        // The window opens by a full segment, and so the other end is told (RFC 1122, 4.2.3.3).
        let least = self.terms.segment_bytes.min(self.terms.window_bytes / 2);
        if self.right_edge().saturating_sub(self.told) >= least {
            self.owes = true;
        }
        bytes
    }

    /// Up to where the other end may send.
    fn right_edge(&self) -> u64 {
        self.expected + self.terms.window_bytes - self.incoming.len() as u64
    }

    /// A segment came. Returns the number of the byte behind the last that is in hand now.
    pub fn on_segment(&mut self, now: Time, segment: &Segment, data: &[u8]) -> u64 {
        self.on_acknowledged(now, segment);
        if data.is_empty() {
            return self.expected;
        }
        let first = near(segment.first, self.expected);
        let end = first + data.len() as u64;
        let is_next = first <= self.expected && end > self.expected && end <= self.right_edge();
        if !is_next {
            // Out of order, known, or too much: the other end hears at once what is expected (RFC 5681, section 4.2).
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
        // More than the receiver takes means nothing.
        self.congestion = (self.congestion + grows).min(2 * window_bytes);
        self.resend_at = (self.next > acknowledged).then_some(now + TIME_OUT);
    }

    /// The next segment that may leave, with its data; an acknowledgement alone if it is due and nothing else may.
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
        (self.acknowledged, self.told) = (self.expected, self.right_edge());
        Some((segment, data))
    }

    /// Whether [`Self::poll_segment`] has one.
    #[must_use]
    pub fn has_segment(&self) -> bool {
        self.owes || self.sendable() > 0
    }

    /// Bytes of the next segment with data; zero while there can be none.
    fn sendable(&self) -> u64 {
        let Terms { segment_bytes, nagle, .. } = self.terms;
        let unsent = self.end() - self.next;
        if self.probes {
            return unsent.min(1);
        }
        let allowed = self.offered.min(self.unacknowledged + self.congestion);
        let bytes = unsent.min(segment_bytes).min(allowed.saturating_sub(self.next));
        let is_idle = self.next == self.unacknowledged;
        // A piece that the window has cut waits for the rest; the last one of what was written, where it is wanted so.
        let is_held = bytes < segment_bytes && !is_idle && (nagle || bytes < unsent);
        if is_held { 0 } else { bytes }
    }

    /// The next instant at which something is due by itself.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let shut = self.resend_at.filter(|_| self.next > self.unacknowledged || self.end() > self.next);
        [shut, self.owes_at].into_iter().flatten().min()
    }

    /// It has come.
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
            // All of it goes again, one segment first (go-back-N).
            self.resent += 1;
            self.threshold = (in_flight / 2).max(2 * self.terms.segment_bytes);
            self.congestion = self.terms.segment_bytes;
            self.next = self.unacknowledged;
            // A shut window that opened again may have been told in a segment that was lost.
            self.probes = self.offered <= self.next;
        }
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        self.resend_at = Some(now + Span::from_ps(TIME_OUT.as_ps() << self.doublings));
    }

    /// Where data waits for a window that is shut, somebody has to ask.
    pub fn watch_window(&mut self, now: Time) {
        let is_shut = self.next == self.unacknowledged && self.end() > self.next && self.sendable() == 0;
        if is_shut && !self.owes {
            self.resend_at.get_or_insert(now + TIME_OUT);
        }
    }

    /// Whether all that was written was acknowledged, and all that came was read.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.outgoing.is_empty() && self.incoming.is_empty()
    }
}

/// The number closest to `known` whose low 32 bits these are.
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

    /// Lengths of the data of all that `from` sends now, which `to` gets.
    fn flush(now: Time, from: &mut Connection, to: &mut Connection) -> Vec<usize> {
        let mut sent = Vec::new();
        while let Some((segment, data)) = from.poll_segment(now) {
            to.on_segment(now, &segment, &data);
            sent.push(data.len());
        }
        sent
    }

    #[test]
    fn data_is_cut_into_segments_and_begins_slowly() {
        let [mut a, mut b] = pair(terms());
        a.write(&bytes(10_000));
        assert_eq!(flush(Time::ZERO, &mut a, &mut b), [1_460], "one is under way at first");
        assert_eq!(b.read(20_000).len(), 1_460);
        assert_eq!(flush(Time::ZERO, &mut b, &mut a), [0], "a full segment was read");
        assert_eq!(flush(Time::ZERO, &mut a, &mut b), [1_460, 1_460]);
        let read = b.read(20_000);
        assert_eq!(read, bytes(10_000)[1_460..4_380]);
    }

    #[test]
    fn a_short_message_is_acknowledged_by_its_answer_or_late() {
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
    fn acknowledgements_come_at_once_where_they_are_not_delayed_and_for_two_segments_where_nobody_reads() {
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
    fn nagle_holds_the_rest_of_a_message_until_what_is_before_it_is_acknowledged() {
        let sent = |nagle| {
            let [mut a, mut b] = pair(Terms { nagle, ..terms() });
            a.congestion = 4 * SEGMENT;
            a.write(&bytes(1_750));
            flush(Time::ZERO, &mut a, &mut b)
        };
        assert_eq!((sent(false), sent(true)), (vec![1_460, 290], vec![1_460]));
    }

    #[test]
    fn a_window_that_is_shut_is_asked_about() {
        let [mut a, mut b] = pair(terms());
        a.congestion = 1 << 20;
        a.write(&bytes(40_000));
        let sent: usize = flush(Time::ZERO, &mut a, &mut b).iter().sum();
        assert_eq!(sent, 22 * 1_460, "what is left of the window is less than a segment");
        flush(Time::ZERO, &mut b, &mut a);
        assert_eq!(flush(Time::ZERO, &mut a, &mut b), [32_767 - 22 * 1_460], "nothing else is under way");
        flush(Time::ZERO, &mut b, &mut a);
        // What says that it is open is lost.
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
    fn all_comes_once_and_in_order_over_a_network_that_loses_a_tenth() {
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
    fn numbers_go_past_32_bits() {
        assert_eq!(near(3, (1 << 32) - 2), (1 << 32) + 3);
        assert_eq!(near(u32::MAX, (1 << 32) + 3), (1 << 32) - 1);
        assert_eq!(near(5, 0), 5);
    }
}
