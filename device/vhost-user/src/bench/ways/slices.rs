//! Messages through requester pages, of cards with slices.

use crate::shell::wait;
use std::fmt;
use std::time::{Duration, Instant};

use niclab_abi::bar::SLOTS;
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

pub const WORKS: &[Work] = &[
    Work { name: "slices", unit: "message of 16 bytes", run: |messages| stream(messages, BATCH, false) },
    Work {
        name: "slices-single",
        unit: "message of 16 bytes, posted alone",
        run: |messages| stream(messages, 1, false),
    },
    Work {
        name: "slices-full",
        unit: "message of 16 bytes, posted with 31 others",
        run: |messages| stream(messages, SLOTS, false),
    },
    Work {
        name: "slices-rules",
        unit: "message of 16 bytes, with rule checks",
        run: |messages| stream(messages, BATCH, true),
    },
];

/// Payload of a message: 16 bytes.
const PAYLOAD: [u64; 2] = [0x0123_4567, 0x89ab_cdef];

/// Messages that are posted before the device polls.
const BATCH: u32 = 16;

/// Maximum latencies that are kept.
const SAMPLES: usize = 1 << 20;

/// Figures of messages through requester pages.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    /// Bytes of payload, without the 16 of the tag.
    payload_bytes: u32,
    /// Messages per second, from the sender's store to the receiver's load.
    wall_messages_per_s: f64,
    /// The message rate with ledgers over that without: the median of alternating rounds.
    wall_rate_ledger_on_over_off: f64,
    /// From the sender's first store to the receiver's last load, with one message in flight: the median.
    wall_one_way_p50_ns: u64,
    /// The 99th percentile of the same.
    wall_one_way_p99_ns: u64,
    /// Messages per second of two independent pairs of nodes, each on its own core, over those of one pair: the
    /// median of alternating rounds.
    wall_rate_two_pairs_over_one: f64,
    /// The same over two pairs in separate laboratories, which share nothing but the machine.
    wall_rate_two_pairs_over_apart: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let card = card_with(FEATURE_SLICES).title;
        writeln!(f, "{card}, {} payload bytes, in process, one core, ledger on", self.payload_bytes)?;
        writeln!(f, "  rate          {:>12.0} messages/s", self.wall_messages_per_s)?;
        writeln!(f, "  ledger on/off {:>12.3}", self.wall_rate_ledger_on_over_off)?;
        writeln!(f, "  one way p50   {:>12} ns", self.wall_one_way_p50_ns)?;
        writeln!(f, "  one way p99   {:>12} ns", self.wall_one_way_p99_ns)?;
        writeln!(f, "  two pairs/one {:>12.3} (two cores)", self.wall_rate_two_pairs_over_one)?;
        writeln!(
            f,
            "  two pairs     {:>12.3} times two that share nothing (two cores)",
            self.wall_rate_two_pairs_over_apart
        )
    }
}

/// Measures rate and latency for `duration` each.
fn measure(duration: Duration) -> Result<Figures, BenchError> {
    let (lab, [mut pair]) = connected()?;
    let shell = lab.daemon().shell();
    let mut latencies = pair.latencies(shell, duration)?;
    let wall_messages_per_s = pair.rate(shell, duration)?;
    let wall_rate_ledger_on_over_off = ledger_on_over_off(shell, duration, |time| pair.rate(shell, time))?;
    latencies.sort_unstable();
    let [wall_rate_two_pairs_over_one, wall_rate_two_pairs_over_apart] = two_pairs(duration)?;
    let percentile = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or(0);
    Ok(Figures {
        payload_bytes: size_of_val(&PAYLOAD) as u32,
        wall_messages_per_s,
        wall_rate_ledger_on_over_off,
        wall_one_way_p50_ns: percentile(50),
        wall_one_way_p99_ns: percentile(99),
        wall_rate_two_pairs_over_one,
        wall_rate_two_pairs_over_apart,
    })
}

/// Two nodes, the first of which sends to the second.
struct Pair {
    nodes: [usize; 2],
    from: GuestPort,
    to: GuestPort,
}

/// A laboratory of `PAIRS` pairs of nodes. The benchmark itself polls the nodes.
fn connected<const PAIRS: usize>() -> Result<(Lab, [Pair; PAIRS]), BenchError> {
    let lab = Lab::new(2 * PAIRS as u16, |config| {
        for node in &mut config.nodes {
            node.nic.model = card_with(FEATURE_SLICES).into();
        }
    })?;
    let pair = |number: usize| -> Result<Pair, BenchError> {
        let nodes = [2 * number, 2 * number + 1];
        let guests = [lab.guest(nodes[0])?, lab.guest(nodes[1])?];
        let [from, to] = connect_ports([&guests[0], &guests[1]], 1024)?;
        nodes.iter().for_each(|node| wait::start_polling(lab.daemon().shell(), *node));
        Ok(Pair { nodes, from, to })
    };
    let pairs = (0..PAIRS).map(pair).collect::<Result<Vec<_>, _>>()?;
    let pairs = pairs.try_into().map_err(|_| BenchError::Stalled { what: "making pairs", wall_ms: 0 })?;
    Ok((lab, pairs))
}

