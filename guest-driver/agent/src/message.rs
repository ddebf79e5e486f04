//! The messages between host and agent.
//!
//! Data is sent unchanged; everything else is JSON, so that a capture is readable.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::frame::{Frame, MAX_PAYLOAD_BYTES};

/// Bytes of one stream that may be in flight without acknowledgement. Standard output and standard error share a
/// window.
pub const WINDOW_BYTES: u32 = 256 * 1024;

/// The maximum data in one frame: small enough that the commands share the port fairly.
pub const DATA_BYTES: usize = 16 * 1024;

/// Random bytes in a [`Join`]: twice the state of the kernel's generator.
pub const ENTROPY_BYTES: usize = 64;

/// Host to agent. The frame has the command id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToGuest {
    /// Begin the session that the frame names, with this protocol version.
    Hello {
        /// [`crate::PROTOCOL_VERSION`].
        version: u32,
    },
    /// Start a command.
    Exec(Exec),
    /// Bytes for its standard input.
    Stdin(Vec<u8>),
    /// Its standard input ends.
    StdinEnd,
    /// Send a signal to its process group.
    Signal(i32),
    /// Its terminal changed size.
    Resize(WindowSize),
    /// This number of bytes of its output was consumed.
    Credit(u32),
    /// Request [`ToHost::Health`].
    QueryHealth,
    /// Make the guest this node of a cluster. The agent answers with [`ToHost::Joined`] or [`ToHost::Refused`].
    Join(Join),
    /// Write all dirty data back and power the guest off.
    PowerOff,
}

/// Agent to host. The frame has the command id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToHost {
    /// The agent started, in session 0.
    Booted,
    /// The session began.
    Welcome {
        /// [`crate::PROTOCOL_VERSION`].
        version: u32,
    },
    /// The command is running.
    Started,
    /// The command did not start, or the guest did not become the node.
    Refused(Refusal),
    /// Bytes from its standard output, or its terminal.
    Stdout(Vec<u8>),
    /// Bytes from its standard error.
    Stderr(Vec<u8>),
    /// The command ended, and all its output has been sent.
    Exit(ExitStatus),
    /// This number of bytes of its standard input was consumed.
    Credit(u32),
    /// The answer to [`ToGuest::QueryHealth`].
    Health(Health),
    /// The guest is the node that [`ToGuest::Join`] names.
    Joined,
}

/// A command to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Its environment, in addition to the node's, which [`ToGuest::Join`] gives.
    pub env: BTreeMap<String, String>,
    /// Working folder. By default the node's `NICLAB_CWD` if the guest has that folder, else the agent's own.
    pub cwd: Option<String>,
    /// The size of its terminal, if it has one. Standard error then also goes to the terminal.
    pub terminal: Option<WindowSize>,
}

/// The node and cluster that a guest belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The environment of every command. The agent itself reads these variables:
    /// - `NICLAB_NODE`: the node's name;
    /// - `NICLAB_ADDRESS`: its address, with the prefix length;
    /// - `NICLAB_MAC`: the MAC address of the interface that gets the address;
    /// - `NICLAB_CWD`: the working folder of commands, which is the host's folder if `NICLAB_SHARE` is 1;
    /// - `NICLAB_NIC_ADDRESS` and `NICLAB_NIC_MAC`: the same for the card's interface, if the card carries other
    ///   protocols.
    pub env: BTreeMap<String, String>,
    /// The text of `/etc/hosts`, without the loopback.
    pub hosts: String,
}

/// The data that makes a guest a node. A guest that has just booted and a restored guest need nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The node.
    pub identity: Identity,
    /// The host's Unix time. A restored guest's own clock has the time at which it was saved.
    pub wall_time_ns: u64,
    /// [`ENTROPY_BYTES`] random bytes of the host, so that guests restored from one saved guest draw different numbers.
    pub entropy: Vec<u8>,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

