//! Why a call failed: the thing, the place and the fix.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use niclab_port::channels::FIRST_HANDLER;
use niclab_port::channels::names::{Conflict, MAX_NAME_BYTES, MAX_NAMES, NameProblem};

/// Every failure of this library. Nothing here is fatal to the process; after [`Error::DeviceGone`] the port is of no
/// further use, after any other error it can be used again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no NIC at all.
    #[error(
        "no niclab NIC: {} has no niclab0; run this in a guest that `niclab` booted, or load the driver \
         (modprobe niclab) and see /sys/class/niclab", .directory.display()
    )]
    NoDevice {
        /// Where character devices were looked for.
        directory: PathBuf,
    },

    /// A character device cannot be opened.
    #[error(
        "cannot open {}: {source}; is the niclab driver loaded (modprobe niclab), and may this user read and write it?",
        .path.display()
    )]
    Open {
        /// The character device.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },

    /// The file is not a niclab NIC.
    #[error("{} is not a niclab NIC; the first is /dev/niclab0", .path.display())]
    NotNiclab {
        /// The file that was opened.
        path: PathBuf,
    },

    /// Device and library were built from different versions of the contract.
    #[error(
        "{device} speaks ABI version {found}, this library {expected}: build device, driver and program alike"
    )]
    AbiVersion {
        /// The device.
        device: String,
        /// The version it announced.
        found: u32,
        /// [`niclab_abi::ABI_VERSION`].
        expected: u32,
    },

    /// The NIC is another model than the module of this library that was asked to drive it.
    #[error(
        "{device} is a NIC of model {model}, which has no {wanted}: choose another in the cluster file or by --nic"
    )]
    MissingFeature {
        /// The device.
        device: String,
        /// The model it is.
        model: String,
        /// What was wanted of it.
        wanted: &'static str,
    },

    /// The port, or every port, is open already.
    #[error("{device}: port {port} is in use; close the program that has it open or choose another port")]
    PortBusy {
        /// The device.
        device: String,
        /// The port, or `any`.
        port: String,
    },

    /// The machine has no memory for a buffer.
    #[error("no memory for a buffer of {bytes} bytes: {source}; give the guest more or ask for less")]
    NoMemory {
        /// How large it was to be.
        bytes: usize,
        /// What the kernel answered.
        source: io::Error,
    },

    /// A value is out of its range; nothing was done.
    #[error("{what} is {value}, but must be {range}")]
    BadValue {
        /// Which value.
        what: &'static str,
        /// What it was.
        value: u64,
        /// What is accepted.
        range: String,
    },

    /// The driver or the device refused an operation.
    #[error("{device}: cannot {operation}: {source}")]
    Refused {
        /// The device.
        device: String,
        /// What was asked, with its parameters.
        operation: String,
        /// What the kernel answered.
        source: io::Error,
    },

    /// The device refused launches or register writes since the port was opened.
    #[error("{device}: port {port}: {count} launches or register writes refused, the last because {}",
        .refusal.map_or("the device does not say why", niclab_port::Refusal::reason)
    )]
    Launch {
        /// The device.
        device: String,
        /// The port.
        port: u32,
        /// How many were refused.
        count: u64,
        /// Why the last one was; none where the device does not say it.
        refusal: Option<niclab_port::Refusal>,
    },

    /// A message was sent to an endpoint whose program has no handler of this number: its card has the message, and
    /// nobody else.
    #[error(
        "node {node}, port {port} has no handler {number}{}: have its program register it, and synchronise handlers before they \
         are called", .name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default()
    )]
    UnknownHandler {
        /// The receiver's node.
        node: u32,
        /// Its port.
        port: u32,
        /// The handler that was called.
        number: u32,
        /// Its name, where the cluster's list has one.
        name: Option<String>,
    },

    /// Handlers cannot be registered, or not be part of the cluster's list.
    #[error("{}", describe(.conflicts))]
    Handlers {
        /// Each of them, and why.
        conflicts: Vec<Conflict>,
    },

    /// A handler has sent more than may wait for room; nothing was sent.
    #[error(
        "{messages} messages with {bytes} bytes wait for room already, of at most {most_messages} with {most_bytes}: send less from \
         handlers, poll more often, or raise queue_messages and queue_bytes"
    )]
    SendQueueFull {
        /// Messages that wait.
        messages: usize,
        /// Bytes of their payload.
        bytes: usize,
        /// Messages that may.
        most_messages: usize,
        /// Bytes that may.
        most_bytes: usize,
    },

    /// A message could not be moved, by a card with lists.
    #[error("{device}: port {port}: cannot {operation}: {outcome}")]
    Transfer {
        /// The device.
        device: String,
        /// The port.
        port: u32,
        /// What was tried.
        operation: &'static str,
        /// What the NIC says.
        outcome: niclab_port::lists::Outcome,
    },

    /// Nothing came within the deadline, although the device lives.
    #[error("{device}: {operation}: nothing for {waited:?}; is the peer running, routed and authorized?")]
    TimedOut {
        /// The device.
        device: String,
        /// What was waited for.
        operation: &'static str,
        /// How long, wall time.
        waited: Duration,
    },

    /// The device wrote later slices and left these out, or wrote what is no slice: their messages are lost. The port
    /// has gone past them, and the next receive goes on behind.
    #[error(
        "{device}: port {port}: {count} slice(s) from number {number} on are lost: {what}; the messages in them are gone, \
         later ones can be received. Do device faults (`device_faults` of the cluster file) explain it?"
    )]
    SlicesLost {
        /// The device.
        device: String,
        /// The port.
        port: u32,
        /// The first slice that is lost, counted from 1 since the port was opened.
        number: u64,
        /// How many.
        count: u64,
        /// What is there instead.
        what: String,
    },

    /// Something between active ports was lost or dropped: it is told here, and never sent again.
    #[error(
        "{device}: port {port}: of {source_address}: {what} ({lost_frames} frames lost); later messages can be received"
    )]
    Raised {
        /// The device.
        device: String,
        /// The port.
        port: u32,
        /// Who sent it.
        source_address: crate::Address,
        /// Frames that did not come.
        lost_frames: u32,
        /// What happened.
        what: String,
    },

    /// The window of a pair of nodes was not given back: the other one takes nothing, or its acknowledgement was lost.
    #[error(
        "{device}: port {port}: the window to {target} was not given back for {waited:?}: does a program there look for messages, or \
         was an acknowledgement lost? What has left of the message is incomplete there"
    )]
    Stalled {
        /// The device.
        device: String,
        /// The port.
        port: u32,
        /// The receiver.
        target: crate::Address,
        /// How long, wall time.
        waited: Duration,
    },

    /// A flush cannot know when its last packets left: they asked for no report.
    #[error(
        "{device}: port {port}: flush needs the last packet sent to carry the notification or the acknowledgement flag"
    )]
    NothingReported {
        /// The device.
        device: String,
        /// The port.
        port: u32,
    },

    /// The device does not answer any more.
    #[error(
        "{device}: the device is gone (the daemon behind it has ended, or the driver was unbound): close the program; \
         `niclab logs` on the host tells why"
    )]
    DeviceGone {
        /// The device.
        device: String,
    },

    /// The device wrote what the contract rules out.
    #[error("{device}: {what}; this is a fault of the device or of its driver")]
    Inconsistent {
        /// The device.
        device: String,
        /// What is wrong.
        what: String,
    },
}

