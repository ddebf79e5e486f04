//! The cluster function: the vhost-user back end of QEMU's `vhost-user-test-device-pci`.

use crate::shell::service::device;
use crate::shell::service::queues;
use crate::shell::wait;
use std::ffi::CString;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use niclab_abi::bar::REGION;
use niclab_abi::config::CONFIG_BYTES;
use niclab_abi::{QUEUE_CONTROL, QUEUE_EVENT, QUEUE_RECEIVE, QUEUE_SIZE, QUEUE_TRANSMIT, QUEUES, ToBytes};
use niclab_model::nic::DescriptorQueue;
use niclab_spec::daemon::doorbell_thread_name;
use parking_lot::Mutex;
use vhost::vhost_user::Backend;
use vhost::vhost_user::message::{
    VhostUserMMap, VhostUserMMapFlags, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserVirtioFeatures,
};
use vhost_user_backend::VhostUserBackend;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use vm_memory::GuestAddressSpace;
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventNotifier};

use crate::ethernet::steering::Switches;
use crate::link::Link;
use crate::map_request::{MapRequestSlot, MapRequests, News, TIMEOUT};
use crate::memory::DmaMemory;
use crate::ring::Burst;
use crate::shell::Shell;
use crate::shell::card::violation;
use crate::vring::{GuestMemory, Start, Vring, forget_stop, start_of};

/// One connection of the cluster function.
pub struct ClusterFunction {
    shell: Arc<Shell>,
    node: usize,
    link: Arc<Link>,
    map: MapRequests,
    /// The node's card has the queues of this connection.
    is_attached: AtomicBool,
    stop: Mutex<Stop>,
}

/// Whether the front end has stopped the device. A thread takes its lock before the nodes' locks.
#[derive(Debug, Default)]
struct Stop {
    is_stopped: bool,
    /// A guest has read the configuration space since the stop, as a driver does that finds the device: its machine
    /// runs.
    is_config_read: bool,
}

impl ClusterFunction {
    /// The function of `node`, for a future connection; `slot` is the node's.
    pub fn new(shell: &Arc<Shell>, node: usize, link: &Arc<Link>, slot: &Arc<MapRequestSlot>) -> Arc<Self> {
        Arc::new(Self {
            shell: Arc::clone(shell),
            node,
            link: Arc::clone(link),
            map: MapRequests::new(slot, link.attention()),
            is_attached: AtomicBool::new(false),
            stop: Mutex::default(),
        })
    }

    /// A front end has connected.
    pub fn on_connect(&self) {
        self.shell.set_connected(self.node, |connected| connected.cluster = true);
    }

    /// The connection has ended, with the guest or its QEMU.
    pub fn on_disconnect(&self) {
        self.host_reset();
        let old = {
            let mut nodes = self.shell.cluster().lock_one(self.node);
            if let Some(card) = nodes.card_mut(self.node) {
                card.host.earlier_doorbells = card.host.doorbells();
                card.host.vrings.clear();
                card.host.retract();
            }
            nodes.set_memory(self.node, Arc::default())
        };
        drop(old);
        self.shell.set_connected(self.node, |connected| {
            connected.cluster = false;
            connected.bar = false;
        });
    }

    /// No front end needs a relay: QEMU's device for this function acknowledges features first.
    pub const fn has_relay(_shell: &Shell, _node: usize) -> bool {
        false
    }

    /// No switches, because no front end has a relay.
    pub const fn switches(&self) -> Option<&Arc<Switches>> {
        None
    }

    /// Counts a violation of the protocol by the front end.
    pub fn violation(&self, name: &'static str) {
        if let Some(card) = self.shell.cluster().lock_one(self.node).card_mut(self.node) {
            violation(&mut card.host.violations, name);
        }
    }

    /// The driver has reset the device, the guest has rebooted, or it has ended: the device may no longer use its
    /// memory.
    fn host_reset(&self) {
        self.reset_stopped(&mut self.stop.lock());
    }

    /// The front end stops the device, because its machine is stopped or the driver resets it. The card keeps its
    /// state until the next start shows which.
    fn stop_device(&self) {
        let mut stop = self.stop.lock();
        let mut locked = self.shell.lock_all();
        if !device::stop(&mut locked, self.node) {
            drop(locked);
            return self.reset_stopped(&mut stop);
        }
        if let Some(card) = locked.nodes.card_mut(self.node) {
            card.host.want_doorbell(true);
        }
        *stop = Stop { is_stopped: true, is_config_read: false };
        self.shell.after_activity(&mut locked);
    }

