//! Handlers of a program, and the list of all handlers of the cluster (section 5.4).
//!
//! One channel, the keeper, keeps the list; all programs name the same channel. Programs send it the handlers that they
//! have registered ([`LIST`]). The keeper merges them, assigns numbers, and publishes new entries to all channels that
//! ever sent a list ([`TABLE`]). It then reports to the sender of the list the entries that could not be merged
//! ([`CONFLICT`]), and finally that the list is merged ([`ANSWER`]).

use std::collections::BTreeMap;

use niclab_abi::grim::CHANNEL_UNKNOWN;
use niclab_port::grim::names::{Conflict, Entry, MAX_NAMES, NameProblem, Names, decode, encode};
use niclab_port::grim::{Outgoing, Short};

use super::send_queue::{SendQueue, bulk};
use super::{Message, NOTHING};
use crate::{Address, Error};

/// From the receiver of a message for an unknown handler: the number of the handler.
const UNKNOWN: u32 = CHANNEL_UNKNOWN;
/// To the keeper, part of a list: round, number of the first entry, entries of the list; the entries are the payload.
const LIST: u32 = 2;
/// From the keeper, published entries; the entries are the payload.
const TABLE: u32 = 3;
/// From the keeper, an entry that could not be merged: round, reason, conflicting number; the name is the payload.
const CONFLICT: u32 = 4;
/// From the keeper: the list of this round is merged.
const ANSWER: u32 = 5;
/// To the keeper: publish no more entries to this channel.
const LEAVE: u32 = 6;

