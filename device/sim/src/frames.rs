//! Numbered frames between nodes, looked at from outside of their drivers: what each gave to its card, what left, what
//! came, and what the other driver found in its memory. From these alone it is said what each driver must have raised,
//! and held against what it did.
//!
//! Nothing here is a driver's: neither windows nor messages, nor how they are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use niclab_abi::FromBytes;
use niclab_abi::active_ports::{
    CHECK_BYTES, FRAME_ACKNOWLEDGEMENT, FRAME_DATA, FRAME_FIRST, FRAME_KIND_MASK, FRAME_LAST, FrameHead,
};
use niclab_model::fabric::ethernet::{self, ETHER_TYPE_CLUSTER, node_of_mac};

/// What a frame says of itself.
struct Seen {
    from: u16,
    to: u16,
    head: FrameHead,
    hash: u64,
}

impl Seen {
    /// A frame with numbers, without the check sequence; none where it is another one.
    fn of(frame: &[u8]) -> Option<Self> {
        let view = ethernet::Frame::new_checked(frame)?;
        if view.ether_type() != ETHER_TYPE_CLUSTER {
            return None;
        }
        let head = FrameHead::from_bytes(view.payload())?;
        let (from, to) = (node_of_mac(&view.source())?, node_of_mac(&view.destination())?);
        Some(Self { from, to, head, hash: hash_of(frame) })
    }

    /// The same of one that ends in a check sequence.
    fn on_wire(frame: &[u8]) -> Option<Self> {
        Self::of(frame.get(..frame.len().checked_sub(CHECK_BYTES as usize)?)?)
    }

    const fn is(&self, kind: u8) -> bool {
        self.head.kind & FRAME_KIND_MASK == kind
    }

    const fn has(&self, flag: u8) -> bool {
        self.head.kind & flag != 0
    }
}

/// The check sequence of a frame that has one.
fn check_of(frame: &[u8]) -> [u8; CHECK_BYTES as usize] {
    frame.last_chunk().copied().unwrap_or_default()
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Frames from one node to another.
#[derive(Debug, Default)]
struct Pair {
    /// Those with data that the driver gave to its card.
    given: u32,
    /// Those that left the card, from number 1 on, by what stands in them.
    left: Vec<Left>,
    /// Those that came sound, and those of them that the other driver found.
    came: u64,
    taken: u64,
    /// Those that it found before any with a higher number, and the highest.
    in_time: u32,
    highest: u32,
    /// A message has begun and not ended, in frames without a gap.
    is_open: bool,
    /// Messages of which all frames were found, and those of which some were, and then a frame of another.
    complete: u64,
    incomplete: u64,
    /// The number in the last acknowledgement that was given to the card, and the highest in those that came.
    acknowledged: u32,
    acknowledged_came: u32,
    /// Acknowledgements that left.
    acknowledgements: BTreeSet<Left>,
}

/// What stood in a frame as it left: without its check sequence, and that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Left {
    hash: u64,
    check: [u8; CHECK_BYTES as usize],
}

impl Pair {
    fn take(&mut self, seen: &Seen) {
        self.taken += 1;
        let number = seen.head.number;
        if number <= self.highest {
            return;
        }
        let (is_first, is_next) = (seen.has(FRAME_FIRST), number == self.highest + 1);
        if self.is_open && (is_first || !is_next) {
            self.incomplete += 1;
            self.is_open = false;
        }
        self.is_open |= is_first;
        if self.is_open && seen.has(FRAME_LAST) {
            self.complete += 1;
            self.is_open = false;
        }
        self.in_time += 1;
        self.highest = number;
    }
}

/// What a driver says that it raised, and what its card counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raised {
    /// Frames that did not come.
    pub lost: u64,
    /// Frames that came again or too late.
    pub old: u64,
    /// Messages of which a part did not come.
    pub incomplete: u64,
    /// Messages that programs have.
    pub messages: u64,
    /// Frames for which the host had left no buffer.
    pub missed: u64,
    /// Frames for which the card itself had no room.
    pub overflows: u64,
    /// Frames of one node that may be under way to another; zero: any number.
    pub window: u32,
    /// Frames after which there is an acknowledgement; zero: never.
    pub acknowledge_every: u32,
}

/// All frames of a run.
#[derive(Debug, Default)]
pub struct Frames {
    pairs: BTreeMap<(u16, u16), Pair>,
}

impl Frames {
    fn pair(&mut self, from: u16, to: u16) -> &mut Pair {
        self.pairs.entry((from, to)).or_default()
    }

    /// A driver gives a frame to its card, with a window of so many. What is wrong with it.
    pub fn on_given(&mut self, from: u16, to: u16, head: &FrameHead, window: u32) -> Option<String> {
        let number = head.number;
        if head.kind & FRAME_KIND_MASK == FRAME_ACKNOWLEDGEMENT {
            let pair = self.pair(from, to);
            pair.acknowledged = number;
            let highest = self.pair(to, from).highest;
            return (number > highest)
                .then(|| format!("node {from} acknowledges frame {number} of node {to}, and has {highest}"));
        }
        let acknowledged = self.pair(to, from).acknowledged_came;
        let pair = self.pair(from, to);
        pair.given += 1;
        let given = pair.given;
        if number != given {
            return Some(format!("node {from} gives frame {number} to node {to}, and it is number {given}"));
        }
        (window > 0 && number > acknowledged.saturating_add(window)).then(|| {
            format!(
                "node {from} gives frame {number} to node {to}, {acknowledged} are acknowledged: window {window}"
            )
        })
    }