/// The reason why a command did not start, or a guest did not become a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason, for the user.
    pub message: String,
    /// The exit code that a shell would return: 127 for a command that does not exist, else 126.
    pub code: u8,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitStatus {
    /// It exited with this code.
    Code(u8),
    /// This signal killed it.
    Signal(i32),
}

impl ExitStatus {
    /// The code that a shell reports: for a signal, 128 plus the signal's number.
    #[must_use]
    pub fn shell_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(signal).unwrap_or(127).saturating_add(128),
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// The name of niclab's own driver, which reports more than others.
const OWN_DRIVER: &str = "niclab";

/// The state of the guest's NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The driver that is bound to the cluster function.
    pub driver: Option<String>,
    /// niclab's driver found the magic word in the BAR. Other drivers do not report this.
    pub bar_ready: bool,
    /// The Ethernet function has carrier.
    pub link_up: bool,
    /// Interrupts of the cluster function that the driver counted.
    pub interrupts: Option<u64>,
}

impl Health {
    /// Whether the node can be used.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let is_driven = match self.driver.as_deref() {
            None => false,
            Some(OWN_DRIVER) => self.bar_ready,
            Some(_) => true,
        };
        is_driven && self.link_up
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.driver.as_deref() {
            None => write!(f, "no driver bound")?,
            Some(OWN_DRIVER) if self.bar_ready => write!(f, "driver bound, BAR magic seen")?,
            Some(OWN_DRIVER) => write!(f, "driver bound, BAR magic not seen")?,
            Some(other) => write!(f, "driver {other} bound")?,
        }
        write!(f, ", link {}", if self.link_up { "up" } else { "down" })
    }
}

/// A message does not fit into a frame, or a frame contains no valid message.
#[derive(Debug, Error)]
pub enum MessageError {
    /// Too long for one frame.
    #[error(
        "a command with its arguments and environment, or a node's identity, has {bytes} bytes, but the agent \
          accepts at most {MAX_PAYLOAD_BYTES}; pass long lists in a file in the shared folder"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The kind is unknown: the other side has a different version.
    #[error(
        "unknown message kind {0}: launcher and guest image have different versions; build both from the same source"
    )]
    UnknownKind(u32),
    /// The payload does not match the kind.
    #[error("cannot decode a message of kind {kind}: {error}")]
    Payload {
        /// The kind.
        kind: u32,
        /// The cause.
        #[source]
        error: serde_json::Error,
    },
}

mod kind {
    pub const HELLO: u32 = 1;
    pub const EXEC: u32 = 2;
    pub const STDIN: u32 = 3;
    pub const STDIN_END: u32 = 4;
    pub const SIGNAL: u32 = 5;
    pub const RESIZE: u32 = 6;
    pub const GUEST_CREDIT: u32 = 7;
    pub const QUERY_HEALTH: u32 = 8;
    pub const POWER_OFF: u32 = 9;
    pub const JOIN: u32 = 10;

    pub const BOOTED: u32 = 0x101;
    pub const WELCOME: u32 = 0x102;
    pub const STARTED: u32 = 0x103;
    pub const REFUSED: u32 = 0x104;
    pub const STDOUT: u32 = 0x105;
    pub const STDERR: u32 = 0x106;
    pub const EXIT: u32 = 0x107;
    pub const HOST_CREDIT: u32 = 0x108;
    pub const HEALTH: u32 = 0x109;
    pub const JOINED: u32 = 0x10a;
}

impl ToGuest {
    /// The message as a frame.
    ///
    /// # Errors
    /// [`MessageError::TooLong`].
    pub fn into_frame(self, session: u32, id: u32) -> Result<Frame, MessageError> {
        let (kind, payload) = match self {
            Self::Hello { version } => (kind::HELLO, json(&version)),
            Self::Exec(exec) => (kind::EXEC, json(&exec)),
            Self::Stdin(bytes) => (kind::STDIN, bytes),
            Self::StdinEnd => (kind::STDIN_END, Vec::new()),
            Self::Signal(signal) => (kind::SIGNAL, json(&signal)),
            Self::Resize(size) => (kind::RESIZE, json(&size)),
            Self::Credit(bytes) => (kind::GUEST_CREDIT, json(&bytes)),
            Self::QueryHealth => (kind::QUERY_HEALTH, Vec::new()),
            Self::Join(join) => (kind::JOIN, json(&join)),
            Self::PowerOff => (kind::POWER_OFF, Vec::new()),
        };
        frame(session, id, kind, payload)
    }

