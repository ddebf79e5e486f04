//! Mailbox: the smallest card that is of use, to begin one's own from.
//!
//! A program stores a letter of up to 64 bytes and a tag into its requester page; the card sends it to the port that
//! the page is routed to, and there it is stored in the next slice of the receive queue. A port has one letter under
//! way at a time and repeats it until it is acknowledged, so that letters arrive, once and in order, on any network
//! that is not cut. A receiver whose queue is full says nothing, and is asked again. That is the alternating bit
//! protocol of K. A. Bartlett, R. A. Scantlebury, P. T. Wilkinson, *A note on reliable full-duplex transmission over
//! half-duplex links* (1969), with a number in the place of the bit. It is slow: one round trip a letter.
//!
//! * `descriptor`: what the registry knows of the model;
//! * [`config`]: its parameters;
//! * [`wire`]: its frames;
//! * [`counters`]: what it counts;
//! * [`nic`]: the card.
//!
//! `CONTRIBUTING.md` goes through these files step by step.

pub mod config;
pub mod counters;
pub mod descriptor;
pub mod nic;
pub mod wire;

pub use config::Config;
pub use nic::Mailbox;
