//! What was broken, and what the node did before.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use niclab_abi::rules::{self, Rule};
use niclab_abi::{channels, control, firmware, lists, posts, region, rings};
use niclab_model::nic::Register;
use niclab_model::time::Time;
use niclab_spec::report::BrokenRule;
use parking_lot::{Condvar, Mutex};

use crate::shell::events::cause_name;

/// Entries of the log. (The attack: a guest that breaks rules without end.)
const MAX_LOG: usize = 64;
/// Of one rule so many are logged; then they are only counted, so that one that is broken all the time leaves room for
/// others, and costs no words.
const MAX_LOGGED_OF_RULE: u64 = 16;
/// Operations that an entry shows.
const OPERATIONS: usize = 8;

/// Wakes whoever waits for the next rule to be broken, on any node.
#[derive(Debug, Default)]
pub struct Alarm {
    total: Mutex<u64>,
    more: Condvar,
}

impl Alarm {
    fn ring(&self) {
        *self.total.lock() += 1;
        self.more.notify_all();
    }

    /// Rules broken so far.
    pub fn total(&self) -> u64 {
        *self.total.lock()
    }

    /// Waits until more were broken than `seen`, at most so long.
    pub fn wait(&self, seen: u64, wall: Duration) -> u64 {
        let mut total = self.total.lock();
        self.more.wait_while_for(&mut total, |total| *total <= seen, wall);
        *total
    }
}

/// Something that a node, or its card for it, did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The driver, or the guest, began anew.
    Reset,
    /// A request was taken.
    Request(u32),
    /// It was answered.
    Reply(u32, u32),
    /// A slot was taken.
    Launch { port: u32, number: u64, code: u32 },
    /// A register was read that had changed.
    Register { port: u32, register: Register },
    /// So many doorbells were heard.
    Doorbells(u64),
    /// A slice or an event was stored.
    Slice { port: u32, number: u64 },
    /// The status line was stored.
    Status { port: u32, launched: u64 },
    /// An event was told.
    Event { cause: u32, port: u32 },
    /// A descriptor of a ring was taken.
    Descriptor { ring: u32, address: u64 },
    /// A descriptor of a ring was given back.
    GivenBack { ring: u32, address: u64, status: u32 },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Reset => write!(f, "the device was reset"),
            Self::Request(operation) => write!(f, "request {}", Named(operation)),
            Self::Reply(operation, status) => write!(f, "answer to {}: status {status}", Named(operation)),
            Self::Launch { port, number, code } => write!(f, "port {port}: launch {number}, code {code:#x}"),
            Self::Register { port, register } => match register {
                Register::Released(slices) => write!(f, "port {port}: released {slices}"),
                Register::Armed(slice) => write!(f, "port {port}: armed {slice}"),
                Register::ReleaseInterval(slices) => write!(f, "port {port}: release_interval {slices}"),
            },
            Self::Doorbells(rings) => write!(f, "doorbell, {rings} times"),
            Self::Slice { port, number } => write!(f, "port {port}: the card stored slice {number}"),
            Self::Status { port, launched } => {
                write!(f, "port {port}: the card stored the status line, launched {launched}")
            }
            Self::Event { cause, port } => write!(f, "port {port}: the card told {}", cause_name(cause)),
            Self::Descriptor { ring, address } => {
                write!(f, "{} ring: the card took the descriptor at {address:#x}", ring_name(ring))
            }
            Self::GivenBack { ring, address, status } => {
                write!(
                    f,
                    "{} ring: the card gave the descriptor at {address:#x} back, status {status:#x}",
                    ring_name(ring)
                )
            }
        }
    }
}

/// The name of a descriptor ring.
pub(super) const fn ring_name(ring: u32) -> &'static str {
    if ring == rings::RING_TRANSMIT { "transmit" } else { "receive" }
}

/// An operation of the control queue, by the name of its constant.
pub(super) struct Named(pub u32);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            control::OP_PING => "OP_PING",
            control::OP_PORT_OPEN => "OP_PORT_OPEN",
            control::OP_PORT_CLOSE => "OP_PORT_CLOSE",
            control::OP_ROUTE => "OP_ROUTE",
            control::OP_AUTHORIZE => "OP_AUTHORIZE",
            control::OP_REVOKE => "OP_REVOKE",
            control::OP_COUNTERS => "OP_COUNTERS",
            control::OP_RESET => "OP_RESET",
            region::OP_REGION_OPEN => "OP_REGION_OPEN",
            region::OP_REGION_EXTEND => "OP_REGION_EXTEND",
            region::OP_REGION_CLOSE => "OP_REGION_CLOSE",
            lists::OP_SPILL_OPEN => "OP_SPILL_OPEN",
            firmware::OP_FIRMWARE_LOAD => "OP_FIRMWARE_LOAD",
            posts::OP_POST_RULES => "OP_POST_RULES",
            posts::OP_POST_GROUP => "OP_POST_GROUP",
            channels::OP_CHANNEL_PAYLOAD => "OP_CHANNEL_PAYLOAD",
            channels::OP_CHANNEL_EXPOSE => "OP_CHANNEL_EXPOSE",
            rings::OP_RING_START => "OP_RING_START",
            rings::OP_RING_STOP => "OP_RING_STOP",
            rings::OP_RING_INTERRUPTS => "OP_RING_INTERRUPTS",
            rings::OP_RING_TERMS => "OP_RING_TERMS",
            rings::OP_FIFO_LOOK => "OP_FIFO_LOOK",
            rings::OP_FIFO_TAKE => "OP_FIFO_TAKE",
            rings::OP_FIFO_SEND => "OP_FIFO_SEND",
            other => return write!(f, "{other}"),
        };
        f.write_str(name)
    }
}

