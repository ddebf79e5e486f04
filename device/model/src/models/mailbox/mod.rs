//! Mailbox: the smallest useful card, a template for new models.
//!
//! A program stores a letter of up to 64 bytes and a tag into its requester page. The card sends it to the port that
//! the page is routed to. There the receiving card stores it in the next slice of the receive queue.
//!
//! A port has one letter in flight, and repeats it until it is acknowledged. So letters arrive once and in order, on
//! any network that is not disconnected. A receiver whose queue is full does not acknowledge the letter, and so the
//! sender repeats it. This is the alternating bit protocol of K. A. Bartlett, R. A. Scantlebury, P. T. Wilkinson, *A
//! note on reliable full-duplex transmission over half-duplex links* (1969), with a number in place of the bit. It is
//! slow: each letter takes one round trip.
//!
//! * `descriptor`: the model's entry in the registry;
//! * [`config`]: its parameters;
//! * [`wire`]: its frames;
//! * [`counters`]: its counters;
//! * [`nic`]: the card.
//!
//! `CONTRIBUTING.md` explains these files step by step.

pub mod config;
pub mod counters;
pub mod descriptor;
pub mod nic;
pub mod wire;

pub use config::Config;
pub use nic::Mailbox;
