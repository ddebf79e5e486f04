//! The report of a run, live or simulated: counts, the model time of the modelled hardware, and the wall time of the
//! host.
//!
//! It never mixes these three kinds of numbers. Counts are exact integers. Values under `model` or with `model_` in
//! their name are model time; values under `wall` or with `wall_` are wall time. Each name ends in its unit. The report
//! of a simulation has no wall time, so the same file and seed give the same bytes.
//!
//! Within one [`REPORT_VERSION`] no key is removed, and no key changes its meaning, type or unit. Keys may be added; a
//! reader skips unknown keys.

mod read;

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::{NicModel, Workload};

/// The version of [`Report`] that this build writes and reads.
pub const REPORT_VERSION: u32 = 2;

/// One run: from the start of its commands or its workload to their end, without the boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "niclab report")]
pub struct Report {
    /// The version of the report's format: 2.
    pub version: u32,
    /// The version of the niclab that wrote the report.
    pub niclab_version: String,
    /// Whether the run was live or simulated.
    pub mode: Mode,
    /// The cluster's name.
    pub cluster: String,
    /// The seed of all random decisions.
    pub seed: u64,
    /// The platform profile, which has all prices.
    pub profile: String,
    /// The NIC model of each node, by rank; one entry if all are equal.
    pub nic: Vec<String>,
    /// How QEMU executed the guests' instructions. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// QEMU's version. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_version: Option<String>,
    /// Release of the guest kernel. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_release: Option<String>,
    /// The messages that the nodes sent, if niclab knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// The exit code of the run: the first code of a command that is not 0. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// Wall time of the host. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<WallFigures>,
    /// Model time of the modelled hardware.
    pub model: ModelFigures,
    /// The nodes, by rank.
    pub nodes: Vec<NodeFigures>,
    /// Links and switch.
    pub fabric: FabricFigures,
    /// All transactions of the cluster, by kind: exactly the sum of the nodes' ledgers and the fabric's.
    pub total: Vec<LedgerEntry>,
    /// The checks outside of the models.
    pub checks: Vec<Checked>,
}

/// Whether a run was live or simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// QEMU guests and the daemon.
    Live,
    /// The simulator.
    #[default]
    Sim,
}

impl Mode {
    /// The name in the report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Sim => "sim",
        }
    }
}

/// How QEMU executed the guests' instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Accelerator {
    /// `kvm` or `tcg`.
    pub name: String,
    /// Why this one was used.
    pub reason: String,
}

/// Wall time of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WallFigures {
    /// From the start of the first process until all nodes are healthy.
    pub boot_ns: u64,
    /// From the start of the commands to the end of the last one.
    pub commands_ns: u64,
    /// Results of `niclab-perf` in the guests, in the order of ranks and of its own output. Empty for other commands.
    pub results: Vec<WallResult>,
    /// Processor time of the guests during the commands and while the counters were read (some milliseconds), by rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<GuestTime>,
}

/// Time of all processors of a guest together, as its kernel counts it in `/proc/stat`: in steps of 10 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestTime {
    /// Host name.
    pub node: String,
    /// In programs, including programs that poll.
    pub user_ns: u64,
    /// In the kernel, on behalf of programs.
    pub system_ns: u64,
    /// In interrupts and softirqs.
    pub interrupts_ns: u64,
    /// Idle.
    pub idle_ns: u64,
}

impl GuestTime {
    /// All time that was not idle.
    #[must_use]
    pub const fn busy_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns).saturating_add(self.interrupts_ns)
    }
}

