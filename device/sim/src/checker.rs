//! The checkers. They are outside the models, know what was sent, and compare this with what the models deliver.

use std::collections::{BTreeMap, BTreeSet};

use niclab_spec::report::Checked;
use niclab_workloads::{End, Flow, FlowId, Mark};

use crate::frames::Frames;

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// Every message arrives, except those that the configuration allows to be lost.
    NothingLost,
    /// No message arrives twice.
    NothingDuplicated,
    /// Messages of a flow arrive in the order of sending.
    InOrder,
    /// Messages arrive at the port to which they were sent, and name the port that sent them.
    RightPort,
    /// Payload and length are those that were sent.
    RightContents,
    /// No sender overruns its receiver, and no count decreases.
    FlowControl,
    /// The NIC writes only into the memory that it was given.
    RightMemory,
    /// Ledger and counters match the traffic at the model's interface.
    LedgerSums,
    /// At the end all messages are sent, all stored data is read, and no frame is in flight.
    Drained,
}

impl Check {
    /// All checks.
    pub const ALL: [Self; 9] = [
        Self::NothingLost,
        Self::NothingDuplicated,
        Self::InOrder,
        Self::RightPort,
        Self::RightContents,
        Self::FlowControl,
        Self::RightMemory,
        Self::LedgerSums,
        Self::Drained,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NothingLost => "nothing-lost",
            Self::NothingDuplicated => "nothing-duplicated",
            Self::InOrder => "in-order",
            Self::RightPort => "right-port",
            Self::RightContents => "right-contents",
            Self::FlowControl => "flow-control",
            Self::RightMemory => "right-memory",
            Self::LedgerSums => "ledger-sums",
            Self::Drained => "drained",
        }
    }
}

#[derive(Clone, Debug)]
struct FlowState {
    flow: Flow,
    sent: u64,
    /// The highest number that arrived.
    last: u64,
    /// Lower numbers that are missing, if a later arrival is allowed.
    gaps: BTreeSet<u64>,
    received: u64,
    /// Number sent when the faults were removed. Later messages must not be lost.
    sent_at_heal: u64,
    /// Number of messages that were lost against a promise.
    broken_promises: u64,
}

/// What a configuration promises of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// No message is lost, not even before the faults are removed.
    pub is_lossless: bool,
    /// No message is lost after the faults are removed.
    pub is_lossless_when_healed: bool,
    /// No message arrives twice, on any link.
    pub is_once: bool,
    /// No message arrives after one that was sent later.
    pub is_in_order: bool,
}

/// The checker of one run.
#[derive(Debug)]
pub struct Checker {
    flows: Vec<FlowState>,
    promise: Promise,
    is_healed: bool,
    /// Messages to which a device fault was applied. They may be lost, or arrive with any contents.
    spoiled: BTreeSet<(FlowId, u64)>,
    /// Ports that a device fault keeps from their next slice for ever, and from all later ones.
    stalled: BTreeSet<End>,
    /// Pairs of nodes without further traffic, because a frame that allows it was lost.
    stalled_pairs: BTreeSet<(u16, u16)>,
    /// Ports whose programs a device fault may have misled.
    misled: BTreeSet<End>,
    failures: BTreeMap<Check, (u64, String)>,
    /// Number of messages sent.
    pub sent: u64,
    /// Messages that programs received.
    pub received: u64,
    /// Their payload in bytes.
    pub received_bytes: u64,
    /// Number of messages sent, plus messages received with a number above all earlier ones of their flow. Each message
    /// of a program raises it at most twice, in any model.
    pub progress: u64,
    /// Bytes of messages that cards have stored; a byte that is stored twice counts twice.
    pub stored_bytes: u64,
    /// Frames with numbers of the drivers.
    pub frames: Frames,
    /// Flows on which a message was sent, if other partitions must be notified.
    sent_flows: Option<Vec<(FlowId, u16)>>,
}

