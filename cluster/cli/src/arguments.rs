//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser},
};
use niclab_bench::{BenchSection, compare::DEFAULT_PROFILE, figures::PaperFigures};
use niclab_cluster::{
    arguments::{ClusterArgs, NodeExitArgs, rule_checking, seed},
    conform::case::Kind,
};
use niclab_images::DebugTool;
use niclab_spec::{GuestKernel, NicModel, RuleChecking};

use crate::name::NameArgs;
use crate::{extcap::ExtcapArgs, link_faults::LinkFaultArgs, match_unit, protocol};

/// A laboratory for intelligent cluster NICs: boots a virtual cluster whose NICs are Rust models, and says what the
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
  niclab doctor                         what is used, what is missing, and how to get it

The first run builds QEMU's tree, kernel, driver and images into a cache (NICLAB_CACHE, else the user's cache folder);
it needs the network and some minutes. Later runs start from the cache."
)]
pub struct Cli {
    /// Say more: once for what is decided, twice for every step. RUST_LOG wins over it.
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
    /// The command finds NICLAB_RANK, NICLAB_SIZE, NICLAB_NODE, NICLAB_PEERS and NICLAB_ADDRESSES (both by rank,
    /// separated by commas) in its environment, with cards that carry IP themselves NICLAB_NIC_ADDRESSES as well, and
    /// the current folder at its own path. Exits with the first code that
    /// is not 0; with 125 where niclab itself fails, and 128 plus the signal's number where a signal ends it.
    Run(RunArgs),
    /// Boot a cluster and leave it up.
    Up(UpArgs),
    /// Show a cluster's nodes, their health and their counters.
    Inspect(InspectArgs),
    /// Run a command on a node. Standard input goes to the command.
    Exec(ExecArgs),
    /// Log in on a node.
    Shell(ShellArgs),
    /// What helps to write a driver (docs/driver/DRIVER.md).
    #[command(subcommand)]
    Driver(DriverAction),
    /// The guest debug kernel what drivers do (docs/driver/DRIVER.md).
    #[command(subcommand)]
    Kernel(KernelAction),
    /// Open gdb on a node's guest, with the symbols of its driver at their addresses. The guest stands still while gdb
    /// has it.
    Debug(DebugArgs),
    /// Print what a node wrote to its console, or the messages of its QEMU or of the daemon.
    Logs(LogsArgs),
    /// Write a timeline of what a cluster does from now on, until Ctrl-C: every stage of every message, in model time.
    ///
    /// Open the file at https://ui.perfetto.dev. It is there when it is whole (docs/use/OBSERVE.md).
    Trace(WatchArgs),
    /// Write the frames of links from now on, until Ctrl-C, for Wireshark (pcapng): both directions, with what faults
    /// did to them.
    ///
    /// tools/wireshark/niclab.lua names the fields of the models' packets (docs/use/OBSERVE.md).
    Capture(CaptureArgs),
    /// Record the messages that a cluster's NICs send from now on, until Ctrl-C, so that the simulator can send them
    /// again.
    ///
    /// A scenario with kind = "replay" and recording = "FILE" does that, by `niclab sim` (docs/use/SIMULATOR.md).
    Record(WatchArgs),
    /// Show Wireshark the clusters that are up, as capture interfaces. Wireshark calls this (docs/use/OBSERVE.md).
    Extcap(ExtcapArgs),
    /// Let something go wrong on a node's link from now on, fix it, or show what goes wrong on all links.
    ///
    /// Changes what is named and keeps the rest. The faults are drawn from the cluster's seed, frame by frame; a change
    /// restarts nothing (docs/use/FAULTS.md).
    Fault(FaultArgs),
    /// Take a cluster down, and clean up after one whose niclab died.
    Down(DownArgs),
    /// Print every process and file of a cluster, and start none.
    Plan(PlanArgs),
    /// Say which accelerator, QEMU, kernel and cache are used and why, and what is missing.
    Doctor(DoctorArgs),
    /// Measure messages and TCP between guests beside QEMU's own network, boots, memory, many nodes, the device in
    /// process.
    ///
    /// What is compared is measured in the same boot, in rounds that take turns; ratios are taken within a round. Each
    /// figure says its goal and whether it was reached. Exits with 0 also where a goal is not reached, and with 1 where
    /// something could not be measured.
    Bench(BenchArgs),
    /// Show reports: one as tables, several beside one another, and the difference of two.
    ///
    /// Counts, model time and wall time stand apart. A file that is truncated, of another version or no report is
    /// refused with its line.
    Report(ReportArgs),
    /// List platform profiles, show the numbers of one with their sources, or check one of your own.
    Profile(ProfileArgs),
    /// Make a paper's figures anew in the models, each number beside the paper's.
    ///
    /// Each says where ours is from: emergent, fitted, or from a fit. Exits with 1 where one is not as declared.
    Figures(FiguresArgs),
    /// Put every number that the papers print beside ours, with what ours is from (docs/reference/VALIDATION.md).
    ///
    /// Exits with 1 where one is not as declared.
    Validation(ValidationArgs),
    /// Hold scenarios to their budgets, in guests, in the simulator or in both (docs/use/CI.md).
    ///
    /// A budget is on counts or on model time, which are exact on any machine. A ratio of wall times may stay
    /// undecided. Exits with 0 when no budget broke, 1 when one did, 2 when a scenario is wrong, 3 when one could not
    /// be run.
    Check(CheckArgs),
    /// Put a driver to the test: run a command over devices that are adversarial and faulty, and over all that happens to
    /// drivers.
    ///
    /// Each case has a cluster of its own: killed programs, rebinding, unloading, reboots, each device fault. One table
    /// says which passed, what named a failure, and how to repeat it (docs/driver/CONFORM.md). Exits with 0 when all passed, 1
    /// when one failed, 2 when what is asked for makes no sense, 3 when a case could not be run.
    Conform(ConformArgs),
    /// Run one workload over the cards of every model and over the Ethernet function, and put them beside one another.
    ///
    /// In guests the Ethernet function carries TCP, and each carrier has a boot of its own. Exits with 1 where one
    /// could not be measured, as a card that cannot carry such messages.
    Compare(CompareArgs),
    /// Run a scenario in the simulator, or a swarm of random ones with faults.
    ///
    /// The same file and seed give the same report, byte for byte. Exits with 1 when a check outside of the models did
    /// not hold, and with 2 when the scenario is wrong.
    Sim(SimArgs),
    /// Tools for programs of the match unit.
    #[command(flatten)]
    Firmware(match_unit::Tool),
    /// Tools for protocols that are assembled from components.
    #[command(subcommand, name = niclab_stitcher::CARD)]
    Protocol(protocol::Tool),
    /// List what drivers must do, or explain one rule with its fix (docs/reference/RULES.md).
    Rules(RulesArgs),
    /// Print the JSON Schema of the cluster file, of the report or of a platform profile.
    Schema(SchemaArgs),
    /// Keep a cluster up. `niclab up` starts this.
    #[command(hide = true)]
    Supervise,
}