/// One benchmark with one message size, by a guest's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WallResult {
    /// The node that measured.
    pub node: String,
    /// `pingpong`, `stream` or `rate`.
    pub benchmark: String,
    /// The transport of the messages: `tcp`, `udp`, `mpi`, or the name of the card's own transport.
    pub transport: String,
    /// Payload of a message.
    pub payload_bytes: u64,
    /// Measured messages, in each direction.
    pub messages: u64,
    /// Time of all messages.
    pub elapsed_ns: u64,
    /// Messages per second, both directions together, rounded down.
    pub messages_per_s: u64,
    /// Payload per second, both directions together, rounded down.
    pub payload_bytes_per_s: u64,
    /// Round trips (request and answer), if the benchmark has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<WallLatency>,
    /// Over UDP: number of datagrams of `messages` that were lost. The rates count only the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_datagrams: Option<u64>,
}

/// The distribution of a wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WallLatency {
    /// Shortest.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// Model time of the modelled hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFigures {
    /// From the start of the run to its latest event.
    pub time_ps: u64,
    /// Whether the model time is exact. A live run whose senders race is an estimate.
    pub is_exact: bool,
    /// The reason for an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_estimate: Option<String>,
    /// Latency of messages, from the start of the sending host's software to the end of the receiving host's.
    pub latency: Histogram,
    /// Payload received by programs, per second of model time, rounded down.
    pub bandwidth_bytes_per_s: u64,
    /// Messages received by programs, per second of model time, rounded down.
    pub messages_per_s: u64,
}

/// Summary of a histogram, in model time. Quantiles are at most 1 % above the true value and never below it; count,
/// minimum, maximum and sum are exact. All are 0 if nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// Number of values.
    pub count: u64,
    /// Smallest.
    pub min_ps: u64,
    /// Median.
    pub p50_ps: u64,
    /// 90th percentile.
    pub p90_ps: u64,
    /// 99th percentile.
    pub p99_ps: u64,
    /// 99.9th percentile.
    pub p999_ps: u64,
    /// Largest.
    pub max_ps: u64,
    /// Sum of all.
    pub sum_ps: u64,
}

