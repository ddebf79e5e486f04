//! Attacks of a guest whose card walks rings in its memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use niclab_abi::PAGE_BYTES;
use niclab_abi::config::FEATURE_RINGS;
use niclab_abi::rings::{
    OP_RING_START, RING_END, RING_FIRST, RING_LAST, RING_OWN, RING_RECEIVE, RING_SIZE_SHIFT, RING_TRANSMIT,
    RingStart,
};
use niclab_model::fabric::ethernet::{BROADCAST, ETHER_TYPE_CLUSTER};

use crate::bench::BenchError;
use crate::bench::hostile::{Attack, Scene};
use crate::ethernet::header::HEADER_BYTES;
use crate::frontend::{ClusterGuest, FrontendError};
use crate::ring::Buffer;

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "rings walked without end",
        features: FEATURE_RINGS,
        parameters: &[],
        run: |scene| walk(scene, SHORT_BYTES),
    },
    Attack {
        name: "descriptors of empty frames without end",
        features: FEATURE_RINGS,
        parameters: &[],
        run: |scene| walk(scene, 0),
    },
    Attack {
        name: "frames changed while the device reads them",
        features: FEATURE_RINGS,
        parameters: &[],
        run: changed_frames,
    },
];

/// Descriptors of a ring.
const DESCRIPTORS: usize = 256;
/// Words of a descriptor and of the skipped bytes after it.
const WORDS: usize = 3;
const SKIP_BYTES: u32 = 8;
/// A short frame of another protocol.
const SHORT_BYTES: u64 = 64;

/// A ring of descriptors that all name one buffer, at this address of the guest's memory.
fn ring(guest: &ClusterGuest, buffer: u64) -> Result<u64, FrontendError> {
    let memory = guest.memory();
    let first = memory.allocate((DESCRIPTORS * WORDS * 8) as u64, 64)?;
    for descriptor in words(guest, first)?.chunks(WORDS) {
        if let Some(address) = descriptor.get(1) {
            address.store(buffer, Ordering::Relaxed);
        }
    }
    Ok(first)
}

fn words(guest: &ClusterGuest, first: u64) -> Result<&[AtomicU64], FrontendError> {
    guest.memory().atomics(first, DESCRIPTORS * WORDS).map_err(|_| OUTSIDE)
}

/// Gives all descriptors of a ring to the card by their first words, as the driver does. Returns the number of those
/// that the card had returned.
fn give(words: &[AtomicU64], word: u64) -> u64 {
    let mut given = 0;
    for (number, descriptor) in words.chunks(WORDS).enumerate() {
        let end = if number + 1 == DESCRIPTORS { RING_END } else { 0 };
        if let Some(first) = descriptor.first().filter(|first| first.load(Ordering::Relaxed) & RING_OWN == 0)
        {
            first.store(word | end | RING_OWN, Ordering::Release);
            given += 1;
        }
    }
    given
}

/// Has the card walk both rings: the guest gives it each descriptor again as soon as it has returned it. Frames have
/// `bytes` bytes.
fn walk(scene: &Scene<'_>, bytes: u64) -> Result<(), BenchError> {
    let guest = scene.lab.guest(0)?;
    let buffer = guest.memory().allocate(2_048, 64)?;
    let [transmit, receive] = [ring(&guest, buffer)?, ring(&guest, buffer)?];
    let sent = RING_FIRST | RING_LAST | bytes << RING_SIZE_SHIFT;
    let room = 2_047 << RING_SIZE_SHIFT;
    let rings = [(words(&guest, transmit)?, sent), (words(&guest, receive)?, room)];
    rings.iter().for_each(|(words, word)| _ = give(words, *word));
    for (ring, first) in [(RING_TRANSMIT, transmit), (RING_RECEIVE, receive)] {
        guest.command(OP_RING_START, &RingStart { ring, skip_bytes: SKIP_BYTES, first, reserved: 0 })?;
    }
    while scene.goes_on() {
        rings.iter().for_each(|(words, word)| scene.count(give(words, *word)));
        guest.with_descriptor_rings(|transmit, receive| transmit.ring().and_then(|()| receive.ring()))?;
    }
    Ok(())
}

const OUTSIDE: FrontendError = FrontendError::Malformed("a ring is outside the guest's memory");

/// Sends frames to all MAC endpoints, and at the same time changes them into frames of the cluster in the name of
/// node 2. The victim's card counts frames of the cluster; no card sends any.
fn changed_frames(scene: &Scene<'_>) -> Result<(), BenchError> {
    const FRAME_BYTES: usize = 64;
    let victim = scene.lab.guest(1)?;
    // A card that walks its receive ring receives ordinary frames. The ring has no descriptor for them.
    let first = victim.memory().allocate(PAGE_BYTES, PAGE_BYTES)?;
    victim.command(
        OP_RING_START,
        &RingStart { ring: RING_RECEIVE, skip_bytes: SKIP_BYTES, first, reserved: 0 },
    )?;
    let mut sender = scene.lab.ethernet_with(0, 256, 2_048, 0)?;
    let memory = Arc::clone(sender.memory());
    let place = memory.allocate((HEADER_BYTES + FRAME_BYTES) as u64, 64)?;
    let frame_address = place + HEADER_BYTES as u64;
    let destination = memory.slice(frame_address, BROADCAST.len()).map_err(|_| OUTSIDE)?;
    destination.copy_from(&BROADCAST);
    let source_and_type = memory.atomics::<AtomicU16>(frame_address + 6, 4).map_err(|_| OUTSIDE)?;
    let write = |mac: [u8; 6], ether_type: u16| {
        let (words, _) = mac.as_chunks::<2>();
        let words = words.iter().map(|word| u16::from_ne_bytes(*word)).chain([ether_type.to_be()]);
        source_and_type.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    };
    let buffer = Buffer { address: place, bytes: (HEADER_BYTES + FRAME_BYTES) as u32, writable: false };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while scene.goes_on() {
                write(scene.lab.mac(0), ORDINARY);
                write(scene.lab.mac(2), ETHER_TYPE_CLUSTER);
            }
        });
        let ring = sender.transmit_ring();
        while scene.goes_on() {
            while let Some((head, _)) = ring.poll_used().map_err(|_| OUTSIDE)? {
                ring.reclaim(head).map_err(|_| OUTSIDE)?;
                scene.count(1);
            }
            while ring.add(&[buffer]).map_err(|_| OUTSIDE)?.is_some() {}
            ring.notify()?;
        }
        Ok::<(), FrontendError>(())
    })?;
    let counters = victim.statistics()?;
    let faults = ["crc_errors", "malformed", "foreign_frames"];
    scene.count_forged(faults.iter().filter_map(|name| counters.get(*name)).sum());
    Ok(())
}

/// The EtherType of local experiments, which the cluster does not use.
const ORDINARY: u16 = 0x88b6;
