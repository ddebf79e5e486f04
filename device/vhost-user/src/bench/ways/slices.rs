//! Messages through requester pages, of cards with slices.

use std::fmt;
use std::time::{Duration, Instant};

use niclab_abi::config::FEATURE_SLICES;
use serde::Serialize;

use super::{Benches, Measured};
use crate::bench::work::{self, Work};
use crate::bench::{BenchError, card_with, ledger_on_over_off};
use crate::frontend::GuestPort;
use crate::lab::{Lab, connect_ports};
use crate::shell::Shell;

pub const BENCHES: Benches = Benches {
    key: || card_with(FEATURE_SLICES).name,
    measure: |duration| Ok(Measured::new(&measure(duration)?)),
};

pub const WORKS: &[Work] = &[Work { name: "slices", unit: "message of 16 bytes", run: stream }];

/// Payload of a message: 16 bytes.
const PAYLOAD: [u64; 2] = [0x0123_4567, 0x89ab_cdef];

/// Messages launched before the device looks.
const BATCH: u32 = 16;

/// Most latencies that are kept.
const SAMPLES: usize = 1 << 20;

/// What was measured: messages through requester pages.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    /// Bytes of payload; the tag's 16 are not counted.
    payload_bytes: u32,
    /// Messages a second, from the sender's store to the receiver's load.
    wall_messages_per_s: f64,
    /// The message rate with ledgers over that without, measured in turns: the median of the turns.
    wall_rate_ledger_on_over_off: f64,
    /// From the sender's first store to the receiver's last load, one message under way; the median.
    wall_one_way_p50_ns: u64,
    /// The same, 99 of 100.
    wall_one_way_p99_ns: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let card = card_with(FEATURE_SLICES).title;
        writeln!(f, "{card}, {} payload bytes, in process, one core, ledger on", self.payload_bytes)?;
        writeln!(f, "  rate          {:>12.0} messages/s", self.wall_messages_per_s)?;
        writeln!(f, "  ledger on/off {:>12.3}", self.wall_rate_ledger_on_over_off)?;
        writeln!(f, "  one way p50   {:>12} ns", self.wall_one_way_p50_ns)?;
        writeln!(f, "  one way p99   {:>12} ns", self.wall_one_way_p99_ns)
    }
}

/// Measures rate and latency for `duration` each.
fn measure(duration: Duration) -> Result<Figures, BenchError> {
    let (lab, [mut from, mut to]) = connected()?;
    let shell = lab.daemon().shell();
    let mut latencies = latencies(shell, &mut from, &mut to, duration)?;
    let wall_messages_per_s = rate(shell, &mut from, &mut to, duration)?;
    let wall_rate_ledger_on_over_off =
        ledger_on_over_off(shell, duration, |turn| rate(shell, &mut from, &mut to, turn))?;
    latencies.sort_unstable();
    let percentile = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or(0);
    Ok(Figures {
        payload_bytes: size_of_val(&PAYLOAD) as u32,
        wall_messages_per_s,
        wall_rate_ledger_on_over_off,
        wall_one_way_p50_ns: percentile(50),
        wall_one_way_p99_ns: percentile(99),
    })
}

/// A laboratory of two nodes, and a port of each that may send to the other's.
fn connected() -> Result<(Lab, [GuestPort; 2]), BenchError> {
    let lab = Lab::new(2, |config| {
        for node in &mut config.nodes {
            node.nic.model = card_with(FEATURE_SLICES).into();
        }
    })?;
    let guests = [lab.guest(0)?, lab.guest(1)?];
    let ports = connect_ports([&guests[0], &guests[1]], 1024)?;
    let shell = lab.daemon().shell();
    shell.start_polling(0);
    shell.start_polling(1);
    Ok((lab, ports))
}

/// A stream of so many messages.
fn stream(messages: u64) -> Result<u64, BenchError> {
    let (lab, [mut from, mut to]) = connected()?;
    work::repeat(messages, "the stream of messages", || Ok(batch(lab.daemon().shell(), &mut from, &mut to)))
}

fn latencies(
    shell: &Shell,
    from: &mut GuestPort,
    to: &mut GuestPort,
    duration: Duration,
) -> Result<Vec<u64>, BenchError> {
    let mut latencies = Vec::with_capacity(SAMPLES);
    let begin = Instant::now();
    while begin.elapsed() < duration && latencies.len() < SAMPLES {
        let sent = Instant::now();
        let launched = from.try_launch(&PAYLOAD, [1, 2], 0);
        shell.poll_once(0);
        let received = to.try_receive();
        let took = sent.elapsed();
        if !launched || received.is_none() {
            return Err(BenchError::Stalled { what: "the stream of messages", wall_ms: 0 });
        }
        latencies.push(took.as_nanos() as u64);
        release(shell, to);
    }
    Ok(latencies)
}

fn rate(
    shell: &Shell,
    from: &mut GuestPort,
    to: &mut GuestPort,
    duration: Duration,
) -> Result<f64, BenchError> {
    let begin = Instant::now();
    let before = to.taken();
    let mut last = (begin, before);
    loop {
        for _ in 0..64 {
            batch(shell, from, to);
        }
        let now = Instant::now();
        if to.taken() != last.1 {
            last = (now, to.taken());
        } else if now - last.0 > Duration::from_secs(1) {
            return Err(BenchError::Stalled { what: "the stream of messages", wall_ms: 1_000 });
        }
        if now - begin >= duration {
            return Ok((to.taken() - before) as f64 / (now - begin).as_secs_f64());
        }
    }
}

/// Launches some messages, and takes what has arrived. Returns how many.
fn batch(shell: &Shell, from: &mut GuestPort, to: &mut GuestPort) -> u64 {
    for _ in 0..BATCH {
        if !from.try_launch(&PAYLOAD, [1, 2], 0) {
            break;
        }
    }
    shell.poll_once(0);
    let before = to.taken();
    while let Some(received) = to.try_receive() {
        std::hint::black_box(received);
    }
    release(shell, to);
    to.taken() - before
}

fn release(shell: &Shell, to: &mut GuestPort) {
    if to.release_lazily() {
        shell.poll_once(1);
    }
}