/// What `driver` does.
#[derive(Debug, Subcommand)]
pub enum DriverAction {
    /// Do as `run`, again at each change of the driver's source, until Ctrl-C. A run that goes on is ended first.
    Watch(Box<RunArgs>),
    /// Build a driver without running it, and write the module, the header of the contract with the device and
    /// `compile_commands.json`, which editors read, into a folder.
    Build(DriverBuildArgs),
}

/// Arguments of `driver build`.
#[derive(Debug, Args)]
pub struct DriverBuildArgs {
    /// The folder with the driver's source and its Makefile.
    #[arg(value_name = "FOLDER")]
    pub driver: PathBuf,
    /// The folder to write to, which is made if needed.
    #[arg(short, long, value_name = "FOLDER")]
    pub output: PathBuf,
    /// The kernel that it is for, as in `run`: `debug`, or the tree in which one of your own was built. Default: the
    /// guests' own.
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
    /// Build it, from Debian's source package of the kernel that guests run, into the cache, once for each set of
    /// tools. The one that was asked for last is what `--kernel debug` means.
    ///
    /// It takes minutes to tens of minutes, all cores, and 2 GB of room on disk while it lasts;
    /// `nice niclab kernel build` leaves the machine to others.
    Build(KernelBuildArgs),
}

/// Arguments of `kernel build`.
#[derive(Debug, Args)]
pub struct KernelBuildArgs {
    /// What shall watch, separated by commas: kasan, lockdep, kmemleak, ubsan, dma-debug, kcov, gcov, memory; kcsan in
    /// place of kasan. Default: all but kcsan.
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
    /// How to report. With `json`, standard output holds the report alone, and what commands print goes to standard
    /// error.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub report: Option<ReportFormat>,
    /// Write the report, as JSON, to this file as well.
    #[arg(long, value_name = "FILE")]
    pub report_file: Option<PathBuf>,
    /// Files about the run.
    #[command(flatten)]
    pub watch: RunWatchArgs,
    /// Write which lines of the nodes' drivers were carried out to this file, as lcov. Needs `--kernel debug`.
    #[arg(long, value_name = "FILE")]
    pub coverage: Option<PathBuf>,
    /// Whether a node may end without the others.
    #[command(flatten)]
    pub node_exit: NodeExitArgs,
    /// End the commands after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// The command to run on every node.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Files about what the cluster does while the commands run.
#[derive(Clone, Debug, Default, Args)]
pub struct RunWatchArgs {
    /// Write a timeline of what the commands made the NICs do to this file, for ui.perfetto.dev.
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
    /// The file. It is there when it is whole. A FIFO, a device or `-`, standard output, gets each entry as it comes.
    /// Default: trace.json, capture.pcapng or recording.jsonl.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// End after so many seconds (wall time).
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub duration: Option<Duration>,
    /// End after so many messages, with all that they had caused when the last was sent. A frame of ordinary networking
    /// is one too, but in a recording.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: Option<u64>,
}

/// A time of more than nothing, in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let duration = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.filter(|duration| !duration.is_zero()).ok_or_else(|| "give seconds, more than 0".to_owned())
}

