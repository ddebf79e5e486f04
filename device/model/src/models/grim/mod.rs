//! GRIM: logical channels, active messages and peripheral endpoints.
//!
//! C. Ulmer, S. Yalamanchili, *A Messaging Layer for Heterogeneous Endpoints in Resource Rich Clusters* (GRIM:
//! General-purpose Reliable In-order Messages). Sections are the paper's.
//!
//! * `descriptor`: what the registry knows of the model;
//! * [`config`]: its parameters;
//! * [`wire`]: its frames;
//! * [`counters`]: what it counts;
//! * [`nic`]: the card, one processor that does everything in turn; under it `outbound`, from queues to frames and what
//!   becomes of them, and `inbound`, from frames to endpoints or into card memory;
//! * `channel`: a logical channel, the outbound queue of its owner; `schedule`: whose turn it is on the wire, and how
//!   long the processor looks for that;
//! * `link`: a channel to another card and what comes from there: reliable, in order, optimistic;
//! * `endpoint`: where messages go: a receive queue and a payload region; `payload_room`: the room of that region;
//! * [`peripherals`]: endpoints that are cards beside the NIC; `peripheral_port`: what all of them have alike;
//! * `command`: what programs push; `control`: what drivers ask for.
//!
//! # Departures
//!
//! * Of the 28 bytes of a short message the paper names 24; here the others are the destination.
//! * Fragments are joined by the receiving card and not by a handler of the library: the handler that the paper
//!   predefines would copy each of them.
//! * The paper's endpoints check for space in the card's queues; here the slots of the requester page are a window into
//!   the header ring, and the card takes them out while the ring has room.
//! * A fragment of a message that is still being pushed begins on the wire when the processor has looked at it, and
//!   holds the wire until its last byte is there. The card decides that once its last byte is there: one whose program
//!   stops in the middle holds up nobody.

mod channel;
mod command;
pub mod config;
mod control;
pub mod counters;
pub mod descriptor;
mod endpoint;
mod link;
pub mod nic;
mod payload_room;
mod peripheral_port;
pub mod peripherals;
mod schedule;
pub mod wire;

pub use config::Config;
pub use nic::Grim;
