//! The match unit without a NIC around it: the same unit and list manager, with a list and headers out of files.
//!
//! * [`input`]: the files, lists and headers as JSON;
//! * [`firmware`]: the program, as an image, as a source, or the one that every unit is built with;
//! * [`machine`]: unit and list manager, which is hardware or a program on a second unit, and what each cycle brought;
//! * [`results`]: what became of the headers;
//! * [`debugger`]: stops, steps and shows;
//! * [`trace`]: a waveform of every cycle.
//!
//! docs/use/match/RUNNING.md is the manual.

pub mod debugger;
pub mod firmware;
pub mod input;
pub mod machine;
pub mod results;
pub mod trace;
