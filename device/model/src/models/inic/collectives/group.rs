//! One member's state of a group: a tree over all members, in the order of the member list.
//!
//! A card exchanges messages only with its parent in the tree and its two children. It handles each message of a
//! neighbour once, in the order of sending, even if the assembly duplicates or reorders messages. For this it numbers
//! messages, and keeps early ones.
//!
//! A group begins when the hosts of all members have made it. Each member reports to its parent after its children have
//! reported, and the first member then notifies all. So a card keeps no operation's data for a group that its host has
//! not made.
//!
//! [`rounds`]: barriers and reductions; [`casts`]: multicasts.
//!
//! The first error ends the group here. Cards pass the error on, so the group ends at all reachable members. Open
//! operations fail, and so do later ones. A waiting card probes its neighbours from time to time.

mod casts;
mod rounds;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use niclab_abi::inic::{POST_BAD_REGION, POST_LEFT, POST_UNALIKE, POST_UNREACHABLE};

use crate::models::inic::collectives::group::casts::Casts;
use crate::models::inic::collectives::group::rounds::Rounds;
use crate::models::inic::collectives::message::{CollectiveKind, Head};
use crate::models::inic::collectives::unit::{Io, Local};

/// Children of a member in the tree.
const CHILDREN: usize = 2;
/// Maximum messages of a card after a missing one. A reliable assembly has no more packets in flight than an
/// acknowledgement has bits. Ours: a bound.
const MAX_AHEAD: u32 = 64;
/// Number of replies that a membership is unknown before the receiver believes them. The messages that the card sent
/// when it left the group may still be in flight, and contain results.
const MAX_RESETS: u32 = 2;

/// A numbered message, with its data.
#[derive(Clone, Debug)]
struct Counted {
    head: Head,
    data: Vec<u8>,
}

/// How a message was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Taken,
    /// The message is obsolete.
    Ignored,
    /// A child has made the group, and this card's host has not.
    Early,
    /// The message names a membership that does not exist.
    Stale,
    /// The sender cannot be a member of this group, and gets the reason.
    Refused(u32),
}

/// A neighbour in the tree.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: u16,
    is_parent: bool,
    /// The membership that the neighbour has announced; zero before.
    theirs: u32,
    /// Number of the next message to it. `due` is the number of the next message from it.
    sequence: u32,
    due: u32,
    ahead: BTreeMap<u32, Counted>,
    resets: u32,
}

/// A group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: u32,
    /// This card's membership.
    pub(super) own: u32,
    members: Vec<u16>,
    position: usize,
    /// A hash over the members, in their order.
    check: u32,
    /// First the parent, if there is one, then the children.
    pub(super) links: Vec<Link>,
    is_ready: bool,
    pub(super) is_started: bool,
    /// The error that ended the group.
    ended: Option<u32>,
    pub(super) rounds: Rounds,
    pub(super) casts: Casts,
}

impl Group {
    /// A group of these members, which include the card's own node.
    pub(super) fn new(name: u32, own: u32, members: Vec<u16>, node: u16) -> Self {
        let position = members.iter().position(|member| *member == node).unwrap_or(0);
        let link = |place: usize, is_parent| {
            let node = *members.get(place)?;
            let ahead = BTreeMap::new();
            Some(Link { node, is_parent, theirs: 0, sequence: 0, due: 0, ahead, resets: 0 })
        };
        let parent = parent_of(position).and_then(|parent| link(parent, true));
        let children = (1..=CHILDREN).filter_map(|child| link(position * CHILDREN + child, false));
        let links: Vec<Link> = parent.into_iter().chain(children).collect();
        let children = links.iter().filter(|link| !link.is_parent).count();
        // FNV-1a over member numbers.
        let check = members
            .iter()
            .fold(0x811c_9dc5_u32, |sum, member| (sum ^ u32::from(*member)).wrapping_mul(0x0100_0193));
        Self {
            name,
            own,
            members,
            position,
            check,
            links,
            is_ready: false,
            is_started: false,
            ended: None,
            rounds: Rounds::new(children),
            casts: Casts::default(),
        }
    }

    /// Whether this member is the root of the tree.
    pub(super) const fn is_root(&self) -> bool {
        self.position == 0
    }

    /// Index of the first child among the links.
    pub(super) fn first_child(&self) -> usize {
        usize::from(!self.is_root())
    }

    /// The link that leads to another member.
    pub(super) fn toward(&self, node: u16) -> Option<usize> {
        let place = self.members.iter().position(|member| *member == node);
        let mut place = place.filter(|place| *place != self.position)?;
        loop {
            match parent_of(place) {
                Some(above) if above == self.position => {
                    let node = *self.members.get(place)?;
                    return self.links.iter().position(|link| link.node == node);
                }
                Some(above) => place = above,
                // The member is not in this member's subtree.
                None => return (!self.is_root()).then_some(0),
            }
        }
    }

    /// The error that ended the group; none while it runs.
    pub(super) const fn ended(&self) -> Option<u32> {
        self.ended
    }

