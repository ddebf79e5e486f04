//! Access to the running daemon: its monitor, and observations through it.

pub mod monitor;
pub mod rules;
pub mod watch;
