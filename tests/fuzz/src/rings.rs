//! Cards with descriptor rings: a driver's memory and requests, and other cards' frames.

use niclab_abi::control::OP_RESET;
use niclab_abi::gamma::{FRAME_DATA, FRAME_FIRST, FRAME_LAST, FrameHead};
use niclab_abi::rings::{
    FifoSend, FifoTake, OP_FIFO_LOOK, OP_FIFO_SEND, OP_FIFO_TAKE, OP_RING_INTERRUPTS, OP_RING_START,
    OP_RING_STOP, OP_RING_TERMS, RING_END, RING_FIRST, RING_LAST, RING_OWN, RING_RECEIVE, RING_SIZE_SHIFT,
    RING_STATUS_LAST, RING_TRANSMIT, RingInterrupts, RingName, RingStart,
};
use niclab_device::shell::idle::deadlines;
use niclab_device::shell::service::device;
use niclab_device::shell::service::queues;
use niclab_model::models::gamma::wire::{PROTOCOL, seal};
use niclab_model::nic::{DescriptorQueue, FrameBytes};

use crate::scene::{NODES, SLICES, Scene, bytes_of, ethernet_header, push_request};

/// The address of a driver's rings, the transmit ring first; its buffers follow.
const RINGS: u64 = SLICES;
const DESCRIPTORS: u64 = 8;
/// A descriptor and the gap after it.
const STRIDE: u64 = 32;
const RING_BYTES: u64 = DESCRIPTORS * STRIDE;
const BUFFERS: u64 = SLICES + 0x1000;
/// The size of a frame buffer.
const BUFFER_BYTES: u64 = 1_600;
/// The length of a bystander's message.
const BYTES: usize = 300;

/// Drivers at a scene's four nodes.
struct Drivers {
    scene: Scene,
    sent: [u64; NODES as usize],
}

impl Drivers {
    /// Drivers of cards with these keys in their table.
    fn of(keys: &str) -> Self {
        let mut scene = Scene::of_cards(&format!("{{ model = \"gamma\", gamma = {{ {keys} }} }}"));
        for node in 0..usize::from(NODES) {
            for place in 0..DESCRIPTORS {
                let (address, words) = descriptor(1, place, BUFFER_BYTES, 0);
                scene.write_to(node, address, &words);
            }
            for ring in [RING_TRANSMIT, RING_RECEIVE] {
                scene.request_bytes(node, OP_RING_START, &bytes_of(&start(ring)));
            }
        }
        Self { scene, sent: [0; NODES as usize] }
    }

    /// Sends a frame with `bytes` bytes after its head from one node's driver.
    fn send(&mut self, from: usize, to: u16, bytes: usize) {
        let Some(sent) = self.sent.get_mut(from) else { return };
        let place = *sent % DESCRIPTORS;
        *sent += 1;
        let frame = frame(from as u16, to, *sent as u32, bytes);
        let (address, words) = descriptor(0, place, frame.len() as u64, RING_FIRST | RING_LAST);
        self.scene.write_to(from, buffer(0, place), &frame);
        self.scene.write_to(from, address, &words);
        queues::serve_descriptors(&mut self.scene.lock_all(), from, DescriptorQueue::Transmit);
    }

    /// Whether a complete frame with `bytes` bytes after its head has arrived at a node.
    fn has_come(&self, node: usize, bytes: usize) -> bool {
        (0..DESCRIPTORS).any(|place| {
            let word = self.scene.read(node, descriptor(1, place, 0, 0).0, 8);
            let word = word.first_chunk().map_or(RING_OWN, |word| u64::from_le_bytes(*word));
            let expected = frame(2, 3, 1, bytes);
            word & RING_OWN == 0
                && word as u32 & RING_STATUS_LAST != 0
                && self.scene.read(node, buffer(1, place), expected.len()) == expected
        })
    }

    /// Checks that two uninvolved nodes can still exchange a frame.
    fn check_bystanders(&mut self) {
        self.send(2, 3, BYTES);
        for _ in 0..64 {
            deadlines::pass_time(&mut self.scene.lock_all());
        }
        assert!(self.has_come(3, BYTES), "the bystanders' frame did not arrive");
    }
}

/// The address of a buffer; those of the transmit ring come first.
const fn buffer(ring: u64, place: u64) -> u64 {
    BUFFERS + (ring * DESCRIPTORS + place) * BUFFER_BYTES
}

/// The address of a descriptor, and its words when it belongs to the card with one buffer.
fn descriptor(ring: u64, place: u64, bytes: u64, flags: u64) -> (u64, Vec<u8>) {
    let end = if place + 1 == DESCRIPTORS { RING_END } else { 0 };
    let words = [RING_OWN | flags | end | bytes << RING_SIZE_SHIFT, buffer(ring, place)];
    let words = words.into_iter().flat_map(u64::to_le_bytes).collect();
    (RINGS + ring * RING_BYTES + place * STRIDE, words)
}

fn start(ring: u32) -> RingStart {
    RingStart {
        ring,
        skip_bytes: STRIDE as u32 - 16,
        first: RINGS + u64::from(ring) * RING_BYTES,
        reserved: 0,
    }
}

fn frame(from: u16, to: u16, number: u32, bytes: usize) -> Vec<u8> {
    let kind = FRAME_DATA | FRAME_FIRST | FRAME_LAST;
    let head = FrameHead { protocol: PROTOCOL, kind, source_port: 1, target_port: 2, number };
    let data = (0..bytes).map(|byte| byte as u8);
    ethernet_header(from, to).into_iter().chain(bytes_of(&head)).chain(data).collect()
}

