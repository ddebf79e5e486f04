//! Control requests: decoded once, checked, and carried out.

use alloc::vec::Vec;

use niclab_abi::control::{
    OP_PING, OP_PORT_CLOSE, OP_PORT_OPEN, OP_RESET, OP_STATISTICS, PORT_ANY, PortName, PortOpen, PortOpened,
    Reply, Request, STATUS_BAD_ADDRESS, STATUS_BAD_LENGTH, STATUS_BAD_OPERATION, STATUS_BAD_PORT,
    STATUS_BAD_VALUE, STATUS_NO_SPACE, STATUS_NOT_FOUND, STATUS_OK, STATUS_PORT_BUSY,
};
use niclab_abi::matching::{
    Extent, FirmwareLoad, FirmwareLoaded, MAX_EXTENTS, OP_FIRMWARE_LOAD, OP_MATCH_STATISTICS,
    OP_REGION_CLOSE, OP_REGION_EXTEND, OP_REGION_OPEN, OP_SPILL_OPEN, RegionName, RegionOpen, RegionOpened,
    STATUS_FIRMWARE_CHECKSUM, STATUS_FIRMWARE_IMAGE, STATUS_FIRMWARE_SIZE, STATUS_FIRMWARE_VERSION,
    STATUS_FIRMWARE_WORD, SpillOpen,
};
use niclab_abi::receive::{MIN_SLICES, SLICE_BYTES};
use niclab_abi::{FromBytes, PAGE_BYTES, ToBytes};
use niclab_isa::image::{self, ImageError};
use thiserror::Error;

use crate::matching::config::PORTS;
use crate::matching::engine::ENTRY_BYTES;
use crate::matching::nic::{Match, Read};
use crate::matching::port::Port;
use crate::matching::program;
use crate::matching::regions::RegionError;
use crate::nic::{FrameBytes, HostRange, HostRanges, Output, ReplyBytes};
use crate::time::Time;

/// Where the check sequence stands in an image.
const CHECK_SEQUENCE: core::ops::Range<usize> = 16..20;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum ControlError {
    #[error("the operation is not known")]
    BadOperation,
    #[error("the request is not as long as its operation's")]
    BadLength,
    #[error("the port does not exist or is not open")]
    BadPort,
    #[error("the port is open already, or there is a spill area already")]
    PortBusy,
    #[error("the memory is not aligned, is not the guest's, or runs past the end of the address space")]
    BadAddress,
    #[error("a value is out of its range")]
    BadValue,
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error(transparent)]
    Firmware(#[from] ImageError),
}

impl ControlError {
    const fn status(self) -> u32 {
        match self {
            Self::BadOperation => STATUS_BAD_OPERATION,
            Self::BadLength => STATUS_BAD_LENGTH,
            Self::BadPort => STATUS_BAD_PORT,
            Self::PortBusy => STATUS_PORT_BUSY,
            Self::BadAddress | Self::Region(RegionError::BadAddress) => STATUS_BAD_ADDRESS,
            Self::BadValue | Self::Region(RegionError::BadValue) => STATUS_BAD_VALUE,
            Self::Region(RegionError::NoSpace) => STATUS_NO_SPACE,
            Self::Region(RegionError::NotFound) => STATUS_NOT_FOUND,
            Self::Firmware(error) => match error {
                ImageError::Truncated { .. }
                | ImageError::Excess { .. }
                | ImageError::Magic
                | ImageError::Reserved { .. } => STATUS_FIRMWARE_IMAGE,
                ImageError::Version { .. } => STATUS_FIRMWARE_VERSION,
                ImageError::Check { .. } => STATUS_FIRMWARE_CHECKSUM,
                ImageError::Words { .. } => STATUS_FIRMWARE_SIZE,
                ImageError::Word { .. } | ImageError::Target { .. } => STATUS_FIRMWARE_WORD,
            },
        }
    }
}

