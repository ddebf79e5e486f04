//! The Ethernet function: the vhost-user back end of a standard virtio-net device.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::MutexGuard;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::attention::Attention;
use crate::connection::{Event, Function};
use crate::ethernet::{Negotiated, QUEUE_RECEIVE};
use crate::map_request::MapChannel;
use crate::memory::{DmaMemory, FileIdentity};
use crate::shell::Shell;
use crate::shell::card::violation;
use crate::vring::Vring;

/// Most descriptors of a queue: QEMU's limit for vhost-user.
const QUEUE_SIZE: u16 = 1024;

/// Turns of sending before the thread looks at the receive queue.
const TURNS: usize = 8;

/// One connection of the Ethernet function.
pub struct EthernetFunction {
    shell: Arc<Shell>,
    node: usize,
    attention: Arc<Attention>,
}

impl EthernetFunction {
    /// Sends what the guest has queued. True when there is more than a fair share of it.
    fn transmit(&self) -> bool {
        (0..TURNS).all(|_| {
            let mut world = self.shell.world();
            let more = world.transmit(self.node);
            self.shell.did(&mut world);
            // To whoever waits for it: this thread would take it again before the other one has woken up.
            MutexGuard::unlock_fair(world);
            more
        })
    }
}

impl Function for EthernetFunction {
    const NAME: &'static str = "Ethernet function";
    const QUEUES: usize = 2;
    const QUEUE_SIZE: u16 = QUEUE_SIZE;

    fn new(shell: &Arc<Shell>, node: usize, attention: &Arc<Attention>) -> Self {
        Self { shell: Arc::clone(shell), node, attention: Arc::clone(attention) }
    }

    fn thread_name(node: usize) -> String {
        format!("ethernet-{node}")
    }

    fn on_connect(&self, vrings: &[Vring]) {
        if let Some(function) = self.shell.world().ethernet.functions.get_mut(self.node) {
            function.vrings = vrings.to_vec();
        }
        self.shell.set_connected(self.node, |connected| connected.ethernet = true);
    }

    fn on_disconnect(&self) {
        let mut world = self.shell.world();
        world.ethernet.host_reset(self.node);
        let doorbells = world.ethernet.doorbells(self.node);
        if let Some(state) = world.ethernet.states.get_mut(self.node) {
            state.earlier_doorbells = doorbells;
        }
        let old = world.ethernet.functions.get_mut(self.node).map(std::mem::take);
        drop(world);
        drop(old);
        self.shell.set_connected(self.node, |connected| connected.ethernet = false);
    }

    fn violation(&self, name: &'static str) {
        if let Some(state) = self.shell.world().ethernet.states.get_mut(self.node) {
            violation(&mut state.violations, name);
        }
    }

    /// Not `VHOST_USER_F_PROTOCOL_FEATURES`: with it QEMU's virtio-net enables a queue before it acknowledges any feature,
    /// which the `vhost` crate takes for a protocol error. The function needs nothing that would have to be agreed on.
    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | Negotiated::OFFERED
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::empty()
    }

    fn acked_features(&self, features: u64) {
        let mut world = self.shell.world();
        world.ethernet.host_reset(self.node);
        if let Some(function) = world.ethernet.functions.get_mut(self.node) {
            function.negotiated = Negotiated::new(features);
        }
    }

    /// Neither offered nor asked for: the driver's next features say that it starts anew.
    fn reset_device(&self) {}

    fn stop_queue(&self, _queue: u32) {}

    fn configuration(&self) -> Vec<u8> {
        Vec::new()
    }

    fn shared_memory_bytes(&self) -> u64 {
        0
    }

    /// The cluster function's BAR can be among the regions, by another way than its own connection.
    fn bar(&self) -> Option<FileIdentity> {
        self.shell.world().cards.get(self.node).and_then(|card| card.pages.identity())
    }

    fn set_memory(&self, memory: Arc<DmaMemory>) {
        let mut world = self.shell.world();
        let function = world.ethernet.functions.get_mut(self.node);
        let old = function.map(|function| std::mem::replace(&mut function.memory, memory));
        // Taking a large mapping apart takes milliseconds, which others need not wait for.
        drop(world);
        drop(old);
    }

    /// Nothing is ever asked of the front end: it cannot give a channel for that, which is not offered.
    fn set_channel(&self, _channel: MapChannel) -> Option<MapChannel> {
        None
    }

    fn handle(&self, event: Event) {
        match event {
            Event::Queue(QUEUE_RECEIVE) => self.shell.world().ethernet.refill(self.node),
            Event::Queue(_) | Event::Woken => {
                if self.transmit() {
                    self.attention.wake();
                }
            }
            Event::Channel | Event::Deadline => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}