impl From<niclab_port::BadValue> for Error {
    fn from(niclab_port::BadValue { what, value, most }: niclab_port::BadValue) -> Self {
        Self::BadValue { what, value, range: format!("at most {most}") }
    }
}

/// All conflicts in words, each with its fix.
fn describe(conflicts: &[Conflict]) -> String {
    let texts = conflicts.iter().map(|Conflict { name, number, problem }| match problem {
        NameProblem::Length => format!("handler {name:?}: a name has 1 to {MAX_NAME_BYTES} bytes"),
        NameProblem::Duplicated => format!("handler {name:?} is registered here already: choose another name"),
        NameProblem::Predefined => format!(
            "handler {name:?}: number {number} is a predefined handler's: choose {FIRST_HANDLER} or more, or none"
        ),
        NameProblem::Taken => {
            format!("handler {name:?}: number {number} is another handler's: choose another, or none")
        }
        NameProblem::OtherNumber => {
            format!("handler {name:?} has the number {number} at others: register it by that, or by none")
        }
        NameProblem::Full => format!("handler {name:?}: there are {MAX_NAMES} handlers, and there may be no more"),
        NameProblem::Other(reason) => {
            format!("handler {name:?}: of a reason ({reason}) that this library does not know: build all programs alike")
        }
    });
    texts.collect::<Vec<_>>().join("; ")
}
