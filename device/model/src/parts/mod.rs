//! Parts that NIC models are composed of. A model composes them and adds the units of its paper.
//!
//! * `card`: the methods that every card has alike;
//! * [`host_interface`]: one master's transactions on its node's bus;
//! * [`effects`]: effects of a card's units, queued and priced; [`counters`]: counters of every card;
//! * [`obligation`]: work that must be completed or cancelled, and never forgotten;
//! * [`control`]: control requests, those of every card and those of one model;
//! * [`port`]: requester page and receive queue, as the program of a port sees them;
//! * [`image_reads`]: firmware images that drivers load;
//! * [`launch_code`]: the code of a post; [`mod@slice`]: a message in the receive queue; [`routes`]: destinations of
//!   ports, and their authorized senders;
//! * [`descriptor_ring`]: descriptors in the host's memory, which the card walks;
//! * [`regions`]: registered host memory, with its requests in [`region_control`]; [`fragments`]: fragmentation and
//!   reassembly of messages;
//! * [`fifo`]: a RAM that pointer memory splits into queues;
//! * [`credit`]: end-to-end credit flow control, both sides;
//! * [`go_back_n`]: a reliable link between two cards on a lossy wire;
//! * [`sequence`]: arithmetic of numbers that wrap; [`timers`]: deadlines by name;

pub(crate) mod card;
pub mod control;
pub mod counters;
pub mod credit;
pub mod descriptor_ring;
pub mod effects;
pub mod fifo;
pub mod fragments;
pub mod go_back_n;
pub mod host_interface;
pub mod image_reads;
pub mod launch_code;
pub mod obligation;
pub mod port;
pub mod region_control;
pub mod regions;
pub mod routes;
pub mod sequence;
pub mod slice;
pub mod timers;
