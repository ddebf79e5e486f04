//! ULTRA: requester and completer, one I/O cycle a message.
//!
//! After H. Fröning, H. Litz, U. Brüning, *A New Ultra-Low Latency Message Transfer Mechanism*, University of Mannheim,
//! 2007; sections and figures cited in this module are that paper's.
//!
//! A program stores payload and tag as one burst into its requester page. The [`requester`] decodes the page offset
//! ([`crate::parts::launch_code`]), buffers the words in its FIFO RAM, puts routing and header in front, which the
//! descriptor look-up table holds ready, and sends a packet of FLITs ([`wire`]). The [`completer`] of the other node
//! checks the packet against its port authorization table and writes it as one burst into a slice of the receiver's
//! queue in host memory, which the program polls.
//!
//! Load, TX, RX and Store are state machines that take word after word and pass each on before the packet is whole,
//! from the bus through both cards to the bus ([`crate::parts::host_interface::HostInterface::pass`]), or take packets
//! whole ([`config::Config::passing`]). Their states and cycles are the profile's.
//!
//! # Departures from the paper
//!
//! * The paper's network is flow controlled from FLIT to FLIT, so that a full receiver would hold back its network.
//!   Here each sender holds credit for slices that were set aside for it ([`crate::parts::credit`]), so that a full
//!   receive queue holds back the ports that send to it and nobody else. It can be turned off
//!   ([`config::FlowControl`]).
//! * The paper gives no cycles of a state. Each look at a table and each word is taken to be one cycle, which leaves
//!   the published latencies unexplained, as `docs/SPECIFICATION.md` says; nothing was tuned to meet them, but in the
//!   profile that says so.
//! * A packet with a damaged FLIT is discarded whole and takes no time of RX and Store. Of one whose words are passed
//!   on, the words before the damage would be in host memory when it is found; no status word would follow, so that no
//!   program could tell.
//! * Store passes words on into a burst that the bus has already begun, no sooner than that the burst need not wait for
//!   a word.
//! * The routing frame names the node, and the switch looks up nothing else. ATOLL's routing, which the paper does not
//!   show, may name the outlets on the way.
//! * With native framing, captures and the daemon's frames keep the Ethernet header, for programs that read them; it is
//!   on no link and takes no time. Frames of the Ethernet function cross a native link with their header and without
//!   preamble, padding and gap.
//! * A slice carries a number, where the paper has a valid bit that the host clears ([`niclab_abi::receive`]).
//! * A packet lost or damaged by a link is not repaired, as in the paper, but it is counted.
//! * The requester waits for credit, room or the link in model time; the link itself takes every frame that is sent.

pub mod completer;
pub mod config;
pub mod counters;
pub mod descriptor;
pub mod nic;
pub mod requester;
mod standing;
mod testbed;
pub mod wire;

pub use config::Config;
pub use nic::Ultra;
