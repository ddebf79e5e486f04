//! The platform: host, bus, and the prices of transactions between card and host.
//!
//! * [`profile`]: the price of each transaction on a platform;
//! * [`ledger`]: the only module that counts and prices transactions;
//! * [`trace_tag`]: the message that a transaction belongs to; [`histogram`]: latencies of messages;
//! * [`node_bus`]: host processor and bus of one node, for which transactions wait.

pub mod histogram;
pub mod ledger;
pub mod node_bus;
pub mod profile;
pub mod trace_tag;
