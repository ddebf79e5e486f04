//! Speaks to a running QEMU: its machine protocol (QMP), one JSON object a line.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::plan::qemu::ETHERNET_DEVICE;

/// QEMU answers from its main loop; this long means that it hangs, or that somebody else holds its socket.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Between two tries to connect while QEMU starts.
const CONNECT_INTERVAL: Duration = Duration::from_millis(2);

/// More than any greeting, event or answer takes.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// Events that are kept; more than happen while a command is carried out.
const MAX_EVENTS: usize = 256;

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
    /// It tried and failed.
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
        /// Of which processor.
        #[serde(rename = "cpu-index", skip_serializing_if = "Option::is_none")]
        processor: Option<u32>,
    },
}

/// What a migration does; named as in QEMU.
#[derive(Serialize)]
struct Capability {
    capability: &'static str,
    state: bool,
}

/// One line from QEMU. The greeting has none of the keys.
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

/// A connection. QEMU speaks with one at a time; while this is open, others wait.
pub struct Qmp {
    stream: BufReader<UnixStream>,
    /// How long an answer may take.
    timeout: Duration,
    /// What happened while an answer was waited for, oldest first.
    events: VecDeque<(String, Value)>,
}

impl Qmp {
    /// Connects, and waits for its turn.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn connect(socket: &Path) -> Result<Self, QmpError> {
        Self::over(UnixStream::connect(socket)?, TIMEOUT)
    }

    /// Connects, waiting until QEMU listens.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn reach(socket: &Path, deadline: Instant) -> Result<Self, QmpError> {
        loop {
            match UnixStream::connect(socket) {
                // While it starts, on a machine with much to do, its main loop may come late.
                Ok(stream) => return Self::over(stream, deadline.saturating_duration_since(Instant::now())),
                Err(error) if Instant::now() >= deadline => return Err(error.into()),
                Err(_) => thread::sleep(CONNECT_INTERVAL),
            }
        }
    }

    /// Begins over a connected stream, and waits for its turn. No answer may take longer than `patience`.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn over(stream: UnixStream, timeout: Duration) -> Result<Self, QmpError> {
        // Zero would mean to wait for ever.
        let timeout = timeout.max(Duration::from_millis(1));
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut qmp = Self { stream: BufReader::new(stream), timeout, events: VecDeque::new() };
        // The greeting comes when those before are done.
        qmp.line()?;
        qmp.execute(&Command::QmpCapabilities {})?;
        Ok(qmp)
    }

    /// Gives the guest's Ethernet function its carrier, or takes it away. The queues of the function stay as they are:
    /// it is the device's link that changes, not the one of QEMU's connection to the daemon.
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

    /// Waits until the guest runs, as one does whose state has been restored.
    ///
    /// # Errors
    /// [`QmpError`]; silence until the deadline is one.
    pub fn wait_until_running(&mut self, deadline: Instant) -> Result<(), QmpError> {
        if self.is_running()? {
            return Ok(());
        }
        self.wait_for(deadline, |event, _| (event == "RESUME").then_some(()))
    }

    /// Stops a guest that runs, for good, and writes its state to a file: all but its memory, which is a file already.
    /// What is restored from it runs, as the guest did.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn save(&mut self, file: &Path, timeout: Duration) -> Result<(), QmpError> {
        let capabilities =
            ["x-ignore-shared", "events"].map(|capability| Capability { capability, state: true });
        self.execute(&Command::MigrateSetCapabilities { capabilities })?;
        self.execute(&Command::Migrate { uri: format!("file:{}", file.display()) })?;
        let is_saved =
            self.wait_for(Instant::now() + timeout, |event, data| match (event, data["status"].as_str()) {
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

    /// Has QEMU serve a debugger of the guest on a new socket, or on none from now on.
    ///
    /// # Errors
    /// [`QmpError`]; [`QmpError::Refused`] with QEMU's words where it cannot listen there.
    pub fn serve_debugger(&mut self, socket: Option<&Path>) -> Result<(), QmpError> {
        // A comma stands doubled in QEMU's option lists.
        let place = socket.map_or_else(
            || "none".to_owned(),
            |path| format!("unix:{},server=on,wait=off", path.display().to_string().replace(',', ",,")),
        );
        // Only its monitor for people has this, which tells what went wrong in words.
        let said = self.execute(&Command::Human { line: format!("gdbserver {place}"), processor: None })?;
        match said.as_str().map(str::trim) {
            Some(words) if words.starts_with("Could not") => Err(QmpError::Refused(words.to_owned())),
            _ => Ok(()),
        }
    }

    /// What QEMU's monitor for people says of one processor of the guest.
    ///
    /// # Errors
    /// [`QmpError`]; [`QmpError::Refused`] where there is no such processor.
    pub fn ask_of_processor(&mut self, processor: u32, line: String) -> Result<String, QmpError> {
        let said = self.execute(&Command::Human { line, processor: Some(processor) })?;
        Ok(said.as_str().unwrap_or_default().to_owned())
    }

    /// Has a guest go on that stands still. One that runs does.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn go_on(&mut self) -> Result<(), QmpError> {
        self.execute(&Command::Cont {}).map(drop)
    }

    /// Whether the guest runs, and does not stand still.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn is_running(&mut self) -> Result<bool, QmpError> {
        Ok(self.execute(&Command::QueryStatus {})?["running"] == Value::Bool(true))
    }

    /// Stops a guest that runs, for a debugger.
    ///
    /// # Errors
    /// [`QmpError`].
    pub fn stop(&mut self) -> Result<(), QmpError> {
        self.execute(&Command::Stop {}).map(drop)
    }

    /// Whether a guest that resets itself boots, from now on; else its QEMU ends.
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
        loop {
            match self.line()? {
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

    /// Waits for the event from which `wanted` makes something.
    fn wait_for<T>(
        &mut self,
        deadline: Instant,
        wanted: impl Fn(&str, &Value) -> Option<T>,
    ) -> Result<T, QmpError> {
        loop {
            let (event, data) = match self.events.pop_front() {
                Some(event) => event,
                None => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    // Zero would mean to wait for ever.
                    self.stream.get_ref().set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
                    let line = self.line();
                    self.stream.get_ref().set_read_timeout(Some(self.timeout))?;
                    let line = line?;
                    (line.event.unwrap_or_default(), line.data)
                }
            };
            if let Some(found) = wanted(&event, &data) {
                return Ok(found);
            }
        }
    }

    fn line(&mut self) -> Result<Line, QmpError> {
        let mut line = Vec::new();
        self.stream.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
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

    /// A fake QEMU that answers with these lines, one string for each command; gives what it was told.
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
    fn a_debugger_is_served_where_it_is_told_or_the_reason_is_given() {
        let (told, result) =
            with_fake_qemu(&["{\"return\": \"Waiting for gdb connection\"}\n"], |mut qmp| {
                qmp.serve_debugger(Some(Path::new("/a,b/gdb")))
            });
        result.unwrap();
        assert!(
            told[1].contains(r#""command-line":"gdbserver unix:/a,,b/gdb,server=on,wait=off""#),
            "{told:?}"
        );
        let (_, result) =
            with_fake_qemu(&["{\"return\": \"Could not open gdbserver on device 'x'\"}\n"], |mut qmp| {
                qmp.serve_debugger(None)
            });
        assert!(result.unwrap_err().to_string().contains("Could not open"));
    }

    const SET: &str = "{\"return\": {}}\n";

    #[test]
    fn a_state_is_saved_when_qemu_says_so_before_its_answer_or_after() {
        let completed = "{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\n";
        for answers in [
            &[
                SET,
                "{\"event\": \"STOP\"}\n{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\n{\"return\": {}}\n",
            ][..],
            &[
                SET,
                "{\"return\": {}}\n{\"event\": \"MIGRATION\", \"data\": {\"status\": \"active\"}}\n{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\n",
            ],
        ] {
            assert!(answers[1].contains(completed.trim()));
            let (told, result) =
                with_fake_qemu(answers, |mut qmp| qmp.save(Path::new("/f"), Duration::from_secs(30)));
            result.unwrap();
            assert!(told[1].contains("x-ignore-shared") && told[2].contains("file:/f"), "{told:?}");
        }
    }

    #[test]
    fn a_state_that_is_not_saved_is_an_error_with_qemus_reason() {
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
    fn a_guest_runs_already_or_is_waited_for() {
        let (told, result) = with_fake_qemu(&["{\"return\": {\"running\": true}}\n"], |mut qmp| {
            qmp.wait_until_running(Instant::now() + Duration::from_secs(30))
        });
        result.unwrap();
        assert_eq!(told[1], r#"{"execute":"query-status","arguments":{}}"#);
        let answers = &["{\"return\": {\"running\": false}}\n{\"event\": \"RESUME\"}\n"];
        with_fake_qemu(answers, |mut qmp| qmp.wait_until_running(Instant::now() + Duration::from_secs(30)))
            .1
            .unwrap();
        let (told, result) =
            with_fake_qemu(&[SET], |mut qmp| qmp.plug(&serde_json::json!({"driver": "d", "x": true})));
        result.unwrap();
        assert_eq!(told[1], r#"{"execute":"device_add","arguments":{"driver":"d","x":true}}"#);
    }

    #[test]
    fn a_guest_is_stopped_for_a_debugger() {
        let (told, result) =
            with_fake_qemu(&["{\"event\": \"STOP\"}\n{\"return\": {}}\n"], |mut qmp| qmp.stop());
        result.unwrap();
        assert_eq!(told[1], r#"{"execute":"stop","arguments":{}}"#);
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
