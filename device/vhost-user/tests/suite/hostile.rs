//! Guests and front ends that violate the rules. The daemon never panics, names and counts the violation, and two other
//! nodes continue.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::common::{Stop, TIMEOUT, frame, lab, pair, stats, stream, until, violations};
use niclab_abi::ToBytes;
use niclab_abi::bar::{CODE_RESERVED, WINDOW_REQUESTER, launch_word};
use niclab_abi::control::{
    OP_PORT_OPEN, PORT_ANY, PortOpen, STATUS_BAD_ADDRESS, STATUS_BAD_LENGTH, STATUS_BAD_OPERATION,
};
use niclab_abi::receive::{REFUSED_LENGTH, REFUSED_RESERVED_BITS};
use niclab_device::frontend::{ClusterGuest, DriverRing, FrontendError, GuestPort};
use niclab_device::lab::Lab;
use niclab_device::ring::Buffer;
use niclab_port::Refusal;
use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

const NEXT: u16 = VRING_DESC_F_NEXT as u16;
const WRITE: u16 = VRING_DESC_F_WRITE as u16;
const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;

/// A lab of four nodes: node 0 is hostile, node 1 its partner, and nodes 2 and 3 must not be affected.
struct Scene {
    lab: Lab,
    hostile: Arc<ClusterGuest>,
    bystanders: [Arc<ClusterGuest>; 2],
    ports: [GuestPort; 2],
}

impl Scene {
    fn new() -> Self {
        let lab = lab(4);
        let bystanders = [lab.guest(2).unwrap(), lab.guest(3).unwrap()];
        let ports = pair([&bystanders[0], &bystanders[1]]);
        let hostile = lab.guest(0).unwrap();
        Self { lab, hostile, bystanders, ports }
    }

    /// Waits for a violation of node 0, and checks that the other nodes continue.
    fn assert_counted(&mut self, name: &str) {
        until(name, || violations(&self.lab, 0).contains_key(name));
        self.assert_others_go_on();
    }

    fn assert_others_go_on(&mut self) {
        let [a, b] = &mut self.ports;
        stream(a, b, 200);
        assert!(violations(&self.lab, 2).is_empty() && violations(&self.lab, 3).is_empty());
        self.bystanders[0].statistics().unwrap();
    }
}

fn buffer(address: u64, bytes: u32) -> Buffer {
    Buffer { address, bytes, writable: false }
}

/// Offers a head in the ring and rings, without waiting for the result.
fn present(ring: &mut DriverRing, head: u16) {
    ring.offer(head).unwrap();
    ring.publish().unwrap();
    ring.ring().unwrap();
}

#[test]
fn chain_that_loops_is_counted() {
    let mut scene = Scene::new();
    let memory = scene.hostile.memory().allocate(64, 8).unwrap();
    scene.hostile.with_control_ring(|ring| {
        ring.write_descriptor(0, buffer(memory, 8), NEXT, 1).unwrap();
        ring.write_descriptor(1, buffer(memory, 8), NEXT, 0).unwrap();
        present(ring, 0);
    });
    scene.assert_counted("ring_loop");
    // The queue itself still works.
    assert!(scene.hostile.statistics().is_ok());
}

#[test]
fn indices_out_of_range_are_counted() {
    let mut scene = Scene::new();
    let memory = scene.hostile.memory().allocate(64, 8).unwrap();
    scene.hostile.with_control_ring(|ring| {
        present(ring, 9_999);
        ring.write_descriptor(7, buffer(memory, 8), NEXT, 300).unwrap();
        present(ring, 7);
    });
    scene.assert_counted("ring_descriptor_index");
    assert!(scene.hostile.statistics().is_ok());
}

#[test]
fn available_index_beyond_the_ring_is_counted() {
    let mut scene = Scene::new();
    scene.hostile.with_control_ring(|ring| {
        ring.skip(10_000);
        ring.publish().unwrap();
        ring.ring().unwrap();
    });
    scene.assert_counted("ring_available_index");
}

