//! What models are made of. A model composes them and adds what its paper adds.
//!
//! * [`host_interface`]: what one master does on its node's bus;
//! * [`effects`]: what the units of a card want done, queued and priced; [`counters`]: what every card counts;
//! * [`obligation`]: what is owed and may not be forgotten;
//! * [`control`]: control requests, those of every card and those of one model;
//! * [`port`]: requester page and receive queue, as the program of a port sees them;
//! * [`image_reads`]: images of programs that drivers load;
//! * [`launch_code`]: what a launch asks for; [`slice`]: a message in the receive queue; [`routes`]: where ports send
//!   and who may send to them;
//! * [`descriptor_ring`]: descriptors in the host's memory, walked by the card;
//! * [`regions`]: host memory that was registered, by [`region_control`]; [`fragments`]: messages cut and joined;
//! * [`fifo`]: a RAM that pointer memory splits into queues;
//! * [`credit`]: end-to-end credit flow control, both sides;
//! * [`go_back_n`]: a reliable link between two cards on a lossy wire;
//! * [`sequence`]: arithmetic of numbers that wrap; [`timers`]: deadlines by name;

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
