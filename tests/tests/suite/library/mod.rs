//! The user library on the daemon's own models: its ports use the in-process front end, and no part of a card is
//! imitated.

mod bare;
mod c_interface;
mod device_faults;
mod grim;
mod matching;
mod meeting;
mod messages;
mod still;
mod ultra;

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use niclab_abi::control::{OP_PING, OP_PORT_CLOSE, OP_REVOKE, PortName, Revoke};
use niclab_abi::grim::{ChannelExpose, ChannelPayload, OP_CHANNEL_EXPOSE, OP_CHANNEL_PAYLOAD};
use niclab_device::frontend::matching::ListPort;
use niclab_device::frontend::{ClusterGuest, FrontendError};
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_spec::daemon::DaemonConfig;
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::report::NodeFigures;
use niclab_spec::{NicConfig, NicModel};
use niclab_user::slices::Parts;
use niclab_user::{Address, Backing, Error, SharedMemory};

/// The limit of each wait, after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The limit of a wait that must time out.
const SHORT: Duration = Duration::from_millis(5);

/// The number of event buffers of a guest.
const EVENT_BUFFERS: u16 = 64;

const fn node(node: u32) -> Address {
    Address { node, port: 0 }
}

/// A daemon, until the test ends it, and a guest on each of its nodes.
struct Cluster {
    lab: Option<Lab>,
    guests: Vec<Arc<ClusterGuest>>,
}

impl Cluster {
    /// `nodes` nodes with cards of this model; `change` changes the configuration.
    fn new(nodes: u16, model: &str, change: impl FnOnce(&mut DaemonConfig)) -> Self {
        const MEMORY_BYTES: u64 = 16 << 20;
        let model = NicModel::named(model).expect("a model");
        let lab = Lab::new(nodes, |config| {
            config.nodes.iter_mut().for_each(|node| node.nic = NicConfig::of(model));
            change(config);
        });
        let lab = lab.expect("a daemon");
        let guests = (0..nodes).map(|node| {
            let socket = lab.cluster_socket(node.into()).expect("a socket");
            let guest = ClusterGuest::connect(socket, MEMORY_BYTES).expect("a guest");
            guest.offer_event_buffers(EVENT_BUFFERS).expect("buffers");
            Arc::new(guest)
        });
        let guests = guests.collect();
        Self { lab: Some(lab), guests }
    }

    /// Opens a node's first free port, with this number of records.
    fn open(&self, node: usize, records: u32) -> Parts {
        InProcess::open(&self.guests[node], records)
    }

    /// Waits until this node's card has handled all posts, as far as it can at once.
    fn settle(&self, node: usize) {
        self.guests[node].statistics().expect("the daemon answers");
    }

    /// The daemon's figures of a node.
    fn figures(&self, node: usize) -> NodeFigures {
        match answer(self.lab.as_ref().expect("a daemon").daemon().shell(), &Request::Stats) {
            Answer::Stats(mut stats) => stats.nodes.swap_remove(node),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until this node's card has stored `messages` messages in total.
    fn until_stored(&self, node: usize, messages: u64) {
        until("messages are stored", || self.figures(node).messages_received >= messages);
    }

    /// Ends the daemon suddenly.
    fn end(&mut self) {
        self.lab = None;
    }
}

/// Waits until `done` returns true.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < TIMEOUT, "timed out: {what}");
        std::thread::yield_now();
    }
}

/// The backing of a library port whose device runs in this process. A guest has one port open at a time.
struct InProcess {
    name: String,
    /// A port of any card. Cards without regions refuse calls for them.
    port: ListPort,
}

impl InProcess {
    fn open(guest: &Arc<ClusterGuest>, records: u32) -> Parts {
        let port = ListPort::open_unreleased(guest, records).expect("a free port");
        let (own, node) = (port.port(), guest.config().node);
        let memory = own.memory((0, 0));
        let shared = |words: &[AtomicU64]| shared(guest, words);
        Parts {
            address: Address { node, port: own.number() },
            info: shared(guest.bar().page(0)),
            requester: shared(memory.page.requester),
            completer: shared(memory.records.completer),
            status: shared(memory.page.status),
            slices: shared(memory.records.records),
            payload: shared(memory.payload),
            backing: Box::new(Self { name: format!("node{node}"), port }),
        }
    }

    fn guest(&self) -> &Arc<ClusterGuest> {
        self.port.port().guest()
    }

    fn gone(&self) -> Error {
        Error::DeviceGone { device: self.name.clone() }
    }

