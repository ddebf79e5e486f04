//! Drops the data of a packet if any checking component requests it (section 4.8).

use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::token::{Token, Verdict};

const DATA: usize = 0;
const VERDICTS: usize = 1;

#[derive(Default)]
pub(in crate::models::inic) struct DropPkt;

impl Component for DropPkt {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if !io.has(DATA) || !io.has_room(0) {
            return false;
        }
        let Some(verdicts) = io.take_all(VERDICTS) else { return false };
        let Some((mut at, data)) = io.take(DATA) else { return false };
        let mut is_dropped = false;
        for (told, token) in verdicts {
            at = at.max(told);
            is_dropped |= matches!(token, Token::Verdict(Verdict::Drop));
        }
        let worked = io.work(at, 0);
        if !is_dropped {
            io.put(0, worked, data);
        }
        true
    }
}
