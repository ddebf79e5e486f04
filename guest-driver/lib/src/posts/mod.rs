//! Posts: messages out of registered memory to any node, and into memory that is posted for whatever comes next.
//!
//! After Jaganathan, Underwood and Sass (2003). The card has one [`Port`], which sends to every node ([`Send`]). It has room for as
//! many messages as were posted ([`Receive`]), and takes it in the order of posting, whoever sends. No system call is on the path
//! of a message, and no copy: the NIC reads and writes the memory of the program. Whether a message arrives, once and in order, is
//! for the assembly of the card's protocol to say.
//!
//! ```no_run
//! use std::time::Duration;
//! use niclab_user::posts::{Port, PortOptions, Receive, Send};
//! use niclab_user::Device;
//!
//! # fn main() -> Result<(), niclab_user::Error> {
//! let device = Device::open_first()?;
//! let mut port = Port::open(&device, PortOptions::default())?;
//! let region = port.allocate(1 << 20)?;
//! let limit = Duration::from_secs(1);
//! port.launch(&Receive::new(region.span(0..1 << 19)?).user(7), limit)?;
//! region.write(1 << 19, b"hello!!!")?;
//! port.launch(&Send::new(1, region.span(1 << 19..(1 << 19) + 8)?).tell_sent(), limit)?;
//! let event = port.event(limit)?;
//! println!("{:?}: {} bytes of node {}", event.kind, event.moved_bytes, event.node);
//! # Ok(())
//! # }
//! ```
//!
//! The device takes a command only while the event queue has room for what it is due: a program that waits for a free slot and
//! does not read its events waits for itself ([`Port::launch_reading`]).

use niclab_abi::config::FEATURE_POSTS;
use niclab_port::posts::{self as heart, PostRecord};
use niclab_port::{Queue, Records};

pub use niclab_port::posts::{Event, Kind, Outcome, UNIT_BYTES};

pub use crate::commanded::Command;
pub use crate::port::{Parts, PortOptions, Status};
pub use crate::region::{Region, Span};

use crate::commanded;

/// Sends a message to a node: [`heart::Send`].
///
/// cbindgen:ignore
pub type Send<'a> = heart::Send<Span<'a>>;
/// Room for one message, from whichever node: [`heart::Receive`].
///
/// cbindgen:ignore
pub type Receive<'a> = heart::Receive<Span<'a>>;

/// An open port, which can be asked for [`Send`] and [`Receive`].
///
/// cbindgen:ignore
pub type Port = commanded::Port<Event>;
/// Launches the commands of a port.
///
/// cbindgen:ignore
pub type Commands = commanded::Commands<Event>;
/// Reads the events of a port.
///
/// cbindgen:ignore
pub type Events = commanded::Events<Event>;

impl commanded::Event for Event {
    type Record = PostRecord;
    type Launched = u64;
    const FEATURE: (u64, &str) = (FEATURE_POSTS, "posted messages");
    const STATUS_BYTES: usize = 0;

    #[inline]
    fn take(queue: &mut Queue<PostRecord>, records: &mut impl Records) -> Option<(Self, bool)> {
        heart::take(queue, records)
    }

    #[inline]
    fn launched(number: u64) -> u64 {
        number
    }
}
