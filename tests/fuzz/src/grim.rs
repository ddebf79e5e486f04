//! Cards with channels: a program's pushes, a driver's requests, and other cards' frames.

use niclab_abi::ToBytes;
use niclab_abi::bar::{LAUNCH_SEQUENCE_SHIFT, SLOT_BYTES, SLOT_LAUNCH_WORD, slot_of};
use niclab_abi::control::{OP_PORT_CLOSE, OP_PORT_OPEN, OP_RESET, PortName};
use niclab_abi::grim::{
    BulkHeader, CHANNEL_BULK, CHANNEL_MEMORY, CHANNEL_SEGMENT, CHANNEL_SHORT, ChannelExpose, ChannelPayload,
    MemoryHeader, MessageHeader, OP_CHANNEL_EXPOSE, OP_CHANNEL_PAYLOAD, Segment,
};
use niclab_abi::receive::{SLICE_BYTES, SLICE_STATUS_WORD, SliceStatus};
use niclab_abi::region::{OP_REGION_CLOSE, OP_REGION_OPEN, RegionName};
use niclab_device::shell::idle::deadlines;
use niclab_device::shell::service;
use niclab_model::models::grim::wire::{Failures, Fragment, FrameKind, Header, Purpose, seal};
use niclab_model::nic::FrameBytes;

use crate::scene::{NODES, SLICES, Scene, bytes_of, ethernet_header, opening, push_request, region_open};

/// The size of the area for message payload, from the start of the region on; others may write all of it.
const PAYLOAD_BYTES: u64 = 0x1_0000;
/// Bytes after the Ethernet header of a frame without payload.
const HEAD_BYTES: usize = 14;
/// Words of a slot that hold a header. The header ends at the last of them.
const SLOT_WORDS: usize = 10;

/// Programs at a scene's four nodes.
struct Programs {
    scene: Scene,
    regions: Vec<u32>,
    launched: Vec<u32>,
}

impl Programs {
    fn new() -> Self {
        let mut scene = Scene::of_cards("{ model = \"grim\", grim = { channels = 2 } }");
        let regions: Vec<u32> = (0..usize::from(NODES)).map(|node| scene.open_region(node)).collect();
        for (node, region) in regions.iter().enumerate() {
            scene.request_bytes(node, OP_CHANNEL_PAYLOAD, &bytes_of(&payload(*region)));
            scene.request_bytes(node, OP_CHANNEL_EXPOSE, &bytes_of(&expose(*region)));
        }
        let mut programs = Self { scene, regions, launched: vec![0; usize::from(NODES)] };
        // Messages to acknowledge, and messages in flight to a port that is asked to close.
        for (from, to) in [(0, 1), (1, 0), (0, 0)] {
            programs.send(from, to, 3_000);
        }
        programs
    }

    fn region(&self, node: usize) -> u32 {
        self.regions.get(node).copied().unwrap_or_default()
    }

