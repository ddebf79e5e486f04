//! Fuzz targets. Each target takes any bytes, passes them to the device's own code as input from a guest, and returns.
//! A panic, or a call that does not return, is a finding.
//!
//! `cargo test -p niclab-fuzz` runs them for a bounded time on mutations of valid inputs, from a seed that it prints.
//! With libFuzzer a target is one line: `fuzz_target!(|data: &[u8]| niclab_fuzz::fuzz_control(data));`.

mod circuit;
mod grim;
mod inic;
#[path = "../../../device/vhost-user/tests/suite/common/loopback.rs"]
mod loopback;
mod rings;
mod scene;

use niclab_abi::QUEUE_EVENT;
use niclab_abi::bar::{SLOT_BYTES, SLOT_LAUNCH_WORD, launch_word, slot_of};
use niclab_device::shell::idle::deadlines;
use niclab_device::shell::service;
use niclab_device::shell::service::device;
use niclab_device::shell::service::ethernet_function;
use niclab_device::shell::service::queues;
use niclab_model::nic::{DescriptorQueue, FrameBytes};

pub use grim::{fuzz_channel_commands, fuzz_channel_control, fuzz_channel_frames};
pub use inic::{fuzz_assembly, fuzz_post_commands, fuzz_post_control, fuzz_post_frames};
use loopback::Loopback;
pub use rings::{fuzz_ring_control, fuzz_ring_frames, fuzz_ring_memory};
use scene::{DATA, Piece, Scene};

/// A target.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Target); 16] = [
    ("control", fuzz_control),
    ("ring", fuzz_ring),
    ("chains", fuzz_chains),
    ("descriptors", fuzz_descriptors),
    ("launch", fuzz_launch),
    ("frame", fuzz_frame),
    ("post-commands", fuzz_post_commands),
    ("post-control", fuzz_post_control),
    ("post-frames", fuzz_post_frames),
    ("assembly", fuzz_assembly),
    ("channel-commands", fuzz_channel_commands),
    ("channel-control", fuzz_channel_control),
    ("channel-frames", fuzz_channel_frames),
    ("ring-memory", fuzz_ring_memory),
    ("ring-control", fuzz_ring_control),
    ("ring-frames", fuzz_ring_frames),
];

/// The valid inputs of a target, from which mutations begin.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "post-commands" => inic::command_seeds(),
        "post-control" => inic::control_seeds(),
        "post-frames" => inic::frame_seeds(),
        "assembly" => inic::assembly_seeds(),
        "channel-commands" => grim::command_seeds(),
        "channel-control" => grim::control_seeds(),
        "channel-frames" => grim::frame_seeds(),
        "ring-memory" => rings::memory_seeds(),
        "ring-control" => rings::control_seeds(),
        "ring-frames" => rings::frame_seeds(),
        other => scene::seeds(other),
    }
}

/// Control messages: the input is a list of requests. Each follows a byte with its length.
pub fn fuzz_control(data: &[u8]) {
    let mut scene = Scene::new();
    let mut rest = data;
    while let Some((&length, tail)) = rest.split_first() {
        let (request, tail) = tail.split_at(tail.len().min(length.into()));
        rest = tail;
        scene.ask(request);
    }
    scene.check_bystanders();
}

/// Rings: the input is the memory of all rings, tables and buffers of a guest.
pub fn fuzz_ring(data: &[u8]) {
    let mut scene = Scene::new();
    scene.write(scene::RINGS, data);
    for _ in 0..4 {
        queues::serve_control(&mut scene.lock_all(), 0);
        if let Some(card) = scene.lock_all().nodes.card_mut(0) {
            card.host.raise(1, 0, card.nic.fault_injector_mut());
        }
        queues::serve_events(&mut scene.lock_all(), 0);
        ethernet_function::transmit(&mut scene.lock_all(), 0, 0);
        ethernet_function::refill(&mut scene.lock_all(), 0, 0);
        // Another node sends a frame to the broken receive queue.
        scene.transmit(1, &[0; 12], &[0xff; 60]);
        // Then the rings again, moved by two bytes: indices that change while the device reads them.
        scene.write(scene::RINGS + 2, data);
    }
    scene.check_bystanders();
}

