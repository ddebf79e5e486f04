//! End-to-end credit flow control between one sending port and one receiving port.
//!
//! The receiver reserves slices of its queue for a sender and announces an absolute **limit**: the total number of
//! packets of the **connection** that the sender may send. The sender numbers its packets from 1. Because limits and
//! numbers are absolute, messages of this protocol may be lost, duplicated or overtaken without harm:
//!
//! * a limit only ever moves the sender's window forward;
//! * a packet counts once, in order; a late or duplicated packet is discarded;
//! * skipped numbers were lost on the way, and their credit returns;
//! * a sender that restarts takes the next connection number, which resets the receiver's account; packets and limits
//!   of an older connection are recognised and discarded.
//!
//! Sender and receiver can be set up in any order. The sender sends a **request** when its route is set, and the
//! receiver an **offer** when it authorizes; an offer is answered with a request. A request may name a connection that
//! the account never knew, from a sender that holds or has used credit of an earlier account. The receiver then
//! answers with a **renewal**, which has the sender begin a new connection. Repeating a request is always safe. A
//! sender that waits too long repeats it, in case the answer was lost.

use alloc::collections::VecDeque;

use crate::parts::sequence::Sequence;
use crate::time::Time;

/// Whether connection `a` began after `b`.
const fn is_newer(a: u16, b: u16) -> bool {
    Sequence::<16>::new(a as u32).is_after(Sequence::new(b as u32))
}

/// How far `a` is ahead of `b`; zero if it is not.
const fn ahead(a: u32, b: u32) -> u32 {
    Sequence::<32>::new(a).ahead_of(Sequence::new(b))
}

/// The sender's side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    connection: u16,
    sent: u32,
    limit: u32,
    /// Number of the last packet with a counted acknowledgement.
    acknowledged: u32,
    /// Limits that unsent packets need, and when each arrived; both only increase. At most one for each packet that
    /// may still be sent. A shell may pass a limit before a packet that is earlier in model time.
    arrivals: VecDeque<(u32, Time)>,
}

impl Window {
    /// An unused window.
    pub const fn new() -> Self {
        Self { connection: 0, sent: 0, limit: 0, acknowledged: 0, arrivals: VecDeque::new() }
    }

    /// Begins a new connection, without credit. The connection number outlives the user of the port, so that messages
    /// in flight to the previous user are recognised.
    pub fn begin(&mut self) {
        // Zero is no connection: it marks an offer that is not a renewal.
        let connection = self.connection.checked_add(1).unwrap_or(1);
        self.arrivals.clear();
        let arrivals = core::mem::take(&mut self.arrivals);
        *self = Self { connection, arrivals, ..Self::new() };
    }

    /// The connection.
    pub const fn connection(&self) -> u16 {
        self.connection
    }

    /// Packets sent on this connection.
    pub const fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether a packet may be sent.
    pub const fn is_open(&self) -> bool {
        ahead(self.limit, self.sent) > 0
    }

    /// Number of packets that may be sent now.
    #[inline]
    pub const fn room(&self) -> u32 {
        ahead(self.limit, self.sent)
    }

    /// Counts a sent packet, whether or not the window is open, and returns its number.
    pub fn count_sent(&mut self) -> u32 {
        self.sent = self.sent.wrapping_add(1);
        while self.arrivals.front().is_some_and(|&(limit, _)| ahead(limit, self.sent) == 0) {
            self.arrivals.pop_front();
        }
        self.sent
    }

    /// When the credit of the next packet arrived, so that the packet may leave.
    #[inline]
    pub fn opened(&self) -> Time {
        self.arrivals.front().map_or(Time::ZERO, |&(_, at)| at)
    }

    /// Takes a limit that arrived at `now`. False if it is stale or out of range; then nothing changes. `most` bounds
    /// how far a limit may be ahead of the sent packets: the size of the largest receive queue.
    pub fn on_limit(&mut self, now: Time, connection: u16, limit: u32, most: u32) -> bool {
        let is_valid =
            connection == self.connection && ahead(limit, self.limit) > 0 && ahead(limit, self.sent) <= most;
        if is_valid {
            self.limit = limit;
            // A limit that arrived later and is lower adds nothing.
            while self.arrivals.back().is_some_and(|&(_, at)| at >= now) {
                self.arrivals.pop_back();
            }
            self.arrivals.push_back((limit, now));
        }
        is_valid
    }