/// Descriptors and buffers: the memory of both rings of node 0, while frames arrive from another node.
pub fn fuzz_ring_memory(data: &[u8]) {
    let mut drivers = Drivers::of("");
    for shift in [0, 0, 8, 16, 4] {
        drivers.scene.write(RINGS + shift, data);
        drivers.send(1, 0, BYTES);
        for queue in DescriptorQueue::ALL {
            queues::serve_descriptors(&mut drivers.scene.lock_all(), 0, queue);
        }
        deadlines::pass_time(&mut drivers.scene.lock_all());
    }
    device::reset(&mut drivers.scene.lock_all(), 0);
    drivers.check_bystanders();
}

/// Control requests while frames are in flight: after a first byte a list, each after a byte with its length. The first
/// byte selects whether the cards have rings, or processors drive their transfers.
pub fn fuzz_ring_control(data: &[u8]) {
    let (&first, mut rest) = data.split_first().unwrap_or((&0, data));
    let is_cpu_driven = first & 0x80 != 0;
    let mut drivers =
        Drivers::of(if is_cpu_driven { "transfer = \"cpu-driven\", window_frames = 0" } else { "" });
    while let Some((&length, tail)) = rest.split_first() {
        let (request, tail) = tail.split_at(tail.len().min(length.into()));
        rest = tail;
        drivers.send(0, 1, BYTES);
        drivers.send(1, 0, BYTES);
        drivers.scene.ask(request);
        deadlines::pass_time(&mut drivers.scene.lock_all());
    }
    // Without rings the bystanders' drivers send nothing.
    if !is_cpu_driven {
        drivers.check_bystanders();
    }
}

/// Frames of another card: a list, each after a byte with its length in units of four. If the highest bit of that byte
/// is clear, the frame has a valid check sequence.
pub fn fuzz_ring_frames(data: &[u8]) {
    let mut drivers = Drivers::of("");
    let mut rest = data;
    while let Some((&length, tail)) = rest.split_first() {
        let (payload, tail) = tail.split_at(tail.len().min(usize::from(length & 0x7f) * 4));
        rest = tail;
        let mut bytes = FrameBytes::from_slice(&ethernet_header(1, 0));
        bytes.extend_from_slice(payload);
        let sealed = if length & 0x80 == 0 { seal(bytes.clone(), 1).ok() } else { None };
        drivers.scene.inject(sealed.unwrap_or(bytes));
    }
    drivers.check_bystanders();
}

/// Two valid rings, with a frame to send.
pub fn memory_seeds() -> Vec<Vec<u8>> {
    let mut drivers = Drivers::of("");
    drivers.send(0, 1, BYTES);
    let (address, words) = descriptor(0, 1, 60, RING_FIRST | RING_LAST);
    drivers.scene.write(address, &words);
    vec![drivers.scene.read(0, RINGS, 2 * RING_BYTES as usize)]
}

/// All requests of both modes.
pub fn control_seeds() -> Vec<Vec<u8>> {
    let stop = |ring| bytes_of(&RingName { ring, reserved: 0 });
    let rings = [
        (OP_RING_TERMS, Vec::new()),
        (OP_RING_START, bytes_of(&start(RING_RECEIVE))),
        (OP_RING_INTERRUPTS, bytes_of(&RingInterrupts { frames: 3, delay_ns: 500, reserved: 0 })),
        (OP_RING_STOP, stop(RING_TRANSMIT)),
        (OP_RING_STOP, stop(RING_RECEIVE)),
        (OP_RING_START, bytes_of(&start(RING_TRANSMIT))),
        (OP_RING_START, bytes_of(&start(RING_RECEIVE))),
        (OP_RESET, Vec::new()),
    ];
    let send = FifoSend { bytes: 200, address: buffer(0, 0), message_bytes: 200, ..FifoSend::default() };
    let take = FifoTake { address: buffer(1, 0), ..FifoTake::default() };
    let fifo = [
        (OP_FIFO_LOOK, Vec::new()),
        (OP_FIFO_SEND, bytes_of(&send)),
        (OP_FIFO_TAKE, bytes_of(&take)),
        (OP_RESET, Vec::new()),
    ];
    vec![requests(0, &rings), requests(0x80, &fifo)]
}

fn requests(first: u8, requests: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut input = vec![first];
    requests.iter().for_each(|(operation, body)| push_request(&mut input, *operation, body));
    input
}

/// A message of one frame, an acknowledgement of unsent frames, and a frame of another kind.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    let mut input = Vec::new();
    for kind in [FRAME_DATA | FRAME_FIRST | FRAME_LAST, 2, FRAME_DATA | FRAME_LAST, 7] {
        let head = FrameHead { protocol: PROTOCOL, kind, source_port: 1, target_port: 2, number: 1 };
        let mut payload = bytes_of(&head);
        payload.resize(64, 5);
        input.push((payload.len() / 4) as u8);
        input.extend(payload);
    }
    vec![input]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_ring_inputs_have_their_effects() {
        let mut drivers = Drivers::of("");
        drivers.send(2, 3, BYTES);
        (0..8).for_each(|_| deadlines::pass_time(&mut drivers.scene.lock_all()));
        assert!(drivers.has_come(3, BYTES) && !drivers.has_come(3, BYTES + 1));
    }
}
