//! The cluster function: the vhost-user back end behind QEMU's `vhost-user-test-device-pci`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use niclab_abi::bar::REGION;
use niclab_abi::config::CONFIG_BYTES;
use niclab_abi::{QUEUE_CONTROL, QUEUE_EVENT, QUEUE_SIZE, QUEUES, ToBytes};
use niclab_spec::daemon::doorbell_thread_name;
use parking_lot::{Mutex, MutexGuard};
use vhost::vhost_user::message::{
    VhostUserMMap, VhostUserMMapFlags, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;

use crate::attention::Attention;
use crate::connection::{Event, Function};
use crate::map_request::{MapChannel, MapError};
use crate::memory::{DmaMemory, FileIdentity};
use crate::ring::Burst;
use crate::shell::card::violation;
use crate::shell::world::World;
use crate::shell::{Shell, in_turns};
use crate::vring::Vring;

/// How long a front end may take to map the BAR before that is reported. Its queues go on meanwhile.
const MAP_PATIENCE: Duration = Duration::from_secs(5);

/// How far the mapping of the BAR has got, which each start of the device needs anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapping {
    /// Not asked for.
    Wanted,
    /// Asked for; reported when there is no answer by then.
    Asked(Instant),
    /// Nothing more to do: it stands, or cannot, or there was no answer for long, which may still come.
    Settled,
}

/// The mapping of the BAR, and the channel over which it is asked for.
struct Map {
    channel: Option<MapChannel>,
    mapping: Mapping,
}

/// One connection of the cluster function.
pub struct ClusterFunction {
    shell: Arc<Shell>,
    node: usize,
    attention: Arc<Attention>,
    map: Mutex<Map>,
}

impl ClusterFunction {
    /// The driver has reset the device, or the guest has rebooted, or is gone: its memory is not ours any more.
    fn host_reset(&self) {
        let mut world = self.shell.world();
        world.host_reset(self.node);
        if let Some(card) = world.cards.get_mut(self.node) {
            card.want_doorbell(true);
        }
        // What came for this node from others may wait for no page of theirs.
        in_turns(&mut world, World::go_on);
        self.shell.did(&mut world);
    }

    /// Has the BAR mapped, once for each start of the device, as soon as the driver has sent its first request. QEMU 11.1 crashes
    /// when it is asked before the driver said DRIVER_OK.
    fn map_bar(&self) {
        if self.map.lock().mapping != Mapping::Wanted || !self.has_request() {
            return;
        }
        let mut map = self.map.lock();
        map.mapping = Mapping::Settled;
        let Some(channel) = &mut map.channel else {
            return log::error!(
                "node {}: the front end gave no channel to ask for the BAR's mapping",
                self.node
            );
        };
        let file = {
            let world = self.shell.world();
            world.cards.get(self.node).map(|card| (card.pages.file().try_clone(), card.pages.bytes()))
        };
        let Some((Ok(file), bytes)) = file else {
            return log::error!("node {}: no file descriptor left to share the BAR", self.node);
        };
        let request = VhostUserMMap {
            shmid: REGION as u8,
            len: bytes,
            flags: VhostUserMMapFlags::WRITABLE.bits(),
            ..VhostUserMMap::default()
        };
        match channel.ask(&request, &file) {
            Ok(true) => map.mapping = Mapping::Asked(Instant::now() + MAP_PATIENCE),
            Ok(false) => {
                drop(map);
                self.on_mapped();
            }
            Err(error) => self.on_not_mapped(&error),
        }
    }

    /// Something came over the channel.
    fn take_map_answer(&self) {
        let mut map = self.map.lock();
        let Some(channel) = &mut map.channel else { return };
        match channel.take_answer() {
            Ok(false) => {}
            // A reset of the device, which takes the mapping away, may have come first.
            Ok(true) if map.mapping == Mapping::Wanted => {}
            Ok(true) => {
                map.mapping = Mapping::Settled;
                drop(map);
                self.on_mapped();
            }
            Err(error) => {
                map.mapping = Mapping::Settled;
                self.on_not_mapped(&error);
            }
        }
    }

    fn on_mapped(&self) {
        if let Some(card) = self.shell.world().cards.get(self.node) {
            card.pages.publish();
        }
        self.shell.set_connected(self.node, |connected| connected.bar = true);
        log::info!("node {}: the BAR stands in the guest's address space", self.node);
    }

    fn on_not_mapped(&self, error: &MapError) {
        log::error!("node {}: the front end did not map the BAR: {error}", self.node);
    }

    fn on_deadline(&self) {
        let mut map = self.map.lock();
        if let Mapping::Asked(deadline) = map.mapping
            && deadline <= Instant::now()
        {
            map.mapping = Mapping::Settled;
            drop(map);
            self.violation("map_unanswered");
            log::error!(
                "node {}: the front end has not answered the request to map the BAR for {} s; its programs find no \
                 card until it does",
                self.node,
                MAP_PATIENCE.as_secs()
            );
        }
    }

