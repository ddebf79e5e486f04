//! Checks numbered frames between nodes outside the drivers. It sees the frames that each driver gave to its card, that
//! left the card, that arrived, and that the receiving driver found in its memory. From these it derives which errors
//! each driver must have reported, and compares them with its counters.
//!
//! It shares no code with the drivers: neither windows nor messages, nor their state.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use niclab_abi::FromBytes;
use niclab_abi::gamma::{
    CHECK_BYTES, FRAME_ACKNOWLEDGEMENT, FRAME_DATA, FRAME_FIRST, FRAME_KIND_MASK, FRAME_LAST, FrameHead,
};
use niclab_model::fabric::ethernet::{self, ETHER_TYPE_CLUSTER, node_of_mac};

/// The numbers in a frame.
struct Seen {
    from: u16,
    to: u16,
    head: FrameHead,
    hash: u64,
}

impl Seen {
    /// Parses a numbered frame without its check sequence. None for any other frame.
    fn of(frame: &[u8]) -> Option<Self> {
        let view = ethernet::Frame::new_checked(frame)?;
        if view.ether_type() != ETHER_TYPE_CLUSTER {
            return None;
        }
        let head = FrameHead::from_bytes(view.payload())?;
        let (from, to) = (node_of_mac(&view.source())?, node_of_mac(&view.destination())?);
        Some(Self { from, to, head, hash: hash_of(frame) })
    }

    /// Parses a numbered frame with its check sequence.
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

/// The check sequence at the end of a frame.
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
    /// Data frames that the driver gave to its card.
    given: u32,
    /// Data frames that left the card, by number minus 1.
    left: Vec<Left>,
    /// Data frames that arrived intact, and those of them that the receiving driver found.
    came: u64,
    taken: u64,
    /// Found frames whose number was the highest so far, and the highest number.
    in_time: u32,
    highest: u32,
    /// Whether the first frame of a message was found, all frames since are consecutive, and its last one is missing.
    is_open: bool,
    /// Messages of which all frames were found, and messages of which only some were found before a frame of another
    /// message.
    complete: u64,
    incomplete: u64,
    /// The number in the last acknowledgement that was given to the card, and the highest number in those that arrived.
    acknowledged: u32,
    acknowledged_came: u32,
    /// Acknowledgements that left.
    acknowledgements: BTreeSet<Left>,
}

/// A frame as it left the card: a hash of its contents without the check sequence, and the check sequence.
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

