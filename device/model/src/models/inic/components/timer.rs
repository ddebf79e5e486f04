//! Detects that a node has been silent for too long (section 4.5): a timer for each node, restarted with each packet
//! that is sent to it.
//!
//! Beyond the paper, the timeout doubles with each expiry without acknowledgement. So a node whose program posts no
//! room for a second gets some twenty retransmissions instead of a thousand.
//!
//! Constants: ours.

use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::per_node::PerNode;
use crate::models::inic::token::{Disable, Next, Token};
use crate::parts::timers::{TimerName, Timers};
use crate::time::{Span, Time};

const NEXT: usize = 0;
const DISABLE: usize = 1;

/// Maximum of the doubling timeout.
const LONGEST_WAIT: Span = Span::from_ns(100_000_000);
const MAX_DOUBLINGS: u32 = 20;

/// The timer of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    /// The node did not acknowledge the last packet in time.
    Silence,
}

impl TimerName for Name {
    const ALL: &'static [Self] = &[Self::Silence];
}

pub(in crate::models::inic) struct Timer {
    timeout: Span,
    timers: Timers<Name>,
    is_blocked: bool,
    /// Expiries of each node since its last acknowledgement.
    expiries: PerNode<u32>,
}

impl Timer {
    pub(in crate::models::inic) fn new(timeout: Span) -> Self {
        Self { timeout, timers: Timers::default(), is_blocked: false, expiries: PerNode::default() }
    }
}

impl Component for Timer {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if let Some((_, Token::Disable(Disable { node, is_over }))) = io.take(DISABLE) {
            *self.expiries.of(node) = 0;
            if is_over {
                self.timers.stop(Name::Silence, node.into());
            }
            return true;
        }
        if let Some((at, Token::Next(Next { node }))) = io.take(NEXT) {
            let worked = io.work(at, 0);
            let wait = self.timeout.times(1 << *self.expiries.of(node)).min(LONGEST_WAIT.max(self.timeout));
            self.timers.start(Name::Silence, node.into(), worked, wait);
            return true;
        }
        let now = io.now;
        // Without room the component can do nothing at a deadline; it runs again when there is room.
        self.is_blocked = self.timers.next().is_some_and(|due| due <= now) && !io.has_room(0);
        if self.is_blocked {
            return false;
        }
        let Some((Name::Silence, node)) = self.timers.take_expired(now) else { return false };
        let expiries = self.expiries.of(node as u16);
        *expiries = (*expiries + 1).min(MAX_DOUBLINGS);
        let worked = io.work(now, 0);
        io.put(0, worked, Token::Expiry(node as u16));
        true
    }

    fn is_timed(&self) -> bool {
        true
    }

    fn deadline(&self) -> Option<Time> {
        self.timers.next().filter(|_| !self.is_blocked)
    }
}
