//! What one front end and the device have agreed on: features, memory, queues.
//!
//! The `vhost` crate reads messages and writes answers; this does what they ask for, and refuses what breaks the protocol.
//! An error ends the connection: whoever wrote such a message knows no better what comes next. Rules: vhost-user
//! specification, as in QEMU 11.1.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use thiserror::Error;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Backend, Error as ProtocolError, GpuBackend, Result, VhostUserBackendReqHandlerMut as RequestHandler,
};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use crate::attention::Attention;
use crate::connection::{CHANNEL, Function};
use crate::map_request::MapChannel;
use crate::memory::table::{TableEntry, TableError};
use crate::memory::{DmaMemory, MemoryError};
use crate::notification::{Call, EventError, Kick};
use crate::vring::{QueueError, Vring};

/// What a front end did that it must not.
#[derive(Debug, Error)]
pub enum SessionError {
    /// It may take a part of what is offered, and no more.
    #[error("it accepted the features {0:#x}, which were not offered")]
    Features(u64),
    /// The same, of the protocol's own.
    #[error("it accepted the protocol features {0:#x}, which were not offered")]
    ProtocolFeatures(u64),
    /// There are so many and no more.
    #[error("it named queue {0}, which does not exist")]
    Queue(u32),
    /// A ring's address is in none of the regions.
    #[error("a ring of queue {queue} at its own address {address:#x} is in no region of its memory table")]
    Ring {
        /// The queue.
        queue: u32,
        /// In the front end's address space.
        address: u64,
    },
    /// A ring is in the table, and not in the memory.
    #[error("the used ring of queue {queue} is not in memory: {error}")]
    UsedRing {
        /// The queue.
        queue: u32,
        /// Why.
        #[source]
        error: MemoryError,
    },
    /// A queue that cannot be.
    #[error("queue {queue}: {error}")]
    Setup {
        /// The queue.
        queue: u32,
        /// Why.
        #[source]
        error: QueueError,
    },
    /// A descriptor that is no event.
    #[error("queue {queue}: {error}")]
    Event {
        /// The queue.
        queue: u8,
        /// Why.
        #[source]
        error: EventError,
    },
    /// The memory table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The operating system refused something.
    #[error("{step}: {error}")]
    System {
        /// What was tried.
        step: &'static str,
        /// Why.
        #[source]
        error: io::Error,
    },
}

impl From<SessionError> for ProtocolError {
    fn from(error: SessionError) -> Self {
        Self::ReqHandlerError(io::Error::other(error))
    }
}

/// Where a region of the guest's memory is in the front end's address space.
#[derive(Clone, Copy, Debug)]
struct Place {
    theirs: u64,
    bytes: u64,
    guest: u64,
}

/// The device's side of one connection.
pub struct Session<F> {
    function: Arc<F>,
    vrings: Vec<Vring>,
    epoll: Arc<Epoll>,
    attention: Arc<Attention>,
    is_owned: bool,
    features: u64,
    protocol_features: u64,
    places: Vec<Place>,
    memory: Arc<DmaMemory>,
    /// Which queues' kicks are watched.
    watched: Vec<bool>,
    /// The channel whose message comes next.
    pub channel: Option<UnixStream>,
}

impl<F: Function> Session<F> {
    /// The session of a connection that has just been made. `epoll` watches its kicks, by the numbers of their queues.
    pub fn new(function: Arc<F>, vrings: Vec<Vring>, epoll: Arc<Epoll>, attention: Arc<Attention>) -> Self {
        let watched = vec![false; vrings.len()];
        Self {
            function,
            vrings,
            epoll,
            attention,
            is_owned: false,
            features: 0,
            protocol_features: 0,
            places: Vec::new(),
            memory: Arc::default(),
            watched,
            channel: None,
        }
    }

    fn queue(&self, index: u32) -> std::result::Result<&Vring, SessionError> {
        self.vrings.get(index as usize).ok_or(SessionError::Queue(index))
    }

    fn has_protocol_features(&self) -> bool {
        self.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0
    }

