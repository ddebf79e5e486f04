//! The match unit without a NIC: the same unit and list manager, with a list and headers from files.
//!
//! * [`input`]: the files, lists and headers as JSON;
//! * [`firmware`]: the program: an image, a source, or the built-in program;
//! * [`machine`]: unit and list manager, cycle by cycle. The list manager is hardware, or a program on a second unit;
//! * [`results`]: the outcomes of the headers;
//! * [`debugger`]: steps, breakpoints, and the machine as text;
//! * [`trace`]: a waveform of every cycle.
//!
//! docs/use/match/RUNNING.md is the manual.

pub mod debugger;
pub mod firmware;
pub mod input;
pub mod machine;
pub mod results;
pub mod trace;