    /// Whether the group waits for other cards.
    pub(super) fn waits(&self) -> bool {
        self.ended.is_none() && (!self.is_started || self.rounds.has_asked() || self.casts.has_own())
    }

    /// Sends a message to a neighbour.
    pub(super) fn send(&mut self, io: &mut Io<'_>, link: usize, head: Head, data: &[u8]) {
        let Some(link) = self.links.get_mut(link) else { return };
        let sequence = if head.kind.is_counted() { link.sequence } else { 0 };
        link.sequence = link.sequence.wrapping_add(u32::from(head.kind.is_counted()));
        let head = Head { group: self.name, to: link.theirs, from: self.own, sequence, ..head };
        io.send(link.node, head, data);
    }

    /// Sends data to a neighbour, in several messages if necessary. Without data it sends one message.
    pub(super) fn send_all(&mut self, io: &mut Io<'_>, link: usize, head: Head, data: &[u8]) {
        let piece = io.unit.piece_bytes();
        if data.is_empty() {
            self.send(io, link, head, data);
        }
        for data in data.chunks(piece) {
            self.send(io, link, head, data);
        }
    }

    /// Records a child's announcement that arrived before this card's host made the group.
    pub(super) fn remember(&mut self, node: u16, theirs: u32, check: u32) -> Result<(), u32> {
        let Some(link) = self.links.iter_mut().find(|link| link.node == node && !link.is_parent) else {
            return Ok(());
        };
        (link.theirs, link.due) = (theirs, 1);
        if check == self.check { Ok(()) } else { Err(POST_UNALIKE) }
    }

    /// Nodes of the children.
    pub(super) fn children(&self) -> impl Iterator<Item = u16> {
        self.links.iter().filter(|link| !link.is_parent).map(|link| link.node)
    }

    /// Advances all operations as far as possible.
    pub(super) fn advance(&mut self, io: &mut Io<'_>) {
        if self.ended.is_none()
            && let Err(result) = self.try_advance(io)
        {
            self.end(io, result, None);
        }
    }

    fn try_advance(&mut self, io: &mut Io<'_>) -> Result<(), u32> {
        let first = self.first_child();
        let is_below = self.links.iter().skip(first).all(|link| link.theirs != 0);
        if is_below && !core::mem::replace(&mut self.is_ready, true) {
            if self.is_root() {
                self.start(io);
            } else {
                self.send(io, 0, Head { total: self.check, ..head(CollectiveKind::Ready) }, &[]);
            }
        }
        if self.is_started {
            self.advance_rounds(io)?;
            self.advance_casts(io)?;
        }
        Ok(())
    }

    fn start(&mut self, io: &mut Io<'_>) {
        self.is_started = true;
        for link in self.first_child()..self.links.len() {
            self.send(io, link, head(CollectiveKind::Start), &[]);
        }
    }

    /// Takes a message that names this group.
    pub(super) fn on_message(&mut self, io: &mut Io<'_>, source: u16, head: &Head, data: &[u8]) -> Fate {
        let Some(place) = self.links.iter().position(|link| link.node == source) else {
            let has_made_it =
                matches!(head.kind, CollectiveKind::Ready | CollectiveKind::Probe) && head.to == 0;
            return if has_made_it { Fate::Refused(POST_UNALIKE) } else { Fate::Stale };
        };
        let Some(link) = self.links.get_mut(place) else { return Fate::Ignored };
        let is_over = self.ended.is_some();
        match (link.is_parent, head.kind) {
            // The sender takes this member for its own parent.
            (true, CollectiveKind::Ready) => return Fate::Refused(POST_UNALIKE),
            // The group ended before all members had made it. A member of a group that had started is making the next
            // one.
            (_, CollectiveKind::Ready | CollectiveKind::Probe)
                if is_over && link.theirs == 0 && !self.is_started =>
            {
                return Fate::Refused(told_of(self.ended.unwrap_or(POST_LEFT)));
            }
            (false, CollectiveKind::Ready) if is_over => return Fate::Early,
            (false, CollectiveKind::Ready) if link.theirs == 0 => {
                if (head.to, head.sequence) != (0, 0) {
                    return Fate::Ignored;
                }
                link.theirs = head.from;
            }
            (false, CollectiveKind::Ready) if link.theirs != head.from => {
                // The child's program has made the group again, so its previous group has ended.
                self.end(io, POST_LEFT, None);
                return Fate::Early;
            }
            // The child has the group, but with another parent.
            (false, CollectiveKind::Leave) if !is_over && link.theirs == 0 && head.to == self.own => {
                link.theirs = head.from
            }
            // Messages before the announcement are not answered, because they may have overtaken it.
            _ if is_over || (!link.is_parent && link.theirs == 0) => return Fate::Ignored,
            // The parent learned this membership from its announcement.
            _ if link.is_parent && link.theirs == 0 && head.to == self.own => link.theirs = head.from,
            _ if link.theirs != head.from => return Fate::Stale,
            (false, CollectiveKind::Ready | CollectiveKind::Leave | CollectiveKind::Probe)
                if head.to == 0 => {}
            _ if head.to != self.own => return Fate::Stale,
            _ => {}
        }
        match head.kind {
            CollectiveKind::Probe => {}
            CollectiveKind::Reset => {
                link.resets += 1;
                if link.resets >= MAX_RESETS {
                    self.end(io, POST_LEFT, Some(source));
                }
            }
            _ => self.on_counted(io, place, head, data),
        }
        Fate::Taken
    }