    /// Takes the acknowledgement of one packet; false if it is stale, duplicated or out of range. Acknowledgements
    /// return in the order of their packets, and overtaken ones are not counted.
    pub fn on_acknowledgement(&mut self, connection: u16, number: u32) -> bool {
        let distance = ahead(number, self.acknowledged);
        let is_valid =
            connection == self.connection && distance > 0 && distance <= ahead(self.sent, self.acknowledged);
        if is_valid {
            self.acknowledged = number;
        }
        is_valid
    }
}

/// The receiver's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Announce [`Grant::announce`].
    Announce,
    /// Renewal: the sender must begin a new connection.
    Renew,
    /// None: the request is stale or out of range.
    Discard,
}

/// Why a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It belongs to another connection.
    Stale,
    /// Its number was already counted: it was duplicated or overtaken.
    Late,
    /// Its number is beyond the announced limit.
    BeyondLimit,
}

/// The receiver's side: the account of one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Reserved slices.
    credits: u32,
    connection: Option<u16>,
    /// Number of the last packet that was received or counted as lost.
    received: u32,
    /// The last announced limit, which may not have reached the sender.
    announced: u32,
    /// Slices that hold packets of this sender.
    held: u32,
}

impl Grant {
    /// An account with `credits` slices and no connection yet.
    pub const fn new(credits: u32) -> Self {
        Self { credits, connection: None, received: 0, announced: 0, held: 0 }
    }

    /// Changes the number of reserved slices. Announced limits stay valid.
    pub fn set_credits(&mut self, credits: u32) {
        self.credits = credits;
    }

    /// The connection, once a request has arrived.
    pub const fn connection(&self) -> Option<u16> {
        self.connection
    }

    /// Slices that hold packets of this sender.
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// Slices that this account may fill: the reserved ones, or more while an earlier and larger limit is valid.
    pub const fn reserved(&self) -> u32 {
        self.reserved_with(self.credits)
    }

    /// [`Grant::reserved`] with other credits.
    pub const fn reserved_with(&self, credits: u32) -> u32 {
        let promised = self.held + ahead(self.announced, self.received);
        if promised > credits { promised } else { credits }
    }

    /// Takes a request: the sender has sent `sent` packets on `connection`, and may hold unused credit.
    pub fn on_request(&mut self, connection: u16, sent: u32, is_window_open: bool) -> Answer {
        match self.connection {
            Some(current) if connection == current => {
                // Sent packets that have not arrived were lost or will be late. A sender that has sent more than this
                // account allowed used credit of an earlier account, whose announcement arrived late. This account
                // does not count that credit and could never balance.
                let missing = ahead(sent, self.received);
                if missing > ahead(self.announced, self.received) {
                    return Answer::Renew;
                }
                if missing > 0 {
                    self.received = sent;
                }
                Answer::Announce
            }
            Some(current) if !is_newer(connection, current) => Answer::Discard,
            // This account does not count credit of an earlier account.
            _ if is_window_open => Answer::Renew,
            _ => {
                self.begin(connection, sent);
                Answer::Announce
            }
        }
    }

    /// Takes a packet under credit flow control. Returns how many packets before it were lost. The caller stores the
    /// packet and then calls [`Grant::on_stored`]; if it discards the packet, the credit is free again.
    ///
    /// # Errors
    /// If it is neither the expected packet nor a later one within the limit.
    pub fn on_packet(&mut self, connection: u16, number: u32) -> Result<u32, Refusal> {
        if self.connection != Some(connection) {
            return Err(Refusal::Stale);
        }
        let distance = ahead(number, self.received);
        if distance == 0 {
            return Err(Refusal::Late);
        }
        if distance > ahead(self.announced, self.received) {
            return Err(Refusal::BeyondLimit);
        }
        self.received = number;
        Ok(distance - 1)
    }

    /// Takes a packet without flow control: the first packet of a newer connection begins the account. Returns how
    /// many packets before it were lost.
    ///
    /// # Errors
    /// If it belongs to an older connection, or was duplicated or overtaken.
    pub fn on_packet_uncontrolled(&mut self, connection: u16, number: u32) -> Result<u32, Refusal> {
        match self.connection {
            Some(current) if current == connection => {}
            Some(current) if !is_newer(connection, current) => return Err(Refusal::Stale),
            _ => self.begin(connection, 0),
        }
        let distance = ahead(number, self.received);
        if distance == 0 {
            return Err(Refusal::Late);
        }
        self.received = number;
        Ok(distance - 1)
    }