/// What a node has broken.
#[derive(Debug)]
pub struct Book {
    alarm: Arc<Alarm>,
    started: Instant,
    counts: BTreeMap<&'static str, u64>,
    total: u64,
    log: VecDeque<BrokenRule>,
    operations: VecDeque<Operation>,
    /// The host's clock, when it was looked at last.
    now: Time,
}

impl Book {
    /// Nothing is broken.
    pub fn new(alarm: &Arc<Alarm>, started: Instant) -> Self {
        Self {
            alarm: Arc::clone(alarm),
            started,
            counts: BTreeMap::new(),
            total: 0,
            log: VecDeque::new(),
            operations: VecDeque::with_capacity(OPERATIONS),
            now: Time::ZERO,
        }
    }

    /// How often each rule was broken.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts.iter().map(|(name, count)| (*name, *count))
    }

    /// The last of them.
    pub fn log(&self) -> impl Iterator<Item = &BrokenRule> {
        self.log.iter()
    }

    /// The guest was there when this was broken. Nothing where it is in the log no more.
    pub fn place(&mut self, number: u64, guest_at: &str) {
        if let Some(entry) = self.log.iter_mut().find(|entry| entry.number == number) {
            entry.guest_at = Some(guest_at.to_owned());
        }
    }

    /// The host's clock.
    pub fn at(&mut self, now: Time) {
        self.now = now;
    }

    /// This was done.
    pub(super) fn note(&mut self, operation: Operation) {
        if self.operations.len() >= OPERATIONS {
            self.operations.pop_front();
        }
        self.operations.push_back(operation);
    }

    /// The rule of this name was broken; `seen` is proof.
    pub fn broken(&mut self, name: &'static str, port: Option<u32>, seen: impl fmt::Display) {
        let rule = rules::rule(name);
        debug_assert!(rule.is_some_and(Rule::is_checked), "{name} is no rule that is checked");
        let Some(rule) = rule else { return };
        self.total += 1;
        let count = self.counts.entry(rule.name).or_insert(0);
        *count += 1;
        if *count <= MAX_LOGGED_OF_RULE {
            self.enter(rule, port, &seen);
        }
        self.alarm.ring();
    }

    #[cold]
    fn enter(&mut self, rule: &Rule, port: Option<u32>, seen: &impl fmt::Display) {
        if self.log.len() >= MAX_LOG {
            self.log.pop_front();
        }
        let entry = BrokenRule {
            number: self.total,
            rule: rule.name.to_owned(),
            section: rule.section,
            port,
            seen: seen.to_string(),
            model_time_ps: self.now.as_ps(),
            wall_since_start_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            operations: self.operations.iter().map(Operation::to_string).collect(),
            guest_at: None,
        };
        log::debug!("rule {} broken: {}", entry.rule, entry.seen);
        self.log.push_back(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_breaks_rules_without_end_fills_no_memory() {
        let alarm = Arc::default();
        let mut book = Book::new(&alarm, Instant::now());
        let names: Vec<&str> = rules::all().filter(|rule| rule.is_checked()).map(|rule| rule.name).collect();
        for round in 0..10_000_u64 {
            book.note(Operation::Doorbells(round));
            book.broken(names[round as usize % names.len()], Some(1), format_args!("round {round}"));
        }
        assert_eq!(alarm.total(), 10_000);
        assert_eq!(book.counts().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert!(book.log().count() <= MAX_LOG && book.operations.len() <= OPERATIONS);
        let last = book.log().last().unwrap().clone();
        book.place(last.number, "near here");
        book.place(1, "long gone");
        let placed: Vec<&BrokenRule> = book.log().filter(|entry| entry.guest_at.is_some()).collect();
        assert_eq!(placed.len(), 1);
        assert_eq!((placed[0].number, placed[0].guest_at.as_deref()), (last.number, Some("near here")));
        assert_eq!(
            (last.operations.len(), last.number),
            (OPERATIONS, names.len() as u64 * MAX_LOGGED_OF_RULE)
        );
    }

    #[test]
    fn whoever_waits_is_told_at_once_or_at_the_end_of_its_patience() {
        let alarm: Arc<Alarm> = Arc::default();
        assert_eq!(alarm.wait(0, Duration::from_millis(1)), 0);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| alarm.wait(0, Duration::from_secs(100)));
            alarm.ring();
            assert_eq!(waits.join().unwrap(), 1);
        });
        assert!(begin.elapsed() < Duration::from_secs(50));
    }
}
