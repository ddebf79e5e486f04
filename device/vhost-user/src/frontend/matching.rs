//! One open port of a Match card: commands, events, regions.

use std::sync::Arc;

use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};
use niclab_abi::lists::{
    ANY_NODE, ANY_PORT, AppendCommand, COMMAND_APPEND, COMMAND_GET, COMMAND_PUT, COMMAND_UNLINK, ListEvent,
    THRESHOLD_INFINITE, TransferCommand, UnlinkCommand,
};
use niclab_abi::region::{
    Extent, OP_REGION_CLOSE, OP_REGION_EXTEND, OP_REGION_OPEN, RegionName, RegionOpen, RegionOpened,
};
use niclab_abi::{FromBytes, ToBytes, from_words, to_words};
use niclab_port::lists::EventRecord;

use super::{ClusterGuest, FrontendError, GuestPort};

/// Extents that one request carries.
const EXTENTS_PER_REQUEST: usize = niclab_abi::region::MAX_EXTENTS as usize;

/// Words of a command.
type Words = [u64; PAYLOAD_WORDS + TAG_WORDS];

/// Where a put or a get goes, and which memory of the initiator it is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Node.
    pub node: u16,
    /// Port of the node.
    pub port: u8,
    /// Portal of the port.
    pub portal: u8,
    /// Match bits.
    pub match_bits: u64,
    /// Region of the initiator.
    pub region: u32,
    /// Offset in the region.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Offset at the target, where entries let the initiator say it.
    pub remote_offset: u64,
    /// For the receiver, with its event.
    pub header_data: u64,
    /// For the initiator, with its events.
    pub user: u64,
    /// `COMMAND_` flags.
    pub flags: u32,
}

/// A match entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Match bits.
    pub match_bits: u64,
    /// Those that are not compared.
    pub ignore_bits: u64,
    /// Portal.
    pub portal: u8,
    /// Node and port from which messages are taken.
    pub source: (u64, u64),
    /// Region of the memory.
    pub region: u32,
    /// Offset in the region.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Operations after which it is unlinked.
    pub threshold: u64,
    /// With its events.
    pub user: u64,
    /// `ENTRY_` and `COMMAND_` flags.
    pub flags: u32,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            match_bits: 0,
            ignore_bits: 0,
            portal: 0,
            source: (ANY_NODE, ANY_PORT),
            region: 0,
            offset: 0,
            bytes: 0,
            threshold: THRESHOLD_INFINITE,
            user: 0,
            flags: 0,
        }
    }
}

/// An open port of a Match card. Dropping it does not close it, as a crashed program would not.
pub struct MatchPort {
    port: GuestPort<EventRecord>,
}