/// Descriptor queues of a card that takes chains: the input is the memory of all rings, tables and buffers.
pub fn fuzz_chains(data: &[u8]) {
    let mut scene = Scene::new();
    scene.set_card(Loopback::of_chains());
    for shift in [0, 2, 4, 6] {
        scene.write(scene::RINGS + shift, data);
        for queue in DescriptorQueue::ALL {
            queues::serve_descriptors(&mut scene.lock_all(), 0, queue);
        }
    }
    device::reset(&mut scene.lock_all(), 0);
    scene.check_bystanders();
}

/// Rings of descriptors that a card reads in the guest's memory. The input begins with the offset of the receive ring,
/// which is after the transmit ring, and continues as the memory from there on.
pub fn fuzz_descriptors(data: &[u8]) {
    let mut scene = Scene::new();
    let (begin, data) = data.split_first().unwrap_or((&0, data));
    scene.set_card(Loopback::of_rings([DATA, DATA + u64::from(*begin)]));
    for shift in [0, 0, 8, 16, 4] {
        scene.write(DATA + shift, data);
        for queue in DescriptorQueue::ALL {
            queues::serve_descriptors(&mut scene.lock_all(), 0, queue);
        }
    }
    device::reset(&mut scene.lock_all(), 0);
    scene.check_bystanders();
}

/// Launch words and registers: the input is a list of slots of 128 bytes. The device finds each in its next slot, half
/// of them with the expected sequence number.
pub fn fuzz_launch(data: &[u8]) {
    let mut scene = Scene::new();
    let [port, _] = scene.connect(0, 1);
    let mut sequence = 0;
    for slot in data.chunks(SLOT_BYTES as usize) {
        sequence += 1;
        let place = u64::from(slot_of(sequence)) * u64::from(SLOT_BYTES);
        scene.write_bar(0, |pages| pages.bar.requester_page(port), place, slot);
        let last = slot.last().copied().unwrap_or(0);
        if last & 1 == 0 {
            let code = slot
                .get(SLOT_LAUNCH_WORD * 8..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |c| u16::from_le_bytes(*c));
            let word = launch_word(code & 0xfff, sequence).to_le_bytes();
            scene.write_bar(
                0,
                |pages| pages.bar.requester_page(port),
                place + SLOT_LAUNCH_WORD as u64 * 8,
                &word,
            );
        }
        if last & 2 == 0 {
            scene.write_bar(0, |pages| pages.bar.completer_page(port), 0, slot.get(..16).unwrap_or(slot));
        }
        service::serve_pages(&mut scene.lock_all(), 0);
    }
    scene.check_bystanders();
}

/// Frames on the wire. The input is sent to the network as a frame of the cluster protocol, both after a valid Ethernet
/// header and alone. A guest's Ethernet function sends it, too, with its first twelve bytes as offload header.
pub fn fuzz_frame(data: &[u8]) {
    let mut scene = Scene::new();
    scene.connect(0, 1);
    scene.connect(1, 0);
    let mut framed = scene::ethernet_header(1, 0).to_vec();
    framed.extend_from_slice(data);
    for frame in [&framed, data] {
        scene.inject(FrameBytes::from_slice(frame));
    }
    if let Some((header, frame)) = data.split_first_chunk() {
        let mut addressed = scene::ethernet_header(0, 1);
        let [.., high, low] = &mut addressed;
        [*high, *low] = [0x08, 0x00];
        scene.transmit(0, header, frame);
        scene.transmit(0, header, &[&addressed[..], frame].concat());
    }
    scene.offer(QUEUE_EVENT, &[Piece { address: DATA, bytes: 16, writable: true }]);
    queues::serve_events(&mut scene.lock_all(), 0);
    deadlines::pass_time(&mut scene.lock_all());
    scene.check_bystanders();
}
