//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser},
};
use niclab_bench::{BenchSection, compare::DEFAULT_PROFILE, figures::PaperFigures};
use niclab_cluster::{
    arguments::{ClusterArgs, NodeExitArgs, rule_checking, seed},
    conform::case::CaseKind,
};
use niclab_images::DebugTool;
use niclab_spec::{GuestKernel, NicModel, RuleChecking};

use crate::budgets::BudgetArgs;
use crate::name::NameArgs;
use crate::{
    extcap::ExtcapArgs,
    link_faults::LinkFaultArgs,
    match_unit, protocol,
    reports::{PageArgs, ReportArgs},
};

/// A laboratory for intelligent cluster NICs: boots a virtual cluster whose NICs are Rust models, and reports what the
/// modelled hardware would have cost.
#[derive(Debug, Parser)]
#[command(
    name = "niclab",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  niclab run                            boot two nodes, measure their NICs, report, shut down
  niclab run --nodes 4 -- ./my-program  run a program of the current folder on four nodes
  niclab run --trace run.json           a timeline of every message, for ui.perfetto.dev
  niclab up && niclab shell node0       keep a cluster up and log in
  niclab doctor                         what niclab uses, what is missing, and how to get it

The first run builds QEMU's tree, kernel, driver and images into a cache (NICLAB_CACHE, or the user's cache folder);
it needs the network and some minutes. Later runs use the cache."
)]
pub struct Cli {
    /// Print more messages: once for decisions, twice for every step. RUST_LOG overrides this.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Boot a cluster, run a command on every node (or the built-in demonstration), report, and shut down.
    ///
    /// The command finds NICLAB_RANK, NICLAB_SIZE, NICLAB_NODE, NICLAB_PEERS and NICLAB_ADDRESSES in its environment
    /// (the last two list all nodes by rank, separated by commas). If the cards carry IP themselves, it finds
    /// NICLAB_NIC_ADDRESSES, too. The current folder is mounted in the guests at the same path. Exits with the first
    /// code of a command that is not 0, with 1 if a budget is broken, with 125 if niclab itself fails or a command does
    /// not end in time, and with 128 plus the signal's number if a signal ends it.
    Run(RunArgs),
    /// Boot a cluster and keep it up.
    Up(UpArgs),
    /// Show a cluster's nodes, their health and their counters.
    Inspect(InspectArgs),
    /// Run a command on a node. Standard input goes to the command.
    Exec(ExecArgs),
    /// Log in on a node.
    Shell(ShellArgs),
    /// Tools for writing a driver (docs/driver/DRIVER.md).
    #[command(subcommand)]
    Driver(DriverAction),
    /// The guest debug kernel, which checks drivers (docs/driver/DRIVER.md).
    #[command(subcommand)]
    Kernel(KernelAction),
    /// Open gdb on a node's guest, with the symbols of its driver at their addresses. The guest is stopped while gdb is
    /// attached.
    Debug(DebugArgs),
    /// Print what a node wrote to its console, or the messages of its QEMU or of the daemon.
    Logs(LogsArgs),
    /// Write a timeline of a cluster's activity, from now until Ctrl-C: every stage of every message, in model time.
    ///
    /// Open the file at ui.perfetto.dev. The file appears when it is complete (docs/use/OBSERVE.md).
    Trace(WatchArgs),
    /// Capture the frames of links for Wireshark (pcapng), from now until Ctrl-C: both directions, with the faults of
    /// each frame.
    ///
    /// tools/wireshark/niclab.lua names the fields of the models' packets (docs/use/OBSERVE.md).
    Capture(CaptureArgs),
    /// Record the messages that a cluster's NICs send, from now until Ctrl-C, for the simulator to replay.
    ///
    /// To replay the file, give it to `niclab sim` in a scenario with kind = "replay" and recording = "FILE"
    /// (docs/use/SIMULATOR.md).
    Record(WatchArgs),
    /// Offer running clusters to Wireshark as capture interfaces. Wireshark calls this (docs/use/OBSERVE.md).
    Extcap(ExtcapArgs),
    /// Set the faults of a node's link and NIC from now on, clear them, or show the faults of all links.
    ///
    /// Changes only the faults that are given. The cluster's seed decides which frames are hit; a change does not
    /// restart this random sequence (docs/use/FAULTS.md).
    Fault(FaultArgs),
    /// Shut a cluster down, and clean up after a cluster whose niclab died.
    Down(DownArgs),
    /// Print every process and file of a cluster without starting any.
    Plan(PlanArgs),
    /// Report which accelerator, QEMU, kernel and cache niclab uses and why, and what is missing.
    Doctor(DoctorArgs),
    /// Measure messages and TCP between guests next to QEMU's own network, boot times, memory, many nodes, and the
    /// device in process.
    ///
    /// Figures that are compared are measured alternately in the same boot; each ratio is of one round. Each figure has
    /// a goal and whether it was reached. Exits with 0 even if a goal is not reached, and with 1 if something could not
    /// be measured.
    Bench(BenchArgs),
    /// Show one report as tables or as a page, several side by side, and the difference of two. Fail on changes.
    ///
    /// Counts, model time and wall time are shown separately. If a file is truncated, is of another version or is no
    /// report, niclab refuses it and names the line.
    Report(ReportArgs),
    /// List platform profiles, show the numbers of one with their sources, or check one of your own.
    Profile(ProfileArgs),
    /// Reproduce a paper's figures with the models, each number next to the paper's.
    ///
    /// Each number has its origin: emergent, fitted, or from a fit. Exits with 1 if a number is not as declared.
    Figures(FiguresArgs),
    /// Compare every number that the papers print with the model's, and show its origin (docs/reference/VALIDATION.md).
    ///
    /// Exits with 1 if a number is not as declared.
    Validation(ValidationArgs),
    /// Check scenarios against their budgets, in guests, in the simulator or in both (docs/use/CI.md).
    ///
    /// A budget limits a count or a model time; both are exact on any machine. A ratio of wall times may stay
    /// undecided. Exits with 0 if no budget was broken, 1 if one was, 2 if a scenario is invalid, 3 if one could not be
    /// run.
    Check(CheckArgs),
    /// Test a driver: run a command with adversarial and faulty devices, and with all events that drivers must survive.
    ///
    /// Each case has a cluster of its own: killed programs, rebinding, unloading, reboots, each device fault. A table
    /// shows which cases passed, what detected each failure, and how to repeat it (docs/driver/CONFORM.md). Exits with
    /// 0 if all passed, 1 if one failed, 2 if the arguments are invalid, 3 if a case could not be run.
    Conform(ConformArgs),
    /// Run one workload over the cards of every model and over the Ethernet function, and compare them in one table.
    ///
    /// In guests the Ethernet function carries TCP, and each card and the function has a boot of its own. Exits with 1
    /// if one of them could not be measured, for example because a card cannot carry such messages.
    Compare(CompareArgs),
    /// Run a scenario in the simulator, or a swarm of random scenarios with faults.
    ///
    /// The same file and seed give the same report, byte for byte. Exits with 1 if a check outside of the models
    /// failed, and with 2 if the scenario is invalid.
    Sim(SimArgs),
    /// Tools for programs of the match unit.
    #[command(flatten)]
    Firmware(match_unit::Tool),
    /// Tools for protocols that are assembled from components.
    #[command(subcommand, name = niclab_stitcher::CARD)]
    Protocol(protocol::Tool),
    /// List the rules for drivers, or explain one rule with its fix (docs/reference/RULES.md).
    Rules(RulesArgs),
    /// Print the JSON Schema of the cluster file, of the report or of a platform profile.
    Schema(SchemaArgs),
    /// Keep a cluster up, as a background process. `niclab up` starts this.
    #[command(hide = true)]
    Supervise,
    /// Write the manual pages and the shell completions into a folder. `ci/release` starts this.
    #[cfg(feature = "manuals")]
    #[command(hide = true)]
    Manuals {
        /// The folder, which must exist.
        folder: PathBuf,
    },
}

