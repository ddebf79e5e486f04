//! Access to a guest: its agent, which runs commands in it, and its QEMU.

pub mod agent;
pub mod panic;
pub mod processors;
pub mod program;
pub mod qmp;
