//! Multicasts: from the memory of one host, over the tree of cards, into memory that every other host has posted.
//!
//! A card forwards data as it arrives, and keeps it until all data has arrived and its host has room. When the data is
//! in host memory, and all members behind the card have confirmed theirs, the card confirms to the sender. A root has
//! only a few multicasts in flight, which bounds the data that cards keep for any programs. Further multicasts wait
//! with their data in the root's host memory.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use niclab_abi::inic::POST_OK;

use crate::models::inic::collectives::group::{Group, head};
use crate::models::inic::collectives::message::{CollectiveKind, Head};
use crate::models::inic::collectives::unit::{Io, Local, Name, Of};

/// Maximum multicasts of a root in flight.
const MAX_OPEN: usize = 2;

/// A multicast in flight.
#[derive(Debug)]
struct Cast {
    /// The link on which it arrived; none if this host is its root.
    from: Option<usize>,
    local: Option<Local>,
    total: usize,
    bytes: Vec<u8>,
    /// Neighbours that have not confirmed it.
    waits: BTreeSet<usize>,
    /// Whether this host's memory contains it, or for the root, whether the card has read it.
    is_here: bool,
}

/// The multicasts of a group.
#[derive(Debug, Default)]
pub(in crate::models::inic::collectives) struct Casts {
    open: BTreeMap<Name, Cast>,
    /// Number of each root's next multicast.
    next: BTreeMap<u16, u32>,
    /// Posted multicasts of this host that are not in flight.
    wanted: VecDeque<Local>,
}

impl Casts {
    /// The host posts a multicast.
    pub(in crate::models::inic::collectives) fn ask(&mut self, local: Local) {
        self.wanted.push_back(local);
    }

    /// Whether the host waits for a multicast.
    pub(in crate::models::inic::collectives) fn has_own(&self) -> bool {
        !self.wanted.is_empty() || self.open.values().any(|cast| cast.local.is_some())
    }

    /// Ends all multicasts. Returns those that the host has posted.
    pub(in crate::models::inic::collectives) fn end(&mut self) -> Vec<Local> {
        let open = core::mem::take(&mut self.open).into_values().filter_map(|cast| cast.local);
        open.chain(self.wanted.drain(..)).collect()
    }

    /// Whether a multicast reads memory of this region.
    pub(in crate::models::inic::collectives) fn uses(&self, region: u32) -> bool {
        let open = self.open.values().filter(|cast| !cast.is_here).filter_map(|cast| cast.local.as_ref());
        open.chain(&self.wanted).any(|local| local.memory.region == region)
    }

    fn count_of(&self, root: u16) -> usize {
        self.open.range((root, 0)..=(root, u32::MAX)).count()
    }

    /// Begins a multicast with the root's next number, which it returns.
    fn begin(&mut self, root: u16, cast: Cast) -> u32 {
        let next = self.next.entry(root).or_insert(0);
        let number = *next;
        *next = number.wrapping_add(1);
        self.open.insert((root, number), cast);
        number
    }
}

impl Group {
    /// Begins this host's posted multicasts, up to the limit.
    pub(in crate::models::inic::collectives) fn advance_casts(&mut self, io: &mut Io<'_>) -> Result<(), u32> {
        let root = io.card.node;
        while self.casts.count_of(root) < MAX_OPEN
            && let Some(local) = self.casts.wanted.pop_front()
        {
            let memory = local.memory;
            let cast = Cast {
                from: None,
                local: Some(local),
                total: memory.bytes as usize,
                bytes: Vec::new(),
                waits: (0..self.links.len()).collect(),
                is_here: false,
            };
            let number = self.casts.begin(root, cast);
            io.read(memory, (self.name, self.own), Of::Cast(number));
        }
        Ok(())
    }

    /// Takes the data of one of this host's multicasts.
    pub(in crate::models::inic::collectives) fn on_cast_read(
        &mut self,
        io: &mut Io<'_>,
        number: u32,
        data: &[u8],
    ) {
        let name = (io.card.node, number);
        let Some(cast) = self.casts.open.get_mut(&name) else { return };
        cast.is_here = true;
        let told = Head { root: name.0, number, total: cast.total as u32, ..head(CollectiveKind::Cast) };
        (0..self.links.len()).for_each(|link| self.send_all(io, link, told, data));
        self.finish_cast(io, name);
    }

    /// Takes data of a multicast. Returns whether it is valid.
    pub(in crate::models::inic::collectives) fn on_cast(
        &mut self,
        io: &mut Io<'_>,
        place: usize,
        told: &Head,
        data: &[u8],
    ) -> bool {
        let name = (told.root, told.number);
        if !self.is_started || self.toward(told.root) != Some(place) {
            return false;
        }
        if !self.casts.open.contains_key(&name) {
            let next = self.casts.next.get(&told.root).copied().unwrap_or(0);
            if told.number != next || self.casts.count_of(told.root) >= MAX_OPEN {
                return false;
            }
            let waits = (0..self.links.len()).filter(|link| *link != place).collect();
            let total = told.total as usize;
            let bytes = Vec::with_capacity(total);
            let cast = Cast { from: Some(place), local: None, total, bytes, waits, is_here: false };
            self.casts.begin(told.root, cast);
        }
        let Some(cast) = self.casts.open.get_mut(&name) else { return false };
        if cast.from != Some(place) || cast.total != told.total as usize {
            return false;
        }
        if cast.bytes.len() + data.len() > cast.total || cast.is_here {
            return false;
        }
        cast.bytes.extend_from_slice(data);
        let is_whole = cast.bytes.len() == cast.total;
        let passed =
            Head { root: told.root, number: told.number, total: told.total, ..head(CollectiveKind::Cast) };
        for link in (0..self.links.len()).filter(|link| *link != place) {
            self.send(io, link, passed, data);
        }
        if is_whole {
            io.unit.wait_for_room(self.name, self.own, name);
        }
        true
    }

    /// Stores a complete multicast into the next posted room. Returns whether the multicast still exists.
    pub(in crate::models::inic::collectives) fn store_cast(&mut self, io: &mut Io<'_>, name: Name) -> bool {
        let Some(cast) = self.casts.open.get_mut(&name) else { return false };
        cast.is_here = true;
        let data = core::mem::take(&mut cast.bytes);
        io.deliver(name.0, &data);
        self.finish_cast(io, name);
        true
    }

    /// Takes a confirmation: all members behind a neighbour have a multicast. Returns whether it is valid.
    pub(in crate::models::inic::collectives) fn on_cast_taken(
        &mut self,
        io: &mut Io<'_>,
        place: usize,
        told: &Head,
    ) -> bool {
        let name = (told.root, told.number);
        let Some(cast) = self.casts.open.get_mut(&name) else { return false };
        let is_waited_for = cast.waits.remove(&place);
        self.finish_cast(io, name);
        is_waited_for
    }

    /// Confirms that all members here and behind have a multicast.
    fn finish_cast(&mut self, io: &mut Io<'_>, name: Name) {
        let is_over = |cast: &Cast| cast.is_here && cast.waits.is_empty();
        if !self.casts.open.get(&name).is_some_and(is_over) {
            return;
        }
        let Some(cast) = self.casts.open.remove(&name) else { return };
        if let Some(place) = cast.from {
            let (root, number) = name;
            self.send(io, place, Head { root, number, ..head(CollectiveKind::Taken) }, &[]);
        }
        if let Some(local) = cast.local {
            local.tell(io, self.name, cast.total, POST_OK);
        }
    }
}
