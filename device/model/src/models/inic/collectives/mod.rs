//! Collectives: barriers, multicasts and reductions of groups of nodes, which cards perform without their hosts.
//! Section 1 names them as an extension of the architecture. Ours: the design.
//!
//! The unit is next to the circuit, at the edges where messages of hosts enter and leave. Cards exchange their own
//! messages, which go through the assembly like those of hosts. The assembly must deliver them over a lossy network; an
//! unreliable assembly supports no collectives. No host wakes during an operation.
//!
//! * [`group`]: one member's state of a group: its tree, its neighbours, its start and end, and its operations;
//! * [`message`]: messages between cards; [`mod@unit`]: the resources of groups.

mod group;
mod message;
mod unit;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use niclab_abi::inic::{
    POST_BAD_REGION, POST_GROUPS, POST_LEFT, POST_MAX_MEMBERS, POST_NO_GROUP, POST_NOT_RELIABLE,
};
use niclab_components::Checked;

use crate::models::inic::card::{Card, News};
use crate::models::inic::collectives::group::{Fate, Group, head};
use crate::models::inic::collectives::message::{CollectiveKind, Head};
use crate::models::inic::collectives::unit::{Io, Local, Of, Reading, Unit};
use crate::models::inic::command::Collective;
use crate::models::inic::settings::packet_bytes;
use crate::models::inic::token::Message;
use crate::nic::FrameBytes;
use crate::parts::control::ControlError;
use crate::parts::host_interface::HostInterface;
use crate::time::{Span, Time};

/// Time before a card probes other cards. Doubles with each probe, up to the maximum. Ours: no paper has collectives.
const FIRST_PROBE: Span = Span::from_ns(10_000_000);
/// Ours: maximum of that time.
const LONGEST_PROBE: Span = Span::from_ns(1_000_000_000);

/// Announcement of a child for a group that this card's host has not made.
#[derive(Clone, Copy, Debug)]
struct Early {
    theirs: u32,
    check: u32,
}

/// The unit.
pub(super) struct Collectives {
    groups: BTreeMap<u32, Group>,
    /// Announcements by node and group. For each node at most its maximum number of groups.
    early: BTreeMap<(u16, u32), Early>,
    unit: Unit,
    /// Whether the assembly is reliable.
    is_reliable: bool,
    /// Memberships so far.
    memberships: u32,
    /// Time of the next probe, and the delay before it.
    probe: Option<(Time, Span)>,
}

impl Collectives {
    /// For a card with this assembly.
    pub(super) fn new(interface: &HostInterface, assembly: &Checked) -> Self {
        let mut collectives = Self {
            groups: BTreeMap::new(),
            early: BTreeMap::new(),
            unit: Unit::new(interface.machine("collectives", "collectives")),
            is_reliable: false,
            memberships: 0,
            probe: None,
        };
        collectives.use_assembly(assembly);
        collectives
    }

    fn use_assembly(&mut self, assembly: &Checked) {
        self.is_reliable = assembly.promises().delivered;
        self.unit.set_packet_bytes(packet_bytes(assembly) as usize);
    }

    /// The card has loaded another assembly. Groups continue, unless the new assembly is unreliable.
    pub(super) fn on_assembly(&mut self, now: Time, assembly: &Checked, card: &mut Card) {
        self.use_assembly(assembly);
        if !self.is_reliable {
            self.with_all(now, card, |group, io| group.end(io, POST_NOT_RELIABLE, None));
            self.early.clear();
            self.unit.send_queue.clear();
        }
    }

