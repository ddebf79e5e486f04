//! ULTRA: requester and completer, one I/O cycle for each message.
//!
//! After H. Fröning, H. Litz, U. Brüning, *A New Ultra-Low Latency Message Transfer Mechanism*, University of Mannheim,
//! 2007. Sections and figures cited in this module are that paper's.
//!
//! A program stores payload and tag as one burst into its requester page. The [`requester`] decodes the page offset
//! ([`crate::parts::launch_code`]) and buffers the words in its FIFO RAM. It puts routing and header in front, which
//! the descriptor look-up table holds ready, and sends a packet of FLITs ([`wire`]). The [`completer`] of the other
//! node checks the packet against its port authorization table. It writes the packet as one burst into a slice of the
//! receiver's queue in host memory, which the program polls.
//!
//! Load, TX, RX and Store are state machines. By cut-through they forward each word before the packet is complete, from
//! the bus through both cards to the other bus ([`crate::parts::host_interface::HostInterface::pass`]). By
//! store-and-forward each machine forwards only complete packets ([`config::Config::passing`]). The profile gives their
//! states and cycles.
//!
//! # Departures from the paper
//!
//! * The paper's network has flow control between FLITs, so a full receiver would hold back its network. Here each
//!   sender holds credit for slices that the receiver reserves for it ([`crate::parts::credit`]). So a full receive
//!   queue holds back only the ports that send to it. Credit can be turned off ([`config::FlowControl`]).
//! * The paper gives no cycles for a state. The model assumes one cycle for each table access and each word. This
//!   leaves a part of the published latencies unexplained (`docs/design/SPECIFICATION.md`). Only the profile that is
//!   marked as fitted was tuned to them.
//! * The model discards a packet with a damaged FLIT completely, and charges no time of RX and Store for it. Hardware
//!   that cuts through would already have written the words before the damage to host memory. It would not write the
//!   status word, so no program could see the difference.
//! * Store forwards words into a burst that the bus has already begun. The burst begins late enough that it never waits
//!   for a word.
//! * The routing frame names the node, and the switch looks up nothing else. The paper does not show ATOLL's routing,
//!   which may name each switch outlet on the path.
//! * With native framing, captures and the daemon's frames keep the Ethernet header, for programs that read them. The
//!   header is not on any link and takes no time. Frames of the Ethernet function cross a native link with their
//!   header, but without preamble, padding and gap.
//! * A slice carries a number, where the paper has a valid bit that the host clears ([`niclab_abi::receive`]).
//! * As in the paper, the card does not retransmit a packet that a link lost or damaged. But it counts such packets.
//! * The requester waits for credit, room or the link in model time. The link itself accepts every frame that is sent.

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
