//! The match unit, what feeds it, and the NIC around both.
//!
//! After K. S. Hemmert, K. D. Underwood, A. Rodrigues, *An Architecture to Perform NIC Based MPI Matching*; sections
//! and figures cited in this module are that paper's.
//!
//! The unit and its list manager (sections 3.2 and 4), as benchmark and debugger use them:
//!
//! * [`item`]: headers and list items, in the words in which they travel;
//! * [`fifo`], [`unit`]: the microcoded engine, cycle by cycle;
//! * [`program`]: the Portals matching program;
//! * [`list_manager`]: streams headers and items to the unit, and hears its verdicts;
//! * [`queue_manager`]: the same for one list, decided by a program on a second unit.
//!
//! The NIC (section 3.1), [`nic`], is three units with interfaces between them:
//!
//! * the initiator (`initiator`) begins what programs command (`command`), and tells them by events (`port`) what
//!   became of it;
//! * the target (`target`) has the match entries: it lets the match unit (`engine`) decide which of them takes a
//!   message, and tells their programs when it is stored;
//! * the transport (`transport`) cuts messages into frames ([`wire`]), loses none of them, joins them, and stores their
//!   data. It knows neither commands nor entries. Of a message that begins to arrive it asks where it goes, and it says
//!   when it has ended or has left: `transport::MessageUser` is all that it knows of the two, and what they answer is
//!   handed back to it.
//!
//! `endpoints` is that user: it takes each message to the end whose it is. So a put goes down once, as a command, a
//! message and frames, and up once, as frames, a message and an event.
//!
//! # Departures from the paper
//!
//! `docs/MATCH.md` has the same list for readers of the manual.
//!
//! * The paper has no network: frames, link and check word are ours.
//! * The lists of all portals are in one list manager, which does one header at a time, and share its cache.
//! * Links lie in the list manager, beside its heads, not in the 64 bytes of an item: an item whose address stands in
//!   the one before cannot come out of a memory ten cycles away every eight cycles, and the paper has "no penalty per
//!   item traversed".
//! * "End list" is sent where no item was begun behind one that matched, not after each success: the item that was
//!   begun is what the flush drains, in Table 1's eight words, and in 31 cycles there is none for a ninth.
//! * A message is matched against the posted entries and the overflow entries in one traversal, as if they were one
//!   list. An entry that is appended is held against the unexpected messages one by one, each a header of its own; the
//!   paper leaves unexpected messages to the host.
//! * What a driver closes is unlinked at once; only what a program commands takes the list manager's cycles.
//! * Data waits for the end of a header's work in the unit, not for the verdict alone.
//! * What a program answers is checked against the entry and the message, and a program that misbehaves is replaced.
//! * A list that the card's memory does not hold goes on in host memory. The paper's lists fit.

mod command;
pub mod config;
mod control;
pub mod counters;
pub mod descriptor;
mod endpoints;
mod engine;
pub mod fifo;
mod initiator;
pub mod item;
pub mod list_manager;
pub mod nic;
mod port;
pub mod program;
pub mod queue_manager;
mod target;
mod transport;
pub mod unit;
pub mod wire;

pub use config::Config;
pub use nic::Match;
