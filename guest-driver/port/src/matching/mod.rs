//! The contents of slots and records of a port whose NIC matches messages: commands, events and counters. [`messages`]
//! builds MPI-like messages from them.

mod command;
mod event;
pub mod messages;

use niclab_abi::matching::COUNTERS_OFFSET;

use crate::{Page, Queue, Records, Reports, Requester};

pub use crate::command::{Command, Encoded, Memory, Part};
pub use command::{Append, ArmCounter, Get, Put, Target, Unlink, check_counter};
pub use event::{Event, EventRecord, Handle, Kind, Outcome};

/// Portals of a port.
pub const PORTALS: u32 = niclab_abi::matching::PORTALS;
/// Counters of a port.
pub const COUNTERS: u32 = niclab_abi::matching::COUNTERS;

/// Posts a command from the next slot, which must be free.
#[inline]
pub fn launch(requester: &mut Requester, page: &mut impl Page, command: &Encoded, received: u64) -> Handle {
    // The device identifies a post by the low half of its number.
    Handle::from_number(command.launch(requester, page, received) as u32)
}

/// Takes the next event of the queue, if there is one. Also returns whether the device must be notified.
#[inline]
pub fn take(queue: &mut Queue<EventRecord>, records: &mut impl Records) -> Option<(Event, bool)> {
    let (record, status) = queue.front(records)?;
    let event = Event::decode(&record, status)?;
    drop(record);
    Some((event, queue.advance(records)))
}

/// A counter of operations since the port was opened. Both fields only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Operations that succeeded.
    pub successes: u64,
    /// Operations that failed.
    pub failures: u64,
}

impl Count {
    /// Counter `counter`, below [`COUNTERS`], as the device last wrote it.
    #[must_use]
    pub fn read(page: &impl Reports, counter: u32) -> Self {
        let first = (COUNTERS_OFFSET / 8) as usize + 2 * counter as usize;
        // The device writes `success` last. Read first, it never counts an operation before the earlier ones.
        let successes = page.status_word(first + 1);
        page.acquire();
        Self { successes, failures: page.status_word(first) }
    }
}
