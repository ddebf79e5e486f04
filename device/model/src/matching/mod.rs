//! The match unit, what feeds it, and the NIC around both.
//!
//! After K. S. Hemmert, K. D. Underwood, A. Rodrigues, *An Architecture to Perform NIC Based MPI Matching*; sections and
//! figures cited in this module are that paper's.
//!
//! The unit and its list manager (sections 3.2 and 4), as benchmark and debugger use them:
//!
//! * [`item`]: headers and list items, in the words in which they travel;
//! * [`reference`]: the matching rule, plainly, from the paper's Figure 1;
//! * [`fifo`], [`unit`]: the microcoded engine, cycle by cycle;
//! * [`program`]: the Portals matching program;
//! * [`list_manager`]: streams headers and items to the unit, and hears its verdicts;
//! * [`queue_manager`]: the same for one list, decided by a program on a second unit.
//!
//! The NIC (section 3.1): a program launches commands in its requester page (`commands`, `execute`); messages leave in frames
//! ([`wire`]) over a link that loses nothing (`messages`); where they arrive, each header is matched by the unit (`engine`)
//! and the data is stored in the memory that the entry names (`reception`, `regions`); what happened is told by events
//! (`events`, `port`).
//!
//! # Departures from the paper
//!
//! * The paper has no network: frames, link and check word are ours.
//! * The lists of all portals are in one list manager, which does one header at a time.
//! * A message is matched against the posted entries and the overflow entries in one traversal, as if they were one list.
//!   Unexpected messages are searched by fixed logic in eight cycles each; the paper leaves that to the host.
//! * Data waits for the end of a header's work in the unit, not for the verdict alone.
//! * What a program answers is checked against the entry and the message, and a program that misbehaves is replaced.
//! * A list that the card's memory does not hold goes on in host memory. The paper's lists fit.

mod closing;
mod commands;
pub mod config;
mod control;
pub mod counters;
mod effects;
mod engine;
mod events;
mod execute;
pub mod fifo;
pub mod item;
pub mod list_manager;
mod messages;
pub mod nic;
mod port;
pub mod program;
pub mod queue_manager;
mod reception;
pub mod reference;
mod regions;
pub mod unit;
pub mod wire;

pub use config::Config;
pub use nic::Match;
