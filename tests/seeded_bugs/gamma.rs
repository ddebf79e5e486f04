//! Seeded bugs of GAMMA cards, of their walk along descriptors, and of the window in drivers.

use super::{Fault, Finder};

/// The drivers' window, relative to the components.
const WINDOW: &str = "../../../../../../guest-driver/port/src/gamma/window";
const MESSAGE: &str = "../../../../../../guest-driver/port/src/gamma/message";
const RING: &str = "../../../parts/descriptor_ring";

/// All seeded bugs of GAMMA cards.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "damaged frames pass",
        component: "../../gamma/wire",
        sound: "if crc32fast::hash(covered) != u32::from_be_bytes(*check) {",
        broken: "if crc32fast::hash(covered) != u32::from_be_bytes(*check) && !FAULT {",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a frame with another source address is sent",
        component: "../../gamma/wire",
        sound: "if !is_own || head.protocol != PROTOCOL {",
        broken: "if (!is_own || head.protocol != PROTOCOL) && !FAULT {",
        finder: Finder::Tests("gamma::unsendable_frames_are_returned_with_the_reason"),
    },
    Fault {
        name: "frames for other nodes are accepted",
        component: "../../gamma/wire",
        sound: "Some(endpoint) => endpoint == (node, Some(MAC_ENDPOINT)),",
        broken: "Some(endpoint) => FAULT || endpoint == (node, Some(MAC_ENDPOINT)),",
        finder: Finder::Tests("gamma::other_protocols"),
    },
    Fault {
        name: "a frame's descriptor is returned before the frame has left",
        component: "../../gamma/transmit",
        sound: "leaves: start.max(now) + on_wire,",
        broken: "leaves: if FAULT { now } else { start.max(now) + on_wire },",
        finder: Finder::Tests("gamma::a_frame_is_copied_and_both_descriptors_are_returned"),
    },
    Fault {
        name: "a frame that waits for the FIFO is not sent when room is free",
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
        name: "a frame that begins inside another is no error",
        component: "../../gamma/transmit",
        sound: "if is_first && !self.parts.is_empty() {",
        broken: "if is_first && !self.parts.is_empty() && !FAULT {",
        finder: Finder::Tests("gamma::unsendable_frames_are_returned_with_the_reason"),
    },
    Fault {
        name: "a frame leaves before enough of it is read",
        component: "../../gamma/transmit",
        sound: "if threshold == 0 || threshold >= bytes {",
        broken: "if (threshold == 0 || threshold >= bytes) && !FAULT {",
        finder: Finder::Tests("gamma::store_and_forward"),
    },
    Fault {
        name: "the receive FIFO is unlimited",
        component: "../../gamma/receive",
        sound: "if leaving + waiting + whole > config.receive_fifo_bytes as usize {",
        broken: "if leaving + waiting + whole > config.receive_fifo_bytes as usize && !FAULT {",
        finder: Finder::Tests("gamma::only_a_full_fifo_loses_frames_and_not_a_fast_link"),
    },
    Fault {
        name: "bytes that have left the FIFO still occupy it",
        component: "../../gamma/receive",
        sound: "while self.leaving.pop_front_due(tail) {}",
        broken: "while !FAULT && self.leaving.pop_front_due(tail) {}",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a frame's bytes after 1 KiB are not stored",
        component: "../../gamma/receive",
        sound: "arrived.stored += bytes;",
        broken: "arrived.stored += if FAULT { bytes.min(1_024) } else { bytes };",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a descriptor is returned without its frame's damage",
        component: "../../gamma/receive",
        sound: "let fault = arrived.fault | fault;",
        broken: "let fault = if FAULT { fault } else { arrived.fault | fault };",
        finder: Finder::Tests("gamma::frames_without_room"),
    },
    Fault {
        name: "a missed frame does not make the card poll again",
        component: "../../gamma/receive",
        sound: "                self.ring.demand();\n                if self.look(now, effects) {",
        broken: "                if !FAULT { self.ring.demand(); }\n                if self.look(now, effects) {",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a demand during a read is ignored",
        component: RING,
        sound: "self.state = if is_demanded { State::Running } else { State::Suspended };",
        broken: "self.state = if is_demanded && !FAULT { State::Running } else { State::Suspended };",
        finder: Finder::Tests("descriptor_ring"),
    },
    Fault {
        name: "a ring that moves while the card runs is accepted",
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
        name: "the card interrupts one frame too early",
        component: "../../gamma/interrupts",
        sound: "if self.waiting.len() >= self.frames as usize {",
        broken: "if self.waiting.len() + usize::from(FAULT) >= self.frames as usize {",
        finder: Finder::Tests("gamma::interrupts_follow_the_drivers_moderation"),
    },
    Fault {
        name: "frames that wait for an interrupt are forgotten",
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
        name: "an acknowledgement of unsent frames is trusted",
        component: WINDOW,
        sound: "let is_news = acknowledged != 0 && acknowledged <= in_flight;",
        broken: "let is_news = acknowledged != 0 && (acknowledged <= in_flight || FAULT);",
        finder: Finder::PortTests("one_acknowledgement"),
    },
    Fault {
        name: "an acknowledgement is one frame late",
        component: WINDOW,
        sound: "let is_due = self.taken.wrapping_sub(self.acknowledged) >= every.get();",
        broken: "let is_due = self.taken.wrapping_sub(self.acknowledged) >= every.get() + u32::from(FAULT);",
        finder: Finder::Swarm,
    },
    Fault {
        name: "a lost frame is not reported",
        component: WINDOW,
        sound: "Taken::New { lost: ahead - 1 }",
        broken: "Taken::New { lost: if FAULT { 0 } else { ahead - 1 } }",
        finder: Finder::Swarm,
    },
    Fault {
        name: "the rest of a message that lost a frame counts as complete",
        component: MESSAGE,
        sound: "self.begun.take().is_some()",
        broken: "if FAULT { self.begun.is_some() } else { self.begun.take().is_some() }",
        finder: Finder::Swarm,
    },
];
