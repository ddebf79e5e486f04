//! Figure 1: TCP on the same hosts. Everything is simulated: the stack's processor time, segments, windows,
//! acknowledgements, and one half-duplex wire (section 1: a crossover cable, which simulates a repeater). Only the time
//! of a segment is fitted, to 77.4 us.

use anyhow::{Context, Result, ensure};
use niclab_cluster::output::table;
use niclab_spec::{ClusterFile, Forwarding, Function, SimConfig, Source, TcpTerms, Workload, WorkloadKind};
use serde::Serialize;

use super::{LONG_BYTES, LONG_ROUND_TRIPS, ROUND_TRIPS, SIZES, Simulate, TAG_BYTES, WARMUP, megabytes_per_s};
use crate::figures::compared::{Compared, Published};
use crate::figures::plot::{Legend, Panel, Scale, Series, Style};

/// The paper's numbers (section 1): microseconds, MB/s, bytes.
const SHORTEST_US: f64 = 77.4;
const LONG_RATE: f64 = 10.8;
const HALF_BYTES: f64 = 1_750.0;
/// Range and step of the search for the size with half of the maximum throughput.
const HALF_BETWEEN: (u32, u32) = (1_000, 2_400);
const HALF_STEP: u32 = 20;
/// A segment that fills a frame.
const SEGMENT_BYTES: u32 = 1_460;
/// The fitted constant, and the assumptions that no source gives.
const STACK: &str = "host.stack.segment_send_ps and segment_receive_ps";
const CAPTURE: &str = "cards that do not capture the wire";
const TRANSFERS: &str = "transfers that a processor waits for";
const CYCLES: &str = "the stack in as many cycles";
/// Message size for the comparison of CPU-driven cards.
const DRIVEN_BYTES: u32 = 8_192;

/// A line of the figure: a host, its card, and the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Its name.
    pub name: &'static str,
    /// The platform.
    pub profile: &'static str,
    #[serde(skip)]
    colour: &'static str,
    #[serde(skip)]
    forwarding: Forwarding,
    #[serde(skip)]
    cpu_driven: bool,
}

const PAPERS: Line = Line {
    name: "3C905, Pentium II 300",
    profile: "fast-ethernet-3c905-pii300",
    colour: "#1f77b4",
    forwarding: Forwarding::RepeaterWithoutCapture,
    cpu_driven: false,
};
const CAPTURED: Line = Line {
    name: "the same, by the standard's backoff",
    colour: "#9467bd",
    forwarding: Forwarding::Repeater,
    ..PAPERS
};
const DUPLEX: Line =
    Line { name: "the same, full duplex", colour: "#2ca02c", forwarding: Forwarding::CutThrough, ..PAPERS };
const DRIVEN: Line = Line { name: "the same, CPU-driven", colour: "#ff7f0e", cpu_driven: true, ..PAPERS };
const SLOW: Line = Line {
    name: "3C595, CPU-driven, Pentium 133",
    profile: "fast-ethernet-3c595-p133",
    colour: "#d62728",
    ..DRIVEN
};

const LINES: [Line; 5] = [PAPERS, DRIVEN, SLOW, CAPTURED, DUPLEX];

/// Round trips of messages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// The line.
    pub line: Line,
    /// Bytes of the message.
    pub bytes: u32,
    /// Average time from the sending call until the program at the other end has the message.
    pub model_one_way_ps: u64,
}

/// Figure 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Streams {
    /// All sizes of all lines.
    pub points: Vec<Point>,
    /// From this size on, the throughput of the paper's line stays above half of that of long messages.
    pub half_bytes: u32,
    /// The smallest size with more than half.
    pub first_half_bytes: u32,
}

impl Streams {
    /// Measures the figure with a simulator.
    pub(super) fn measure(simulate: Simulate<'_>) -> Result<Self> {
        let mut points = Vec::new();
        for line in LINES {
            for bytes in SIZES.into_iter().chain([SEGMENT_BYTES, LONG_BYTES]) {
                points.push(Point { line, bytes, model_one_way_ps: one_way_ps(line, bytes, simulate)? });
            }
        }
        let mut streams = Self { points, half_bytes: 0, first_half_bytes: 0 };
        let half = streams.rate(PAPERS, LONG_BYTES) / 2.0;
        let (least, most) = HALF_BETWEEN;
        for bytes in (least..most).step_by(HALF_STEP as usize) {
            let is_above = megabytes_per_s(bytes, one_way_ps(PAPERS, bytes, simulate)?) >= half;
            if is_above && streams.first_half_bytes == 0 {
                streams.first_half_bytes = bytes;
            }
            if !is_above {
                streams.half_bytes = bytes + HALF_STEP;
            }
        }
        Ok(streams)
    }

    fn one_way_ps(&self, line: Line, bytes: u32) -> u64 {
        let point = self.points.iter().find(|point| (point.line, point.bytes) == (line, bytes));
        point.map_or(0, |point| point.model_one_way_ps)
    }

    fn rate(&self, line: Line, bytes: u32) -> f64 {
        megabytes_per_s(bytes, self.one_way_ps(line, bytes))
    }

