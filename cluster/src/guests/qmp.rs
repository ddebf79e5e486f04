//! Connections to a running QEMU over its machine protocol (QMP): one JSON object per line.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::host::deadline::Deadline;
use crate::plan::qemu::ETHERNET_DEVICE;

/// QEMU answers from its main loop. A longer time means that it hangs, or that another program holds its socket.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of the attempts to connect while QEMU starts.
const CONNECT_INTERVAL: Duration = Duration::from_millis(2);

/// The shortest time-out of a socket; zero would mean none.
const SHORTEST: Duration = Duration::from_millis(1);
/// Upper bound on a greeting, event or answer.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// Maximum number of events that are kept; fewer happen during one command.
const MAX_EVENTS: usize = 256;

/// A command to QEMU failed.
#[derive(Debug, Error)]
pub enum QmpError {
    /// It cannot be reached, or does not answer.
    #[error("QEMU does not answer on its control socket: {0}; is something else connected to it?")]
    Io(#[from] io::Error),
    /// It closed the connection.
    #[error("QEMU closed its control socket")]
    HungUp,
    /// The answer is invalid.
    #[error("QEMU's answer cannot be read: {0}")]
    Parse(#[from] serde_json::Error),
    /// It refuses the command.
    #[error("QEMU refuses: {0}")]
    Refused(String),
    /// It tried to save the guest and failed.
    #[error("QEMU failed to save the guest's state: {0}")]
    Failed(String),
}

#[derive(Serialize)]
#[serde(tag = "execute", content = "arguments", rename_all = "snake_case")]
enum Command<'a> {
    QmpCapabilities {},
    SetLink {
        name: &'a str,
        up: bool,
    },
    #[serde(rename = "query-status")]
    QueryStatus {},
    DeviceAdd(&'a Value),
    #[serde(rename = "migrate-set-capabilities")]
    MigrateSetCapabilities {
        capabilities: [Capability; 2],
    },
    Migrate {
        uri: String,
    },
    #[serde(rename = "query-migrate")]
    QueryMigrate {},
    Cont {},
    Stop {},
    #[serde(rename = "set-action")]
    SetAction {
        reboot: &'static str,
    },
    #[serde(rename = "human-monitor-command")]
    Human {
        #[serde(rename = "command-line")]
        line: String,
        /// The processor to which it applies.
        #[serde(rename = "cpu-index", skip_serializing_if = "Option::is_none")]
        processor: Option<u32>,
    },
}

/// A migration capability, named as in QEMU.
#[derive(Serialize)]
struct Capability {
    capability: &'static str,
    state: bool,
}

/// One line from QEMU. A greeting has none of these keys.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "return")]
    done: Option<Value>,
    error: Option<Refusal>,
    event: Option<String>,
    #[serde(default)]
    data: Value,
}

#[derive(Deserialize)]
struct Refusal {
    desc: String,
}

/// A connection. QEMU serves one at a time; other connections wait.
pub struct Qmp {
    stream: BufReader<UnixStream>,
    /// Time limit for an answer.
    timeout: Duration,
    /// Events that came before an answer, oldest first.
    events: VecDeque<(String, Value)>,
}

impl Qmp {
    /// Connects, and waits until QEMU serves this connection.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn connect(socket: &Path) -> Result<Self, QmpError> {
        Self::over(UnixStream::connect(socket)?, TIMEOUT)
    }

