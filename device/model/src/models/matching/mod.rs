//! The match unit, its list manager, and the NIC around both.
//!
//! After K. S. Hemmert, K. D. Underwood, A. Rodrigues, *An Architecture to Perform NIC Based MPI Matching*. Sections
//! and figures cited in this module are that paper's.
//!
//! The unit and its list manager (sections 3.2 and 4), which the benchmark and the debugger also use:
//!
//! * [`item`]: headers and list items, in the words that represent them;
//! * [`fifo`], [`mod@unit`]: the microcoded engine, cycle by cycle;
//! * [`program`]: the Portals matching program;
//! * [`list_manager`]: streams headers and items to the unit, and receives its verdicts;
//! * [`queue_manager`]: the same for one list, controlled by a program on a second unit.
//!
//! The NIC (section 3.1), [`nic`], consists of three units with interfaces between them:
//!
//! * the initiator (`initiator`) executes the puts and gets that programs command (`command`), and reports their
//!   results by events (`port`);
//! * the target (`target`) has the match entries. The match unit (`engine`) decides which of them takes a message. The
//!   target notifies the entry's program when the message is stored;
//! * the transport (`transport`) cuts messages into frames ([`wire`]), retransmits lost ones, joins the frames again,
//!   and stores their data. It knows neither commands nor entries. When a message begins to arrive, the transport asks
//!   its user where the data goes. It also notifies the user when a message has ended or has left.
//!   `transport::MessageUser` is its only interface to initiator and target, and returns to them what they answered.
//!
//! `endpoints` is that user, and passes each message to the initiator or the target. So a put goes down once, as a
//! command, a message and frames. It goes up once, as frames, a message and an event.
//!
//! # Departures from the paper
//!
//! `docs/use/MATCH.md` has the same list for readers of the manual.
//!
//! * The paper has no network: frames, link and check word are ours.
//! * One list manager has the lists of all portals. It processes one header at a time, and all lists share its cache.
//! * Links are in the list manager, next to the heads of its lists, and not in the 64 bytes of an item. If each item
//!   had the address of the next one, a memory ten cycles away could not deliver an item every eight cycles. But the
//!   paper has "no penalty per item traversed".
//! * "End list" is sent only if no item was begun after the one that matched, and not after each success. If an item
//!   was begun, the flush drains that item: eight words, as in Table 1. The 31 cycles leave no room for a ninth word.
//! * A message is matched against the posted entries and the overflow entries in one traversal, as if they were one
//!   list. An appended entry is compared with the unexpected messages one by one, each as a header of its own. The
//!   paper leaves unexpected messages to the host.
//! * If the driver closes a region or a port, its entries are unlinked at once. Only a program's commands take cycles
//!   of the list manager.
//! * The data of a message waits until the unit has finished the header, and not only for the verdict.
//! * The card checks each answer of a program against the entry and the message, and replaces a program that
//!   misbehaves.
//! * If a list does not fit into the card's memory, it continues in host memory. The paper's lists fit.

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
