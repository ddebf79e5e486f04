//! The counts of what the cards did for their drivers. Moments are sampled from these counts, and a case without any
//! has exercised nothing.

use std::{fmt, iter::Sum, ops::Add};

use niclab_spec::report::NodeFigures;
use serde::Serialize;

/// Causes in [`NodeFigures::interrupts`] that are no events of the cluster function: answers to control requests, which
/// binding a driver causes, and the Ethernet function's.
const NO_EVENTS: [&str; 2] = ["control", "ethernet_"];

/// The counts of what cards did for their drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Messages that the cards took from their hosts.
    pub messages_sent: u64,
    /// Messages that the cards wrote into their hosts' memory.
    pub messages_received: u64,
    /// Events that the cards raised, with an interrupt or without.
    pub events: u64,
}

impl Traffic {
    /// The counts of a node's card since the daemon started.
    #[must_use]
    pub fn of(node: &NodeFigures) -> Self {
        let is_event = |cause: &str| !NO_EVENTS.iter().any(|other| cause.starts_with(other));
        let events: u64 =
            node.interrupts.iter().filter(|(cause, _)| is_event(cause)).map(|(_, count)| count).sum();
        Self {
            messages_sent: node.messages_sent,
            messages_received: node.messages_received,
            events: events.wrapping_add(node.suppressed_interrupts),
        }
    }

    /// The difference to `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            messages_sent: self.messages_sent.wrapping_sub(before.messages_sent),
            messages_received: self.messages_received.wrapping_sub(before.messages_received),
            events: self.events.wrapping_sub(before.events),
        }
    }

    /// Messages and events together; moments are numbers of these actions.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.messages_sent.wrapping_add(self.messages_received).wrapping_add(self.events)
    }

    /// Whether the cards did nothing.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.count() == 0
    }
}

impl Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            messages_sent: self.messages_sent.wrapping_add(other.messages_sent),
            messages_received: self.messages_received.wrapping_add(other.messages_received),
            events: self.events.wrapping_add(other.events),
        }
    }
}

impl Sum for Traffic {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages_sent, messages_received, events } = self;
        write!(f, "{messages_sent} sent, {messages_received} received, {events} events")
    }
}

/// A moment at which a case disturbed a driver while the command ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// The disturbance.
    pub what: &'static str,
    /// The node; `None` if it was all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What the card of that node, or the cards of all nodes, had done since the start of the command.
    pub traffic: Traffic,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node.as_ref().map_or_else(String::new, |node| format!(" of {node}"));
        write!(f, "{}{node} after {}", self.what, self.traffic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_answers_and_ethernet_do_not_count_as_traffic() {
        let interrupts =
            [("control", 7), ("ethernet_receive", 9)].map(|(name, count)| (name.to_owned(), count));
        let bound = NodeFigures { interrupts: interrupts.into(), ..NodeFigures::default() };
        assert!(Traffic::of(&bound).is_none());
        let mut used = NodeFigures { messages_sent: 3, messages_received: 2, ..bound };
        used.interrupts.insert("armed".to_owned(), 4);
        used.suppressed_interrupts = 1;
        let traffic = Traffic::of(&used);
        assert_eq!((traffic.events, traffic.count()), (5, 10));
        assert_eq!(traffic.since(Traffic { events: 2, ..Traffic::default() }).events, 3);
    }

    #[test]
    fn moment_names_disturbance_node_and_traffic() {
        let traffic = Traffic { messages_sent: 12, messages_received: 11, events: 3 };
        let moment = Moment { what: "unbind", node: Some("node1".to_owned()), traffic };
        assert_eq!(moment.to_string(), "unbind of node1 after 12 sent, 11 received, 3 events");
    }
}