    /// The message in a frame.
    ///
    /// # Errors
    /// [`MessageError::UnknownKind`] and [`MessageError::Payload`].
    pub fn from_frame(frame: Frame) -> Result<Self, MessageError> {
        Ok(match frame.kind {
            kind::HELLO => Self::Hello { version: parse(&frame)? },
            kind::EXEC => Self::Exec(parse(&frame)?),
            kind::STDIN => Self::Stdin(frame.payload),
            kind::STDIN_END => Self::StdinEnd,
            kind::SIGNAL => Self::Signal(parse(&frame)?),
            kind::RESIZE => Self::Resize(parse(&frame)?),
            kind::GUEST_CREDIT => Self::Credit(parse(&frame)?),
            kind::QUERY_HEALTH => Self::QueryHealth,
            kind::JOIN => Self::Join(parse(&frame)?),
            kind::POWER_OFF => Self::PowerOff,
            unknown => return Err(MessageError::UnknownKind(unknown)),
        })
    }
}

impl ToHost {
    /// The message as a frame.
    ///
    /// # Errors
    /// [`MessageError::TooLong`].
    pub fn into_frame(self, session: u32, id: u32) -> Result<Frame, MessageError> {
        let (kind, payload) = match self {
            Self::Booted => (kind::BOOTED, Vec::new()),
            Self::Welcome { version } => (kind::WELCOME, json(&version)),
            Self::Started => (kind::STARTED, Vec::new()),
            Self::Refused(refusal) => (kind::REFUSED, json(&refusal)),
            Self::Stdout(bytes) => (kind::STDOUT, bytes),
            Self::Stderr(bytes) => (kind::STDERR, bytes),
            Self::Exit(status) => (kind::EXIT, json(&status)),
            Self::Credit(bytes) => (kind::HOST_CREDIT, json(&bytes)),
            Self::Health(health) => (kind::HEALTH, json(&health)),
            Self::Joined => (kind::JOINED, Vec::new()),
        };
        frame(session, id, kind, payload)
    }

    /// The message in a frame.
    ///
    /// # Errors
    /// [`MessageError::UnknownKind`] and [`MessageError::Payload`].
    pub fn from_frame(frame: Frame) -> Result<Self, MessageError> {
        Ok(match frame.kind {
            kind::BOOTED => Self::Booted,
            kind::WELCOME => Self::Welcome { version: parse(&frame)? },
            kind::STARTED => Self::Started,
            kind::REFUSED => Self::Refused(parse(&frame)?),
            kind::STDOUT => Self::Stdout(frame.payload),
            kind::STDERR => Self::Stderr(frame.payload),
            kind::EXIT => Self::Exit(parse(&frame)?),
            kind::HOST_CREDIT => Self::Credit(parse(&frame)?),
            kind::HEALTH => Self::Health(parse(&frame)?),
            kind::JOINED => Self::Joined,
            unknown => return Err(MessageError::UnknownKind(unknown)),
        })
    }
}

