//! The report of a run, live or simulated: what was counted, what the modelled hardware would have cost, and what the
//! host took.
//!
//! Three kinds of numbers, never mixed. Counts are exact integers. Whatever stands under `model`, or has `model_` in
//! its name, is of model time; whatever stands under `wall` is of wall time. The unit is the last part of a name.
//! A report of a simulation holds no wall time, so that the same file and seed give the same bytes.
//!
//! The promise: within one [`REPORT_VERSION`] no key changes its meaning, its type or its unit, and none goes away.
//! Keys may be added; a reader skips those that it does not know.

mod read;

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::{NicModel, Workload};

/// The version of [`Report`] that this build writes and reads.
pub const REPORT_VERSION: u32 = 2;

/// One run: what happened from the start of its commands or its workload to their end. Booting is not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "niclab report")]
pub struct Report {
    /// The version of the report's form: 2.
    pub version: u32,
    /// The niclab that wrote it.
    pub niclab_version: String,
    /// Whether guests ran, or the simulator.
    pub mode: Mode,
    /// The cluster's name.
    pub cluster: String,
    /// The seed of every random choice.
    pub seed: u64,
    /// The platform profile, which names every price.
    pub profile: String,
    /// The NIC model of each node, by rank; one entry where all have the same.
    pub nic: Vec<String>,
    /// How the guests' instructions were executed. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// QEMU's version. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu_version: Option<String>,
    /// Release of the guest kernel. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_release: Option<String>,
    /// What the nodes sent to whom, where niclab knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// The code with which the run ended: the first command's code that is not 0. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// What the host took. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<WallFigures>,
    /// What the modelled hardware would have taken.
    pub model: ModelFigures,
    /// The nodes, by rank.
    pub nodes: Vec<NodeFigures>,
    /// Links and switch.
    pub fabric: FabricFigures,
    /// Every crossing of the cluster, by kind: exactly the sum of the nodes' ledgers and the fabric's.
    pub total: Vec<LedgerEntry>,
    /// What was checked outside of the models.
    pub checks: Vec<Checked>,
}

/// What carried the run.
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

/// How the guests' instructions were executed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Accelerator {
    /// `kvm` or `tcg`.
    pub name: String,
    /// Why that one.
    pub reason: String,
}

/// Wall time: what the host took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WallFigures {
    /// From the first process to all nodes healthy.
    pub boot_ns: u64,
    /// From the start of the commands to the end of the last one.
    pub commands_ns: u64,
    /// What `niclab-perf` measured in the guests, in the order of ranks and of its own output. Empty for other
    /// commands.
    pub results: Vec<WallResult>,
    /// What the guests' processors did meanwhile, and while the counters were read, which is some milliseconds; by
    /// rank.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<GuestTime>,
}

/// Time of a guest's processors, all together, as its own kernel counts it in `/proc/stat`: in steps of 10 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestTime {
    /// Host name.
    pub node: String,
    /// In programs. One that waits by polling spends it all.
    pub user_ns: u64,
    /// In the kernel, on behalf of programs.
    pub system_ns: u64,
    /// In interrupts, and in what they leave to be done.
    pub interrupts_ns: u64,
    /// With nothing to do.
    pub idle_ns: u64,
}

impl GuestTime {
    /// All but idleness.
    #[must_use]
    pub const fn busy_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns).saturating_add(self.interrupts_ns)
    }
}

/// One benchmark at one size, as a guest's clock saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WallResult {
    /// The node that measured.
    pub node: String,
    /// `pingpong`, `stream` or `rate`.
    pub benchmark: String,
    /// What carried the messages: the transport of the card, by its name, `tcp`, `udp` or `mpi`.
    pub transport: String,
    /// Payload of one message.
    pub payload_bytes: u64,
    /// Measured messages, in each direction.
    pub messages: u64,
    /// Time of all of them.
    pub elapsed_ns: u64,
    /// Messages a second, both directions together, rounded down.
    pub messages_per_s: u64,
    /// Payload a second, both directions together, rounded down.
    pub payload_bytes_per_s: u64,
    /// Round trips, request and answer, of a benchmark that has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<WallLatency>,
    /// Of these messages, datagrams that never came: over UDP. The rates are of those that came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_datagrams: Option<u64>,
}

