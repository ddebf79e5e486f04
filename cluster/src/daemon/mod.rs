//! How the daemon is reached while it serves the guests: its monitor, and what is watched through it.

pub mod monitor;
pub mod rules;
pub mod watch;
