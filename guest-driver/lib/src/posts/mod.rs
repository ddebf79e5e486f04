//! Posts: messages out of registered memory to any node, and into memory that is posted for whatever comes next.
//!
//! After Jaganathan, Underwood and Sass (2003). The card has one [`Port`], which sends to every node ([`Send`]). It has
//! room for as many messages as were posted ([`Receive`]), and takes it in the order of posting, whoever sends. No
//! system call is on the path of a message, and no copy: the NIC reads and writes the memory of the program. Whether a
//! message arrives, once and in order, is for the assembly of the card's protocol to say.
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
//! The device takes a command only while the event queue has room for what it is due: a program that waits for a free
//! slot and does not read its events waits for itself ([`Port::launch_reading`]).

use niclab_abi::config::FEATURE_POSTS;
use niclab_abi::posts::{POST_ANY_SOURCE, PostRules};
use niclab_port::posts::{self as heart, PostRecord};
use niclab_port::{Queue, Records};

pub use niclab_port::posts::{
    Barrier, Element, Event, Kind, MAX_COLLECTIVE_BYTES, Operator, Outcome, UNIT_BYTES,
};

pub use crate::commanded::Command;
pub use crate::port::{Parts, PortOptions, Status};
pub use crate::region::{Region, Span};

use crate::{Error, commanded};

/// Sends a message to a node: [`heart::Send`].
///
/// cbindgen:ignore
pub type Send<'a> = heart::Send<Span<'a>>;
/// Room for one message, from whichever node: [`heart::Receive`].
///
/// cbindgen:ignore
pub type Receive<'a> = heart::Receive<Span<'a>>;

/// Sends a message to all other members of a group: [`heart::Multicast`].
///
/// cbindgen:ignore
pub type Multicast<'a> = heart::Multicast<Span<'a>>;
/// Combines the values of all members of a group: [`heart::Reduce`].
///
/// cbindgen:ignore
pub type Reduce<'a> = heart::Reduce<Span<'a>>;

/// An open port, which can be asked for [`Send`] and [`Receive`], and, for groups, [`Barrier`], [`Multicast`] and
/// [`Reduce`].
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

/// When the NIC interrupts for messages that come, beside receives that ask for it. Zero turns a rule off; none of them
/// is on in the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// For so many bytes that came; what is more counts for the next.
    pub chunk_bytes: u64,
    /// At the end of a message for the bytes that are pooled.
    pub at_end: bool,
    /// For each message of so many bytes or more.
    pub min_message_bytes: u64,
    /// The rules are about messages of this node; of all without it.
    pub source: Option<u32>,
}

impl Port {
    /// Changes when the NIC interrupts.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `EOPNOTSUPP` where the card's protocol has no component for it; [`Error::DeviceGone`].
    pub fn set_rules(&self, rules: &Rules) -> Result<(), Error> {
        let &Rules { chunk_bytes: rcv_chunk_size, at_end, min_message_bytes, source } = rules;
        let source = source.map_or(POST_ANY_SOURCE, u64::from);
        let at_end = at_end.into();
        self.link.backing.set_rules(&PostRules { port: 0, at_end, rcv_chunk_size, min_message_bytes, source })
    }

    /// Makes a group of these nodes, of which this one is one. All members name it alike, and one another in the same
    /// order. It begins when all have made it: what is asked for before waits.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `EINVAL` where there is a group of this name or the nodes are none of one, `ENOSPC`
    /// where there are as many as may be, and `EOPNOTSUPP` where the card has no groups or its protocol loses messages;
    /// [`Error::DeviceGone`].
    pub fn make_group(&self, group: u32, nodes: &[u32]) -> Result<(), Error> {
        if nodes.is_empty() {
            return Err(Error::BadValue {
                what: "the members of a group",
                value: 0,
                range: "1 or more".into(),
            });
        }
        self.link.backing.set_group(group, nodes)
    }

    /// Drops a group. What is open of it is over, here and at all members.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `ENOENT` where there is none; [`Error::DeviceGone`].
    pub fn drop_group(&self, group: u32) -> Result<(), Error> {
        self.link.backing.set_group(group, &[])
    }
}

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
