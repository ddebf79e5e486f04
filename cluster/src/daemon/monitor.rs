//! Queries the daemon over its monitor socket.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use niclab_spec::{
    DeviceFaults, DeviceFaultsChange, FaultsChange,
    monitor::{Answer, DaemonHealth, DaemonStats, Heartbeat, LinkStates, RULES_WAIT, Request, STATS_VERSION},
};
use thiserror::Error;

/// The daemon answers from counters, so a longer time means that it hangs.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for loading a firmware image into cards: longer than the daemon waits for it.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for an answer that waits for broken rules.
const RULES_TIMEOUT: Duration = RULES_WAIT.saturating_add(TIMEOUT);

/// Upper bound on the answer for the largest cluster.
const MAX_ANSWER_BYTES: u64 = 16 * 1024 * 1024;

/// The daemon did not answer a query.
#[derive(Debug, Error)]
pub enum MonitorError {
    /// It cannot be reached, or does not answer.
    #[error("the daemon does not answer: {0}")]
    Io(#[from] io::Error),
    /// The answer is invalid.
    #[error("the daemon's answer cannot be read: {0}")]
    Parse(#[source] serde_json::Error),
    /// It answers, but does not serve guests.
    #[error(
        "the daemon is stuck: its lock on all nodes has been held for at least {:.1} s, so it serves no guest; \
         `niclab down` ends the cluster",
        wall_held.as_secs_f64()
    )]
    Stuck {
        /// How long the lock has been held, at least.
        wall_held: Duration,
    },
    /// It refuses the request.
    #[error("the daemon refuses: {0}")]
    Refused(String),
    /// Its answer belongs to another query or another version.
    #[error("the daemon comes from another build; build `niclab` and `niclab-device` together")]
    Unexpected,
}

/// Checks whether the daemon serves guests.
///
/// # Errors
/// [`MonitorError`]: [`MonitorError::Stuck`] if it does not.
pub fn heartbeat(socket: &Path) -> Result<Heartbeat, MonitorError> {
    match ask(socket, &Request::Heartbeat)? {
        Answer::Heartbeat(heartbeat) => Ok(heartbeat),
        _ => Err(MonitorError::Unexpected),
    }
}

/// All counters.
///
/// # Errors
/// [`MonitorError`].
pub fn stats(socket: &Path) -> Result<DaemonStats, MonitorError> {
    counters(socket, &Request::Stats)
}

/// All counters; latencies are counted from zero from now on.
///
/// # Errors
/// [`MonitorError`].
pub fn begin_measurement(socket: &Path) -> Result<DaemonStats, MonitorError> {
    counters(socket, &Request::BeginMeasurement)
}

fn counters(socket: &Path, request: &Request) -> Result<DaemonStats, MonitorError> {
    match ask(socket, request)? {
        Answer::Stats(stats) if stats.version == STATS_VERSION => Ok(stats),
        _ => Err(MonitorError::Unexpected),
    }
}

/// The connections of the daemon.
///
/// # Errors
/// [`MonitorError`].
pub fn health(socket: &Path) -> Result<DaemonHealth, MonitorError> {
    match ask(socket, &Request::Health)? {
        Answer::Health(health) if health.version == STATS_VERSION => Ok(health),
        _ => Err(MonitorError::Unexpected),
    }
}

/// The faults of all links and NICs.
///
/// # Errors
/// [`MonitorError`].
pub fn faults(socket: &Path) -> Result<LinkStates, MonitorError> {
    link_states(socket, &Request::Faults)
}

/// Changes the faults of a node's link, and returns the faults of all links.
///
/// # Errors
/// [`MonitorError`].
pub fn change_faults(socket: &Path, node: &str, change: FaultsChange) -> Result<LinkStates, MonitorError> {
    link_states(socket, &Request::ChangeFaults { node: node.to_owned(), change })
}

/// Changes the faults of a node's NIC, and returns the faults of all nodes.
///
/// # Errors
/// [`MonitorError`].
pub fn change_device_faults(
    socket: &Path,
    node: &str,
    change: DeviceFaultsChange,
) -> Result<LinkStates, MonitorError> {
    link_states(socket, &Request::ChangeDeviceFaults { node: node.to_owned(), change })
}

/// Replaces the faults of a node's NIC.
///
/// # Errors
/// [`MonitorError`].
pub fn set_device_faults(socket: &Path, node: &str, faults: DeviceFaults) -> Result<(), MonitorError> {
    match ask(socket, &Request::SetDeviceFaults { node: node.to_owned(), faults })? {
        Answer::Done => Ok(()),
        _ => Err(MonitorError::Unexpected),
    }
}

