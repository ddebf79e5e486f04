//! Checks an open port: what its owner stores into its pages, and what the device stores into its memory.

use niclab_abi::bar::{LAUNCH_SEQUENCE_SHIFT, PAYLOAD_WORDS, SLOT_LAUNCH_WORD, SLOTS, TAG_WORDS, slot_of};
use niclab_abi::matching::{EVENT_REFUSED, RESULT_BAD_COMMAND, RESULT_BAD_VALUE, event_kind, event_result};
use niclab_abi::receive::{REFUSED_HEADER, REFUSED_LENGTH, REFUSED_RESERVED_BITS, StatusLine};
use niclab_model::nic::{PageStore, Register};

use super::book::{Book, Operation};
use super::doorbell::{Absent, Verdict};
use super::memory::{Changed, PortMemory, Stored};
use crate::memory::DmaMemory;
use crate::shell::pages::Pages;
use crate::vring::Bell;

/// Words of a slot that are compared: payload and tag.
const COMPARED: usize = PAYLOAD_WORDS + TAG_WORDS;

/// A copy of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    words: [u64; COMPARED],
    launch: u64,
}

impl Slot {
    fn load(pages: &Pages, port: u32, sequence: u32) -> Self {
        let mut slot = Self::default();
        if let Some(words) = pages.copy_slot(port, slot_of(sequence)) {
            slot.launch = words.get(SLOT_LAUNCH_WORD).copied().unwrap_or_default();
            slot.words.iter_mut().zip(words).for_each(|(copy, word)| *copy = word);
        }
        slot
    }

    /// The slot of a post that the device took. Its words must stay as the device read them.
    const fn taken(sequence: u32, store: &PageStore) -> Self {
        Self { words: store.words, launch: (sequence as u64) << LAUNCH_SEQUENCE_SHIFT | store.code as u64 }
    }

    /// The post `sequence`, if its slot has it.
    #[inline]
    fn launched(pages: &Pages, port: u32, sequence: u32) -> Option<Self> {
        let is_there = pages.sequence_in_slot_of(port, sequence) == sequence;
        is_there.then(|| Self::load(pages, port, sequence))
    }

    const fn sequence(&self) -> u32 {
        (self.launch >> LAUNCH_SEQUENCE_SHIFT) as u32
    }
}

/// The checks of the rules of an open port.
#[derive(Debug)]
pub struct PortRules {
    number: u32,
    /// None if the port was opened before the check started.
    pub memory: Option<PortMemory>,
    /// Posts that the device took since the port was opened.
    taken: u64,
    /// How many of them the status line has reported.
    reported: u64,
    /// The slots of these posts, as the device read them.
    slots: [Slot; SLOTS as usize],
    /// The next post, if its slot had it when the device took the post before.
    peeked: Option<Slot>,
    /// The last value of the register.
    released: u64,
    /// Slices that the device has stored. None if unknown.
    stored: Option<u64>,
    /// Refusals that the status line has reported.
    refused: u64,
    /// A poll that found no next post.
    absent: Option<Absent>,
    /// Posts may share a doorbell.
    batches: bool,
    /// The post for which a wrong number was reported.
    misnumbered: Option<u32>,
    /// Slices carry events of commands.
    has_lists: bool,
}

impl PortRules {
    /// A port that was just opened. Without `memory`: an older one, of which only the number of posts is known.
    /// `batches`: its posts may share a doorbell.
    pub fn new(
        number: u32,
        memory: Option<PortMemory>,
        batches: bool,
        pages: &Pages,
        has_lists: bool,
    ) -> Self {
        let taken = u64::from(pages.expected(number).wrapping_sub(1));
        Self {
            number,
            stored: memory.is_some().then_some(0),
            memory,
            taken,
            reported: taken,
            slots: [Slot::default(); SLOTS as usize],
            peeked: None,
            released: pages.released(number),
            refused: 0,
            absent: None,
            batches,
            misnumbered: None,
            has_lists,
        }
    }

    /// Its number.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The device has polled for the next post, and has taken it if `taken` is some. The states of the doorbell are
    /// that when the sleep began, and that of now.
    #[inline]
    pub fn on_look(
        &mut self,
        pages: &Pages,
        taken: Option<&PageStore>,
        (asleep, bell): (Option<Bell>, impl Fn() -> Option<Bell>),
        book: &mut Book,
    ) {
        if let Some(store) = taken {
            self.on_taken(pages, store, book);
        }
        if !self.batches {
            self.check_doorbell(pages, 1, &bell, book);
        }
        if taken.is_none() {
            self.check_number(pages, book);
            if self.absent.is_none_or(|absent| absent.is_stale(pages)) {
                self.absent = Absent::look(pages, self.number, asleep, bell());
            }
        }
    }

