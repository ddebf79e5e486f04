//! The protocol of the supervisor's socket: one JSON [`Request`] line, one JSON [`Reply`] line.
//!
//! After [`Reply::Running`] the connection carries frames of the agent's protocol (session 0, id 0) in both directions,
//! for that one command, until [`ToHost::Exit`] or [`ToHost::Refused`]. Closing the connection ends the command.

use std::{
    io::{self, Read, Write},
    net::Ipv4Addr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use niclab_agent::{Decoder, Exec, Health, MessageError, ToGuest, ToHost};
use niclab_spec::{ClusterName, MacAddress};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// The socket's name in the cluster's folder.
pub const SOCKET: &str = "control.sock";

/// The subcommand that starts the supervisor of a cluster.
pub const SUPERVISE: &str = "supervise";

/// The plan's name in the cluster's folder.
pub const PLAN: &str = "plan.json";

/// The file in a cluster's folder with the reason why the cluster ended by itself.
pub const FAILURE: &str = "failure";

/// The version of [`Status`].
pub const STATUS_VERSION: u32 = 1;

/// The longest line of either side.
const MAX_LINE_BYTES: u64 = 1024 * 1024;

/// A request to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Query its status.
    Status,
    /// Run a command on a node.
    Exec {
        /// The node.
        node: String,
        /// The command.
        exec: Exec,
    },
    /// Take the cluster down. The reply comes when everything has ended.
    Down,
}

/// A reply of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Status`].
    Status(Status),
    /// Frames follow.
    Running,
    /// To [`Request::Down`].
    Down,
    /// The request cannot be met.
    Error {
        /// Why.
        message: String,
    },
}

/// The status of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// [`STATUS_VERSION`].
    pub version: u32,
    /// The cluster's name.
    pub name: ClusterName,
    /// The NIC model.
    pub nic: String,
    /// The accelerator.
    pub accelerator: String,
    /// Wall time since all guests were healthy, in seconds.
    pub wall_uptime_s: u64,
    /// The daemon's pid.
    pub daemon_pid: u32,
    /// The daemon's monitor socket.
    pub monitor_socket: PathBuf,
    /// The nodes, by rank.
    pub nodes: Vec<NodeStatus>,
}

/// The status of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Host name.
    pub name: String,
    /// QEMU's pid; none once the node has ended.
    pub pid: Option<u32>,
    /// Address of the Ethernet function.
    pub address: Ipv4Addr,
    /// Ethernet address of the card.
    pub mac: MacAddress,
    /// The guest's view of its NIC, or why it does not answer.
    pub health: Result<Health, String>,
}

/// The exchange with the supervisor failed.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The connection failed.
    #[error("the cluster's supervisor does not answer: {0}")]
    Io(#[from] io::Error),
    /// The supervisor closed the connection too early.
    #[error("the cluster's supervisor closed the connection")]
    HungUp,
    /// A line is invalid.
    #[error("the cluster's supervisor comes from another build: {0}")]
    Parse(#[from] serde_json::Error),
    /// A frame cannot be decoded or encoded.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The request cannot be met.
    #[error("{0}")]
    Refused(String),
    /// The reply belongs to another request.
    #[error("the cluster's supervisor comes from another build: it answered {0:?}")]
    Unexpected(Box<Reply>),
}

/// Writes one line.
///
/// # Errors
/// [`ControlError`].
pub fn write_line(stream: &mut impl Write, value: &impl Serialize) -> Result<(), ControlError> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(stream.write_all(&line)?)
}

/// Reads one line, and no byte after it: frames may follow.
///
/// # Errors
/// [`ControlError`].
pub fn read_line<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, ControlError> {
    let mut line = Vec::new();
    #[expect(
        clippy::unbuffered_bytes,
        reason = "a buffer would take frames that follow; lines are few and short"
    )]
    for byte in stream.take(MAX_LINE_BYTES).bytes() {
        match byte? {
            b'\n' => return Ok(serde_json::from_slice(&line)?),
            byte => line.push(byte),
        }
    }
    Err(ControlError::HungUp)
}

/// Sends a request to a cluster, and returns its reply.
///
/// # Errors
/// [`ControlError`].
pub fn ask(folder: &Path, request: &Request) -> Result<Reply, ControlError> {
    Ok(connect(folder, request, None)?.1)
}

/// As [`ask`], with a time limit for the reply.
///
/// # Errors
/// [`ControlError`].
pub fn ask_within(folder: &Path, request: &Request, within: Duration) -> Result<Reply, ControlError> {
    Ok(connect(folder, request, Some(within))?.1)
}

fn connect(
    folder: &Path,
    request: &Request,
    within: Option<Duration>,
) -> Result<(UnixStream, Reply), ControlError> {
    let mut stream = UnixStream::connect(folder.join(SOCKET))?;
    stream.set_read_timeout(within)?;
    stream.set_write_timeout(within)?;
    write_line(&mut stream, request)?;
    match read_line(&mut stream)? {
        Reply::Error { message } => Err(ControlError::Refused(message)),
        reply => Ok((stream, reply)),
    }
}

/// A command that runs through the socket.
#[derive(Debug)]
pub struct RemoteCommand {
    stream: UnixStream,
    decoder: Decoder,
}

/// The sending half of a command. Other threads can use it.
#[derive(Debug)]
pub struct RemoteInput(UnixStream);

impl RemoteCommand {
    /// Starts a command on a node.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn start(folder: &Path, node: &str, exec: Exec) -> Result<Self, ControlError> {
        match connect(folder, &Request::Exec { node: node.to_owned(), exec }, None)? {
            (stream, Reply::Running) => Ok(Self { stream, decoder: Decoder::default() }),
            (_, reply) => Err(ControlError::Unexpected(Box::new(reply))),
        }
    }

    /// The sending half.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn input(&self) -> Result<RemoteInput, ControlError> {
        Ok(RemoteInput(self.stream.try_clone()?))
    }

    /// Waits for the command's next message.
    ///
    /// # Errors
    /// [`ControlError::HungUp`] if the cluster ends.
    pub fn receive(&mut self) -> Result<ToHost, ControlError> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                return Ok(ToHost::from_frame(frame)?);
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(ControlError::HungUp),
                n => self.decoder.push(&buffer[..n]),
            }
        }
    }
}

impl RemoteInput {
    /// Sends a message to the command.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn send(&mut self, message: ToGuest) -> Result<(), ControlError> {
        let mut bytes = Vec::new();
        message.into_frame(0, 0)?.encode(&mut bytes);
        Ok(self.0.write_all(&bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_where_frames_begin() {
        let mut bytes = Vec::new();
        write_line(&mut bytes, &Request::Status).unwrap();
        bytes.extend(b"frames");
        let mut rest = bytes.as_slice();
        assert_eq!(read_line::<Request>(&mut rest).unwrap(), Request::Status);
        assert_eq!(rest, b"frames");
        assert!(matches!(read_line::<Request>(&mut rest), Err(ControlError::HungUp)));
    }

    #[test]
    fn endless_line_is_rejected() {
        assert!(matches!(read_line::<Request>(&mut io::repeat(b'x')), Err(ControlError::HungUp)));
    }
}
