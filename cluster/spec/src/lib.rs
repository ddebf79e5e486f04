//! What the launcher, the daemon and the user agree on, as plain data.
//!
//! * [`ClusterFile`] is the cluster file as the user wrote it (TOML); [`Source::resolve`] turns it into a
//!   [`Cluster`], in which every node has its values and every value is possible.
//! * [`Profile`] is a platform profile: the price of each crossing, each with its source.
//! * [`daemon`] is what the launcher tells the daemon, [`monitor`] what the daemon answers while it runs.
//! * [`watch`] is how a file about a running cluster comes from the daemon.
//! * [`report`] is what a run tells the user, live or simulated.
//! * [`workload`] is what the nodes send to whom; [`sim`] is what the launcher tells the simulator.
//! * [`scenario`] is a cluster and a workload with budgets, which `niclab check` holds them to.
//! * [`rules`] is what drivers must do, and whether anybody looks.
//! * [`pci`] holds the numbers with which QEMU must create the cluster function.
//! * [`renamed`] holds the names of the version before this one, which are still read.
//! * [`descriptors`] counts the file descriptors that a daemon needs.
//!
//! Of the project the crate imports the models, for their registry (which there are, and what a cluster file can say of
//! each), the form of recordings, and what guests make scripts from. So both sides can depend on it.

pub mod daemon;
pub mod descriptors;
pub mod monitor;
pub mod pci;
pub mod profile;
pub mod renamed;
pub mod report;
pub mod rules;
pub mod scenario;
pub mod sim;
pub mod watch;
pub mod workload;

mod address;
mod device_faults;
mod error;
mod explain;
mod file;
mod link;
mod name;
mod nic;
mod recording;
mod resolve;
mod source;

pub use address::MacAddress;
pub use device_faults::{DeviceFaultProblem, DeviceFaultRate, DeviceFaults, DeviceFaultsChange};
pub use error::{Place, Problem, SpecError};
pub use explain::explain;
pub use file::{AcceleratorChoice, BootChoice, ClusterFile, LinkEntry, NodeEntry, OnNodeExit, schema};
pub use link::{FaultError, FaultValue, Faults, FaultsChange, LinkConfig, LinkFault};
pub use name::{ClusterName, ClusterNameError};
pub use nic::{NicConfig, NicModel, WaitPolicy};
pub use niclab_model::nic::registry::{Limits, Promise, Promises, Value, Values};
pub use profile::{Fact, Forwarding, Framing, Passing, Profile};
pub use recording::RecordingError;
pub use report::Report;
pub use resolve::{Cluster, Driver, GuestKernel, MAX_BOOTED_NODES, MAX_NODES, MIN_MEMORY_MIB, Node};
pub use rules::RuleChecking;
pub use scenario::{Budget, Scenario, ScenarioFile, ScenarioMode};
pub use sim::SimConfig;
pub use source::Source;
pub use watch::{WatchRequest, WatchSubject, WatchSummary};
pub use workload::{Function, Receive, TcpTerms, Workload, WorkloadKind, WorkloadNode, WorkloadProblem};