/// Times of the same thing, many times over, in wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WallLatency {
    /// Shortest.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90 of 100 took no longer.
    pub p90_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// Model time: what the modelled hardware would have taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFigures {
    /// From the start of the run to its latest event.
    pub time_ps: u64,
    /// Whether all of this is exact. A live run whose senders race is an estimate.
    pub is_exact: bool,
    /// Why it is an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_estimate: Option<String>,
    /// Messages, from the start of the sending host's software to the end of the receiving host's.
    pub latency: Histogram,
    /// Payload received by programs, per second of model time, rounded down.
    pub bandwidth_bytes_per_s: u64,
    /// Messages received by programs, per second of model time, rounded down.
    pub messages_per_s: u64,
}

/// A histogram's summary, in model time. Quantiles are at most 1 % above the true value and never below it; count,
/// smallest, largest and sum are exact. All are 0 where nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// How many.
    pub count: u64,
    /// Smallest.
    pub min_ps: u64,
    /// Median.
    pub p50_ps: u64,
    /// 90 of 100 took no longer.
    pub p90_ps: u64,
    /// 99 of 100 took no longer.
    pub p99_ps: u64,
    /// 999 of 1000 took no longer.
    pub p999_ps: u64,
    /// Largest.
    pub max_ps: u64,
    /// Sum of all.
    pub sum_ps: u64,
}