    /// Number of consecutive packets, from this one on, that are accepted under credit flow control without a loss
    /// before them.
    pub fn room(&self, connection: u16, number: u32) -> u32 {
        if self.is_next(connection, number) { ahead(self.announced, self.received) } else { 0 }
    }

    /// Whether this packet of this connection is the expected one.
    pub fn is_next(&self, connection: u16, number: u32) -> bool {
        self.connection == Some(connection) && number == self.received.wrapping_add(1)
    }

    /// Accepts `count` consecutive packets, from the expected one on, which fill one slice each.
    pub fn on_batch(&mut self, count: u32) {
        self.received = self.received.wrapping_add(count);
        self.held += count;
    }

    /// The last accepted packet fills a slice.
    pub fn on_stored(&mut self) {
        self.held += 1;
    }

    /// The host released `slots` slices.
    pub fn on_released(&mut self, slots: u32) {
        self.held = self.held.saturating_sub(slots);
    }

    /// Whether half of the credits became free since the last announcement, so that the next one is due.
    pub fn is_announcement_due(&self) -> bool {
        let threshold = (self.credits / 2).max(1);
        self.connection.is_some() && ahead(self.limit(), self.announced) >= threshold
    }

    /// The limit to announce now, and its connection.
    pub fn announce(&mut self) -> Option<(u16, u32)> {
        let connection = self.connection?;
        if ahead(self.limit(), self.announced) > 0 {
            self.announced = self.limit();
        }
        Some((connection, self.announced))
    }

    fn begin(&mut self, connection: u16, sent: u32) {
        self.connection = Some(connection);
        self.received = sent;
        self.announced = sent;
    }

