//! Channels: active messages over logical channels.
//!
//! After Ulmer and Yalamanchili (sections are cited where they apply). A [`Port`] is a logical channel. Its [`Sender`]
//! pushes messages into the card, to any endpoint of any node. Its [`Receiver`] returns received messages, with the
//! payload in the place where the card has stored it. [`Node`] is the paper's API on top: the channels of a program,
//! and handlers with number and name that run for messages when the program polls. Messages of one channel to another
//! arrive once and in order on every network.
//!
//! ```no_run
//! use std::time::Duration;
//! use niclab_user::grim::{Node, Options, Short};
//! use niclab_user::{Address, Device};
//!
//! # fn main() -> Result<(), niclab_user::Error> {
//! let device = Device::open_first()?;
//! let mut node = Node::enable(&device, &Options::at(0, 1))?;
//! node.register_handler("print", |_, message| println!("{:?} says {:?}", message.source, message.arguments))?;
//! let limit = Duration::from_secs(10);
//! node.synch_handlers(limit)?; // the program at node 0, port 0 keeps the list, and must be there
//! let print = node.wait_for_handler("print", limit)?;
//! let peer = Address { node: 1, port: 0 };
//! node.send_short(0, Short::new(peer, print).arguments([1, 2, 3, 4]), limit)?;
//! node.wait(limit)?; // runs the handlers of received messages
//! node.close(limit)?; // once all that was sent has left
//! # Ok(())
//! # }
//! ```

mod handlers;
mod node;
mod port;
mod receiver;
mod send_queue;
mod sender;

pub use niclab_port::grim::names::{Conflict, MAX_NAME_BYTES, MAX_NAMES, NameProblem};
pub use niclab_port::grim::{Bulk, FIRST_HANDLER, MAX_BULK_BYTES, Outgoing, RegionWrite, Short};
pub use node::{Node, Options};
pub use port::{Port, Terms};
pub use receiver::{Message, Payload, Receiver};
pub use send_queue::{ExposedPart, SendQueue};
pub use sender::Sender;

pub use crate::port::{Parts, PortOptions, Refusal, Status};
pub use crate::region::Region;

/// The predefined handler that does nothing.
const NOTHING: u32 = 0;
