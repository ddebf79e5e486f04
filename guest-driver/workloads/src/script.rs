//! What a program does: a state machine that decides what to send next and is notified of each arrival.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use niclab_random::Random;

use crate::FlowId;

/// A message that a program wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The flow.
    pub flow: FlowId,
    /// Payload.
    pub bytes: u32,
    /// Whether it interrupts its receiver.
    pub interrupts: bool,
    /// The earliest instant of model time at which it may be sent.
    pub not_before_ps: u64,
}

/// The properties that all messages of a program share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Payload of a message, or the maximum if sizes are drawn.
    pub bytes: u32,
    /// Each n-th message of a flow interrupts its receiver; 0: none does.
    pub interrupt_every: u64,
}

/// The messages that each flow still has to carry, in round-robin order.
#[derive(Clone, Debug)]
struct Burst {
    flows: Vec<(FlowId, u64)>,
    /// The place of the next flow in the order.
    turn: usize,
}

/// The flow and size drawn for the next message of a random program.
#[derive(Clone, Debug)]
struct Sampler {
    flows: Vec<FlowId>,
    left: u64,
    random: Random,
    next: Option<(FlowId, u32)>,
}

#[derive(Clone, Debug)]
enum Role {
    /// Sends nothing.
    Idle,
    /// Sends as fast as it can, and receives what arrives meanwhile.
    Burst(Burst),
    /// Sends one message and waits for the answer, `left` times.
    Ping { flow: FlowId, left: u64, is_waiting: bool },
    /// Answers each message.
    Pong { flow: FlowId, left: u64, due: u64 },
    /// Receives `left` messages, then sends one without payload.
    Confirm { flow: FlowId, left: u64, is_due: bool },
    /// Sends drawn messages.
    Random(Sampler),
    /// Sends recorded messages.
    Replay { messages: Vec<Outgoing>, next: usize, begin_ps: Option<u64> },
}

/// A program.
#[derive(Clone, Debug)]
pub struct Script {
    role: Role,
    bytes: u32,
    interrupt_every: u64,
    /// Messages sent over each flow; counted only if some interrupt.
    sent: BTreeMap<FlowId, u64>,
}

impl Script {
    /// Sends nothing and receives what arrives.
    #[must_use]
    pub const fn idle() -> Self {
        Self { role: Role::Idle, bytes: 0, interrupt_every: 0, sent: BTreeMap::new() }
    }

    const fn new(sizes: Sizes, role: Role) -> Self {
        let Sizes { bytes, interrupt_every } = sizes;
        Self { role, bytes, interrupt_every, sent: BTreeMap::new() }
    }

    /// The first end of a ping-pong of `count` round trips.
    #[must_use]
    pub const fn ping(sizes: Sizes, flow: FlowId, count: u64) -> Self {
        Self::new(sizes, Role::Ping { flow, left: count, is_waiting: false })
    }

    /// The second end of a ping-pong.
    #[must_use]
    pub const fn pong(sizes: Sizes, flow: FlowId, count: u64) -> Self {
        Self::new(sizes, Role::Pong { flow, left: count, due: 0 })
    }

    /// Sends `count` messages over each flow.
    #[must_use]
    pub fn burst(sizes: Sizes, flows: Vec<FlowId>, count: u64) -> Self {
        let flows = flows.into_iter().map(|flow| (flow, count)).collect();
        Self::new(sizes, Role::Burst(Burst { flows, turn: 0 }))
    }

    /// Receives `count` messages and confirms the last.
    #[must_use]
    pub const fn confirm(sizes: Sizes, flow: FlowId, count: u64) -> Self {
        Self::new(sizes, Role::Confirm { flow, left: count, is_due: count == 0 })
    }

    /// Sends `count` messages of random sizes over random flows.
    #[must_use]
    pub const fn random(sizes: Sizes, flows: Vec<FlowId>, count: u64, random: Random) -> Self {
        Self::new(sizes, Role::Random(Sampler { flows, left: count, random, next: None }))
    }

    /// Sends these messages. The time of each counts from the start of the program.
    #[must_use]
    pub const fn replay(messages: Vec<Outgoing>) -> Self {
        let role = Role::Replay { messages, next: 0, begin_ps: None };
        Self { role, bytes: 0, interrupt_every: 0, sent: BTreeMap::new() }
    }

