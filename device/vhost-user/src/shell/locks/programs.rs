//! Programs in lockstep: their states, and the events that are due ([`crate::shell::lockstep`]).

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use niclab_model::fabric::Transit;
use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::nic::DmaWords;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};

use crate::shell::pages::Launch;

/// A frame of a model in flight.
#[derive(Clone, Debug)]
pub struct FrameInFlight {
    /// The frame.
    pub frame: SharedFrame,
    /// The message that it carries.
    pub message: Option<TraceTag>,
    /// When its first and its last byte are there.
    pub passage: Passage,
    /// Whether it is for cards, Ethernet functions or MAC endpoints.
    pub class: FrameClass,
}

/// An event. The order is that of the simulator's queue: arrivals precede all other events of a node at the same time.
#[derive(Debug)]
pub enum Event {
    /// A frame has arrived completely.
    Arrive(FrameInFlight),
    /// A frame is ready for its sender's link.
    Depart(FrameInFlight),
    /// A frame has crossed the switch, and is ready for the next link.
    Cross(FrameInFlight, Transit),
    /// Words that a card wrote are visible. A record is, once the host has read it into its cache.
    Show {
        /// The guest-physical address.
        address: u64,
        /// What the card wrote.
        words: DmaWords,
        /// It is a completion record.
        is_record: bool,
    },
}

/// An event that is due.
#[derive(Debug)]
pub struct Due {
    /// When.
    pub at: Time,
    is_arrival: bool,
    /// The node at which it happens.
    pub node: u16,
    /// The node that caused it.
    pub cause: u16,
    order: u64,
    /// The event.
    pub event: Event,
}

impl Due {
    const fn key(&self) -> (Time, bool, u16, u16, u64) {
        (self.at, !self.is_arrival, self.node, self.cause, self.order)
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The state of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not take part.
    Away,
    /// It waits for the others to begin.
    Ready,
    /// It has the grant.
    Acting,
    /// It found nothing to do.
    Idle,
    /// It wants a grant at this instant or later.
    Wants(Time),
}

/// The program of a node.
#[derive(Debug)]
pub struct Program {
    /// Its state.
    pub state: State,
    /// The port through which it gets grants.
    pub port: u32,
    /// Grants so far.
    pub grants: u64,
    /// The latest event of the node.
    pub now: Time,
    /// Posted slots that the card has no room for yet, and when the program posted them.
    pub waiting: VecDeque<(Time, Launch)>,
}

/// All programs in lockstep, and the events between them.
#[derive(Debug)]
pub struct Lockstep {
    /// The programs, by node.
    pub programs: Vec<Program>,
    queue: BinaryHeap<Reverse<Due>>,
    order: u64,
    /// A lockstep run has begun, and is not complete.
    pub is_running: bool,
    /// A count of posts and deliveries, and when it last changed.
    pub progress: (u64, Time),
}

impl Lockstep {
    /// No program is ready.
    pub fn new(nodes: usize) -> Self {
        let program =
            || Program { state: State::Away, port: 0, grants: 0, now: Time::ZERO, waiting: VecDeque::new() };
        Self {
            programs: std::iter::repeat_with(program).take(nodes).collect(),
            queue: BinaryHeap::new(),
            order: 0,
            is_running: false,
            progress: (0, Time::ZERO),
        }
    }

    /// Adds an event at `node`, which `cause` caused.
    pub fn push(&mut self, at: Time, node: u16, cause: u16, event: Event) {
        self.order += 1;
        let is_arrival = matches!(event, Event::Arrive(_));
        self.queue.push(Reverse(Due { at, is_arrival, node, cause, order: self.order, event }));
    }

    /// When the next event is due.
    pub fn next_event(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse(due)| due.at)
    }

    /// Removes the next event.
    pub fn pop(&mut self) -> Option<Due> {
        self.queue.pop().map(|Reverse(due)| due)
    }

    /// The number of events.
    pub fn events(&self) -> usize {
        self.queue.len()
    }
}
