//! Barriers and reductions. All members post the same operations in the same order, so a number identifies each.
//!
//! Values go up the tree. A card combines its own values, then those of its first child, then those of its second. It
//! combines as many values as it has from all three, and sends the result on, so a long reduction is pipelined. The
//! first member computes the final result, which goes down the tree into the memory of each host. A barrier is a
//! reduction without values.
//!
//! A member may be a few operations ahead of others. Cards neither send nor accept data of later operations.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use niclab_abi::inic::{POST_OK, POST_UNALIKE};

use crate::models::inic::arithmetic::Task;
use crate::models::inic::collectives::group::{Group, head};
use crate::models::inic::collectives::message::{CollectiveKind, Head};
use crate::models::inic::collectives::unit::{Io, Local, Of};

/// Max open operations whose values a card stores, counted from the oldest. Ours: a bound.
const MAX_OPEN: usize = 4;

/// The operation that a member posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    task: Task,
    bytes: u32,
}

impl Asked {
    fn of(head: &Head) -> Option<Self> {
        Some(Self { task: Task::of_code(head.code)?, bytes: head.total })
    }
}

/// Values of a child's subtree.
#[derive(Clone, Debug, Default)]
struct Part {
    asked: Option<Asked>,
    bytes: Vec<u8>,
}

/// An operation.
#[derive(Debug, Default)]
struct Round {
    /// The host's operation.
    local: Option<(Local, Asked)>,
    is_reading: bool,
    own: Option<Vec<u8>>,
    parts: Vec<Part>,
    /// Bytes that were combined and sent on, and whether these are all.
    sent: usize,
    is_sent: bool,
    /// Bytes of the result that have arrived.
    stored: usize,
}

/// The barriers and reductions of a group.
#[derive(Debug)]
pub(in crate::models::inic::collectives) struct Rounds {
    /// Number of the first open operation.
    first: u32,
    open: VecDeque<Round>,
    /// How many of the open operations the host has posted; they are the first ones.
    asked: usize,
    children: usize,
}

/// Progress of an operation.
enum Gathered {
    Waits,
    Sent,
    Done,
}

impl Rounds {
    pub(in crate::models::inic::collectives) const fn new(children: usize) -> Self {
        Self { first: 0, open: VecDeque::new(), asked: 0, children }
    }

    /// Whether the host waits for an operation.
    pub(in crate::models::inic::collectives) const fn has_asked(&self) -> bool {
        self.asked > 0
    }

    /// Ends all operations. Returns those that the host has posted.
    pub(in crate::models::inic::collectives) fn end(&mut self) -> Vec<Local> {
        self.asked = 0;
        self.open.drain(..).filter_map(|round| round.local).map(|(local, _)| local).collect()
    }

    /// Whether an operation reads or writes memory of this region.
    pub(in crate::models::inic::collectives) fn uses(&self, region: u32) -> bool {
        let mut locals = self.open.iter().filter_map(|round| round.local.as_ref());
        locals.any(|(local, asked)| asked.bytes > 0 && local.memory.region == region)
    }

    fn round(&mut self, index: usize) -> Option<&mut Round> {
        while self.open.len() <= index {
            self.open.push_back(Round { parts: vec![Part::default(); self.children], ..Round::default() });
        }
        self.open.get_mut(index)
    }

    /// The host posts an operation.
    pub(in crate::models::inic::collectives) fn ask(&mut self, local: Local, task: Task) {
        let (index, bytes) = (self.asked, local.memory.bytes as u32);
        self.asked += 1;
        if let Some(round) = self.round(index) {
            round.local = Some((local, Asked { task, bytes }));
        }
    }

    /// Takes the host's own values.
    pub(in crate::models::inic::collectives) fn on_read(&mut self, number: u32, bytes: &[u8]) {
        if let Some(round) = self.open.get_mut(number.wrapping_sub(self.first) as usize) {
            round.own = Some(bytes.to_vec());
        }
    }
}

impl Group {
    /// Reads the host's values of all operations that may begin.
    fn read_values(&mut self, io: &mut Io<'_>) {
        let (first, of) = (self.rounds.first, (self.name, self.own));
        for (round, number) in self.rounds.open.iter_mut().take(MAX_OPEN).zip(0..) {
            let Some((local, asked)) = &round.local else { return };
            if core::mem::replace(&mut round.is_reading, true) {
                continue;
            }
            if asked.bytes == 0 {
                round.own = Some(Vec::new());
            } else {
                io.read(local.memory, of, Of::Round(first.wrapping_add(number)));
            }
        }
    }

    /// Continues operations, in their order.
    pub(in crate::models::inic::collectives) fn advance_rounds(
        &mut self,
        io: &mut Io<'_>,
    ) -> Result<(), u32> {
        let mut index = 0;
        while index < MAX_OPEN.min(self.rounds.open.len()) {
            self.read_values(io);
            match self.gather(io, index)? {
                Gathered::Waits => break,
                Gathered::Sent => index += 1,
                Gathered::Done => {}
            }
        }
        Ok(())
    }

