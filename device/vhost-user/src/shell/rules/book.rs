//! The rules that a node broke, and its operations before each.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use niclab_abi::rules::{self, Rule};
use niclab_abi::{control, firmware, grim, inic, matching, region, rings};
use niclab_model::nic::Register;
use niclab_model::time::Time;
use niclab_spec::report::BrokenRule;
use parking_lot::{Condvar, Mutex};

use crate::shell::events::cause_name;

/// Max entries of the log. (The attack: a guest breaks rules without end.)
const MAX_LOG: usize = 64;
/// Max log entries for one rule; further ones are only counted. So a rule that is broken all the time leaves room for
/// others, and costs no formatting.
const MAX_LOGGED_OF_RULE: u64 = 16;
/// Operations that an entry shows.
const OPERATIONS: usize = 8;

/// Wakes the threads that wait for the next broken rule of any node.
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

    /// Waits until more than `seen` rules are broken, but not longer than `wall`. Returns the number of broken rules.
    pub fn wait(&self, seen: u64, wall: Duration) -> u64 {
        let mut total = self.total.lock();
        self.more.wait_while_for(&mut total, |total| *total <= seen, wall);
        *total
    }
}

/// An operation of a node, or of its card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The driver or the guest reset the device.
    Reset,
    /// The card took a request.
    Request(u32),
    /// The card replied with this status.
    Reply(u32, u32),
    /// The card took a post.
    Launch { port: u32, number: u64, code: u32 },
    /// The card read a changed register.
    Register { port: u32, register: Register },
    /// The driver rang the doorbell this often.
    Doorbells(u64),
    /// The card stored a slice or an event.
    Slice { port: u32, number: u64 },
    /// The card stored the status line.
    Status { port: u32, launched: u64 },
    /// The card reported an event.
    Event { cause: u32, port: u32 },
    /// The card took a descriptor of a ring.
    Descriptor { ring: u32, address: u64 },
    /// The card returned a descriptor of a ring.
    GivenBack { ring: u32, address: u64, status: u32 },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Reset => write!(f, "the device was reset"),
            Self::Request(operation) => write!(f, "request {}", Named(operation)),
            Self::Reply(operation, status) => write!(f, "reply to {}: status {status}", Named(operation)),
            Self::Launch { port, number, code } => write!(f, "port {port}: post {number}, code {code:#x}"),
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
            Self::Event { cause, port } => write!(f, "port {port}: the card reported {}", cause_name(cause)),
            Self::Descriptor { ring, address } => {
                write!(f, "{} ring: the card took the descriptor at {address:#x}", ring_name(ring))
            }
            Self::GivenBack { ring, address, status } => {
                write!(
                    f,
                    "{} ring: the card returned the descriptor at {address:#x}, status {status:#x}",
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
            matching::OP_SPILL_OPEN => "OP_SPILL_OPEN",
            firmware::OP_FIRMWARE_LOAD => "OP_FIRMWARE_LOAD",
            inic::OP_POST_RULES => "OP_POST_RULES",
            inic::OP_POST_GROUP => "OP_POST_GROUP",
            grim::OP_CHANNEL_PAYLOAD => "OP_CHANNEL_PAYLOAD",
            grim::OP_CHANNEL_EXPOSE => "OP_CHANNEL_EXPOSE",
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

/// The rules that a node has broken.
#[derive(Debug)]
pub struct Book {
    alarm: Arc<Alarm>,
    started: Instant,
    counts: BTreeMap<&'static str, u64>,
    total: u64,
    log: VecDeque<BrokenRule>,
    operations: VecDeque<Operation>,
    /// The host's clock at the last [`Book::at`].
    now: Time,
}

impl Book {
    /// A book without a broken rule.
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

    /// The latest broken rules.
    pub fn log(&self) -> impl Iterator<Item = &BrokenRule> {
        self.log.iter()
    }

    /// Records where the guest was when it broke this rule, if the log still has the entry.
    pub fn place(&mut self, number: u64, guest_at: &str) {
        if let Some(entry) = self.log.iter_mut().find(|entry| entry.number == number) {
            entry.guest_at = Some(guest_at.to_owned());
        }
    }

    /// Sets the host's clock.
    pub fn at(&mut self, now: Time) {
        self.now = now;
    }

    /// Records an operation.
    pub(super) fn note(&mut self, operation: Operation) {
        if self.operations.len() >= OPERATIONS {
            self.operations.pop_front();
        }
        self.operations.push_back(operation);
    }

    /// Records that the rule `name` was broken. `seen` is the proof.
    pub fn broken(&mut self, name: &'static str, port: Option<u32>, seen: impl fmt::Display) {
        let rule = rules::rule(name);
        debug_assert!(rule.is_some_and(Rule::is_checked), "`{name}` is not a checked rule");
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
    fn log_and_operations_of_broken_rules_are_bounded() {
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
    fn alarm_wait_ends_at_a_broken_rule_or_at_the_timeout() {
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