    fn launch(&mut self, node: usize, code: u32, words: &[u8]) {
        let Some(launched) = self.launched.get_mut(node) else { return };
        *launched += 1;
        let sequence = *launched;
        let mut slot = [0; SLOT_BYTES as usize];
        let end = SLOT_LAUNCH_WORD * 8;
        slot.iter_mut().take(end).zip(words).for_each(|(place, byte)| *place = *byte);
        let word = u64::from(code) | u64::from(sequence) << LAUNCH_SEQUENCE_SHIFT;
        slot.iter_mut().skip(end).zip(word.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        let place = u64::from(slot_of(sequence)) * u64::from(SLOT_BYTES);
        self.scene.write_bar(node, |pages| pages.bar.requester_page(0), place, &slot);
        service::serve_pages(&mut self.scene.lock_all(), node);
    }

    fn send(&mut self, from: usize, node: u16, bytes: u32) {
        let header = BulkHeader { node, handler: 20, bytes, pushed: bytes, ..BulkHeader::default() };
        self.launch(from, CHANNEL_BULK, &slot_words(&header));
    }

    fn ask(&mut self, request: &[u8]) {
        self.scene.ask(request);
        deadlines::pass_time(&mut self.scene.lock_all());
    }

    /// Checks that two uninvolved nodes can still exchange a message of several frames.
    fn check_bystanders(&mut self) {
        self.send(2, 3, 4_000);
        for _ in 0..64 {
            deadlines::pass_time(&mut self.scene.lock_all());
        }
        let status = |slice: u64| {
            let place = SLICES + slice * SLICE_BYTES + SLICE_STATUS_WORD as u64 * 8;
            let word = self.scene.read(3, place, 8);
            SliceStatus::decode(word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
        };
        let came = (0..64).filter_map(status).any(|status| (status.source_node, status.words) == (2, 2));
        assert!(came, "the bystanders' message did not arrive");
    }
}

/// The words of a slot with a header.
fn slot_words<T: ToBytes>(header: &T) -> Vec<u8> {
    let bytes = bytes_of(header);
    [vec![0; SLOT_WORDS * 8 - bytes.len()], bytes].concat()
}

fn payload(region: u32) -> ChannelPayload {
    ChannelPayload { region, bytes: PAYLOAD_BYTES, ..ChannelPayload::default() }
}

fn expose(region: u32) -> ChannelExpose {
    ChannelExpose { region, is_exposed: 1, ..ChannelExpose::default() }
}

/// A program's pushes: a list of slots of 128 bytes. The last byte of a slot selects the handling: most have a valid
/// command, and after some no time passes before the next.
pub fn fuzz_channel_commands(data: &[u8]) {
    commands(data).check_bystanders();
}

fn commands(data: &[u8]) -> Programs {
    let mut programs = Programs::new();
    for slot in data.chunks(SLOT_BYTES as usize) {
        let last = slot.last().copied().unwrap_or(0);
        let code = slot.get(SLOT_LAUNCH_WORD * 8..).and_then(<[u8]>::first_chunk);
        let code = code.map_or(0, |code| u32::from_le_bytes(*code));
        programs.launch(0, if last & 2 == 0 { code & 0x107 } else { code }, slot);
        if last & 4 == 0 {
            let released = slot.get(..16).unwrap_or(slot);
            programs.scene.write_bar(0, |pages| pages.bar.completer_page(0), 0, released);
        }
        if last & 8 == 0 {
            deadlines::pass_time(&mut programs.scene.lock_all());
        }
    }
    programs
}

/// Control requests while messages are in flight: a list, each after a byte with its length.
pub fn fuzz_channel_control(data: &[u8]) {
    control(data).check_bystanders();
}

fn control(data: &[u8]) -> Programs {
    let mut programs = Programs::new();
    let mut rest = data;
    while let Some((&length, tail)) = rest.split_first() {
        let (request, tail) = tail.split_at(tail.len().min(length.into()));
        rest = tail;
        programs.send(0, 1, 1_500);
        programs.send(1, 0, 1_500);
        programs.ask(request);
    }
    programs
}

/// Frames of another card: after a first byte a list of frames, each after a byte with its length in units of four. If
/// the highest bit of the first byte is clear, the frames have a valid check sequence.
pub fn fuzz_channel_frames(data: &[u8]) {
    frames(data).check_bystanders();
}

fn frames(data: &[u8]) -> Programs {
    let (&first, mut rest) = data.split_first().unwrap_or((&0, data));
    let mut programs = Programs::new();
    while let Some((&length, tail)) = rest.split_first() {
        let (behind, tail) = tail.split_at(tail.len().min(usize::from(length) * 4));
        rest = tail;
        let mut frame = FrameBytes::from_slice(&ethernet_header(1, 0));
        frame.extend_from_slice(behind);
        if first & 0x80 == 0 {
            seal(&mut frame);
        }
        programs.scene.inject(frame);
    }
    programs
}

/// Messages of all kinds, with segments.
pub fn command_seeds() -> Vec<Vec<u8>> {
    let slot = |code: u32, words: Vec<u8>, is_whole: bool| {
        let mut slot = words;
        slot.resize(SLOT_LAUNCH_WORD * 8, 0);
        slot.extend(code.to_le_bytes());
        slot.resize(SLOT_BYTES as usize, 0);
        // The registers stay unchanged. No time passes before the rest of a message, because the card would abandon it.
        slot.iter_mut().next_back().into_iter().for_each(|last| *last = if is_whole { 4 } else { 12 });
        slot
    };
    let region = Programs::new().region(1);
    let seed = |bytes: u32| {
        let slots = (0..6_u16).flat_map(|number| {
            let node = number % 3;
            let handler = 20 + u32::from(number);
            let short = MessageHeader { node, handler, ..MessageHeader::default() };
            let bulk = BulkHeader { node, handler, bytes, pushed: bytes / 3, ..BulkHeader::default() };
            let memory =
                MemoryHeader { node, region, place: 64, bytes, pushed: bytes, ..MemoryHeader::default() };
            [
                slot(CHANNEL_SHORT, slot_words(&short), true),
                slot(CHANNEL_BULK, slot_words(&bulk), false),
                slot(CHANNEL_SEGMENT, slot_words(&Segment { pushed: bytes / 2, reserved: 0 }), false),
                slot(CHANNEL_SEGMENT, slot_words(&Segment { pushed: bytes, reserved: 0 }), true),
                slot(CHANNEL_MEMORY, slot_words(&memory), true),
            ]
            .concat()
        });
        slots.collect()
    };
    [64, 5_000, 40_000].map(seed).to_vec()
}

/// Every request that a card with channels takes, twice.
pub fn control_seeds() -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    let mut add = |operation: u32, body: &[u8]| push_request(&mut requests, operation, body);
    let first = Programs::new().region(0);
    // The index after the first one; and the first index again, with its next generation, once the port has closed.
    for region in [first + 1, first + (1 << 16)] {
        add(OP_REGION_OPEN, &region_open());
        add(OP_CHANNEL_PAYLOAD, &bytes_of(&payload(region)));
        add(OP_CHANNEL_EXPOSE, &bytes_of(&expose(region)));
        add(OP_CHANNEL_EXPOSE, &bytes_of(&ChannelExpose { is_exposed: 0, ..expose(region) }));
        add(OP_REGION_CLOSE, &bytes_of(&RegionName { region, ..RegionName::default() }));
        add(OP_PORT_CLOSE, &bytes_of(&PortName::default()));
        add(OP_PORT_OPEN, &bytes_of(&opening()));
        add(OP_RESET, &[]);
        add(OP_PORT_OPEN, &bytes_of(&opening()));
    }
    vec![requests]
}

/// A message in three fragments, a message to a region, a void instead of a message, and answers to sent messages.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    let region = Programs::new().region(0);
    let mut input = vec![0];
    let mut add = |channel: u8, sequence: u32, kind: FrameKind, payload: &[u8]| {
        let asks = matches!(kind, FrameKind::Message(_) | FrameKind::Void | FrameKind::Report(_));
        let header = Header { source: 1, destination: 0, channel, kind, asks, sequence };
        let frame = [&header.head()[..], payload].concat();
        let behind = frame.get(HEAD_BYTES..).unwrap_or_default();
        input.push((behind.len() / 4) as u8);
        input.extend(behind);
    };
    let purpose = Purpose::Handler { handler: 20, arguments: [1, 2, 3, 4] };
    let fragment = Fragment { endpoint: 0, purpose, interrupt: false, offset: 0, bytes: 120, owner: 0 };
    for number in 0..3 {
        add(1, number, FrameKind::Message(Fragment { offset: 40 * number, ..fragment }), &[7; 40]);
    }
    let memory = Fragment { purpose: Purpose::Memory { region, place: 64 }, bytes: 40, ..fragment };
    add(1, 3, FrameKind::Message(memory), &[8; 40]);
    add(1, 4, FrameKind::Message(fragment), &[9; 40]);
    add(1, 5, FrameKind::Void, &[]);
    let failures = Failures { reason: 10, ..Failures::default() };
    add(1, 6, FrameKind::Report(failures), &[]);
    add(0, 0, FrameKind::Refusal(failures), &[]);
    add(0, 1, FrameKind::Acknowledgement(failures), &[]);
    vec![input]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of the attacked card.
    fn count(programs: &Programs, name: &str) -> u64 {
        let counters =
            programs.scene.lock_all().nodes.card(0).map(|card| card.nic.counters()).unwrap_or_default();
        counters.iter().find(|(known, _)| *known == name).map_or(u64::MAX, |(_, count)| *count)
    }

    #[test]
    fn valid_inputs_have_an_effect() {
        for input in frame_seeds() {
            let programs = frames(&input);
            let cards = programs.scene.lock_all().nodes.card(0).map(|card| card.statistics());
            assert_eq!((count(&programs, "memory_received"), count(&programs, "bad_memory")), (1, 0));
            // Its own message, node 1's, and the one in three fragments.
            assert!(cards.is_some_and(|card| card.packets_received >= 2), "{cards:?}");
        }
        for input in command_seeds() {
            let programs = commands(&input);
            assert_eq!((count(&programs, "short_sent"), count(&programs, "memory_sent")), (6, 6));
            // Includes two messages from before.
            assert_eq!((count(&programs, "bulk_sent"), count(&programs, "segments")), (8, 12));
        }
        for input in control_seeds() {
            let programs = control(&input);
            let refused =
                programs.scene.lock_all().nodes.card(0).map(|card| card.statistics().control_refused);
            // The region already has payload.
            assert_eq!(refused, Some(1));
        }
    }
}