/// One node's part. In a list of names with counts, a name that is absent did not occur.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFigures {
    /// Host name.
    pub name: String,
    /// The command's code; none if it did not end. Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// How the command failed (its exit code or signal, and what the kernel says of that), or why it was not started.
    /// Live only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The last lines that the guest wrote on its console while the command ran, 10 at most, where the command failed.
    /// Live only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub console: Vec<String>,
    /// Messages that the host sent through the modelled NIC.
    pub messages_sent: u64,
    /// Messages that the modelled NIC wrote into the host's memory.
    pub messages_received: u64,
    /// Payload of the messages sent, tags included.
    pub bytes_sent: u64,
    /// Payload of the messages received, tags included.
    pub bytes_received: u64,
    /// Frames of the Ethernet function; sent is from the host.
    pub ethernet: TrafficStats,
    /// Frames of the cluster function, flow control included; sent is from the host.
    pub cluster: TrafficStats,
    /// Doorbells that the host rang.
    pub doorbells: u64,
    /// Messages for which no doorbell was rung, because the NIC was polling.
    pub spared_doorbells: u64,
    /// Rounds of polling that looked at this node. They cost wall time only.
    pub polls: u64,
    /// Frames that this node's NIC sent and that the daemon carried by a shorter way than the general one, of
    /// `cluster.sent_frames`: `unencoded`, as words that nobody encoded, from page to memory in one pass;
    /// `message_series`, which of these were priced together, because their launches asked for the same; `lent`, with
    /// data that stays in the sender's memory until it is copied once. And of `ethernet.sent_frames`:
    /// `ethernet_series`, equal frames that were priced together. All give the same counts and model time; they cost
    /// less wall time. Live only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shortcuts: BTreeMap<String, u64>,
    /// Interrupts that the device raised, by cause. Those of the Ethernet function begin with `ethernet_`.
    pub interrupts: BTreeMap<String, u64>,
    /// Events for which the driver had asked not to be interrupted.
    pub suppressed_interrupts: u64,
    /// Events that the NIC merged into one that waited, because the driver had left no event buffer. Live only.
    #[serde(default, skip_serializing_if = "crate::workload::is_zero")]
    pub events_merged: u64,
    /// Control requests of the driver that the NIC refused. Live only.
    #[serde(default, skip_serializing_if = "crate::workload::is_zero")]
    pub control_refused: u64,
    /// Events that wait now because the driver has left no buffer in the event queue. Live only.
    #[serde(default, skip_serializing_if = "crate::workload::is_zero")]
    pub events_waiting: u64,
    /// The modelled NIC's ports of which anything was counted, each behind a page of its own.
    #[serde(default)]
    pub ports: Vec<PortFigures>,
    /// What the guest's kernel added to `/proc/interrupts` for this NIC over the run: `cluster` and `ethernet`. Live
    /// only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_interrupts: Option<BTreeMap<String, u64>>,
    /// What only this NIC's model counts, by name: docs/driver/DEVICE.md says what each is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nic_counts: BTreeMap<String, u64>,
    /// What the guest did that it must not, by name.
    pub violations: BTreeMap<String, u64>,
    /// What the fabric did to frames on this node's link (lost, duplicated, …), by name.
    pub link_events: BTreeMap<String, u64>,
    /// Faults that were put into this node's NIC (`device_faults` of the cluster file), by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub device_faults: BTreeMap<String, u64>,
    /// The last of these faults, 64 at most, earliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_fault_log: Vec<DeviceFault>,
    /// What this node's NIC did that the manual allows and kind hardware seldom does (`adversarial` of the cluster file), by
    /// kind.
    #[serde(default, alias = "unkind", skip_serializing_if = "BTreeMap::is_empty")]
    pub adversarial: BTreeMap<String, u64>,
    /// The seed of that, as it is at the end; none where the NIC is kind.
    #[serde(default, alias = "unkind_seed", skip_serializing_if = "Option::is_none")]
    pub adversarial_seed: Option<u64>,
    /// How often the NIC was given another seed meanwhile (`set-adversarial-seed` of the daemon's monitor): where this is
    /// not 0, `adversarial` counts what followed from so many seeds and one more, of which `adversarial_seed` is the last. Live
    /// only.
    #[serde(default, alias = "unkind_reseeds", skip_serializing_if = "crate::workload::is_zero")]
    pub adversarial_reseeds: u64,
    /// What the guest's kernel has found, where it is one that watches (docs/driver/DRIVER.md). A run with any fails. Live
    /// only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_findings: Vec<KernelFinding>,
    /// What watched in the guest's kernel, as it was asked at the end: by these names nothing else was found. Live
    /// only.
    #[serde(default, alias = "kernel_watchers", skip_serializing_if = "Vec::is_empty")]
    pub kernel_debug_tools: Vec<String>,
    /// How many rules of the device programmer's manual this node's driver and programs were checked against; none
    /// where `rules` is off. Live only.
    #[serde(default, skip_serializing_if = "crate::workload::is_zero")]
    pub rules_checked: u64,
    /// Rules of the device programmer's manual that this node's driver or programs broke, by name (docs/reference/RULES.md),
    /// where cards look for it: since the daemon started, so that loading the driver is part of it. Live only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub broken_rules: BTreeMap<String, u64>,
    /// The last of these, 64 at most, earliest first; of one rule the first 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken_rule_log: Vec<BrokenRule>,
    /// How often wall time decided in which order this node did things, so that another run of the same programs
    /// may differ. 0 in a simulation.
    pub unordered: u64,
    /// How far this node's clock went in model time.
    pub model_time_ps: u64,
    /// Every crossing of the modelled NIC and its host, by kind.
    pub ledger: Vec<LedgerEntry>,
    /// Every crossing of the Ethernet function and its host, by kind, priced as the conventional NIC that it is.
    pub ethernet_ledger: Vec<LedgerEntry>,
    /// Cards beside the modelled NIC that are masters on the node's bus themselves, where its model brings any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peripherals: Vec<PeripheralFigures>,
    /// Messages that this node received through the modelled NIC; see `latency` of ModelFigures.
    pub model_latency: Histogram,
    /// Frames that this node received through the Ethernet function; see `latency` of ModelFigures.
    pub ethernet_model_latency: Histogram,
}

/// What a guest's kernel has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelFinding {
    /// `kasan`, `kcsan`, `ubsan`, `lockdep`, `atomic-sleep`, `kmemleak`, `dma-debug`, `debug-objects`, `list`,
    /// `refcount`, `slub`, `page`, `warning`, `bug`, `oops`; `not-checking` where a tool was off.
    pub kind: String,
    /// The kernel's own first words.
    pub title: String,
    /// How often, at the same place.
    pub count: u64,
    /// The function of the driver in whose call it was found, innermost, if it was in any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Its file, with the user's path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// All that the kernel said, without time stamps.
    pub text: String,
}

