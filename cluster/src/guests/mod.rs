//! How a guest is reached: its agent, which runs commands in it, and the QEMU that it runs in.

pub mod agent;
pub mod panic;
pub mod processors;
pub mod program;
pub mod qmp;
