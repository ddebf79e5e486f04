//! Plain data that launcher, daemon, simulator and user exchange.
//!
//! * [`ClusterFile`] is the cluster file as the user wrote it (TOML). [`Source::resolve`] turns it into a [`Cluster`],
//!   in which every node has all its values and every value is valid.
//! * [`Profile`] is a platform profile: the price of each transaction, with its source.
//! * [`daemon`] is the daemon's configuration, [`monitor`] the protocol to query the running daemon.
//! * [`watch`] transfers a file about a running cluster from the daemon.
//! * [`report`] is the report of a run, live or simulated.
//! * [`workload`] is the messages that nodes send; [`sim`] is the simulator's configuration.
//! * [`scenario`] is a cluster and a workload with budgets, which `niclab check` checks.
//! * [`budget`] is a limit on a count or a model time; [`BudgetText`] is its form on the command line.
//! * [`rules`] is the rules for drivers, and whether cards check them.
//! * [`pci`] has the numbers that QEMU needs to create the cluster function.
//! * [`renamed`] has the names of the previous version, which niclab still reads.
//! * [`descriptors`] counts the file descriptors that a daemon needs.
//!
//! The crate imports only three parts of the project: the models' registry (their names and configuration keys), the
//! format of recordings, and the workloads that guests make scripts from. So both sides can depend on it.

pub mod budget;
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
mod budget_text;
mod change;
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
pub use budget::Budget;
pub use budget_text::{BudgetText, BudgetTextError, BudgetTextProblem};
pub use change::{Change, ChangeLimit, ChangeLimitError, Side};
pub use device_faults::{DeviceFaultProblem, DeviceFaultRate, DeviceFaults, DeviceFaultsChange};
pub use error::{FileLocation, Problem, SpecError};
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
pub use scenario::{Scenario, ScenarioFile, ScenarioMode};
pub use sim::SimConfig;
pub use source::Source;
pub use watch::{WatchRequest, WatchSubject, WatchSummary};
pub use workload::{Function, Receive, TcpTerms, Workload, WorkloadKind, WorkloadNode, WorkloadProblem};
