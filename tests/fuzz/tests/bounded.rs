//! Runs every target for a bounded time, on mutations of valid inputs.
//!
//! `NICLAB_FUZZ_MS` sets the wall time of each target in milliseconds, and `NICLAB_FUZZ_SEED` the seed. The test prints
//! a finding with its seed and its bytes, so that a test can be made of it.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use niclab_fuzz::{TARGETS, seeds};
use niclab_model::random::Random;

/// The maximum time for one input. It is long, because hosts may be busy; the inputs are small.
const SLOW: Duration = Duration::from_secs(10);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Makes a few changes to an input, as a fuzzer does.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(6) {
        let length = input.len() as u32;
        let place = random.below(length.max(1)) as usize;
        match random.below(7) {
            0 => input.truncate(place),
            1 => input.extend((0..random.below(64)).map(|_| random.next() as u8)),
            2 if length > 0 => input[place] ^= 1 << random.below(8),
            3 if length > 0 => input[place] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][random.below(6) as usize],
            4 if length > 8 => {
                let place = place.min(input.len() - 8);
                let values = [0, 1, u64::MAX, 1 << 63, 0xffff_ffff, 0x10_0000 - 4, random.next()];
                let value = values[random.below(7) as usize];
                input[place..place + 8].copy_from_slice(&value.to_le_bytes());
            }
            5 => {
                let from = random.below(other.len() as u32 + 1) as usize;
                input.splice(place..place, other[from..].iter().take(256).copied());
            }
            _ => {
                let end = (place + random.below(32) as usize).min(input.len());
                input.drain(place.min(end)..end);
            }
        }
    }
}

fn run(name: &str) {
    let (_, target) = TARGETS.into_iter().find(|(known, _)| *known == name).unwrap();
    let seed = number("NICLAB_FUZZ_SEED", 1);
    let duration = Duration::from_millis(number("NICLAB_FUZZ_MS", 1_500));
    let mut random = Random::new(seed, 0);
    let corpus = seeds(name);
    let begin = Instant::now();
    let mut runs = 0_u64;
    while begin.elapsed() < duration || runs == 0 {
        let mut input = corpus[random.below(corpus.len() as u32) as usize].clone();
        let other = corpus[random.below(corpus.len() as u32) as usize].clone();
        if runs > 0 {
            mutate(&mut input, &other, &mut random);
        }
        let start = Instant::now();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&input))) {
            eprintln!(
                "target {name}, seed {seed}, run {runs}: finding on {} bytes: {input:02x?}",
                input.len()
            );
            std::panic::resume_unwind(panic);
        }
        assert!(start.elapsed() < SLOW, "target {name}, seed {seed}, run {runs}: too slow on {input:02x?}");
        runs += 1;
    }
    println!("target {name}: {runs} runs from seed {seed}, nothing found");
}

#[test]
fn control_messages() {
    run("control");
}

#[test]
fn ring_handling() {
    run("ring");
}

#[test]
fn descriptor_queues() {
    run("chains");
}

#[test]
fn descriptor_rings() {
    run("descriptors");
}

#[test]
fn launch_words() {
    run("launch");
}

#[test]
fn wire_frames() {
    run("frame");
}

#[test]
fn commands_of_cards_that_messages_are_posted_to() {
    run("post-commands");
}

#[test]
fn control_messages_to_cards_that_messages_are_posted_to() {
    run("post-control");
}

#[test]
fn wire_frames_to_cards_that_messages_are_posted_to() {
    run("post-frames");
}

#[test]
fn images_of_assemblies() {
    run("assembly");
}

#[test]
fn messages_pushed_into_channels() {
    run("channel-commands");
}

#[test]
fn control_messages_to_cards_with_channels() {
    run("channel-control");
}

#[test]
fn wire_frames_to_cards_with_channels() {
    run("channel-frames");
}

#[test]
fn descriptors_and_buffers_in_rings() {
    run("ring-memory");
}

#[test]
fn control_messages_to_cards_with_rings() {
    run("ring-control");
}

#[test]
fn wire_frames_to_cards_with_rings() {
    run("ring-frames");
}
