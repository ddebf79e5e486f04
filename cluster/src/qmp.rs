//! Speaks to a running QEMU: its machine protocol (QMP), one JSON object a line.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::plan::ETHERNET_DEVICE;

/// QEMU answers from its main loop; this long means that it hangs, or that somebody else holds its socket.
const TIMEOUT: Duration = Duration::from_secs(5);

/// More than any greeting, event or answer takes.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// QEMU did not do what it was told.
#[derive(Debug, Error)]
pub enum QmpError {
    /// It cannot be reached, or does not answer.
    #[error("QEMU does not answer on its control socket: {0}; is something else connected to it?")]
    Io(#[from] io::Error),
    /// It hung up.
    #[error("QEMU hung up its control socket")]
    HungUp,
    /// What it says cannot be read.
    #[error("QEMU's answer cannot be read: {0}")]
    Parse(#[from] serde_json::Error),
    /// It refuses.
    #[error("QEMU refuses: {0}")]
    Refused(String),
}

#[derive(Serialize)]
#[serde(tag = "execute", content = "arguments", rename_all = "snake_case")]
enum Command<'a> {
    QmpCapabilities {},
    SetLink { name: &'a str, up: bool },
}

/// One line from QEMU. Events, which are of no interest here, and the greeting have neither key.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "return")]
    done: Option<serde::de::IgnoredAny>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    desc: String,
}

/// A connection. QEMU speaks with one at a time; while this is open, others wait.
pub struct Qmp(BufReader<UnixStream>);

impl Qmp {
    /// Connects, and waits for its turn.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn connect(socket: &Path) -> Result<Self, QmpError> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut qmp = Self(BufReader::new(stream));
        // The greeting comes when those before are done.
        qmp.line()?;
        qmp.execute(&Command::QmpCapabilities {})?;
        Ok(qmp)
    }

    /// Gives the guest's Ethernet function its carrier, or takes it away. The queues of the function stay as they are: it is
    /// the device's link that changes, not the one of QEMU's connection to the daemon.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn set_carrier(&mut self, has_carrier: bool) -> Result<(), QmpError> {
        self.execute(&Command::SetLink { name: ETHERNET_DEVICE, up: has_carrier })
    }

    fn execute(&mut self, command: &Command<'_>) -> Result<(), QmpError> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        self.0.get_mut().write_all(&line)?;
        loop {
            match self.line()? {
                Line { error: Some(refusal), .. } => return Err(QmpError::Refused(refusal.desc)),
                Line { done: Some(_), .. } => return Ok(()),
                Line { .. } => {}
            }
        }
    }

    fn line(&mut self) -> Result<Line, QmpError> {
        let mut line = Vec::new();
        self.0.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(QmpError::HungUp);
        }
        Ok(serde_json::from_slice(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use super::*;

    /// Takes a carrier away from a QEMU that answers the second command with `answers`; gives what it was told.
    fn told(answers: &'static str) -> (Vec<String>, Result<(), QmpError>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q");
        let listener = UnixListener::bind(&path).unwrap();
        let qemu = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines();
            (&stream).write_all(b"{\"QMP\": {\"version\": {}, \"capabilities\": [\"oob\"]}}\r\n").unwrap();
            let first = lines.next().unwrap().unwrap();
            (&stream).write_all(b"{\"return\": {}}\r\n").unwrap();
            let second = lines.next().unwrap().unwrap();
            (&stream).write_all(answers.as_bytes()).unwrap();
            vec![first, second]
        });
        let result = Qmp::connect(&path).and_then(|mut qmp| qmp.set_carrier(false));
        (qemu.join().unwrap(), result)
    }

    #[test]
    fn qemu_is_told_in_its_own_words() {
        let (lines, result) = told("{\"event\": \"RESUME\", \"timestamp\": {}}\n{\"return\": {}}\n");
        result.unwrap();
        let expected = [
            r#"{"execute":"qmp_capabilities","arguments":{}}"#,
            r#"{"execute":"set_link","arguments":{"name":"ethernet-function","up":false}}"#,
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn refusals_and_silence_are_told_apart() {
        let refusal = "{\"error\": {\"class\": \"DeviceNotFound\", \"desc\": \"Device not found\"}}\n";
        assert!(matches!(told(refusal).1, Err(QmpError::Refused(text)) if text == "Device not found"));
        assert!(matches!(told("").1, Err(QmpError::HungUp)));
        assert!(matches!(told("{\n").1, Err(QmpError::Parse(_))));
        assert!(matches!(Qmp::connect(Path::new("/no/such")), Err(QmpError::Io(_))));
    }
}