impl MatchPort {
    /// Opens any free port with room for `events` events.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn open(guest: &Arc<ClusterGuest>, events: u32) -> Result<Self, FrontendError> {
        let port = GuestPort::open_for(guest, events)?;
        port.promise_lazy_release();
        Ok(Self { port })
    }

    /// Opens one whose reader says itself when it releases events.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn open_unreleased(guest: &Arc<ClusterGuest>, events: u32) -> Result<Self, FrontendError> {
        Ok(Self { port: GuestPort::open_for(guest, events)? })
    }

    /// The port as that of any card: pages, numbers, status line.
    pub const fn port(&self) -> &GuestPort<EventRecord> {
        &self.port
    }

    /// The same, to launch and release.
    pub const fn port_mut(&mut self) -> &mut GuestPort<EventRecord> {
        &mut self.port
    }

    /// Closes the port.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn close(self) -> Result<(), FrontendError> {
        self.port.close()
    }

    /// Registers `bytes` of the guest's memory, in one piece, and returns the region's name.
    ///
    /// # Errors
    /// As [`MatchPort::register_extents`].
    pub fn register(&self, address: u64, bytes: u64) -> Result<u32, FrontendError> {
        self.register_extents(&[Extent { address, bytes }])
    }

    /// Registers memory that lies in pieces, in as many requests as it takes.
    ///
    /// # Errors
    /// [`FrontendError::Refused`] with the status, or another [`FrontendError`].
    pub fn register_extents(&self, extents: &[Extent]) -> Result<u32, FrontendError> {
        let bytes = extents.iter().fold(0, |sum: u64, extent| sum.wrapping_add(extent.bytes));
        let (first, rest) = extents.split_at(extents.len().min(EXTENTS_PER_REQUEST));
        let open = RegionOpen { port: self.port.number(), extents: first.len() as u32, bytes, reserved: 0 };
        let opened = self.port.guest().request(OP_REGION_OPEN, &with_extents(&open, first))?;
        let opened = RegionOpened::from_bytes(&opened);
        let region = opened.ok_or(FrontendError::Malformed("a short RegionOpened"))?.region;
        for more in rest.chunks(EXTENTS_PER_REQUEST) {
            let name = RegionName { extents: more.len() as u32, ..self.name(region) };
            self.port.guest().request(OP_REGION_EXTEND, &with_extents(&name, more))?;
        }
        Ok(region)
    }

    /// Takes the registration back.
    ///
    /// # Errors
    /// As [`MatchPort::register_extents`].
    pub fn deregister(&self, region: u32) -> Result<(), FrontendError> {
        self.port.guest().command(OP_REGION_CLOSE, &self.name(region)).map(drop)
    }

    const fn name(&self, region: u32) -> RegionName {
        RegionName { port: self.port.number(), region, extents: 0, reserved: 0 }
    }

    /// Launches a put, without a doorbell. None when the page is full.
    #[inline]
    pub fn try_put(&mut self, target: &Target) -> Option<u32> {
        self.port.try_command(COMMAND_PUT | target.flags, &target.words())
    }

    /// Launches a get.
    #[inline]
    pub fn try_get(&mut self, target: &Target) -> Option<u32> {
        self.port.try_command(COMMAND_GET | target.flags, &target.words())
    }

    /// Launches the append of an entry, and returns its handle.
    #[inline]
    pub fn try_append(&mut self, entry: &Entry) -> Option<u32> {
        self.port.try_command(COMMAND_APPEND | entry.flags, &entry.words())
    }

    /// Launches the unlinking of an entry.
    #[inline]
    pub fn try_unlink(&mut self, handle: u32) -> Option<u32> {
        self.port.try_command(COMMAND_UNLINK, &to_words(&UnlinkCommand { handle, ..Default::default() }))
    }

    /// Takes the next event, if it is there. What was taken is released once a quarter of the queue came together.
    #[inline]
    pub fn try_event(&mut self) -> Option<ListEvent> {
        let words = self.port.try_words()?;
        if self.port.release_lazily() {
            self.port.announce();
        }
        from_words(&words)
    }

    /// Rings the doorbell if the device wants one.
    #[inline]
    pub fn announce(&self) {
        self.port.announce();
    }
}

impl Target {
    fn words(&self) -> Words {
        let Self { node, port, portal, match_bits, region, offset, bytes, remote_offset, .. } = *self;
        let Self { header_data, user, .. } = *self;
        to_words(&TransferCommand {
            match_bits,
            header_data,
            user,
            region,
            portal,
            port,
            node,
            offset,
            bytes,
            remote_offset,
            ..TransferCommand::default()
        })
    }
}

impl Entry {
    fn words(&self) -> Words {
        let Self { match_bits, ignore_bits, portal, source: (node, port), region, offset, bytes, .. } = *self;
        let Self { threshold, user, .. } = *self;
        to_words(&AppendCommand {
            match_bits,
            ignore_bits,
            user,
            region,
            portal,
            port: port as u8,
            node: node as u16,
            offset,
            bytes,
            threshold,
            ..AppendCommand::default()
        })
    }
}

fn with_extents<T: ToBytes>(head: &T, extents: &[Extent]) -> Vec<u8> {
    let mut bytes = vec![0; T::BYTES + extents.len() * Extent::BYTES];
    let (place, rest) = bytes.split_at_mut(T::BYTES);
    head.to_bytes(place);
    for (place, extent) in rest.chunks_exact_mut(Extent::BYTES).zip(extents) {
        extent.to_bytes(place);
    }
    bytes
}