    /// Runs a function on the group of this name, if it exists.
    fn with<R>(
        &mut self,
        at: Time,
        name: u32,
        card: &mut Card,
        act: impl FnOnce(&mut Group, &mut Io<'_>) -> R,
    ) -> Option<R> {
        let group = self.groups.get_mut(&name)?;
        let mut io = Io { card, unit: &mut self.unit, at };
        Some(act(group, &mut io))
    }

    /// Runs a function on all groups.
    fn with_all(&mut self, at: Time, card: &mut Card, act: impl Fn(&mut Group, &mut Io<'_>)) {
        for group in self.groups.values_mut() {
            let mut io = Io { card, unit: &mut self.unit, at };
            act(group, &mut io);
        }
    }

    /// Makes a group.
    ///
    /// # Errors
    /// Why the group is invalid.
    pub(super) fn make(
        &mut self,
        now: Time,
        name: u32,
        members: Vec<u16>,
        nodes: u32,
        card: &mut Card,
    ) -> Result<(), ControlError> {
        if !self.is_reliable {
            return Err(ControlError::BadOperation);
        }
        let mut sorted = members.clone();
        sorted.sort_unstable();
        let is_sound = members.len() <= POST_MAX_MEMBERS as usize
            && members.iter().all(|node| u32::from(*node) < nodes)
            && sorted.is_sorted_by(|one, next| one < next)
            && sorted.binary_search(&card.node).is_ok();
        if !is_sound || self.groups.contains_key(&name) {
            return Err(ControlError::BadValue);
        }
        if self.groups.len() >= POST_GROUPS as usize {
            return Err(ControlError::NoSpace);
        }
        self.memberships = self.memberships.wrapping_add(1).max(1);
        let mut group = Group::new(name, self.memberships, members, card.node);
        let children: Vec<u16> = group.children().collect();
        let early = children.into_iter().filter_map(|node| Some((node, self.early.remove(&(node, name))?)));
        let mut io = Io { card, unit: &mut self.unit, at: now };
        for (node, Early { theirs, check }) in early {
            if let Err(result) = group.remember(node, theirs, check) {
                group.end(&mut io, result, None);
            }
        }
        group.advance(&mut io);
        self.groups.insert(name, group);
        Ok(())
    }

    /// Drops a group, and ends the operations for which its host waits.
    ///
    /// # Errors
    /// The group does not exist.
    pub(super) fn drop_group(&mut self, now: Time, name: u32, card: &mut Card) -> Result<(), ControlError> {
        let ended = self.with(now, name, card, |group, io| group.end(io, POST_LEFT, None));
        ended.ok_or(ControlError::NotFound)?;
        self.groups.remove(&name);
        Ok(())
    }

    /// The host posts an operation with valid memory.
    ///
    /// # Errors
    /// The result that says why it is refused.
    pub(super) fn ask(&mut self, at: Time, wanted: &Collective, card: &mut Card) -> Result<(), u32> {
        if !self.is_reliable {
            return Err(POST_NOT_RELIABLE);
        }
        let group = self.groups.get_mut(&wanted.group).ok_or(POST_NO_GROUP)?;
        let place = card.promise().ok_or(POST_NO_GROUP)?;
        let Collective { user, memory, interrupt, task, .. } = *wanted;
        let local = Local { user, memory, interrupt, place };
        let mut io = Io { card, unit: &mut self.unit, at };
        if group.ended().is_some() {
            group.refuse(&mut io, local);
            return Ok(());
        }
        match task {
            Some(task) => group.rounds.ask(local, task),
            None => group.casts.ask(local),
        }
        group.advance(&mut io);
        Ok(())
    }

    /// Room is posted.
    pub(super) fn on_room(&mut self, at: Time, card: &mut Card) {
        while card.has_room_posted()
            && let Some((group, own, name)) = self.unit.whole.pop_front()
        {
            self.with(at, group, card, |group, io| {
                let is_its = group.own == own && group.ended().is_none();
                if is_its && group.store_cast(io, name) {
                    group.advance(io);
                }
            });
        }
    }

    /// Accepts the data of a read. Returns whether the read belongs to the unit.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        token: u64,
        bytes: &FrameBytes,
        is_whole: bool,
        card: &mut Card,
    ) -> bool {
        let Some(Reading { group: (name, own), of, here }) = self.unit.reads.remove(&token) else {
            return false;
        };
        self.with(now.max(here), name, card, |group, io| {
            if group.own != own || group.ended().is_some() {
                return;
            }
            match of {
                _ if !is_whole => group.end(io, POST_BAD_REGION, None),
                Of::Round(number) => group.rounds.on_read(number, bytes),
                Of::Cast(number) => group.on_cast_read(io, number, bytes),
            }
            group.advance(io);
        });
        true
    }

    /// Handles all messages of other cards that the card has received. Then returns the next message to send.
    pub(super) fn next(&mut self, now: Time, card: &mut Card) -> Option<(Time, Message)> {
        while let Some(news) = card.take_news() {
            match news {
                News::Message { at, source, message } => self.on_message(at.max(now), source, &message, card),
                News::Unreachable { at, node } => {
                    self.with_all(at.max(now), card, |group, io| group.on_unreachable(io, node));
                }
            }
            self.on_room(now, card);
        }
        let unit::Outgoing { at, node, message } = self.unit.send_queue.pop_front()?;
        card.effects.counters.collective_messages += 1;
        Some((at, card.send_own(node, message)))
    }

    fn on_message(&mut self, at: Time, source: u16, message: &[u8], card: &mut Card) {
        let mut io = Io { card, unit: &mut self.unit, at };
        io.work(message.len());
        let Some((told, data)) = Head::parse(message) else {
            io.card.effects.card().malformed += 1;
            return;
        };
        let fate = match self.groups.get_mut(&told.group) {
            Some(group) => group.on_message(&mut io, source, &told, data),
            None if told.kind == CollectiveKind::Ready => Fate::Early,
            None => Fate::Stale,
        };
        let at = io.at;
        match fate {
            Fate::Taken | Fate::Ignored => {}
            Fate::Early => self.on_early(source, &told, card),
            Fate::Stale => self.on_stale(at, source, &told, card),
            Fate::Refused(result) => {
                let own = self.groups.get(&told.group).map_or(told.to, |group| group.own);
                let code = result as u8;
                let answer =
                    Head { code, group: told.group, to: told.from, from: own, ..head(CollectiveKind::Leave) };
                Io { card, unit: &mut self.unit, at }.send(source, answer, &[]);
            }
        }
    }

    /// A child has made a group that this card's host has not made, or not made again.
    fn on_early(&mut self, source: u16, told: &Head, card: &mut Card) {
        let known = self.early.range((source, 0)..=(source, u32::MAX));
        let key = (source, told.group);
        let is_sound = told.to == 0 && told.sequence == 0;
        if !is_sound || (known.count() >= POST_GROUPS as usize && !self.early.contains_key(&key)) {
            card.effects.counters.collective_strays += 1;
            return;
        }
        self.early.insert(key, Early { theirs: told.from, check: told.total });
    }

    /// A message for a membership that does not exist.
    fn on_stale(&mut self, at: Time, source: u16, told: &Head, card: &mut Card) {
        let key = (source, told.group);
        match told.kind {
            CollectiveKind::Leave if self.early.get(&key).is_some_and(|early| early.theirs == told.from) => {
                self.early.remove(&key);
            }
            // A sender that has left gets no answer, nor does one that probes before the group can exist.
            CollectiveKind::Leave | CollectiveKind::Reset | CollectiveKind::Ready => {
                card.effects.counters.collective_strays += 1
            }
            CollectiveKind::Probe if told.to == 0 => {}
            _ => {
                card.effects.counters.collective_strays += 1;
                let answer =
                    Head { group: told.group, to: told.from, from: told.to, ..head(CollectiveKind::Reset) };
                // The answer to a message without receiver could not be distinguished from others.
                if told.to != 0 {
                    Io { card, unit: &mut self.unit, at }.send(source, answer, &[]);
                }
            }
        }
    }

    /// The host's port is closed: its groups are dropped.
    pub(super) fn on_close(&mut self, now: Time, card: &mut Card) {
        self.with_all(now, card, |group, io| group.end(io, POST_LEFT, None));
        self.groups.clear();
        self.unit.reads.clear();
        self.unit.whole.clear();
    }

    /// A region is closed. Groups that use it are over.
    pub(super) fn on_close_region(&mut self, now: Time, region: u32, card: &mut Card) {
        self.with_all(now, card, |group, io| {
            if group.rounds.uses(region) || group.casts.uses(region) {
                group.end(io, POST_BAD_REGION, None);
            }
        });
    }

    /// The next deadline.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.probe.map(|(at, _)| at)
    }

    /// Probes other cards if the time has come.
    pub(super) fn on_timeout(&mut self, now: Time, card: &mut Card) {
        let Some((_, wait)) = self.probe.filter(|(at, _)| *at <= now) else { return };
        self.with_all(now, card, |group, io| {
            if group.waits() {
                group.probe(io);
            }
        });
        let wait = wait.times(2).min(LONGEST_PROBE);
        self.probe = Some((now + wait, wait));
    }

    /// Starts or stops the probes: groups need them only while they wait for other cards.
    pub(super) fn watch(&mut self, now: Time) {
        let waits = self.groups.values().any(Group::waits);
        self.probe = if waits { self.probe.or(Some((now + FIRST_PROBE, FIRST_PROBE))) } else { None };
    }
}

impl Drop for Collectives {
    fn drop(&mut self) {
        for group in self.groups.values_mut() {
            let open = group.rounds.end().into_iter().chain(group.casts.end());
            open.for_each(|local| local.place.void());
        }
    }
}
