//! What a program does: a state machine that says what to send next, and hears what arrived.

use std::collections::BTreeMap;

use niclab_model::fabric::faults::Random;
use niclab_model::time::{Span, Time};
use niclab_observe::recording::Recorded;
use niclab_spec::Workload;

use crate::plan::FlowId;
use crate::recording::Route;

/// A message that a program wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Over which flow.
    pub flow: FlowId,
    /// Payload.
    pub bytes: u32,
    /// Whether it interrupts its receiver.
    pub interrupts: bool,
    /// Not before this.
    pub not_before: Time,
}

/// The messages that each flow still has to carry, in turns.
#[derive(Clone, Debug)]
struct Burst {
    flows: Vec<(FlowId, u64)>,
    /// Whose turn it is.
    turn: usize,
}

/// What is drawn for the next message of a random program.
#[derive(Clone, Debug)]
struct Dice {
    flows: Vec<FlowId>,
    left: u64,
    random: Random,
    next: Option<(FlowId, u32)>,
}

#[derive(Clone, Debug)]
enum Role {
    /// Sends nothing.
    Idle,
    /// Sends as fast as it can; what arrives beside is received.
    Burst(Burst),
    /// Sends one and waits for the answer, `left` times.
    Ping { flow: FlowId, left: u64, is_waiting: bool },
    /// Answers each message.
    Pong { flow: FlowId, left: u64, due: u64 },
    /// Receives `left` messages, then sends one without payload.
    Confirm { flow: FlowId, left: u64, is_due: bool },
    /// Sends what the dice say.
    Random(Dice),
    /// Sends what was recorded.
    Replay { messages: Vec<(Time, Outgoing)>, next: usize, begin: Option<Time> },
}

/// A program.
#[derive(Clone, Debug)]
pub struct Script {
    role: Role,
    bytes: u32,
    interrupt_every: u64,
    /// Messages sent over each flow, where some interrupt.
    sent: BTreeMap<FlowId, u64>,
}

impl Script {
    /// Sends nothing, receives what comes.
    #[must_use]
    pub const fn idle() -> Self {
        Self { role: Role::Idle, bytes: 0, interrupt_every: 0, sent: BTreeMap::new() }
    }

    const fn new(workload: &Workload, role: Role) -> Self {
        Self {
            role,
            bytes: workload.message_bytes,
            interrupt_every: workload.interrupt_every,
            sent: BTreeMap::new(),
        }
    }

    /// The first end of a ping-pong of `count` round trips.
    #[must_use]
    pub const fn ping(workload: &Workload, flow: FlowId, count: u64) -> Self {
        Self::new(workload, Role::Ping { flow, left: count, is_waiting: false })
    }

    /// The second end.
    #[must_use]
    pub const fn pong(workload: &Workload, flow: FlowId, count: u64) -> Self {
        Self::new(workload, Role::Pong { flow, left: count, due: 0 })
    }

    /// Sends `count` messages over each flow.
    #[must_use]
    pub fn burst(workload: &Workload, flows: Vec<FlowId>, count: u64) -> Self {
        let flows = flows.into_iter().map(|flow| (flow, count)).collect();
        Self::new(workload, Role::Burst(Burst { flows, turn: 0 }))
    }

    /// Receives `count` messages and confirms the last.
    #[must_use]
    pub const fn confirm(workload: &Workload, flow: FlowId, count: u64) -> Self {
        Self::new(workload, Role::Confirm { flow, left: count, is_due: count == 0 })
    }

    /// Sends `count` messages of random sizes over random flows.
    #[must_use]
    pub const fn random(workload: &Workload, flows: Vec<FlowId>, count: u64, random: Random) -> Self {
        Self::new(workload, Role::Random(Dice { flows, left: count, random, next: None }))
    }

    /// Sends what was recorded; `flow_of` knows the flow of a route.
    #[must_use]
    pub fn replay(recorded: &[Recorded], flow_of: impl Fn(Route) -> Option<FlowId>) -> Self {
        let outgoing = |message: &Recorded| {
            let flow = flow_of(Route::of(message))?;
            let at = Time::from_ps(message.model_time_ps);
            let not_before = Time::ZERO;
            Some((at, Outgoing { flow, bytes: message.bytes, interrupts: message.interrupt, not_before }))
        };
        let messages = recorded.iter().filter_map(outgoing).collect();
        let role = Role::Replay { messages, next: 0, begin: None };
        Self { role, bytes: 0, interrupt_every: 0, sent: BTreeMap::new() }
    }

    /// The program starts at `now`.
    pub fn begin(&mut self, now: Time) {
        if let Role::Replay { begin, .. } = &mut self.role {
            *begin = Some(now);
        }
    }

