//! Access to the host: processes, folders, signals.

pub mod deadline;
pub mod exhaustion;
pub mod exit_code;
pub mod own;
pub mod placement;
pub mod process;
pub mod runtime;
pub mod signals;
pub mod threads;
