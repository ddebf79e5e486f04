//! The recording of a run: sender, receiver, size and time of each message, so that a later run can replay them.
//!
//! A text file with one JSON object per line. The first line has the version. The last line has the number of messages,
//! so that a reader recognizes a truncated file:
//!
//! ```json
//! {"niclab_recording": 2, "nodes": 2}
//! {"model_time_ps": 0, "node": 0, "port": 0, "to": 1, "to_port": 0, "bytes": 16}
//! {"model_time_ps": 81250, "node": 1, "port": 0, "to": 0, "to_port": 0, "bytes": 16, "interrupt": true}
//! {"messages": 2}
//! ```
//!
//! Each line between them is one message whose data left a card:
//!
//! * the time at which a program began to send it, or to get it (model time from the start of the recording);
//! * rank and port of the sender, and of the receiver;
//! * its payload in bytes, and whether it interrupted its receiver.
//!
//! A message of several frames, or one that was retransmitted, has one line. The lines are in the order in which the
//! messages left their cards. A message that waited for credit may follow messages of its node that began later.

use std::collections::BTreeMap;
use std::io::{self, Write};

use niclab_model::models::begun_in;
use niclab_model::nic::Address;
use niclab_model::nic::registry::Begun;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Time;
use serde::{Deserialize, Serialize};

/// The version of recordings that this build writes and reads.
pub const RECORDING_VERSION: u32 = 2;

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
    /// Time at which the program began to send it: picoseconds of model time from the start of the recording.
    pub model_time_ps: u64,
    /// Rank of the sender.
    pub node: u16,
    /// Its port, by the card's number.
    #[serde(default)]
    pub port: u16,
    /// Rank of the receiver.
    pub to: u16,
    /// Its port, by the card's number.
    #[serde(default)]
    pub to_port: u16,
    /// Payload in bytes.
    pub bytes: u32,
    /// Whether it interrupted its receiver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupt: bool,
}

/// The last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// Number of messages in the file.
    pub messages: u64,
    /// Messages that are missing because they came faster than the file could be written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Recorded {
    /// A message that has begun to leave its card, of a recording that began at `begin`.
    #[must_use]
    pub fn new(begin: Time, message: &TraceTag, begun: &Begun) -> Self {
        let Begun { from, to, interrupt } = *begun;
        Self {
            // A message that began before the recording is replayed at its start.
            model_time_ps: message.launched.as_ps().saturating_sub(begin.as_ps()),
            node: from.node,
            port: from.port.into(),
            to: to.node,
            to_port: to.port.into(),
            bytes: message.bytes,
            interrupt,
        }
    }
}

/// Distinguishes frames in which messages begin from continuations and retransmissions.
#[derive(Debug, Default)]
pub struct Beginnings {
    /// The latest message from each port to each port, by the node that posted it. From one port to another, messages
    /// begin in the order of their posts.
    latest: BTreeMap<(u16, Address, Address), (Time, u64)>,
}

impl Beginnings {
    /// Takes a frame of this message that a card has sent. Returns the message that begins in the frame, if any.
    pub fn see(&mut self, message: &TraceTag, frame: &[u8]) -> Option<Begun> {
        let begun = begun_in(frame)?;
        let name = (message.launched, message.number);
        let latest = self.latest.entry((message.node, begun.from, begun.to)).or_default();
        let is_new = *latest < name;
        *latest = name.max(*latest);
        is_new.then_some(begun)
    }
}

/// A recording that is being written.
pub struct Recorder<W: Write> {
    out: W,
    messages: u64,
    lost: u64,
}

impl<W: Write> Recorder<W> {
    /// Begins a recording of a cluster of `nodes` nodes.
    ///
    /// # Errors Errors of `out`.
    pub fn new(mut out: W, nodes: u32) -> io::Result<Self> {
        line(&mut out, &Head { niclab_recording: RECORDING_VERSION, nodes })?;
        Ok(Self { out, messages: 0, lost: 0 })
    }

    /// Adds a message.
    ///
    /// # Errors Errors of the writer.
    pub fn add(&mut self, message: &Recorded) -> io::Result<()> {
        self.messages += 1;
        line(&mut self.out, message)
    }

    /// Counts missing messages; the last line has their number.
    pub const fn add_lost(&mut self, messages: u64) {
        self.lost = self.lost.saturating_add(messages);
    }

    /// Flushes the writer.
    ///
    /// # Errors Errors of the writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes the last line, flushes the writer and returns it.
    ///
    /// # Errors Errors of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        line(&mut self.out, &Tail { messages: self.messages, lost: self.lost })?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use niclab_model::models::mailbox::wire::{FrameKind, Header};

    use super::*;

    #[test]
    fn a_message_begins_once_and_an_acknowledgement_never() {
        let (source, target) = (Address { node: 2, port: 3 }, Address { node: 1, port: 5 });
        let mut beginnings = Beginnings::default();
        let message =
            |number| TraceTag { node: 2, port: 3, number, launched: Time::from_ps(1_500), bytes: 8 };
        let letter = |kind, number| Header { kind, source, target, number }.emit(&[1, 2, 3]);
        let data = FrameKind::Letter { interrupt: true, acknowledge: false };
        let begun = Begun { from: source, to: target, interrupt: true };
        assert_eq!(beginnings.see(&message(4), &letter(data, 4)), Some(begun));
        assert_eq!(beginnings.see(&message(4), &letter(data, 4)), None, "a retransmission");
        let acknowledgement =
            Header { kind: FrameKind::Acknowledgement, source, target, number: 5 }.emit(&[]);
        assert_eq!(beginnings.see(&message(5), &acknowledgement), None);
        assert_eq!(beginnings.see(&message(5), &[0; 60]), None);
        assert_eq!(beginnings.see(&message(5), &letter(data, 5)), Some(begun));
        let expected =
            Recorded { model_time_ps: 1_000, node: 2, port: 3, to: 1, to_port: 5, bytes: 8, interrupt: true };
        assert_eq!(Recorded::new(Time::from_ps(500), &message(4), &begun), expected);
        assert_eq!(Recorded::new(Time::from_ps(2_000), &message(4), &begun).model_time_ps, 0);
    }

    #[test]
    fn the_last_line_counts_messages_and_lost_ones() {
        let mut recorder = Recorder::new(Vec::new(), 3).unwrap();
        let message =
            Recorded { model_time_ps: 5, node: 0, port: 1, to: 2, to_port: 0, bytes: 16, interrupt: false };
        recorder.add(&message).unwrap();
        recorder.add_lost(6);
        let text = String::from_utf8(recorder.finish().unwrap()).unwrap();
        let lines = [
            r#"{"niclab_recording":2,"nodes":3}"#,
            r#"{"model_time_ps":5,"node":0,"port":1,"to":2,"to_port":0,"bytes":16}"#,
            r#"{"messages":1,"lost":6}"#,
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }
}
