//! Why a benchmark failed: the thing, the place and the fix.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Every failure of `niclab-perf`.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The NIC or its library.
    #[error(transparent)]
    Nic(#[from] niclab_user::Error),

    /// Nobody said which rank this is.
    #[error(
        "the rank of this node is not known: run under `niclab run`, which sets NICLAB_RANK, or give --rank"
    )]
    NoRank,

    /// Nobody said how to reach the peer by TCP.
    #[error(
        "no address for rank {rank}: NICLAB_ADDRESSES (or --addresses) must list an address for each rank, separated \
         by commas; it lists {listed}"
    )]
    NoAddress {
        /// The rank without an address.
        rank: u32,
        /// How many there are.
        listed: usize,
    },

    /// Options that do not go together, or a value out of range.
    #[error("{0}")]
    Usage(String),

    /// A workload cannot be read, or not be performed.
    #[error("the workload in {}: {what}", .path.display())]
    Workload {
        /// Its file, or `-`.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },

    /// A cue was not answered.
    #[error("nobody conducts: standard input ended at the cue `{cue}`; `niclab check` does")]
    NotCoordinated {
        /// The cue.
        cue: &'static str,
    },

    /// A socket.
    #[error("cannot {operation} {address}: {source}")]
    Socket {
        /// What was tried.
        operation: &'static str,
        /// With whom.
        address: String,
        /// What the kernel answered.
        source: io::Error,
    },

    /// The peer ended the connection in the middle of a run.
    #[error("{peer} closed the connection: see its output")]
    PeerLeft {
        /// The peer.
        peer: String,
    },

    /// The peer never came.
    #[error("{peer} did not answer within {waited:?}: is `niclab-perf {command}` running there too?")]
    PeerAbsent {
        /// The peer.
        peer: String,
        /// How long, wall time.
        waited: Duration,
        /// The benchmark.
        command: &'static str,
    },

    /// Both ends run, but not the same benchmark.
    #[error("{peer} runs another benchmark: give both ends the same command and options")]
    Mismatch {
        /// The peer.
        peer: String,
    },

    /// The NIC did not do what it was asked to.
    #[error("{peer}: cannot {operation}: {outcome}")]
    Matching {
        /// The peer.
        peer: String,
        /// What was tried.
        operation: &'static str,
        /// What the NIC says.
        outcome: niclab_user::lists::Outcome,
    },

    /// The NIC did not do what was posted.
    #[error("{peer}: cannot {operation}: {outcome}")]
    Posted {
        /// The peer.
        peer: String,
        /// What was tried.
        operation: &'static str,
        /// What the NIC says.
        outcome: niclab_user::posts::Outcome,
    },

    /// The cards did not do what a group was asked for.
    #[error("{task}: {outcome}")]
    Collective {
        /// What was asked for last.
        task: String,
        /// What the NIC says.
        outcome: niclab_user::posts::Outcome,
    },

    /// The cards made something else of the members' data than plain arithmetic does.
    #[error("{task}: byte {byte} is not what the members' data makes: a card combined or carried it wrongly")]
    Combined {
        /// What, and of whom.
        task: String,
        /// The first wrong byte.
        byte: usize,
    },

    /// A host was woken for what its card does alone.
    #[error(
        "{task}: while it waited for its card, this node was interrupted {interrupts} times, where it asked for {expected}, and \
         its card was rung {rung} times, which only a host does"
    )]
    Woken {
        /// What was asked for.
        task: String,
        /// As the device counts them.
        interrupts: u64,
        /// As many as were asked for.
        expected: u64,
        /// Doorbells, and stores that needed none.
        rung: u64,
    },

    /// A message arrived that is not what was sent.
    #[error(
        "{peer}: byte {offset} of message {number} is {found:#04x} instead of {expected:#04x}: the data was damaged on its way"
    )]
    Damaged {
        /// The peer.
        peer: String,
        /// The message.
        number: u64,
        /// Its first wrong byte.
        offset: usize,
        /// What it should be.
        expected: u8,
        /// What it is.
        found: u8,
    },

    /// A message came that does not belong where the run is.
    #[error(
        "{peer}: expected {expected}, received {found}: a message was lost, or the port is used by others"
    )]
    OutOfStep {
        /// The peer.
        peer: String,
        /// What should have come.
        expected: String,
        /// What came.
        found: String,
    },

    /// The interrupt line of the NIC was not found.
    #[error("no interrupt line of {device} in {}: is the niclab driver bound?", .path.display())]
    NoInterruptLine {
        /// The device.
        device: String,
        /// Where it was looked for.
        path: PathBuf,
    },

    /// The NIC does not count what a run is told by.
    #[error("{} has no counter {name}: driver, device and program are of different builds", .device.display())]
    NoCounter {
        /// The device.
        device: PathBuf,
        /// The counter.
        name: &'static str,
    },

    /// A file that the kernel provides.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },

    /// The interrupts counted are not those that the formula gives.
    #[error("interrupts: {expected} expected, but {what}")]
    Interrupts {
        /// By the formula.
        expected: u64,
        /// Which count differs, and how.
        what: String,
    },

    /// The report could not be written.
    #[error("cannot write the report: {0}")]
    Write(#[from] io::Error),
}