/// What `driver` does.
#[derive(Debug, Subcommand)]
pub enum DriverAction {
    /// Do as `run`, and repeat at each change of the driver's source, until Ctrl-C. A change ends a run that has not
    /// finished.
    Watch(Box<RunArgs>),
    /// Build a driver without running it. Writes the module, the C header of the device's interface and
    /// `compile_commands.json`, which editors read, into a folder.
    Build(DriverBuildArgs),
}

/// Arguments of `driver build`.
#[derive(Debug, Args)]
pub struct DriverBuildArgs {
    /// The folder with the driver's source and its Makefile.
    #[arg(value_name = "FOLDER")]
    pub driver: PathBuf,
    /// The folder to write to; niclab creates it if needed.
    #[arg(short, long, value_name = "FOLDER")]
    pub output: PathBuf,
    /// The kernel to build for, as in `run`: `debug`, or the tree in which you built a kernel of your own. Default: the
    /// guests' usual kernel.
    #[arg(long, value_name = "KERNEL")]
    pub kernel: Option<PathBuf>,
    /// Package mirror; default: the one of the host's apt configuration.
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Use no network; fail if something is missing.
    #[arg(long)]
    pub offline: bool,
}

/// What `kernel` does.
#[derive(Debug, Subcommand)]
pub enum KernelAction {
    /// Build it into the cache, from Debian's source package of the guests' kernel; each set of tools is built once.
    /// `--kernel debug` uses the set that you named last.
    ///
    /// The build takes minutes to tens of minutes, all cores, and 2 GB of disk while it runs. Use `nice niclab kernel
    /// build` to leave the machine to others.
    Build(KernelBuildArgs),
}