    fn ask<T>(
        &self,
        operation: &str,
        ask: impl FnOnce(&ListPort) -> Result<T, FrontendError>,
    ) -> Result<T, Error> {
        if !self.guest().connection().is_open() {
            return Err(self.gone());
        }
        ask(&self.port).map_err(|error| match error {
            FrontendError::Refused { .. } => Error::Refused {
                device: self.name.clone(),
                operation: operation.into(),
                source: io::Error::other(error.to_string()),
            },
            _ => self.gone(),
        })
    }

    /// Takes all pending events, and offers their buffers again. Returns the number of interrupts of this port.
    fn take_events(&self) -> u64 {
        let events = self.guest().take_events().expect("a ring");
        self.guest().offer_event_buffers(events.len() as u16).expect("a ring");
        let mine = events.iter().filter(|event| event.port == self.port.port().number());
        mine.map(|event| event.count).sum()
    }
}

impl Backing for InProcess {
    fn name(&self) -> &str {
        &self.name
    }

    fn ring(&self) {
        self.guest().ring();
    }

    fn wait_interrupts(&self, timeout: Duration) -> Result<u64, Error> {
        let count = self.take_events();
        if count > 0 {
            return Ok(count);
        }
        self.guest().wait_interrupts(timeout);
        Ok(self.take_events())
    }

    fn check(&self) -> Result<(), Error> {
        self.ask("check the device", |port| port.port().guest().request(OP_PING, &[]).map(drop))
    }

    fn route(&self, target: Address) -> Result<(), Error> {
        self.ask("route", |port| port.port().route(target.node, target.port))
    }

    fn authorize(&self, source: Address, credits: u32) -> Result<(), Error> {
        self.ask("authorize", |port| port.port().authorize(source.node, source.port, credits))
    }

    fn revoke(&self, source: Address) -> Result<(), Error> {
        let port = self.port.port().number();
        let revoke = Revoke { port, node: source.node, node_port: source.port, reserved: 0 };
        self.ask("revoke", |port| port.port().guest().command(OP_REVOKE, &revoke).map(drop))
    }

    fn allocate(&self, bytes: usize) -> Result<SharedMemory, Error> {
        Ok(shared(self.guest(), pages(self.guest(), bytes)))
    }

    fn register(&self, memory: &SharedMemory) -> Result<u32, Error> {
        // A guest's memory is one mapping, so the distance from a known address is the same in both address spaces.
        let (known, _) = self.port.port().addresses();
        let words = self.guest().memory().atomics::<AtomicU64>(known, 1).expect("the port's own");
        let distance = (memory.words().as_ptr().addr() as u64).wrapping_sub(words.as_ptr().addr() as u64);
        let address = known.wrapping_add(distance);
        self.ask("register", |port| port.register(address, memory.bytes() as u64))
    }

    fn deregister(&self, region: u32) -> Result<(), Error> {
        self.ask("deregister", |port| port.deregister(region))
    }

    fn set_payload(&self, payload: &ChannelPayload) -> Result<(), Error> {
        let payload = ChannelPayload { port: self.port.port().number(), ..*payload };
        self.ask("set a payload region", |port| {
            port.port().guest().command(OP_CHANNEL_PAYLOAD, &payload).map(drop)
        })
    }

    fn expose(&self, expose: &ChannelExpose) -> Result<(), Error> {
        let expose = ChannelExpose { port: self.port.port().number(), ..*expose };
        self.ask("expose", |port| port.port().guest().command(OP_CHANNEL_EXPOSE, &expose).map(drop))
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let name = PortName { port: self.port.port().number(), reserved: 0 };
        // A daemon that has ended has closed the port.
        let _ = self.ask("close", |port| port.port().guest().command(OP_PORT_CLOSE, &name));
    }
}

/// Unused pages of a guest's memory, for at least `bytes` bytes.
fn pages(guest: &ClusterGuest, bytes: usize) -> &[AtomicU64] {
    let bytes = bytes.next_multiple_of(4096);
    let address = guest.memory().allocate(bytes as u64, 4096).expect("the guest's memory is large enough");
    guest.memory().atomics(address, bytes / size_of::<u64>()).expect("within")
}

/// Memory of the guest, for the library.
fn shared(guest: &Arc<ClusterGuest>, words: &[AtomicU64]) -> SharedMemory {
    let keep = Arc::clone(guest);
    // SAFETY: the words are shared integers of the guest's memory or of its BAR, mapped for writing as long as the
    // guest lives. The device accesses them as atomics, too.
    unsafe { SharedMemory::from_raw(NonNull::from(words).cast(), words.len(), keep) }
}