    /// Watches a queue's kick while the queue is started and enabled, and not otherwise. By edges: an event that is never
    /// emptied, or cannot be, calls once for each ring and no more.
    fn follow(&mut self, index: usize) -> std::result::Result<(), SessionError> {
        let (Some(vring), Some(is_watched)) = (self.vrings.get(index), self.watched.get_mut(index)) else {
            return Ok(());
        };
        let state = vring.lock();
        let is_wanted = state.is_ready && state.is_enabled;
        let Some(kick) = &state.kick else { return Ok(()) };
        if is_wanted && !*is_watched {
            let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, index as u64);
            self.epoll
                .add(kick, event)
                .map_err(|errno| SessionError::System { step: "watching a kick", error: errno.into() })?;
            // What the driver left before it could ring.
            self.attention.look_at(index);
        } else if !is_wanted && *is_watched {
            // Fails when it is not watched, which is what is wanted.
            let _ = self.epoll.delete(kick);
        }
        *is_watched = is_wanted;
        Ok(())
    }

    /// Puts another kick in the place of the one that a queue has, which is no longer watched: the front end keeps its end,
    /// and one that was signalled just then would call for ever.
    fn replace_kick(&mut self, index: usize, kick: Option<Kick>) -> std::result::Result<(), SessionError> {
        let (Some(vring), Some(is_watched)) = (self.vrings.get(index), self.watched.get_mut(index)) else {
            return Ok(());
        };
        let mut state = vring.lock();
        if let Some(old) = state.kick.take().filter(|_| std::mem::take(is_watched)) {
            // Fails when it is not watched, which is what is wanted.
            let _ = self.epoll.delete(&old);
        }
        state.kick = kick;
        // A queue is started when it gets its kick.
        if state.kick.is_some() {
            state.is_ready = true;
        }
        drop(state);
        self.follow(index)
    }

    fn enable(&mut self, index: usize, is_enabled: bool) -> std::result::Result<(), SessionError> {
        if let Some(vring) = self.vrings.get(index) {
            vring.lock().is_enabled = is_enabled;
        }
        self.follow(index)
    }

    /// Where the guest sees what is at `address` in the front end's address space.
    fn guest_address(&self, queue: u32, address: u64) -> std::result::Result<u64, SessionError> {
        let place = self.places.iter().find(|place| address.wrapping_sub(place.theirs) < place.bytes);
        let place = place.ok_or(SessionError::Ring { queue, address })?;
        Ok(address - place.theirs + place.guest)
    }

    /// What the driver has seen of a queue's used ring, from its own index: for a queue that goes on.
    fn used_index(&self, queue: u32, used: u64) -> std::result::Result<u16, SessionError> {
        let head = self.memory.atomics::<std::sync::atomic::AtomicU16>(used, 2);
        let head = head.map_err(|error| SessionError::UsedRing { queue, error })?;
        Ok(head.get(1).map_or(0, |index| u16::from_le(index.load(std::sync::atomic::Ordering::Relaxed))))
    }
}

/// What the device does not offer, and the crate asks for all the same.
fn not_offered<T>(what: &'static str) -> Result<T> {
    Err(ProtocolError::InvalidOperation(what))
}

