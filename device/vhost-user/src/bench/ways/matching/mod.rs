//! Puts between two cards with lists.

mod attacks;

use crate::shell::wait;
use std::fmt;
use std::time::{Duration, Instant};

use niclab_abi::config::FEATURE_LISTS;
use niclab_port::Address;
use niclab_port::matching::{Append, EventKind, Part, Put, Target};
use serde::Serialize;

use super::{Benches, Measured};
use crate::bench::work::{self, Work};
use crate::bench::{BenchError, card_with};
use crate::frontend::ClusterGuest;
use crate::frontend::matching::ListPort;
use crate::lab::Lab;
use crate::shell::Shell;

pub use attacks::ATTACKS;

pub const BENCHES: Benches =
    Benches { key: || "matching", measure: |duration| Ok(Measured::new(&measure(duration)?)) };

pub const WORKS: &[Work] = &[
    Work {
        name: "short-puts",
        unit: "put of 64 bytes",
        run: |puts| Pair::new(1_500, SHORT_BYTES)?.short(puts),
    },
    Work {
        name: "long-puts",
        unit: "KiB of puts of 1 MiB",
        run: |kib| Pair::new(9_000, LONG_BYTES)?.long(kib),
    },
];

/// Bytes of a short put: one cache line.
const SHORT_BYTES: u64 = 64;

/// Bytes of a long put.
const LONG_BYTES: u64 = 1 << 20;

/// Number of consecutive regions for long puts: together they exceed the caches of a core.
const LONG_REGIONS: u64 = 32;

/// Maximum latencies that are kept.
const SAMPLES: usize = 1 << 20;

/// Maximum polls of a page for one put.
const MAX_POLLS: usize = 1 << 16;

/// The figures.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    /// Bytes of a short put.
    short_bytes: u64,
    /// From the sender's first store to the receiver's load of the event, with one put in flight, and one entry for
    /// all puts: the median.
    wall_one_way_p50_ns: u64,
    /// The 99th percentile of the same.
    wall_one_way_p99_ns: u64,
    /// Bytes of a long put.
    long_bytes: u64,
    /// Bytes per second of consecutive long puts, on links of 9,000 bytes.
    wall_bytes_per_s_mtu_9000: f64,
    /// The same on links of 1,500 bytes.
    wall_bytes_per_s_mtu_1500: f64,
    /// For comparison: the same memory, copied region by region by one `memcpy` each.
    wall_bytes_per_s_memcpy: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, in process, one core, ledger on", card_with(FEATURE_LISTS).title)?;
        let short = self.short_bytes;
        writeln!(f, "  one way p50   {:>12} ns, puts of {short} bytes", self.wall_one_way_p50_ns)?;
        writeln!(f, "  one way p99   {:>12} ns", self.wall_one_way_p99_ns)?;
        for (what, rate) in [
            ("MTU 9000", self.wall_bytes_per_s_mtu_9000),
            ("MTU 1500", self.wall_bytes_per_s_mtu_1500),
            ("memcpy", self.wall_bytes_per_s_memcpy),
        ] {
            writeln!(f, "  {what:<13} {:>12.2} GB/s, puts of {} bytes", rate / 1e9, self.long_bytes)?;
        }
        Ok(())
    }
}

/// Measures latency and both bandwidths for `duration` each.
fn measure(duration: Duration) -> Result<Figures, BenchError> {
    let mut latencies = Pair::new(1_500, SHORT_BYTES)?.latencies(duration)?;
    latencies.sort_unstable();
    let percentile = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or(0);
    Ok(Figures {
        short_bytes: SHORT_BYTES,
        wall_one_way_p50_ns: percentile(50),
        wall_one_way_p99_ns: percentile(99),
        long_bytes: LONG_BYTES,
        wall_bytes_per_s_mtu_9000: Pair::new(9_000, LONG_BYTES)?.bandwidth(duration)?,
        wall_bytes_per_s_mtu_1500: Pair::new(1_500, LONG_BYTES)?.bandwidth(duration)?,
        wall_bytes_per_s_memcpy: memcpy_rate(duration),
    })
}

/// Two guests, and an entry of the second that takes all puts of the first.
struct Pair {
    lab: Lab,
    from: ListPort,
    to: ListPort,
    target: Target,
    /// The first bytes of the sender's memory.
    part: Part,
}

