//! Handlers of a program, and the list of all handlers of the cluster (section 5.4).
//!
//! The keeper of the list is one channel, which all programs name alike. Programs send it what they have registered
//! ([`LIST`]); it merges that, gives numbers, and publishes to all that ever sent it a list what is new ([`TABLE`]).
//! Whoever sent a list is told what could not be merged ([`CONFLICT`]), and, behind all of that, that it was
//! ([`ANSWER`]).

use std::collections::BTreeMap;

use niclab_abi::channels::CHANNEL_UNKNOWN;
use niclab_port::channels::names::{Conflict, Entry, MAX_NAMES, NameProblem, Names, decode, encode};
use niclab_port::channels::{Outgoing, Short};

use super::send_queue::{SendQueue, bulk};
use super::{Message, NOTHING};
use crate::{Address, Error};

/// The sender has sent a message for a handler that is not there: its number.
const UNKNOWN: u32 = CHANNEL_UNKNOWN;
/// To the keeper, part of a list: round, number of the first entry, entries of the list; the entries are the payload.
const LIST: u32 = 2;
/// From the keeper, part of what is published; the entries are the payload.
const TABLE: u32 = 3;
/// From the keeper, an entry that could not be merged: round, why, and the number in its way; the name is the payload.
const CONFLICT: u32 = 4;
/// From the keeper: the list of this round is merged.
const ANSWER: u32 = 5;
/// To the keeper: nothing is to be published to this channel any more.
const LEAVE: u32 = 6;

/// What a handler does with a message. It may send by the [`SendQueue`], and must not wait.
pub type Handler = Box<dyn FnMut(&mut SendQueue, &Message<'_>) + Send>;

struct Local {
    entry: Entry,
    handler: Handler,
}

/// Somebody who has sent the keeper a list.
#[derive(Debug, Default)]
struct Member {
    /// The keeper's channel that it uses.
    channel: usize,
    /// Of its next list, what has come.
    list: Vec<Entry>,
    /// Entries that were published to it.
    told: usize,
    conflicts: Vec<(u32, Conflict)>,
    /// Its list was merged, and it does not know.
    round: Option<u32>,
}

/// The handlers of a program.
pub(super) struct Handlers {
    keeper: Address,
    locals: Vec<Local>,
    /// Places of those that have a number.
    numbers: BTreeMap<u32, usize>,
    /// The list, as far as it is known here; at the keeper the list itself.
    names: Names,
    /// At the keeper: the list, in the order in which it was published.
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

    /// The list, as far as it is known here.
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

    /// Numbers of local handlers follow from the list, and where that does not know the name, from who registered it.
    fn renumber(&mut self) {
        let Self { locals, numbers, names, .. } = self;
        numbers.clear();
        for (place, Local { entry, .. }) in locals.iter().enumerate() {
            if let Some(number) = names.number(&entry.name).or(entry.number) {
                numbers.insert(number, place);
            }
        }
    }

    /// A message has come: its handler is run.
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
                    // What the keeper says twice, or against itself, changes nothing.
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
                // A sender that does not hear of it has sent too much, and hears of the next.
                let Some(channel) = send_queue.channel_of(message.target) else { return };
                let short = Short::new(source, UNKNOWN).arguments([handler, 0, 0, 0]);
                let _ = send_queue.send_short(channel, short);
            }
        }
    }

    /// At the keeper: part of a list.
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

    /// At the keeper: what of a list could not be merged.
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

    /// At the keeper: tells members what they do not know, as far as there is room.
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

    /// Whether the list is kept here.
    pub(super) fn is_keeper(&self, send_queue: &SendQueue) -> bool {
        send_queue.channel_of(self.keeper).is_some()
    }

    /// At the keeper: its own handlers become part of the list.
    pub(super) fn merge_own(&mut self) -> Result<(), Error> {
        let list: Vec<Entry> = self.locals.iter().map(|local| local.entry.clone()).collect();
        none_or(self.merge(&list))
    }

    /// Begins another round: the messages that say what is registered here.
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

    /// What became of the last round, once the keeper has said it.
    pub(super) fn outcome(&mut self) -> Option<Result<(), Error>> {
        let is_answered = self.answered == self.round;
        is_answered.then(|| none_or(std::mem::take(&mut self.conflicts)))
    }

    /// What tells the keeper that this program leaves; none where it has never asked.
    pub(super) fn leave(&self) -> Option<Short> {
        (self.round > 0).then(|| Short::new(self.keeper, LEAVE))
    }
}

fn none_or(conflicts: Vec<Conflict>) -> Result<(), Error> {
    if conflicts.is_empty() { Ok(()) } else { Err(Error::Handlers { conflicts }) }
}

/// Tells a member what it does not know.
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
        // An entry that fits into no message would be tried for ever.
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