    /// Reports a post without a doorbell, once the one `ahead` posts later is there.
    fn check_doorbell(
        &mut self,
        pages: &Pages,
        ahead: u32,
        bell: impl FnOnce() -> Option<Bell>,
        book: &mut Book,
    ) {
        let Some(absent) = self.absent else { return };
        match absent.unannounced(pages, self.number, ahead, bell) {
            Verdict::Open => {}
            Verdict::Fine => self.absent = None,
            Verdict::Unannounced(sequence) => {
                self.absent = None;
                let last = sequence.wrapping_add(ahead);
                let seen = format_args!(
                    "posts {sequence} to {last} are there, and no doorbell was rung since the first of them"
                );
                book.broken("launch-doorbell", Some(self.number), seen);
            }
        }
    }

    fn on_taken(&mut self, pages: &Pages, store: &PageStore, book: &mut Book) {
        self.taken += 1;
        let sequence = self.taken as u32;
        let slot = Slot::taken(sequence, store);
        book.note(Operation::Launch { port: self.number, number: self.taken, code: slot.launch as u32 });
        if self.memory.is_some() && self.taken > self.reported + u64::from(SLOTS) {
            let (taken, reported) = (self.taken, self.reported);
            let seen =
                format_args!("post {taken} is there, and the status line reports {reported} posts as taken");
            book.broken("slot-free", Some(self.number), seen);
        }
        if let Some(peeked) = self.peeked.take().filter(|peeked| peeked.sequence() == sequence) {
            self.compare(sequence, &peeked, &slot, book);
        }
        if let Some(kept) = self.slots.get_mut(slot_of(sequence) as usize) {
            *kept = slot;
        }
        self.peeked = Slot::launched(pages, self.number, sequence.wrapping_add(1));
    }

    /// Reports what changed in a slot that still belongs to the device.
    fn compare(&self, sequence: u32, was: &Slot, is: &Slot, book: &mut Book) {
        if was == is {
            return;
        }
        let port = Some(self.number);
        if was.launch != is.launch {
            let other = is.sequence();
            book.broken(
                "slot-free",
                port,
                format_args!(
                    "the slot of post {sequence}, which is not yet reported as taken, has launch word {:#x} \
                     (number {other})",
                    is.launch
                ),
            );
            return;
        }
        let word = was.words.iter().zip(&is.words).position(|(was, is)| was != is).unwrap_or(0);
        book.broken(
            "slot-unchanged",
            port,
            format_args!(
                "word {word} of post {sequence}, which is not yet reported as taken, was {:#x} and is {:#x}",
                was.words[word], is.words[word]
            ),
        );
    }

    /// The next post is not there. Reports a number in its slot that is not the slot's last one, and later posts.
    fn check_number(&mut self, pages: &Pages, book: &mut Book) {
        let expected = self.taken.wrapping_add(1) as u32;
        if self.misnumbered == Some(expected) {
            return;
        }
        // Later posts are read first: if one is there, the program has stored the posts before it already.
        let later = (1..SLOTS)
            .map(|ahead| expected.wrapping_add(ahead))
            .find(|later| pages.sequence_in_slot_of(self.number, *later) == *later);
        let found = pages.sequence_in_slot_of(self.number, expected);
        let last = if self.taken >= u64::from(SLOTS) { expected.wrapping_sub(SLOTS) } else { 0 };
        if found == expected {
            return;
        }
        let port = Some(self.number);
        if found == expected.wrapping_add(SLOTS) {
            let seen = format_args!(
                "the slot of post {expected} has post {found}, and the device has not seen post {expected}"
            );
            book.broken("slot-free", port, seen);
        } else if found != last {
            let seen = format_args!("the slot of post {expected} has number {found}");
            book.broken("launch-number", port, seen);
        } else if let Some(later) = later {
            let seen = format_args!("post {later} is there, and post {expected} is not");
            book.broken("launch-number", port, seen);
        } else {
            return;
        }
        self.misnumbered = Some(expected);
    }