/// A card beside the modelled NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeripheralFigures {
    /// What it is called. A node may have several of one name: their order stays.
    pub name: String,
    /// Every crossing that it began, by kind.
    pub ledger: Vec<LedgerEntry>,
}

/// One fault that was put into a NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceFault {
    /// Faults of this NIC since it was made, this one included.
    pub number: u64,
    /// Its name, as in the cluster file.
    pub fault: String,
    /// At which of its opportunities it happened, from 1. In the fault's `_at` list this number makes it happen again.
    pub opportunity: u64,
    /// When it would have been seen without the fault, in model time.
    pub model_time_ps: u64,
    /// Rank of the node whose message it befell; none where no message caused what it befell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_from: Option<u16>,
    /// Number of that message among those of its node, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_number: Option<u64>,
}

/// A rule of the device programmer's manual that was broken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokenRule {
    /// Rules that this node broke since the daemon started, this one included.
    pub number: u64,
    /// Its name.
    pub rule: String,
    /// Chapter of the manual.
    pub section: u8,
    /// The port whose page or memory it is about; none where it is about no port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// What was seen.
    pub seen: String,
    /// The host's clock, in model time.
    pub model_time_ps: u64,
    /// Wall time since the daemon started.
    pub wall_since_start_ns: u64,
    /// What the node did before, the last eight operations, earliest first.
    pub operations: Vec<String>,
    /// Where the guest's processors were when the launcher had heard of it, and the guest stood still or not: function,
    /// file and line of its own driver, as near as can be said. Of the first time that a node breaks a rule, where QEMU
    /// told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_at: Option<String>,
}

/// One port of the modelled NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortFigures {
    /// The port's number, which is that of its page.
    pub port: u32,
    /// Messages launched through its page.
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
    /// Frames to the guest that found no room.
    pub dropped_frames: u64,
}

/// Links and switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FabricFigures {
    /// Frames that nodes sent into the switch.
    pub frames_in: u64,
    /// Bytes of `frames_in`, headers included.
    pub bytes_in: u64,
    /// Frames on their way to nodes; one for all nodes counts for each.
    pub frames_out: u64,
    /// Bytes of `frames_out`, headers included.
    pub bytes_out: u64,
    /// Every crossing, by kind.
    pub ledger: Vec<LedgerEntry>,
}

/// All crossings of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerEntry {
    /// The kind, as in `pio_write` or `dma_write`.
    pub crossing: String,
    /// How many; a transfer of several bursts counts each.
    pub count: u64,
    /// Bytes carried.
    pub bytes: u64,
    /// Their price in model time: what they kept busy, and their latency.
    pub model_price_ps: u64,
    /// Model time that they waited for a busy resource. Not part of the price.
    #[serde(default)]
    pub model_waited_ps: u64,
}

/// One thing that was checked outside of the models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// What, as in `nothing-lost`.
    pub name: String,
    /// Whether it held.
    pub held: bool,
    /// What was looked at; where it did not hold: where, expected and found.
    pub detail: String,
}

impl Report {
    /// Puts [`Self::total`] to what it has to be: the sum of all nodes' ledgers and the fabric's.
    pub fn add_up(&mut self) {
        self.total = sum_of(parts(&self.nodes, &self.fabric));
    }

    /// The report as JSON, for people and programs, with a newline at the end. The same report gives the same bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Every key is a string and every number an integer, so nothing here can fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

impl ModelFigures {
    /// Sets both rates: `messages` with `bytes` of payload in `span_ps` of model time.
    pub fn set_rates(&mut self, messages: u64, bytes: u64, span_ps: u64) {
        let per_second = |amount: u64| {
            let scaled = u128::from(amount) * 1_000_000_000_000;
            scaled.checked_div(u128::from(span_ps)).map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
        };
        self.messages_per_s = per_second(messages);
        self.bandwidth_bytes_per_s = per_second(bytes);
    }
}

/// Why the model time of a live run of these nodes is an estimate; none where it is exact. docs/design/SPECIFICATION.md, "Two
/// clocks", says what is noticed.
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
        return Some(format!("{frames} Ethernet frames shared the network, and wall time decided when"));
    }
    // Frames of before leave doorbells and interrupts behind, which the messages' hosts and buses carry as well.
    let crossings = nodes.iter().flat_map(|node| &node.ethernet_ledger);
    let crossings = crossings.fold(0_u64, |sum, entry| sum.wrapping_add(entry.count));
    if crossings > 0 {
        return Some(format!("{crossings} crossings of Ethernet functions, and wall time decided when"));
    }
    let faults = nodes.iter().flat_map(|node| node.device_faults.values());
    let faults = faults.fold(0_u64, |sum, count| sum.wrapping_add(*count));
    if faults > 0 {
        return Some(format!("{faults} device faults, and wall time decided when programs got over them"));
    }
    None
}