    /// Combines the values of an operation that have arrived, and sends them on.
    fn gather(&mut self, io: &mut Io<'_>, index: usize) -> Result<Gathered, u32> {
        let number = self.rounds.first.wrapping_add(index as u32);
        let Some(round) = self.rounds.open.get_mut(index) else { return Ok(Gathered::Waits) };
        if round.is_sent {
            return Ok(Gathered::Sent);
        }
        let Some((_, asked)) = round.local else { return Ok(Gathered::Waits) };
        if round.parts.iter().any(|part| part.asked.is_some_and(|other| other != asked)) {
            return Err(POST_UNALIKE);
        }
        let are_all_asked = round.parts.iter().all(|part| part.asked.is_some());
        let Some(own) = round.own.as_ref().filter(|_| are_all_asked) else { return Ok(Gathered::Waits) };
        let Asked { task, bytes } = asked;
        let there = round.parts.iter().map(|part| part.bytes.len()).fold(own.len(), usize::min);
        if there == round.sent && bytes > 0 {
            return Ok(Gathered::Waits);
        }
        let new = round.sent..there;
        let mut values = own.get(new.clone()).unwrap_or_default().to_vec();
        for part in &round.parts {
            task.combine(&mut values, part.bytes.get(new.clone()).unwrap_or_default());
        }
        round.sent = there;
        round.is_sent = there == bytes as usize;
        if round.is_sent {
            round.own = None;
            round.parts.iter_mut().for_each(|part| part.bytes = Vec::new());
        }
        let (is_sent, count) = (round.is_sent, round.parts.len());
        io.work(values.len() * count);
        if self.is_root() {
            return Ok(if self.on_result(io, &values) { Gathered::Done } else { Gathered::Waits });
        }
        self.send_all(
            io,
            0,
            Head { code: task.code(), number, total: bytes, ..head(CollectiveKind::Up) },
            &values,
        );
        Ok(if is_sent { Gathered::Sent } else { Gathered::Waits })
    }

    /// Takes values of a child. Returns whether they are valid.
    pub(in crate::models::inic::collectives) fn on_up(
        &mut self,
        child: usize,
        head: &Head,
        data: &[u8],
    ) -> bool {
        let index = head.number.wrapping_sub(self.rounds.first) as usize;
        let Some(asked) = Asked::of(head).filter(|_| self.is_started && index < MAX_OPEN) else {
            return false;
        };
        let Some(part) = self.rounds.round(index).and_then(|round| {
            let is_sent = round.is_sent;
            round.parts.get_mut(child).filter(|_| !is_sent)
        }) else {
            return false;
        };
        if part.asked.is_some_and(|before| before != asked || asked.bytes == 0) {
            return false;
        }
        let (bytes, length) = (part.bytes.len() + data.len(), asked.bytes as usize);
        if bytes > length || (bytes < length && !bytes.is_multiple_of(size_of::<u64>())) {
            return false;
        }
        part.asked = Some(asked);
        part.bytes.extend_from_slice(data);
        true
    }

    /// Takes a part of a result. Returns whether it is valid.
    pub(in crate::models::inic::collectives) fn on_down(
        &mut self,
        io: &mut Io<'_>,
        head: &Head,
        data: &[u8],
    ) -> bool {
        let is_first = head.number == self.rounds.first;
        let Some(round) = self.rounds.open.front().filter(|_| is_first) else { return false };
        let is_asked = round.local.as_ref().is_some_and(|(_, asked)| Asked::of(head) == Some(*asked));
        if !is_asked || round.stored + data.len() > round.sent || !(round.is_sent || head.total > 0) {
            return false;
        }
        self.on_result(io, data);
        true
    }

    /// Passes a part of the first operation's result to the children, and stores it into the host's memory. Returns
    /// whether it was the last part.
    fn on_result(&mut self, io: &mut Io<'_>, data: &[u8]) -> bool {
        let Some(round) = self.rounds.open.front_mut() else { return false };
        let Some((local, Asked { task, bytes })) = &round.local else { return false };
        let down = Head {
            code: task.code(),
            number: self.rounds.first,
            total: *bytes,
            ..head(CollectiveKind::Down)
        };
        let (bytes, memory, offset) = (*bytes as usize, local.memory, round.stored);
        round.stored += data.len();
        let is_done = round.stored == bytes && round.is_sent;
        let first = self.first_child();
        for link in first..self.links.len() {
            self.send_all(io, link, down, data);
        }
        io.store(memory, offset, data);
        if !is_done {
            return false;
        }
        let done = self.rounds.open.pop_front();
        self.rounds.first = self.rounds.first.wrapping_add(1);
        self.rounds.asked = self.rounds.asked.saturating_sub(1);
        if let Some((local, _)) = done.and_then(|round| round.local) {
            local.tell(io, self.name, bytes, POST_OK);
        }
        true
    }
}