    /// Starts a stopped device when all its queues have started. None if its queues may not be served yet; otherwise
    /// whether it has just started.
    fn start_device(&self, vrings: &[Vring]) -> Option<bool> {
        let mut stop = self.stop.lock();
        if !stop.is_stopped {
            return Some(false);
        }
        let start = start_of(vrings)?;
        forget_stop(vrings, start);
        match start {
            Start::Continued { is_at_first } if !(is_at_first && stop.is_config_read) => {
                *stop = Stop::default();
                let mut locked = self.shell.lock_all();
                device::start(&mut locked, self.node);
                self.shell.after_activity(&mut locked);
                self.shell.leave(&locked);
                locked.unlock_fair();
            }
            Start::Continued { .. } | Start::New => {
                self.reset_stopped(&mut stop);
                self.map.want();
            }
        }
        Some(true)
    }

    fn reset_stopped(&self, stop: &mut Stop) {
        *stop = Stop::default();
        let mut locked = self.shell.lock_all();
        device::reset(&mut locked, self.node);
        if let Some(card) = locked.nodes.card_mut(self.node) {
            card.host.want_doorbell(true);
        }
        self.shell.after_activity(&mut locked);
        // Frames for this node may still wait for its guest's pages. The reset does not wait for them, because a card
        // that always has work would delay it forever.
        self.shell.leave(&locked);
        locked.unlock_fair();
    }

    /// Gives the queues to the card, so that threads of other nodes reach this node's.
    fn attach(&self, vrings: &[Vring]) {
        if self.is_attached.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut nodes = self.shell.cluster().lock_one(self.node);
        if self.link.attention().is_ending() {
            // The connection and its queues have ended before this thread got here.
            return;
        }
        if let Some(card) = nodes.card_mut(self.node).filter(|card| card.host.vrings.is_empty()) {
            card.host.vrings = vrings.to_vec();
            self.name_thread();
        }
    }

    /// Names the calling thread, so that the launcher finds it and can place it near the guest.
    fn name_thread(&self) {
        let name = CString::new(doorbell_thread_name(self.node)).unwrap_or_default();
        // Without the name the thread works, but perhaps on another core.
        let _ = nix::sys::prctl::set_name(&name);
    }

    /// Asks the front end to map the BAR, once for each start of the device, after the driver's first request. QEMU
    /// 11.1 crashes if the daemon asks before DRIVER_OK. It answers from its main loop, at some later time.
    fn map_bar(&self, vrings: &[Vring]) {
        if !self.map.is_due() || !self.has_request(vrings) {
            return;
        }
        let file = {
            let nodes = self.shell.cluster().lock_one(self.node);
            nodes
                .card(self.node)
                .map(|card| (card.host.pages.bar.file().try_clone(), card.host.pages.bar.bytes()))
        };
        let Some((file, bytes)) = file else { return };
        let request = VhostUserMMap {
            shmid: REGION as u8,
            len: bytes,
            flags: VhostUserMMapFlags::WRITABLE.bits(),
            ..VhostUserMMap::default()
        };
        if let Err(error) = self.map.ask(request, file) {
            log::error!("node {}: {error}", self.node);
        }
    }

    /// Processes answers to the request to map the BAR.
    fn hear_of_map(&self) {
        for news in self.map.take_news() {
            match news {
                News::Answer(Ok(_)) => {
                    if let Some(card) = self.shell.cluster().lock_one(self.node).card_mut(self.node) {
                        card.host.publish();
                    }
                    self.shell.set_connected(self.node, |connected| connected.bar = true);
                    log::info!(
                        "node {}: the front end has mapped the BAR into the guest's address space",
                        self.node
                    );
                }
                News::Answer(Err(error)) => {
                    log::error!("node {}: the front end did not map the BAR: {error}", self.node);
                }
                News::Late => {
                    self.violation("map_unanswered");
                    log::error!(
                        "node {}: the front end has not answered the request to map the BAR for {} s; the guest's \
                         programs find no card until it does",
                        self.node,
                        TIMEOUT.as_secs()
                    );
                }
            }
        }
    }

    /// Whether the driver has sent a request since it started the device.
    fn has_request(&self, vrings: &[Vring]) -> bool {
        let nodes = self.shell.cluster().lock_one(self.node);
        let (Some(card), Some(vring)) = (nodes.card(self.node), vrings.get(QUEUE_CONTROL as usize)) else {
            return false;
        };
        // This leaves the queue's indices unchanged.
        card.host.state.is_running
            || Burst::open(vring, &card.host.memory)
                .is_ok_and(|mut burst| matches!(burst.available(), Ok(1..)))
    }

    /// Serves a queue; a number above the last queue is that of the attention. True if there may be more work.
    fn serve_queue(&self, queue: u32, vrings: &[Vring]) -> bool {
        match queue {
            QUEUE_CONTROL => {
                self.map_bar(vrings);
                let more = self.serve_control();
                // The first request may have arrived after the first call.
                self.map_bar(vrings);
                more
            }
            QUEUE_EVENT => {
                queues::serve_events(&mut self.shell.lock_all(), self.node);
                false
            }
            QUEUE_TRANSMIT => self.serve_descriptors(DescriptorQueue::Transmit),
            QUEUE_RECEIVE => self.serve_descriptors(DescriptorQueue::Receive),
            _ => {
                self.hear_of_map();
                // An earlier request may have delayed this one.
                self.map_bar(vrings);
                wait::serve_doorbell(&self.shell, self.node).more
            }
        }
    }