/// Arguments of `capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// The links, named after their nodes. Default: all.
    #[arg(value_name = "LINK")]
    pub links: Vec<String>,
    /// Where and for how long.
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
    /// Have every NIC do what the manual allows and kind hardware seldom does, drawn from this seed (docs/use/FAULTS.md).
    /// Budgets of scenarios that are close may break by it; messages must not.
    #[arg(long, alias = "unkind", value_name = "SEED", value_parser = seed, allow_negative_numbers = true)]
    pub adversarial: Option<u64>,
    /// Take a ratio of wall times that is undecided after all its rounds for broken.
    #[arg(long, alias = "undecided-is-broken")]
    pub fail_on_undecided: bool,
    /// Measure ratios of wall times, but break on none: for machines that others use, too.
    #[arg(long, alias = "wall-is-not-judged", conflicts_with = "fail_on_undecided")]
    pub ignore_wall_ratios: bool,
    /// Hold drivers to the rules of the device programmer's manual: off, report, fail or stop. Default: what the
    /// scenario says.
    #[arg(long, value_name = "MODE", value_parser = rule_checking)]
    pub rules: Option<RuleChecking>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The kernel of the guests of all scenarios: `debug`, the one that `niclab kernel build` makes. What it finds
    /// breaks a scenario.
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
    /// How many seeds of `adversarial`, `kill`, `rebind` and `combined` each, or of the case that is named with `--case`.
    /// Each seed of each case has a boot of its own (of `adversarial` not with `--one-boot`). Default: 8 of `adversarial` and 2
    /// of the others, or 1 of the case.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub from: u64,
    /// Only this case.
    #[arg(long, value_name = "NAME", value_parser = case)]
    pub case: Option<Kind>,
    /// How long the command may take, in seconds of wall time, until it is a hang.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub timeout: Duration,
    /// Try the seeds of an adversarial device one after the other in one boot, with drivers that begin anew for each.
    #[arg(long)]
    pub one_boot: bool,
    /// End with the first case that failed.
    #[arg(long)]
    pub fail_fast: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The command to run on every node, which ends with 0 where its messages passed. Default: messages over niclab's
    /// own driver.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// A case by its name.