/// The figures of one node. In a map of names to counts, a missing name means 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFigures {
    /// Host name.
    pub name: String,
    /// The command's exit code; missing if the command did not end. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// How the command failed (its exit code or signal, and the kernel's message about it), or why it was not started.
    /// Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// If the command failed: the guest's last console lines during the command, at most 10. Live only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub console: Vec<String>,
    /// If the command failed: the last lines that it wrote to standard output and standard error, at most 10. Live
    /// only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
    /// Messages that the host sent with the modelled NIC.
    pub messages_sent: u64,
    /// Messages that the modelled NIC wrote into the host's memory.
    pub messages_received: u64,
    /// Payload of the sent messages, including tags.
    pub bytes_sent: u64,
    /// Payload of the received messages, including tags.
    pub bytes_received: u64,
    /// Frames of the Ethernet function, as the host sends and receives them.
    pub ethernet: TrafficStats,
    /// Frames of the cluster function, including flow control, as the host sends and receives them.
    pub cluster: TrafficStats,
    /// Number of doorbells that the host rang.
    pub doorbells: u64,
    /// Messages without a doorbell, because the NIC was polling.
    pub spared_doorbells: u64,
    /// Number of polls of this node by the daemon. They cost only wall time.
    pub polls: u64,
    /// Frames that this node's NIC sent and that the daemon delivered on the fast path. Of `cluster.sent_frames`:
    /// `batched` frames went from page to memory in one pass, one or several at a time, without being encoded;
    /// `borrowed` frames had data that stayed in the sender's memory until it was copied once. Of
    /// `ethernet.sent_frames`: `ethernet_batched` equal frames were priced together. The fast path gives the same
    /// counts and model time in less wall time. Live only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shortcuts: BTreeMap<String, u64>,
    /// Interrupts that the device raised, by cause. Causes of the Ethernet function begin with `ethernet_`.
    pub interrupts: BTreeMap<String, u64>,
    /// Events without an interrupt, because the driver had suppressed it.
    pub suppressed_interrupts: u64,
    /// Events that the NIC merged into an earlier pending event, because the driver had left no event buffer. Live
    /// only.
    #[serde(default, skip_serializing_if = "crate::workload::is_zero")]
    pub events_merged: u64,
    /// Control requests of the driver that the NIC refused. Live only.
    #[serde(default, skip_serializing_if = "crate::workload::is_zero")]
    pub control_refused: u64,
    /// Events that are still pending, because the event queue has no buffer of the driver. Live only.
    #[serde(default, skip_serializing_if = "crate::workload::is_zero")]
    pub events_waiting: u64,
    /// The modelled NIC's ports with counts other than 0; each port has a page of its own.
    #[serde(default)]
    pub ports: Vec<PortFigures>,
    /// Increase of the guest's `/proc/interrupts` for this NIC during the run: `cluster` and `ethernet`. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_interrupts: Option<BTreeMap<String, u64>>,
    /// Counts of this NIC's model only, by name; docs/driver/DEVICE.md describes each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nic_counts: BTreeMap<String, u64>,
    /// Forbidden operations of the guest, by name.
    pub violations: BTreeMap<String, u64>,
    /// Frames on this node's link that the fabric lost, duplicated, …, by name.
    pub link_events: BTreeMap<String, u64>,
    /// Faults injected into this node's NIC (`device_faults` of the cluster file), by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub device_faults: BTreeMap<String, u64>,
    /// The last of these faults, at most 64, earliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_fault_log: Vec<DeviceFault>,
    /// Adversarial behaviour of this node's NIC (`adversarial` of the cluster file), by kind: what the manual allows
    /// but hardware rarely does.
    #[serde(default, alias = "unkind", skip_serializing_if = "BTreeMap::is_empty")]
    pub adversarial: BTreeMap<String, u64>,
    /// The seed of the adversarial mode at the end of the run; missing if the NIC is not adversarial.
    #[serde(default, alias = "unkind_seed", skip_serializing_if = "Option::is_none")]
    pub adversarial_seed: Option<u64>,
    /// How often the NIC got another seed during the run (`set-adversarial-seed` of the daemon's monitor). If it is n,
    /// `adversarial` counts the behaviour of n + 1 seeds, and `adversarial_seed` is the last. Live only.
    #[serde(default, alias = "unkind_reseeds", skip_serializing_if = "crate::workload::is_zero")]
    pub adversarial_reseeds: u64,
    /// Bugs that the guest's debug kernel found (docs/driver/DRIVER.md). A run with any of them fails. Live only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_findings: Vec<KernelFinding>,
    /// The debugging tools that were active in the guest's kernel at the end of the run. Other tools could find
    /// nothing. Live only.
    #[serde(default, alias = "kernel_watchers", skip_serializing_if = "Vec::is_empty")]
    pub kernel_debug_tools: Vec<String>,
    /// Number of rules of the device programmer's manual that the node's driver and programs were checked against; 0 if
    /// `rules` is off. Live only.
    #[serde(default, skip_serializing_if = "crate::workload::is_zero")]
    pub rules_checked: u64,
    /// If cards check the rules: broken rules of the device programmer's manual, by name (docs/reference/RULES.md).
    /// Counted since the daemon started, so they include the loading of the driver. Live only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub broken_rules: BTreeMap<String, u64>,
    /// The last broken rules, at most 64, earliest first; of one rule the first 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken_rule_log: Vec<BrokenRule>,
    /// How often wall time decided the order of this node's operations, so that another run of the same programs may
    /// differ. 0 in a simulation.
    pub unordered: u64,
    /// Model time of this node's clock at the end.
    pub model_time_ps: u64,
    /// All transactions of the modelled NIC and its host, by kind.
    pub ledger: Vec<LedgerEntry>,
    /// All transactions of the Ethernet function and its host, by kind, priced as a conventional NIC.
    pub ethernet_ledger: Vec<LedgerEntry>,
    /// Peer devices on the node's bus that are bus masters, if the NIC's model has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peripherals: Vec<PeripheralFigures>,
    /// Messages that this node received through the modelled NIC; see `latency` of ModelFigures.
    pub model_latency: Histogram,
    /// Frames that this node received through the Ethernet function; see `latency` of ModelFigures.
    pub ethernet_model_latency: Histogram,
}