    /// What it wants to send next over a flow that is not blocked; the same until [`Self::on_sent`].
    pub fn next(&mut self, is_blocked: impl Fn(FlowId) -> bool) -> Option<Outgoing> {
        let bytes = self.bytes;
        let (flow, bytes, not_before) = match &mut self.role {
            Role::Idle => return None,
            Role::Burst(burst) => (burst.next(&is_blocked)?, bytes, Time::ZERO),
            Role::Ping { flow, left: 1.., is_waiting: false } => (*flow, bytes, Time::ZERO),
            Role::Pong { flow, due: 1.., .. } => (*flow, bytes, Time::ZERO),
            Role::Confirm { flow, is_due: true, .. } => (*flow, 0, Time::ZERO),
            Role::Ping { .. } | Role::Pong { .. } | Role::Confirm { .. } => return None,
            Role::Random(dice) => {
                let (flow, bytes) = dice.next(bytes)?;
                (flow, bytes, Time::ZERO)
            }
            Role::Replay { messages, next, begin } => {
                let &(at, outgoing) = messages.get(*next)?;
                let not_before = (*begin)? + Span::from_ps(at.as_ps());
                return (!is_blocked(outgoing.flow)).then_some(Outgoing { not_before, ..outgoing });
            }
        };
        if is_blocked(flow) {
            return None;
        }
        let interrupts =
            self.interrupt_every != 0 && (self.sent_over(flow) + 1).is_multiple_of(self.interrupt_every);
        Some(Outgoing { flow, bytes, interrupts, not_before })
    }

    fn sent_over(&self, flow: FlowId) -> u64 {
        self.sent.get(&flow).copied().unwrap_or(0)
    }

    /// What [`Self::next`] said was sent.
    pub fn on_sent(&mut self, flow: FlowId) {
        if self.interrupt_every != 0 {
            *self.sent.entry(flow).or_default() += 1;
        }
        match &mut self.role {
            Role::Idle => {}
            Role::Burst(burst) => burst.on_sent(flow),
            Role::Ping { left, is_waiting, .. } => {
                *left -= 1;
                *is_waiting = true;
            }
            Role::Pong { due, left, .. } => {
                *due -= 1;
                *left = left.saturating_sub(1);
            }
            Role::Confirm { is_due, .. } => *is_due = false,
            Role::Random(dice) => {
                dice.left -= 1;
                dice.next = None;
            }
            Role::Replay { next, .. } => *next += 1,
        }
    }

    /// A message arrived.
    pub fn on_received(&mut self) {
        match &mut self.role {
            Role::Ping { is_waiting, .. } => *is_waiting = false,
            Role::Pong { due, .. } => *due += 1,
            Role::Confirm { left, is_due, .. } if *left > 0 => {
                *left -= 1;
                *is_due = *left == 0;
            }
            _ => {}
        }
    }

    /// Nothing is under way and nothing will come: the program's time-out, where something was lost. True when it goes on.
    pub fn on_silence(&mut self) -> bool {
        match &mut self.role {
            Role::Ping { is_waiting, left, .. } => std::mem::replace(is_waiting, false) && *left > 0,
            Role::Confirm { left: left @ 1.., is_due, .. } => {
                *left = 0;
                *is_due = true;
                true
            }
            _ => false,
        }
    }

    /// Messages that it still has to send, as far as it knows.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        match &self.role {
            Role::Idle => 0,
            Role::Burst(burst) => burst.flows.iter().map(|(_, left)| left).sum(),
            Role::Ping { left, .. } => *left,
            Role::Pong { due, .. } => *due,
            Role::Confirm { is_due, .. } => u64::from(*is_due),
            Role::Random(dice) => dice.left,
            Role::Replay { messages, next, .. } => (messages.len() - next) as u64,
        }
    }
}

impl Burst {
    fn next(&self, is_blocked: impl Fn(FlowId) -> bool) -> Option<FlowId> {
        let (before, after) = self.flows.split_at_checked(self.turn)?;
        let mut turns = after.iter().chain(before);
        turns.find(|(flow, left)| *left > 0 && !is_blocked(*flow)).map(|(flow, _)| *flow)
    }

    fn on_sent(&mut self, flow: FlowId) {
        if let Some(place) = self.flows.iter().position(|(id, _)| *id == flow) {
            self.flows[place].1 -= 1;
            self.turn = (place + 1) % self.flows.len();
        }
    }
}

impl Dice {
    fn next(&mut self, most_bytes: u32) -> Option<(FlowId, u32)> {
        if self.left == 0 {
            return None;
        }
        let (flows, random) = (&self.flows, &mut self.random);
        let roll = || {
            let flow = *flows.get(random.below(flows.len() as u32) as usize)?;
            Some((flow, 8 * random.below(most_bytes / 8 + 1)))
        };
        self.next = self.next.or_else(roll);
        self.next
    }
}
