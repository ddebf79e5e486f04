//! The recording of a run: what was sent, by whom, to whom, and when, so that it can be sent again.
//!
//! A text of one JSON object a line. The first line names the form and its version:
//!
//! ```json
//! {"niclab_recording": 1, "nodes": 2}
//! {"model_time_ps": 0, "node": 0, "port": 0, "to": 1, "bytes": 16}
//! {"model_time_ps": 81250, "node": 1, "port": 0, "to": 0, "bytes": 16, "interrupt": true}
//! ```
//!
//! Each further line is one message: when the program began to send it (model time from the start of the recording), the
//! rank of its node, its port, the rank it went to, its payload, and whether it interrupted its receiver. The lines of one
//! node stand in the order in which it sent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version of recordings that this build writes and reads.
pub const RECORDING_VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// [`RECORDING_VERSION`].
    pub niclab_recording: u32,
    /// Nodes of the cluster.
    pub nodes: u32,
}

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// When the program began to send it, picoseconds from the start of the recording.
    pub model_time_ps: u64,
    /// Rank of the sender.
    pub node: u16,
    /// Its port.
    #[serde(default)]
    pub port: u16,
    /// Rank of the receiver.
    pub to: u16,
    /// Payload.
    pub bytes: u32,
    /// Whether it interrupted its receiver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupt: bool,
}

/// A recording cannot be used.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// It cannot be read.
    #[error("cannot read the recording {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// A line is not what it should be.
    #[error("{}:{line}: {what}; correct it: docs/SIMULATOR.md has the form", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// It is of another build's form.
    #[error(
        "{}:1: a recording of version {found}, and this build reads {RECORDING_VERSION}; make it again by this build",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in it.
        found: u32,
    },
}

/// What was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    by_node: BTreeMap<u16, Vec<Recorded>>,
    partners: BTreeMap<u16, BTreeSet<u16>>,
}

/// What the nodes that replay allow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many nodes there are.
    pub nodes: u32,
    /// Most payload of a message.
    pub message_bytes: u32,
    /// Payloads are multiples of this.
    pub unit_bytes: u32,
    /// Most partners of a node.
    pub partners: usize,
}

impl Recording {
    /// Reads a recording and checks that these nodes can replay it.
    ///
    /// # Errors
    /// [`RecordingError`] with file and line.
    pub fn read(path: &Path, limits: &Limits) -> Result<Self, RecordingError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| RecordingError::Read { path: path.to_owned(), error })?;
        Self::parse(path, &text, limits)
    }

    /// Reads a recording that is in memory; `path` stands in messages.
    ///
    /// # Errors
    /// [`RecordingError::Line`], [`RecordingError::Version`].
    pub fn parse(path: &Path, text: &str, limits: &Limits) -> Result<Self, RecordingError> {
        let wrong = |line: usize, what: String| RecordingError::Line { path: path.to_owned(), line, what };
        let mut lines = (1..).zip(text.lines());
        let (_, first) = lines.next().ok_or_else(|| wrong(1, "an empty file is no recording".to_owned()))?;
        let found =
            version_of(first).ok_or_else(|| wrong(1, "not the first line of a recording".to_owned()))?;
        if found != RECORDING_VERSION {
            return Err(RecordingError::Version { path: path.to_owned(), found });
        }
        let head: Head = serde_json::from_str(first).map_err(|error| wrong(1, error.to_string()))?;
        if head.nodes > limits.nodes {
            let what = format!("recorded on {} nodes, and the cluster has {}", head.nodes, limits.nodes);
            return Err(wrong(1, what));
        }
        let mut recording = Self::default();
        for (number, line) in lines {
            let message: Recorded =
                serde_json::from_str(line).map_err(|error| wrong(number, error.to_string()))?;
            recording.check(&message, &head, limits).map_err(|what| wrong(number, what))?;
            recording.partners.entry(message.node).or_default().insert(message.to);
            recording.partners.entry(message.to).or_default().insert(message.node);
            recording.by_node.entry(message.node).or_default().push(message);
        }
        Ok(recording)
    }

    fn check(&self, message: &Recorded, head: &Head, limits: &Limits) -> Result<(), String> {
        let &Recorded { model_time_ps, node, to, bytes, .. } = message;
        for rank in [node, to] {
            if u32::from(rank) >= head.nodes {
                return Err(format!("rank {rank} in a recording of {} nodes", head.nodes));
            }
        }
        if node == to {
            return Err(format!("node {node} sends to itself"));
        }
        if bytes > limits.message_bytes || !bytes.is_multiple_of(limits.unit_bytes) {
            return Err(format!("a message of {bytes} bytes, which the NIC cannot carry"));
        }
        let own = self.by_node.get(&node).map(Vec::as_slice).unwrap_or_default();
        if own.last().is_some_and(|last| last.model_time_ps > model_time_ps) {
            return Err(format!("node {node} goes back in time"));
        }
        for (rank, other) in [(node, to), (to, node)] {
            let is_full =
                |partners: &BTreeSet<u16>| partners.len() >= limits.partners && !partners.contains(&other);
            if self.partners.get(&rank).is_some_and(is_full) {
                return Err(format!("node {rank} has more than {} partners", limits.partners));
            }
        }
        Ok(())
    }

    /// The pairs of nodes between which anything was sent.
    #[must_use]
    pub fn pairs(&self) -> Vec<(u16, u16)> {
        let partners = self.partners.iter().flat_map(|(&a, all)| all.iter().map(move |&b| (a, b)));
        partners.filter(|(a, b)| a < b).collect()
    }

    /// What a node sent, in order.
    #[must_use]
    pub fn messages_of(&self, node: u16) -> &[Recorded] {
        self.by_node.get(&node).map(Vec::as_slice).unwrap_or_default()
    }
}