/// A bug that a guest's kernel found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelFinding {
    /// `kasan`, `kcsan`, `ubsan`, `lockdep`, `atomic-sleep`, `kmemleak`, `dma-debug`, `debug-objects`, `list`,
    /// `refcount`, `slub`, `page`, `warning`, `bug`, `oops`; `not-checking` if a tool was off.
    pub kind: String,
    /// The first line of the kernel's message.
    pub title: String,
    /// How often it was found at the same place.
    pub count: u64,
    /// The innermost function of the driver in the call trace, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The function's file, with the user's path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The whole message of the kernel, without time stamps.
    pub text: String,
}

/// A peer device on the node's bus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeripheralFigures {
    /// The device's name. If a node has several devices of one name, they keep their order.
    pub name: String,
    /// All transactions that the device began, by kind.
    pub ledger: Vec<LedgerEntry>,
}

/// A fault that was injected into a NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceFault {
    /// Number of this fault among all faults of the NIC since it was made, from 1.
    pub number: u64,
    /// The fault's name, as in the cluster file.
    pub fault: String,
    /// The opportunity at which it occurred, from 1. In the fault's `_at` list, this number repeats it.
    pub opportunity: u64,
    /// Model time at which the effect would have been visible without the fault.
    pub model_time_ps: u64,
    /// Rank of the node whose message the fault was applied to; missing if no message caused the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_from: Option<u16>,
    /// Number of that message among the messages of its node, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_number: Option<u64>,
}

/// A broken rule of the device programmer's manual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokenRule {
    /// Number of this break among all of this node since the daemon started, from 1.
    pub number: u64,
    /// The rule's name.
    pub rule: String,
    /// Chapter of the manual.
    pub section: u8,
    /// The port whose page or memory is concerned; missing if no port is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// What the card observed.
    pub seen: String,
    /// The host's clock, in model time.
    pub model_time_ps: u64,
    /// Wall time since the daemon started.
    pub wall_since_start_ns: u64,
    /// The node's last eight operations before, earliest first.
    pub operations: Vec<String>,
    /// Position of the guest's processors when the launcher learned of the break, with the guest stopped or not:
    /// function, file and line of its own driver, as exactly as possible. Only for the first break of a rule by a node,
    /// if QEMU could report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_at: Option<String>,
}

/// One port of the modelled NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortFigures {
    /// The port's number, which is also the number of its page.
    pub port: u32,
    /// Messages posted in its page.
    pub launches: u64,
    /// Interrupts raised for it, by cause.
    pub interrupts: BTreeMap<String, u64>,
}

/// Frames and bytes of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficStats {
    /// Frames from the guest.
    pub sent_frames: u64,
    /// Bytes of `sent_frames`, headers included.
    pub sent_bytes: u64,
    /// Frames to the guest.
    pub received_frames: u64,
    /// Bytes of `received_frames`, headers included.
    pub received_bytes: u64,
    /// Frames to the guest that were dropped for lack of space.
    pub dropped_frames: u64,
}

/// Links and switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FabricFigures {
    /// Frames that nodes sent into the switch.
    pub frames_in: u64,
    /// Bytes of `frames_in`, headers included.
    pub bytes_in: u64,
    /// Frames that the switch sent to nodes; a frame to all nodes counts once for each.
    pub frames_out: u64,
    /// Bytes of `frames_out`, headers included.
    pub bytes_out: u64,
    /// All transactions, by kind.
    pub ledger: Vec<LedgerEntry>,
}

