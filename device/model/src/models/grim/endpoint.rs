//! An endpoint receives messages: a port's receive queue, its payload region, and memory that other nodes may write.

use alloc::collections::{BTreeSet, VecDeque};
use core::ops::Range;

use niclab_abi::receive::{REFUSED_MEMORY, REFUSED_NO_PAYLOAD};

use crate::models::grim::payload_room::PayloadRoom;
use crate::models::grim::wire::{Fragment, Purpose};
use crate::parts::control::ControlError;
use crate::parts::port::ReceiveQueue;
use crate::parts::regions::{Region, Regions};

/// Payload begins at multiples of a cache line. Ours: a cache line.
const PAYLOAD_UNIT: u64 = 64;

/// Whether an endpoint can take a message whose first fragment has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The endpoint has room.
    Now,
    /// The endpoint has no room yet.
    Wait,
    /// The endpoint never takes it, for a `REFUSED_` reason of the ABI.
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
    /// Payload pieces of unreleased slices, the oldest first: number of slices stored up to this one, and start of the
    /// piece.
    pieces: VecDeque<(u64, u64)>,
    exposed: BTreeSet<u32>,
}

impl Endpoint {
    pub(super) const fn new(queue: ReceiveQueue) -> Self {
        Self { queue, payload: None, pieces: VecDeque::new(), exposed: BTreeSet::new() }
    }

    /// Sets the payload region for later messages.
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

    /// Exposes a region to writes of other nodes, or ends that.
    pub(super) fn expose(&mut self, region: u32, is_exposed: bool) {
        if is_exposed {
            self.exposed.insert(region);
        } else {
            self.exposed.remove(&region);
        }
    }

    /// A closed region receives no more data.
    pub(super) fn forget_region(&mut self, region: u32) {
        self.exposed.remove(&region);
    }

    /// Whether the endpoint can take a message that begins with this fragment.
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

