//! Requests in flight, and the rules that their replies prove broken.

use niclab_abi::control::{
    OP_PORT_OPEN, Reply, Request, STATUS_BAD_ADDRESS, STATUS_BAD_LENGTH, STATUS_BAD_VALUE, STATUS_OK,
    STATUS_PORT_BUSY,
};
use niclab_abi::matching::OP_SPILL_OPEN;
use niclab_abi::region::{OP_REGION_EXTEND, OP_REGION_OPEN};
use niclab_abi::rings::{OP_FIFO_SEND, OP_RING_START};
use niclab_abi::{FromBytes, control};

use super::book::{Book, Named, Operation};
use crate::shell::control::RequestBytes;

/// A request that the device took.
#[derive(Debug)]
pub struct Asked {
    token: u64,
    /// Its bytes when the device took it.
    pub bytes: RequestBytes,
}

impl Asked {
    /// Its operation; 0 if it is too short to have one.
    pub fn operation(&self) -> u32 {
        operation_of(&self.bytes)
    }

    /// The body as this structure.
    pub fn body<T: FromBytes>(&self) -> Option<T> {
        T::from_bytes(self.bytes.get(Request::BYTES..)?)
    }
}

/// The operation of a request; 0 if it is too short to have one.
pub fn operation_of(bytes: &[u8]) -> u32 {
    Request::from_bytes(bytes).map_or(0, |head| head.operation)
}

/// Requests in flight: at most one for each descriptor of the control queue.
#[derive(Debug, Default)]
pub struct Requests {
    asked: Vec<Asked>,
    /// The device has a spill area.
    has_spill: bool,
}

impl Requests {
    /// The device took a request. `is_again`: it has taken the request's chain already.
    pub fn on_request(&mut self, token: u64, bytes: &RequestBytes, is_again: bool, book: &mut Book) {
        let operation = operation_of(bytes);
        book.note(Operation::Request(operation));
        if is_again {
            book.broken(
                "request-once",
                None,
                format_args!(
                    "the chain of {} is offered again, and the device has not returned it yet",
                    Named(operation)
                ),
            );
        }
        self.asked.push(Asked { token, bytes: bytes.clone() });
    }

    /// The device replies to a request. `now`: the current bytes of the request's buffers.
    pub fn on_reply(
        &mut self,
        token: u64,
        now: Option<&RequestBytes>,
        reply: &[u8],
        book: &mut Book,
    ) -> Option<(Asked, Reply)> {
        let index = self.asked.iter().position(|asked| asked.token == token)?;
        let asked = self.asked.swap_remove(index);
        let reply = Reply::from_bytes(reply)?;
        let operation = asked.operation();
        book.note(Operation::Reply(operation, reply.status));
        if now.is_some_and(|now| *now != asked.bytes) {
            book.broken(
                "request-unchanged",
                None,
                format_args!("the bytes of {} changed before the device replied", Named(operation)),
            );
        }
        if let Some(rule) = broken_by(operation, reply.status) {
            let (operation, status) = (Named(operation), status_name(reply.status));
            book.broken(rule, None, format_args!("the device replied {status} to {operation}"));
        }
        if operation == OP_SPILL_OPEN {
            if self.has_spill {
                book.broken("spill-once", None, "OP_SPILL_OPEN was sent while the device has a spill area");
            }
            self.has_spill |= reply.status == STATUS_OK;
        }
        if operation == control::OP_RESET && reply.status == STATUS_OK {
            self.has_spill = false;
        }
        Some((asked, reply))
    }

    /// The shell itself has refused a request, and reports another rule.
    pub fn refused(&mut self, token: u64) {
        self.asked.retain(|asked| asked.token != token);
    }

    /// Forgets all requests, after a reset.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// The rule that a request with this reply broke.
const fn broken_by(operation: u32, status: u32) -> Option<&'static str> {
    match (status, operation) {
        (STATUS_BAD_LENGTH, _) => Some("request-length"),
        (STATUS_BAD_ADDRESS | STATUS_BAD_VALUE, OP_RING_START) => Some("ring-layout"),
        (STATUS_BAD_ADDRESS, OP_REGION_OPEN | OP_REGION_EXTEND) => Some("region-extents"),
        (STATUS_BAD_ADDRESS, _) => Some("named-memory"),
        (STATUS_PORT_BUSY, OP_RING_START) => Some("ring-stopped-first"),
        (STATUS_PORT_BUSY, OP_FIFO_SEND) => Some("fifo-one-at-a-time"),
        // A driver may open a port to learn whether it is open already.
        (STATUS_PORT_BUSY, OP_PORT_OPEN) | (_, _) => None,
    }
}

const fn status_name(status: u32) -> &'static str {
    match status {
        STATUS_BAD_LENGTH => "STATUS_BAD_LENGTH",
        STATUS_BAD_ADDRESS => "STATUS_BAD_ADDRESS",
        STATUS_BAD_VALUE => "STATUS_BAD_VALUE",
        STATUS_PORT_BUSY => "STATUS_PORT_BUSY",
        _ => "a refusal",
    }
}