/// Streams `messages` messages, of which `posts` are posted between two polls, with or without checks of the manual's
/// rules.
fn stream(messages: u64, posts: u32, rules: bool) -> Result<u64, BenchError> {
    let (lab, [mut pair]) = connected()?;
    let shell = lab.daemon().shell();
    shell.set_rules(&mut shell.lock_all(), rules);
    work::repeat(messages, "the stream of messages", || Ok(pair.batch(lab.daemon().shell(), posts)))
}

/// Rounds of the comparison of two pairs with one.
const ROUNDS: u32 = 9;

/// The rate of two pairs of a laboratory together over one, and over two of separate laboratories: medians of rounds.
fn two_pairs(duration: Duration) -> Result<[f64; 2], BenchError> {
    let (lab, [mut one, mut other]) = connected()?;
    let (lab_apart, [mut apart]) = connected()?;
    let (shell, shell_apart) = (lab.daemon().shell(), lab_apart.daemon().shell());
    let duration = duration / (3 * ROUNDS);
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS as usize {
        let mut rates = [0.0; 3];
        // The order rotates, so that a drift of the machine favours none.
        for which in (0..3).map(|index| (index + round) % 3) {
            rates[which] = match which {
                0 => one.rate(shell, duration)?,
                1 => both_of((&mut one, shell), (&mut other, shell), duration)?,
                _ => both_of((&mut one, shell), (&mut apart, shell_apart), duration)?,
            };
        }
        let [alone, both, both_apart] = rates;
        ratios[0].push(both / alone);
        ratios[1].push(both / both_apart);
    }
    Ok(ratios.map(|mut ratios| {
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or_default()
    }))
}

/// The sum of the rates of two pairs that run at the same time.
fn both_of(
    (one, shell): (&mut Pair, &Shell),
    (other, of_other): (&mut Pair, &Shell),
    duration: Duration,
) -> Result<f64, BenchError> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| other.rate(of_other, duration));
        let one = one.rate(shell, duration)?;
        let other = other.join().map_err(|_| BenchError::Stalled { what: "the other pair", wall_ms: 0 })?;
        Ok(one + other?)
    })
}

impl Pair {
    fn latencies(&mut self, shell: &Shell, duration: Duration) -> Result<Vec<u64>, BenchError> {
        let mut latencies = Vec::with_capacity(SAMPLES);
        let begin = Instant::now();
        while begin.elapsed() < duration && latencies.len() < SAMPLES {
            let sent = Instant::now();
            let launched = self.from.try_launch(&PAYLOAD, [1, 2], 0);
            wait::poll_once(shell, self.nodes[0]);
            let received = self.to.try_receive();
            let took = sent.elapsed();
            if !launched || received.is_none() {
                return Err(BenchError::Stalled { what: "the stream of messages", wall_ms: 0 });
            }
            latencies.push(took.as_nanos() as u64);
            self.release(shell);
        }
        Ok(latencies)
    }

    fn rate(&mut self, shell: &Shell, duration: Duration) -> Result<f64, BenchError> {
        let begin = Instant::now();
        let before = self.to.taken();
        let mut last = (begin, before);
        loop {
            for _ in 0..64 {
                self.batch(shell, BATCH);
            }
            let now = Instant::now();
            if self.to.taken() != last.1 {
                last = (now, self.to.taken());
            } else if now - last.0 > Duration::from_secs(1) {
                return Err(BenchError::Stalled { what: "the stream of messages", wall_ms: 1_000 });
            }
            if now - begin >= duration {
                return Ok((self.to.taken() - before) as f64 / (now - begin).as_secs_f64());
            }
        }
    }

    /// Posts up to `posts` messages, and takes those that have arrived. Returns their number.
    fn batch(&mut self, shell: &Shell, posts: u32) -> u64 {
        for _ in 0..posts {
            if !self.from.try_launch(&PAYLOAD, [1, 2], 0) {
                break;
            }
        }
        wait::poll_once(shell, self.nodes[0]);
        let before = self.to.taken();
        self.to.receive_all(|received| {
            std::hint::black_box(received);
        });
        self.release(shell);
        self.to.taken() - before
    }

    fn release(&mut self, shell: &Shell) {
        if self.to.release_lazily() {
            wait::poll_once(shell, self.nodes[1]);
        }
    }
}
