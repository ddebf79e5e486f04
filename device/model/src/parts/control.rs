//! Control requests: decoded once, checked, carried out and answered. This module has the operations of every card. A
//! model adds its own ([`OwnOperation`]) and carries out all operations ([`Controlled`]).

use alloc::vec::Vec;

use niclab_abi::FromBytes;
use niclab_abi::control::{
    CountersFrom, OP_COUNTERS, OP_PING, OP_PORT_CLOSE, OP_PORT_OPEN, OP_RESET, PORT_ANY, PORT_BATCHES,
    PortName, PortOpen, PortOpened, Request, STATUS_BAD_ADDRESS, STATUS_BAD_LENGTH, STATUS_BAD_OPERATION,
    STATUS_BAD_PORT, STATUS_BAD_VALUE, STATUS_NO_SPACE, STATUS_NOT_FOUND, STATUS_PORT_BUSY,
};
use niclab_abi::receive::{MIN_SLICES, SLICE_BYTES};
use thiserror::Error;

use crate::nic::statistics::counters_reply;
use crate::nic::{HostRange, HostRanges, ReplyBytes, Statistics};
use crate::parts::counters::Counting;
use crate::parts::effects::{Effects, ReplyDue, WORD_BYTES, empty_reply, reply_of};
use crate::time::Time;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ControlError {
    /// The operation is unknown.
    #[error("the operation is unknown")]
    BadOperation,
    /// The length of the request does not match its operation.
    #[error("the length of the request does not match its operation")]
    BadLength,
    /// The port does not exist or is not open.
    #[error("the port does not exist or is not open")]
    BadPort,
    /// The requested resource is in use, or the port's posted messages have not left.
    #[error("the requested resource is in use, or the port's posted messages have not left")]
    PortBusy,
    /// The memory is not aligned, does not belong to the guest, or extends past the end of the address space.
    #[error(
        "the memory is not aligned, does not belong to the guest, or extends past the end of the address space"
    )]
    BadAddress,
    /// A value is out of its range.
    #[error("a value is out of its range")]
    BadValue,
    /// A table, a memory or a queue is full.
    #[error("a table, a memory or a queue is full")]
    NoSpace,
    /// There is no such entry.
    #[error("there is no such entry")]
    NotFound,
    /// A reason of this model alone: one of its `STATUS_` constants.
    #[error("the model refused the request with its status {0}")]
    Own(u32),
}

impl ControlError {
    /// The reason in the reply.
    pub const fn status(self) -> u32 {
        match self {
            Self::BadOperation => STATUS_BAD_OPERATION,
            Self::BadLength => STATUS_BAD_LENGTH,
            Self::BadPort => STATUS_BAD_PORT,
            Self::PortBusy => STATUS_PORT_BUSY,
            Self::BadAddress => STATUS_BAD_ADDRESS,
            Self::BadValue => STATUS_BAD_VALUE,
            Self::NoSpace => STATUS_NO_SPACE,
            Self::NotFound => STATUS_NOT_FOUND,
            Self::Own(status) => status,
        }
    }
}

/// The progress of a request.
#[derive(Debug)]
pub enum Answer {
    /// It is complete, with this reply.
    Now(ReplyBytes),
    /// The model replies later: it has kept the [`ReplyDue`].
    Later,
}

/// Operations that a model has besides the common ones.
pub trait OwnOperation: Sized {
    /// The request with this number and body.
    ///
    /// # Errors
    /// [`ControlError::BadOperation`] if there is none, or the fault of the body.
    fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError>;

    /// The host memory that the request would make accessible to the card.
    fn memory(&self) -> HostRanges;
}

/// A model without its own operations.
#[derive(Debug)]
pub enum NoOwnOperation {}

impl OwnOperation for NoOwnOperation {
    fn decode(_operation: u32, _body: &[u8]) -> Result<Self, ControlError> {
        Err(ControlError::BadOperation)
    }

    fn memory(&self) -> HostRanges {
        match *self {}
    }
}

/// A card that takes control requests.
pub trait Controlled {
    /// The model's own operations.
    type Own: OwnOperation;
    /// The model's counters.
    type Counters: Counting;
    /// Ports.
    const PORTS: usize;
    /// Bytes of the status line's memory, which a port is opened with. The memory is aligned to its size.
    const STATUS_BYTES: u64;

    /// The queue of the card's effects.
    fn effects(&mut self) -> &mut Effects<Self::Counters>;

