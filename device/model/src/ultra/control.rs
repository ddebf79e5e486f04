//! Control requests: decoded once, checked, and turned into calls of requester and completer.

use niclab_abi::control::{
    Authorize, OP_AUTHORIZE, OP_PING, OP_PORT_CLOSE, OP_PORT_OPEN, OP_RESET, OP_REVOKE, OP_ROUTE,
    OP_STATISTICS, PORT_ANY, PortName, PortOpen, PortOpened, Reply, Request, Revoke, Route,
    STATUS_BAD_ADDRESS, STATUS_BAD_LENGTH, STATUS_BAD_OPERATION, STATUS_BAD_PORT, STATUS_BAD_VALUE,
    STATUS_NO_SPACE, STATUS_NOT_FOUND, STATUS_OK, STATUS_PORT_BUSY, Statistics,
};
use niclab_abi::receive::{MIN_SLICES, SLICE_BYTES};
use niclab_abi::{FromBytes, ToBytes};
use smallvec::SmallVec;
use thiserror::Error;

use crate::nic::{HostRange, Output, ReplyBytes};
use crate::time::Time;
use crate::ultra::completer::AuthorizeError;
use crate::ultra::config::{FlowControl, PORTS};
use crate::ultra::nic::Ultra;
use crate::ultra::wire::{Address, MAX_WORDS};

/// Bytes of the status line.
const STATUS_LINE_BYTES: u64 = 64;
const SLICE_ALIGNMENT: u64 = 8;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum ControlError {
    #[error("the operation is not known")]
    BadOperation,
    #[error("the request is not as long as its operation's")]
    BadLength,
    #[error("the port does not exist or is not open")]
    BadPort,
    #[error("the port is open already, or its launched packets have not left")]
    PortBusy,
    #[error("the memory is not aligned or runs past the end of the address space")]
    BadAddress,
    #[error("a value is out of its range")]
    BadValue,
    #[error("authorization table, FIFO memory or receive queue is full")]
    NoSpace,
    #[error("there is no such entry")]
    NotFound,
}

impl ControlError {
    const fn status(self) -> u32 {
        match self {
            Self::BadOperation => STATUS_BAD_OPERATION,
            Self::BadLength => STATUS_BAD_LENGTH,
            Self::BadPort => STATUS_BAD_PORT,
            Self::PortBusy => STATUS_PORT_BUSY,
            Self::BadAddress => STATUS_BAD_ADDRESS,
            Self::BadValue => STATUS_BAD_VALUE,
            Self::NoSpace => STATUS_NO_SPACE,
            Self::NotFound => STATUS_NOT_FOUND,
        }
    }
}

/// A request whose length is right.
enum Operation {
    Ping,
    PortOpen(PortOpen),
    PortClose(PortName),
    Route(Route),
    Authorize(Authorize),
    Revoke(Revoke),
    Statistics,
    Reset,
}

impl Operation {
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
            OP_ROUTE => whole(body).map(Self::Route),
            OP_AUTHORIZE => whole(body).map(Self::Authorize),
            OP_REVOKE => whole(body).map(Self::Revoke),
            OP_STATISTICS => empty(body, Self::Statistics),
            OP_RESET => empty(body, Self::Reset),
            _ => Err(ControlError::BadOperation),
        }
    }
}

fn whole<T: FromBytes>(body: &[u8]) -> Result<T, ControlError> {
    T::from_bytes(body).filter(|_| body.len() == T::BYTES).ok_or(ControlError::BadLength)
}

fn empty(body: &[u8], operation: Operation) -> Result<Operation, ControlError> {
    if body.is_empty() { Ok(operation) } else { Err(ControlError::BadLength) }
}

/// The memory of a port: slices and status line.
fn memory_of(open: &PortOpen) -> [HostRange; 2] {
    [
        HostRange { address: open.slices_address, bytes: u64::from(open.slices).saturating_mul(SLICE_BYTES) },
        HostRange { address: open.status_address, bytes: STATUS_LINE_BYTES },
    ]
}