#[test]
fn nested_chained_and_misaligned_indirect_tables_are_counted() {
    let mut scene = Scene::new();
    let table = scene.hostile.memory().allocate(4096, 16).unwrap();
    scene.hostile.with_control_ring(|ring| {
        // A table whose entry is a table.
        let words = scene.hostile.memory().atomics::<std::sync::atomic::AtomicU64>(table, 2).unwrap();
        words[0].store(table, std::sync::atomic::Ordering::Relaxed);
        words[1].store(16 | u64::from(INDIRECT) << 32, std::sync::atomic::Ordering::Relaxed);
        ring.write_descriptor(0, buffer(table, 16), INDIRECT, 0).unwrap();
        present(ring, 0);
        ring.write_descriptor(1, buffer(table, 16), INDIRECT | NEXT, 0).unwrap();
        present(ring, 1);
        ring.write_descriptor(2, buffer(table, 17), INDIRECT, 0).unwrap();
        present(ring, 2);
        ring.write_descriptor(3, buffer(table, 16 * 257), INDIRECT, 0).unwrap();
        present(ring, 3);
    });
    until("all four", || violations(&scene.lab, 0).get("ring_indirect") == Some(&4));
    scene.assert_others_go_on();
}

#[test]
fn buffers_outside_of_memory_are_refused() {
    let mut scene = Scene::new();
    let end = scene.hostile.memory().end();
    scene.hostile.with_control_ring(|ring| {
        for (descriptor, address, bytes) in
            [(0, end - 4, 8), (2, 0, 8), (4, u64::MAX - 3, 8), (6, 0x10_0000, u32::MAX)]
        {
            ring.write_descriptor(descriptor, buffer(address, bytes), NEXT, descriptor + 1).unwrap();
            ring.write_descriptor(descriptor + 1, buffer(address, bytes), WRITE, 0).unwrap();
            present(ring, descriptor);
        }
    });
    scene.assert_counted("control_unanswerable");
    let open = |slices_address, status_address| {
        let open =
            PortOpen { port: PORT_ANY, slices: 64, slices_address, status_address, ..PortOpen::default() };
        scene.hostile.command(OP_PORT_OPEN, &open)
    };
    let good = scene.hostile.memory().allocate(64 * 88, 64).unwrap();
    for (slices, status) in [(end - 64, good), (good, end), (u64::MAX - 63, good), (0, 0), (good, !63)] {
        let refused = open(slices, status);
        let is_refused = matches!(refused, Err(FrontendError::Refused { status: STATUS_BAD_ADDRESS, .. }));
        assert!(is_refused, "{slices:#x} {status:#x}: {refused:?}");
    }
}

#[test]
fn bar_as_a_buffer_is_refused() {
    let mut scene = Scene::new();
    let bar = scene.hostile.bar().region(0x8_0000_0000).unwrap();
    let mut regions = scene.hostile.memory().regions().unwrap();
    regions.push(bar);
    // QEMU does this once the BAR is mapped.
    scene.hostile.connection().set_memory(&regions).unwrap();
    let good = scene.hostile.memory().allocate(64, 64).unwrap();
    let open = PortOpen {
        port: PORT_ANY,
        slices: 8,
        slices_address: bar.guest_phys_addr,
        status_address: good,
        ..PortOpen::default()
    };
    let refused = scene.hostile.command(OP_PORT_OPEN, &open);
    assert!(matches!(refused, Err(FrontendError::Refused { status: STATUS_BAD_ADDRESS, .. })), "{refused:?}");
    scene.assert_others_go_on();
}

