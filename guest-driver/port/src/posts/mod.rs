//! What stands in a slot and in a record of a port that posts messages: sends to any node, room for what comes from
//! any, and events that tell of both.

mod command;
mod event;

use alloc::vec;
use alloc::vec::Vec;

use niclab_abi::posts::PostGroup;
use niclab_abi::{FromBytes as _, ToBytes as _};

use crate::{Queue, Records};

pub use crate::command::{Command, Encoded, Memory, Part};
pub use command::{Barrier, Element, Multicast, Operator, Receive, Reduce, Send};
pub use event::{Event, Kind, Outcome, PostRecord};

/// The body of the control request `OP_POST_GROUP` that makes a group of these nodes, or without nodes drops it.
pub fn group_request(port: u32, group: u32, nodes: &[u32]) -> Vec<u8> {
    let head = PostGroup { port, group, members: nodes.len() as u32, reserved: 0 };
    let mut body = vec![0; PostGroup::BYTES];
    head.to_bytes(&mut body);
    body.extend(nodes.iter().flat_map(|node| node.to_le_bytes()));
    body
}

/// A message is a multiple of so many bytes, and not empty.
pub const UNIT_BYTES: u64 = niclab_abi::posts::POST_UNIT_BYTES;

/// Most bytes of a multicast or a reduction.
pub const MAX_COLLECTIVE_BYTES: u64 = niclab_abi::posts::POST_MAX_COLLECTIVE_BYTES;

/// The next event of the queue, if it is there, and whether the device must be told that it was taken.
#[inline]
pub fn take(queue: &mut Queue<PostRecord>, records: &mut impl Records) -> Option<(Event, bool)> {
    let (record, status) = queue.front(records)?;
    let event = Event::decode(&record, status)?;
    drop(record);
    Some((event, queue.advance(records)))
}
