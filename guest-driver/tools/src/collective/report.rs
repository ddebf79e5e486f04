//! The report of `niclab-perf collective`.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::Failure;
use crate::bench::Latency;
use crate::report::VERSION;
use crate::task::Task;

/// Results of one invocation.
#[derive(Debug, Serialize)]
pub struct Document {
    version: u32,
    tool: &'static str,
    command: &'static str,
    /// Clock of all times.
    clock: &'static str,
    rank: u32,
    /// The nodes of each group; all groups ran at the same time.
    groups: Vec<Vec<u32>>,
    /// Bytes of a reduction's values, and of a multicast's payload.
    bytes: usize,
    /// Operations in which this host was watched and was not woken.
    watched: u64,
    rows: Vec<Row>,
}

/// One operation.
#[derive(Debug, Serialize)]
pub struct Row {
    operation: String,
    /// How often this node posted it.
    count: usize,
    /// Time from posting to the event.
    latency: Option<Latency>,
}

impl Row {
    /// From samples in nanoseconds of wall time.
    pub fn new(task: Task, samples: &mut [u64]) -> Self {
        Self { operation: task.to_string(), count: samples.len(), latency: Latency::of(samples) }
    }
}

impl Document {
    /// The report of this node.
    pub fn new(rank: u32, groups: Vec<Vec<u32>>, bytes: usize, watched: u64, rows: Vec<Row>) -> Self {
        let (tool, command, clock) = ("niclab-perf", "collective", "wall");
        Self { version: VERSION, tool, command, clock, rank, groups, bytes, watched, rows }
    }

    fn write_text(&self, out: &mut impl io::Write) -> io::Result<()> {
        let groups: Vec<String> = self.groups.iter().map(|nodes| format!("{nodes:?}")).collect();
        let Self { bytes, rank, watched, .. } = self;
        writeln!(out, "collective, groups {}, {bytes} bytes; all times are wall time", groups.join(" "))?;
        writeln!(out, "{:>12} {:>8} {:>9} {:>9} {:>9}", "operation", "count", "p50 us", "p99 us", "max us")?;
        for Row { operation, count, latency } in &self.rows {
            write!(out, "{operation:>12} {count:>8}")?;
            let times = latency.map(|it| [it.p50_wall_ns, it.p99_wall_ns, it.max_wall_ns]);
            times.into_iter().flatten().try_for_each(|ns| write!(out, " {:>9.2}", ns as f64 / 1e3))?;
            writeln!(out)?;
        }
        writeln!(
            out,
            "all results are correct; node {rank} was watched in {watched} operations, and none of them woke it"
        )
    }
}

/// Prints it.
///
/// # Errors
///
/// Those of standard output.
pub fn write(document: &Document, is_json: bool) -> Result<(), Failure> {
    let mut out = niclab_output::stdout();
    if is_json {
        serde_json::to_writer_pretty(&mut out, document).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        document.write_text(&mut out)?;
    }
    Ok(out.flush()?)
}