    fn limit(&self) -> u32 {
        self.received.wrapping_add(self.credits.saturating_sub(self.held))
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const MOST: u32 = 64;

    /// A window and an account with a common connection.
    fn pair(credits: u32) -> (Window, Grant) {
        let (mut window, mut grant) = (Window::new(), Grant::new(credits));
        window.begin();
        assert_eq!(grant.on_request(window.connection(), 0, false), Answer::Announce);
        let (connection, limit) = grant.announce().unwrap();
        assert!(window.on_limit(Time::ZERO, connection, limit, MOST));
        (window, grant)
    }

    #[test]
    fn window_closes_after_its_credits_and_opens_at_half() {
        let (mut window, mut grant) = pair(4);
        for number in 1..=4 {
            assert!(window.is_open());
            assert_eq!(window.count_sent(), number);
            assert_eq!(grant.on_packet(window.connection(), number), Ok(0));
            grant.on_stored();
        }
        assert!(!window.is_open());
        grant.on_released(1);
        assert!(!grant.is_announcement_due());
        grant.on_released(1);
        assert!(grant.is_announcement_due());
        let (connection, limit) = grant.announce().unwrap();
        assert!(window.on_limit(Time::ZERO, connection, limit, MOST));
        assert_eq!(limit, 6);
    }

    #[test]
    fn packet_waits_for_the_first_limit_that_allows_it() {
        let at = Time::from_ps;
        let mut window = Window::new();
        window.begin();
        assert!(window.on_limit(at(10), 1, 2, MOST));
        assert!(window.on_limit(at(50), 1, 3, MOST));
        assert!(window.on_limit(at(40), 1, 4, MOST));
        let mut opened =
            |packets: usize| (0..packets).map(|_| (window.opened(), window.count_sent()).0).last();
        assert_eq!(opened(2), Some(at(10)));
        assert_eq!(opened(1), Some(at(40)), "the later limit arrived earlier");
        assert_eq!(opened(1), Some(at(40)));
        assert!(window.arrivals.is_empty());
        assert!(window.on_limit(at(60), 1, 5, MOST));
        window.begin();
        assert_eq!(window.opened(), Time::ZERO);
    }

    #[test]
    fn credit_of_lost_packets_returns() {
        let (window, mut grant) = pair(4);
        assert_eq!(grant.on_packet(window.connection(), 3), Ok(2));
        assert_eq!(grant.on_packet(window.connection(), 2), Err(Refusal::Late));
        assert!(grant.is_announcement_due());
        assert_eq!(grant.announce(), Some((1, 7)));
        assert_eq!(grant.on_packet(window.connection(), 8), Err(Refusal::BeyondLimit));
    }

    #[test]
    fn credit_of_an_earlier_account_is_not_accepted() {
        let (mut window, _) = pair(8);
        let mut fresh = Grant::new(2);
        assert_eq!(fresh.on_packet(window.connection(), 1), Err(Refusal::Stale));
        assert_eq!(fresh.on_request(window.connection(), 0, window.is_open()), Answer::Renew);
        window.begin();
        assert!(!window.is_open());
        assert_eq!(fresh.on_request(window.connection(), 0, window.is_open()), Answer::Announce);
        assert_eq!(fresh.announce(), Some((2, 2)));
        assert_eq!(fresh.on_request(1, 0, false), Answer::Discard);
    }

    #[test]
    fn sender_that_used_an_earlier_accounts_credit_reconnects() {
        let (mut window, mut earlier) = (Window::new(), Grant::new(8));
        window.begin();
        assert_eq!(earlier.on_request(1, 0, false), Answer::Announce);
        let late = earlier.announce().unwrap();
        let mut fresh = Grant::new(2);
        assert_eq!(fresh.on_request(1, 0, window.is_open()), Answer::Announce);
        let announced = fresh.announce().unwrap();
        for (connection, limit) in [announced, late] {
            assert!(window.on_limit(Time::ZERO, connection, limit, MOST));
        }
        while window.is_open() {
            let taken = fresh.on_packet(1, window.count_sent());
            assert_eq!(taken, if window.sent() > 2 { Err(Refusal::BeyondLimit) } else { Ok(0) });
        }
        assert_eq!(fresh.on_request(1, window.sent(), window.is_open()), Answer::Renew);
        window.begin();
        assert_eq!(fresh.on_request(2, 0, window.is_open()), Answer::Announce);
        let (connection, limit) = fresh.announce().unwrap();
        assert!(window.on_limit(Time::ZERO, connection, limit, MOST) && window.is_open());
    }

    #[test]
    fn smaller_grant_keeps_its_announced_limit() {
        let (window, mut grant) = pair(8);
        grant.set_credits(2);
        assert_eq!(grant.reserved(), 8);
        for number in 1..=8 {
            assert_eq!(grant.on_packet(window.connection(), number), Ok(0));
            grant.on_stored();
        }
        assert_eq!((grant.reserved(), grant.announce()), (8, Some((1, 8))));
        (0..7).for_each(|_| grant.on_released(1));
        assert_eq!((grant.reserved(), grant.announce()), (2, Some((1, 9))));
    }

    #[test]
    fn connection_numbers_wrap_past_zero() {
        let mut window = Window { connection: u16::MAX, sent: 7, limit: 9, acknowledged: 3, ..Window::new() };
        window.begin();
        assert_eq!(window, Window { connection: 1, ..Window::new() });
        assert!(is_newer(window.connection(), u16::MAX));
    }

    #[test]
    fn limits_out_of_range_are_refused() {
        let (mut window, _) = pair(4);
        assert!(!window.on_limit(Time::ZERO, 1, 4, MOST), "not ahead");
        assert!(!window.on_limit(Time::ZERO, 1, 4 + MOST + 1, MOST), "too far");
        assert!(!window.on_limit(Time::ZERO, 2, 5, MOST), "another connection");
        assert!(window.on_limit(Time::ZERO, 1, 5, MOST));
    }

    #[test]
    fn acknowledgement_counts_once_and_only_for_a_sent_packet() {
        let (mut window, _) = pair(4);
        assert!(!window.on_acknowledgement(1, 1), "nothing was sent");
        assert_eq!([(); 3].map(|()| window.count_sent()), [1, 2, 3]);
        assert!(window.on_acknowledgement(1, 2));
        assert!(!window.on_acknowledgement(1, 2), "duplicated");
        assert!(!window.on_acknowledgement(1, 1), "overtaken");
        assert!(!window.on_acknowledgement(2, 3), "another connection");
        assert!(window.on_acknowledgement(1, 3));
    }

    #[derive(Clone, Copy, Debug)]
    enum Message {
        Packet { connection: u16, number: u32 },
        Request { connection: u16, sent: u32, open: bool },
        Limit { connection: u16, limit: u32 },
        Renew { connection: u16 },
    }

    /// One sender and one account; the script loses, duplicates and reorders their messages.
    struct CreditHarness {
        window: Window,
        grant: Grant,
        wires: [VecDeque<Message>; 2],
        stored: Vec<(u16, u32)>,
        occupied: u32,
    }

    impl CreditHarness {
        fn request(&mut self) {
            let window = &self.window;
            let (connection, sent, open) = (window.connection(), window.sent(), window.is_open());
            self.wires[0].push_back(Message::Request { connection, sent, open });
        }

        fn announce(&mut self) {
            if let Some((connection, limit)) = self.grant.announce() {
                self.wires[1].push_back(Message::Limit { connection, limit });
            }
        }

        fn deliver(&mut self, message: Message) {
            match message {
                Message::Packet { connection, number } => {
                    if self.grant.on_packet(connection, number).is_ok() {
                        self.grant.on_stored();
                        self.stored.push((connection, number));
                        self.occupied += 1;
                    }
                    if self.grant.is_announcement_due() {
                        self.announce();
                    }
                }
                Message::Request { connection, sent, open } => {
                    match self.grant.on_request(connection, sent, open) {
                        Answer::Announce => self.announce(),
                        Answer::Renew => self.wires[1].push_back(Message::Renew { connection }),
                        Answer::Discard => {}
                    }
                }
                Message::Limit { connection, limit } => {
                    self.window.on_limit(Time::ZERO, connection, limit, MOST);
                }
                Message::Renew { connection } if connection == self.window.connection() => {
                    self.window.begin();
                    self.request();
                }
                Message::Renew { .. } => {}
            }
        }

        fn send(&mut self) {
            if self.window.is_open() {
                let number = self.window.count_sent();
                let connection = self.window.connection();
                self.wires[0].push_back(Message::Packet { connection, number });
            }
        }

        fn release(&mut self) {
            if self.occupied > 0 {
                self.occupied -= 1;
                self.grant.on_released(1);
                if self.grant.is_announcement_due() {
                    self.announce();
                }
            }
        }

        fn step(&mut self, action: u8, wire: usize, place: usize) {
            let wire_length = self.wires[wire].len();
            match action {
                0..=3 => self.send(),
                4 | 5 => self.release(),
                6 => self.request(),
                7 => drop(self.wires[wire].remove(place % (wire_length + 1))),
                8 => {
                    if let Some(&message) = self.wires[wire].get(place % (wire_length + 1)) {
                        self.wires[wire].push_back(message);
                    }
                }
                9 => {
                    if let Some(message) = self.wires[wire].remove(place % (wire_length + 1)) {
                        self.deliver(message);
                    }
                }
                10 => self.window.begin(),
                _ => {
                    if let Some(message) = self.wires[wire].pop_front() {
                        self.deliver(message);
                    }
                }
            }
        }
    }

    proptest! {
        /// For any losses and reordering: at most the reserved slices are filled, and every packet is accepted at most
        /// once and in order. Once messages arrive reliably, all credit returns.
        #[test]
        fn credit_survives_every_order_of_events(
            credits in 1..16_u32,
            script in prop::collection::vec((0..16_u8, 0..2_usize, any::<usize>()), 0..500),
        ) {
            let mut harness = CreditHarness {
                window: Window::new(),
                grant: Grant::new(credits),
                wires: Default::default(),
                stored: Vec::new(),
                occupied: 0,
            };
            harness.window.begin();
            for (action, wire, place) in script {
                harness.step(action, wire, place);
                prop_assert!(harness.occupied <= credits);
                prop_assert_eq!(harness.grant.held(), harness.occupied);
                prop_assert!(harness.grant.reserved() == credits);
            }
            let is_ordered = harness.stored.windows(2).all(|two| {
                is_newer(two[1].0, two[0].0) || (two[1].0 == two[0].0 && ahead(two[1].1, two[0].1) > 0)
            });
            prop_assert!(is_ordered);

            harness.wires.iter_mut().for_each(VecDeque::clear);
            while harness.occupied > 0 {
                harness.release();
            }
            harness.request();
            for wire in [0, 1, 0, 1] {
                while let Some(message) = harness.wires[wire].pop_front() {
                    harness.deliver(message);
                }
            }
            prop_assert_eq!(ahead(harness.window.limit, harness.window.sent), credits);
        }
    }
}
