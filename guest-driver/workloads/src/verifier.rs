//! The check of received messages against sent messages.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use serde::{Deserialize, Serialize};

use crate::{End, Flow, Listener, Mark, Wrong};

/// The largest gap before a message if messages may be lost or reordered. A number beyond it was never sent.
const MAX_AHEAD: u64 = 1 << 20;

/// What the cards guarantee for each message on their network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// Each message arrives.
    pub is_delivered: bool,
    /// No message arrives twice.
    pub is_once: bool,
    /// Messages of a flow arrive in the order in which they were sent.
    pub is_in_order: bool,
}

impl Promise {
    /// All guarantees.
    pub const ALL: Self = Self { is_delivered: true, is_once: true, is_in_order: true };
}

/// The numbers of a flow that arrived.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The highest number.
    last: u64,
    /// Numbers below it that have not arrived and still may.
    missing: BTreeSet<u64>,
}

/// Checks that each message arrives at the port of its flow, from the port of its flow, and with its payload. It also
/// checks the number of arrivals and their order against the cards' promise.
#[derive(Clone, Debug)]
pub struct Verifier {
    flows: Vec<Flow>,
    promise: Promise,
    seen: Vec<Seen>,
    wrong: Option<String>,
}

impl Verifier {
    /// The verifier of a run with these flows, before any message.
    #[must_use]
    pub fn new(flows: Vec<Flow>, promise: Promise) -> Self {
        Self { seen: vec![Seen::default(); flows.len()], flows, promise, wrong: None }
    }

    /// Takes the first failure.
    pub const fn take_wrong(&mut self) -> Option<String> {
        self.wrong.take()
    }
}

impl Seen {
    /// Records a message of this number. Returns whether the promise allows it.
    fn on_number(&mut self, number: u64, promise: Promise) -> bool {
        let before = self.last;
        let Some(ahead) = number.checked_sub(before + 1) else {
            // In order, a skipped message is lost; out of order, it may arrive once.
            let is_first = self.missing.remove(&number);
            return number > 0
                && (is_first || !promise.is_once && (!promise.is_in_order || number == before));
        };
        self.last = number;
        if !promise.is_in_order && ahead <= MAX_AHEAD {
            self.missing.extend(before + 1..number);
        }
        ahead == 0 || ahead <= MAX_AHEAD && !(promise.is_in_order && promise.is_delivered)
    }
}

impl Listener for Verifier {
    fn on_message(&mut self, at: End, from: End, mark: &Mark, payload: impl Iterator<Item = u64>) {
        let known = self.flows.get(mark.flow as usize).zip(self.seen.get_mut(mark.flow as usize));
        let is_due = known.is_some_and(|(flow, seen)| {
            seen.on_number(mark.number, self.promise) && (flow.from, flow.to) == (from, at)
        });
        if !is_due {
            self.wrong.get_or_insert_with(|| format!("{mark:?} at {at:?} from {from:?} is not due"));
        } else if !payload.eq(mark.payload()) {
            self.wrong.get_or_insert_with(|| format!("{mark:?} at {at:?} has a wrong payload"));
        }
    }

    fn on_wrong(&mut self, _: Wrong, what: impl FnOnce() -> String) {
        self.wrong.get_or_insert_with(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: End = End { node: 0, port: 3 };
    const B: End = End { node: 1, port: 4 };

    fn wrong(receive: impl FnOnce(&mut Verifier, [Mark; 3])) -> Option<String> {
        let mut verifier = Verifier::new(vec![Flow { from: A, to: B }], Promise::ALL);
        receive(&mut verifier, [1, 2, 3].map(|number| Mark { flow: 0, bytes: 12, number }));
        verifier.take_wrong()
    }

    #[test]
    fn due_messages_pass_and_any_other_message_fails() {
        let all = |v: &mut Verifier, marks: [Mark; 3]| {
            marks.iter().for_each(|m| v.on_message(B, A, m, m.payload()))
        };
        assert_eq!(wrong(all), None);
        let failure = |receive: fn(&mut Verifier, [Mark; 3])| wrong(receive).unwrap_or_default();
        assert!(
            failure(|v, [_, b, _]| v.on_message(B, A, &b, b.payload())).contains("not due"),
            "a message is missing"
        );
        assert!(
            failure(|v, [a, ..]| [a, a].iter().for_each(|m| v.on_message(B, A, m, m.payload())))
                .contains("not due")
        );
        assert!(
            failure(|v, [a, ..]| v.on_message(A, A, &a, a.payload())).contains("not due"),
            "another port"
        );
        assert!(
            failure(|v, [a, ..]| v.on_message(B, B, &a, a.payload())).contains("not due"),
            "another sender"
        );
        assert!(failure(|v, [a, b, _]| v.on_message(B, A, &a, b.payload())).contains("a wrong payload"));
        assert!(
            failure(|v, [a, ..]| v.on_message(B, A, &Mark { flow: 1, ..a }, a.payload())).contains("not due")
        );
        assert_eq!(failure(|v, _| v.on_wrong(Wrong::Port, || "what".into())), "what");
    }

    #[test]
    fn each_promise_is_checked_independently() {
        let bits = [false, true];
        let all = bits.map(|a| bits.map(|b| bits.map(|c| (a, b, c)))).concat().concat();
        for (is_delivered, is_once, is_in_order) in all {
            let promise = Promise { is_delivered, is_once, is_in_order };
            let is_right = |numbers: &[u64]| {
                let mut seen = Seen::default();
                numbers.iter().all(|number| seen.on_number(*number, promise))
            };
            assert!(is_right(&[1, 2, 3]), "{promise:?}");
            assert!(!is_right(&[0]) && !is_right(&[1, 2 + 2 * MAX_AHEAD]), "{promise:?}");
            assert_eq!(is_right(&[1, 3]), !(is_delivered && is_in_order), "{promise:?}: 2 is lost, or late");
            assert_eq!(is_right(&[1, 2, 2]), !is_once, "{promise:?}");
            assert_eq!(is_right(&[1, 3, 2]), !is_in_order, "{promise:?}");
            assert_eq!(is_right(&[1, 3, 2, 2]), !is_in_order && !is_once, "{promise:?}");
            assert_eq!(is_right(&[1, 2, 1]), !is_in_order && !is_once, "{promise:?}");
        }
    }
}
