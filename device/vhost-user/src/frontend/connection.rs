//! A vhost-user connection, and the channel on which the daemon asks for its BAR to be mapped.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::{Condvar, Mutex};
use vhost::vhost_user::message::{
    VhostUserHeaderFlag, VhostUserMMap, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{
    Frontend, FrontendReqHandler, HandlerResult, VhostUserFrontend, VhostUserFrontendReqHandler,
};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use vm_memory::mmap::MmapRegion;
use vm_memory::{AtomicInteger, FileOffset};
use vmm_sys_util::eventfd::EventFd;

use super::{DriverRing, FrontendError, GuestMemory};

/// A BAR as this front end has mapped it.
#[derive(Debug)]
pub struct MappedBar {
    region: MmapRegion,
}

impl MappedBar {
    /// All words of the BAR.
    pub fn words(&self) -> &[AtomicU64] {
        atomics(&self.region)
    }

    /// The words of one page. Empty if the page does not exist.
    pub fn page(&self, page: u32) -> &[AtomicU64] {
        let words = niclab_abi::PAGE_BYTES as usize / 8;
        self.words().get(page as usize * words..(page as usize + 1) * words).unwrap_or_default()
    }

    /// The words of these pages. Empty if one of them does not exist.
    pub fn pages(&self, pages: Range<u32>) -> &[AtomicU64] {
        let words = niclab_abi::PAGE_BYTES as usize / 8;
        self.words().get(pages.start as usize * words..pages.end as usize * words).unwrap_or_default()
    }

    /// The BAR as QEMU lists it for the daemon: one more region of the guest's memory, at `address`.
    pub fn region(&self, address: u64) -> Option<VhostUserMemoryRegionInfo> {
        Some(VhostUserMemoryRegionInfo {
            guest_phys_addr: address,
            memory_size: self.region.size() as u64,
            userspace_addr: self.region.as_ptr() as u64,
            mmap_offset: 0,
            mmap_handle: self.region.file_offset()?.file().as_raw_fd(),
        })
    }
}

fn atomics<T: AtomicInteger>(region: &MmapRegion) -> &[T] {
    // SAFETY: the mapping is `size()` readable and writable bytes, aligned to a page, and lives as long as `region`,
    // from which the slice borrows; every bit pattern is a valid atomic integer, and the daemon too accesses it by
    // atomics.
    unsafe { std::slice::from_raw_parts(region.as_ptr().cast::<T>(), region.size() / size_of::<T>()) }
}

/// The mapping that the daemon has asked this front end for.
#[derive(Debug, Default)]
struct Mapper {
    bar: Mutex<Option<Arc<MappedBar>>>,
    mapped: Condvar,
}

impl VhostUserFrontendReqHandler for Mapper {
    fn shmem_map(&self, request: &VhostUserMMap, descriptor: &dyn AsRawFd) -> HandlerResult<u64> {
        // SAFETY: the library holds the descriptor open until this function returns.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor.as_raw_fd()) };
        let file = File::from(borrowed.try_clone_to_owned()?);
        let (offset, bytes) = (request.fd_offset, request.len);
        let mut bar = self.bar.lock();
        if bar.is_some() {
            // As in QEMU, a range can be mapped only once.
            return Err(std::io::Error::from_raw_os_error(libc::EEXIST));
        }
        let region = MmapRegion::from_file(FileOffset::new(file, offset), bytes as usize);
        *bar = Some(Arc::new(MappedBar { region: region.map_err(std::io::Error::other)? }));
        self.mapped.notify_all();
        Ok(0)
    }
}

/// Accepts the protocol features that this front end knows, if the function has any.
fn agree_on_protocol(
    frontend: &mut Frontend,
    features: u64,
) -> Result<VhostUserProtocolFeatures, FrontendError> {
    if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
        return Ok(VhostUserProtocolFeatures::empty());
    }
    let offered = frontend.get_protocol_features().map_err(at("GET_PROTOCOL_FEATURES"))?;
    let known = VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::BACKEND_REQ
        | VhostUserProtocolFeatures::SHMEM;
    frontend.set_protocol_features(offered & known).map_err(at("SET_PROTOCOL_FEATURES"))?;
    Ok(offered & known)
}

/// A started queue, with all values that start it again.
struct StartedQueue {
    index: usize,
    config: VringConfigData,
    kick: EventFd,
    call: EventFd,
    /// The reply of GET_VRING_BASE.
    base: u32,
    /// Whether the driver uses the queue.
    is_enabled: bool,
}

/// One vhost-user connection. To the daemon, dropping it looks like a killed QEMU.
pub struct Connection {
    frontend: Frontend,
    mapper: Arc<Mapper>,
    features: u64,
    queues: u64,
    stream: UnixStream,
    started: Vec<StartedQueue>,
    backend_channel: Option<BackendChannel>,
}