/// The host memory that a request would let the card write.
pub(super) fn memory_named_by(request: &[u8]) -> SmallVec<[HostRange; 2]> {
    match Operation::decode(request) {
        Ok(Operation::PortOpen(open)) => memory_of(&open).into(),
        _ => SmallVec::new(),
    }
}

/// The body of an answer.
enum Answer {
    Empty,
    PortOpened(PortOpened),
    Statistics(Statistics),
}

impl Ultra {
    /// Carries a request out, or refuses it, and queues the reply. Control requests belong to no message and have no
    /// price.
    pub(super) fn on_control(&mut self, now: Time, token: u64, request: &[u8]) {
        // Nothing that was decided before the answer is seen after it.
        let mut at = now;
        let answer = Operation::decode(request).and_then(|operation| self.carry_out(&mut at, operation));
        let bytes = match answer {
            Ok(Answer::Empty) => reply(STATUS_OK, None::<&Reply>),
            Ok(Answer::PortOpened(body)) => reply(STATUS_OK, Some(&body)),
            Ok(Answer::Statistics(body)) => reply(STATUS_OK, Some(&body)),
            Err(error) => {
                self.effects.counters.control_refused += 1;
                reply(error.status(), None::<&Reply>)
            }
        };
        self.effects.outputs.push_back(Output::Reply { at, token, bytes });
    }

    fn carry_out(&mut self, now: &mut Time, operation: Operation) -> Result<Answer, ControlError> {
        match operation {
            Operation::Ping => {}
            Operation::PortOpen(open) => return self.open_port(&open).map(Answer::PortOpened),
            Operation::PortClose(PortName { port, reserved: 0 }) => {
                let port = self.open_index(port)?;
                *now = (*now).max(self.close_port(port));
            }
            Operation::Route(route) => self.set_route(*now, &route)?,
            Operation::Authorize(entry) => self.authorize(*now, &entry)?,
            Operation::Revoke(Revoke { port, node, node_port, reserved: 0 }) => {
                let port = self.open_index(port)?;
                let remote = self.remote(node, node_port)?;
                if !self.completer.revoke(port, remote) {
                    return Err(ControlError::NotFound);
                }
            }
            Operation::PortClose(_) | Operation::Revoke(_) => return Err(ControlError::BadValue),
            Operation::Statistics => {
                return Ok(Answer::Statistics(self.effects.counters.statistics(&self.shell_counts)));
            }
            Operation::Reset => {
                for port in 0..PORTS {
                    *now = (*now).max(self.close_port(port));
                }
            }
        }
        Ok(Answer::Empty)
    }

    fn open_port(&mut self, open: &PortOpen) -> Result<PortOpened, ControlError> {
        check_memory(open)?;
        let is_queue_valid = open.slices.is_power_of_two()
            && (MIN_SLICES..=self.config.max_slices).contains(&open.slices)
            && open.reserved == 0;
        let fifo_words = open.fifo_words as usize;
        let ram_words = usize::from(self.config.fifo_ram_words);
        if !is_queue_valid || (fifo_words != 0 && !(MAX_WORDS..=ram_words).contains(&fifo_words)) {
            return Err(ControlError::BadValue);
        }
        let port = self.choose_port(open.port, fifo_words)?;
        let share = usize::from(self.config.requester_fifo_words[port]);
        let fifo_words = if fifo_words == 0 { share } else { fifo_words };
        self.requester.open(port, open.status_address, fifo_words).map_err(|_| ControlError::NoSpace)?;
        let completer_words = self.config.completer_fifo_words[port].into();
        if self.completer.open(port, open.slices_address, open.slices, completer_words).is_err() {
            self.requester.close(port, &mut self.effects);
            return Err(ControlError::NoSpace);
        }
        Ok(PortOpened { port: port as u32, reserved: 0 })
    }

