//! Parses the measurements of `niclab-perf --json` in a guest, for the report.

use niclab_spec::report::{WallLatency, WallResult};
use serde::Deserialize;

#[derive(Deserialize)]
struct Document {
    tool: String,
    transport: String,
    sections: Vec<Section>,
}

#[derive(Deserialize)]
struct Section {
    benchmark: String,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    payload_bytes: u64,
    iterations: u64,
    elapsed_wall_ns: u64,
    messages_per_s_wall: f64,
    payload_bytes_per_s_wall: f64,
    round_trip: Option<RoundTrip>,
    lost_datagrams: Option<u64>,
}

#[derive(Deserialize)]
struct RoundTrip {
    min_wall_ns: u64,
    p50_wall_ns: u64,
    p90_wall_ns: u64,
    p99_wall_ns: u64,
    p999_wall_ns: u64,
    max_wall_ns: u64,
}

/// The rows of one node's output, in order. A node that measured nothing prints nothing, and has no rows.
///
/// # Errors
/// If the output does not come from `niclab-perf --json`.
pub fn results(node: &str, output: &[u8]) -> Result<Vec<WallResult>, serde_json::Error> {
    if output.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let document: Document = serde_json::from_slice(output)?;
    if document.tool != "niclab-perf" {
        return Err(serde::de::Error::custom(format!(
            "it comes from `{}`, not from niclab-perf",
            document.tool
        )));
    }
    let of_section = |section: Section| {
        let (benchmark, transport) = (section.benchmark, document.transport.clone());
        section.rows.into_iter().map(move |row| WallResult {
            node: node.to_owned(),
            benchmark: benchmark.clone(),
            transport: transport.clone(),
            ..of_row(&row)
        })
    };
    Ok(document.sections.into_iter().flat_map(of_section).collect())
}

fn of_row(row: &Row) -> WallResult {
    WallResult {
        payload_bytes: row.payload_bytes,
        messages: row.iterations,
        elapsed_ns: row.elapsed_wall_ns,
        // The cast rounds down, and saturates at the ends of the range.
        messages_per_s: row.messages_per_s_wall as u64,
        payload_bytes_per_s: row.payload_bytes_per_s_wall as u64,
        round_trip: row.round_trip.as_ref().map(|latency| WallLatency {
            min_ns: latency.min_wall_ns,
            p50_ns: latency.p50_wall_ns,
            p90_ns: latency.p90_wall_ns,
            p99_ns: latency.p99_wall_ns,
            p999_ns: latency.p999_wall_ns,
            max_ns: latency.max_wall_ns,
        }),
        lost_datagrams: row.lost_datagrams,
        ..WallResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"version": 1, "tool": "niclab-perf", "command": "pingpong", "clock": "wall",
        "transport": "ultra", "rank": 0, "peer": 1, "sections": [{"benchmark": "pingpong", "rows": [{
            "payload_bytes": 16, "iterations": 100, "elapsed_wall_ns": 2000, "messages_per_s_wall": 99.9,
            "payload_bytes_per_s_wall": 1598.4, "round_trip": {"min_wall_ns": 1, "p50_wall_ns": 2,
            "p90_wall_ns": 3, "p99_wall_ns": 4, "p999_wall_ns": 5, "max_wall_ns": 6}}]}]}"#;

    #[test]
    fn each_row_becomes_a_result() {
        let results = results("node0", DOCUMENT.as_bytes()).unwrap();
        let [row] = results.as_slice() else { panic!("{results:?}") };
        assert_eq!(
            (row.node.as_str(), row.benchmark.as_str(), row.transport.as_str()),
            ("node0", "pingpong", "ultra")
        );
        assert_eq!(
            (row.payload_bytes, row.messages, row.messages_per_s, row.payload_bytes_per_s),
            (16, 100, 99, 1598)
        );
        assert_eq!(row.round_trip.map(|latency| (latency.p50_ns, latency.p999_ns)), Some((2, 5)));
        assert_eq!(row.lost_datagrams, None);
        let lossy = DOCUMENT.replace("\"round_trip\"", "\"lost_datagrams\": 7, \"round_trip\"");
        assert_eq!(super::results("node0", lossy.as_bytes()).unwrap()[0].lost_datagrams, Some(7));
    }

    #[test]
    fn empty_output_is_no_result_and_other_output_an_error() {
        assert_eq!(results("node1", b" \n").unwrap(), Vec::new());
        assert!(results("node1", b"bytes  MB/s\n").is_err());
        assert!(results("node1", DOCUMENT.replace("niclab-perf", "other").as_bytes()).is_err());
    }
}
