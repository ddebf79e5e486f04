//! Requests under way, and what their answers say of them.

use niclab_abi::control::{
    OP_PORT_OPEN, Reply, Request, STATUS_BAD_ADDRESS, STATUS_BAD_LENGTH, STATUS_BAD_VALUE, STATUS_OK,
    STATUS_PORT_BUSY,
};
use niclab_abi::lists::OP_SPILL_OPEN;
use niclab_abi::region::{OP_REGION_EXTEND, OP_REGION_OPEN};
use niclab_abi::rings::{OP_FIFO_SEND, OP_RING_START};
use niclab_abi::{FromBytes, control};

use super::book::{Book, Named, Operation};
use crate::shell::control::RequestBytes;

/// A request that was taken.
#[derive(Debug)]
pub struct Asked {
    token: u64,
    /// As it was when it was taken.
    pub bytes: RequestBytes,
}

impl Asked {
    /// What is asked for, where it is whole.
    pub fn operation(&self) -> u32 {
        operation_of(&self.bytes)
    }

    /// The body as this structure.
    pub fn body<T: FromBytes>(&self) -> Option<T> {
        T::from_bytes(self.bytes.get(Request::BYTES..)?)
    }
}

/// The operation of a request.
pub fn operation_of(bytes: &[u8]) -> u32 {
    Request::from_bytes(bytes).map_or(0, |head| head.operation)
}

/// Requests under way: as many as the control queue has descriptors, at most.
#[derive(Debug, Default)]
pub struct Requests {
    asked: Vec<Asked>,
    /// The device has a spill area.
    has_spill: bool,
}

impl Requests {
    /// A request was taken.
    pub fn on_request(&mut self, token: u64, bytes: &RequestBytes, is_again: bool, book: &mut Book) {
        let operation = operation_of(bytes);
        book.note(Operation::Request(operation));
        if is_again {
            book.broken(
                "request-once",
                None,
                format_args!("the chain of {} is offered while it is taken", Named(operation)),
            );
        }
        self.asked.push(Asked { token, bytes: bytes.clone() });
    }

    /// It is answered with `reply`; `now` is what stands in its buffers.
    pub fn on_reply(
        &mut self,
        token: u64,
        now: Option<&RequestBytes>,
        reply: &[u8],
        book: &mut Book,
    ) -> Option<(Asked, Reply)> {
        let place = self.asked.iter().position(|asked| asked.token == token)?;
        let asked = self.asked.swap_remove(place);
        let reply = Reply::from_bytes(reply)?;
        let operation = asked.operation();
        book.note(Operation::Reply(operation, reply.status));
        if now.is_some_and(|now| *now != asked.bytes) {
            book.broken(
                "request-unchanged",
                None,
                format_args!("the bytes of {} changed before it was answered", Named(operation)),
            );
        }
        if let Some(rule) = broken_by(operation, reply.status) {
            let (operation, status) = (Named(operation), status_name(reply.status));
            book.broken(rule, None, format_args!("{operation} was answered with {status}"));
        }
        if operation == OP_SPILL_OPEN {
            if self.has_spill {
                book.broken("spill-once", None, "OP_SPILL_OPEN while the device has an area");
            }
            self.has_spill |= reply.status == STATUS_OK;
        }
        if operation == control::OP_RESET && reply.status == STATUS_OK {
            self.has_spill = false;
        }
        Some((asked, reply))
    }

    /// A request was refused by the shell itself, which says so by another rule.
    pub fn refused(&mut self, token: u64) {
        self.asked.retain(|asked| asked.token != token);
    }

    /// Nobody waits for answers any more.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// The rule that a request broke which was answered so.
const fn broken_by(operation: u32, status: u32) -> Option<&'static str> {
    match (status, operation) {
        (STATUS_BAD_LENGTH, _) => Some("request-length"),
        (STATUS_BAD_ADDRESS | STATUS_BAD_VALUE, OP_RING_START) => Some("ring-layout"),
        (STATUS_BAD_ADDRESS, OP_REGION_OPEN | OP_REGION_EXTEND) => Some("region-extents"),
        (STATUS_BAD_ADDRESS, _) => Some("named-memory"),
        (STATUS_PORT_BUSY, OP_RING_START) => Some("ring-stopped-first"),
        (STATUS_PORT_BUSY, OP_FIFO_SEND) => Some("fifo-one-at-a-time"),
        // A port that is open already is what a driver may find out so.
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
