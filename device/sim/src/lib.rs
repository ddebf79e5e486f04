//! The deterministic discrete-event simulator.
//!
//! The same model code as behind QEMU, under a shell whose only clock is model time: an event queue, hosts that perform
//! scripted workloads, and checkers outside the models.
