//! ULTRA: requester and completer, one I/O cycle a message.
//!
//! After H. Fröning, H. Litz, U. Brüning, *A New Ultra-Low Latency Message Transfer Mechanism*, University of Mannheim,
//! 2007; sections and figures cited in this module are that paper's.
//!
//! A program stores payload and tag as one burst into its requester page. The [`requester`] decodes the page offset
//! ([`crate::parts::launch_code`]), buffers the words in its FIFO RAM, puts routing and header in front, which the descriptor look-up table
//! holds ready, and sends a packet of FLITs ([`wire`]). The [`completer`] of the other node checks the packet against
//! its port authorization table and writes it as one burst into a slice of the receiver's queue in host memory, which
//! the program polls.
//!
//! # Departures from the paper
//!
//! * The paper's network is flow controlled from FLIT to FLIT, so that a full receiver would hold back its network. Here
//!   each sender holds credit for slices that were set aside for it ([`crate::parts::credit`]), so that a full receive
//!   queue holds back the ports that send to it and nobody else. It can be turned off ([`config::FlowControl`]).
//! * A slice carries a number, where the paper has a valid bit that the host clears ([`niclab_abi::receive`]).
//! * A packet lost or damaged by a link is not repaired, as in the paper, but it is counted.
//! * The requester waits for credit, room or the link in model time; the link itself takes every frame that is sent.

pub mod completer;
pub mod config;
pub mod counters;
pub mod descriptor;
pub mod nic;
pub mod requester;
mod testbed;
pub mod wire;

pub use config::Config;
pub use nic::Ultra;
