//! GAMMA: descriptor-based DMA on a plain Fast Ethernet card.
//!
//! After G. Chiola, G. Ciaccio, L. V. Mancini, P. Rotondo, *GAMMA on DEC 2114x with Efficient Flow Control*; sections
//! and figures cited in this module are that paper's.
//!
//! The card is as simple as cards get: it walks two rings of descriptors in the host's memory ([`ring`]). Of one it
//! reads frames and sends them ([`transmit`]), into the other it stores what comes ([`receive`]), and it interrupts, at
//! once or after a while ([`interrupts`]). Active ports, the cutting of messages, windows and acknowledgements are the
//! driver's ([`niclab_abi::active_ports`]): the card knows of them only so much as to say in ledgers and reports whose
//! message a frame carries ([`wire`]).
//!
//! Or the processor drives each transfer ([`direct`]), as it did on the card that GAMMA was first made for: frames wait
//! in the card until the driver has read their heads and named where they belong, and nothing is copied.
//!
//! The same rings carry IP, with an Ethernet address of its own beside that of the node's Ethernet function.
//!
//! # Departures from the paper and from the DEC 21140
//!
//! * Descriptors begin at multiples of eight bytes ([`crate::parts::descriptor_ring::dec2114x`]), and what they skip is
//!   eight bytes at least: there a driver says what it had received, so that model time is exact in live runs.
//! * The check sequence of Ethernet is a part of the cluster's frames, since shells hand over what is on the wire
//!   without one: 4 bytes of 1,538 are there twice.
//! * A frame whose DMA is slower than the wire holds the link until it is there, where the chip would spoil it
//!   (underflow).
//! * Frames that come damaged are passed on with a status that says so, as the chip does when told to: the driver
//!   raises them.
//! * A guest cannot send in another node's name.
//! * The BAR has the pages that every card has for its ports; no port of this card is ever opened, and nothing is in
//!   them.

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