    /// Max slices of a receive queue.
    fn max_slices(&self) -> u32;

    /// Whether the port is open.
    fn is_open(&self, port: usize) -> bool;

    /// Checks the model's own requirements for opening a port.
    ///
    /// # Errors
    /// The requirement that is not met.
    fn check_open(&self, open: &PortOpen) -> Result<(), ControlError>;

    /// Whether the card has a port of this number that can be opened with these parameters.
    fn may_open(&self, _port: usize, _open: &PortOpen) -> bool {
        true
    }

    /// Opens a closed port with valid memory and queue.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open_port(&mut self, port: usize, open: &PortOpen) -> Result<(), ControlError>;

    /// Closes the port. Returns when the last of its effects is visible.
    fn close_port(&mut self, now: Time, port: usize) -> Time;

    /// Discards the driver's settings other than ports.
    fn on_reset(&mut self);

    /// The counters of every card, as a driver reads them.
    fn statistics(&self) -> Statistics;

    /// The counters of this model alone, by name.
    fn own_counters(&self) -> Vec<(&'static str, u64)>;

    /// Carries out an operation of this model alone. `at` is when the reply is visible, not before earlier effects. A
    /// model that replies later takes `due`.
    ///
    /// # Errors
    /// Why it is refused.
    fn carry_out(
        &mut self,
        at: &mut Time,
        own: Self::Own,
        due: &mut Option<ReplyDue>,
    ) -> Result<Answer, ControlError>;

    /// The index of an open port.
    ///
    /// # Errors
    /// If there is no such open port.
    fn open_index(&self, port: u32) -> Result<usize, ControlError> {
        let index = port as usize;
        if index < Self::PORTS && self.is_open(index) { Ok(index) } else { Err(ControlError::BadPort) }
    }
}

/// A request of valid length.
enum Operation<M> {
    Ping,
    PortOpen(PortOpen),
    PortClose(PortName),
    Counters(CountersFrom),
    Reset,
    Own(M),
}

impl<M: OwnOperation> Operation<M> {
    fn decode(request: &[u8]) -> Result<Self, ControlError> {
        let head = Request::from_bytes(request).ok_or(ControlError::BadLength)?;
        let body = request.get(Request::BYTES..).unwrap_or_default();
        if usize::try_from(head.body_bytes) != Ok(body.len()) {
            return Err(ControlError::BadLength);
        }
        match head.operation {
            OP_PING => empty(body, Self::Ping),
            OP_PORT_OPEN => whole(body).map(Self::PortOpen),
            OP_PORT_CLOSE => whole(body).map(Self::PortClose),
            OP_COUNTERS => whole(body).map(Self::Counters),
            OP_RESET => empty(body, Self::Reset),
            operation => M::decode(operation, body).map(Self::Own),
        }
    }
}

/// A body that is exactly one `T`.
///
/// # Errors
/// If it has another length.
pub fn whole<T: FromBytes>(body: &[u8]) -> Result<T, ControlError> {
    T::from_bytes(body).filter(|_| body.len() == T::BYTES).ok_or(ControlError::BadLength)
}

/// An operation without a body.
///
/// # Errors
/// If there is a body.
pub fn empty<T>(body: &[u8], operation: T) -> Result<T, ControlError> {
    if body.is_empty() { Ok(operation) } else { Err(ControlError::BadLength) }
}

/// The memory of a port: its receive queue, and what begins with the status line.
fn memory_of<C: Controlled>(open: &PortOpen) -> [HostRange; 2] {
    [
        HostRange { address: open.slices_address, bytes: u64::from(open.slices).saturating_mul(SLICE_BYTES) },
        HostRange { address: open.status_address, bytes: C::STATUS_BYTES },
    ]
}

/// The host memory that a request would make accessible to the card.
pub fn memory_named_by<C: Controlled>(request: &[u8]) -> HostRanges {
    match Operation::<C::Own>::decode(request) {
        Ok(Operation::PortOpen(open)) => memory_of::<C>(&open).into_iter().collect(),
        Ok(Operation::Own(own)) => own.memory(),
        _ => HostRanges::new(),
    }
}

/// Carries a request out, or refuses it, and queues the reply. Control requests belong to no message. They have no
/// price, except for data that they make the card read.
pub fn on_control<C: Controlled>(card: &mut C, now: Time, token: u64, request: &[u8]) {
    // No earlier effect is visible after the answer.
    let mut at = now;
    let mut due = Some(ReplyDue::new(token));
    let answer = Operation::decode(request).and_then(|operation| execute(card, &mut at, operation, &mut due));
    let Some(due) = due else {
        debug_assert!(
            matches!(answer, Ok(Answer::Later)),
            "the model took the reply, so it must answer later"
        );
        return;
    };
    match answer {
        Ok(Answer::Now(bytes)) => card.effects().reply(at, due, bytes),
        Ok(Answer::Later) => {
            debug_assert!(false, "a model that replies later must take the reply");
            card.effects().refuse(at, due, STATUS_BAD_OPERATION);
        }
        Err(error) => card.effects().refuse(at, due, error.status()),
    }
}

/// The host is gone or was reset: closes all ports, and stops all access to their memory.
pub fn on_host_reset<C: Controlled>(card: &mut C, now: Time) {
    for port in 0..C::PORTS {
        card.close_port(now, port);
    }
    card.on_reset();
    card.effects().on_host_reset();
}

fn execute<C: Controlled>(
    card: &mut C,
    at: &mut Time,
    operation: Operation<C::Own>,
    due: &mut Option<ReplyDue>,
) -> Result<Answer, ControlError> {
    match operation {
        Operation::Ping => {}
        Operation::PortOpen(open) => {
            let port = open_port(card, &open)?;
            return Ok(Answer::Now(reply_of(&PortOpened { port: port as u32, reserved: 0 })));
        }
        Operation::PortClose(PortName { port, reserved: 0 }) => {
            let port = card.open_index(port)?;
            *at = (*at).max(card.close_port(*at, port));
        }
        Operation::Counters(from @ CountersFrom { reserved: 0, .. }) => {
            return Ok(Answer::Now(counters_reply(&from, &card.statistics(), &card.own_counters())));
        }
        Operation::PortClose(_) | Operation::Counters(_) => return Err(ControlError::BadValue),

        Operation::Reset => {
            for port in 0..C::PORTS {
                *at = (*at).max(card.close_port(*at, port));
            }
            card.on_reset();
        }
        Operation::Own(own) => return card.carry_out(at, own, due),
    }
    Ok(Answer::Now(empty_reply()))
}

fn open_port<C: Controlled>(card: &mut C, open: &PortOpen) -> Result<usize, ControlError> {
    let is_aligned =
        open.slices_address.is_multiple_of(WORD_BYTES) && open.status_address.is_multiple_of(C::STATUS_BYTES);
    let is_inside = memory_of::<C>(open).iter().all(|range| range.address.checked_add(range.bytes).is_some());
    if !is_aligned || !is_inside {
        return Err(ControlError::BadAddress);
    }
    let is_queue = open.slices.is_power_of_two() && (MIN_SLICES..=card.max_slices()).contains(&open.slices);
    if !is_queue || open.flags > PORT_BATCHES {
        return Err(ControlError::BadValue);
    }
    card.check_open(open)?;
    let port = if open.port == PORT_ANY {
        let is_free = |&port: &usize| !card.is_open(port) && card.may_open(port, open);
        (0..C::PORTS).find(is_free).ok_or(ControlError::PortBusy)?
    } else {
        open.port as usize
    };
    if port >= C::PORTS || !card.may_open(port, open) {
        return Err(ControlError::BadPort);
    }
    if card.is_open(port) {
        return Err(ControlError::PortBusy);
    }
    card.open_port(port, open)?;
    Ok(port)
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use niclab_abi::ToBytes;
    use niclab_abi::control::{Reply, STATUS_OK};

    use super::*;
    use crate::nic::Output;
    use crate::parts::counters::CardCounters;
    use crate::parts::effects::WorkPrices;
    use crate::parts::host_interface::HostInterface;
    use crate::platform::profile::Profile;

    const OP_LATER: u32 = 900;

    /// An operation whose reply comes later.
    struct Later;

    impl OwnOperation for Later {
        fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError> {
            if operation == OP_LATER { empty(body, Self) } else { Err(ControlError::BadOperation) }
        }

        fn memory(&self) -> HostRanges {
            [HostRange { address: 7, bytes: 9 }].into_iter().collect()
        }
    }

    #[derive(Default)]
    struct Counters(CardCounters);

    impl AsMut<CardCounters> for Counters {
        fn as_mut(&mut self) -> &mut CardCounters {
            &mut self.0
        }
    }

    /// A minimal card that takes requests; its last port cannot be opened.
    struct Card {
        effects: Effects<Counters>,
        is_open: [bool; 3],
        later: Vec<ReplyDue>,
    }

    impl Controlled for Card {
        type Own = Later;
        type Counters = Counters;
        const PORTS: usize = 3;
        const STATUS_BYTES: u64 = 64;

        fn effects(&mut self) -> &mut Effects<Counters> {
            &mut self.effects
        }
        fn max_slices(&self) -> u32 {
            64
        }
        fn is_open(&self, port: usize) -> bool {
            self.is_open[port]
        }
        fn check_open(&self, open: &PortOpen) -> Result<(), ControlError> {
            if open.fifo_words == 0 { Ok(()) } else { Err(ControlError::BadValue) }
        }
        fn may_open(&self, port: usize, _open: &PortOpen) -> bool {
            port < 2
        }
        fn open_port(&mut self, port: usize, _open: &PortOpen) -> Result<(), ControlError> {
            self.is_open[port] = true;
            Ok(())
        }
        fn close_port(&mut self, now: Time, port: usize) -> Time {
            self.is_open[port] = false;
            Time::from_ps(now.as_ps() + 10)
        }
        fn on_reset(&mut self) {}
        fn statistics(&self) -> Statistics {
            self.effects.counters.0.statistics(&self.effects.shell_counts)
        }
        fn own_counters(&self) -> Vec<(&'static str, u64)> {
            vec![("own", 7)]
        }
        fn carry_out(
            &mut self,
            _at: &mut Time,
            _own: Later,
            due: &mut Option<ReplyDue>,
        ) -> Result<Answer, ControlError> {
            self.later.extend(due.take());
            Ok(Answer::Later)
        }
    }

    fn card() -> Card {
        let prices = WorkPrices {
            input: 1,
            checked_bytes_in_unit: u64::MAX,
            output: 1,
            copied_bytes_in_unit: u64::MAX,
        };
        let effects = Effects::new(HostInterface::new(Profile::ultra_200mhz_htx()), prices);
        Card { effects, is_open: [false; 3], later: Vec::new() }
    }

    fn request(operation: u32, body: &[u8]) -> Vec<u8> {
        let mut request = vec![0; Request::BYTES];
        Request { operation, body_bytes: body.len() as u32 }.to_bytes(&mut request);
        request.extend_from_slice(body);
        request
    }

    fn bytes_of<T: ToBytes>(value: &T) -> Vec<u8> {
        let mut bytes = vec![0; T::BYTES];
        value.to_bytes(&mut bytes);
        bytes
    }

    /// Status and body of the reply, and when it is visible.
    fn reply(card: &mut Card) -> Option<(u32, Vec<u8>, u64)> {
        let Some(Output::Reply { at, token: 5, bytes }) = card.effects.poll() else { return None };
        let head = Reply::from_bytes(&bytes)?;
        Some((head.status, bytes.get(Reply::BYTES..)?.to_vec(), at.as_ps()))
    }

    fn ask(card: &mut Card, operation: u32, body: &[u8]) -> (u32, Vec<u8>, u64) {
        on_control(card, Time::ZERO, 5, &request(operation, body));
        reply(card).expect("a reply")
    }

    const OPEN: PortOpen = PortOpen {
        port: PORT_ANY,
        slices: 64,
        slices_address: 0x1000,
        status_address: 0x40,
        fifo_words: 0,
        flags: 0,
    };

    #[test]
    fn refused_port_open_names_its_reason() {
        for (open, expected) in [
            (PortOpen { slices_address: 0x1004, ..OPEN }, STATUS_BAD_ADDRESS),
            (PortOpen { status_address: 0x60, ..OPEN }, STATUS_BAD_ADDRESS),
            (PortOpen { slices_address: u64::MAX - 7, ..OPEN }, STATUS_BAD_ADDRESS),
            (PortOpen { slices: 48, ..OPEN }, STATUS_BAD_VALUE),
            (PortOpen { slices: 128, ..OPEN }, STATUS_BAD_VALUE),
            (PortOpen { slices: MIN_SLICES / 2, ..OPEN }, STATUS_BAD_VALUE),
            (PortOpen { flags: 2, ..OPEN }, STATUS_BAD_VALUE),
            (PortOpen { fifo_words: 1, ..OPEN }, STATUS_BAD_VALUE),
            (PortOpen { port: 2, ..OPEN }, STATUS_BAD_PORT),
            (PortOpen { port: 3, ..OPEN }, STATUS_BAD_PORT),
        ] {
            let mut card = card();
            assert_eq!(ask(&mut card, OP_PORT_OPEN, &bytes_of(&open)).0, expected, "{open:?}");
            assert_eq!((card.is_open, card.effects.counters.0.control_refused), ([false; 3], 1));
        }
    }

    #[test]
    fn ports_are_opened_in_order_and_closed_one_by_one_or_all() {
        let mut card = card();
        for expected in [0, 1] {
            let opened = ask(&mut card, OP_PORT_OPEN, &bytes_of(&OPEN));
            assert_eq!(opened, (STATUS_OK, bytes_of(&PortOpened { port: expected, reserved: 0 }), 0));
        }
        assert_eq!(ask(&mut card, OP_PORT_OPEN, &bytes_of(&OPEN)).0, STATUS_PORT_BUSY);
        assert_eq!(
            ask(&mut card, OP_PORT_OPEN, &bytes_of(&PortOpen { port: 1, ..OPEN })).0,
            STATUS_PORT_BUSY
        );
        let close = |port, reserved| bytes_of(&PortName { port, reserved });
        assert_eq!(ask(&mut card, OP_PORT_CLOSE, &close(0, 1)).0, STATUS_BAD_VALUE);
        assert_eq!(ask(&mut card, OP_PORT_CLOSE, &close(0, 0)), (STATUS_OK, vec![], 10), "after its effects");
        assert_eq!(ask(&mut card, OP_PORT_CLOSE, &close(0, 0)).0, STATUS_BAD_PORT);
        assert_eq!(ask(&mut card, OP_PORT_CLOSE, &close(u32::MAX, 0)).0, STATUS_BAD_PORT);
        assert_eq!(ask(&mut card, OP_RESET, &[]), (STATUS_OK, vec![], 30));
        assert_eq!(card.is_open, [false; 3]);
    }

    #[test]
    fn request_with_wrong_length_or_number_is_refused() {
        let mut card = card();
        assert_eq!(ask(&mut card, OP_PING, &[]), (STATUS_OK, vec![], 0));
        assert_eq!(ask(&mut card, OP_PING, &[0]).0, STATUS_BAD_LENGTH);
        assert_eq!(ask(&mut card, OP_PORT_CLOSE, &[0; 9]).0, STATUS_BAD_LENGTH);
        assert_eq!(ask(&mut card, 901, &[]).0, STATUS_BAD_OPERATION);
        assert_eq!(ask(&mut card, OP_COUNTERS, &[]).0, STATUS_BAD_LENGTH);
        assert_eq!(ask(&mut card, OP_COUNTERS, &[0, 0, 0, 0, 1, 0, 0, 0]).0, STATUS_BAD_VALUE);
        let from = CountersFrom { first: 16, reserved: 0 };
        let expected = counters_reply(&from, &card.statistics(), &[("own", 7)]);
        assert_eq!(ask(&mut card, OP_COUNTERS, &bytes_of(&from)).1, expected[Reply::BYTES..]);
        let mut cut = request(OP_PING, &[]);
        cut.pop();
        on_control(&mut card, Time::ZERO, 5, &cut);
        assert_eq!(reply(&mut card).map(|reply| reply.0), Some(STATUS_BAD_LENGTH));
    }

    #[test]
    fn card_keeps_a_reply_that_comes_later() {
        let mut card = card();
        on_control(&mut card, Time::ZERO, 5, &request(OP_LATER, &[]));
        assert_eq!(reply(&mut card), None);
        let due = card.later.pop().unwrap();
        card.effects.reply(Time::from_ps(3), due, empty_reply());
        assert_eq!(reply(&mut card), Some((STATUS_OK, vec![], 3)));
    }

    #[test]
    fn memory_is_named_before_the_request_is_carried_out() {
        let named = |operation, body: &[u8]| memory_named_by::<Card>(&request(operation, body)).to_vec();
        let range = |address, bytes| HostRange { address, bytes };
        let of_port = [range(0x1000, 64 * SLICE_BYTES), range(0x40, 64)];
        assert_eq!(named(OP_PORT_OPEN, &bytes_of(&OPEN)), of_port);
        assert_eq!(named(OP_LATER, &[]), [range(7, 9)]);
        assert_eq!(named(OP_PING, &[]), []);
    }
}