/// A handler. It may send with the [`SendQueue`], and must not wait.
pub type Handler = Box<dyn FnMut(&mut SendQueue, &Message<'_>) + Send>;

struct Local {
    entry: Entry,
    handler: Handler,
}

/// At the keeper: the state of a channel that has sent a list.
#[derive(Debug, Default)]
struct Member {
    /// The keeper's channel that received the list.
    channel: usize,
    /// Received entries of its next list.
    list: Vec<Entry>,
    /// Number of entries published to it.
    told: usize,
    conflicts: Vec<(u32, Conflict)>,
    /// The round of a merged list that was not answered yet.
    round: Option<u32>,
}

/// The handlers of a program.
pub(super) struct Handlers {
    keeper: Address,
    locals: Vec<Local>,
    /// For each number, the index of its handler in `locals`.
    numbers: BTreeMap<u32, usize>,
    /// The list, as far as this program knows it; at the keeper the list itself.
    names: Names,
    /// At the keeper: the list, in publication order.
    published: Vec<Entry>,
    members: BTreeMap<(u32, u32), Member>,
    round: u32,
    answered: u32,
    conflicts: Vec<Conflict>,
}

impl Handlers {
    pub(super) fn new(keeper: Address) -> Self {
        Self {
            keeper,
            locals: Vec::new(),
            numbers: BTreeMap::new(),
            names: Names::default(),
            published: Vec::new(),
            members: BTreeMap::new(),
            round: 0,
            answered: 0,
            conflicts: Vec::new(),
        }
    }

    /// The list, as far as this program knows it.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    pub(super) fn register(&mut self, entry: Entry, handler: Handler) -> Result<(), Error> {
        let is_duplicated = self.locals.iter().any(|local| local.entry.name == entry.name);
        let holder = entry.number.filter(|number| self.numbers.contains_key(number));
        let problem = match entry.check() {
            Err(problem) => Some(problem),
            Ok(()) if is_duplicated => Some(NameProblem::Duplicated),
            Ok(()) if holder.is_some() => Some(NameProblem::Taken),
            Ok(()) => (self.locals.len() >= MAX_NAMES).then_some(NameProblem::Full),
        };
        if let Some(problem) = problem {
            let number = entry.number.unwrap_or_default();
            return Err(Error::Handlers { conflicts: vec![Conflict { name: entry.name, number, problem }] });
        }
        self.locals.push(Local { entry, handler });
        self.renumber();
        Ok(())
    }

    /// Updates the numbers of local handlers: from the list, or, if the list has no such name, from the registration.
    fn renumber(&mut self) {
        let Self { locals, numbers, names, .. } = self;
        numbers.clear();
        for (place, Local { entry, .. }) in locals.iter().enumerate() {
            if let Some(number) = names.number(&entry.name).or(entry.number) {
                numbers.insert(number, place);
            }
        }
    }

    /// Runs the handler of a received message.
    pub(super) fn run(&mut self, send_queue: &mut SendQueue, message: &Message<'_>) {
        let place = self.numbers.get(&message.handler).copied();
        match place.and_then(|place| self.locals.get_mut(place)) {
            Some(local) => (local.handler)(send_queue, message),
            None => self.on_predefined(send_queue, message),
        }
    }

    fn on_predefined(&mut self, send_queue: &mut SendQueue, message: &Message<'_>) {
        let &Message { source, handler, arguments: [first, second, third, _], payload, .. } = message;
        let is_of_keeper = source == self.keeper;
        match handler {
            NOTHING => {}
            UNKNOWN => {
                let name = self.names.name(first).map(str::to_owned);
                send_queue.trouble(Error::UnknownHandler {
                    node: source.node,
                    port: source.port,
                    number: first,
                    name,
                });
            }
            LIST => {
                let entries = payload.to_vec();
                let channel = send_queue.channel_of(message.target).unwrap_or_default();
                self.on_list((source, channel), (first, second, third), decode(&entries));
            }
            TABLE if is_of_keeper => {
                for entry in decode(&payload.to_vec()) {
                    // Repeated or contradictory entries of the keeper change nothing.
                    let _ = self.names.merge(&entry);
                }
                self.renumber();
            }
            CONFLICT if is_of_keeper && first == self.round && self.conflicts.len() < MAX_NAMES => {
                let name = String::from_utf8_lossy(&payload.to_vec()).into_owned();
                let problem = NameProblem::from_number(second);
                self.conflicts.push(Conflict { name, number: third, problem });
            }
            CONFLICT => {}
            ANSWER if is_of_keeper => self.answered = first,
            LEAVE => drop(self.members.remove(&(source.node, source.port))),
            _ => {
                // If the queue is full, this report is dropped; the sender gets one for its next message.
                let Some(channel) = send_queue.channel_of(message.target) else { return };
                let short = Short::new(source, UNKNOWN).arguments([handler, 0, 0, 0]);
                let _ = send_queue.send_short(channel, short);
            }
        }
    }

    /// At the keeper: processes part of a list.
    fn on_list(
        &mut self,
        (source, channel): (Address, usize),
        (round, first, total): (u32, u32, u32),
        entries: impl Iterator<Item = Entry>,
    ) {
        let member = self.members.entry((source.node, source.port)).or_default();
        member.channel = channel;
        if first == 0 {
            member.list.clear();
            member.conflicts.clear();
        }
        if first as usize != member.list.len() || total as usize > MAX_NAMES {
            return;
        }
        member.list.extend(entries.take(MAX_NAMES - member.list.len()));
        if member.list.len() < total as usize {
            return;
        }
        let list = std::mem::take(&mut member.list);
        let conflicts = self.merge(&list);
        if let Some(member) = self.members.get_mut(&(source.node, source.port)) {
            member.conflicts = conflicts.into_iter().map(|conflict| (round, conflict)).collect();
            member.round = Some(round);
        }
    }

    /// At the keeper: merges a list. Returns the entries that could not be merged.
    fn merge(&mut self, list: &[Entry]) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for entry in list {
            match self.names.merge(entry) {
                Ok(false) => {}
                Ok(true) => {
                    let number = self.names.number(&entry.name);
                    self.published.push(Entry { name: entry.name.clone(), number });
                }
                Err(conflict) => conflicts.push(conflict),
            }
        }
        self.renumber();
        conflicts
    }

    /// At the keeper: sends members the changes that they do not have yet, as far as there is room.
    pub(super) fn publish(&mut self, send_queue: &mut SendQueue) -> Result<(), Error> {
        let Self { members, published, .. } = self;
        for (&(node, port), member) in members {
            match tell(Address { node, port }, member, published, send_queue) {
                Err(Error::SendQueueFull { .. }) => return Ok(()),
                other => other?,
            }
        }
        Ok(())
    }

    /// Whether this program keeps the list.
    pub(super) fn is_keeper(&self, send_queue: &SendQueue) -> bool {
        send_queue.channel_of(self.keeper).is_some()
    }

    /// At the keeper: adds its own handlers to the list.
    pub(super) fn merge_own(&mut self) -> Result<(), Error> {
        let list: Vec<Entry> = self.locals.iter().map(|local| local.entry.clone()).collect();
        none_or(self.merge(&list))
    }

    /// Begins another round. Returns the messages with the handlers registered here.
    pub(super) fn ask(&mut self, most: usize) -> Vec<(Outgoing, Vec<u8>)> {
        self.round = self.round.wrapping_add(1);
        self.conflicts.clear();
        let list: Vec<Entry> = self.locals.iter().map(|local| local.entry.clone()).collect();
        let (mut messages, mut first) = (Vec::new(), 0);
        loop {
            let (bytes, count) = encode(&list[first..], most);
            let arguments = [self.round, first as u32, list.len() as u32, 0];
            messages.push((bulk(Short::new(self.keeper, LIST).arguments(arguments), &bytes), bytes));
            first += count;
            if first >= list.len() || count == 0 {
                return messages;
            }
        }
    }

    /// The result of the last round, once the keeper has answered it.
    pub(super) fn outcome(&mut self) -> Option<Result<(), Error>> {
        let is_answered = self.answered == self.round;
        is_answered.then(|| none_or(std::mem::take(&mut self.conflicts)))
    }

    /// The message that notifies the keeper that this program leaves; `None` if it never sent a list.
    pub(super) fn leave(&self) -> Option<Short> {
        (self.round > 0).then(|| Short::new(self.keeper, LEAVE))
    }
}

fn none_or(conflicts: Vec<Conflict>) -> Result<(), Error> {
    if conflicts.is_empty() { Ok(()) } else { Err(Error::Handlers { conflicts }) }
}

/// Sends a member the changes that it does not have yet.
fn tell(
    to: Address,
    member: &mut Member,
    published: &[Entry],
    send_queue: &mut SendQueue,
) -> Result<(), Error> {
    let most = send_queue.sender(member.channel)?.max_bytes() as usize;
    while let Some(rest) = published.get(member.told..).filter(|rest| !rest.is_empty()) {
        let (bytes, count) = encode(rest, most);
        send_queue.send_bulk(member.channel, Short::new(to, TABLE), &bytes)?;
        // Without this, an entry that fits into no message would be tried forever.
        member.told += count.max(1);
    }
    while let Some((round, conflict)) = member.conflicts.first() {
        let arguments = [*round, conflict.problem.number(), conflict.number, 0];
        let name = conflict.name.as_bytes();
        send_queue.send_bulk(member.channel, Short::new(to, CONFLICT).arguments(arguments), name)?;
        member.conflicts.remove(0);
    }
    if let Some(round) = member.round {
        send_queue.send_short(member.channel, Short::new(to, ANSWER).arguments([round, 0, 0, 0]))?;
        member.round = None;
    }
    Ok(())
}
