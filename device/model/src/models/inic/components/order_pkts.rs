//! Passes packets on in the order of their numbers (section 4.7). It drops data and header of a packet after a missing
//! one, so that no acknowledgement contains it.
//!
//! The paper leaves one case open. After a timeout the sender retransmits the last packet, to make the receiver report
//! missing packets. If this component dropped that packet silently, no report would follow. So it passes on the header
//! of a dropped retransmission, marked as dropped. The card answers it, and does not count it as arrived.

use crate::models::inic::arrivals::Number;
use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::per_node::Numbered;
use crate::models::inic::token::{Header, Token, Verdict};

const HEADERS: usize = 0;
const VERDICTS: usize = 1;

/// Which packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models::inic) enum Policy {
    /// Only the next number: the sender retransmits packets after a gap.
    GoBackN,
    /// Every packet that is newer than the earlier ones: late packets are lost, without retransmission.
    Newer,
}

pub(in crate::models::inic) struct OrderPkts {
    policy: Policy,
    /// The next expected number.
    due: Numbered<Number>,
}

impl OrderPkts {
    /// A component with this policy.
    pub(in crate::models::inic) fn new(policy: Policy, first: Number) -> Self {
        Self { policy, due: Numbered::new(first) }
    }

    /// Whether the data passes, and the header to pass on, if any.
    fn judge(&mut self, header: &Header, number: Number) -> (Verdict, Option<Header>) {
        let due = self.due.of(header.source);
        let is_ahead = number.is_after(*due);
        let passes = match self.policy {
            Policy::GoBackN => number == *due,
            Policy::Newer => number == *due || is_ahead,
        };
        if passes {
            *due = number.next();
            return (Verdict::Pass, Some(*header));
        }
        let told = match self.policy {
            Policy::GoBackN if is_ahead => header.is_again.then_some(Header { is_dropped: true, ..*header }),
            Policy::GoBackN => Some(*header),
            Policy::Newer => None,
        };
        (Verdict::Drop, told)
    }
}

impl Component for OrderPkts {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if !io.has(0) || !io.has_room(HEADERS) || !io.has_room(VERDICTS) {
            return false;
        }
        let Some((at, Token::Header(header))) = io.take(0) else { return false };
        let worked = io.work(at, 0);
        let Some(number) = header.number.filter(|_| !header.is_dropped) else {
            io.put(HEADERS, worked, Token::Header(header));
            return true;
        };
        let (verdict, told) = self.judge(&header, number);
        io.card.effects.counters.out_of_order += u64::from(verdict == Verdict::Drop);
        io.put(VERDICTS, worked, Token::Verdict(verdict));
        if let Some(told) = told {
            io.put(HEADERS, worked, Token::Header(told));
        }
        true
    }
}