/// All transactions of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerEntry {
    /// The kind, as in `pio_write` or `dma_write`.
    #[serde(rename = "crossing")]
    pub transaction: String,
    /// Number of transactions; a transfer of several bursts counts once for each burst.
    pub count: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Their price in model time: occupancy and latency.
    pub model_price_ps: u64,
    /// Model time that they waited for a busy resource. Not part of the price.
    #[serde(default)]
    pub model_waited_ps: u64,
}

/// A check outside of the models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// The check's name, such as `nothing-lost`.
    pub name: String,
    /// Whether the check passed.
    pub held: bool,
    /// What was checked; if it failed: where, expected and found.
    pub detail: String,
}

impl Report {
    /// Sets [`Self::total`] to the sum of all nodes' ledgers and the fabric's.
    pub fn add_up(&mut self) {
        self.total = sum_of(parts(&self.nodes, &self.fabric));
    }

    /// The report as JSON, with a newline at the end. The same report gives the same bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        // All keys are strings and all numbers are integers, so serialization cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

impl ModelFigures {
    /// Sets both rates: for `messages` messages with `bytes` of payload in `span_ps` of model time.
    pub fn set_rates(&mut self, messages: u64, bytes: u64, span_ps: u64) {
        let per_second = |amount: u64| {
            let scaled = u128::from(amount) * 1_000_000_000_000;
            scaled.checked_div(u128::from(span_ps)).map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
        };
        self.messages_per_s = per_second(messages);
        self.bandwidth_bytes_per_s = per_second(bytes);
    }
}

/// Why the model time of a live run of these nodes is an estimate; `None` if it is exact. docs/design/SPECIFICATION.md,
/// "Two clocks", lists the causes.
#[must_use]
pub fn why_estimate(nodes: &[NodeFigures]) -> Option<String> {
    let unordered: Vec<String> = nodes
        .iter()
        .filter(|node| node.unordered > 0)
        .map(|node| format!("{} on {}", node.unordered, node.name))
        .collect();
    if !unordered.is_empty() {
        let places = unordered.join(", ");
        return Some(format!("wall time decided the order of operations ({places})"));
    }
    let frames = nodes.iter().fold(0_u64, |sum, node| sum.wrapping_add(node.ethernet.sent_frames));
    if frames > 0 {
        return Some(format!("{frames} Ethernet frames shared the network at times that wall time decided"));
    }
    // Earlier frames cause doorbells and interrupts, which share hosts and buses with the messages.
    let transactions = nodes.iter().flat_map(|node| &node.ethernet_ledger);
    let transactions = transactions.fold(0_u64, |sum, entry| sum.wrapping_add(entry.count));
    if transactions > 0 {
        return Some(format!(
            "{transactions} transactions of Ethernet functions, at times that wall time decided"
        ));
    }
    let faults = nodes.iter().flat_map(|node| node.device_faults.values());
    let faults = faults.fold(0_u64, |sum, count| sum.wrapping_add(*count));
    if faults > 0 {
        return Some(format!(
            "{faults} device faults, and wall time decided when programs recovered from them"
        ));
    }
    None
}

impl NodeFigures {
    /// A node without any activity.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// All ledgers of the node, each with its name in tables.
    pub fn ledgers(&self) -> impl Iterator<Item = (String, &[LedgerEntry])> {
        let functions =
            [(self.name.clone(), &*self.ledger), (format!("{} Ethernet", self.name), &*self.ethernet_ledger)];
        functions.into_iter().chain(self.peripheral_ledgers())
    }

    /// The ledgers of the node's peripherals.
    pub fn peripheral_ledgers(&self) -> impl Iterator<Item = (String, &[LedgerEntry])> {
        self.peripherals.iter().map(|card| (format!("{} {}", self.name, card.name), &*card.ledger))
    }
}

/// All entries of all ledgers of these nodes and links.
pub fn parts<'a>(
    nodes: &'a [NodeFigures],
    fabric: &'a FabricFigures,
) -> impl Iterator<Item = &'a LedgerEntry> {
    nodes.iter().flat_map(NodeFigures::ledgers).flat_map(|(_, ledger)| ledger).chain(&fabric.ledger)
}