    /// The program starts at `now_ps`.
    pub const fn begin(&mut self, now_ps: u64) {
        if let Role::Replay { begin_ps, .. } = &mut self.role {
            *begin_ps = Some(now_ps);
        }
    }

    /// The next message over a flow that is not blocked. The answer is the same until [`Self::on_sent`].
    pub fn next(&mut self, is_blocked: impl Fn(FlowId) -> bool) -> Option<Outgoing> {
        let bytes = self.bytes;
        let (flow, bytes) = match &mut self.role {
            Role::Idle => return None,
            // The burst itself picks a flow that is not blocked.
            Role::Burst(burst) => return burst.next(is_blocked).map(|flow| self.outgoing(flow, bytes)),
            Role::Ping { flow, left: 1.., is_waiting: false } => (*flow, bytes),
            Role::Pong { flow, due: 1.., .. } => (*flow, bytes),
            Role::Confirm { flow, is_due: true, .. } => (*flow, 0),
            Role::Ping { .. } | Role::Pong { .. } | Role::Confirm { .. } => return None,
            Role::Random(sampler) => sampler.next(bytes)?,
            Role::Replay { messages, next, begin_ps } => {
                let outgoing = *messages.get(*next)?;
                let not_before_ps = begin_ps.as_ref()?.saturating_add(outgoing.not_before_ps);
                return (!is_blocked(outgoing.flow)).then_some(Outgoing { not_before_ps, ..outgoing });
            }
        };
        (!is_blocked(flow)).then(|| self.outgoing(flow, bytes))
    }

    fn outgoing(&self, flow: FlowId, bytes: u32) -> Outgoing {
        let interrupts =
            self.interrupt_every != 0 && (self.sent_over(flow) + 1).is_multiple_of(self.interrupt_every);
        Outgoing { flow, bytes, interrupts, not_before_ps: 0 }
    }

    fn sent_over(&self, flow: FlowId) -> u64 {
        self.sent.get(&flow).copied().unwrap_or(0)
    }

    /// The message that [`Self::next`] returned was sent.
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
            Role::Random(sampler) => sampler.on_sent(),
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

    /// Nothing is in flight and nothing will arrive: the program's timeout after a loss. Returns whether the program
    /// continues.
    pub fn on_silence(&mut self) -> bool {
        match &mut self.role {
            Role::Ping { is_waiting, left, .. } => core::mem::replace(is_waiting, false) && *left > 0,
            Role::Confirm { left: left @ 1.., is_due, .. } => {
                *left = 0;
                *is_due = true;
                true
            }
            _ => false,
        }
    }

    /// Messages that the program will have sent over each flow at its end if none is lost.
    #[must_use]
    pub fn messages(&self) -> BTreeMap<FlowId, u64> {
        let mut messages = BTreeMap::new();
        let mut add = |flow: FlowId, count: u64| *messages.entry(flow).or_default() += count;
        match &self.role {
            Role::Idle => {}
            Role::Ping { flow, left, .. } | Role::Pong { flow, left, .. } => add(*flow, *left),
            Role::Confirm { flow, .. } => add(*flow, 1),
            Role::Burst(burst) => burst.flows.iter().for_each(|(flow, left)| add(*flow, *left)),
            Role::Random(sampler) => {
                let mut sampler = sampler.clone();
                while let Some((flow, _)) = sampler.next(self.bytes) {
                    add(flow, 1);
                    sampler.on_sent();
                }
            }
            Role::Replay { messages, .. } => messages.iter().for_each(|message| add(message.flow, 1)),
        }
        messages
    }

    /// Messages that the program knows it still has to send.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        match &self.role {
            Role::Idle => 0,
            Role::Burst(burst) => burst.flows.iter().map(|(_, left)| left).sum(),
            Role::Ping { left, .. } => *left,
            Role::Pong { due, .. } => *due,
            Role::Confirm { is_due, .. } => u64::from(*is_due),
            Role::Random(sampler) => sampler.left,
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

impl Sampler {
    fn next(&mut self, max_bytes: u32) -> Option<(FlowId, u32)> {
        if self.left == 0 {
            return None;
        }
        let (flows, random) = (&self.flows, &mut self.random);
        let sample = || {
            let flow = *flows.get(random.below(flows.len() as u32) as usize)?;
            Some((flow, 8 * random.below(max_bytes / 8 + 1)))
        };
        self.next = self.next.or_else(sample);
        self.next
    }

    const fn on_sent(&mut self) {
        self.left -= 1;
        self.next = None;
    }
}
