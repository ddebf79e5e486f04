//! The attacks. The guest of node 0 attacks alone; node 1 receives if an attack needs a receiver.

use std::sync::Arc;

use niclab_abi::bar::CODE_INTERRUPT;
use niclab_abi::config::FEATURE_SLICES;
use niclab_abi::control::{OP_PING, Request};
use niclab_abi::{FromBytes, ToBytes};
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;
use virtio_bindings::virtio_ring::{VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

use super::{Attack, BenchError, Scene};
use crate::ethernet::Negotiated;
use crate::ethernet::header::{Checksum, Family, Offload, Segmentation};
use crate::frontend::{ClusterGuest, DriverRing, EthernetGuest, FrontendError, GuestPort};
use crate::lab::connect_ports;
use crate::ring::Buffer;

/// No attack.
pub const NOTHING: Attack =
    Attack { name: "nothing", features: FEATURE_SLICES, parameters: &[], run: nothing };

/// The attacks that need only a card with slices. The first one is none: the waits without other traffic.
pub const ATTACKS: &[Attack] = &[
    NOTHING,
    Attack { name: "posts without end", features: FEATURE_SLICES, parameters: &[], run: launches },
    Attack { name: "doorbells without end", features: FEATURE_SLICES, parameters: &[], run: doorbells },
    Attack { name: "control requests without end", features: FEATURE_SLICES, parameters: &[], run: requests },
    Attack {
        name: "control chains without room for an answer",
        features: FEATURE_SLICES,
        parameters: &[],
        run: unanswerable,
    },
    Attack { name: "ports opened and closed", features: FEATURE_SLICES, parameters: &[], run: ports },
    Attack {
        name: "event buffers that are too short",
        features: FEATURE_SLICES,
        parameters: &[],
        run: event_buffers,
    },
    Attack {
        name: "connections made and broken",
        features: FEATURE_SLICES,
        parameters: &[],
        run: connections,
    },
    Attack {
        name: "frames to a queue with room for less than one",
        features: FEATURE_SLICES,
        parameters: &[],
        run: little_room,
    },
    Attack {
        name: "frames to a queue of one-byte buffers",
        features: FEATURE_SLICES,
        parameters: &[],
        run: crumbs,
    },
    Attack {
        name: "64 KiB in segments of 1 byte",
        features: FEATURE_SLICES,
        parameters: &[],
        run: segments_of_1,
    },
    Attack {
        name: "64 KiB in segments of 64 bytes",
        features: FEATURE_SLICES,
        parameters: &[],
        run: segments_of_64,
    },
    Attack { name: "broadcasts of 64 KiB", features: FEATURE_SLICES, parameters: &[], run: broadcasts },
    Attack { name: "short frames without end", features: FEATURE_SLICES, parameters: &[], run: short_frames },
];

/// Bytes of the longest frames, a little below 64 KiB.
const LONG_FRAME: usize = 65_000;

fn nothing(scene: &Scene<'_>) -> Result<(), BenchError> {
    while scene.goes_on() {
        std::thread::sleep(super::PAUSE);
        scene.count(1);
    }
    Ok(())
}

/// Two guests with ports that may send to each other.
fn partners(scene: &Scene<'_>) -> Result<[(Arc<ClusterGuest>, GuestPort); 2], BenchError> {
    let (here, there) = (scene.lab.guest(0)?, scene.lab.guest(1)?);
    let [a, b] = connect_ports([&here, &there], 64)?;
    Ok([(here, a), (there, b)])
}

/// Takes all messages that have arrived, and releases their slices.
fn receive_all(port: &mut GuestPort) {
    while port.try_receive().is_some() {
        if port.release_lazily() {
            port.announce();
        }
    }
}

/// Frees the chains that the device has returned, and returns their number.
fn take_back(ring: &mut DriverRing) -> Result<u64, FrontendError> {
    let mut chains = 0;
    while let Some((head, _)) = ring.poll_used().map_err(|_| OUTSIDE)? {
        ring.reclaim(head).map_err(|_| OUTSIDE)?;
        chains += 1;
    }
    Ok(chains)
}

fn launches(scene: &Scene<'_>) -> Result<(), BenchError> {
    let [(_, mut from), (_there, mut to)] = partners(scene)?;
    while scene.goes_on() {
        while from.try_launch(&[1], [0; 2], CODE_INTERRUPT) {
            scene.count(1);
        }
        from.announce();
        receive_all(&mut to);
    }
    Ok(())
}

fn doorbells(scene: &Scene<'_>) -> Result<(), BenchError> {
    let guest = scene.lab.guest(0)?;
    while scene.goes_on() {
        guest.ring();
        scene.count(1);
    }
    Ok(())
}

/// Keeps the control queue of node 0 full of chains: eight readable bytes, and `room` writable ones.
fn flood_control(scene: &Scene<'_>, room: u32) -> Result<(), BenchError> {
    let guest = scene.lab.guest(0)?;
    let memory = guest.memory();
    let (request, reply) = (memory.allocate(64, 64)?, memory.allocate(4096, 64)?);
    let mut bytes = [0; Request::BYTES];
    Request { operation: OP_PING, body_bytes: 0 }.to_bytes(&mut bytes);
    memory.slice(request, bytes.len()).map_err(|_| OUTSIDE)?.copy_from(&bytes);
    let chain = [
        Buffer { address: request, bytes: Request::BYTES as u32, writable: false },
        Buffer { address: reply, bytes: room, writable: true },
    ];
    while scene.goes_on() {
        guest.with_control_ring(|ring| -> Result<(), FrontendError> {
            scene.count(take_back(ring)?);
            while ring.add(&chain).map_err(|_| OUTSIDE)?.is_some() {}
            ring.notify()
        })?;
    }
    Ok(())
}

fn requests(scene: &Scene<'_>) -> Result<(), BenchError> {
    flood_control(scene, 4096)
}

fn unanswerable(scene: &Scene<'_>) -> Result<(), BenchError> {
    flood_control(scene, 4)
}

fn ports(scene: &Scene<'_>) -> Result<(), BenchError> {
    let mut guest = scene.lab.guest(0)?;
    while scene.goes_on() {
        match GuestPort::open(&guest, 8) {
            Ok(port) => port.close()?,
            // A front end never frees memory, so a new guest replaces one whose memory is used up.
            Err(FrontendError::OutOfMemory { .. }) => {
                drop(guest);
                guest = scene.lab.guest(0)?;
            }
            Err(error) => return Err(error.into()),
        }
        scene.count(1);
    }
    Ok(())
}

fn event_buffers(scene: &Scene<'_>) -> Result<(), BenchError> {
    let [(here, mut from), (there, mut to)] = partners(scene)?;
    let address = there.memory().allocate(64, 8)?;
    let short = [Buffer { address, bytes: 4, writable: true }];
    while scene.goes_on() {
        there.with_event_ring(|ring| -> Result<(), FrontendError> {
            scene.count(take_back(ring)?);
            while ring.add(&short).map_err(|_| OUTSIDE)?.is_some() {}
            ring.notify()
        })?;
        from.try_launch(&[1], [0; 2], CODE_INTERRUPT);
        here.announce();
        receive_all(&mut to);
    }
    Ok(())
}

fn connections(scene: &Scene<'_>) -> Result<(), BenchError> {
    while scene.goes_on() {
        drop(scene.lab.guest(0)?);
        drop(scene.lab.ethernet(0, Negotiated::OFFERED)?);
        scene.count(1);
    }
    Ok(())
}

/// A frame for `to` with a valid Ethernet header, and an IPv4 and a TCP header after it.
fn tcp_frame(from: [u8; 6], to: [u8; 6], bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    let ipv4 = [0x08, 0x00, 0x45];
    for (place, byte) in frame.iter_mut().zip(to.into_iter().chain(from).chain(ipv4)) {
        *place = byte;
    }
    // Five words of TCP header, without options.
    if let Some(place) = frame.get_mut(14 + 20 + 12) {
        *place = 5 << 4;
    }
    frame
}

/// Has node 0 send frames of `bytes` to `to` as fast as it can, and calls `between` whenever its queue is full.
fn flood_frames(
    scene: &Scene<'_>,
    offload: Offload,
    to: [u8; 6],
    bytes: usize,
    mut between: impl FnMut() -> Result<(), FrontendError>,
) -> Result<(), BenchError> {
    let mut sender = scene.lab.ethernet_with(0, 256, 66_000, Negotiated::OFFERED)?;
    let frame = tcp_frame(scene.lab.mac(0), to, bytes);
    while scene.goes_on() {
        while scene.goes_on() && sender.queue(&offload, &frame)? {
            scene.count(1);
        }
        sender.flush()?;
        between()?;
    }
    Ok(())
}

/// The guest of node 1, whose receive queue has buffers of `buffer_bytes`. It never refills the queue by itself.
fn receiver(scene: &Scene<'_>, buffer_bytes: u32) -> Result<EthernetGuest, BenchError> {
    Ok(scene.lab.ethernet_with(1, 256, buffer_bytes, 1 << VIRTIO_NET_F_MRG_RXBUF)?)
}

fn little_room(scene: &Scene<'_>) -> Result<(), BenchError> {
    // 256 buffers of 64 bytes have room for ten frames of 1,500 bytes and the begin of an eleventh.
    let _receiver = receiver(scene, 64)?;
    flood_frames(scene, Offload::default(), scene.lab.mac(1), 1_500, || Ok(()))
}

fn crumbs(scene: &Scene<'_>) -> Result<(), BenchError> {
    let mut receiver = receiver(scene, 2_048)?;
    let address = receiver.memory().end() - 4_096;
    let mut head = 0;
    flood_frames(scene, Offload::default(), scene.lab.mac(1), LONG_FRAME, || {
        // Each descriptor has one byte. All of them are in chains of eight.
        let ring = receiver.receive_ring();
        let size = ring.size();
        for descriptor in 0..size {
            let flags = VRING_DESC_F_WRITE | if descriptor % 8 == 7 { 0 } else { VRING_DESC_F_NEXT };
            let crumb = Buffer { address, bytes: 1, writable: true };
            let next = (descriptor + 1) % size;
            ring.write_descriptor(descriptor, crumb, flags as u16, next).map_err(|_| OUTSIDE)?;
        }
        while ring.poll_used().map_err(|_| OUTSIDE)?.is_some() {
            ring.offer(head % size).map_err(|_| OUTSIDE)?;
            head = head.wrapping_add(8);
        }
        ring.notify()
    })
}

fn segments(scene: &Scene<'_>, payload_bytes: u16) -> Result<(), BenchError> {
    let _receiver = receiver(scene, 2_048)?;
    let offload = Offload {
        checksum: Some(Checksum { start: 34, offset: 16 }),
        segmentation: Some(Segmentation { family: Family::V4, payload_bytes }),
    };
    flood_frames(scene, offload, scene.lab.mac(1), LONG_FRAME, || Ok(()))
}

fn segments_of_1(scene: &Scene<'_>) -> Result<(), BenchError> {
    segments(scene, 1)
}

fn segments_of_64(scene: &Scene<'_>) -> Result<(), BenchError> {
    segments(scene, 64)
}

fn broadcasts(scene: &Scene<'_>) -> Result<(), BenchError> {
    let _receiver = receiver(scene, 66_000)?;
    flood_frames(scene, Offload::default(), [0xff; 6], LONG_FRAME, || Ok(()))
}

fn short_frames(scene: &Scene<'_>) -> Result<(), BenchError> {
    let mut receiver = receiver(scene, 2_048)?;
    flood_frames(scene, Offload::default(), scene.lab.mac(1), 64, || {
        while receiver.receive_short(|_, _| ())?.is_some() {}
        receiver.show()
    })
}

const OUTSIDE: FrontendError = FrontendError::Malformed("a ring is outside the guest's memory");
