//! What a guest whose card walks rings in its memory may do to others.

use std::sync::atomic::{AtomicU64, Ordering};

use niclab_abi::config::FEATURE_RINGS;
use niclab_abi::rings::{
    OP_RING_START, RING_END, RING_FIRST, RING_LAST, RING_OWN, RING_RECEIVE, RING_SIZE_SHIFT, RING_TRANSMIT,
    RingStart,
};

use crate::bench::BenchError;
use crate::bench::hostile::{Attack, Scene};
use crate::frontend::{ClusterGuest, FrontendError};

/// All of them.
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
];

/// Descriptors of a ring.
const DESCRIPTORS: usize = 256;
/// Words of a descriptor and of what lies behind it.
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

/// Gives all descriptors of a ring to the card, as the driver does: by their first words. Says how many it had given back.
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

/// Has the card walk both rings: all descriptors are its own again as soon as it has given them back. Frames have so many bytes.
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

const OUTSIDE: FrontendError = FrontendError::Malformed("a ring outside of memory");
