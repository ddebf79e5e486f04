//! Reads recordings of runs and checks that they can be replayed. [`niclab_observe::recording`] describes their format.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use niclab_observe::recording::{self, Head, RECORDING_VERSION, Tail};
use niclab_workloads::{Recorded, Route};
use thiserror::Error;

use crate::{SimConfig, Workload};

/// A recording cannot be used.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("cannot read the recording {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// A line is invalid.
    #[error("{}:{line}: {what}; correct it: docs/use/SIMULATOR.md describes the format", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The last line is missing.
    #[error(
        "{}:{line}: the recording is cut off here, after {messages} messages; record it again, or end it with the line \
         {{\"messages\": {messages}}}",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The line where it ends, from 1.
        line: usize,
        /// Number of complete messages.
        messages: u64,
    },
    /// Another build wrote the recording in another format.
    #[error(
        "{}:1: a recording of version {found}, and this build reads {RECORDING_VERSION}; record it again with \
         this build",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in it.
        found: u32,
    },
}

/// Limits of the nodes that replay.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Number of nodes.
    nodes: u32,
    /// Maximum bytes of a message.
    message_bytes: u32,
    /// The first bytes of a message, which are its tag and not payload.
    tag_bytes: u32,
    /// Payload lengths are multiples of this.
    unit_bytes: u32,
    /// Ports of a node.
    ports: usize,
    /// Number of destinations that every node can send to.
    destinations: usize,
}

impl SimConfig {
    /// The recorded messages in the order of their times, if the workload replays a recording; else none. The
    /// recording's path is relative to `folder`.
    ///
    /// # Errors
    /// [`RecordingError`] with file and line, also if these nodes cannot send a message.
    pub fn recorded(&self, folder: &Path) -> Result<Vec<Recorded>, RecordingError> {
        let Some(path) = &self.workload.recording else { return Ok(Vec::new()) };
        let path = folder.join(path);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| RecordingError::Read { path: path.clone(), error })?;
        self.recorded_in(&path, &text)
    }

    /// As [`Self::recorded`], for a recording in memory; messages name `path`.
    ///
    /// # Errors
    /// [`RecordingError`], except [`RecordingError::Read`].
    pub fn recorded_in(&self, path: &Path, text: &str) -> Result<Vec<Recorded>, RecordingError> {
        let cards = || self.nodes.iter().map(|node| node.nic.limits());
        // Each open port sends to one other port.
        let ports = cards().map(|card| card.open_ports.len()).min().unwrap_or(0);
        // If the tag is part of the payload, the recorded length includes it.
        let tag_bytes = self.tag_bytes();
        let limits = Limits {
            nodes: self.nodes.len() as u32,
            message_bytes: self.workload.max_bytes() + tag_bytes,
            tag_bytes,
            unit_bytes: cards().map(|card| card.message_unit_bytes).max().unwrap_or(1),
            ports: Workload::MAX_PORTS as usize,
            destinations: if self.sends_to_many() { usize::MAX } else { ports },
        };
        parse(path, text, &limits)
    }
}

/// Reads a recording, and checks that nodes with these limits can send it.
fn parse(path: &Path, text: &str, limits: &Limits) -> Result<Vec<Recorded>, RecordingError> {
    let wrong = |line: usize, what: String| RecordingError::Line { path: path.to_owned(), line, what };
    let mut lines = (1..).zip(text.lines());
    let (_, first) = lines.next().ok_or_else(|| wrong(1, "an empty file is no recording".to_owned()))?;
    let found =
        version_of(first).ok_or_else(|| wrong(1, "this is not the first line of a recording".to_owned()))?;
    if found != RECORDING_VERSION {
        return Err(RecordingError::Version { path: path.to_owned(), found });
    }
    let head: Head = serde_json::from_str(first).map_err(|error| wrong(1, error.to_string()))?;
    if head.nodes > limits.nodes {
        let what = format!("it was recorded on {} nodes, but the cluster has {}", head.nodes, limits.nodes);
        return Err(wrong(1, what));
    }
    let mut recorded = Vec::new();
    let mut routes = BTreeMap::new();
    let mut last = 1;
    for (number, line) in lines.by_ref() {
        last = number;
        match parse_line(line) {
            Ok(Line::Message(message)) => {
                check(&message, &head, limits, &mut routes).map_err(|what| wrong(number, what))?;
                let bytes = message.bytes.saturating_sub(limits.tag_bytes);
                recorded.push(Recorded { bytes, ..message });
            }
            Ok(Line::Tail(tail)) => {
                check_tail(&tail, recorded.len() as u64).map_err(|what| wrong(number, what))?;
                if lines.next().is_some() {
                    return Err(wrong(number + 1, "a line after the last one".to_owned()));
                }
                // The sort is stable: messages of a port at the same instant keep their order.
                recorded.sort_by_key(|message| message.model_time_ps);
                return Ok(recorded);
            }
            Err(error) if error.is_eof() => break,
            Err(error) => return Err(wrong(number, error.to_string())),
        }
    }
    let messages = recorded.len() as u64;
    Err(RecordingError::Truncated { path: path.to_owned(), line: last, messages })
}

enum Line {
    Message(Recorded),
    Tail(Tail),
}

fn parse_line(line: &str) -> serde_json::Result<Line> {
    if line.contains("\"messages\"") {
        return serde_json::from_str(line).map(Line::Tail);
    }
    let message: recording::Recorded = serde_json::from_str(line)?;
    let recording::Recorded { model_time_ps, node, port, to, to_port, bytes, interrupt } = message;
    let route = Route { node, port, to, to_port };
    Ok(Line::Message(Recorded { model_time_ps, route, bytes, interrupts: interrupt }))
}