/// Arguments of `kernel build`.
#[derive(Debug, Args)]
pub struct KernelBuildArgs {
    /// The kernel's debugging tools, separated by commas: kasan, lockdep, kmemleak, ubsan, dma-debug, kcov, gcov,
    /// memory; kcsan instead of kasan. Default: all but kcsan.
    #[arg(long, value_delimiter = ',', value_name = "TOOL", value_parser = DebugTool::named)]
    pub with: Vec<DebugTool>,
    /// Debian mirror to build from, instead of the one that apt on this machine uses.
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Use no network; fail if something is missing.
    #[arg(long)]
    pub offline: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Format of the report. The demonstration has a summary by default, and a command no report. With `json`, standard
    /// output has only the report; the commands' output goes to standard error.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub report: Option<ReportFormat>,
    /// Write the report, as JSON, to this file as well.
    #[arg(long, value_name = "FILE")]
    pub report_file: Option<PathBuf>,
    /// A page about the run.
    #[command(flatten)]
    pub page: PageArgs,
    /// Files about the run.
    #[command(flatten)]
    pub watch: RunWatchArgs,
    /// Write the executed lines of the nodes' drivers to this file, as lcov. Needs `--kernel debug`.
    #[arg(long, value_name = "FILE")]
    pub coverage: Option<PathBuf>,
    /// Whether a node may end without the others.
    #[command(flatten)]
    pub node_exit: NodeExitArgs,
    /// Limits on the run.
    #[command(flatten)]
    pub budgets: BudgetArgs,
    /// End the commands after this many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// The command to run on every node.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Files about the cluster's activity while the commands run.
#[derive(Clone, Debug, Default, Args)]
pub struct RunWatchArgs {
    /// Write a timeline of the NICs' activity during the commands to this file, for ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the frames on all links to this file, for Wireshark (pcapng).
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Record the messages of the NICs in this file, to replay them in the simulator.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

/// Arguments of `trace` and `record`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// The file, which appears when it is complete. A FIFO, a device or `-` (standard output) gets each entry at once.
    /// Default: trace.json, capture.pcapng or recording.jsonl.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// End after this many seconds (wall time).
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// End after this many messages; the file includes their effects up to the time when the last message was sent. A
    /// frame of the Ethernet function counts as a message, except in a recording.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: Option<u64>,
}

/// A duration in seconds, greater than 0.
fn seconds(text: &str) -> Result<Duration, String> {
    let duration = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.filter(|duration| !duration.is_zero()).ok_or_else(|| "give seconds, more than 0".to_owned())
}

/// Arguments of `capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// The links, by the names of their nodes. Default: all.
    #[arg(value_name = "LINK")]
    pub links: Vec<String>,
    /// Which cluster, which file and for how long.
    #[command(flatten)]
    pub watch: WatchArgs,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Scenarios (TOML; `niclab schema scenario` describes them).
    #[arg(required = true, value_name = "SCENARIO")]
    pub scenarios: Vec<PathBuf>,
    /// Write the verdicts to this file as JUnit XML.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// A page about the scenarios.
    #[command(flatten)]
    pub page: PageArgs,
    /// Run every NIC in adversarial mode with this seed: it does what the manual allows but hardware rarely does
    /// (docs/use/FAULTS.md). This may break tight budgets, but must not break messages.
    #[arg(long, alias = "unkind", value_name = "SEED", value_parser = seed, allow_negative_numbers = true)]
    pub adversarial: Option<u64>,
    /// Treat a ratio of wall times that is still undecided after all its rounds as broken.
    #[arg(long, alias = "undecided-is-broken")]
    pub fail_on_undecided: bool,
    /// Measure ratios of wall times, but never treat one as broken: for machines that others use, too.
    #[arg(long, alias = "wall-is-not-judged", conflicts_with = "fail_on_undecided")]
    pub ignore_wall_ratios: bool,
    /// Check drivers against the rules of the device programmer's manual: off, report, fail or stop. Default: as in the
    /// scenario.
    #[arg(long, value_name = "MODE", value_parser = rule_checking)]
    pub rules: Option<RuleChecking>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The kernel of the guests of all scenarios: `debug`, which `niclab kernel build` makes. If it finds a bug, the
    /// scenario fails.
    #[arg(long, value_name = "debug", value_parser = [PossibleValue::new(GuestKernel::DEBUG).alias("watching")])]
    pub kernel: Option<String>,
    /// Use no network; fail if something is missing.
    #[arg(long)]
    pub offline: bool,
}

