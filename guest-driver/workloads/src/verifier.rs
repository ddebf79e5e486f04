//! Who holds what a program receives against what was sent to it.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::{End, Flow, Listener, Mark, Wrong};

/// Wants every message of a flow once, in order, at its port, from its port, as it was sent.
#[derive(Clone, Debug)]
pub struct Verifier {
    flows: Vec<Flow>,
    /// The number of the last message of each.
    last: Vec<u64>,
    wrong: Option<String>,
}

impl Verifier {
    /// Of a run with these flows, of which nothing has come yet.
    #[must_use]
    pub fn new(flows: Vec<Flow>) -> Self {
        Self { last: vec![0; flows.len()], flows, wrong: None }
    }

    /// Takes the first thing that is not as it must be.
    pub const fn take_wrong(&mut self) -> Option<String> {
        self.wrong.take()
    }
}

impl Listener for Verifier {
    fn on_message(&mut self, at: End, from: End, mark: &Mark, payload: impl Iterator<Item = u64>) {
        let known = self.flows.get(mark.flow as usize).zip(self.last.get_mut(mark.flow as usize));
        let is_due = known.is_some_and(|(flow, last)| {
            *last += 1;
            (flow.from, flow.to, *last) == (from, at, mark.number)
        });
        if !is_due {
            self.wrong.get_or_insert_with(|| format!("{mark:?} at {at:?} from {from:?}, which is not due"));
        } else if !payload.eq(mark.payload()) {
            self.wrong.get_or_insert_with(|| format!("{mark:?} at {at:?} has another payload"));
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
        let mut verifier = Verifier::new(vec![Flow { from: A, to: B }]);
        receive(&mut verifier, [1, 2, 3].map(|number| Mark { flow: 0, bytes: 12, number }));
        verifier.take_wrong()
    }

    #[test]
    fn what_was_sent_is_right_and_anything_else_is_told() {
        let all = |v: &mut Verifier, marks: [Mark; 3]| {
            marks.iter().for_each(|m| v.on_message(B, A, m, m.payload()))
        };
        assert_eq!(wrong(all), None);
        let told = |receive: fn(&mut Verifier, [Mark; 3])| wrong(receive).unwrap_or_default();
        assert!(told(|v, [_, b, _]| v.on_message(B, A, &b, b.payload())).contains("not due"), "one was lost");
        assert!(
            told(|v, [a, ..]| [a, a].iter().for_each(|m| v.on_message(B, A, m, m.payload())))
                .contains("not due")
        );
        assert!(told(|v, [a, ..]| v.on_message(A, A, &a, a.payload())).contains("not due"), "another port");
        assert!(told(|v, [a, ..]| v.on_message(B, B, &a, a.payload())).contains("not due"), "another sender");
        assert!(told(|v, [a, b, _]| v.on_message(B, A, &a, b.payload())).contains("another payload"));
        assert!(
            told(|v, [a, ..]| v.on_message(B, A, &Mark { flow: 1, ..a }, a.payload())).contains("not due")
        );
        assert_eq!(told(|v, _| v.on_wrong(Wrong::Port, || "what".into())), "what");
    }
}
