//! The Ethernet function: the vhost-user back end of a standard virtio-net device.

use crate::shell::service::ethernet_function;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::VhostUserBackend;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MQ;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::GuestAddressSpace;
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventNotifier};

use crate::ethernet::steering::Switches;
use crate::ethernet::{Negotiated, QUEUES_PER_PAIR, receive_queue};
use crate::link::Link;
use crate::map_request::MapRequestSlot;
use crate::memory::DmaMemory;
use crate::shell::Shell;
use crate::shell::card::violation;
use crate::shell::ethernet::Function;
use crate::vring::{GuestMemory, Start, Vring, forget_stop, start_of};

/// Maximum descriptors of a queue: QEMU's limit for vhost-user.
const QUEUE_SIZE: usize = 1024;

/// Maximum lock budgets of sending before the thread checks the receive queue.
const MAX_BUDGETS: usize = 8;

/// One connection of the Ethernet function.
pub struct EthernetFunction {
    shell: Arc<Shell>,
    node: usize,
    link: Arc<Link>,
    /// The node has the queues of this connection.
    is_attached: AtomicBool,
    /// The front end has stopped the device, and the next start shows whether it continues. A thread takes its lock
    /// before the nodes' locks.
    is_stopped: Mutex<bool>,
    queue_pairs: usize,
    /// The pairs that the driver has turned on.
    switches: Arc<Switches>,
    /// Pairs with frames to send, each once, in the order in which they are served.
    sending: Mutex<VecDeque<usize>>,
}

impl EthernetFunction {
    /// The function of `node`, for a future connection. It has no BAR, so it needs no `_slot`.
    pub fn new(shell: &Arc<Shell>, node: usize, link: &Arc<Link>, _slot: &Arc<MapRequestSlot>) -> Arc<Self> {
        let (shell, link) = (Arc::clone(shell), Arc::clone(link));
        let queue_pairs = Self::queue_pairs_of(&shell, node);
        Arc::new(Self {
            shell,
            node,
            link,
            is_attached: AtomicBool::new(false),
            is_stopped: Mutex::new(false),
            queue_pairs,
            switches: Arc::new(Switches::new(queue_pairs)),
            sending: Mutex::default(),
        })
    }

    fn queue_pairs_of(shell: &Shell, node: usize) -> usize {
        shell.nodes().get(node).map_or(1, |info| info.queue_pairs)
    }

    /// The switches of a connection's pairs, which a [`Relay`](crate::relay::Relay) sets. None if there is a single
    /// pair, which is always on.
    pub fn switches(&self) -> Option<&Arc<Switches>> {
        (self.queue_pairs > 1).then_some(&self.switches)
    }

    /// Whether front ends of `node` need a [`Relay`](crate::relay::Relay): those with several pairs do.
    pub fn has_relay(shell: &Shell, node: usize) -> bool {
        Self::queue_pairs_of(shell, node) > 1
    }

    /// A front end has connected.
    pub fn on_connect(&self) {
        self.shell.set_connected(self.node, |connected| connected.ethernet = true);
    }

    /// The connection has ended, with the guest or its QEMU.
    pub fn on_disconnect(&self) {
        let mut locked = self.shell.lock_all();
        locked.common.ethernet.host_reset(self.node);
        let doorbells = locked.common.ethernet.doorbells(self.node);
        if let Some(state) = locked.common.ethernet.states.get_mut(self.node) {
            state.earlier_doorbells = doorbells;
        }
        let old = locked.common.ethernet.functions.get_mut(self.node).map(std::mem::take);
        drop(locked);
        drop(old);
        self.shell.set_connected(self.node, |connected| connected.ethernet = false);
    }

    /// Counts a violation of the protocol by the front end.
    pub fn violation(&self, name: &'static str) {
        if let Some(state) = self.shell.lock_all().common.ethernet.states.get_mut(self.node) {
            violation(&mut state.violations, name);
        }
    }

    fn attach(&self, vrings: &[Vring]) {
        if self.is_attached.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut locked = self.shell.lock_all();
        if self.link.attention().is_ending() {
            // The connection and its queues have ended before this thread got here.
            return;
        }
        let functions = &mut locked.common.ethernet.functions;
        if let Some(function) = functions.get_mut(self.node).filter(|function| function.vrings.is_empty()) {
            function.vrings = vrings.to_vec();
            function.switches = Arc::clone(&self.switches);
        }
    }

    /// Starts a stopped device when all queues of the pairs that are on have started. None if its queues may not be
    /// served yet; otherwise whether it has just started.
    fn start_device(&self, vrings: &[Vring]) -> Option<bool> {
        let mut is_stopped = self.is_stopped.lock();
        if !*is_stopped {
            return Some(false);
        }
        let on = self.switches.on();
        // A driver need not start a pair that it has turned off.
        let awaited = vrings.iter().enumerate().filter(|(queue, _)| on.contains(queue / QUEUES_PER_PAIR));
        let awaited: Vec<Vring> = awaited.map(|(_, vring)| vring.clone()).collect();
        if awaited.is_empty() {
            return None;
        }
        let start = start_of(&awaited)?;
        forget_stop(vrings, start);
        *is_stopped = false;
        let mut locked = self.shell.lock_all();
        if start == Start::New {
            locked.common.ethernet.host_reset(self.node);
        }
        locked.common.ethernet.set_stopped(self.node, false);
        drop(locked);
        // QEMU discards kicks from before the stop that the daemon has not taken.
        self.refill_all();
        Some(true)
    }