/// Arguments of `rules`.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// The rule to explain.
    #[arg(value_name = "RULE")]
    pub rule: Option<String>,
}

/// Arguments of `conform`.
#[derive(Debug, Args)]
pub struct ConformArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Number of seeds for each of `adversarial`, `kill`, `rebind` and `combined`, or for the case of `--case`. Each
    /// seed of each case has a boot of its own (except `adversarial` with `--one-boot`). Default: 8 for `adversarial`
    /// and 2 for the others, or 1 for the case.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub from: u64,
    /// Run only this case.
    #[arg(long, value_name = "NAME", value_parser = case)]
    pub case: Option<CaseKind>,
    /// Time limit of the command, in seconds of wall time; a command that takes longer counts as hung.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
    /// Run all seeds of the adversarial device in one boot, and reload the drivers for each seed.
    #[arg(long)]
    pub one_boot: bool,
    /// Stop after the first case that fails.
    #[arg(long)]
    pub fail_fast: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The command to run on every node; it must exit with 0 if its messages passed. Default: messages over niclab's
    /// own driver.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// A case by its name.
fn case(text: &str) -> Result<CaseKind, String> {
    CaseKind::named(text).ok_or_else(|| {
        let names: Vec<String> = CaseKind::all().map(CaseKind::name).collect();
        format!("there is no case of this name; use one of {}", names.join(", "))
    })
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The messages to send.
    #[arg(value_enum, default_value_t = CompareWorkload::PingPong, value_name = "WORKLOAD")]
    pub workload: CompareWorkload,
    /// Where to run.
    #[arg(long, value_enum, default_value_t = CompareMode::Sim, value_name = "MODE")]
    pub mode: CompareMode,
    /// Payload of each message, in bytes.
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub bytes: u32,
    /// Messages of a stream, or round trips. Guests measure processor time in steps of 10 ms, so use a large number
    /// there.
    #[arg(
        long,
        default_value_t = 1000,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=10_000_000)
    )]
    pub count: u64,
    /// Interrupt the receiver at every n-th message; 0: never. The Ethernet function interrupts as usual.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub interrupt_every: u64,
    /// The platform: name of a profile, or path of a file.
    #[arg(long, default_value = DEFAULT_PROFILE, value_name = "PROFILE")]
    pub profile: String,
    /// Print JSON, versioned.
    #[arg(long)]
    pub json: bool,
    /// Use no network; fail if something is missing.
    #[arg(long)]
    pub offline: bool,
}