    /// Whether the driver has sent a request since it started the device.
    fn has_request(&self) -> bool {
        let world = self.shell.world();
        let Some(card) = world.cards.get(self.node) else { return false };
        let Some(vring) = card.vrings.get(QUEUE_CONTROL as usize) else { return false };
        // Peeked at, not taken: the indices go back as they were.
        card.is_running
            || Burst::open(vring, &card.memory).is_ok_and(|mut burst| matches!(burst.available(), Ok(1..)))
    }

    fn serve_control(&self) -> bool {
        let mut world = self.shell.world();
        let more = world.serve_control(self.node);
        self.shell.did(&mut world);
        // To whoever waits for it: this thread would take it again before the other one has woken up.
        MutexGuard::unlock_fair(world);
        more
    }
}

impl Function for ClusterFunction {
    const NAME: &'static str = "cluster function";
    const QUEUES: usize = QUEUES as usize;
    const QUEUE_SIZE: u16 = QUEUE_SIZE as u16;

    fn new(shell: &Arc<Shell>, node: usize, attention: &Arc<Attention>) -> Self {
        Self {
            shell: Arc::clone(shell),
            node,
            attention: Arc::clone(attention),
            map: Mutex::new(Map { channel: None, mapping: Mapping::Wanted }),
        }
    }

    /// By which the launcher finds it, and can keep it beside the guest.
    fn thread_name(node: usize) -> String {
        doorbell_thread_name(node)
    }

    fn on_connect(&self, vrings: &[Vring]) {
        if let Some(card) = self.shell.world().cards.get_mut(self.node) {
            card.vrings = vrings.to_vec();
        }
        self.shell.set_connected(self.node, |connected| connected.cluster = true);
    }

    fn on_disconnect(&self) {
        self.host_reset();
        let mut world = self.shell.world();
        if let Some(card) = world.cards.get_mut(self.node) {
            card.earlier_doorbells = card.doorbells();
            card.vrings.clear();
            card.pages.retract();
        }
        let old = world.set_memory(self.node, Arc::default());
        drop(world);
        drop(old);
        self.shell.set_connected(self.node, |connected| {
            connected.cluster = false;
            connected.bar = false;
        });
    }

    fn violation(&self, name: &'static str) {
        if let Some(card) = self.shell.world().cards.get_mut(self.node) {
            violation(&mut card.counts.violations, name);
        }
    }

    fn features(&self) -> u64 {
        // No event index: one event, one interrupt, unless the driver says otherwise by the flag.
        1 << VIRTIO_F_VERSION_1 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    /// Not `CONFIGURE_MEM_SLOTS`: with it QEMU 11.1 remembers the BAR as a memory slot, and crashes when a driver that was
    /// unbound binds again (`memory_region_get_fd` of a region that is no longer mapped). Without it the whole table is
    /// sent each time.
    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::BACKEND_SEND_FD
            | VhostUserProtocolFeatures::SHMEM
    }

    fn acked_features(&self, _features: u64) {
        self.host_reset();
        // QEMU takes the BAR's mapping away with a reset of the device: every start needs a new one, and that not before the
        // driver's next request, which the reset has made sure of.
        self.map.lock().mapping = Mapping::Wanted;
    }

    fn reset_device(&self) {
        self.host_reset();
    }

    fn stop_queue(&self, queue: u32) {
        if queue == QUEUE_CONTROL {
            self.host_reset();
        }
    }

    fn configuration(&self) -> Vec<u8> {
        let mut space = vec![0; CONFIG_BYTES as usize];
        if let Some(info) = self.shell.nodes().get(self.node) {
            info.config.to_bytes(&mut space);
        }
        space
    }

    fn shared_memory_bytes(&self) -> u64 {
        self.shell.world().cards.get(self.node).map_or(0, |card| card.pages.bytes())
    }

    fn bar(&self) -> Option<FileIdentity> {
        self.shell.world().cards.get(self.node).and_then(|card| card.pages.identity())
    }

    fn set_memory(&self, memory: Arc<DmaMemory>) {
        let old = self.shell.world().set_memory(self.node, memory);
        drop(old);
    }

    fn set_channel(&self, channel: MapChannel) -> Option<MapChannel> {
        self.map.lock().channel.replace(channel)
    }

    fn handle(&self, event: Event) {
        let mut again = match event {
            Event::Queue(queue) if queue == QUEUE_CONTROL as usize => {
                self.map_bar();
                let more = self.serve_control();
                // The first request may have come between the two.
                self.map_bar();
                more
            }
            Event::Queue(queue) if queue == QUEUE_EVENT as usize => {
                self.shell.world().serve_events(self.node);
                false
            }
            Event::Queue(_) | Event::Woken => self.shell.serve_doorbell(self.node).more,
            Event::Channel => {
                self.take_map_answer();
                false
            }
            Event::Deadline => {
                self.on_deadline();
                false
            }
        };
        if !self.attention.is_ending() {
            again |= self.shell.poll(self.node);
        }
        if again {
            self.attention.wake();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.map.lock().mapping {
            Mapping::Asked(deadline) => Some(deadline),
            Mapping::Wanted | Mapping::Settled => None,
        }
    }
}