/// Sets another seed for the adversarial behaviour of all cards.
///
/// # Errors
/// [`MonitorError`]: [`MonitorError::Refused`] if a card is not adversarial.
pub fn set_adversarial_seed(socket: &Path, seed: u64) -> Result<(), MonitorError> {
    match ask(socket, &Request::SetAdversarialSeed { nodes: Vec::new(), seed })? {
        Answer::Done => Ok(()),
        _ => Err(MonitorError::Unexpected),
    }
}

/// Loads a firmware image into the cards of these nodes, or of all, and waits until it runs. Returns the model time
/// that this took, in picoseconds.
///
/// # Errors
/// [`MonitorError`].
pub fn load(socket: &Path, nodes: &[String], image: &[u8]) -> Result<u64, MonitorError> {
    match ask(socket, &Request::Load { nodes: nodes.to_vec(), image: image.to_vec() })? {
        Answer::Loaded { model_time_ps } => Ok(model_time_ps),
        _ => Err(MonitorError::Unexpected),
    }
}

fn link_states(socket: &Path, request: &Request) -> Result<LinkStates, MonitorError> {
    match ask(socket, request)? {
        Answer::Faults(states) if states.version == STATS_VERSION => Ok(states),
        _ => Err(MonitorError::Unexpected),
    }
}

/// Sends one query and returns its answer.
///
/// # Errors
/// [`MonitorError`].
pub fn ask(socket: &Path, request: &Request) -> Result<Answer, MonitorError> {
    Ok(connect(socket, request)?.1)
}

/// Sends one query; returns its answer and the connection for later data.
///
/// # Errors
/// [`MonitorError`].
pub fn connect(socket: &Path, request: &Request) -> Result<(BufReader<UnixStream>, Answer), MonitorError> {
    let mut stream = UnixStream::connect(socket)?;
    let timeout = match request {
        Request::Load { .. } => LOAD_TIMEOUT,
        Request::AwaitBrokenRules { .. } => RULES_TIMEOUT,
        _ => TIMEOUT,
    };
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = serde_json::to_vec(request).map_err(MonitorError::Parse)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut reader = BufReader::new(stream);
    let answer = read_answer(&mut reader)?;
    Ok((reader, answer))
}

/// The next answer of a connection.
///
/// # Errors
/// [`MonitorError`].
pub fn read_answer(reader: &mut impl BufRead) -> Result<Answer, MonitorError> {
    let mut answer = String::new();
    reader.take(MAX_ANSWER_BYTES).read_line(&mut answer)?;
    match serde_json::from_str(&answer).map_err(MonitorError::Parse)? {
        Answer::Error { message } => Err(MonitorError::Refused(message)),
        Answer::Stuck(stuck) => {
            Err(MonitorError::Stuck { wall_held: Duration::from_millis(stuck.wall_held_ms) })
        }
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use super::*;

    fn answered_with(text: &str) -> Result<DaemonStats, MonitorError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let listener = UnixListener::bind(&path).unwrap();
        let text = text.to_owned();
        let daemon = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            assert_eq!(request, "{\"query\":\"stats\"}\n");
            (&stream).write_all(text.as_bytes()).unwrap();
        });
        let result = stats(&path);
        daemon.join().unwrap();
        result
    }

    #[test]
    fn answers_and_refusals_are_distinguished() {
        let answer_stats =
            DaemonStats { version: STATS_VERSION, wall_uptime_ns: 5, ..DaemonStats::default() };
        let good = serde_json::to_string(&Answer::Stats(answer_stats.clone())).unwrap();
        assert_eq!(answered_with(&good).unwrap(), answer_stats);
        let other = Answer::Stats(DaemonStats { version: STATS_VERSION + 1, ..answer_stats });
        let other = serde_json::to_string(&other).unwrap();
        assert!(matches!(answered_with(&other), Err(MonitorError::Unexpected)));
        assert!(matches!(
            answered_with(r#"{"answer":"error","message":"no"}"#),
            Err(MonitorError::Refused(_))
        ));
        assert!(matches!(answered_with(r#"{"answer":"done"}"#), Err(MonitorError::Unexpected)));
        let stuck = answered_with(r#"{"answer":"stuck","version":2,"wall_held_ms":7300}"#).unwrap_err();
        assert!(stuck.to_string().contains("for at least 7.3 s"), "{stuck}");
        assert!(matches!(answered_with("{"), Err(MonitorError::Parse(_))));
        assert!(matches!(stats(Path::new("/no/such")), Err(MonitorError::Io(_))));
    }
}
