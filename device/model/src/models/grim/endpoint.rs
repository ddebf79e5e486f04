//! Where messages go: the receive queue of a port, its payload region, and the memory that others may write.

use alloc::collections::{BTreeSet, VecDeque};
use core::ops::Range;

use niclab_abi::receive::{REFUSED_MEMORY, REFUSED_NO_PAYLOAD};

use crate::models::grim::payload_room::PayloadRoom;
use crate::models::grim::wire::{Fragment, Purpose};
use crate::parts::control::ControlError;
use crate::parts::port::ReceiveQueue;
use crate::parts::regions::{Region, Regions};

/// Payload begins on whole cache lines.
const PAYLOAD_UNIT: u64 = 64;

/// What can be done with a message that begins to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is room.
    Now,
    /// There is none yet.
    Wait,
    /// There never is, for a `REFUSED_` of the ABI.
    Never(u64),
}

/// An endpoint's payload region.
#[derive(Clone, Debug)]
struct PayloadRegion {
    region: u32,
    offset: u64,
    room: PayloadRoom,
}

/// The receiving half of an open port.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) queue: ReceiveQueue,
    payload: Option<PayloadRegion>,
    /// Where the payload of slices is that are not released, the oldest first: how many slices were stored with it.
    pieces: VecDeque<(u64, u64)>,
    exposed: BTreeSet<u32>,
}

impl Endpoint {
    pub(super) const fn new(queue: ReceiveQueue) -> Self {
        Self { queue, payload: None, pieces: VecDeque::new(), exposed: BTreeSet::new() }
    }

    /// Where the payload of messages goes from now on.
    pub(super) fn set_payload(
        &mut self,
        region: u32,
        bytes: Range<u64>,
        regions: &Regions,
    ) -> Result<(), ControlError> {
        let length = bytes.end.saturating_sub(bytes.start);
        let is_right =
            bytes.start.is_multiple_of(PAYLOAD_UNIT) && length.is_multiple_of(PAYLOAD_UNIT) && length > 0;
        let is_inside = regions.get(region).ok_or(ControlError::NotFound)?.holds(bytes.start, length);
        if !is_right || !is_inside {
            return Err(ControlError::BadValue);
        }
        if self.payload.as_ref().is_some_and(|payload| !payload.room.is_empty()) {
            return Err(ControlError::PortBusy);
        }
        self.payload = Some(PayloadRegion { region, offset: bytes.start, room: PayloadRoom::new(length) });
        Ok(())
    }

    /// Lets others write into a region, or not any more.
    pub(super) fn expose(&mut self, region: u32, is_exposed: bool) {
        if is_exposed {
            self.exposed.insert(region);
        } else {
            self.exposed.remove(&region);
        }
    }

    /// A region is closed: nothing is stored into it any more.
    pub(super) fn forget_region(&mut self, region: u32) {
        self.exposed.remove(&region);
    }

    /// What can be done with a message that begins with this fragment.
    pub(super) fn judge(&self, fragment: &Fragment, regions: &Regions) -> Verdict {
        let bytes = u64::from(fragment.bytes);
        if let Purpose::Memory { region, place } = fragment.purpose {
            let is_there = self.memory(region, regions).is_some_and(|region| region.holds(place, bytes));
            return if is_there { Verdict::Now } else { Verdict::Never(REFUSED_MEMORY) };
        }
        let has_room = match &self.payload {
            _ if bytes == 0 => true,
            Some(PayloadRegion { region, room, .. })
                if room.can_hold(bytes) && regions.get(*region).is_some() =>
            {
                room.has_room(bytes)
            }
            _ => return Verdict::Never(REFUSED_NO_PAYLOAD),
        };
        if has_room && self.queue.has_room(1) { Verdict::Now } else { Verdict::Wait }
    }

    /// A region that others may write.
    pub(super) fn memory<'a>(&self, region: u32, regions: &'a Regions) -> Option<&'a Region> {
        regions.get(region).filter(|_| self.exposed.contains(&region))
    }

    /// Takes room for payload. Where it begins in the payload region.
    pub(super) fn take_room(&mut self, bytes: u64) -> Option<u64> {
        self.payload.as_mut()?.room.take(bytes)
    }

    /// Room is not needed: the message was given up.
    pub(super) fn give_room_back(&mut self, place: u64) {
        if let Some(payload) = &mut self.payload {
            payload.room.give_back(place);
        }
    }

    /// The region of the payload, and where in it `place` of the payload region is.
    pub(super) fn payload_place<'a>(&self, place: u64, regions: &'a Regions) -> Option<(&'a Region, u64)> {
        let payload = self.payload.as_ref()?;
        Some((regions.get(payload.region)?, payload.offset + place))
    }

    /// The slice stored last has this room, which comes back with it.
    pub(super) fn keep_room(&mut self, place: u64) {
        self.pieces.push_back((self.queue.stored(), place));
    }

    /// The program has released slices: so many are released now.
    pub(super) fn on_released(&mut self, released: u64) {
        while let Some(&(_, place)) = self.pieces.front().filter(|(stored, _)| *stored <= released) {
            self.pieces.pop_front();
            self.give_room_back(place);
        }
    }
}