    /// A frame leaves a card. What is wrong with it.
    pub fn on_left(&mut self, frame: &[u8]) -> Option<String> {
        let seen = Seen::on_wire(frame)?;
        let (is_data, left) = (seen.is(FRAME_DATA), Left { hash: seen.hash, check: check_of(frame) });
        let Seen { from, to, head, .. } = seen;
        let pair = self.pair(from, to);
        if !is_data {
            pair.acknowledgements.insert(left);
            return None;
        }
        pair.left.push(left);
        let left = pair.left.len();
        (head.number as usize != left)
            .then(|| format!("frame {} of node {from} to node {to} is number {left} to leave", head.number))
    }

    /// A frame comes to the card of a node.
    pub fn on_came(&mut self, node: u16, frame: &[u8]) {
        let Some(seen) = Seen::on_wire(frame).filter(|seen| seen.to == node && seen.from != node) else {
            return;
        };
        let as_it_is = Left { hash: seen.hash, check: check_of(frame) };
        let pair = self.pair(seen.from, node);
        if seen.is(FRAME_DATA) {
            pair.came += u64::from(pair.sent(seen.head.number) == Some(as_it_is));
        } else if pair.acknowledgements.contains(&as_it_is) {
            pair.acknowledged_came = pair.acknowledged_came.max(seen.head.number);
        }
    }

    /// A driver finds a frame in its memory, by whose status it is sound. What is wrong with it.
    pub fn on_taken(&mut self, node: u16, frame: &[u8]) -> Option<String> {
        let seen = Seen::of(frame).filter(|seen| seen.is(FRAME_DATA))?;
        let (from, number) = (seen.from, seen.head.number);
        let pair = self.pair(from, node);
        if pair.sent(number).map(|left| left.hash) != Some(seen.hash) {
            return Some(format!("node {node} found frame {number} of node {from}, which is not as it left"));
        }
        pair.take(&seen);
        (pair.taken > pair.came)
            .then(|| format!("node {node} found frame {number} of node {from} more often than it came"))
    }

    /// Whether something that was lost may keep a node from sending to another for ever: data that never came, of which
    /// the other says nothing, or an acknowledgement.
    #[must_use]
    pub fn is_excused(&self, from: u16, to: u16) -> bool {
        let Some(pair) = self.pairs.get(&(from, to)) else { return false };
        let back = self.pairs.get(&(to, from));
        let is_acknowledgement_lost = back.is_some_and(|back| back.acknowledged_came < back.acknowledged);
        (pair.in_time as usize) < pair.left.len() || is_acknowledgement_lost
    }

    /// At the end: where what a node's driver raised is not what it must have raised.
    #[must_use]
    pub fn finish(&self, node: u16, raised: &Raised) -> Vec<String> {
        let mut wrong = Vec::new();
        let sum = |of: &dyn Fn(&Pair) -> u64| {
            self.pairs.iter().filter(|((_, to), _)| *to == node).map(|(_, pair)| of(pair)).sum::<u64>()
        };
        for (what, must, is) in [
            ("lost frames", sum(&|pair| (pair.highest - pair.in_time).into()), raised.lost),
            ("frames too late", sum(&|pair| pair.taken - u64::from(pair.in_time)), raised.old),
            ("incomplete messages", sum(&|pair| pair.incomplete), raised.incomplete),
            ("whole messages", sum(&|pair| pair.complete), raised.messages),
        ] {
            if must != is {
                wrong.push(format!("node {node}: {must} {what} must have been raised, and {is} were"));
            }
        }
        let unfound = sum(&|pair| pair.came - pair.taken.min(pair.came));
        if unfound > raised.missed + raised.overflows {
            let missed = raised.missed + raised.overflows;
            wrong.push(format!(
                "node {node}: {unfound} sound frames were not found, its card missed {missed}"
            ));
        }
        let again = sum(&|pair| pair.came.saturating_sub(pair.left.len() as u64));
        if raised.window > 0 && raised.missed > again {
            wrong.push(format!("node {node}: overrun by {} frames in spite of windows", raised.missed));
        }
        for ((from, to), pair) in &self.pairs {
            let left = pair.left.len();
            if *from == node && pair.given as usize != left {
                let given = pair.given;
                wrong.push(format!("node {node}: {given} frames were given for node {to}, and {left} left"));
            }
            let acknowledged = self.pairs.get(&(*to, *from)).map_or(0, |back| back.acknowledged);
            let owed = pair.highest.saturating_sub(acknowledged);
            if *to == node && raised.acknowledge_every > 0 && owed >= raised.acknowledge_every {
                wrong.push(format!("node {node}: {owed} frames of node {from} were not acknowledged"));
            }
        }
        wrong
    }
}

