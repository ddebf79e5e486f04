//! What models are made of. A model composes them and adds what its paper adds.
//!
//! * [`profile`]: what each crossing costs on a platform;
//! * [`ledger`]: the only place where a crossing is counted and priced;
//! * [`trace_tag`]: whose message a crossing belongs to; [`histogram`]: how long messages took;
//! * [`node_bus`]: host processor and bus of one node, on which crossings wait for one another; [`host_interface`]: what one
//!   master does there;
//! * [`effects`]: what the units of a card want done, queued and priced; [`counters`]: what every card counts;
//! * [`obligation`]: what is owed and may not be forgotten;
//! * [`control`]: control requests, those of every card and those of one model;
//! * [`port`]: requester page and receive queue, as the program of a port sees them;
//! * [`image_reads`]: images of programs that drivers load;
//! * [`launch_code`]: what a launch asks for; [`slice`]: a message in the receive queue; [`routes`]: where ports send and who
//!   may send to them;
//! * [`descriptor_ring`]: descriptors in the host's memory, walked by the card;
//! * [`regions`]: host memory that was registered, by [`region_control`]; [`fragments`]: messages cut and joined;
//! * [`fifo`]: a RAM that pointer memory splits into queues;
//! * [`credit`]: end-to-end credit flow control, both sides;
//! * [`go_back_n`]: a reliable link between two cards on a lossy wire;
//! * [`sequence`]: arithmetic of numbers that wrap; [`timers`]: deadlines by name;
//! * [`random`]: what is drawn from a seed;
//! * [`fault_injector`]: faults of the device itself, around any model.

pub mod control;
pub mod counters;
pub mod credit;
pub mod descriptor_ring;
pub mod effects;
pub mod fault_injector;
pub mod fifo;
pub mod fragments;
pub mod go_back_n;
pub mod histogram;
pub mod host_interface;
pub mod image_reads;
pub mod launch_code;
pub mod ledger;
pub mod node_bus;
pub mod obligation;
pub mod port;
pub mod profile;
pub mod region_control;
pub mod regions;
pub use niclab_random as random;
pub mod routes;
pub mod sequence;
pub mod slice;
pub mod timers;
pub mod trace_tag;
