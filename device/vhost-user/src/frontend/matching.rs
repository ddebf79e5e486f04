//! One open port of a card that works on regions: its regions, and for cards with lists commands and events.

use std::sync::Arc;

use niclab_abi::region::{Extent, OP_REGION_CLOSE, RegionName};
use niclab_port::inic::{self, PostRecord};
use niclab_port::matching::{self, Command, Encoded, Event, EventRecord, Handle};
use niclab_port::slices::Slice;
use niclab_port::{BadValue, Kind, open_region};

use super::{ClusterGuest, FrontendError, GuestPort};

/// An open port of a card with regions. Dropping it leaves the port open, as a crashed program does.
pub struct RegionPort<K> {
    port: GuestPort<K>,
}

/// A port of a card with lists.
pub type ListPort = RegionPort<EventRecord>;
/// A port of a card that posts messages.
pub type PostPort = RegionPort<PostRecord>;
/// A port of a card with channels.
pub type ChannelPort = RegionPort<Slice>;

impl<K: Kind> RegionPort<K> {
    /// Opens any free port with room for `events` events. It releases taken events whenever they are a quarter of the
    /// room.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn open(guest: &Arc<ClusterGuest>, events: u32) -> Result<Self, FrontendError> {
        let mut port = GuestPort::open_for(guest, events)?;
        port.release_by_itself();
        Ok(Self { port })
    }

    /// Opens a port whose user releases events itself.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn open_unreleased(guest: &Arc<ClusterGuest>, events: u32) -> Result<Self, FrontendError> {
        Ok(Self { port: GuestPort::open_for(guest, events)? })
    }

    /// The port as that of any card: pages, numbers, status line.
    pub const fn port(&self) -> &GuestPort<K> {
        &self.port
    }

    /// The same port, to post and release.
    pub const fn port_mut(&mut self) -> &mut GuestPort<K> {
        &mut self.port
    }

    /// Closes the port.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn close(self) -> Result<(), FrontendError> {
        self.port.close()
    }

    /// Registers `bytes` consecutive bytes of the guest's memory, and returns the region's name.
    ///
    /// # Errors
    /// As [`RegionPort::register_extents`].
    pub fn register(&self, address: u64, bytes: u64) -> Result<u32, FrontendError> {
        self.register_extents(&[Extent { address, bytes }])
    }

    /// Registers memory in several pieces, in several requests if needed.
    ///
    /// # Errors
    /// [`FrontendError::Refused`] with the status, or another [`FrontendError`].
    pub fn register_extents(&self, extents: &[Extent]) -> Result<u32, FrontendError> {
        let ask = |operation, body: Vec<u8>| self.port.guest().request(operation, &body);
        let region = open_region(self.port.number(), extents, ask)?;
        region.ok_or(FrontendError::Malformed("a short RegionOpened"))
    }

    /// Deregisters a region.
    ///
    /// # Errors
    /// As [`RegionPort::register_extents`].
    pub fn deregister(&self, region: u32) -> Result<(), FrontendError> {
        let name = RegionName { port: self.port.number(), region, extents: 0, reserved: 0 };
        self.port.guest().command(OP_REGION_CLOSE, &name).map(drop)
    }

    /// Rings the doorbell if the device has enabled it.
    #[inline]
    pub fn announce(&self) {
        self.port.announce();
    }

    /// Posts a command, without a doorbell. None if the page is full, or a value is out of range.
    #[inline]
    pub fn try_launch(&mut self, command: &impl Command<(), BadValue>) -> Option<Handle> {
        let Encoded { words, code } = command.encode(&()).ok()?;
        self.port.try_command(code, &words).map(Handle::from_number)
    }
}

impl ListPort {
    /// Takes the next event, if it has arrived.
    #[inline]
    pub fn try_event(&mut self) -> Option<Event> {
        let (event, is_released) = self.port.with_records(|queue, records| matching::take(queue, records))?;
        if is_released {
            self.port.announce();
        }
        Some(event)
    }
}

impl PostPort {
    /// Takes the next event, if it has arrived.
    #[inline]
    pub fn try_event(&mut self) -> Option<inic::Event> {
        let (event, is_released) = self.port.with_records(|queue, records| inic::take(queue, records))?;
        if is_released {
            self.port.announce();
        }
        Some(event)
    }
}