impl Pair {
    fn new(mtu_bytes: u32, bytes: u64) -> Result<Self, BenchError> {
        let lab = Lab::new(2, |config| {
            for node in &mut config.nodes {
                node.nic.model = card_with(FEATURE_LISTS).into();
                node.link.mtu_bytes = mtu_bytes;
            }
        })?;
        let memory_bytes = bytes * LONG_REGIONS;
        let guest = |node| -> Result<_, BenchError> {
            let guest = ClusterGuest::connect(lab.cluster_socket(node)?, memory_bytes + (4 << 20))?.into();
            let port = ListPort::open(&guest, 256)?;
            let address = guest.memory().allocate(memory_bytes, niclab_abi::PAGE_BYTES)?;
            let region = port.register(address, memory_bytes)?;
            Ok((port, region))
        };
        let ((from, region), (mut to, to_region)) = (guest(0)?, guest(1)?);
        let memory = Part { region: to_region, offset: 0, bytes: memory_bytes };
        to.try_launch(&Append::put(0, memory).persistent().remote_offset());
        let target = Target { port: Address { node: 1, port: to.port().number() }, portal: 0 };
        let part = Part { region, offset: 0, bytes };
        let shell = lab.daemon().shell();
        wait::start_polling(shell, 0);
        wait::start_polling(shell, 1);
        wait::poll_once(shell, 1);
        Ok(Self { lab, from, to, target, part })
    }

    /// Sends `puts` consecutive short puts.
    fn short(&mut self, puts: u64) -> Result<u64, BenchError> {
        work::repeat(puts, "the stream of puts", || {
            self.put(0)?;
            wait::poll_once(self.lab.daemon().shell(), 1);
            Ok(1)
        })
    }

    /// Sends long puts of `kib` KiB together.
    fn long(&mut self, kib: u64) -> Result<u64, BenchError> {
        let mut region = 0;
        work::repeat(kib, "the stream of puts", || {
            self.put(region % LONG_REGIONS * self.part.bytes)?;
            wait::poll_once(self.lab.daemon().shell(), 1);
            region += 1;
            Ok(self.part.bytes / 1024)
        })
    }

    fn latencies(&mut self, duration: Duration) -> Result<Vec<u64>, BenchError> {
        let mut latencies = Vec::with_capacity(SAMPLES);
        let begin = Instant::now();
        while begin.elapsed() < duration && latencies.len() < SAMPLES {
            let sent = Instant::now();
            self.put(0)?;
            latencies.push(sent.elapsed().as_nanos() as u64);
            wait::poll_once(self.lab.daemon().shell(), 1);
        }
        Ok(latencies)
    }

    fn bandwidth(&mut self, duration: Duration) -> Result<f64, BenchError> {
        // The first round touches all memory.
        self.put_everywhere()?;
        let begin = Instant::now();
        let mut moved = 0;
        while begin.elapsed() < duration {
            moved += self.put_everywhere()?;
        }
        Ok(moved as f64 / begin.elapsed().as_secs_f64())
    }

    /// Sends one put from each region to the same region of the other guest. Returns their bytes.
    fn put_everywhere(&mut self) -> Result<u64, BenchError> {
        for region in 0..LONG_REGIONS {
            self.put(region * self.part.bytes)?;
        }
        wait::poll_once(self.lab.daemon().shell(), 1);
        Ok(LONG_REGIONS * self.part.bytes)
    }

    /// Posts one put from an offset to the same offset, and polls the pages until its event has arrived.
    fn put(&mut self, offset: u64) -> Result<(), BenchError> {
        let shell: &Shell = self.lab.daemon().shell();
        let put = Put::new(self.target, Part { offset, ..self.part }).remote_offset(offset);
        let launched = self.from.try_launch(&put).is_some();
        for _ in 0..MAX_POLLS {
            wait::poll_once(shell, 0);
            if let Some(event) = self.to.try_event() {
                let is_put = launched && event.kind == EventKind::Put;
                return is_put.then_some(()).ok_or(STALLED);
            }
        }
        Err(STALLED)
    }
}

const STALLED: BenchError = BenchError::Stalled { what: "the stream of puts", wall_ms: 0 };

/// Copies the memory of the long puts region by region. Returns the rate in bytes per second.
fn memcpy_rate(duration: Duration) -> f64 {
    let bytes = LONG_BYTES as usize;
    let from = vec![1_u8; bytes * LONG_REGIONS as usize];
    let mut to = vec![2_u8; from.len()];
    let begin = Instant::now();
    let mut moved = 0;
    while begin.elapsed() < duration {
        for (to, from) in to.chunks_exact_mut(bytes).zip(from.chunks_exact(bytes)) {
            to.copy_from_slice(from);
            std::hint::black_box(&to);
            moved += bytes;
        }
    }
    moved as f64 / begin.elapsed().as_secs_f64()
}