    /// Connects; waits until QEMU listens.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn reach(socket: &Path, deadline: Deadline) -> Result<Self, QmpError> {
        loop {
            match UnixStream::connect(socket) {
                // The main loop of a QEMU that starts on a busy machine may answer late.
                Ok(stream) => return Self::over(stream, deadline.left()),
                Err(error) if deadline.is_over() => return Err(error.into()),
                Err(_) => thread::sleep(CONNECT_INTERVAL),
            }
        }
    }

    /// Begins over a connected stream, and waits until QEMU serves it. `timeout` applies to each answer.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn over(stream: UnixStream, timeout: Duration) -> Result<Self, QmpError> {
        stream.set_write_timeout(Some(timeout.max(SHORTEST)))?;
        let mut qmp = Self { stream: BufReader::new(stream), timeout, events: VecDeque::new() };
        // The greeting comes after earlier connections have ended.
        qmp.line(Deadline::after(timeout))?;
        qmp.execute(&Command::QmpCapabilities {})?;
        Ok(qmp)
    }

    /// Sets the carrier of the guest's Ethernet function. This changes the device's link, not QEMU's connection to the
    /// daemon, so the function's queues stay as they are.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn set_carrier(&mut self, has_carrier: bool) -> Result<(), QmpError> {
        self.execute(&Command::SetLink { name: ETHERNET_DEVICE, up: has_carrier }).map(drop)
    }

    /// Plugs a device into the running guest.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn plug(&mut self, device: &Value) -> Result<(), QmpError> {
        self.execute(&Command::DeviceAdd(device)).map(drop)
    }

    /// Waits until the guest runs, for example after its state has been restored.
    ///
    /// # Errors
    /// [`QmpError`]; also if the deadline passes.
    pub fn wait_until_running(&mut self, deadline: Deadline) -> Result<(), QmpError> {
        if self.is_running()? {
            return Ok(());
        }
        self.wait_for(deadline, |event, _| (event == "RESUME").then_some(()))
    }

    /// Stops a running guest for good, and writes its state to a file, except its memory, which is a file already. A
    /// guest restored from it runs.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn save(&mut self, file: &Path, timeout: Duration) -> Result<(), QmpError> {
        let capabilities =
            ["x-ignore-shared", "events"].map(|capability| Capability { capability, state: true });
        self.execute(&Command::MigrateSetCapabilities { capabilities })?;
        self.execute(&Command::Migrate { uri: format!("file:{}", file.display()) })?;
        let is_saved =
            self.wait_for(Deadline::after(timeout), |event, data| match (event, data["status"].as_str()) {
                ("MIGRATION", Some("completed")) => Some(true),
                ("MIGRATION", Some("failed" | "cancelled")) => Some(false),
                _ => None,
            })?;
        if is_saved {
            return Ok(());
        }
        let why = self.execute(&Command::QueryMigrate {})?;
        Err(QmpError::Failed(why["error-desc"].as_str().unwrap_or("without a reason").to_owned()))
    }

    /// Makes QEMU serve a debugger of the guest on a new socket, or on none.
    ///
    /// # Errors
    /// [`QmpError`]; [`QmpError::Refused`] with QEMU's message if it cannot listen there.
    pub fn serve_debugger(&mut self, socket: Option<&Path>) -> Result<(), QmpError> {
        // QEMU's option lists escape a comma by a second one.
        let place = socket.map_or_else(
            || "none".to_owned(),
            |path| format!("unix:{},server=on,wait=off", path.display().to_string().replace(',', ",,")),
        );
        // Only the human monitor has this command, and it reports errors as text.
        let said = self.execute(&Command::Human { line: format!("gdbserver {place}"), processor: None })?;
        match said.as_str().map(str::trim) {
            Some(words) if words.starts_with("Could not") => Err(QmpError::Refused(words.to_owned())),
            _ => Ok(()),
        }
    }

    /// Sends a line to the human monitor for one of the guest's processors, and returns its output.
    ///
    /// # Errors
    /// [`QmpError`]; [`QmpError::Refused`] if there is no such processor.
    pub fn ask_of_processor(&mut self, processor: u32, line: String) -> Result<String, QmpError> {
        let said = self.execute(&Command::Human { line, processor: Some(processor) })?;
        Ok(said.as_str().unwrap_or_default().to_owned())
    }

    /// Resumes a stopped guest. It has no effect on a running one.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn go_on(&mut self) -> Result<(), QmpError> {
        self.execute(&Command::Cont {}).map(drop)
    }

    /// Whether the guest runs.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn is_running(&mut self) -> Result<bool, QmpError> {
        Ok(self.execute(&Command::QueryStatus {})?["running"] == Value::Bool(true))
    }

    /// Stops a running guest, for a debugger.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn stop(&mut self) -> Result<(), QmpError> {
        self.execute(&Command::Stop {}).map(drop)
    }

    /// Sets whether a guest that resets itself reboots; otherwise its QEMU ends.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn let_guest_reset(&mut self, boots: bool) -> Result<(), QmpError> {
        self.execute(&Command::SetAction { reboot: if boots { "reset" } else { "shutdown" } }).map(drop)
    }

    fn execute(&mut self, command: &Command<'_>) -> Result<Value, QmpError> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let deadline = Deadline::after(self.timeout);
        loop {
            match self.line(deadline)? {
                Line { error: Some(refusal), .. } => return Err(QmpError::Refused(refusal.desc)),
                Line { done: Some(answer), .. } => return Ok(answer),
                Line { event: Some(event), data, .. } => {
                    self.events.push_back((event, data));
                    self.events.truncate(MAX_EVENTS);
                }
                Line { .. } => {}
            }
        }
    }

    /// Waits for an event for which `wanted` returns a value.
    fn wait_for<T>(
        &mut self,
        deadline: Deadline,
        wanted: impl Fn(&str, &Value) -> Option<T>,
    ) -> Result<T, QmpError> {
        loop {
            let (event, data) = match self.events.pop_front() {
                Some(event) => event,
                None => {
                    let line = self.line(deadline)?;
                    (line.event.unwrap_or_default(), line.data)
                }
            };
            if let Some(found) = wanted(&event, &data) {
                return Ok(found);
            }
        }
    }

    /// The next line, until the deadline.
    fn line(&mut self, deadline: Deadline) -> Result<Line, QmpError> {
        let mut line = Vec::new();
        loop {
            self.stream.get_ref().set_read_timeout(Some(deadline.left().max(SHORTEST)))?;
            let left = MAX_LINE_BYTES.saturating_sub(line.len() as u64);
            match self.stream.by_ref().take(left).read_until(b'\n', &mut line) {
                // The machine may have stood still. What was read so far is in `line`.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !deadline.is_over() => {}
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
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

    /// Takes down the carrier of a QEMU that answers the second command with `answers`; returns the commands.
    fn sent(answers: &'static str) -> (Vec<String>, Result<(), QmpError>) {
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
    fn commands_have_qemus_format() {
        let (lines, result) = sent("{\"event\": \"RESUME\", \"timestamp\": {}}\n{\"return\": {}}\n");
        result.unwrap();
        let expected = [
            r#"{"execute":"qmp_capabilities","arguments":{}}"#,
            r#"{"execute":"set_link","arguments":{"name":"ethernet-function","up":false}}"#,
        ];
        assert_eq!(lines, expected);
    }

    /// A fake QEMU that answers each command with one of these strings; returns the commands.
    fn with_fake_qemu<T>(
        answers: &'static [&'static str],
        tell: impl FnOnce(Qmp) -> Result<T, QmpError>,
    ) -> (Vec<String>, Result<T, QmpError>) {
        let (ours, qemus) = UnixStream::pair().unwrap();
        let qemu = thread::spawn(move || {
            let mut lines = BufReader::new(&qemus).lines();
            (&qemus).write_all(b"{\"QMP\": {}}\n").unwrap();
            let answers = std::iter::once(&"{\"return\": {}}\n").chain(answers);
            answers
                .map_while(|answer| {
                    let line = lines.next()?.ok()?;
                    (&qemus).write_all(answer.as_bytes()).ok()?;
                    Some(line)
                })
                .collect()
        });
        let result = Qmp::over(ours, Duration::from_secs(30)).and_then(tell);
        (qemu.join().unwrap(), result)
    }

    #[test]
    fn debugger_socket_is_served_or_the_reason_returned() {
        let (commands, result) =
            with_fake_qemu(&["{\"return\": \"Waiting for gdb connection\"}\n"], |mut qmp| {
                qmp.serve_debugger(Some(Path::new("/a,b/gdb")))
            });
        result.unwrap();
        assert!(
            commands[1].contains(r#""command-line":"gdbserver unix:/a,,b/gdb,server=on,wait=off""#),
            "{commands:?}"
        );
        let (_, result) =
            with_fake_qemu(&["{\"return\": \"Could not open gdbserver on device 'x'\"}\n"], |mut qmp| {
                qmp.serve_debugger(None)
            });
        assert!(result.unwrap_err().to_string().contains("Could not open"));
    }

    const SET: &str = "{\"return\": {}}\n";

    #[test]
    fn save_ends_with_qemus_event_before_or_after_its_answer() {
        let completed = "{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\n";
        for answers in [
            &[
                SET,
                "{\"event\": \"STOP\"}\n{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\n\
                {\"return\": {}}\n",
            ][..],
            &[
                SET,
                "{\"return\": {}}\n{\"event\": \"MIGRATION\", \"data\": {\"status\": \"active\"}}\n\
                {\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\n",
            ],
        ] {
            assert!(answers[1].contains(completed.trim()));
            let (commands, result) =
                with_fake_qemu(answers, |mut qmp| qmp.save(Path::new("/f"), Duration::from_secs(30)));
            result.unwrap();
            assert!(
                commands[1].contains("x-ignore-shared") && commands[2].contains("file:/f"),
                "{commands:?}"
            );
        }
    }

    #[test]
    fn failed_save_is_an_error_with_qemus_reason() {
        let failed = "{\"return\": {}}\n{\"event\": \"MIGRATION\", \"data\": {\"status\": \"failed\"}}\n";
        let answers = [SET, failed, "{\"return\": {\"error-desc\": \"no space\"}}\n"];
        let answers: &'static [&'static str] = Box::leak(Box::new(answers));
        let (_, result) =
            with_fake_qemu(answers, |mut qmp| qmp.save(Path::new("/f"), Duration::from_secs(30)));
        assert!(matches!(result, Err(QmpError::Failed(why)) if why == "no space"));
        let silent =
            with_fake_qemu(&[SET, SET], |mut qmp| qmp.save(Path::new("/f"), Duration::from_millis(20)));
        assert!(matches!(silent.1, Err(QmpError::Io(_) | QmpError::HungUp)));
    }

    #[test]
    fn wait_until_running_checks_status_then_events() {
        let (commands, result) = with_fake_qemu(&["{\"return\": {\"running\": true}}\n"], |mut qmp| {
            qmp.wait_until_running(Deadline::after(Duration::from_secs(30)))
        });
        result.unwrap();
        assert_eq!(commands[1], r#"{"execute":"query-status","arguments":{}}"#);
        let answers = &["{\"return\": {\"running\": false}}\n{\"event\": \"RESUME\"}\n"];
        with_fake_qemu(answers, |mut qmp| qmp.wait_until_running(Deadline::after(Duration::from_secs(30))))
            .1
            .unwrap();
        let (commands, result) =
            with_fake_qemu(&[SET], |mut qmp| qmp.plug(&serde_json::json!({"driver": "d", "x": true})));
        result.unwrap();
        assert_eq!(commands[1], r#"{"execute":"device_add","arguments":{"driver":"d","x":true}}"#);
    }

    #[test]
    fn guest_is_stopped_for_a_debugger() {
        let (commands, result) =
            with_fake_qemu(&["{\"event\": \"STOP\"}\n{\"return\": {}}\n"], |mut qmp| qmp.stop());
        result.unwrap();
        assert_eq!(commands[1], r#"{"execute":"stop","arguments":{}}"#);
    }

    #[test]
    fn refusals_and_silence_are_distinguished() {
        let refusal = "{\"error\": {\"class\": \"DeviceNotFound\", \"desc\": \"Device not found\"}}\n";
        assert!(matches!(sent(refusal).1, Err(QmpError::Refused(text)) if text == "Device not found"));
        assert!(matches!(sent("").1, Err(QmpError::HungUp)));
        assert!(matches!(sent("{\n").1, Err(QmpError::Parse(_))));
        assert!(matches!(Qmp::connect(Path::new("/no/such")), Err(QmpError::Io(_))));
    }
}