/// The sum of ledgers, kind by kind, sorted by the names of the kinds. It wraps as the devices' counters do, so a sum
/// equals the sum of its parts for all values.
#[must_use]
pub fn sum_of<'a>(entries: impl IntoIterator<Item = &'a LedgerEntry>) -> Vec<LedgerEntry> {
    let mut sums: BTreeMap<&str, LedgerEntry> = BTreeMap::new();
    for entry in entries {
        let sum = sums.entry(&entry.transaction).or_default();
        sum.count = sum.count.wrapping_add(entry.count);
        sum.bytes = sum.bytes.wrapping_add(entry.bytes);
        sum.model_price_ps = sum.model_price_ps.wrapping_add(entry.model_price_ps);
        sum.model_waited_ps = sum.model_waited_ps.wrapping_add(entry.model_waited_ps);
    }
    sums.into_iter().map(|(name, sum)| LedgerEntry { transaction: name.to_owned(), ..sum }).collect()
}

/// The names of NIC models for [`Report::nic`]: one if all nodes have the same model.
#[must_use]
pub fn nic_names(models: impl IntoIterator<Item = NicModel>) -> Vec<String> {
    let mut names: Vec<String> = models.into_iter().map(|model| model.name.to_owned()).collect();
    if names.windows(2).all(|pair| pair[0] == pair[1]) {
        names.truncate(1);
    }
    names
}

