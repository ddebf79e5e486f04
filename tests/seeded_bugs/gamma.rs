//! Faults of GAMMA cards, of the walk along their descriptors, and of the window that drivers keep.

use super::{Fault, Finder};

/// Where drivers keep their window, as seen from the components.
const WINDOW: &str = "../../../../../../guest-driver/port/src/active_ports/window";
const MESSAGE: &str = "../../../../../../guest-driver/port/src/active_ports/message";
const RING: &str = "../../../parts/descriptor_ring";

/// All of them.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "damaged frames pass",
        component: "../../gamma/wire",
        sound: "if crc32fast::hash(covered) != u32::from_be_bytes(*check) {",
        broken: "if crc32fast::hash(covered) != u32::from_be_bytes(*check) && !FAULT {",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a frame in another's name is sent",
        component: "../../gamma/wire",
        sound: "if !is_own || head.protocol != PROTOCOL {",
        broken: "if (!is_own || head.protocol != PROTOCOL) && !FAULT {",
        finder: Finder::Tests("gamma::unsendable_frames_are_returned_with_the_reason"),
    },
    Fault {
        name: "frames for others are taken",
        component: "../../gamma/wire",
        sound: "Some(station) => station == (node, Some(STATION)),",
        broken: "Some(station) => FAULT || station == (node, Some(STATION)),",
        finder: Finder::Tests("gamma::other_protocols"),
    },
    Fault {
        name: "a frame goes back before it has left",
        component: "../../gamma/transmit",
        sound: "leaves: start.max(now) + on_wire,",
        broken: "leaves: if FAULT { now } else { start.max(now) + on_wire },",
        finder: Finder::Tests("gamma::a_frame_is_copied_and_both_descriptors_are_returned"),
    },
    Fault {
        name: "what waits for the FIFO is not sent when there is room",
        component: "../../gamma/transmit",
        sound: "if matches!(self.next, Next::Waiting) {",
        broken: "if matches!(self.next, Next::Waiting) && !FAULT {",
        finder: Finder::Swarm,
    },
    Fault {
        name: "the wire sends two frames at once",
        component: "../../gamma/transmit",
        sound: "self.wire_free = start + slot;",
        broken: "if !FAULT { self.wire_free = start + slot; }",
        finder: Finder::Tests("gamma::frames_leave_one_slot"),
    },
    Fault {
        name: "a frame that is too long with its check sequence is sent",
        component: "../../gamma/transmit",
        sound: "Ok(frame) if frame.len() <= config.mtu_bytes as usize + HEADER_BYTES => frame,",
        broken: "Ok(frame) if frame.len() <= config.mtu_bytes as usize + HEADER_BYTES || FAULT => frame,",
        finder: Finder::Tests("gamma::unsendable_frames_are_returned_with_the_reason"),
    },
    Fault {
        name: "a frame within a frame is no error",
        component: "../../gamma/transmit",
        sound: "if is_first && !self.parts.is_empty() {",
        broken: "if is_first && !self.parts.is_empty() && !FAULT {",
        finder: Finder::Tests("gamma::unsendable_frames_are_returned_with_the_reason"),
    },
    Fault {
        name: "a frame leaves before enough of it was read",
        component: "../../gamma/transmit",
        sound: "if threshold == 0 || threshold >= bytes {",
        broken: "if (threshold == 0 || threshold >= bytes) && !FAULT {",
        finder: Finder::Tests("gamma::store_and_forward"),
    },
    Fault {
        name: "the FIFO for what comes has no end",
        component: "../../gamma/receive",
        sound: "if leaving + waiting + whole > config.receive_fifo_bytes as usize {",
        broken: "if leaving + waiting + whole > config.receive_fifo_bytes as usize && !FAULT {",
        finder: Finder::Tests("gamma::only_a_full_fifo_loses_frames_and_not_a_fast_link"),
    },
    Fault {
        name: "bytes that have left the FIFO take room for ever",
        component: "../../gamma/receive",
        sound: "while self.leaving.pop_front_due(tail) {}",
        broken: "while !FAULT && self.leaving.pop_front_due(tail) {}",
        finder: Finder::Swarm,
    },
    Fault {
        name: "what is behind a kibibyte of a frame is not stored",
        component: "../../gamma/receive",
        sound: "arrived.stored += bytes;",
        broken: "arrived.stored += if FAULT { bytes.min(1_024) } else { bytes };",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a descriptor goes back with its frame's damage unreported",
        component: "../../gamma/receive",
        sound: "let fault = arrived.fault | fault;",
        broken: "let fault = if FAULT { fault } else { arrived.fault | fault };",
        finder: Finder::Tests("gamma::frames_without_room"),
    },
    Fault {
        name: "a missed frame does not make the card look again",
        component: "../../gamma/receive",
        sound: "                self.ring.demand();\n                if self.look(now, effects) {",
        broken: "                if !FAULT { self.ring.demand(); }\n                if self.look(now, effects) {",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a demand is heard and not heeded while the card reads",
        component: RING,
        sound: "self.state = if is_demanded { State::Running } else { State::Suspended };",
        broken: "self.state = if is_demanded && !FAULT { State::Running } else { State::Suspended };",
        finder: Finder::Tests("descriptor_ring"),
    },
    Fault {
        name: "a ring that is moved under the card is followed",
        component: RING,
        sound: "if self.state != State::Stopped {\n            return Err(RingFault::Moved",
        broken: "if self.state != State::Stopped && !FAULT {\n            return Err(RingFault::Moved",
        finder: Finder::Tests("gamma::rings_are_started_once"),
    },
    Fault {
        name: "descriptors of a stopped ring are written back",
        component: RING,
        sound: "if generation != self.generation {",
        broken: "if generation != self.generation && !FAULT {",
        finder: Finder::Tests("descriptor_ring"),
    },
    Fault {
        name: "one interrupt more than asked for",
        component: "../../gamma/interrupts",
        sound: "if self.waiting.len() >= self.frames as usize {",
        broken: "if self.waiting.len() + usize::from(FAULT) >= self.frames as usize {",
        finder: Finder::Tests("gamma::interrupts_follow_the_drivers_moderation"),
    },
    Fault {
        name: "what waits for an interrupt is forgotten",
        component: "../../gamma/interrupts",
        sound: "if self.deadline.is_some_and(|deadline| deadline <= now) {",
        broken: "if self.deadline.is_some_and(|deadline| deadline <= now) && !FAULT {",
        finder: Finder::Swarm,
    },
    Fault {
        name: "the window is one frame too wide",
        component: WINDOW,
        sound: "Some(frames) => frames.get().saturating_sub(",
        broken: "Some(frames) => (frames.get() + u32::from(FAULT)).saturating_sub(",
        finder: Finder::Swarm,
    },
    Fault {
        name: "an acknowledgement of what was not sent is believed",
        component: WINDOW,
        sound: "let is_news = acknowledged != 0 && acknowledged <= under_way;",
        broken: "let is_news = acknowledged != 0 && (acknowledged <= under_way || FAULT);",
        finder: Finder::PortTests("one_acknowledgement"),
    },
    Fault {
        name: "the acknowledgement never comes",
        component: WINDOW,
        sound: "let is_due = self.taken.wrapping_sub(self.acknowledged) >= every.get();",
        broken: "let is_due = self.taken.wrapping_sub(self.acknowledged) >= every.get() + u32::from(FAULT);",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a lost frame is not told",
        component: WINDOW,
        sound: "Taken::New { lost: ahead - 1 }",
        broken: "Taken::New { lost: if FAULT { 0 } else { ahead - 1 } }",
        finder: Finder::Swarm,
    },
    Fault {
        name: "the rest of a message that lost a frame is taken for whole",
        component: MESSAGE,
        sound: "self.begun.take().is_some()",
        broken: "if FAULT { self.begun.is_some() } else { self.begun.take().is_some() }",
        finder: Finder::Swarm,
    },
];
