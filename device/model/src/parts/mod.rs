//! What models are made of. A model composes them and adds what its paper adds.
//!
//! * [`profile`]: what each crossing costs on a platform;
//! * [`ledger`]: the only place where a crossing is counted and priced;
//! * [`message`]: whose message a crossing belongs to; [`histogram`]: how long messages took;
//! * [`host_interface`]: host processor and bus of one node, on which crossings wait for one another;
//! * [`fifo`]: a RAM that pointer memory splits into queues;
//! * [`credit`]: end-to-end credit flow control, both sides;
//! * [`go_back_n`]: a reliable link between two cards on a lossy wire;
//! * [`mischief`]: faults of the device itself, around any model.

pub mod credit;
pub mod fifo;
pub mod go_back_n;
pub mod histogram;
pub mod host_interface;
pub mod ledger;
pub mod message;
pub mod mischief;
pub mod profile;
