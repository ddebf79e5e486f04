//! Reads recordings of runs and checks that they can be replayed. [`niclab_observe::recording`] has their form.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use niclab_observe::recording::Recorded;
use niclab_observe::recording::{Head, RECORDING_VERSION, Tail};
use thiserror::Error;

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
    /// It has no last line.
    #[error(
        "{}:{line}: the recording was cut off here, after {messages} messages; record it again, or end it with the line \
         {{\"messages\": {messages}}}",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where it ends, from 1.
        line: usize,
        /// Whole messages until there.
        messages: u64,
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
}

/// Where a message went: a port has one destination at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The sending port.
    pub port: u16,
    /// Rank of the receiver.
    pub to: u16,
    /// Its port.
    pub to_port: u16,
}

impl Route {
    /// The route of a message.
    #[must_use]
    pub const fn of(message: &Recorded) -> Self {
        Self { port: message.port, to: message.to, to_port: message.to_port }
    }
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
    /// Ports of a node.
    pub ports: usize,
    /// Of these, how many can be opened on every node: each sends to one other.
    pub open_ports: usize,
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
    /// [`RecordingError::Line`], [`RecordingError::Truncated`], [`RecordingError::Version`].
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
        let mut routes = BTreeMap::new();
        let (mut messages, mut last) = (0, 1);
        for (number, line) in lines.by_ref() {
            last = number;
            match parse_line(line) {
                Ok(Line::Message(message)) => {
                    check(&message, &head, limits, &mut routes).map_err(|what| wrong(number, what))?;
                    recording.by_node.entry(message.node).or_default().push(message);
                    messages += 1;
                }
                Ok(Line::Tail(tail)) => {
                    check_tail(&tail, messages).map_err(|what| wrong(number, what))?;
                    if lines.next().is_some() {
                        return Err(wrong(number + 1, "a line behind the last one".to_owned()));
                    }
                    // Stable: what a port sent at one instant stays in its order.
                    recording.by_node.values_mut().for_each(|sent| sent.sort_by_key(|m| m.model_time_ps));
                    return Ok(recording);
                }
                Err(error) if error.is_eof() => break,
                Err(error) => return Err(wrong(number, error.to_string())),
            }
        }
        Err(RecordingError::Truncated { path: path.to_owned(), line: last, messages })
    }

    /// What a node sent, in the order in which its programs began to.
    #[must_use]
    pub fn messages_of(&self, node: u16) -> &[Recorded] {
        self.by_node.get(&node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Where a node sent, each once, in the order of the first message.
    #[must_use]
    pub fn routes_of(&self, node: u16) -> Vec<Route> {
        let mut seen = BTreeSet::new();
        self.messages_of(node).iter().map(Route::of).filter(|route| seen.insert(*route)).collect()
    }
}

enum Line {
    Message(Recorded),
    Tail(Tail),
}

fn parse_line(line: &str) -> serde_json::Result<Line> {
    if line.contains("\"messages\"") {
        return serde_json::from_str(line).map(Line::Tail);
    }
    serde_json::from_str(line).map(Line::Message)
}

/// Whether these nodes can send a message, after those whose routes are in `routes`, by sender.
fn check(
    message: &Recorded,
    head: &Head,
    limits: &Limits,
    routes: &mut BTreeMap<u16, BTreeSet<Route>>,
) -> Result<(), String> {
    let &Recorded { node, port, to, to_port, bytes, .. } = message;
    for rank in [node, to] {
        if u32::from(rank) >= head.nodes {
            return Err(format!("rank {rank} in a recording of {} nodes", head.nodes));
        }
    }
    if let Some(port) = [port, to_port].into_iter().find(|port| usize::from(*port) >= limits.ports) {
        return Err(format!("port {port} of a NIC that has {}", limits.ports));
    }
    if bytes > limits.message_bytes || !bytes.is_multiple_of(limits.unit_bytes) {
        return Err(format!("a message of {bytes} bytes, which the NIC cannot carry"));
    }
    let of_node = routes.entry(node).or_default();
    of_node.insert(Route::of(message));
    if of_node.len() > limits.open_ports {
        let most = limits.open_ports;
        return Err(format!("node {node} sends to more than {most} ports, and can open no more itself"));
    }
    Ok(())
}

fn check_tail(tail: &Tail, messages: u64) -> Result<(), String> {
    if tail.lost != 0 {
        let lost = tail.lost;
        return Err(format!("{lost} messages are missing, which came faster than they could be written"));
    }
    if tail.messages != messages {
        return Err(format!("{messages} messages, and the last line says {}", tail.messages));
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

    const LIMITS: Limits = Limits { nodes: 3, message_bytes: 64, unit_bytes: 8, ports: 2, open_ports: 2 };
    const HEAD: &str = "{\"niclab_recording\": 2, \"nodes\": 2}\n";

    fn parse(text: &str) -> Result<Recording, String> {
        Recording::parse(Path::new("r.jsonl"), text, &LIMITS).map_err(|error| error.to_string())
    }

    fn message(rest: &str) -> String {
        format!("{HEAD}{{\"model_time_ps\": 5, {rest}}}\n")
    }

    #[test]
    fn a_recording_is_read_in_the_order_of_its_times() {
        let late = r#"{"model_time_ps": 7, "node": 1, "port": 1, "to": 0, "to_port": 1, "bytes": 16}"#;
        let early = r#"{"model_time_ps": 5, "node": 1, "to": 0, "bytes": 0, "interrupt": true}"#;
        let recording = parse(&format!("{HEAD}{late}\n{early}\n{late}\n{{\"messages\": 3}}\n")).unwrap();
        let [first, second, third] = recording.messages_of(1) else { panic!() };
        assert!(first.interrupt && first.bytes == 0 && second == third);
        assert_eq!(recording.messages_of(0), []);
        let routes = [Route { port: 0, to: 0, to_port: 0 }, Route { port: 1, to: 0, to_port: 1 }];
        assert_eq!(recording.routes_of(1), routes);
    }

    #[test]
    fn mistakes_are_named_with_file_line_and_mend() {
        let ok = "\"node\": 0, \"to\": 1, \"bytes\": 8";
        let third =
            message(ok) + "{\"model_time_ps\": 6, \"node\": 0, \"to\": 1, \"to_port\": 1, \"bytes\": 8}\n";
        let fourth = "{\"model_time_ps\": 6, \"node\": 0, \"port\": 1, \"to\": 1, \"bytes\": 8}\n";
        for (text, place, part) in [
            (String::new(), "r.jsonl:1", "empty"),
            ("{\"niclab_recording\": 9, \"future\": 1}".to_owned(), "r.jsonl:1", "version 9"),
            ("{\"other\": 1}".to_owned(), "r.jsonl:1", "not the first line"),
            ("{\"niclab_recording\": 2, \"nodes\": 4}".to_owned(), "r.jsonl:1", "4 nodes"),
            (HEAD.to_owned(), "r.jsonl:1", "cut off here, after 0 messages"),
            (message(ok), "r.jsonl:2", "cut off here, after 1 messages"),
            (message(ok) + "{\"model_time_ps\": 6, \"no", "r.jsonl:3", "cut off here, after 1 messages"),
            (message(ok) + "{\"messages\": 2}", "r.jsonl:3", "1 messages, and the last line says 2"),
            (message(ok) + "{\"messages\": 1, \"lost\": 4}", "r.jsonl:3", "4 messages are missing"),
            (message(ok) + "{\"messages\": 1}\n{}", "r.jsonl:4", "behind the last"),
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