    /// The device has read a changed register. The model has stored `delivered` slices so far.
    pub fn on_register(&mut self, register: Register, delivered: u64, book: &mut Book) {
        book.note(Operation::Register { port: self.number, register });
        let Register::Released(slices) = register else { return };
        let port = Some(self.number);
        if slices < self.released {
            let before = self.released;
            book.broken(
                "release-number",
                port,
                format_args!("`released` decreased from {before} to {slices}"),
            );
        } else if let Some(stored) = self.stored.map(|stored| stored.max(delivered))
            && slices > stored
        {
            let seen = format_args!("{slices} slices are released, and the device has stored {stored}");
            book.broken("release-number", port, seen);
        }
        self.released = slices;
    }

    /// The device is about to store words. False if they are outside this port's memory.
    pub fn on_write(
        &mut self,
        memory: &DmaMemory,
        pages: &Pages,
        address: u64,
        words: &[u64],
        book: &mut Book,
    ) -> bool {
        let Some((changed, stored)) =
            self.memory.as_mut().and_then(|own| own.on_write(memory, address, words))
        else {
            return false;
        };
        self.touched(changed, book);
        match stored {
            Stored::Slices { count, last_status } => {
                self.check_event(last_status, book);
                let number = self.stored.map_or(count, |stored| stored + count);
                self.stored = self.stored.map(|_| number);
                if count > 0 {
                    book.note(Operation::Slice { port: self.number, number });
                }
            }
            Stored::Status(line) => self.on_status(pages, &line, book),
        }
        true
    }

    /// The device is about to store an event, which says whether a command of this port was valid.
    fn check_event(&self, status: Option<u64>, book: &mut Book) {
        let Some(status) = status.filter(|status| self.has_lists && event_kind(*status) == EVENT_REFUSED)
        else {
            return;
        };
        let result = match event_result(status) {
            RESULT_BAD_VALUE => "RESULT_BAD_VALUE",
            RESULT_BAD_COMMAND => "RESULT_BAD_COMMAND",
            _ => return,
        };
        book.broken(
            "command-fields",
            Some(self.number),
            format_args!("an event reports EVENT_REFUSED with {result}"),
        );
    }

    /// The driver closes the port. Its memory belongs to the device until the reply, and all posts have had their
    /// doorbell.
    pub fn on_closing(
        &mut self,
        memory: &DmaMemory,
        pages: &Pages,
        bell: impl FnOnce() -> Option<Bell>,
        book: &mut Book,
    ) {
        self.check_memory(memory, book);
        if self.batches {
            self.check_doorbell(pages, 0, bell, book);
        }
    }

    /// Checks all of the port's memory.
    pub fn check_memory(&mut self, memory: &DmaMemory, book: &mut Book) {
        let changed = self.memory.as_mut().and_then(|own| own.changed(memory));
        self.touched(changed, book);
    }

    fn touched(&self, changed: Option<Changed>, book: &mut Book) {
        if let Some(Changed { address, was, is }) = changed {
            let seen = format_args!(
                "the word at {address:#x} was {was:#x} and is {is:#x}, and the device did not store it"
            );
            book.broken("port-memory-untouched", Some(self.number), seen);
        }
    }

    /// The status line is about to report slots as taken. Until now they belonged to the device.
    fn on_status(&mut self, pages: &Pages, line: &StatusLine, book: &mut Book) {
        book.note(Operation::Status { port: self.number, launched: line.launched });
        let last = line.launched.min(self.taken);
        // Only the last copy remains of a slot that was reused too early.
        for number in (self.reported + 1).max(last.saturating_sub(u64::from(SLOTS) - 1))..=last {
            let sequence = number as u32;
            let is = Slot::load(pages, self.number, sequence);
            if let Some(was) = self.slots.get(slot_of(sequence) as usize) {
                self.compare(sequence, was, &is, book);
            }
        }
        self.reported = self.reported.max(last);
        let is_refusal = line.refused > self.refused;
        self.refused = self.refused.max(line.refused);
        let refusal = match line.refusal {
            REFUSED_RESERVED_BITS => "REFUSED_RESERVED_BITS",
            REFUSED_LENGTH => "REFUSED_LENGTH",
            REFUSED_HEADER => "REFUSED_HEADER",
            _ => return,
        };
        if is_refusal {
            book.broken("launch-code", Some(self.number), format_args!("the status line reports {refusal}"));
        }
    }
}