/// Whether these nodes can send a message. `routes` has the routes of earlier messages, by sender.
fn check(
    message: &Recorded,
    head: &Head,
    limits: &Limits,
    routes: &mut BTreeMap<u16, BTreeSet<Route>>,
) -> Result<(), String> {
    let &Recorded { route: Route { node, port, to, to_port }, bytes, .. } = message;
    for rank in [node, to] {
        if u32::from(rank) >= head.nodes {
            return Err(format!("rank {rank} in a recording of {} nodes", head.nodes));
        }
    }
    if let Some(port) = [port, to_port].into_iter().find(|port| usize::from(*port) >= limits.ports) {
        return Err(format!("port {port} of a NIC that has {} ports", limits.ports));
    }
    if bytes > limits.message_bytes || !bytes.is_multiple_of(limits.unit_bytes) {
        return Err(format!("a message of {bytes} bytes, which the NIC cannot carry"));
    }
    let of_node = routes.entry(node).or_default();
    of_node.insert(message.route);
    if of_node.len() > limits.destinations {
        let most = limits.destinations;
        return Err(format!(
            "node {node} sends to more than {most} ports, but cannot open more ports itself"
        ));
    }
    Ok(())
}

fn check_tail(tail: &Tail, messages: u64) -> Result<(), String> {
    if tail.lost != 0 {
        let lost = tail.lost;
        return Err(format!(
            "{lost} messages are missing, because they came faster than they could be written"
        ));
    }
    if tail.messages != messages {
        return Err(format!("there are {messages} messages, but the last line says {}", tail.messages));
    }
    Ok(())
}

fn version_of(line: &str) -> Option<u32> {
    // The version first: a recording of another version may have other keys.
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    u32::try_from(value.get("niclab_recording")?.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { nodes: 3, message_bytes: 64, tag_bytes: 0, unit_bytes: 8, ports: 2, destinations: 2 };
    const HEAD: &str = "{\"niclab_recording\": 2, \"nodes\": 2}\n";

    fn parse(text: &str) -> Result<Vec<Recorded>, String> {
        super::parse(Path::new("r.jsonl"), text, &LIMITS).map_err(|error| error.to_string())
    }

    fn message(rest: &str) -> String {
        format!("{HEAD}{{\"model_time_ps\": 5, {rest}}}\n")
    }

    #[test]
    fn recording_is_sorted_by_time() {
        let late = r#"{"model_time_ps": 7, "node": 1, "port": 1, "to": 0, "to_port": 1, "bytes": 16}"#;
        let early = r#"{"model_time_ps": 5, "node": 1, "to": 0, "bytes": 0, "interrupt": true}"#;
        let recording = parse(&format!("{HEAD}{late}\n{early}\n{late}\n{{\"messages\": 3}}\n")).unwrap();
        let [first, second, third] = recording.as_slice() else { panic!() };
        assert!(first.interrupts && first.bytes == 0 && second == third);
        let routes = [0, 1].map(|port| Route { node: 1, port, to: 0, to_port: port });
        assert_eq!([first.route, third.route], routes);
    }

    #[test]
    fn invalid_recordings_are_named_with_file_line_and_fix() {
        let ok = "\"node\": 0, \"to\": 1, \"bytes\": 8";
        let third =
            message(ok) + "{\"model_time_ps\": 6, \"node\": 0, \"to\": 1, \"to_port\": 1, \"bytes\": 8}\n";
        let fourth = "{\"model_time_ps\": 6, \"node\": 0, \"port\": 1, \"to\": 1, \"bytes\": 8}\n";
        for (text, place, part) in [
            (String::new(), "r.jsonl:1", "empty"),
            ("{\"niclab_recording\": 9, \"future\": 1}".to_owned(), "r.jsonl:1", "version 9"),
            ("{\"other\": 1}".to_owned(), "r.jsonl:1", "not the first line"),
            ("{\"niclab_recording\": 2, \"nodes\": 4}".to_owned(), "r.jsonl:1", "4 nodes"),
            (HEAD.to_owned(), "r.jsonl:1", "is cut off here, after 0 messages"),
            (message(ok), "r.jsonl:2", "cut off here, after 1 messages"),
            (message(ok) + "{\"model_time_ps\": 6, \"no", "r.jsonl:3", "cut off here, after 1 messages"),
            (message(ok) + "{\"messages\": 2}", "r.jsonl:3", "1 messages, but the last line says 2"),
            (message(ok) + "{\"messages\": 1, \"lost\": 4}", "r.jsonl:3", "4 messages are missing"),
            (message(ok) + "{\"messages\": 1}\n{}", "r.jsonl:4", "after the last"),
            (message("\"node\": 0, \"to\": 2, \"bytes\": 8"), "r.jsonl:2", "rank 2"),
            (message("\"node\": 0, \"port\": 2, \"to\": 1, \"bytes\": 8"), "r.jsonl:2", "port 2 of a NIC"),
            (third + fourth, "r.jsonl:4", "more than 2 ports"),
            (message("\"node\": 0, \"to\": 1, \"bytes\": 9"), "r.jsonl:2", "9 bytes"),
            (message("\"node\": 0, \"to\": 1, \"bytes\""), "r.jsonl:2", "expected"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(place) && error.contains(part) && error.contains("; "), "{error}");
        }
    }
}