    /// The region of this name, if other nodes may write it.
    pub(super) fn memory<'a>(&self, region: u32, regions: &'a Regions) -> Option<&'a Region> {
        regions.get(region).filter(|_| self.exposed.contains(&region))
    }

    /// Allocates room for payload. Returns its start in the payload region.
    pub(super) fn take_room(&mut self, bytes: u64) -> Option<u64> {
        self.payload.as_mut()?.room.take(bytes)
    }

    /// Frees the room of an abandoned message.
    pub(super) fn give_room_back(&mut self, place: u64) {
        if let Some(payload) = &mut self.payload {
            payload.room.give_back(place);
        }
    }

    /// The region that contains the payload region, and the offset in it of the payload region's offset `place`.
    pub(super) fn payload_place<'a>(&self, place: u64, regions: &'a Regions) -> Option<(&'a Region, u64)> {
        let payload = self.payload.as_ref()?;
        Some((regions.get(payload.region)?, payload.offset + place))
    }

    /// Assigns room to the slice that was stored last. Releasing the slice frees it.
    pub(super) fn keep_room(&mut self, place: u64) {
        self.pieces.push_back((self.queue.stored(), place));
    }

    /// The program has released slices, `released` in total.
    pub(super) fn on_released(&mut self, released: u64) {
        while let Some(&(_, place)) = self.pieces.front().filter(|(stored, _)| *stored <= released) {
            self.pieces.pop_front();
            self.give_room_back(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use niclab_abi::control::PortOpen;

    use super::*;
    use crate::nic::HostRange;

    const PAGE: u64 = 4_096;

    /// An endpoint of eight slices, and regions with one region of two pages, whose name is the third value.
    fn endpoint() -> (Endpoint, Regions, u32) {
        let open = PortOpen { slices: 8, slices_address: 0x1000, ..PortOpen::default() };
        let mut regions = Regions::new(4, 16);
        let name = regions.open(2 * PAGE, &[HostRange { address: 0x10_0000, bytes: 2 * PAGE }]).unwrap();
        (Endpoint::new(ReceiveQueue::new(&open)), regions, name)
    }

    fn bulk(bytes: u32) -> Fragment {
        let purpose = Purpose::Handler { handler: 20, arguments: [0; 4] };
        Fragment { endpoint: 0, purpose, interrupt: false, offset: 0, bytes, owner: 0 }
    }

    fn memory(region: u32, place: u64, bytes: u32) -> Fragment {
        Fragment { purpose: Purpose::Memory { region, place }, ..bulk(bytes) }
    }

    fn store(endpoint: &mut Endpoint) {
        let promise = endpoint.queue.promise(1);
        endpoint.queue.store(promise);
    }

    #[test]
    fn payload_waits_for_room_and_is_refused_if_too_long() {
        let (mut endpoint, mut regions, name) = endpoint();
        let none = Verdict::Never(REFUSED_NO_PAYLOAD);
        assert_eq!(endpoint.judge(&bulk(0), &regions), Verdict::Now);
        assert_eq!(endpoint.judge(&bulk(1), &regions), none, "it has no payload region");
        endpoint.set_payload(name, 64..192, &regions).unwrap();
        let judged = [0, 1, 128, 129, u32::MAX].map(|bytes| endpoint.judge(&bulk(bytes), &regions));
        assert_eq!(judged, [Verdict::Now, Verdict::Now, Verdict::Now, none, none]);
        let place = endpoint.take_room(65).unwrap();
        assert_eq!(
            [0, 1, 129].map(|bytes| endpoint.judge(&bulk(bytes), &regions)),
            [Verdict::Now, Verdict::Wait, none]
        );
        let (_, offset) = endpoint.payload_place(place, &regions).unwrap();
        assert_eq!(offset, 64, "after the start of the payload region");
        endpoint.give_room_back(place);
        (0..8).for_each(|_| store(&mut endpoint));
        assert_eq!(
            [0, 1].map(|bytes| endpoint.judge(&bulk(bytes), &regions)),
            [Verdict::Wait; 2],
            "no slice"
        );
        regions.close(name);
        assert_eq!([0, 1].map(|bytes| endpoint.judge(&bulk(bytes), &regions)), [Verdict::Wait, none]);
        assert!(endpoint.payload_place(0, &regions).is_none());
    }

    #[test]
    fn payload_region_is_line_aligned_and_moves_only_when_empty() {
        let (mut endpoint, regions, name) = endpoint();
        for wrong in [
            0..0,
            0..100,
            32..96,
            0..2 * PAGE + 64,
            2 * PAGE..2 * PAGE + 64,
            core::ops::Range { start: 128, end: 64 },
        ] {
            assert_eq!(
                endpoint.set_payload(name, wrong.clone(), &regions),
                Err(ControlError::BadValue),
                "{wrong:?}"
            );
        }
        assert_eq!(endpoint.set_payload(name + 1, 0..64, &regions), Err(ControlError::NotFound));
        assert_eq!(endpoint.set_payload(name, 0..2 * PAGE, &regions), Ok(()));
        let place = endpoint.take_room(1).unwrap();
        assert_eq!(endpoint.set_payload(name, 0..64, &regions), Err(ControlError::PortBusy));
        endpoint.give_room_back(place);
        assert_eq!(endpoint.set_payload(name, 0..64, &regions), Ok(()));
    }

    #[test]
    fn remote_writes_succeed_only_inside_an_exposed_region() {
        let (mut endpoint, mut regions, name) = endpoint();
        (0..8).for_each(|_| store(&mut endpoint));
        let judge = |endpoint: &Endpoint, regions: &Regions| {
            endpoint.judge(&memory(name, 2 * PAGE - 8, 8), regions) == Verdict::Now
        };
        assert!(!judge(&endpoint, &regions));
        endpoint.expose(name, true);
        assert!(judge(&endpoint, &regions), "a memory message needs no slice");
        let none = Verdict::Never(REFUSED_MEMORY);
        for (place, bytes) in
            [(2 * PAGE - 8, 9), (2 * PAGE, 1), (u64::MAX, 1), (u64::MAX - 7, 8), (0, u32::MAX)]
        {
            assert_eq!(endpoint.judge(&memory(name, place, bytes), &regions), none, "{place} {bytes}");
        }
        assert_eq!(endpoint.judge(&memory(name + 1, 0, 8), &regions), none);
        endpoint.expose(name, false);
        assert!(!judge(&endpoint, &regions));
        endpoint.expose(name, true);
        endpoint.forget_region(name);
        assert!(!judge(&endpoint, &regions));
        endpoint.expose(name, true);
        regions.close(name);
        assert!(!judge(&endpoint, &regions));
    }

    #[test]
    fn room_returns_with_the_slice_that_holds_it() {
        let (mut endpoint, regions, name) = endpoint();
        endpoint.set_payload(name, 0..192, &regions).unwrap();
        let places = [0, 1, 2].map(|_| endpoint.take_room(64).unwrap());
        // The messages complete in another order than they began. A message without payload completes between them.
        for place in [Some(places[2]), None, Some(places[0]), Some(places[1])] {
            store(&mut endpoint);
            if let Some(place) = place {
                endpoint.keep_room(place);
            }
        }
        let mut free = |released| {
            endpoint.on_released(released);
            [64, 128, 192].map(|bytes| endpoint.judge(&bulk(bytes), &regions) == Verdict::Now)
        };
        assert_eq!(free(0), [false; 3]);
        assert_eq!(free(1), [true, false, false]);
        assert_eq!(free(2), [true, false, false]);
        assert_eq!(free(3), [true, false, false], "the first and the last third are not contiguous");
        assert_eq!(free(4), [true; 3]);
    }
}
