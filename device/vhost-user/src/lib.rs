//! The live shell: NIC models behind QEMU over vhost-user, and an in-process front end.
//!
//! One process serves a cluster: two sockets for each node, one for the cluster function
//! (`vhost-user-test-device-pci`) and one for the Ethernet function (virtio-net), which share a port of the modelled
//! switch.
//!
//! * [`daemon`]: everything put together; [`config`]: from plain data to models; [`monitor`]: questions while it runs;
//!   [`lifetime`]: when its process ends; [`slice`]: how soon its threads are let in;
//! * [`connection`], [`link`], [`cluster_function`], [`ethernet_function`], [`map_request`]: vhost-user, which the
//!   `vhost-user-backend` crate drives;
//! * [`shell`]: the world behind its lock, when to sleep, how model time passes;
//! * [`ring`], [`memory`], [`vring`], [`notification`]: the guest's queues, memory and events, all of it checked;
//! * [`sandbox`]: what the daemon cannot do, whoever makes it try;
//! * [`attention`]: how the thread of a connection is called;
//! * [`watch`]: timelines, captures and recordings of what goes on;
//! * [`ethernet`]: frames and offloads;
//! * [`frontend`]: the other end of it all, in this process; [`lab`]: both ends, for tests and
//!   [`bench`]marks.

pub mod attention;
pub mod bench;
pub mod cluster_function;
pub mod config;
pub mod connection;
pub mod daemon;
pub mod ethernet;
pub mod ethernet_function;
pub mod frontend;
pub mod lab;
pub mod lifetime;
pub mod link;
pub mod map_request;
pub mod memory;
pub mod monitor;
pub mod notification;
pub mod relay;
pub mod ring;
pub mod sandbox;
pub mod shell;
pub mod slice;
pub mod vring;
pub mod watch;
