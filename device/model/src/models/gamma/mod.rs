//! GAMMA: descriptor-based DMA on a plain Fast Ethernet card.
//!
//! After G. Chiola, G. Ciaccio, L. V. Mancini, P. Rotondo, *GAMMA on DEC 2114x with Efficient Flow Control*; sections
//! and figures cited in this module are that paper's.
//!
//! The card is simple: it walks two rings of descriptors in the host's memory ([`ring`]). It reads frames from the
//! transmit ring and sends them ([`transmit`]). It stores received frames into the receive ring ([`receive`]), and
//! interrupts the host at once or after a delay ([`interrupts`]). The driver implements active ports, segmentation,
//! windows and acknowledgements ([`niclab_abi::gamma`]). The card parses frames only to name, in ledgers and
//! reports, the message that a frame carries ([`wire`]).
//!
//! In the other mode the processor drives each transfer ([`direct`]), as on the card that GAMMA was first made for.
//! Frames wait in the card until the driver has read their headers and programmed their destinations. No data is
//! copied.
//!
//! The same rings carry IP. For IP the card has a second Ethernet address, next to that of the node's Ethernet
//! function.
//!
//! # Departures from the paper and from the DEC 21140
//!
//! * Descriptors begin at multiples of eight bytes ([`crate::parts::descriptor_ring::dec2114x`]), and the skip length
//!   is at least eight bytes. In the skipped bytes the driver reports what it had received, which makes model time
//!   exact in live runs.
//! * The cluster's frames contain Ethernet's check sequence, because shells pass on frames without their own. So 4
//!   bytes of 1,538 are counted twice.
//! * A frame whose DMA is slower than the wire holds the link until its data arrives. The chip would corrupt the frame
//!   (underflow).
//! * The card stores damaged frames with an error status, as the chip does if configured so. The driver reports the
//!   error.
//! * A guest cannot send frames with another node's source address.
//! * The BAR has the pages that every card has for its ports. The ports of this card cannot be opened, and their pages
//!   stay empty.

pub mod config;
pub mod control;
pub mod counters;
pub mod descriptor;
pub mod direct;
pub mod interrupts;
pub mod nic;
pub mod receive;
pub mod ring;
pub mod transmit;
pub mod wire;

pub use config::Config;
pub use nic::Gamma;