/// A request whose length is right.
enum Operation {
    Ping,
    PortOpen(PortOpen),
    PortClose(PortName),
    Statistics,
    Reset,
    RegionOpen(RegionOpen, Vec<Extent>),
    RegionExtend(RegionName, Vec<Extent>),
    RegionClose(RegionName),
    FirmwareLoad(FirmwareLoad),
    SpillOpen(SpillOpen),
    MatchStatistics,
}

impl Operation {
    fn decode(request: &[u8]) -> Result<Self, ControlError> {
        let head = Request::from_bytes(request).ok_or(ControlError::BadLength)?;
        let body = request.get(Request::BYTES..).unwrap_or_default();
        if usize::try_from(head.body_bytes) != Ok(body.len()) {
            return Err(ControlError::BadLength);
        }
        match head.operation {
            OP_PING => empty(body, Self::Ping),
            OP_PORT_OPEN => whole(body).map(Self::PortOpen),
            OP_PORT_CLOSE => whole(body).map(Self::PortClose),
            OP_STATISTICS => empty(body, Self::Statistics),
            OP_RESET => empty(body, Self::Reset),
            OP_REGION_OPEN => with_extents(body, |open: &RegionOpen| open.extents)
                .map(|(open, extents)| Self::RegionOpen(open, extents)),
            OP_REGION_EXTEND => with_extents(body, |name: &RegionName| name.extents)
                .map(|(name, extents)| Self::RegionExtend(name, extents)),
            OP_REGION_CLOSE => whole(body).map(Self::RegionClose),
            OP_FIRMWARE_LOAD => whole(body).map(Self::FirmwareLoad),
            OP_SPILL_OPEN => whole(body).map(Self::SpillOpen),
            OP_MATCH_STATISTICS => empty(body, Self::MatchStatistics),
            _ => Err(ControlError::BadOperation),
        }
    }
}

fn whole<T: FromBytes>(body: &[u8]) -> Result<T, ControlError> {
    T::from_bytes(body).filter(|_| body.len() == T::BYTES).ok_or(ControlError::BadLength)
}

fn empty(body: &[u8], operation: Operation) -> Result<Operation, ControlError> {
    if body.is_empty() { Ok(operation) } else { Err(ControlError::BadLength) }
}

/// A body that as many extents follow as it says.
fn with_extents<T: FromBytes>(
    body: &[u8],
    count: impl Fn(&T) -> u32,
) -> Result<(T, Vec<Extent>), ControlError> {
    let head = T::from_bytes(body).ok_or(ControlError::BadLength)?;
    let rest = body.get(T::BYTES..).unwrap_or_default();
    let extents = count(&head);
    if extents > MAX_EXTENTS {
        return Err(ControlError::BadValue);
    }
    if rest.len() != extents as usize * Extent::BYTES {
        return Err(ControlError::BadLength);
    }
    Ok((head, rest.chunks_exact(Extent::BYTES).filter_map(Extent::from_bytes).collect()))
}

/// The memory of a port: its event queue, and the page of status line and counters.
fn memory_of(open: &PortOpen) -> [HostRange; 2] {
    [
        HostRange { address: open.slices_address, bytes: u64::from(open.slices).saturating_mul(SLICE_BYTES) },
        HostRange { address: open.status_address, bytes: PAGE_BYTES },
    ]
}

/// The host memory that a request would let the card touch.
pub(super) fn memory_named_by(request: &[u8]) -> HostRanges {
    match Operation::decode(request) {
        Ok(Operation::PortOpen(open)) => memory_of(&open).into_iter().collect(),
        Ok(Operation::RegionOpen(_, extents) | Operation::RegionExtend(_, extents)) => {
            let range = |extent: &Extent| HostRange { address: extent.address, bytes: extent.bytes };
            extents.iter().map(range).collect()
        }
        Ok(Operation::FirmwareLoad(load)) if load.bytes > 0 => {
            [HostRange { address: load.address, bytes: load.bytes.into() }].into_iter().collect()
        }
        Ok(Operation::SpillOpen(open)) => {
            [HostRange { address: open.address, bytes: open.bytes }].into_iter().collect()
        }
        _ => HostRanges::new(),
    }
}