#[test]
fn truncated_control_requests_are_refused() {
    let mut scene = Scene::new();
    let refused = |result: Result<Vec<u8>, FrontendError>| match result {
        Err(FrontendError::Refused { status, .. }) => status,
        other => panic!("{other:?}"),
    };
    let mut body = [0; 32];
    PortOpen::default().to_bytes(&mut body);
    for length in 0..32 {
        assert_eq!(refused(scene.hostile.request(OP_PORT_OPEN, &body[..length])), STATUS_BAD_LENGTH);
    }
    assert_eq!(refused(scene.hostile.request(99, &[])), STATUS_BAD_OPERATION);
    let memory = scene.hostile.memory().allocate(64, 8).unwrap();
    scene.hostile.with_control_ring(|ring| {
        // A header of three bytes, and a chain without room for a reply.
        ring.write_descriptor(10, buffer(memory, 3), NEXT, 11).unwrap();
        ring.write_descriptor(11, buffer(memory + 8, 8), WRITE, 0).unwrap();
        present(ring, 10);
        ring.write_descriptor(12, buffer(memory, 8), NEXT, 13).unwrap();
        ring.write_descriptor(13, buffer(memory + 8, 7), WRITE, 0).unwrap();
        present(ring, 12);
    });
    scene.assert_counted("control_unanswerable");
}

#[test]
fn launch_words_with_invalid_codes_are_refused() {
    let mut scene = Scene::new();
    let partner = scene.lab.guest(1).unwrap();
    let [mut port, mut other] = pair([&scene.hostile, &partner]);
    for (code, refusal) in [
        (u32::from(CODE_RESERVED), REFUSED_RESERVED_BITS),
        (u32::MAX, REFUSED_RESERVED_BITS),
        (1 << 20, REFUSED_RESERVED_BITS),
        (9 << 3, REFUSED_LENGTH),
        (15 << 3, REFUSED_LENGTH),
    ] {
        let before = port.status_line().refused;
        port.launch_raw(code, &[7; 10]);
        port.announce();
        until("the refusal", || port.status_line().refused == before + 1);
        assert_eq!(port.status_line().refusal, Refusal::from_number(refusal), "{code:#x}");
    }
    port.release(u64::MAX);
    port.announce();
    until("the refusal", || port.status_line().refusal == Some(Refusal::Release));
    assert!(other.try_receive().is_none());
    // Unexpected sequence numbers are no posts.
    let page = scene.hostile.page_of(WINDOW_REQUESTER, port.number()).unwrap();
    for word in scene.hostile.bar().page(page) {
        word.store(launch_word(0xfff, 0xdead_beef), std::sync::atomic::Ordering::Relaxed);
    }
    scene.hostile.ring();
    scene.assert_others_go_on();
    assert_eq!(scene.hostile.statistics().unwrap()["packets_sent"], 0);
}

#[test]
fn flood_of_doorbells_and_posts_does_not_affect_other_nodes() {
    let mut scene = Scene::new();
    let partner = scene.lab.guest(1).unwrap();
    let [mut port, _other] = pair([&scene.hostile, &partner]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let hostile = &scene.hostile;
        let (stop, port) = (&stop, &mut port);
        scope.spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // The thread never checks whether the page is full.
                port.launch_raw(8 << 3, &[1; 10]);
                hostile.ring();
            }
        });
        let _stop = Stop(stop);
        let [a, b] = &mut scene.ports;
        stream(a, b, 2_000);
    });
    scene.assert_others_go_on();
}

#[test]
fn event_buffers_that_are_not_writable_are_counted() {
    let mut scene = Scene::new();
    let memory = scene.hostile.memory().allocate(64, 8).unwrap();
    let partner = scene.lab.guest(1).unwrap();
    let [mut port, mut other] = pair([&partner, &scene.hostile]);
    scene.hostile.with_event_ring(|ring| {
        ring.write_descriptor(0, buffer(memory, 4), WRITE, 0).unwrap();
        present(ring, 0);
        ring.write_descriptor(1, buffer(memory, 64), 0, 0).unwrap();
        present(ring, 1);
    });
    assert!(port.try_launch(&[1], [0; 2], niclab_abi::bar::CODE_INTERRUPT));
    port.announce();
    until("the message", || other.try_receive().is_some());
    until("both buffers", || violations(&scene.lab, 0).get("event_buffer_unusable") == Some(&2));
    scene.assert_others_go_on();
}