/// The errors and messages that a driver and its card counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raised {
    /// Frames that did not arrive.
    pub lost: u64,
    /// Frames that arrived again or out of order.
    pub old: u64,
    /// Messages of which a frame did not arrive.
    pub incomplete: u64,
    /// Messages that were passed to programs.
    pub messages: u64,
    /// Frames that the card dropped because the host had posted no buffer.
    pub missed: u64,
    /// Frames that the card dropped because its own memory was full.
    pub overflows: u64,
    /// Maximum number of unacknowledged frames from one node to another; 0: no limit.
    pub window: u32,
    /// An acknowledgement is due after this number of frames; 0: never.
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

    /// A driver gives a frame to its card, with this window. Returns what is wrong with it.
    pub fn on_given(&mut self, from: u16, to: u16, head: &FrameHead, window: u32) -> Option<String> {
        let number = head.number;
        if head.kind & FRAME_KIND_MASK == FRAME_ACKNOWLEDGEMENT {
            let pair = self.pair(from, to);
            pair.acknowledged = number;
            let highest = self.pair(to, from).highest;
            return (number > highest).then(|| {
                format!("node {from} acknowledges frame {number} of node {to}, but has only frames up to {highest}")
            });
        }
        let acknowledged = self.pair(to, from).acknowledged_came;
        let pair = self.pair(from, to);
        pair.given += 1;
        let given = pair.given;
        if number != given {
            return Some(format!(
                "node {from} sends frame {number} to node {to}, but the next number is {given}"
            ));
        }
        (window > 0 && number > acknowledged.saturating_add(window)).then(|| {
            format!(
                "node {from} sends frame {number} to node {to}, but {acknowledged} are acknowledged: \
                 window {window} is full"
            )
        })
    }

    /// A frame leaves a card. Returns what is wrong with it.
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
        (head.number as usize != left).then(|| {
            format!("frame {} of node {from} to node {to} left the card as number {left}", head.number)
        })
    }

    /// A frame arrives at the card of a node.
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

    /// A driver finds a frame in its memory with the status of an intact one. Returns what is wrong with it.
    pub fn on_taken(&mut self, node: u16, frame: &[u8]) -> Option<String> {
        let seen = Seen::of(frame).filter(|seen| seen.is(FRAME_DATA))?;
        let (from, number) = (seen.from, seen.head.number);
        let pair = self.pair(from, node);
        if pair.sent(number).map(|left| left.hash) != Some(seen.hash) {
            return Some(format!(
                "node {node} found frame {number} of node {from}, which differs from the frame that left the card"
            ));
        }
        pair.take(&seen);
        (pair.taken > pair.came)
            .then(|| format!("node {node} found frame {number} of node {from} more often than it arrived"))
    }

    /// Whether a lost frame may keep a node from sending to another one for ever: a data frame that never arrived, so
    /// that the receiver does not acknowledge it, or an acknowledgement.
    #[must_use]
    pub fn is_excused(&self, from: u16, to: u16) -> bool {
        let Some(pair) = self.pairs.get(&(from, to)) else { return false };
        let back = self.pairs.get(&(to, from));
        let is_acknowledgement_lost = back.is_some_and(|back| back.acknowledged_came < back.acknowledged);
        (pair.in_time as usize) < pair.left.len() || is_acknowledgement_lost
    }

    /// At the end: compares what a node's driver reported with what it must have reported.
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
                wrong.push(format!("node {node}: the driver reported {is} {what}; {must} occurred"));
            }
        }
        let unfound = sum(&|pair| pair.came - pair.taken.min(pair.came));
        if unfound > raised.missed + raised.overflows {
            let missed = raised.missed + raised.overflows;
            wrong.push(format!(
                "node {node}: the driver did not find {unfound} intact frames, \
                 but the card reported only {missed} as dropped"
            ));
        }
        let again = sum(&|pair| pair.came.saturating_sub(pair.left.len() as u64));
        if raised.window > 0 && raised.missed > again {
            wrong.push(format!(
                "node {node}: {} frames found no buffer, although windows limit the senders",
                raised.missed
            ));
        }
        for ((from, to), pair) in &self.pairs {
            let left = pair.left.len();
            if *from == node && pair.given as usize != left {
                let given = pair.given;
                wrong.push(format!(
                    "node {node}: the driver sent {given} frames to node {to}, but {left} left the card"
                ));
            }
            let acknowledged = self.pairs.get(&(*to, *from)).map_or(0, |back| back.acknowledged);
            let owed = pair.highest.saturating_sub(acknowledged);
            if *to == node && raised.acknowledge_every > 0 && owed >= raised.acknowledge_every {
                wrong.push(format!("node {node}: {owed} frames of node {from} are not acknowledged"));
            }
        }
        wrong
    }
}

impl Pair {
    /// The frame of this number as it left.
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

    /// Sends frames from node 0 to node 1. `through` says of each frame whether the receiving driver finds it.
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
    fn each_loss_must_be_reported_once() {
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
    fn window_begins_at_the_last_acknowledgement_that_arrived() {
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
        assert!(
            frames.on_given(1, 0, &head, WINDOW).is_some(),
            "an acknowledgement of frames that did not arrive"
        );
    }

    #[test]
    fn sent_frames_must_leave_and_arrived_frames_must_be_found() {
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
        assert!(frames.on_taken(1, &other).is_some(), "the frame was changed");
    }
}
