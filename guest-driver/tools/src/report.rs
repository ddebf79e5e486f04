//! The table and the JSON document. Every time in both is labelled as wall time.

use std::io::{self, Write};

use serde::Serialize;

use crate::bench::{Injection, Latency, Outcome, interrupts};
use crate::counters::{Counters, Span};
use crate::matching::{Matcher, Matching};

/// Version of the JSON document: raised when a key changes its meaning or goes away.
pub const VERSION: u32 = 1;

/// Results of one invocation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// [`VERSION`].
    pub version: u32,
    /// `niclab-perf`.
    pub tool: &'static str,
    /// The subcommand.
    pub command: &'static str,
    /// Clock of all times: `wall`.
    pub clock: &'static str,
    /// The name of the transport.
    pub transport: &'static str,
    /// This rank.
    pub rank: u32,
    /// The other rank.
    pub peer: u32,
    /// With lists: where messages are matched, and the number of receives before those that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matching: Option<Matching>,
    /// One section for each benchmark.
    pub sections: Vec<Section>,
    /// Interrupts, for the subcommand `interrupts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<interrupts::Account>,
    /// Counters of this node's NIC; `None` over TCP or UDP.
    pub device: Option<Span>,
    /// Counters of the peer's NIC over the same run.
    pub peer_device: Option<Span>,
}

/// One benchmark at all its sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Section {
    /// The benchmark.
    pub benchmark: &'static str,
    /// A row for each size.
    pub rows: Vec<Row>,
}

/// One benchmark at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Payload bytes of a message, without its tag of 16 bytes.
    pub payload_bytes: usize,
    /// Measured messages in each direction.
    pub iterations: u64,
    /// Total time.
    pub elapsed_wall_ns: u64,
    /// Messages per second, both directions together.
    pub messages_per_s_wall: f64,
    /// Payload bytes per second, both directions together.
    pub payload_bytes_per_s_wall: f64,
    /// Round trips: request and answer.
    pub round_trip: Option<Latency>,
    /// Cost of sending a message for the program, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injection: Option<Injection>,
    /// Over UDP: measured datagrams that never arrived. The rates count only those that arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_datagrams: Option<u64>,
}

impl Row {
    /// The row of a step with `iterations` messages of this payload.
    pub fn new(payload_bytes: usize, iterations: u64, outcome: &Outcome) -> Self {
        // A coarse clock must not make the rate infinite, which JSON cannot represent.
        let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
        let messages_per_s_wall = outcome.messages as f64 / seconds;
        Self {
            payload_bytes,
            iterations,
            elapsed_wall_ns: outcome.elapsed.as_nanos() as u64,
            messages_per_s_wall,
            payload_bytes_per_s_wall: messages_per_s_wall * payload_bytes as f64,
            round_trip: outcome.round_trip,
            injection: outcome.injection,
            lost_datagrams: outcome.lost,
        }
    }

    /// The distribution that this row has, if it has one.
    fn latency(&self) -> Option<&Latency> {
        self.round_trip.as_ref().or(self.injection.as_ref().map(|injection| &injection.each))
    }
}

/// Writes the document as JSON.
///
/// # Errors
///
/// Those of `out`.
pub fn write_json(document: &Document, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

/// Writes the document as tables.
///
/// # Errors
///
/// Those of `out`.
pub fn write_text(document: &Document, out: &mut impl Write) -> io::Result<()> {
    let Document { transport, rank, peer, .. } = document;
    if let Some(Matching { depth, on }) = document.matching {
        let who = match on {
            Matcher::Card => "card",
            Matcher::Host => "host",
        };
        writeln!(out, "matched on the {who}, after {depth} receives that match no message")?;
    }
    for section in &document.sections {
        writeln!(
            out,
            "{}, {transport}, rank {rank} and rank {peer}; all times are wall time",
            section.benchmark
        )?;
        let has_latency = section.rows.iter().any(|row| row.latency().is_some());
        if has_latency {
            writeln!(
                out,
                "{:>8} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
                "bytes",
                "iterations",
                "min us",
                "p50 us",
                "p90 us",
                "p99 us",
                "p99.9 us",
                "max us",
                "MB/s",
                "Mmsg/s"
            )?;
        } else {
            writeln!(out, "{:>8} {:>11} {:>9} {:>9}", "bytes", "iterations", "MB/s", "Mmsg/s")?;
        }
        for row in &section.rows {
            write_row(row, out)?;
            if let Some(lost) = row.lost_datagrams {
                writeln!(
                    out,
                    "lost datagrams: {lost} of {}; the rates count only those that arrived",
                    row.iterations
                )?;
            }
        }
        if section.rows.iter().any(|row| row.round_trip.is_some()) {
            writeln!(out, "each latency is a round trip, request and reply")?;
        }
        for injection in section.rows.iter().filter_map(|row| row.injection) {
            let what = if injection.is_silent { "without a doorbell" } else { "doorbells included" };
            let look = injection.look_wall_ns;
            writeln!(
                out,
                "each time is the time to send one message, {what}; each burst includes a clock read of {look} ns"
            )?;
        }
    }
    if let Some(account) = &document.interrupts {
        write_account(account, out)?;
    }
    for (who, span) in [(rank, &document.device), (peer, &document.peer_device)] {
        if let Some(span) = span {
            write_counters(*who, span, out)?;
        }
    }
    Ok(())
}

fn write_row(row: &Row, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{:>8} {:>11}", row.payload_bytes, row.iterations)?;
    if let Some(latency) = row.latency() {
        let Latency { min_wall_ns, p50_wall_ns, p90_wall_ns, p99_wall_ns, p999_wall_ns, max_wall_ns } =
            *latency;
        for nanoseconds in [min_wall_ns, p50_wall_ns, p90_wall_ns, p99_wall_ns, p999_wall_ns, max_wall_ns] {
            write!(out, " {:>9.2}", nanoseconds as f64 / 1e3)?;
        }
    }
    writeln!(out, " {:>9.2} {:>9.4}", row.payload_bytes_per_s_wall / 1e6, row.messages_per_s_wall / 1e6)
}

fn write_account(account: &interrupts::Account, out: &mut impl Write) -> io::Result<()> {
    let interrupts::Account { expected, program, kernel, device } = account;
    writeln!(
        out,
        "interrupts: expected {expected}, program {program}, /proc/interrupts {kernel}, device {device}"
    )
}

fn write_counters(rank: u32, span: &Span, out: &mut impl Write) -> io::Result<()> {
    let Counters { interrupts, doorbells, doorbells_spared } = span.difference();
    let Counters { interrupts: i0, doorbells: d0, doorbells_spared: s0 } = span.before;
    let Counters { interrupts: i1, doorbells: d1, doorbells_spared: s1 } = span.after;
    writeln!(
        out,
        "NIC of rank {rank}: interrupts {interrupts} ({i0} to {i1}), doorbells {doorbells} ({d0} to {d1}), \
         suppressed {doorbells_spared} ({s0} to {s1})"
    )
}
