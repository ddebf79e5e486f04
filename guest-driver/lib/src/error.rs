//! Why a call failed: the thing, the place and the mend.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

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
    #[error("{device}: port {port}: {count} launches or register writes refused, the last because {reason}")]
    Launch {
        /// The device.
        device: String,
        /// The port.
        port: u32,
        /// How many were refused.
        count: u64,
        /// Why the last one was.
        reason: &'static str,
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

    /// The device wrote later slices and left these out, or wrote what is no slice: their messages are lost. The port has
    /// gone past them, and the next receive goes on behind.
    #[error(
        "{device}: port {port}: {count} slice(s) from number {number} on are lost: {what}; the messages in them are gone,          later ones can be received. Do device faults (`device_faults` of the cluster file) explain it?"
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