fn version_of(line: &str) -> Option<u32> {
    // The version first: a recording of another version may have other keys.
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    u32::try_from(value.get("niclab_recording")?.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { nodes: 3, message_bytes: 64, unit_bytes: 8, partners: 8 };
    const HEAD: &str = "{\"niclab_recording\": 1, \"nodes\": 2}\n";

    fn parse(text: &str) -> Result<Recording, String> {
        Recording::parse(Path::new("r.jsonl"), text, &LIMITS).map_err(|error| error.to_string())
    }

    #[test]
    fn a_recording_is_read() {
        let line = r#"{"model_time_ps": 5, "node": 1, "port": 0, "to": 0, "bytes": 16, "interrupt": true}"#;
        let recording = parse(&format!("{HEAD}{line}\n")).unwrap();
        assert_eq!(recording.pairs(), [(0, 1)]);
        let [message] = recording.messages_of(1) else { panic!() };
        assert!(message.interrupt && message.bytes == 16);
        assert_eq!(recording.messages_of(0), []);
    }

    #[test]
    fn mistakes_are_named_with_file_line_and_mend() {
        let message = |rest: &str| format!("{HEAD}{{\"model_time_ps\": 5, {rest}}}\n");
        for (text, place, part) in [
            (String::new(), "r.jsonl:1", "empty"),
            ("{\"niclab_recording\": 9, \"future\": 1}".to_owned(), "r.jsonl:1", "version 9"),
            ("{\"other\": 1}".to_owned(), "r.jsonl:1", "not the first line"),
            ("{\"niclab_recording\": 1, \"nodes\": 4}".to_owned(), "r.jsonl:1", "4 nodes"),
            (message("\"node\": 0, \"to\": 2, \"bytes\": 8"), "r.jsonl:2", "rank 2"),
            (message("\"node\": 0, \"to\": 0, \"bytes\": 8"), "r.jsonl:2", "itself"),
            (message("\"node\": 0, \"to\": 1, \"bytes\": 9"), "r.jsonl:2", "9 bytes"),
            (message("\"node\": 0, \"to\": 1, \"bytes\""), "r.jsonl:2", "expected"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(place) && error.contains(part) && error.contains("; "), "{error}");
        }
    }
}