/// The channel for the daemon's requests to the front end, and the thread that answers.
struct BackendChannel {
    stream: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Drop for BackendChannel {
    fn drop(&mut self) {
        // The library's handler holds both ends of the channel, so the daemon's hang-up alone never ends its thread.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // The thread ends now. A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Connection {
    /// Connects to `socket`, accepts those of the `wanted` features that the function offers, and sends the guest's
    /// memory table.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn new(socket: &Path, queues: u64, wanted: u64, memory: &GuestMemory) -> Result<Self, FrontendError> {
        let system = |step| move |error| FrontendError::System { step, error };
        let stream = UnixStream::connect(socket).map_err(system("connecting to the daemon"))?;
        let keep = stream.try_clone().map_err(system("keeping the connection"))?;
        let mut frontend = Frontend::from_stream(stream, queues);
        frontend.set_owner().map_err(at("SET_OWNER"))?;
        let offered = frontend.get_features().map_err(at("GET_FEATURES"))?;
        let transport = 1 << VIRTIO_F_VERSION_1 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        let features = offered & (wanted | transport);
        let protocol = agree_on_protocol(&mut frontend, features)?;
        if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            // The daemon acknowledges every message: when a call returns, the daemon has done it.
            frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        }
        let mut this = Self {
            frontend,
            mapper: Arc::default(),
            features,
            queues,
            stream: keep,
            started: Vec::new(),
            backend_channel: None,
        };
        if protocol.contains(VhostUserProtocolFeatures::BACKEND_REQ) {
            this.backend_channel = Some(this.serve_backend()?);
        }
        this.frontend.set_features(features).map_err(at("SET_FEATURES"))?;
        this.set_memory(&memory.regions()?)?;
        Ok(this)
    }

    /// Answers the daemon's requests until the result is dropped.
    fn serve_backend(&mut self) -> Result<BackendChannel, FrontendError> {
        let system = |step| move |error| FrontendError::System { step, error };
        let failed = |error| at("SET_BACKEND_REQ_FD")(vhost::Error::VhostUserProtocol(error));
        let mut handler = FrontendReqHandler::new(Arc::clone(&self.mapper)).map_err(failed)?;
        handler.set_reply_ack_flag(true);
        let sender = handler.get_tx_raw_fd();
        self.frontend.set_backend_request_fd(&sender).map_err(at("SET_BACKEND_REQ_FD"))?;
        // SAFETY: `handler` owns the descriptor and lives until the thread takes it, below.
        let receiver = unsafe { BorrowedFd::borrow_raw(handler.as_raw_fd()) };
        let stream = receiver.try_clone_to_owned().map_err(system("keeping the backend channel"))?.into();
        let serve = move || {
            while let Ok(_) | Err(vhost::vhost_user::Error::ReqHandlerError(_)) = handler.handle_request() {}
        };
        let thread = std::thread::Builder::new().name("backend-channel".to_owned()).spawn(serve);
        Ok(BackendChannel { stream, thread: Some(thread.map_err(system("starting a thread"))?) })
    }

    /// Sends the daemon another memory table.
    ///
    /// # Errors
    /// [`FrontendError::VhostUser`].
    pub fn set_memory(&mut self, regions: &[VhostUserMemoryRegionInfo]) -> Result<(), FrontendError> {
        self.frontend.set_mem_table(regions).map(drop).map_err(at("SET_MEM_TABLE"))
    }

    /// The agreed features.
    pub const fn features(&self) -> u64 {
        self.features
    }