impl Checker {
    /// A checker of a new run.
    #[must_use]
    pub fn new(flows: &[Flow], promise: Promise) -> Self {
        let state = |&flow: &Flow| FlowState {
            flow,
            sent: 0,
            last: 0,
            gaps: BTreeSet::new(),
            received: 0,
            sent_at_heal: 0,
            broken_promises: 0,
        };
        Self {
            flows: flows.iter().map(state).collect(),
            promise,
            is_healed: false,
            spoiled: BTreeSet::new(),
            stalled: BTreeSet::new(),
            stalled_pairs: BTreeSet::new(),
            misled: BTreeSet::new(),
            failures: BTreeMap::new(),
            sent: 0,
            received: 0,
            received_bytes: 0,
            progress: 0,
            stored_bytes: 0,
            frames: Frames::default(),
            sent_flows: None,
        }
    }

    /// The checker of one partition of the nodes. Of each flow it knows one or both ends. The first partition's checker
    /// keeps the counts so far. With `has_others`, it records sent messages for the other partitions.
    #[must_use]
    pub fn divided(&self, is_first: bool, has_others: bool) -> Self {
        let counted = |count: u64| if is_first { count } else { 0 };
        Self {
            flows: self.flows.clone(),
            promise: self.promise,
            is_healed: self.is_healed,
            spoiled: self.spoiled.clone(),
            stalled: self.stalled.clone(),
            stalled_pairs: self.stalled_pairs.clone(),
            misled: self.misled.clone(),
            failures: self.failures.clone(),
            sent: counted(self.sent),
            received: counted(self.received),
            received_bytes: counted(self.received_bytes),
            progress: counted(self.progress),
            stored_bytes: counted(self.stored_bytes),
            frames: Frames::default(),
            sent_flows: has_others.then(Vec::new),
        }
    }

    /// Merges the checker of one partition.
    pub fn join(&mut self, part: Self, is_here: impl Fn(u16) -> bool) {
        for (state, of_part) in self.flows.iter_mut().zip(part.flows) {
            let FlowState { flow, sent, last, gaps, received, sent_at_heal: _, broken_promises } = of_part;
            if is_here(flow.from.node) {
                state.sent = sent;
            }
            if is_here(flow.to.node) {
                (state.last, state.gaps, state.received) = (last, gaps, received);
                state.broken_promises = broken_promises;
            }
        }
        let counts = [
            (&mut self.sent, part.sent),
            (&mut self.received, part.received),
            (&mut self.received_bytes, part.received_bytes),
            (&mut self.progress, part.progress),
            (&mut self.stored_bytes, part.stored_bytes),
        ];
        counts.into_iter().for_each(|(sum, count)| *sum += count);
    }

    /// Resets the counts, which the first partition's checker keeps.
    pub const fn hand_out(&mut self) {
        (self.sent, self.received, self.received_bytes) = (0, 0, 0);
        (self.progress, self.stored_bytes) = (0, 0);
    }