    /// Delivers the frames that wait for receive buffers.
    fn refill_all(&self) {
        let mut locked = self.shell.lock_all();
        (0..self.queue_pairs).for_each(|pair| ethernet_function::refill(&mut locked, self.node, pair));
    }

    /// Notes that the guest has queued frames in the transmit queue of this pair.
    fn wants_to_send(&self, pair: usize) {
        let mut sending = self.sending.lock();
        if !sending.contains(&pair) {
            sending.push_back(pair);
        }
    }

    /// Sends queued frames, one lock budget for each pair in rotation. True if frames are left after [`MAX_BUDGETS`]
    /// budgets. This limit does not depend on the number of pairs: a guest that floods many queues gets no more than
    /// with one.
    fn transmit(&self) -> bool {
        for _ in 0..MAX_BUDGETS {
            let Some(pair) = self.sending.lock().pop_front() else { return false };
            let mut locked = self.shell.lock_all();
            let more = ethernet_function::transmit(&mut locked, self.node, pair);
            self.shell.after_activity(&mut locked);
            // Unlocks in favour of the waiting threads: this thread would otherwise get the locks again before they
            // wake up.
            locked.unlock_fair();
            if more {
                self.wants_to_send(pair);
            }
        }
        !self.sending.lock().is_empty()
    }
}

impl VhostUserBackend for EthernetFunction {
    type Bitmap = ();
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        QUEUES_PER_PAIR * self.queue_pairs
    }

    /// One thread serves all queues.
    fn queues_per_thread(&self) -> Vec<u64> {
        vec![u64::MAX]
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE
    }

    /// `VHOST_USER_F_PROTOCOL_FEATURES` only if there are several pairs: QEMU needs it to ask for their number. With
    /// it, QEMU's virtio-net also enables queues before it acknowledges features, which the library takes for a
    /// protocol error. So a [`Relay`](crate::relay::Relay) handles these messages.
    fn features(&self) -> u64 {
        let of_several = 1 << VIRTIO_NET_F_MQ | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | Negotiated::OFFERED
            | if self.queue_pairs > 1 { of_several } else { 0 }
    }

    fn acked_features(&self, features: u64) {
        let is_stopped = self.is_stopped.lock();
        let mut locked = self.shell.lock_all();
        let functions = &locked.common.ethernet.functions;
        // QEMU acknowledges features once for each pair, and earlier pairs receive already.
        let is_running = functions.get(self.node).is_some_and(Function::is_running);
        if !*is_stopped && !is_running {
            locked.common.ethernet.host_reset(self.node);
        }
        if let Some(function) = locked.common.ethernet.functions.get_mut(self.node) {
            function.negotiated = Negotiated::new(features);
        }
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        if self.queue_pairs > 1 { VhostUserProtocolFeatures::MQ } else { VhostUserProtocolFeatures::empty() }
    }

    fn stop_vring(&self, _queue_index: u32) -> io::Result<()> {
        let mut is_stopped = self.is_stopped.lock();
        *is_stopped = true;
        self.shell.lock_all().common.ethernet.set_stopped(self.node, true);
        Ok(())
    }

    /// The library itself sets this at the queues.
    fn set_event_idx(&self, _enabled: bool) {}

    fn update_memory(&self, memory: GuestMemory) -> io::Result<()> {
        // The cluster function's BAR can be among the regions, although another connection mapped it. Its file
        // identifies it.
        let bar = self.shell.lock_all().nodes.card(self.node).and_then(|card| card.host.pages.bar.identity());
        let memory = Arc::new(DmaMemory::guarded(&memory.memory(), bar, self.link.attention())?);
        self.link.set_memory(Arc::clone(&memory));
        let mut locked = self.shell.lock_all();
        let function = locked.common.ethernet.functions.get_mut(self.node);
        let old = function.map(|function| std::mem::replace(&mut function.memory, memory));
        // Unmapping a large mapping takes milliseconds, so the nodes are unlocked first.
        drop(locked);
        drop(old);
        Ok(())
    }

    /// The library would leak a descriptor of the event with each connection. [`Link::begin_turn`] ends the thread
    /// instead.
    fn exit_event(&self, _thread_index: usize) -> Option<(EventConsumer, EventNotifier)> {
        None
    }

    /// Fails only at the end of the connection: an error ends the thread.
    fn handle_event(
        &self,
        device_event: u16,
        _events: EventSet,
        vrings: &[Vring],
        _thread: usize,
    ) -> io::Result<()> {
        let event = usize::from(device_event);
        let is_queue = event < self.num_queues();
        self.link.begin_turn(!is_queue)?;
        self.attach(vrings);
        let Some(is_new) = self.start_device(vrings) else { return Ok(()) };
        let pair = event / QUEUES_PER_PAIR;
        match (is_new, is_queue) {
            (true, _) => (0..self.queue_pairs).for_each(|pair| self.wants_to_send(pair)),
            (false, true) if event == receive_queue(pair) => {
                ethernet_function::refill(&mut self.shell.lock_all(), self.node, pair);
                return Ok(());
            }
            (false, true) => self.wants_to_send(pair),
            (false, false) => {}
        }
        if self.transmit() {
            self.link.attention().wake();
        }
        Ok(())
    }
}