    /// Starts queue `index` on `ring`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn start_queue(
        &mut self,
        index: usize,
        ring: &DriverRing,
        memory: &GuestMemory,
    ) -> Result<(), FrontendError> {
        let [table, available, used] = ring.addresses();
        let config = VringConfigData {
            queue_max_size: ring.size(),
            queue_size: ring.size(),
            flags: 0,
            desc_table_addr: memory.host_address(table)?,
            used_ring_addr: memory.host_address(used)?,
            avail_ring_addr: memory.host_address(available)?,
            log_addr: None,
        };
        let shared = |event: &EventFd| {
            event.try_clone().map_err(|error| FrontendError::System { step: "sharing an event", error })
        };
        let (kick, call) = (shared(&ring.kick)?, shared(&ring.call)?);
        let queue = StartedQueue { index, config, kick, call, base: 0, is_enabled: true };
        self.start(&queue)?;
        self.started.retain(|started| started.index != index);
        self.started.push(queue);
        self.enable(index, true)
    }

    fn start(&mut self, queue: &StartedQueue) -> Result<(), FrontendError> {
        let StartedQueue { index, config, kick, call, base, .. } = queue;
        self.frontend.set_vring_num(*index, config.queue_size).map_err(at("SET_VRING_NUM"))?;
        self.frontend.set_vring_base(*index, *base as u16).map_err(at("SET_VRING_BASE"))?;
        self.frontend.set_vring_addr(*index, config).map_err(at("SET_VRING_ADDR"))?;
        self.frontend.set_vring_call(*index, call).map_err(at("SET_VRING_CALL"))?;
        self.frontend.set_vring_kick(*index, kick).map_err(at("SET_VRING_KICK"))
    }

    /// Enables or disables a queue. Without protocol features a queue is enabled when it starts.
    fn enable(&mut self, index: usize, is_enabled: bool) -> Result<(), FrontendError> {
        if self.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            return Ok(());
        }
        self.frontend.set_vring_enable(index, is_enabled).map_err(at("SET_VRING_ENABLE"))
    }

    /// Enables or disables a queue as the driver asks. A disabled queue stays disabled when the machine continues.
    ///
    /// # Errors
    /// [`FrontendError::VhostUser`] without protocol features.
    pub fn enable_queue(&mut self, index: usize, is_enabled: bool) -> Result<(), FrontendError> {
        let mut started = self.started.iter_mut();
        if let Some(queue) = started.find(|queue| queue.index == index) {
            queue.is_enabled = is_enabled;
        }
        self.enable(index, is_enabled)
    }

    /// The number of queues that the function reports.
    ///
    /// # Errors
    /// [`FrontendError::VhostUser`] if the function does not support the request.
    pub fn queue_count(&mut self) -> Result<u64, FrontendError> {
        self.frontend.get_queue_num().map_err(at("GET_QUEUE_NUM"))
    }

    /// Sends what QEMU 11.1 sends when its machine stops, and also when a driver resets the device: it disables all
    /// queues, then stops them. Kicks that the daemon has not taken by then are lost.
    ///
    /// # Errors
    /// [`FrontendError::VhostUser`].
    pub fn stop_machine(&mut self) -> Result<(), FrontendError> {
        let mut started = std::mem::take(&mut self.started);
        started.iter().try_for_each(|queue| self.enable(queue.index, false))?;
        for queue in &mut started {
            queue.base = self.stop_queue(queue.index)?;
            let _ = queue.kick.read();
        }
        self.started = started;
        Ok(())
    }

    /// Sends what QEMU 11.1 sends when a stopped machine continues: features, the memory table with the BAR in it,
    /// and each enabled queue at the position at which it stopped.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn continue_machine(&mut self, memory: &GuestMemory) -> Result<(), FrontendError> {
        /// The address at which QEMU puts the BAR of a guest of 256 MiB.
        const BAR_ADDRESS: u64 = 0xfca0_0000;
        self.frontend.set_features(self.features).map_err(at("SET_FEATURES"))?;
        let mut regions = memory.regions()?;
        let bar = self.mapper.bar.lock().clone();
        regions.extend(bar.as_ref().and_then(|bar| bar.region(BAR_ADDRESS)));
        self.set_memory(&regions)?;
        let started = std::mem::take(&mut self.started);
        let enabled = || started.iter().filter(|queue| queue.is_enabled);
        enabled().try_for_each(|queue| self.start(queue))?;
        enabled().try_for_each(|queue| self.enable(queue.index, true))?;
        self.started = started;
        Ok(())
    }

    /// Stops queue `index`, as QEMU does when the driver resets the device.
    ///
    /// # Errors
    /// [`FrontendError::VhostUser`].
    pub fn stop_queue(&mut self, index: usize) -> Result<u32, FrontendError> {
        self.frontend.get_vring_base(index).map_err(at("GET_VRING_BASE"))
    }

    /// Reads `bytes` of the configuration space.
    ///
    /// # Errors
    /// [`FrontendError::VhostUser`].
    pub fn config(&mut self, bytes: u32) -> Result<Vec<u8>, FrontendError> {
        let flags = vhost::vhost_user::message::VhostUserConfigFlags::empty();
        let empty = vec![0; bytes as usize];
        self.frontend
            .get_config(0, bytes, flags, &empty)
            .map(|(_, payload)| payload)
            .map_err(at("GET_CONFIG"))
    }

    /// Bytes of each shared-memory region.
    ///
    /// # Errors
    /// [`FrontendError::VhostUser`].
    pub fn shared_memory(&mut self) -> Result<Vec<u64>, FrontendError> {
        let config = self.frontend.get_shmem_config().map_err(at("GET_SHMEM_CONFIG"))?;
        Ok(config.memory_sizes.iter().take(config.nregions as usize).copied().collect())
    }

    /// Waits until the daemon has had its BAR mapped.
    ///
    /// # Errors
    /// [`FrontendError::TimedOut`].
    pub fn wait_for_bar(&self, timeout: Duration) -> Result<Arc<MappedBar>, FrontendError> {
        let mut bar = self.mapper.bar.lock();
        self.mapper.mapped.wait_while_for(&mut bar, |bar| bar.is_none(), timeout);
        bar.clone().ok_or(FrontendError::TimedOut {
            what: "ask for its BAR to be mapped",
            wall_ms: timeout.as_millis() as u64,
        })
    }

    /// Number of queues of the connection.
    pub const fn queues(&self) -> u64 {
        self.queues
    }

    /// Whether the daemon has not hung up, which the system always reports.
    pub fn is_open(&self) -> bool {
        let mut socket = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        poll(&mut socket, PollTimeout::ZERO) == Ok(0)
    }

    /// The socket, for tests that write nonsense into it.
    pub const fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // `stream` shares the socket with the library's end, so closing only one of them would not hang up.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// The error of the vhost-user message `step`.
fn at(step: &'static str) -> impl Fn(vhost::Error) -> FrontendError {
    move |error| FrontendError::VhostUser { step, error }
}