impl Match {
    /// Carries a request out, or refuses it, and queues the reply. Control requests belong to no message and have no
    /// price, but for what they make the card read.
    pub(super) fn on_control(&mut self, now: Time, token: u64, request: &[u8]) {
        // Nothing that was decided before the answer is seen after it.
        let mut at = now;
        match Operation::decode(request).and_then(|operation| self.perform(&mut at, token, operation)) {
            Ok(Some(bytes)) => self.effects.outputs.push_back(Output::Reply { at, token, bytes }),
            // Answered when what it needs is read.
            Ok(None) => {}
            Err(error) => self.refuse_control(at, token, error),
        }
    }

    fn refuse_control(&mut self, at: Time, token: u64, error: ControlError) {
        self.effects.counters.control_refused += 1;
        let bytes = reply(error.status(), None::<&Reply>);
        self.effects.outputs.push_back(Output::Reply { at, token, bytes });
    }

    fn perform(
        &mut self,
        now: &mut Time,
        token: u64,
        operation: Operation,
    ) -> Result<Option<ReplyBytes>, ControlError> {
        match operation {
            Operation::Ping => {}
            Operation::PortOpen(open) => return self.open_port(&open).map(answer),
            Operation::PortClose(PortName { port, reserved: 0 }) => {
                let port = self.open_index(port)?;
                *now = (*now).max(self.close_port(*now, port));
            }
            Operation::Statistics => {
                return Ok(answer(self.effects.counters.statistics(&self.shell_counts)));
            }
            Operation::Reset => {
                for port in 0..PORTS {
                    *now = (*now).max(self.close_port(*now, port));
                }
                self.engine.close_spill();
            }
            Operation::RegionOpen(RegionOpen { port, bytes, reserved: 0, .. }, extents) => {
                let port = self.open_index(port)?;
                let region = self.regions[port].open(bytes, &extents)?;
                return Ok(answer(RegionOpened { region, reserved: 0 }));
            }
            Operation::RegionExtend(RegionName { port, region, reserved: 0, .. }, extents) => {
                let port = self.open_index(port)?;
                self.regions[port].extend(region, &extents)?;
            }
            Operation::RegionClose(RegionName { port, region, extents: 0, reserved: 0 }) => {
                let port = self.open_index(port)?;
                *now = (*now).max(self.close_region(*now, port, region)?);
            }
            Operation::FirmwareLoad(load) => return self.load_firmware(now, token, &load),
            Operation::SpillOpen(open) => self.open_spill(&open)?,
            Operation::MatchStatistics => return Ok(answer(self.match_statistics())),
            Operation::PortClose(_)
            | Operation::RegionOpen(..)
            | Operation::RegionExtend(..)
            | Operation::RegionClose(_) => return Err(ControlError::BadValue),
        }
        Ok(Some(reply(STATUS_OK, None::<&Reply>)))
    }

    fn open_port(&mut self, open: &PortOpen) -> Result<PortOpened, ControlError> {
        let is_aligned =
            open.slices_address.is_multiple_of(8) && open.status_address.is_multiple_of(PAGE_BYTES);
        let is_inside = memory_of(open).iter().all(|range| range.address.checked_add(range.bytes).is_some());
        if !is_aligned || !is_inside {
            return Err(ControlError::BadAddress);
        }
        let is_queue =
            open.slices.is_power_of_two() && (MIN_SLICES..=self.config.max_events).contains(&open.slices);
        if !is_queue || open.fifo_words != 0 || open.reserved != 0 {
            return Err(ControlError::BadValue);
        }
        let port = if open.port == PORT_ANY {
            self.ports.iter().position(Option::is_none).ok_or(ControlError::PortBusy)?
        } else {
            port_index(open.port).ok_or(ControlError::BadPort)?
        };
        if self.ports[port].is_some() {
            return Err(ControlError::PortBusy);
        }
        self.ports[port] = Some(Port::new(port, open).into());
        Ok(PortOpened { port: port as u32, reserved: 0 })
    }

