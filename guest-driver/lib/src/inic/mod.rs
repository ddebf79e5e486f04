//! Posts: messages from registered memory to any node, received into memory posted for the next message.
//!
//! After Jaganathan, Underwood and Sass (2003). The card has one [`Port`], which sends to every node ([`Send`]). Memory
//! is posted for one message each ([`Receive`]), and is used in posting order, for messages from any node. The path of
//! a message has no system call and no copy: the NIC reads and writes the memory of the program. The assembly of the
//! card's protocol decides whether messages arrive, once and in order.
//!
//! ```no_run
//! use std::time::Duration;
//! use niclab_user::inic::{Port, PortOptions, Receive, Send};
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
//! The device accepts a command only while the event queue has room for the events that are due. So a program that
//! waits for a free slot without reading its events deadlocks with itself ([`Port::launch_reading`] avoids that).

use niclab_abi::config::FEATURE_POSTS;
use niclab_abi::inic::{POST_ANY_SOURCE, PostRules};
use niclab_port::inic::{self as heart, PostRecord};
use niclab_port::{Queue, Records};

pub use niclab_port::inic::{
    Barrier, Element, Event, EventKind, MAX_COLLECTIVE_BYTES, Operator, Outcome, UNIT_BYTES,
};

pub use crate::commanded::Command;
pub use crate::port::{Parts, PortOptions, Status};
pub use crate::region::{Region, Span};

use crate::{Error, commanded};

/// Sends a message to a node: [`heart::Send`].
///
/// cbindgen:ignore
pub type Send<'a> = heart::Send<Span<'a>>;
/// Posts memory for one message from any node: [`heart::Receive`].
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

/// An open port, which accepts [`Send`] and [`Receive`], and, for groups, [`Barrier`], [`Multicast`] and [`Reduce`].
///
/// cbindgen:ignore
pub type Port = commanded::Port<Event>;
/// Posts the commands of a port.
///
/// cbindgen:ignore
pub type Commands = commanded::Commands<Event>;
/// Reads the events of a port.
///
/// cbindgen:ignore
pub type Events = commanded::Events<Event>;

/// The rules by which the NIC interrupts for received messages, in addition to receives that request it. Zero disables
/// a rule; by default all are disabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// An interrupt for each such number of bytes received. Further bytes count for the next interrupt.
    pub chunk_bytes: u64,
    /// An interrupt at the end of a message, for bytes that have not caused one yet.
    pub at_end: bool,
    /// An interrupt for each message of at least this length.
    pub min_message_bytes: u64,
    /// The rules apply to messages from this node only; `None`: from all nodes.
    pub source: Option<u32>,
}

impl Port {
    /// Sets the interrupt rules.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `EOPNOTSUPP` if the card's protocol has no component for it; [`Error::DeviceGone`].
    pub fn set_rules(&self, rules: &Rules) -> Result<(), Error> {
        let &Rules { chunk_bytes: rcv_chunk_size, at_end, min_message_bytes, source } = rules;
        let source = source.map_or(POST_ANY_SOURCE, u64::from);
        let at_end = at_end.into();
        self.link.backing.set_rules(&PostRules { port: 0, at_end, rcv_chunk_size, min_message_bytes, source })
    }

    /// Creates a group of these nodes, which must include this one. All members must use the same name, and list the
    /// nodes in the same order. Operations wait until all members have created the group.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `EINVAL` if a group of this name exists or the nodes are invalid, `ENOSPC` if the
    /// maximum number of groups exists, and `EOPNOTSUPP` if the card has no groups or its protocol loses messages;
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

    /// Removes a group. Its operations in progress end, here and at all members.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `ENOENT` if there is no such group; [`Error::DeviceGone`].
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
