//! The contents of slots and records of a port that posts messages: sends to any node, memory for messages from any
//! node, and events that report both.

mod command;
mod event;

use alloc::vec;
use alloc::vec::Vec;

use niclab_abi::inic::PostGroup;
use niclab_abi::{FromBytes as _, ToBytes as _};

use crate::{Queue, Records};

pub use crate::command::{Command, Encoded, Memory, Part};
pub use command::{Barrier, Element, Multicast, Operator, Receive, Reduce, Send};
pub use event::{Event, EventKind, Outcome, PostRecord};

/// The body of the control request `OP_POST_GROUP` that creates a group of these nodes, or without nodes removes it.
pub fn group_request(port: u32, group: u32, nodes: &[u32]) -> Vec<u8> {
    let head = PostGroup { port, group, members: nodes.len() as u32, reserved: 0 };
    let mut body = vec![0; PostGroup::BYTES];
    head.to_bytes(&mut body);
    body.extend(nodes.iter().flat_map(|node| node.to_le_bytes()));
    body
}

/// The length of a message is a multiple of this, and not zero.
pub const UNIT_BYTES: u64 = niclab_abi::inic::POST_UNIT_BYTES;

/// Maximum bytes of a multicast or a reduction.
pub const MAX_COLLECTIVE_BYTES: u64 = niclab_abi::inic::POST_MAX_COLLECTIVE_BYTES;

/// Takes the next event of the queue, if there is one. Also returns whether the device must be notified.
#[inline]
pub fn take(queue: &mut Queue<PostRecord>, records: &mut impl Records) -> Option<(Event, bool)> {
    let (record, status) = queue.front(records)?;
    let event = Event::decode(&record, status)?;
    drop(record);
    Some((event, queue.advance(records)))
}