    /// The port that is wanted, or any that is free and may be opened with so many words of FIFO (0: its share).
    fn choose_port(&self, wanted: u32, fifo_words: usize) -> Result<usize, ControlError> {
        let may_be_opened = |port: usize| {
            self.config.completer_fifo_words[port] != 0
                && (fifo_words != 0 || self.config.requester_fifo_words[port] != 0)
        };
        if wanted == PORT_ANY {
            let is_free = |&port: &usize| may_be_opened(port) && !self.completer.is_open(port);
            return (0..PORTS).find(is_free).ok_or(ControlError::PortBusy);
        }
        let port = port_index(wanted).filter(|&port| may_be_opened(port)).ok_or(ControlError::BadPort)?;
        if self.completer.is_open(port) { Err(ControlError::PortBusy) } else { Ok(port) }
    }

    fn set_route(&mut self, now: Time, route: &Route) -> Result<(), ControlError> {
        let port = self.open_index(route.port)?;
        let target = self.remote(route.node, route.node_port)?;
        if route.reserved != 0 {
            return Err(ControlError::BadValue);
        }
        // What was launched was meant for the old route.
        if self.requester.has_packets(port) {
            return Err(ControlError::PortBusy);
        }
        self.requester.set_route(now, port, target, &mut self.effects);
        Ok(())
    }

    fn authorize(&mut self, now: Time, entry: &Authorize) -> Result<(), ControlError> {
        let port = self.open_index(entry.port)?;
        let remote = self.remote(entry.node, entry.node_port)?;
        if entry.credits == 0 && self.config.flow_control == FlowControl::Credit {
            return Err(ControlError::BadValue);
        }
        let (requester, effects) = (&mut self.requester, &mut self.effects);
        self.completer.authorize(now, port, remote, entry.credits, requester, effects).map_err(|error| {
            match error {
                AuthorizeError::BadPort => ControlError::BadPort,
                AuthorizeError::TableFull | AuthorizeError::CreditsExceedQueue => ControlError::NoSpace,
            }
        })
    }

    fn open_index(&self, port: u32) -> Result<usize, ControlError> {
        port_index(port).filter(|&port| self.completer.is_open(port)).ok_or(ControlError::BadPort)
    }

    /// A port of any node of the cluster, this one included.
    fn remote(&self, node: u32, port: u32) -> Result<Address, ControlError> {
        let node = u16::try_from(node).ok().filter(|_| node < self.config.nodes);
        let port = port_index(port).and_then(|port| u8::try_from(port).ok());
        match (node, port) {
            (Some(node), Some(port)) => Ok(Address { node, port }),
            _ => Err(ControlError::BadValue),
        }
    }
}

fn port_index(port: u32) -> Option<usize> {
    usize::try_from(port).ok().filter(|&port| port < PORTS)
}

fn check_memory(open: &PortOpen) -> Result<(), ControlError> {
    let is_aligned = open.slices_address.is_multiple_of(SLICE_ALIGNMENT)
        && open.status_address.is_multiple_of(STATUS_LINE_BYTES);
    let is_inside = memory_of(open).iter().all(|range| range.address.checked_add(range.bytes).is_some());
    if is_aligned && is_inside { Ok(()) } else { Err(ControlError::BadAddress) }
}

fn reply(status: u32, body: Option<&impl ToBytes>) -> ReplyBytes {
    let body_bytes = body.map_or(0, bytes_of);
    let mut bytes = ReplyBytes::from_elem(0, Reply::BYTES + body_bytes);
    let (head, rest) = bytes.split_at_mut(Reply::BYTES);
    Reply { status, body_bytes: body_bytes as u32 }.to_bytes(head);
    if let Some(body) = body {
        body.to_bytes(rest);
    }
    bytes
}

const fn bytes_of<T: FromBytes>(_: &T) -> usize {
    T::BYTES
}