#[test]
fn truncated_vhost_user_messages_do_not_affect_other_nodes() {
    let mut scene = Scene::new();
    let garbage: [&[u8]; 5] = [
        &[1, 0, 0, 0],
        &[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        &[0xff; 12],
        &[5, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f],
        &[8, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 99, 0, 0, 0],
    ];
    for node in 0..2 {
        // Node 1 is free. Node 0's connection is in use, so these connections wait.
        for (bytes, socket) in garbage.iter().flat_map(|bytes| {
            [(bytes, scene.lab.cluster_socket(node)), (bytes, scene.lab.ethernet_socket(node))]
        }) {
            let mut stream = UnixStream::connect(socket.unwrap()).unwrap();
            stream.write_all(bytes).unwrap();
        }
    }
    // A real front end still gets through.
    let guest = scene.lab.guest(1).unwrap();
    assert!(guest.statistics().is_ok());
    scene.assert_others_go_on();
}

#[test]
fn frames_to_a_vanished_guest_are_dropped() {
    let mut scene = Scene::new();
    let partner = scene.lab.guest(1).unwrap();
    let [mut port, other] = pair([&scene.hostile, &partner]);
    for _ in 0..16 {
        port.try_launch(&[1], [0; 2], 0);
    }
    port.announce();
    drop((partner, other));
    until("node 1 is gone", || !scene.lab.daemon().shell().connected()[1].cluster);
    for _ in 0..16 {
        port.try_launch(&[1], [0; 2], 0);
        port.announce();
    }
    until("its link is down", || stats(&scene.lab, 1).link_events.contains_key("dropped_down"));
    scene.assert_others_go_on();
}

#[test]
fn invalid_ethernet_chains_of_each_kind_are_counted() {
    let lab = lab(3);
    let mut hostile = lab.ethernet(0, niclab_device::ethernet::Negotiated::OFFERED).unwrap();
    let mut others = [lab.ethernet(1, 0).unwrap(), lab.ethernet(2, 0).unwrap()];
    let end = hostile.memory().end();
    let inside = end - 4096;
    let ring = hostile.transmit_ring();
    let chains: [(&str, Buffer, u16); 6] = [
        ("ethernet_frame_length", buffer(inside, 25), 0),
        ("ethernet_frame_length", buffer(inside, u32::MAX), 0),
        ("ethernet_frame_direction", buffer(inside, 100), WRITE),
        ("ethernet_outside_memory", buffer(end - 50, 100), 0),
        ("ring_loop", buffer(inside, 1), NEXT),
        ("ring_indirect", buffer(inside, 3), INDIRECT),
    ];
    for (descriptor, (_, buffer, flags)) in (0_u16..).zip(chains) {
        ring.write_descriptor(descriptor, buffer, flags, descriptor).unwrap();
        present(ring, descriptor);
    }
    for (name, ..) in chains {
        until(name, || violations(&lab, 0).contains_key(name));
    }
    let sound = frame(lab.mac(1), lab.mac(2), 80);
    others[0].send(&sound).unwrap();
    assert_eq!(others[1].receive(TIMEOUT).unwrap().1, sound);
}

#[test]
fn invalid_ethernet_receive_buffers_are_counted() {
    let lab = lab(2);
    let mut hostile = lab.ethernet(0, 1 << 15).unwrap();
    let mut other = lab.ethernet(1, 0).unwrap();
    let end = hostile.memory().end();
    let ring = hostile.receive_ring();
    // Every descriptor is already offered. Each becomes invalid while the device uses it.
    for descriptor in 0..ring.size() {
        let (bad, flags) = match descriptor % 4 {
            0 => (buffer(end - 10, 2048), WRITE),
            1 => (buffer(end - 4096, 2048), 0),
            2 => (buffer(end - 4096, 0), WRITE),
            _ => (buffer(end - 4096, 1), NEXT | WRITE),
        };
        ring.write_descriptor(descriptor, bad, flags, descriptor).unwrap();
    }
    for _ in 0..300 {
        other.send(&frame(lab.mac(1), lab.mac(0), 500)).unwrap();
    }
    for name in [
        "ethernet_outside_memory",
        "ethernet_receive_chain_direction",
        "ethernet_receive_chain_short",
        "ring_loop",
    ] {
        until(name, || violations(&lab, 0).contains_key(name));
    }
}
