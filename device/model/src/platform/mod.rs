//! What stands between a card and its host, and what it costs.
//!
//! * [`profile`]: what each crossing costs on a platform;
//! * [`ledger`]: the only place where a crossing is counted and priced;
//! * [`trace_tag`]: whose message a crossing belongs to; [`histogram`]: how long messages took;
//! * [`node_bus`]: host processor and bus of one node, on which crossings wait for one another;
//! * [`steady`]: what follows one another so that each is the one before it a fixed span later.

pub mod histogram;
pub mod ledger;
pub mod node_bus;
pub mod profile;
pub mod steady;
pub mod trace_tag;
