//! Lists of posted receives: the NIC matches incoming messages, and writes each into the memory that was posted for it.
//!
//! Semantics are those of Portals 3.0; docs/use/MATCH.md has the matching rule. A [`Port`] has eight portals, each with
//! a list of posted match entries and an overflow list after it. A program registers memory ([`Region`]), appends
//! entries ([`Append`]), and puts and gets data ([`Put`], [`Get`]). [`Event`]s or counters report the results. The path
//! of a message has no system call and no copy: the NIC writes into the memory of the program.
//!
//! ```no_run
//! use std::time::Duration;
//! use niclab_user::matching::{Append, Port, Put, Target};
//! use niclab_user::{Address, Device, slices::PortOptions};
//!
//! # fn main() -> Result<(), niclab_user::Error> {
//! let device = Device::open_first()?;
//! let mut port = Port::open(&device, PortOptions::default().port(0))?;
//! let region = port.allocate(1 << 20)?;
//! let limit = Duration::from_secs(1);
//! // Messages with 7 in the lower half of the match bits, and any upper half, go into the first half of the region.
//! port.launch(&Append::put(0, region.span(0..1 << 19)?).match_bits(7, 0xffff_ffff << 32), limit)?;
//! let target = Target { port: Address { node: 1, port: 0 }, portal: 0 };
//! port.launch(&Put::new(target, region.span(1 << 19..(1 << 19) + 64)?).match_bits(7), limit)?;
//! let event = port.event(limit)?;
//! println!("{:?}: {} bytes from {}", event.kind, event.moved_bytes, event.initiator);
//! # Ok(())
//! # }
//! ```
//!
//! The device accepts a command only while the event queue has room for the events that it may cause. So a program that
//! waits for a free slot without reading its events deadlocks with itself. [`messages`] has sends and receives as in
//! MPI on top of this, and avoids that deadlock.

pub mod messages;

use niclab_abi::PAGE_BYTES;
use niclab_abi::config::FEATURE_LISTS;
use niclab_port::matching::{self as heart, EventRecord, check_counter};
use niclab_port::{Queue, Records};

pub use niclab_port::matching::{
    ArmCounter, COUNTERS, Count, Event, EventKind, Handle, Outcome, PORTALS, Target, Unlink,
};

pub use crate::commanded::Command;
pub use crate::port::{Parts, PortOptions, Status};
pub use crate::region::{Region, Span};

use crate::wait::{Next, Wait};
use crate::{Batching as _, Deadline, Error, WaitPolicy, commanded};

/// Sends bytes to the first entry of a portal that matches: [`heart::Put`].
///
/// cbindgen:ignore
pub type Put<'a> = heart::Put<Span<'a>>;
/// Fetches bytes from the first entry of a portal that matches: [`heart::Get`].
///
/// cbindgen:ignore
pub type Get<'a> = heart::Get<Span<'a>>;
/// Appends a match entry to a portal of this port: [`heart::Append`].
///
/// cbindgen:ignore
pub type Append<'a> = heart::Append<Span<'a>>;

/// An open port, which accepts [`Put`], [`Get`], [`Append`], [`Unlink`] and [`ArmCounter`]. When it closes, its entries
/// are unlinked.
///
/// cbindgen:ignore
pub type Port = commanded::Port<Event>;
/// Posts the commands of a port, and reads its counters.
///
/// cbindgen:ignore
pub type Commands = commanded::Commands<Event>;
/// Reads the events of a port.
///
/// cbindgen:ignore
pub type Events = commanded::Events<Event>;

impl commanded::Event for Event {
    type Record = EventRecord;
    type Launched = Handle;
    const FEATURE: (u64, &str) = (FEATURE_LISTS, "lists of posted receives");
    /// A page: the status line and the counters.
    const STATUS_BYTES: usize = PAGE_BYTES as usize;

    #[inline]
    fn take(queue: &mut Queue<EventRecord>, records: &mut impl Records) -> Option<(Self, bool)> {
        heart::take(queue, records)
    }

    #[inline]
    fn launched(number: u64) -> Handle {
        // The device identifies a post by the low half of its number.
        Handle::from_number(number as u32)
    }
}

impl Port {
    /// [`Commands::counter`].
    ///
    /// # Errors
    ///
    /// As [`Commands::counter`].
    pub fn counter(&self, counter: u32) -> Result<Count, Error> {
        self.commands.counter(counter)
    }
}

impl Commands {
    /// A counter, as the device last wrote it.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] if there is no such counter.
    pub fn counter(&self, counter: u32) -> Result<Count, Error> {
        check_counter(counter)?;
        Ok(Count::read(&self.requester.page(), counter))
    }

    /// Waits until a counter has at least `successes` successes, or one failure more than when the wait began. The data
    /// that the counted operations stored is then visible.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`], [`Error::TimedOut`], [`Error::DeviceGone`].
    pub fn wait_counter(
        &mut self,
        counter: u32,
        successes: u64,
        deadline: impl Into<Deadline>,
    ) -> Result<Count, Error> {
        let failures = self.counter(counter)?.failures;
        let mut wait = Wait::new("wait for a counter", self.policy, deadline.into());
        let mut is_armed = false;
        loop {
            let count = self.counter(counter)?;
            if count.successes >= successes || count.failures > failures {
                self.quiet.on_progress();
                return Ok(count);
            }
            let Next::Sleep(limit) = self.requester.next(&mut wait, &mut self.quiet)? else { continue };
            // If the counter has already reached its value, the card interrupts at once, so the sleep cannot miss it.
            is_armed = is_armed || self.try_launch(&ArmCounter { counter, successes })?.is_some();
            let limit = if is_armed { limit } else { limit.min(WaitPolicy::SENDER_SLEEP) };
            self.ring_deferred();
            self.requester.link().backing.wait_interrupts(limit)?;
        }
    }
}
