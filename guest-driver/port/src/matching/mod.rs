//! The Match NIC's formats: commands in the slots of the requester page, events in the receive queue, and counters.
//! [`messages`] implements MPI-like messages with them.

mod command;
mod event;
pub mod messages;

use niclab_abi::matching::COUNTERS_OFFSET;

use crate::{Page, Queue, Records, Reports, Requester};

pub use crate::command::{Command, Encoded, Memory, Part};
pub use command::{Append, ArmCounter, Get, Put, Target, Unlink, check_counter};
pub use event::{Event, EventKind, EventRecord, Handle, Outcome};

/// Number of portals of a port.
pub const PORTALS: u32 = niclab_abi::matching::PORTALS;
/// Number of counters of a port.
pub const COUNTERS: u32 = niclab_abi::matching::COUNTERS;

/// Posts a command in the next slot, which must be free. `received` is the number of events that the program has
/// consumed from the port's receive queue.
#[inline]
pub fn launch(requester: &mut Requester, page: &mut impl Page, command: &Encoded, received: u64) -> Handle {
    // In events, the device identifies a command by the low 32 bits of its post's number.
    Handle::from_number(command.launch(requester, page, received) as u32)
}

/// Consumes the next event of the queue, if there is one. Also returns whether the device must be notified that slices
/// were released.
#[inline]
pub fn take(queue: &mut Queue<EventRecord>, records: &mut impl Records) -> Option<(Event, bool)> {
    let (record, status) = queue.front(records)?;
    let event = Event::decode(&record, status)?;
    drop(record);
    Some((event, queue.advance(records)))
}

/// A counter's value: operations since the port was opened. Neither field ever decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Operations that succeeded.
    pub successes: u64,
    /// Operations that failed.
    pub failures: u64,
}

impl Count {
    /// Reads counter number `counter`, which must be below [`COUNTERS`]: its value as the device last wrote it.
    #[must_use]
    pub fn read(page: &impl Reports, counter: u32) -> Self {
        let first = (COUNTERS_OFFSET / 8) as usize + 2 * counter as usize;
        // The device writes the failures before the successes. Reading them in the opposite order guarantees that
        // `failures` includes each failure that the device counted before the last of these successes.
        let successes = page.status_word(first + 1);
        page.acquire();
        Self { successes, failures: page.status_word(first) }
    }
}