fn frame(session: u32, id: u32, kind: u32, payload: Vec<u8>) -> Result<Frame, MessageError> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(MessageError::TooLong { bytes: payload.len() });
    }
    Ok(Frame { session, id, kind, payload })
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Serialization fails only for maps with keys other than strings and for failing `Serialize` implementations. These
    // types have neither.
    serde_json::to_vec(value).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(frame: &Frame) -> Result<T, MessageError> {
    serde_json::from_slice(&frame.payload).map_err(|error| MessageError::Payload { kind: frame.kind, error })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn window_size() -> impl Strategy<Value = WindowSize> {
        (any::<u16>(), any::<u16>()).prop_map(|(rows, columns)| WindowSize { rows, columns })
    }

    fn to_guest() -> impl Strategy<Value = ToGuest> {
        let exec = (
            vec(any::<String>(), 0..4),
            prop::collection::btree_map(any::<String>(), any::<String>(), 0..4),
            any::<Option<String>>(),
            prop::option::of(window_size()),
        )
            .prop_map(|(argv, env, cwd, terminal)| Exec { argv, env, cwd, terminal });
        let join = (
            prop::collection::btree_map(any::<String>(), any::<String>(), 0..4),
            any::<String>(),
            any::<u64>(),
            vec(any::<u8>(), 0..=ENTROPY_BYTES),
        )
            .prop_map(|(env, hosts, wall_time_ns, entropy)| Join {
                identity: Identity { env, hosts },
                wall_time_ns,
                entropy,
            });
        prop_oneof![
            any::<u32>().prop_map(|version| ToGuest::Hello { version }),
            exec.prop_map(ToGuest::Exec),
            vec(any::<u8>(), 0..100).prop_map(ToGuest::Stdin),
            Just(ToGuest::StdinEnd),
            any::<i32>().prop_map(ToGuest::Signal),
            window_size().prop_map(ToGuest::Resize),
            any::<u32>().prop_map(ToGuest::Credit),
            Just(ToGuest::QueryHealth),
            join.prop_map(ToGuest::Join),
            Just(ToGuest::PowerOff),
        ]
    }

    fn to_host() -> impl Strategy<Value = ToHost> {
        prop_oneof![
            Just(ToHost::Booted),
            any::<u32>().prop_map(|version| ToHost::Welcome { version }),
            Just(ToHost::Started),
            (any::<String>(), any::<u8>())
                .prop_map(|(message, code)| ToHost::Refused(Refusal { message, code })),
            vec(any::<u8>(), 0..100).prop_map(ToHost::Stdout),
            vec(any::<u8>(), 0..100).prop_map(ToHost::Stderr),
            any::<u8>().prop_map(|code| ToHost::Exit(ExitStatus::Code(code))),
            any::<i32>().prop_map(|signal| ToHost::Exit(ExitStatus::Signal(signal))),
            any::<u32>().prop_map(ToHost::Credit),
            Just(ToHost::Joined),
            (any::<Option<String>>(), any::<[bool; 2]>(), any::<Option<u64>>()).prop_map(
                |(driver, [bar_ready, link_up], interrupts)| {
                    ToHost::Health(Health { driver, bar_ready, link_up, interrupts })
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn messages_are_unchanged_in_frames(guest in to_guest(), host in to_host(), session: u32, id: u32) {
            let frame = guest.clone().into_frame(session, id).unwrap();
            prop_assert_eq!((frame.session, frame.id), (session, id));
            prop_assert_eq!(ToGuest::from_frame(frame).unwrap(), guest);
            prop_assert_eq!(ToHost::from_frame(host.clone().into_frame(session, id).unwrap()).unwrap(), host);
        }

        #[test]
        fn any_frame_is_a_message_or_an_error(kind in 0u32..0x120, payload in vec(any::<u8>(), 0..40)) {
            let frame = Frame { session: 1, id: 1, kind, payload };
            let _ = ToGuest::from_frame(frame.clone());
            let _ = ToHost::from_frame(frame);
        }
    }

    #[test]
    fn command_longer_than_a_frame_is_refused() {
        let exec = Exec { argv: vec!["x".repeat(MAX_PAYLOAD_BYTES)], ..Exec::default() };
        assert!(matches!(ToGuest::Exec(exec).into_frame(1, 1), Err(MessageError::TooLong { .. })));
    }

    #[test]
    fn signal_has_the_exit_code_that_shells_report() {
        assert_eq!(ExitStatus::Signal(9).shell_code(), 137);
        assert_eq!(ExitStatus::Code(3).shell_code(), 3);
    }
}
