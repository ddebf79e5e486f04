//! The live shell: it runs NIC models as vhost-user devices for QEMU. An in-process front end takes QEMU's part in
//! tests.
//!
//! One process serves a cluster. Each node has two sockets: one for the cluster function
//! (`vhost-user-test-device-pci`), one for the Ethernet function (virtio-net). The two functions share a port of the
//! modelled switch.
//!
//! * [`daemon`]: the complete daemon; [`config`]: builds the models from the configuration; [`monitor`]: requests to
//!   the running daemon; [`lifetime`]: the end of its process; [`mod@slice`]: the scheduling of its threads;
//! * [`connection`], [`link`], [`cluster_function`], [`ethernet_function`], [`map_request`]: vhost-user, by the
//!   `vhost-user-backend` crate; [`relay`]: filters messages that the crate would refuse;
//! * [`shell`]: the nodes and their locks, the wait policies, the passing of model time;
//! * [`ring`], [`memory`], [`vring`], [`notification`]: the guest's queues, memory and events, with all checks;
//! * [`sandbox`]: the system calls and files that the daemon denies itself;
//! * [`attention`]: wakes the thread of a connection;
//! * [`watch`]: timelines, captures and recordings;
//! * [`ethernet`]: frames and offloads;
//! * [`frontend`]: front end and guest in this process; [`lab`]: a daemon with such guests, for tests and
//!   [`mod@bench`]marks.

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