impl<F: Function> RequestHandler for Session<F> {
    fn set_owner(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_owned, true) {
            return Err(ProtocolError::InvalidOperation("already claimed"));
        }
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.is_owned = false;
        self.features = 0;
        self.protocol_features = 0;
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        for index in 0..self.vrings.len() {
            self.enable(index, false)?;
        }
        self.features = 0;
        self.function.reset_device();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.function.features())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !self.function.features();
        if unknown != 0 {
            return Err(SessionError::Features(unknown).into());
        }
        self.features = features;
        if !self.has_protocol_features() {
            // "The back-end must enable all rings immediately" (vhost-user specification, "Ring states").
            for index in 0..self.vrings.len() {
                self.enable(index, true)?;
            }
        }
        let has_event_idx = features & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        self.vrings.iter().for_each(|vring| vring.lock().has_event_idx = has_event_idx);
        self.function.acked_features(features);
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let place = |region: &VhostUserMemoryRegion| Place {
            theirs: region.user_addr,
            bytes: region.memory_size,
            guest: region.guest_phys_addr,
        };
        let places = regions.iter().map(place).collect();
        let entry = |(region, file): (&VhostUserMemoryRegion, File)| TableEntry {
            start: region.guest_phys_addr,
            bytes: region.memory_size,
            offset: region.mmap_offset,
            file,
        };
        let table = regions.iter().zip(files).map(entry).collect();
        let bar = self.function.bar();
        let memory = DmaMemory::map(table, bar, &self.attention).map_err(SessionError::from)?;
        (self.memory, self.places) = (Arc::new(memory), places);
        self.function.set_memory(Arc::clone(&self.memory));
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let set = self.queue(index)?.set_size(size);
        Ok(set.map_err(|error| SessionError::Setup { queue: index, error })?)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        table: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let vring = self.queue(index)?;
        let table = self.guest_address(index, table)?;
        let available = self.guest_address(index, available)?;
        let used = self.guest_address(index, used)?;
        let set = vring.set_addresses(table, available, used);
        set.map_err(|error| SessionError::Setup { queue: index, error })?;
        let next_used = self.used_index(index, used)?;
        vring.lock().next_used = next_used;
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.queue(index)?.lock().next_available = base as u16;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.queue(index)?.lock().is_ready = false;
        self.follow(index as usize)?;
        self.function.stop_queue(index);
        self.replace_kick(index as usize, None)?;
        let mut state = self.queue(index)?.lock();
        state.call = None;
        Ok(VhostUserVringState::new(index, state.next_available.into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.queue(index.into())?;
        let kick = file.map(Kick::new).transpose();
        let kick = kick.map_err(|error| SessionError::Event { queue: index, error })?;
        Ok(self.replace_kick(index.into(), kick)?)
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let call = file.map(Call::new).transpose();
        let call = call.map_err(|error| SessionError::Event { queue: index, error })?;
        self.queue(index.into())?.lock().call = call;
        Ok(())
    }

    /// Nobody is called by it: what goes wrong is counted, and shown by the monitor.
    fn set_vring_err(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        self.queue(index.into()).map(drop).map_err(ProtocolError::from)
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(self.function.protocol_features())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let may_have_any = self.function.features() & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0;
        // The crate offers to acknowledge whatever the function offers.
        let offered = (self.function.protocol_features() | VhostUserProtocolFeatures::REPLY_ACK).bits();
        let unknown = features & if may_have_any { !offered } else { u64::MAX };
        if unknown != 0 {
            return Err(SessionError::ProtocolFeatures(unknown).into());
        }
        self.protocol_features = features;
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.vrings.len() as u64)
    }

    fn set_vring_enable(&mut self, index: u32, is_enabled: bool) -> Result<()> {
        self.queue(index)?;
        Ok(self.enable(index as usize, is_enabled)?)
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let space = self.function.configuration();
        let end = offset.saturating_add(size) as usize;
        // An empty answer is an error to the front end.
        Ok(space.get(offset as usize..end).map(<[u8]>::to_vec).unwrap_or_default())
    }

    fn set_config(&mut self, _offset: u32, _bytes: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        not_offered("the configuration space is not to be written")
    }

    fn set_backend_req_fd(&mut self, _backend: Backend) {
        let has = |feature: VhostUserProtocolFeatures| self.protocol_features & feature.bits() != 0;
        let is_answered = has(VhostUserProtocolFeatures::REPLY_ACK);
        let may_map = has(VhostUserProtocolFeatures::SHMEM);
        let Some(stream) = self.channel.take().filter(|_| may_map) else {
            return log::warn!("the {}'s front end gave a channel by which nothing can be mapped", F::NAME);
        };
        let channel = MapChannel::new(stream, is_answered);
        // By edges: what nobody asked for is not read.
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, CHANNEL);
        if let Err(errno) = self.epoll.add(&channel, event) {
            return log::warn!("the {}'s channel cannot be watched: {errno}", F::NAME);
        }
        if let Some(old) = self.function.set_channel(channel) {
            // Fails when it is not watched, which is what is wanted.
            let _ = self.epoll.delete(&old);
        }
    }

    fn set_gpu_socket(&mut self, _backend: GpuBackend) -> Result<()> {
        not_offered("not a graphics card")
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        not_offered("no shared objects")
    }

    fn get_inflight_fd(&mut self, _inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        not_offered("no descriptors in flight")
    }

    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        not_offered("no descriptors in flight")
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        not_offered("memory comes as a whole table")
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        not_offered("memory comes as a whole table")
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        not_offered("memory comes as a whole table")
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        not_offered("the device's state cannot be moved")
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_offered("the device's state cannot be moved")
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Ok(VhostUserShMemConfig::new(1, &[self.function.shared_memory_bytes()]))
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        not_offered("what is written is not logged")
    }
}