    /// Takes a numbered message of a neighbour.
    fn on_counted(&mut self, io: &mut Io<'_>, place: usize, head: &Head, data: &[u8]) {
        let Some(link) = self.links.get_mut(place) else { return };
        let ahead = head.sequence.wrapping_sub(link.due);
        if ahead > MAX_AHEAD || link.ahead.contains_key(&head.sequence) {
            let counters = &mut io.card.effects.counters;
            let is_stray = (MAX_AHEAD + 1..u32::MAX / 2).contains(&ahead);
            *(if is_stray { &mut counters.collective_strays } else { &mut counters.duplicates }) += 1;
            return;
        }
        link.ahead.insert(head.sequence, Counted { head: *head, data: data.to_vec() });
        loop {
            let Some(link) = self.links.get_mut(place) else { return };
            let Some(counted) = link.ahead.remove(&link.due) else { break };
            link.due = link.due.wrapping_add(1);
            if self.ended.is_some() {
                continue;
            }
            let result = self.on_next(io, place, &counted);
            if let Err(result) = result {
                let source = self.links.get(place).map(|link| link.node);
                self.end(io, result, source.filter(|_| counted.head.kind == CollectiveKind::Leave));
            }
        }
        self.advance(io);
    }

    /// The next message of a neighbour.
    fn on_next(&mut self, io: &mut Io<'_>, place: usize, counted: &Counted) -> Result<(), u32> {
        let Counted { head, data } = counted;
        let is_parent = self.links.get(place).is_some_and(|link| link.is_parent);
        let is_known = match head.kind {
            CollectiveKind::Ready if !is_parent && !self.is_started => {
                return if head.total == self.check { Ok(()) } else { Err(POST_UNALIKE) };
            }
            CollectiveKind::Start if is_parent && self.is_ready && !self.is_started => {
                self.start(io);
                true
            }
            CollectiveKind::Up if !is_parent => self.on_up(place - self.first_child(), head, data),
            CollectiveKind::Down if is_parent => self.on_down(io, head, data),
            CollectiveKind::Cast => self.on_cast(io, place, head, data),
            CollectiveKind::Taken => self.on_cast_taken(io, place, head),
            CollectiveKind::Leave => return Err(head.code.into()),
            _ => false,
        };
        io.card.effects.counters.collective_strays += u64::from(!is_known);
        Ok(())
    }

    /// Probes all neighbours.
    pub(super) fn probe(&mut self, io: &mut Io<'_>) {
        (0..self.links.len()).for_each(|link| self.send(io, link, head(CollectiveKind::Probe), &[]));
    }

    /// A node does not answer.
    pub(super) fn on_unreachable(&mut self, io: &mut Io<'_>, node: u16) {
        if self.links.iter().any(|link| link.node == node) {
            self.end(io, POST_UNREACHABLE, Some(node));
        }
    }

    /// Ends the group: fails open operations, and notifies all neighbours except one that already knows or is
    /// unreachable.
    pub(super) fn end(&mut self, io: &mut Io<'_>, result: u32, but: Option<u16>) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(result);
        io.card.effects.counters.groups_ended += 1;
        for place in 0..self.links.len() {
            let is_told = self.links.get(place).is_some_and(|link| {
                but != Some(link.node) && (link.theirs != 0 || (link.is_parent && self.is_ready))
            });
            if is_told {
                self.send(
                    io,
                    place,
                    Head { code: told_of(result) as u8, ..head(CollectiveKind::Leave) },
                    &[],
                );
            }
        }
        let open: Vec<Local> = self.rounds.end().into_iter().chain(self.casts.end()).collect();
        open.into_iter().for_each(|local| local.tell(io, self.name, 0, result));
    }

    /// The host posts an operation of a group that has ended.
    pub(super) fn refuse(&self, io: &mut Io<'_>, local: Local) {
        local.tell(io, self.name, 0, self.ended.unwrap_or(POST_LEFT));
    }
}

/// The result to report to others for this member's result: details of its own memory do not concern them.
const fn told_of(result: u32) -> u32 {
    if result == POST_BAD_REGION { POST_LEFT } else { result }
}

/// A header with only a kind.
pub(super) const fn head(kind: CollectiveKind) -> Head {
    Head { kind, code: 0, root: 0, group: 0, to: 0, from: 0, sequence: 0, number: 0, total: 0 }
}

/// Index of the parent, in the order of members.
const fn parent_of(place: usize) -> Option<usize> {
    match place.checked_sub(1) {
        Some(before) => Some(before / CHILDREN),
        None => None,
    }
}
