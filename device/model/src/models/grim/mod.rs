//! GRIM: logical channels, active messages and peripheral endpoints.
//!
//! C. Ulmer, S. Yalamanchili, *A Messaging Layer for Heterogeneous Endpoints in Resource Rich Clusters* (GRIM:
//! General-purpose Reliable In-order Messages). Sections are the paper's.
//!
//! * `descriptor`: the model's entry in the registry;
//! * [`config`]: its parameters;
//! * [`wire`]: its frames;
//! * [`counters`]: its counters;
//! * [`nic`]: the card, whose single processor does one task at a time. Its submodules: `outbound` makes frames of
//!   queues and handles acknowledgements; `inbound` stores frames at endpoints or in card memory; `beside` serves peer
//!   devices;
//! * `channel`: a logical channel, the outbound queue of its owner; `schedule`: which channel sends next, and how long
//!   the processor searches for it;
//! * `link`: a channel to another card and back: reliable, in order, optimistic;
//! * `endpoint`: the destination of messages: a receive queue and a payload region; `payload_room`: that region's
//!   space;
//! * [`peripherals`]: endpoints that are peer devices on the node's bus; `peripheral_port`: their common code;
//! * `command`: slots that programs push; `control`: requests of drivers.
//!
//! # Departures
//!
//! * The paper names 24 of the 28 bytes of a short message. Here the other 4 are the destination.
//! * The receiving card reassembles fragments, not a handler of the library. The paper's predefined handler would copy
//!   each fragment.
//! * The paper's endpoints check for space in the card's queues. Here the slots of the requester page are a window
//!   into the header ring. The card takes slots while the ring has room.
//! * A program may still push a message while the card sends it. A fragment begins on the wire when the processor has
//!   read it, and holds the wire until its last byte arrives. The card decides this only after the last byte arrived.
//!   So a program that stops in the middle of a fragment delays no other program.

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