    /// Removes the flows on which messages were sent since the last call, one entry for each message, with the
    /// receiving nodes.
    pub fn take_sent(&mut self) -> impl Iterator<Item = (FlowId, u16)> + use<'_> {
        self.sent_flows.iter_mut().flat_map(|flows| flows.drain(..))
    }

    /// A program of another partition sent a message on this flow.
    pub fn on_sent_elsewhere(&mut self, flow: FlowId) {
        if let Some(state) = self.flows.get_mut(flow as usize) {
            state.sent += 1;
        }
    }

    /// Whether no message may be lost.
    #[must_use]
    pub const fn is_lossless(&self) -> bool {
        self.promise.is_lossless
    }

    /// All faults are removed from now on.
    pub fn on_healed(&mut self) {
        self.is_healed = true;
        for state in &mut self.flows {
            state.sent_at_heal = state.sent;
        }
    }

    /// A program sends a message on `flow`. Returns the message's mark.
    pub fn on_sent(&mut self, flow: FlowId, bytes: u32) -> Mark {
        self.sent += 1;
        self.progress += 1;
        let sent_flows = &mut self.sent_flows;
        let number = self.flows.get_mut(flow as usize).map_or(0, |state| {
            if let Some(flows) = sent_flows {
                flows.push((flow, state.flow.to.node));
            }
            state.sent += 1;
            state.sent
        });
        Mark { flow, bytes, number }
    }

    /// A device fault was applied to this message on its way into host memory.
    pub fn on_spoiled(&mut self, mark: &Mark) {
        self.spoiled.insert((mark.flow, mark.number));
    }

    /// The program at `at` found the rest of a spoiled message. The checker checks only its ports and its order in the
    /// flow.
    pub fn on_received_spoiled(&mut self, at: End, mark: &Mark) {
        let known = self.flows.get(mark.flow as usize).filter(|state| mark.number <= state.sent);
        if let Some(flow) = known.map(|state| state.flow) {
            self.check_port(mark, &flow, at, flow.from);
            self.on_number(mark);
        }
    }

    /// A device fault may have misled the program at `at`, which keeps state across messages. From now on, messages to
    /// and from it may be lost, and their contents may be those of other messages. Ports and order are still checked.
    pub fn on_misled(&mut self, at: End) {
        self.misled.insert(at);
        self.stalled.insert(at);
    }

    /// Whether the receiving program of a flow may be misled.
    #[must_use]
    pub fn is_receiver_misled(&self, flow: FlowId) -> bool {
        // The set is usually empty.
        !self.misled.is_empty()
            && self.flows.get(flow as usize).is_some_and(|state| self.misled.contains(&state.flow.to))
    }

    /// A misled program received data that it takes for this message.
    pub fn on_received_misled(&mut self, at: End, mark: &Mark) {
        self.received += 1;
        let Some(state) = self.flows.get_mut(mark.flow as usize).filter(|state| mark.number <= state.sent)
        else {
            return;
        };
        if state.flow.to == at && mark.number > state.last {
            state.received += 1;
            self.received_bytes += u64::from(mark.bytes);
            self.on_number(mark);
        }
    }

    /// A device fault keeps the program at `at` from the stored data and from all later data. As the program consumes
    /// nothing more, senders to it stall as well.
    pub fn on_stalled(&mut self, at: End) {
        self.stalled.insert(at);
    }

    /// A frame that lets one node send more to another was lost, and is not sent again. The last messages may not
    /// arrive.
    pub fn on_stalled_pair(&mut self, from: u16, to: u16) {
        self.stalled_pairs.insert((from, to));
    }

    /// Whether a device fault may have kept `node` from sending, because it sends to a stalled port.
    #[must_use]
    pub fn is_kept_from_sending(&self, node: u16) -> bool {
        let is_it = |state: &FlowState| {
            state.flow.from.node == node
                && (self.stalled.contains(&state.flow.to) || self.misled.contains(&state.flow.from))
        };
        self.flows.iter().any(is_it)
    }

    /// The program at `at` received a message that came from `from` according to the NIC.
    pub fn on_received(&mut self, at: End, from: End, mark: &Mark, payload: impl Iterator<Item = u64>) {
        self.received += 1;
        self.received_bytes += u64::from(mark.bytes);
        let Some(state) = self.flows.get_mut(mark.flow as usize).filter(|state| mark.number <= state.sent)
        else {
            let what = format!("{at:?} received {mark:?}, which no program sent");
            return self.fail(Check::RightContents, || what);
        };
        let flow = state.flow;
        if mark.number > state.last {
            state.received += 1;
        }
        self.check_port(mark, &flow, at, from);
        if !payload.eq(mark.payload()) {
            self.fail(Check::RightContents, || format!("{mark:?} of {flow:?} has another payload"));
        }
        self.on_number(mark);
    }

    fn check_port(&mut self, mark: &Mark, flow: &Flow, at: End, from: End) {
        if (at, from) != (flow.to, flow.from) {
            self.fail(Check::RightPort, || {
                format!("{mark:?} of {flow:?} arrived at {at:?} as from {from:?}")
            });
        }
    }

    /// The message with this mark arrives in its flow.
    fn on_number(&mut self, mark: &Mark) {
        let Some(state) = self.flows.get_mut(mark.flow as usize) else { return };
        let (flow, last) = (state.flow, state.last);
        state.last = last.max(mark.number);
        let Promise { is_once, is_in_order, .. } = self.promise;
        if mark.number > last {
            self.progress += 1;
            if mark.number > last + 1 {
                self.on_skipped(mark.flow, last + 1, mark.number - 1);
            }
            return;
        }
        // With order promised, a skipped message is lost. Otherwise it may arrive later, once.
        let is_again = if is_in_order { mark.number == last } else { !state.gaps.remove(&mark.number) };
        if is_again && is_once {
            self.fail(Check::NothingDuplicated, || format!("{mark:?} of {flow:?} arrived twice"));
        } else if !is_again && is_in_order {
            self.fail(Check::InOrder, || format!("{mark:?} of {flow:?} arrived after number {last}"));
        }
    }

    /// A later message of the flow arrived before the messages `first..=last`.
    fn on_skipped(&mut self, id: FlowId, first: u64, last: u64) {
        if self.promise.is_in_order {
            self.on_missing(id, first, last);
        } else if let Some(state) = self.flows.get_mut(id as usize) {
            state.gaps.extend(first..=last);
        }
    }

    /// The messages `first..=last` of a flow are lost.
    fn on_missing(&mut self, id: FlowId, first: u64, last: u64) {
        let Some(state) = self.flows.get_mut(id as usize) else { return };
        let promised_from = if self.promise.is_lossless {
            1
        } else if self.promise.is_lossless_when_healed && self.is_healed {
            state.sent_at_heal + 1
        } else {
            return;
        };
        if self.misled.contains(&state.flow.to) || self.misled.contains(&state.flow.from) {
            return;
        }
        let first = first.max(promised_from);
        let excused = self.spoiled.range((id, first)..=(id, last.max(first))).count() as u64;
        if first <= last && excused < last - first + 1 {
            state.broken_promises += last - first + 1 - excused;
            let (flow, of) = (state.flow, state.sent);
            self.fail(Check::NothingLost, || {
                format!("{flow:?}: messages {first} to {last} of {of} sent did not arrive")
            });
        }
    }

    /// A check failed. The first failure of each check is reported in full, the others are counted.
    pub fn fail(&mut self, check: Check, what: impl FnOnce() -> String) {
        self.failures.entry(check).and_modify(|(count, _)| *count += 1).or_insert_with(|| (1, what()));
    }

    /// The run is over. Messages that have not arrived are lost.
    pub fn on_end(&mut self) {
        for id in 0..self.flows.len() {
            let gaps = std::mem::take(&mut self.flows[id].gaps);
            gaps.into_iter().for_each(|number| self.on_missing(id as FlowId, number, number));
            let state = &self.flows[id];
            let nodes = (state.flow.from.node, state.flow.to.node);
            let is_stalled = self.stalled.contains(&state.flow.to) || self.stalled_pairs.contains(&nodes);
            if state.last < state.sent && !is_stalled {
                let (first, last) = (state.last + 1, state.sent);
                self.on_missing(id as FlowId, first, last);
            }
        }
    }

    /// Number of messages that did not arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.flows.iter().map(|state| state.sent - state.received).sum()
    }

    /// Whether every check has held so far.
    #[must_use]
    pub fn is_content(&self) -> bool {
        self.failures.is_empty()
    }

    /// Every check with its result.
    #[must_use]
    pub fn verdict(&self) -> Vec<Checked> {
        let looked = format!("{} messages sent, {} received", self.sent, self.received);
        let checked = |check: Check| {
            let failure = self.failures.get(&check);
            let detail = match failure {
                None => looked.clone(),
                Some((1, what)) => what.clone(),
                Some((count, what)) => format!("{what} (the first of {count})"),
            };
            Checked { name: check.name().to_owned(), held: failure.is_none(), detail }
        };
        Check::ALL.into_iter().map(checked).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: End = End { node: 0, port: 0 };
    const B: End = End { node: 1, port: 0 };
    const LOSSLESS: Promise =
        Promise { is_lossless: true, is_lossless_when_healed: true, is_once: true, is_in_order: true };
    const ORDERED: Promise = Promise { is_lossless: false, is_lossless_when_healed: false, ..LOSSLESS };

    fn checker(promise: Promise) -> Checker {
        Checker::new(&[Flow { from: A, to: B }], promise)
    }

    fn broken(checker: &Checker) -> Vec<String> {
        checker.verdict().into_iter().filter(|checked| !checked.held).map(|checked| checked.name).collect()
    }

    #[test]
    fn each_kind_of_failure_breaks_its_own_check() {
        let run = |promise: Promise, receive: fn(&mut Checker, [Mark; 3])| {
            let mut checker = checker(promise);
            let marks = [(); 3].map(|()| checker.on_sent(0, 16));
            receive(&mut checker, marks);
            checker.on_end();
            broken(&checker)
        };
        assert!(run(LOSSLESS, |j, m| m.iter().for_each(|m| j.on_received(B, A, m, m.payload()))).is_empty());
        assert_eq!(
            run(LOSSLESS, |j, [a, _, c]| {
                j.on_received(B, A, &a, a.payload());
                j.on_received(B, A, &c, c.payload());
            }),
            ["nothing-lost"]
        );
        assert_eq!(run(LOSSLESS, |j, [a, _, _]| j.on_received(B, A, &a, a.payload())), ["nothing-lost"]);
        assert_eq!(
            run(ORDERED, |j, [_, b, _]| {
                j.on_received(B, A, &b, b.payload());
                j.on_received(B, A, &b, b.payload());
            }),
            ["nothing-duplicated"]
        );
        assert_eq!(
            run(ORDERED, |j, [a, b, _]| {
                j.on_received(B, A, &b, b.payload());
                j.on_received(B, A, &a, a.payload());
            }),
            ["in-order"]
        );
        assert_eq!(run(ORDERED, |j, [a, ..]| j.on_received(A, A, &a, a.payload())), ["right-port"]);
        assert_eq!(run(ORDERED, |j, [a, b, _]| j.on_received(B, A, &a, b.payload())), ["right-contents"]);
        assert_eq!(
            run(ORDERED, |j, [a, ..]| {
                let unknown = Mark { number: 9, ..a };
                j.on_received(B, A, &unknown, unknown.payload());
            }),
            ["right-contents"]
        );
    }

    #[test]
    fn every_combination_of_promises_is_checked() {
        // Number 2 arrives late, then number 1 arrives again; number 4 never arrives.
        let run = |is_lossless, is_once, is_in_order| {
            let mut checker =
                checker(Promise { is_lossless, is_lossless_when_healed: is_lossless, is_once, is_in_order });
            let marks = [(); 5].map(|()| checker.on_sent(0, 16));
            for number in [1, 3, 2, 1, 5] {
                let mark = marks[number - 1];
                checker.on_received(B, A, &mark, mark.payload());
            }
            checker.on_end();
            broken(&checker)
        };
        assert_eq!(run(false, false, false), Vec::<String>::new());
        assert_eq!(run(false, true, false), ["nothing-duplicated"]);
        assert_eq!(run(true, false, false), ["nothing-lost"]);
        assert_eq!(run(true, true, false), ["nothing-lost", "nothing-duplicated"]);
        assert_eq!(run(false, true, true), ["in-order"]);
        assert_eq!(run(true, true, true), ["nothing-lost", "in-order"]);
    }

    #[test]
    fn messages_sent_before_the_heal_may_be_lost() {
        let mut checker = checker(Promise { is_lossless_when_healed: true, ..ORDERED });
        checker.on_sent(0, 8);
        checker.on_healed();
        let mark = checker.on_sent(0, 8);
        checker.on_received(B, A, &mark, mark.payload());
        assert_eq!((broken(&checker), checker.lost()), (Vec::new(), 1));
        checker.on_sent(0, 8);
        checker.on_end();
        assert_eq!(broken(&checker), ["nothing-lost"]);
    }
}