/// The JSON Schema of the report.
#[must_use]
pub fn report_schema() -> Schema {
    schema_for!(Report)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::WorkloadKind;

    fn entry(
        transaction: &str,
        count: u64,
        bytes: u64,
        model_price_ps: u64,
        model_waited_ps: u64,
    ) -> LedgerEntry {
        LedgerEntry { transaction: transaction.into(), count, bytes, model_price_ps, model_waited_ps }
    }

    /// A report with values in every part.
    pub(crate) fn sample() -> Report {
        let node = NodeFigures {
            messages_sent: 5,
            doorbells: 11,
            interrupts: [("message".to_owned(), 2)].into(),
            guest_interrupts: Some([("cluster".to_owned(), 2)].into()),
            ledger: vec![entry("pio_write", 3, 24, 1_500_000, 7), entry("dma_write", 1, 8, 1, 0)],
            ethernet_ledger: vec![entry("dma_write", 2, 1500, 9, 1)],
            peripherals: vec![PeripheralFigures {
                name: "io-card".into(),
                ledger: vec![entry("device_to_device", 1, 64, 2, 0)],
            }],
            model_time_ps: 1_600_000,
            ..NodeFigures::new("node0")
        };
        let fabric =
            FabricFigures { ledger: vec![entry("serialization", 3, 99, 5, 0)], ..FabricFigures::default() };
        let mut report = Report {
            version: REPORT_VERSION,
            niclab_version: "0.0.1".into(),
            mode: Mode::Live,
            cluster: "c".into(),
            seed: 1,
            profile: "p".into(),
            nic: nic_names([NicModel::default(), NicModel::default()]),
            accelerator: Some(Accelerator { name: "tcg".into(), reason: "no \"KVM\"\n".into() }),
            qemu_version: Some("11.1.3".into()),
            kernel_release: Some("6.12".into()),
            workload: Some(Workload::new(WorkloadKind::PingPong)),
            exit_code: Some(0),
            wall: Some(WallFigures::default()),
            model: ModelFigures { time_ps: 1_600_000, is_exact: true, ..ModelFigures::default() },
            nodes: vec![node],
            fabric,
            total: Vec::new(),
            checks: vec![Checked { name: "nothing-lost".into(), held: true, detail: "5 messages".into() }],
        };
        report.add_up();
        report
    }

    #[test]
    fn total_has_every_kind_once_and_sorted() {
        let total = sample().total;
        assert_eq!(
            total,
            [
                entry("device_to_device", 1, 64, 2, 0),
                entry("dma_write", 3, 1508, 10, 1),
                entry("pio_write", 3, 24, 1_500_000, 7),
                entry("serialization", 3, 99, 5, 0)
            ]
        );
    }

    #[test]
    fn simulated_report_has_no_values_of_the_host() {
        let report = Report {
            mode: Mode::Sim,
            accelerator: None,
            qemu_version: None,
            kernel_release: None,
            exit_code: None,
            wall: None,
            ..sample()
        };
        let text = report.to_json();
        for key in ["wall", "qemu", "kernel", "accelerator", "exit_code"] {
            assert!(!text.contains(key), "{key}: {text}");
        }
        assert_eq!(Report::from_json("r", &text).unwrap(), report);
    }

    #[test]
    fn rates_are_rounded_down_and_need_time() {
        let mut model = ModelFigures::default();
        model.set_rates(10, 999, 3_000_000_000_000);
        assert_eq!((model.messages_per_s, model.bandwidth_bytes_per_s), (3, 333));
        model.set_rates(10, 999, 0);
        assert_eq!((model.messages_per_s, model.bandwidth_bytes_per_s), (0, 0));
        model.set_rates(u64::MAX, 1, 1);
        assert_eq!(model.messages_per_s, u64::MAX);
    }

    fn entries() -> impl Strategy<Value = Vec<LedgerEntry>> {
        let kind = prop::sample::select(vec!["pio_write", "doorbell", "dma_write", "interrupt"]);
        let entry = (kind, any::<[u64; 4]>())
            .prop_map(|(kind, [count, bytes, price, waited])| entry(kind, count, bytes, price, waited));
        prop::collection::vec(entry, 0..6)
    }

    proptest! {
        #[test]
        fn the_total_is_the_sum_of_nodes_and_fabric(
            nodes in prop::collection::vec((entries(), entries(), prop::collection::vec(entries(), 0..3)), 0..5),
            fabric in entries(),
        ) {
            let mut report = sample();
            report.nodes = nodes
                .iter()
                .map(|(ledger, ethernet, peripherals)| NodeFigures {
                    ledger: ledger.clone(),
                    ethernet_ledger: ethernet.clone(),
                    peripherals: peripherals
                        .iter()
                        .map(|ledger| PeripheralFigures { name: "p".into(), ledger: ledger.clone() })
                        .collect(),
                    ..NodeFigures::new("n")
                })
                .collect();
            report.fabric.ledger = fabric.clone();
            report.add_up();
            let of_nodes = nodes.iter().flat_map(|(a, b, more)| a.iter().chain(b).chain(more.iter().flatten()));
            let all: Vec<&LedgerEntry> = of_nodes.chain(&fabric).collect();
            let sum = |of: fn(&LedgerEntry) -> u64, kind: &str| {
                let parts = all.iter().filter(|entry| entry.transaction == kind);
                parts.fold(0_u64, |sum, entry| sum.wrapping_add(of(entry)))
            };
            for total in &report.total {
                prop_assert_eq!(total.count, sum(|e| e.count, &total.transaction));
                prop_assert_eq!(total.bytes, sum(|e| e.bytes, &total.transaction));
                prop_assert_eq!(total.model_price_ps, sum(|e| e.model_price_ps, &total.transaction));
                prop_assert_eq!(total.model_waited_ps, sum(|e| e.model_waited_ps, &total.transaction));
            }
            prop_assert!(all.iter().all(|entry| report.total.iter().any(|t| t.transaction == entry.transaction)));
            prop_assert_eq!(Report::from_json("r", &report.to_json()).unwrap(), report);
        }
    }
}