    fn serve_descriptors(&self, queue: DescriptorQueue) -> bool {
        let mut locked = self.shell.lock_all();
        let more = queues::serve_descriptors(&mut locked, self.node, queue);
        self.shell.after_activity(&mut locked);
        locked.unlock_fair();
        more
    }

    fn serve_control(&self) -> bool {
        let mut locked = self.shell.lock_all();
        let more = queues::serve_control(&mut locked, self.node);
        self.shell.after_activity(&mut locked);
        // Unlocks in favour of the waiting threads: this thread would otherwise get the locks again before they wake
        // up.
        locked.unlock_fair();
        more
    }
}

impl VhostUserBackend for ClusterFunction {
    type Bitmap = ();
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        QUEUES as usize
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE as usize
    }

    fn features(&self) -> u64 {
        // No event index: each event raises an interrupt, unless the driver suppresses it by the flag.
        1 << VIRTIO_F_VERSION_1 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn acked_features(&self, _features: u64) {
        if self.stop.lock().is_stopped {
            // The start of its queues shows whether the device continues.
            return;
        }
        self.host_reset();
        // QEMU removes the BAR's mapping when the device is reset. So every start needs a new one, after the driver's
        // next request. The reset ensures that order.
        self.map.want();
    }

    /// Not `CONFIGURE_MEM_SLOTS`: with it QEMU 11.1 remembers the BAR as a memory slot. It then crashes when an
    /// unbound driver binds again (`memory_region_get_fd` of an unmapped region). Without it QEMU always sends the
    /// complete table.
    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::BACKEND_SEND_FD
            | VhostUserProtocolFeatures::SHMEM
    }

    fn reset_device(&self) {
        self.host_reset();
    }

    fn set_event_idx(&self, _enabled: bool) {}

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        self.stop.lock().is_config_read = true;
        let mut space = vec![0; CONFIG_BYTES as usize];
        if let Some(info) = self.shell.nodes().get(self.node) {
            info.config.to_bytes(&mut space);
        }
        let end = offset.saturating_add(size) as usize;
        space.get(offset as usize..end).map(<[u8]>::to_vec).unwrap_or_default()
    }

    fn update_memory(&self, memory: GuestMemory) -> io::Result<()> {
        let bar = self
            .shell
            .cluster()
            .lock_one(self.node)
            .card(self.node)
            .and_then(|card| card.host.pages.bar.identity());
        let memory = Arc::new(DmaMemory::guarded(&memory.memory(), bar, self.link.attention())?);
        self.link.set_memory(Arc::clone(&memory));
        let old = self.shell.cluster().lock_one(self.node).set_memory(self.node, memory);
        drop(old);
        Ok(())
    }

    fn set_backend_req_fd(&self, backend: Backend) {
        self.map.set_backend(backend);
    }

    /// The library would leak a descriptor of the event with each connection. [`Link::begin_turn`] ends the thread
    /// instead.
    fn exit_event(&self, _thread_index: usize) -> Option<(EventConsumer, EventNotifier)> {
        None
    }

    fn stop_vring(&self, queue_index: u32) -> io::Result<()> {
        if queue_index == QUEUE_CONTROL {
            self.stop_device();
        }
        Ok(())
    }

    /// Fails only at the end of the connection: an error ends the thread.
    fn handle_event(
        &self,
        device_event: u16,
        _events: EventSet,
        vrings: &[Vring],
        _thread: usize,
    ) -> io::Result<()> {
        let event = u32::from(device_event);
        self.link.begin_turn(event >= QUEUES)?;
        self.attach(vrings);
        let mut again = match self.start_device(vrings) {
            None => return Ok(()),
            // QEMU discards kicks from before the stop that the daemon has not taken, so the daemon checks all
            // queues.
            Some(true) => {
                let mut again = false;
                for event in 0..=QUEUES {
                    again |= self.serve_queue(event, vrings);
                }
                again
            }
            Some(false) => self.serve_queue(event, vrings),
        };
        if !self.link.attention().is_ending() {
            again |= wait::poll(&self.shell, self.node);
        }
        if again {
            self.link.attention().wake();
        }
        Ok(())
    }

    fn get_shmem_config(&self) -> io::Result<VhostUserShMemConfig> {
        let nodes = self.shell.cluster().lock_one(self.node);
        let bytes = nodes.card(self.node).map_or(0, |card| card.host.pages.bar.bytes());
        Ok(VhostUserShMemConfig::new(1, &[bytes]))
    }
}
