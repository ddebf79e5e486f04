//! Why a call failed: the thing, the place and the fix.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use niclab_port::grim::FIRST_HANDLER;
use niclab_port::grim::names::{Conflict, MAX_NAME_BYTES, MAX_NAMES, NameProblem};

/// Every failure of this library. No error ends the process. After [`Error::DeviceGone`] the program cannot use the
/// port any more; after any other error it can.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no NIC at all.
    #[error(
        "no niclab NIC: {} has no niclab0; run this in a guest that `niclab` booted, or load the driver \
         (modprobe niclab) and see /sys/class/niclab", .directory.display()
    )]
    NoDevice {
        /// The directory that was searched.
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
        "{device} has ABI version {found}, this library {expected}: build device, driver and program from the same \
         source"
    )]
    AbiVersion {
        /// The device.
        device: String,
        /// The version it announced.
        found: u32,
        /// [`niclab_abi::ABI_VERSION`].
        expected: u32,
    },

    /// The NIC's model lacks the interface of the module that was asked to drive it.
    #[error(
        "{device} is a NIC of model {model}, which has no {wanted}: choose another in the cluster file or by --nic"
    )]
    MissingFeature {
        /// The device.
        device: String,
        /// The model it is.
        model: String,
        /// The feature that the program asked for.
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
    #[error(
        "no memory for a buffer of {bytes} bytes: {source}; give the guest more memory or request a smaller buffer"
    )]
    NoMemory {
        /// Size of the buffer.
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

    /// The device refused posts or register writes since the port was opened.
    #[error("{device}: port {port}: {count} posts or register writes refused, the last because {}",
        .refusal.map_or("the device gives no reason", niclab_port::Refusal::reason)
    )]
    Launch {
        /// The device.
        device: String,
        /// The port.
        port: u32,
        /// How many were refused.
        count: u64,
        /// Reason of the last refusal; `None` if the device does not report one.
        refusal: Option<niclab_port::Refusal>,
    },

    /// The program of the receiving endpoint has no handler with this number. Only the receiving card has the message.
    #[error(
        "node {node}, port {port} has no handler {number}{}: register it in that node's program, and \
         synchronise handlers before calling them", .name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default()
    )]
    UnknownHandler {
        /// The receiver's node.
        node: u32,
        /// Its port.
        port: u32,
        /// The handler that was called.
        number: u32,
        /// Its name, if the cluster's list has one.
        name: Option<String>,
    },

    /// Handlers cannot be registered, or cannot be added to the cluster's list.
    #[error("{}", describe(.conflicts))]
    Handlers {
        /// Each of them, with the reason.
        conflicts: Vec<Conflict>,
    },

    /// The queue of messages that handlers send is full; nothing was sent.
    #[error(
        "the queue for messages of handlers is full: it holds {messages} messages with {bytes} bytes, and its \
         limits are {most_messages} messages and {most_bytes} bytes; send less from handlers, poll more often, or \
         raise queue_messages and queue_bytes"
    )]
    SendQueueFull {
        /// Messages in the queue.
        messages: usize,
        /// Bytes of their payload.
        bytes: usize,
        /// Maximum number of messages.
        most_messages: usize,
        /// Maximum number of bytes.
        most_bytes: usize,
    },

    /// A card with lists could not transfer a message.
    #[error("{device}: port {port}: cannot {operation}: {outcome}")]
    Transfer {
        /// The device.
        device: String,
        /// The port.
        port: u32,
        /// What was tried.
        operation: &'static str,
        /// The NIC's reason.
        outcome: niclab_port::matching::Outcome,
    },

    /// Nothing arrived within the deadline, although the device answers.
    #[error(
        "{device}: {operation}: nothing arrived for {waited:?}; is the peer running, routed and authorized?"
    )]
    TimedOut {
        /// The device.
        device: String,
        /// What was waited for.
        operation: &'static str,
        /// How long, wall time.
        waited: Duration,
    },

    /// The device skipped these slices and wrote later ones, or wrote invalid ones. Their messages are lost. The port
    /// has skipped the slices, and the next receive returns a later message.
    #[error(
        "{device}: port {port}: {count} slice(s) from number {number} on are lost: {what}; their messages are lost, \
         later messages can be received. Does the cluster file set `device_faults`, which can cause this?"
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
        /// What the queue holds instead.
        what: String,
    },

    /// A message between active ports was lost or dropped. The card reports the loss and does not retransmit.
    #[error(
        "{device}: port {port}: from {source_address}: {what} ({lost_frames} frames lost); later messages can be \
         received"
    )]
    Raised {
        /// The device.
        device: String,
        /// The port.
        port: u32,
        /// The sender.
        source_address: crate::Address,
        /// Frames that did not arrive.
        lost_frames: u32,
        /// What happened.
        what: String,
    },

    /// The send window to a node stayed closed: the receiver takes no messages, or its acknowledgement was lost.
    #[error(
        "{device}: port {port}: no acknowledgement opened the window to {target} for {waited:?}: does a program \
         there poll for messages, or was an acknowledgement lost? The message is incomplete at the receiver"
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

    /// A flush cannot detect that the last packets left, because they requested no report.
    #[error(
        "{device}: port {port}: flush needs the last packet sent to carry the notification or the acknowledgement flag"
    )]
    NothingReported {
        /// The device.
        device: String,
        /// The port.
        port: u32,
    },

    /// The device does not answer.
    #[error(
        "{device}: the device is gone (its daemon has ended, or the driver was unbound): close the program; \
         `niclab logs` on the host shows the reason"
    )]
    DeviceGone {
        /// The device.
        device: String,
    },

    /// The device wrote a value that the contract rules out.
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

/// Describes all conflicts, each with its fix.
fn describe(conflicts: &[Conflict]) -> String {
    let texts = conflicts.iter().map(|Conflict { name, number, problem }| match problem {
        NameProblem::Length => format!("handler {name:?}: a name has 1 to {MAX_NAME_BYTES} bytes"),
        NameProblem::Duplicated => format!("handler {name:?} is registered here already: choose another name"),
        NameProblem::Predefined => format!(
            "handler {name:?}: a predefined handler has number {number}: choose {FIRST_HANDLER} or more, or none"
        ),
        NameProblem::Taken => {
            format!("handler {name:?}: another handler has number {number}: choose another number, or none")
        }
        NameProblem::OtherNumber => {
            format!(
                "handler {name:?} has the number {number} in other programs: register it with that number, or without \
                 one"
            )
        }
        NameProblem::Full => {
            format!("handler {name:?}: the maximum of {MAX_NAMES} handlers is registered: register fewer")
        }
        NameProblem::Other(reason) => {
            format!(
                "handler {name:?}: refused for reason {reason}, which this library does not know: rebuild all programs \
                 together"
            )
        }
    });
    texts.collect::<Vec<_>>().join("; ")
}