fn case(text: &str) -> Result<Kind, String> {
    Kind::named(text).ok_or_else(|| {
        let names: Vec<String> = Kind::all().map(Kind::name).collect();
        format!("no case is called so; use one of {}", names.join(", "))
    })
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// What is sent.
    #[arg(value_enum, default_value_t = CompareWorkload::PingPong, value_name = "WORKLOAD")]
    pub workload: CompareWorkload,
    /// Where it runs.
    #[arg(long, value_enum, default_value_t = CompareMode::Sim, value_name = "MODE")]
    pub mode: CompareMode,
    /// Payload of a message.
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub bytes: u32,
    /// Messages of a stream, or round trips. Guests count their processors' time in steps of 10 ms: many make it exact.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub count: u64,
    /// Have each n-th message interrupt its receiver; 0: none does. The Ethernet function interrupts as it always does.
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

/// What `compare` sends.
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
    /// The scenario (TOML). Its budgets are not looked at.
    #[arg(value_name = "SCENARIO", required_unless_present = "swarm", conflicts_with = "swarm")]
    pub scenario: Option<PathBuf>,
    /// Run so many random configurations, first with faults, then healed; a failure prints its seed.
    #[arg(long, value_name = "N")]
    pub swarm: Option<u32>,
    /// Only configurations of this NIC model.
    #[arg(long, value_name = "NAME", requires = "swarm", value_parser = PossibleValuesParser::new(NicModel::names()))]
    pub nic: Option<String>,
    /// The seed, instead of the scenario's; the first one of a swarm.
    #[arg(long, value_name = "S", value_parser = seed)]
    pub seed: Option<u64>,
    /// Have every NIC do what the manual allows and kind hardware seldom does, drawn from this seed (docs/use/FAULTS.md).
    #[arg(long, alias = "unkind", value_name = "SEED", value_parser = seed, allow_negative_numbers = true)]
    pub adversarial: Option<u64>,
    /// Threads over which a swarm is spread. What is printed does not depend on it.
    #[arg(long, value_name = "N", requires = "swarm")]
    pub threads: Option<u32>,
    /// How to report.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text", conflicts_with = "swarm")]
    pub report: ReportFormat,
    /// Write the report, as JSON, to this file as well.
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    pub report_file: Option<PathBuf>,
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
    /// Tables.
    Text,
    /// JSON, versioned.
    Json,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Reports, as `niclab run --report json` or `niclab sim` writes them.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Compare each node, not only the sums over all nodes.
    #[arg(long)]
    pub per_node: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
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
    /// The profiles that come with niclab, each with how many of its numbers are fitted.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Every number of a profile with its source.
    Show {
        /// The name of a profile, or the path of a file.
        profile: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Say of each file what is impossible in it, where, and how to fix it. Exits with 1 if anything is.
    Check {
        /// Paths of files, or names of profiles.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
}

/// Arguments of `figures`.
#[derive(Debug, Args)]
pub struct FiguresArgs {
    /// Whose.
    #[arg(value_enum, value_name = "PAPER")]
    pub paper: PaperFigures,
    /// Draw them into this file as well.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Use no network when the program that makes them has to be built.
    #[arg(long)]
    pub offline: bool,
}

/// Arguments of `validation`.
#[derive(Debug, Args)]
pub struct ValidationArgs {
    /// Write the page, and tables and drawings of all papers' figures, into this folder as well.
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Use no network when the programs that make them have to be built.
    #[arg(long)]
    pub offline: bool,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Of what.
    #[arg(value_enum, default_value_t = SchemaOf::Cluster, value_name = "WHAT")]
    pub what: SchemaOf,
    /// Print tables of all keys as Markdown instead.
    #[arg(long)]
    pub markdown: bool,
}

/// What has a schema.
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
    /// The node whose link it is. Without one, all links are shown.
    pub node: Option<String>,
    /// The faults of the link that are to change.
    #[command(flatten)]
    pub link: LinkFaultArgs,
    /// Change a fault of the NIC itself: KEY and VALUE as below `device_faults` in a cluster file, such as `stale=0.01`
    /// or `stale_at=[3,7]`. Can be given more than once; what is not named stays.
    #[arg(long, value_name = "KEY=VALUE", group = "change")]
    pub device: Vec<String>,
    /// Nothing goes wrong any more, neither on the link nor in the NIC, and the link is not cut.
    #[arg(long, group = "change", conflicts_with = "device")]
    pub heal: bool,
    /// Change nothing, and show what goes wrong and what it did so far.
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
    /// A kernel image with symbols, of the kernel that the guest runs.
    #[arg(long, value_name = "FILE")]
    pub vmlinux: Option<PathBuf>,
    /// Start this debugger instead of the gdb in PATH.
    #[arg(long, value_name = "PROGRAM")]
    pub gdb: Option<PathBuf>,
    /// Further arguments of gdb's, as in `-- -batch -ex bt`.
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
    /// The messages of the node's QEMU, instead of the guest's console.
    #[arg(long)]
    pub qemu: bool,
    /// Go on printing what comes.
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
    /// How long a cluster may take to end, in seconds, before what keeps it is killed.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
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
    /// What to measure; everything, where nothing is named.
    #[arg(value_enum, value_name = "SECTION", conflicts_with = "only")]
    pub sections: Vec<BenchSection>,
    /// Print JSON, versioned.
    #[arg(long)]
    pub json: bool,
    /// Measure only these, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SECTION")]
    pub only: Vec<BenchSection>,
    /// How often each comparison is repeated.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Put an earlier run beside this one, and the ratio of each figure: what `niclab bench --json` printed.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Fail where a count of that run, of instructions or of events, has grown by more than this many per cent, or is
    /// gone. Times are not judged: they are of a machine.
    #[arg(long, value_name = "PERCENT", requires = "baseline")]
    pub most_growth: Option<u16>,
    /// Count instructions by this valgrind. Default: the one in PATH, if there is one.
    #[arg(long, value_name = "PROGRAM")]
    pub valgrind: Option<PathBuf>,
    /// Measure the vhost ports of this DPDK testpmd beside the device's. Default: the one in PATH, if there is one.
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
