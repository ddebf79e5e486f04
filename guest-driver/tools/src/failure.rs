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

    /// Neither an option, the environment nor the NIC gives this node's rank.
    #[error(
        "the rank of this node is not known: run under `niclab run`, which sets NICLAB_RANK, or give --rank"
    )]
    NoRank,

    /// The list of addresses has no entry for the peer's rank, so TCP and UDP cannot reach it.
    #[error(
        "no address for rank {rank}: NICLAB_ADDRESSES (or --addresses) must list an address for each rank, separated \
         by commas; it lists {listed}"
    )]
    NoAddress {
        /// The rank without an address.
        rank: u32,
        /// Number of addresses in the list.
        listed: usize,
    },

    /// Options that exclude each other, or a value out of range.
    #[error("{0}")]
    Usage(String),

    /// A workload cannot be read or cannot be run.
    #[error("the workload in {}: {what}", .path.display())]
    Workload {
        /// Its file, or `-`.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },

    /// Standard input ended before the coordinator answered a barrier.
    #[error(
        "standard input ended at the barrier `{cue}`: no coordinator answers; run this under `niclab check`"
    )]
    NotCoordinated {
        /// Name of the barrier.
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

    /// The peer did not answer.
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

    /// A command of a card with lists failed.
    #[error("{peer}: cannot {operation}: {outcome}")]
    Matching {
        /// The peer.
        peer: String,
        /// What was tried.
        operation: &'static str,
        /// The NIC's reason.
        outcome: niclab_user::matching::Outcome,
    },

    /// A command of a card with posts failed.
    #[error("{peer}: cannot {operation}: {outcome}")]
    Posted {
        /// The peer.
        peer: String,
        /// What was tried.
        operation: &'static str,
        /// The NIC's reason.
        outcome: niclab_user::inic::Outcome,
    },

    /// A collective operation failed.
    #[error("{task}: {outcome}")]
    Collective {
        /// The operation that ran last.
        task: String,
        /// The NIC's reason.
        outcome: niclab_user::inic::Outcome,
    },

    /// The cards' result differs from the result that this program computes from the members' data.
    #[error(
        "{task}: byte {byte} differs from the result computed from the members' data: a card combined \
         or transferred it wrongly"
    )]
    Combined {
        /// The operation and its members.
        task: String,
        /// The first wrong byte.
        byte: usize,
    },

    /// A host was woken during an operation that its card carries out alone.
    #[error(
        "{task}: while this node waited for its card, it received {interrupts} interrupts instead of {expected}, and \
         its card received {rung} doorbells from the host instead of none"
    )]
    Woken {
        /// The operation.
        task: String,
        /// As the device counts them.
        interrupts: u64,
        /// Interrupts that the operation requested.
        expected: u64,
        /// Doorbells, including suppressed ones.
        rung: u64,
    },

    /// A message arrived that is not what was sent.
    #[error(
        "{peer}: byte {offset} of message {number} is {found:#04x} instead of {expected:#04x}: the data was damaged in \
         transit"
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

    /// A message arrived that the run does not expect at this point.
    #[error(
        "{peer}: expected {expected}, received {found}: a message was lost, or another program uses the port"
    )]
    OutOfStep {
        /// The peer.
        peer: String,
        /// The message that was due.
        expected: String,
        /// The message that arrived.
        found: String,
    },

    /// The interrupt line of the NIC was not found.
    #[error("no interrupt line of {device} in {}: is the niclab driver bound?", .path.display())]
    NoInterruptLine {
        /// The device.
        device: String,
        /// The file that was searched.
        path: PathBuf,
    },

    /// The NIC lacks a counter that the run reads.
    #[error(
        "{} has no counter {name}: driver, device and program are from different builds; rebuild them together",
        .device.display()
    )]
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