    fn open_spill(&mut self, open: &SpillOpen) -> Result<(), ControlError> {
        let is_inside = open.address.checked_add(open.bytes).is_some();
        if !open.address.is_multiple_of(ENTRY_BYTES) || !is_inside {
            return Err(ControlError::BadAddress);
        }
        if open.bytes == 0 || !open.bytes.is_multiple_of(ENTRY_BYTES) {
            return Err(ControlError::BadValue);
        }
        if self.engine.open_spill(open.address, open.bytes) { Ok(()) } else { Err(ControlError::PortBusy) }
    }

    fn load_firmware(
        &mut self,
        now: &mut Time,
        token: u64,
        load: &FirmwareLoad,
    ) -> Result<Option<ReplyBytes>, ControlError> {
        if load.reserved != 0 {
            return Err(ControlError::BadValue);
        }
        if load.bytes == 0 {
            self.engine.load(None)?;
            *now = (*now).max(self.effects.match_unit_idle());
            return Ok(Some(loaded(program::PORTALS)));
        }
        let most = image::HEADER_BYTES + self.config.control_store_words as usize * image::WORD_BYTES;
        let bytes = load.bytes as usize;
        if bytes > most {
            let found = bytes / image::WORD_BYTES;
            return Err(ImageError::Words { found, most: self.config.control_store_words as usize }.into());
        }
        let range = HostRange { address: load.address, bytes: load.bytes.into() };
        if range.address.checked_add(range.bytes).is_none() {
            return Err(ControlError::BadAddress);
        }
        let read = self.next_token();
        self.effects.dma_read(*now, read, [range].into_iter().collect(), FrameBytes::new());
        self.reads.push_back((read, Read::Firmware(token)));
        Ok(None)
    }

    /// A firmware image is read: it is taken, or refused and changes nothing.
    pub(super) fn on_firmware(&mut self, now: Time, token: u64, bytes: &[u8], is_whole: bool) {
        let taken = if is_whole { self.take_firmware(bytes) } else { Err(ControlError::BadAddress) };
        if let Err(error) = taken {
            self.refuse_control(now, token, error);
            return;
        }
        // What arrived before is matched by then.
        let at = now.max(self.effects.match_unit_idle());
        self.effects.outputs.push_back(Output::Reply { at, token, bytes: loaded(bytes) });
    }

    fn take_firmware(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        // A word of the program, of 24 bytes, takes about 200 ns to check and to take apart.
        self.effects.spent += bytes.len() as u64;
        let program = image::read(bytes, self.config.control_store_words as usize)?;
        Ok(self.engine.load(Some(&program))?)
    }

    fn open_index(&self, port: u32) -> Result<usize, ControlError> {
        port_index(port).filter(|&port| self.ports[port].is_some()).ok_or(ControlError::BadPort)
    }
}

fn port_index(port: u32) -> Option<usize> {
    usize::try_from(port).ok().filter(|&port| port < PORTS)
}

/// The answer that says which image is loaded.
fn loaded(image: &[u8]) -> ReplyBytes {
    let words = image.len().saturating_sub(image::HEADER_BYTES) / image::WORD_BYTES;
    let checksum = image.get(CHECK_SEQUENCE).and_then(|bytes| bytes.try_into().ok());
    let body = FirmwareLoaded { words: words as u32, checksum: checksum.map_or(0, u32::from_le_bytes) };
    reply(STATUS_OK, Some(&body))
}

fn answer(body: impl ToBytes) -> Option<ReplyBytes> {
    Some(reply(STATUS_OK, Some(&body)))
}

fn reply(status: u32, body: Option<&impl ToBytes>) -> ReplyBytes {
    let body_bytes = body.map_or(0, bytes_of);
    let mut bytes = ReplyBytes::from_elem(0, Reply::BYTES + body_bytes);
    let (head, rest) = bytes.split_at_mut(Reply::BYTES);
    Reply { status, body_bytes: body_bytes as u32 }.to_bytes(head);
    if let Some(body) = body {
        body.to_bytes(rest);
    }
    bytes
}

const fn bytes_of<T: FromBytes>(_: &T) -> usize {
    T::BYTES
}