    pub(super) fn compared(&self) -> Vec<Compared> {
        let row =
            |what: &str, unit, published| Compared::new("section 1", format!("TCP: {what}"), unit, published);
        let shortest = self.one_way_ps(PAPERS, SIZES[0]) as f64 / 1e6;
        let long = self.rate(PAPERS, LONG_BYTES);
        let [papers, driven, slow] = [PAPERS, DRIVEN, SLOW].map(|line| self.rate(line, DRIVEN_BYTES));
        let single = 100.0 * self.rate(PAPERS, SEGMENT_BYTES) / 12.5;
        // The threshold of 1 % excludes differences from collisions alone.
        let lower = |than: f64, ours: f64| Published::words("lower", ours < 0.99 * than);
        vec![
            row("shortest message", "us", Published::number(SHORTEST_US)).ours(shortest, 2).fitted(STACK),
            row("1 MiB, half duplex", "MB/s", Published::number(LONG_RATE)).ours(long, 2).assumed(CAPTURE),
            row("half of that rate, stays above it from", "bytes", Published::within_percent(HALF_BYTES, 5.0))
                .ours(self.half_bytes.into(), 0)
                .follows(STACK)
                .differs(format!(
                    "one segment reaches half at {} bytes, and a second segment falls back below it until {}. 77.4 us \
                     and 10.8 MB/s alone give 836. What else took time on the paper's hosts between these sizes is \
                     not published; the times of each copied and checked byte are assumptions",
                    self.first_half_bytes, self.half_bytes
                )),
            row("one segment, of 12.5 MB/s", "%", Published::Below(50.0)).ours(single, 1).follows(STACK),
            row("8 KiB by the CPU-driven driver of the same card", "MB/s", lower(papers, driven))
                .ours(driven, 2)
                .assumed(TRANSFERS)
                .differs(
                    "a Pentium II 300 has time for the transfers that it waits for, because each segment takes 123 us \
                     on the wire; other work during these waits, such as another process, is not simulated",
                ),
            row("8 KiB, CPU-driven on a Pentium 133", "MB/s", lower(driven, slow)).ours(slow, 2).assumed(CYCLES),
        ]
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "\nFigure 1: TCP over sockets without Nagle's algorithm, MB/s. Segments of {SEGMENT_BYTES} bytes; a\n\
             receiver acknowledges when its program has read a segment, after two segments, or after 200 ms. All\n\
             lines but the last are half duplex: both ends share one wire, on which data and acknowledgements\n\
             collide. With the standard's backoff, the last sender keeps the wire until its window is used up;\n\
             then the wire idles. It is not known whether the 3C905 avoided that, but 10.8 MB/s suggest so.\n\n"
        );
        let mut rows = vec![vec!["message bytes".to_owned()]];
        rows[0].extend(LINES.map(|line| line.name.to_owned()));
        rows[0].push("one way (us), first line".to_owned());
        for bytes in SIZES.into_iter().chain([LONG_BYTES]) {
            let mut row = vec![bytes.to_string()];
            row.extend(LINES.map(|line| format!("{:.2}", self.rate(line, bytes))));
            row.push(format!("{:.2}", self.one_way_ps(PAPERS, bytes) as f64 / 1e6));
            rows.push(row);
        }
        text += &table(&rows);
        text
    }

    pub(super) fn panel(&self) -> Panel {
        let series = |line: Line| Series {
            name: line.name.to_owned(),
            style: Style::Line(line.colour),
            points: SIZES.map(|bytes| (f64::from(bytes), self.rate(line, bytes))).to_vec(),
        };
        Panel {
            title: "GAMMA's figure 1: TCP, throughput over size, in the simulator".to_owned(),
            x_label: "message (bytes)".to_owned(),
            y_label: "MB/s of model time".to_owned(),
            scale: Scale::Logarithmic,
            legend: Legend::Inside,
            series: LINES.map(series).into(),
        }
    }
}

fn one_way_ps(line: Line, bytes: u32, simulate: Simulate<'_>) -> Result<u64> {
    let Line { profile, forwarding, cpu_driven, .. } = line;
    let file = ClusterFile {
        nodes: Some(2),
        profile: Some(profile.to_owned()),
        forwarding: Some(forwarding),
        ..ClusterFile::default()
    };
    let count = if bytes == LONG_BYTES { LONG_ROUND_TRIPS } else { ROUND_TRIPS };
    let workload = Workload {
        function: Function::Tcp,
        message_bytes: bytes.checked_sub(TAG_BYTES).context("a message without its tag")?,
        count,
        warmup: WARMUP.min(count),
        tcp: TcpTerms { cpu_driven, ..TcpTerms::default() },
        ..Workload::new(WorkloadKind::PingPong)
    };
    let report =
        simulate(&SimConfig::new(&Source::default().resolve(&file)?, "figures-gamma-tcp", &workload))?;
    // The measured time includes the last acknowledgement, which is 200 ms late; the messages' latencies do not.
    let latencies = report.nodes.iter().map(|node| node.ethernet_model_latency);
    let (sum, messages) = latencies.fold((0, 0), |(sum, count), of| (sum + of.sum_ps, count + of.count));
    ensure!(messages == 2 * count, "{messages} messages of {} came", 2 * count);
    Ok(sum / messages)
}