impl Pair {
    /// What stood in the frame of this number as it left.
    fn sent(&self, number: u32) -> Option<Left> {
        self.left.get((number as usize).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use niclab_abi::ToBytes;
    use niclab_model::fabric::ethernet::{Header, mac_of_node};

    use super::*;

    const WINDOW: u32 = 2;

    fn frame(from: u16, to: u16, kind: u8, number: u32) -> (FrameHead, Vec<u8>) {
        let (destination, source) = (mac_of_node(to), mac_of_node(from));
        let mut bytes = Header { destination, source, ether_type: ETHER_TYPE_CLUSTER }.emit().to_vec();
        let head = FrameHead { protocol: 12, kind, source_port: 0, target_port: 0, number };
        let begin = bytes.len();
        bytes.resize(begin + FrameHead::BYTES, 0);
        head.to_bytes(&mut bytes[begin..]).unwrap();
        bytes.extend([number as u8; 8]);
        (head, bytes)
    }

    /// Frame by frame: whether the first node's got through to the driver of the second.
    fn exchanged(through: &[bool]) -> Frames {
        let mut frames = Frames::default();
        for (number, is_through) in (1..).zip(through) {
            let (head, bytes) = frame(0, 1, FRAME_DATA | FRAME_FIRST | FRAME_LAST, number);
            assert_eq!(frames.on_given(0, 1, &head, 0), None);
            let on_wire = [&bytes[..], &[0; 4]].concat();
            assert_eq!(frames.on_left(&on_wire), None);
            if *is_through {
                frames.on_came(1, &on_wire);
                assert_eq!(frames.on_taken(1, &bytes), None);
            }
        }
        frames
    }

    #[test]
    fn each_loss_must_be_raised_once() {
        let frames = exchanged(&[true, false, false, true]);
        let raised = Raised { lost: 2, messages: 2, ..Raised::default() };
        assert_eq!(frames.finish(1, &raised), Vec::<String>::new());
        for wrong in [
            Raised { lost: 1, ..raised },
            Raised { lost: 3, ..raised },
            Raised { messages: 1, ..raised },
            Raised { old: 1, ..raised },
            Raised { incomplete: 1, ..raised },
            Raised { acknowledge_every: 4, ..raised },
        ] {
            assert_eq!(frames.finish(1, &wrong).len(), 1, "{wrong:?}");
        }
        assert!(frames.is_excused(0, 1) && !exchanged(&[true; 4]).is_excused(0, 1));
    }

    #[test]
    fn a_window_ends_at_the_last_acknowledgement_that_came() {
        let mut frames = Frames::default();
        let give = |frames: &mut Frames, number| {
            let (head, bytes) = frame(0, 1, FRAME_DATA | FRAME_FIRST | FRAME_LAST, number);
            let wrong = frames.on_given(0, 1, &head, WINDOW);
            frames.on_left(&[&bytes[..], &[0; 4]].concat());
            frames.on_came(1, &[&bytes[..], &[0; 4]].concat());
            frames.on_taken(1, &bytes);
            wrong
        };
        assert_eq!((give(&mut frames, 1), give(&mut frames, 2)), (None, None));
        let (head, bytes) = frame(1, 0, FRAME_ACKNOWLEDGEMENT, 2);
        assert_eq!(frames.on_given(1, 0, &head, WINDOW), None);
        let on_wire = [&bytes[..], &[0; 4]].concat();
        assert_eq!(frames.on_left(&on_wire), None);
        frames.on_came(0, &on_wire);
        assert_eq!((give(&mut frames, 3), give(&mut frames, 4)), (None, None));
        assert!(give(&mut frames, 5).is_some_and(|wrong| wrong.contains("window 2")));
        let (head, _) = frame(1, 0, FRAME_ACKNOWLEDGEMENT, 6);
        assert!(frames.on_given(1, 0, &head, WINDOW).is_some(), "of what it has not");
    }

    #[test]
    fn what_was_given_must_leave_and_what_came_must_be_found() {
        let mut frames = exchanged(&[true]);
        let (head, bytes) = frame(0, 1, FRAME_DATA | FRAME_FIRST, 2);
        assert_eq!(frames.on_given(0, 1, &head, 0), None);
        assert_eq!(frames.finish(0, &Raised::default()).len(), 1);
        let on_wire = [&bytes[..], &[0; 4]].concat();
        frames.on_left(&on_wire);
        frames.on_came(1, &on_wire);
        let raised = Raised { messages: 1, ..Raised::default() };
        assert_eq!((frames.finish(0, &Raised::default()).len(), frames.finish(1, &raised).len()), (0, 1));
        assert_eq!(frames.finish(1, &Raised { missed: 1, ..raised }), Vec::<String>::new());
        assert_eq!(frames.finish(1, &Raised { missed: 1, window: 2, ..raised }).len(), 1, "an overrun");
        assert_eq!(frames.finish(1, &Raised { overflows: 1, window: 2, ..raised }), Vec::<String>::new());
        let mut other = bytes;
        other[29] ^= 1;
        assert!(frames.on_taken(1, &other).is_some(), "not as it left");
    }
}