/// The workload of `compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareWorkload {
    /// One node sends, the other answers.
    PingPong,
    /// One node sends as fast as it can.
    Stream,
}

/// Where `compare` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareMode {
    /// In the simulator.
    Sim,
    /// In guests.
    Live,
    /// In either.
    Both,
}

/// Arguments of `sim`.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// The scenario (TOML). Its budgets are ignored.
    #[arg(value_name = "SCENARIO", required_unless_present = "swarm", conflicts_with = "swarm")]
    pub scenario: Option<PathBuf>,
    /// Run this many random configurations, first with faults, then with the faults cleared; a failure prints its seed.
    #[arg(long, value_name = "N", conflicts_with = "html")]
    pub swarm: Option<u32>,
    /// Only configurations of this NIC model.
    #[arg(long, value_name = "NAME", requires = "swarm", value_parser = PossibleValuesParser::new(NicModel::names()))]
    pub nic: Option<String>,
    /// The seed, instead of the scenario's; in a swarm, the first seed.
    #[arg(long, value_name = "S", value_parser = seed)]
    pub seed: Option<u64>,
    /// Run every NIC in adversarial mode with this seed: it does what the manual allows but hardware rarely does
    /// (docs/use/FAULTS.md).
    #[arg(long, alias = "unkind", value_name = "SEED", value_parser = seed, allow_negative_numbers = true)]
    pub adversarial: Option<u64>,
    /// Number of threads for a swarm. The output does not depend on it.
    #[arg(long, value_name = "N", requires = "swarm")]
    pub threads: Option<u32>,
    /// Format of the report.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text", conflicts_with = "swarm")]
    pub report: ReportFormat,
    /// Write the report, as JSON, to this file as well.
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    pub report_file: Option<PathBuf>,
    /// A page about the run.
    #[command(flatten)]
    pub page: PageArgs,
    /// Write a timeline of the measured part to this file, for ui.perfetto.dev (docs/use/OBSERVE.md).
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    pub trace: Option<PathBuf>,
    /// Write the frames of the measured part, on every link, to this file, for Wireshark (pcapng).
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    pub capture: Option<PathBuf>,
    /// Use no network; fail if something is missing.
    #[arg(long)]
    pub offline: bool,
}

/// Form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// At most 15 lines.
    Summary,
    /// All tables.
    Text,
    /// JSON, versioned.
    Json,
}

/// Arguments of `profile`.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ProfileCommand,
}

/// What to do with profiles.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// List the profiles that niclab includes, each with its number of fitted values.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show every number of a profile with its source.
    Show {
        /// The name of a profile, or the path of a file.
        profile: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check files for impossible values; each error has its line and fix. Exits with 1 if there is an error.
    Check {
        /// Paths of files, or names of profiles.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
}

/// Arguments of `figures`.
#[derive(Debug, Args)]
pub struct FiguresArgs {
    /// Which paper.
    #[arg(value_enum, value_name = "PAPER")]
    pub paper: PaperFigures,
    /// Draw the figures into this file, too.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Use no network, even if the program that makes the figures has to be built.
    #[arg(long)]
    pub offline: bool,
}

/// Arguments of `validation`.
#[derive(Debug, Args)]
pub struct ValidationArgs {
    /// Write the page, and tables and drawings of all papers' figures, into this folder, too.
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Use no network, even if the programs that make the figures have to be built.
    #[arg(long)]
    pub offline: bool,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The schema to print.
    #[arg(value_enum, default_value_t = SchemaOf::Cluster, value_name = "WHAT")]
    pub what: SchemaOf,
    /// Print Markdown tables of all keys instead.
    #[arg(long)]
    pub markdown: bool,
}

/// The files that have a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// The cluster file.
    Cluster,
    /// The report of a run.
    Report,
    /// A platform profile.
    Profile,
    /// A scenario of `niclab check` and `niclab sim`.
    Scenario,
}

