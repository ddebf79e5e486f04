//! The recording of a run: what was sent, by whom, to whom, and when, so that it can be sent again.
//!
//! A text of one JSON object a line. The first line names the form and its version, the last one says how many messages
//! stand between them, so that a file that was cut off is known:
//!
//! ```json
//! {"niclab_recording": 2, "nodes": 2}
//! {"model_time_ps": 0, "node": 0, "port": 0, "to": 1, "to_port": 0, "bytes": 16}
//! {"model_time_ps": 81250, "node": 1, "port": 0, "to": 0, "to_port": 0, "bytes": 16, "interrupt": true}
//! {"messages": 2}
//! ```
//!
//! Each line between is one message whose data left a card: when a program began to send it, or to get it (model time
//! from the start of the recording), rank and port of the sender, rank and port of the receiver, its payload, and
//! whether it interrupted its receiver. What goes on in further frames or goes again stands there once. The lines stand
//! in the order in which the messages left their cards; a message that waited for credit left later than others of its
//! node that were begun after it, and the times tell.

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
    /// When the program began to send it, picoseconds of model time from the start of the recording.
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
    /// Payload.
    pub bytes: u32,
    /// Whether it interrupted its receiver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupt: bool,
}

/// The last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tail {
    /// Lines before this one, without the first.
    pub messages: u64,
    /// Messages that are missing, because they came faster than they could be written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Recorded {
    /// A message that has begun to leave its card, of a recording that began at `begin`.
    #[must_use]
    pub fn new(begin: Time, message: &TraceTag, begun: &Begun) -> Self {
        let Begun { from, to, interrupt } = *begun;
        Self {
            // What was begun before the recording and waited is sent at its start.
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

/// Tells frames in which messages begin from those in which they go on, or go again.
#[derive(Debug, Default)]
pub struct Beginnings {
    /// The latest message from each port to each, by whoever launched it: from one port to another they begin in the
    /// order of their launches.
    latest: BTreeMap<(u16, Address, Address), (Time, u64)>,
}

impl Beginnings {
    /// A card has sent a frame of this message: who sends what begins in it to whom, if anything does.
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
    /// Begins a recording of a cluster of so many nodes.
    ///
    /// # Errors
    /// What `out` says.
    pub fn new(mut out: W, nodes: u32) -> io::Result<Self> {
        line(&mut out, &Head { niclab_recording: RECORDING_VERSION, nodes })?;
        Ok(Self { out, messages: 0, lost: 0 })
    }

    /// Adds a message.
    ///
    /// # Errors
    /// What the writer says.
    pub fn add(&mut self, message: &Recorded) -> io::Result<()> {
        self.messages += 1;
        line(&mut self.out, message)
    }

    /// Counts messages that are missing; the last line says how many.
    pub const fn add_lost(&mut self, messages: u64) {
        self.lost = self.lost.saturating_add(messages);
    }

    /// Passes on what is written so far.
    ///
    /// # Errors
    /// What the writer says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes the last line and gives the writer back, flushed.
    ///
    /// # Errors
    /// What the writer says.
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
    use niclab_model::models::mailbox::wire::{Header, Kind};

    use super::*;

    #[test]
    fn a_message_begins_once_and_its_acknowledgement_is_none() {
        let (source, target) = (Address { node: 2, port: 3 }, Address { node: 1, port: 5 });
        let mut beginnings = Beginnings::default();
        let message =
            |number| TraceTag { node: 2, port: 3, number, launched: Time::from_ps(1_500), bytes: 8 };
        let letter = |kind, number| Header { kind, source, target, number }.emit(&[1, 2, 3]);
        let data = Kind::Letter { interrupt: true, acknowledge: false };
        let begun = Begun { from: source, to: target, interrupt: true };
        assert_eq!(beginnings.see(&message(4), &letter(data, 4)), Some(begun));
        assert_eq!(beginnings.see(&message(4), &letter(data, 4)), None, "it goes again");
        let acknowledgement = Header { kind: Kind::Acknowledgement, source, target, number: 5 }.emit(&[]);
        assert_eq!(beginnings.see(&message(5), &acknowledgement), None);
        assert_eq!(beginnings.see(&message(5), &[0; 60]), None);
        assert_eq!(beginnings.see(&message(5), &letter(data, 5)), Some(begun));
        let expected =
            Recorded { model_time_ps: 1_000, node: 2, port: 3, to: 1, to_port: 5, bytes: 8, interrupt: true };
        assert_eq!(Recorded::new(Time::from_ps(500), &message(4), &begun), expected);
        assert_eq!(Recorded::new(Time::from_ps(2_000), &message(4), &begun).model_time_ps, 0);
    }

    #[test]
    fn the_last_line_counts() {
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