impl NodeFigures {
    /// A node that did nothing yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// All its ledgers, each with the name under which it is shown.
    pub fn ledgers(&self) -> impl Iterator<Item = (String, &[LedgerEntry])> {
        let functions =
            [(self.name.clone(), &*self.ledger), (format!("{} Ethernet", self.name), &*self.ethernet_ledger)];
        functions.into_iter().chain(self.peripheral_ledgers())
    }

    /// Those of its peripherals.
    pub fn peripheral_ledgers(&self) -> impl Iterator<Item = (String, &[LedgerEntry])> {
        self.peripherals.iter().map(|card| (format!("{} {}", self.name, card.name), &*card.ledger))
    }
}

/// Every entry of every ledger of these nodes and links.
pub fn parts<'a>(
    nodes: &'a [NodeFigures],
    fabric: &'a FabricFigures,
) -> impl Iterator<Item = &'a LedgerEntry> {
    nodes.iter().flat_map(NodeFigures::ledgers).flat_map(|(_, ledger)| ledger).chain(&fabric.ledger)
}

/// The sum of ledgers, kind by kind, sorted by the names of the kinds. Wraps as the devices' counters do, so that a sum
/// is the sum of its parts whatever the numbers.
#[must_use]
pub fn sum_of<'a>(entries: impl IntoIterator<Item = &'a LedgerEntry>) -> Vec<LedgerEntry> {
    let mut sums: BTreeMap<&str, LedgerEntry> = BTreeMap::new();
    for entry in entries {
        let sum = sums.entry(&entry.crossing).or_default();
        sum.count = sum.count.wrapping_add(entry.count);
        sum.bytes = sum.bytes.wrapping_add(entry.bytes);
        sum.model_price_ps = sum.model_price_ps.wrapping_add(entry.model_price_ps);
        sum.model_waited_ps = sum.model_waited_ps.wrapping_add(entry.model_waited_ps);
    }
    sums.into_iter().map(|(name, sum)| LedgerEntry { crossing: name.to_owned(), ..sum }).collect()
}

/// The names of NIC models for [`Report::nic`]: one where all nodes have the same.
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
        crossing: &str,
        count: u64,
        bytes: u64,
        model_price_ps: u64,
        model_waited_ps: u64,
    ) -> LedgerEntry {
        LedgerEntry { crossing: crossing.into(), count, bytes, model_price_ps, model_waited_ps }
    }

    /// A report with something in every part.
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
    fn the_total_holds_every_kind_once_and_sorted() {
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
    fn a_simulation_names_nothing_of_the_host() {
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
                let parts = all.iter().filter(|entry| entry.crossing == kind);
                parts.fold(0_u64, |sum, entry| sum.wrapping_add(of(entry)))
            };
            for total in &report.total {
                prop_assert_eq!(total.count, sum(|e| e.count, &total.crossing));
                prop_assert_eq!(total.bytes, sum(|e| e.bytes, &total.crossing));
                prop_assert_eq!(total.model_price_ps, sum(|e| e.model_price_ps, &total.crossing));
                prop_assert_eq!(total.model_waited_ps, sum(|e| e.model_waited_ps, &total.crossing));
            }
            prop_assert!(all.iter().all(|entry| report.total.iter().any(|t| t.crossing == entry.crossing)));
            prop_assert_eq!(Report::from_json("r", &report.to_json()).unwrap(), report);
        }
    }
}