/// Arguments of `up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Whether a node may end without the others.
    #[command(flatten)]
    pub node_exit: NodeExitArgs,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `fault`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").multiple(true).requires("node"))]
pub struct FaultArgs {
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// The node whose link and NIC change. Without a node, niclab shows all links.
    pub node: Option<String>,
    /// The link faults to change.
    #[command(flatten)]
    pub link: LinkFaultArgs,
    /// Change a fault of the NIC: KEY and VALUE as under `device_faults` in a cluster file, such as `stale=0.01` or
    /// `stale_at=[3,7]`. Can be repeated; other faults stay.
    #[arg(long, value_name = "KEY=VALUE", group = "change")]
    pub device: Vec<String>,
    /// Clear all faults of the link and of the NIC, and reconnect the link if it is cut.
    #[arg(long, group = "change", conflicts_with = "device")]
    pub heal: bool,
    /// Change nothing; show the faults and how often each occurred.
    #[arg(long, conflicts_with = "change")]
    pub show: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// Give the command a terminal.
    #[arg(short, long)]
    pub tty: bool,
    /// The node.
    pub node: String,
    /// The command.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Arguments of `shell`.
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// The node.
    pub node: String,
}

/// Arguments of `debug`.
#[derive(Debug, Args)]
pub struct DebugArgs {
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// The node.
    pub node: String,
    /// A kernel image with symbols, for the kernel that the guest runs.
    #[arg(long, value_name = "FILE")]
    pub vmlinux: Option<PathBuf>,
    /// The debugger to start instead of the gdb in PATH.
    #[arg(long, value_name = "PROGRAM")]
    pub gdb: Option<PathBuf>,
    /// More arguments for gdb, as in `-- -batch -ex bt`.
    #[arg(last = true)]
    pub arguments: Vec<String>,
}

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// The node, or `daemon`.
    pub node: String,
    /// Print the messages of the node's QEMU, instead of the guest's console.
    #[arg(long)]
    pub qemu: bool,
    /// Keep printing new messages.
    #[arg(short, long)]
    pub follow: bool,
}

/// Arguments of `down`.
#[derive(Debug, Args)]
pub struct DownArgs {
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// All clusters of this user.
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
    /// Time in seconds that a cluster may take to end before niclab kills its processes.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub within: u64,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure. Default: everything.
    #[arg(value_enum, value_name = "SECTION", conflicts_with = "only")]
    pub sections: Vec<BenchSection>,
    /// Print JSON, versioned.
    #[arg(long)]
    pub json: bool,
    /// Measure only these, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SECTION")]
    pub only: Vec<BenchSection>,
    /// Number of rounds of each comparison.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Compare with an earlier run, the output of `niclab bench --json`: both values and the ratio of each figure.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Fail if a count of the baseline, of instructions or of events, is missing or has grown by more than this
    /// percentage. Times are not compared, because they depend on the machine.
    #[arg(long, value_name = "PERCENT", requires = "baseline")]
    pub most_growth: Option<u16>,
    /// The valgrind to count instructions with. Default: the one in PATH, if there is one.
    #[arg(long, value_name = "PROGRAM")]
    pub valgrind: Option<PathBuf>,
    /// The DPDK testpmd whose vhost ports are measured next to the device's. Default: the one in PATH, if there is one.
    #[arg(long, value_name = "PROGRAM")]
    pub testpmd: Option<PathBuf>,
    /// Queue pairs of the Ethernet functions and of testpmd's ports, and virtual CPUs of each guest. Default: 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub queues: Option<u32>,
    /// Debian mirror to build from, instead of the one that apt on this machine uses.
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Use no network; fail if something is missing.
    #[arg(long)]
    pub offline: bool,
}
