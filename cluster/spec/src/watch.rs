//! Watching a running cluster: the request, and the transfer of the file over the monitor's connection.
//!
//! The daemon writes no file. It sends the file's bytes in chunks. A chunk is a length of 32 bits, lowest byte first,
//! and that number of bytes; the last chunk is empty. If the connection ends without the last chunk, the file is
//! incomplete.

use std::io::{self, Read, Write};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum bytes of a chunk.
pub const MAX_CHUNK_BYTES: usize = 64 * 1024;

/// What to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WatchSubject {
    /// Every stage of every message, as a timeline for Perfetto.
    Trace,
    /// The frames of links, as a capture for Wireshark.
    Capture,
    /// The messages that the cluster NICs sent, as a recording for the simulator.
    Recording,
}

/// What to watch, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchRequest {
    /// What to watch.
    pub subject: WatchSubject,
    /// For a capture: the links, by the names of their nodes. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
    /// End after this many messages. A frame of an Ethernet function counts as a message, except in a recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Send each entry at once, for a reader that shows it live. A capture is then in the order in which the daemon saw
    /// the frames.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
}

/// The result of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchSummary {
    /// Messages that were sent during the watch.
    pub messages: u64,
    /// Stages, frames or messages in the file.
    pub written: u64,
    /// Stages, frames or messages that are missing, because they came faster than they could be written.
    pub lost: u64,
}

/// Sends a file in chunks.
#[derive(Debug)]
pub struct ChunkWriter<W: Write> {
    out: W,
    chunk: Vec<u8>,
}

impl<W: Write> ChunkWriter<W> {
    /// Sends a file over `out`.
    pub fn new(out: W) -> Self {
        Self { out, chunk: Vec::with_capacity(MAX_CHUNK_BYTES) }
    }

    /// Sends the remaining bytes and the last chunk.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn end(mut self) -> io::Result<W> {
        self.flush()?;
        self.out.write_all(&0_u32.to_le_bytes())?;
        Ok(self.out)
    }
}

impl<W: Write> Write for ChunkWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunk.len() >= MAX_CHUNK_BYTES {
            self.flush()?;
        }
        let (taken, _) = bytes.split_at(bytes.len().min(MAX_CHUNK_BYTES - self.chunk.len()));
        self.chunk.extend(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        // At most MAX_CHUNK_BYTES, which fit.
        self.out.write_all(&(self.chunk.len() as u32).to_le_bytes())?;
        self.out.write_all(&self.chunk)?;
        self.chunk.clear();
        self.out.flush()
    }
}

/// Reads a file in chunks. Reading ends at the last chunk; if the connection ends before it, reading fails.
#[derive(Debug)]
pub struct ChunkReader<R: Read> {
    input: R,
    left: usize,
    is_over: bool,
}

impl<R: Read> ChunkReader<R> {
    /// Reads a file from `input`.
    pub const fn new(input: R) -> Self {
        Self { input, left: 0, is_over: false }
    }

    /// The connection, for the data after the file.
    pub fn into_inner(self) -> R {
        self.input
    }
}

impl<R: Read> Read for ChunkReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.is_over {
            let mut length = [0; 4];
            self.input.read_exact(&mut length)?;
            self.left = u32::from_le_bytes(length) as usize;
            self.is_over = self.left == 0;
            if self.left > MAX_CHUNK_BYTES {
                let what = format!("a chunk of {} bytes", self.left);
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        let most = bytes.len().min(self.left);
        let Some(place) = bytes.get_mut(..most).filter(|place| !place.is_empty()) else { return Ok(0) };
        let read = self.input.read(place)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn broken_connection_is_an_error() {
        let mut writer = ChunkWriter::new(Vec::new());
        writer.write_all(b"abcdef").unwrap();
        let whole = writer.end().unwrap();
        for end in 0..whole.len() {
            let error = ChunkReader::new(&whole[..end]).read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        let error = ChunkReader::new(&[0xff; 9][..]).read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn requests_look_as_documented() {
        let text = r#"{"query":"watch","subject":"capture","links":["node1"],"messages":7}"#;
        let request: crate::monitor::Request = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        let unknown = r#"{"query":"watch","subject":"trace","link":["node1"]}"#;
        assert!(serde_json::from_str::<crate::monitor::Request>(unknown).is_err());
    }

    proptest! {
        #[test]
        fn files_arrive_complete_with_the_data_after_them(
            pieces in prop::collection::vec((any::<u8>(), 0..100_000_usize), 0..6),
        ) {
            let mut writer = ChunkWriter::new(Vec::new());
            let mut sent = Vec::new();
            for (byte, length) in pieces {
                let piece = vec![byte; length];
                writer.write_all(&piece).unwrap();
                sent.extend(piece);
            }
            let mut wire = writer.end().unwrap();
            wire.extend(b"answer");
            let mut reader = ChunkReader::new(&wire[..]);
            let mut received = Vec::new();
            reader.read_to_end(&mut received).unwrap();
            prop_assert!(received == sent);
            prop_assert_eq!(reader.into_inner(), b"answer");
        }
    }
}
