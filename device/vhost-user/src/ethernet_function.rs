//! The Ethernet function: the vhost-user back end of a standard virtio-net device.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost_user_backend::VhostUserBackend;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::GuestAddressSpace;
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventNotifier};

use crate::ethernet::{Negotiated, QUEUE_RECEIVE, QUEUE_TRANSMIT};
use crate::link::Link;
use crate::map_request::Seat;
use crate::memory::DmaMemory;
use crate::shell::Shell;
use crate::shell::card::violation;
use crate::vring::{GuestMemory, Start, Vring, forget_stop, start_of};

/// Most descriptors of a queue: QEMU's limit for vhost-user.
const QUEUE_SIZE: usize = 1024;

/// Turns of sending before the thread looks at the receive queue.
const TURNS: usize = 8;

/// One connection of the Ethernet function.
pub struct EthernetFunction {
    shell: Arc<Shell>,
    node: usize,
    link: Arc<Link>,
    /// The world knows the queues of this connection.
    is_attached: AtomicBool,
    /// The front end has stopped the device, and the next start shows whether it continues. Its lock is taken before the world's.
    is_stopped: Mutex<bool>,
}

impl EthernetFunction {
    /// The function of `node`, for a connection to come. It has no BAR to ask for.
    pub fn new(shell: &Arc<Shell>, node: usize, link: &Arc<Link>, _seat: &Arc<Seat>) -> Arc<Self> {
        let (shell, link) = (Arc::clone(shell), Arc::clone(link));
        Arc::new(Self {
            shell,
            node,
            link,
            is_attached: AtomicBool::new(false),
            is_stopped: Mutex::new(false),
        })
    }

    /// Somebody has connected.
    pub fn on_connect(&self) {
        self.shell.set_connected(self.node, |connected| connected.ethernet = true);
    }

    /// The connection is gone, and with it the guest or its QEMU.
    pub fn on_disconnect(&self) {
        let mut world = self.shell.world();
        world.common.ethernet.host_reset(self.node);
        let doorbells = world.common.ethernet.doorbells(self.node);
        if let Some(state) = world.common.ethernet.states.get_mut(self.node) {
            state.earlier_doorbells = doorbells;
        }
        let old = world.common.ethernet.functions.get_mut(self.node).map(std::mem::take);
        drop(world);
        drop(old);
        self.shell.set_connected(self.node, |connected| connected.ethernet = false);
    }

    /// The front end did what it must not.
    pub fn violation(&self, name: &'static str) {
        if let Some(state) = self.shell.world().common.ethernet.states.get_mut(self.node) {
            violation(&mut state.violations, name);
        }
    }

    fn attach(&self, vrings: &[Vring]) {
        if self.is_attached.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut world = self.shell.world();
        if self.link.attention().is_ending() {
            // The connection ended while this thread was on its way here, and the queues with it.
            return;
        }
        let functions = &mut world.common.ethernet.functions;
        if let Some(function) = functions.get_mut(self.node).filter(|function| function.vrings.is_empty()) {
            function.vrings = vrings.to_vec();
        }
    }

    /// Starts a stopped device when all its queues have started. None while its queues may not be served; otherwise whether it has
    /// started just now.
    fn start_device(&self, vrings: &[Vring]) -> Option<bool> {
        let mut is_stopped = self.is_stopped.lock();
        if !*is_stopped {
            return Some(false);
        }
        let start = start_of(vrings)?;
        forget_stop(vrings, start);
        *is_stopped = false;
        let mut world = self.shell.world();
        if start == Start::New {
            world.common.ethernet.host_reset(self.node);
        }
        world.common.ethernet.set_stopped(self.node, false);
        // QEMU takes kicks away that it had made before the stop and that were not heard.
        world.refill(self.node);
        Some(true)
    }

    /// Sends what the guest has queued. True when there is more than a fair share of it.
    fn transmit(&self) -> bool {
        (0..TURNS).all(|_| {
            let mut world = self.shell.world();
            let more = world.transmit(self.node);
            self.shell.did(&mut world);
            // To whoever waits for it: this thread would take it again before the other one has woken up.
            world.give_back();
            more
        })
    }
}

impl VhostUserBackend for EthernetFunction {
    type Bitmap = ();
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        2
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE
    }

    /// Not `VHOST_USER_F_PROTOCOL_FEATURES`: with it QEMU's virtio-net enables a queue before it acknowledges any feature,
    /// which the library takes for a protocol error. The function needs nothing that would have to be agreed on.
    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | Negotiated::OFFERED
    }

    fn acked_features(&self, features: u64) {
        let is_stopped = self.is_stopped.lock();
        let mut world = self.shell.world();
        if !*is_stopped {
            world.common.ethernet.host_reset(self.node);
        }
        if let Some(function) = world.common.ethernet.functions.get_mut(self.node) {
            function.negotiated = Negotiated::new(features);
        }
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::empty()
    }

    fn stop_vring(&self, _queue_index: u32) -> io::Result<()> {
        let mut is_stopped = self.is_stopped.lock();
        *is_stopped = true;
        self.shell.world().common.ethernet.set_stopped(self.node, true);
        Ok(())
    }

    /// The library tells the queues themselves.
    fn set_event_idx(&self, _enabled: bool) {}

    fn update_memory(&self, memory: GuestMemory) -> io::Result<()> {
        // The cluster function's BAR can be among the regions, by another way than its own connection: it is recognised
        // by its file all the same.
        let bar = self.shell.world().nodes.card(self.node).and_then(|card| card.pages.identity());
        let memory = Arc::new(DmaMemory::guarded(&memory.memory(), bar, self.link.attention())?);
        self.link.set_memory(Arc::clone(&memory));
        let mut world = self.shell.world();
        let function = world.common.ethernet.functions.get_mut(self.node);
        let old = function.map(|function| std::mem::replace(&mut function.memory, memory));
        // Taking a large mapping apart takes milliseconds, which others need not wait for.
        drop(world);
        drop(old);
        Ok(())
    }

    /// The library would lose a descriptor of it with each connection: the thread is ended by [`Link::begin_turn`].
    fn exit_event(&self, _thread_index: usize) -> Option<(EventConsumer, EventNotifier)> {
        None
    }

    /// Fails at the connection's end alone: an error ends the thread.
    fn handle_event(
        &self,
        device_event: u16,
        _events: EventSet,
        vrings: &[Vring],
        _thread: usize,
    ) -> io::Result<()> {
        let event = usize::from(device_event);
        self.link.begin_turn(event > QUEUE_TRANSMIT)?;
        self.attach(vrings);
        let Some(is_new) = self.start_device(vrings) else { return Ok(()) };
        if event == QUEUE_RECEIVE && !is_new {
            self.shell.world().refill(self.node);
            return Ok(());
        }
        if self.transmit() {
            self.link.attention().wake();
        }
        Ok(())
    }
}
