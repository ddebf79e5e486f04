//! The cluster file as the user writes it.

use std::path::PathBuf;

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::{DeviceFaults, Faults, Forwarding, Framing, NicConfig, RuleChecking};

/// A virtual cluster. Every key is optional.
///
/// Relative paths start at the folder of the cluster file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "niclab cluster file")]
pub struct ClusterFile {
    /// The cluster's name, by which commands find it. `--name` overrides it.
    pub name: Option<String>,
    /// Number of nodes: at most 64 to boot, 4,096 to simulate. Nodes without a `node` entry are named `node0`, `node1`,
    /// by rank.
    #[schemars(range(min = 1, max = 4096))]
    pub nodes: Option<u32>,
    /// Nodes with names or values of their own, in the order of their ranks.
    pub node: Vec<NodeEntry>,
    /// Memory of each node, in MiB.
    #[schemars(range(min = 96, max = 1_048_576))]
    pub memory_mib: u32,
    /// Virtual CPUs of each node.
    #[schemars(range(min = 1, max = 4096))]
    pub vcpus: u32,
    /// Queue pairs of each node's Ethernet function (docs/use/ETHERNET.md). Linux uses as many of them as the guest has
    /// virtual CPUs. Live only.
    #[serde(default = "one_pair", skip_serializing_if = "is_one_pair")]
    #[schemars(range(min = 1, max = 32))]
    pub queues: u32,
    /// Debian packages. If there are any, the guests get a Debian root file system with them.
    pub packages: Vec<String>,
    /// A kernel of your own (bzImage), booted without changes. You must provide its modules, including the niclab
    /// driver. Or `debug`: the guests' usual kernel with debugging tools, which find bugs of drivers
    /// (docs/driver/DRIVER.md). Write `./debug` for a file of that name.
    pub kernel: Option<PathBuf>,
    /// A root file system of your own: a raw image of erofs, squashfs or ext4, used read-only. It excludes `packages`.
    pub image: Option<PathBuf>,
    /// A driver of your own for the cards, instead of niclab's: the folder of an out-of-tree module's source, which
    /// niclab builds for the guests' kernel, or a module `NAME.ko`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<PathBuf>,
    /// Parameters of your driver, as in `debug=1 peer=0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub driver_args: String,
    /// More arguments for every QEMU, passed unchanged.
    pub qemu_args: Vec<String>,
    /// How QEMU executes the guests' instructions.
    pub accelerator: AcceleratorChoice,
    /// How nodes start.
    pub boot: BootChoice,
    /// A platform profile: the name of a bundled one, or the path of a `.toml` file. Default: the profile of the paper
    /// that describes the NIC.
    pub profile: Option<String>,
    /// How the switch forwards. Default: as in the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<Forwarding>,
    /// Framing on the links. Default: as in the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framing: Option<Framing>,
    /// Programs of `niclab-perf` run in lockstep, one at a time in the order of model time. The run then equals the
    /// simulation to the picosecond, but is much slower. Default: on in scenarios with the mode `both`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lockstep: Option<bool>,
    /// The seed of all random decisions. The same seed repeats a run.
    pub seed: u64,
    /// The NIC of each node.
    pub nic: NicConfig,
    /// Faults of the NIC of each node, for the test of drivers. Default: none.
    pub device_faults: DeviceFaults,
    /// Seed of the adversarial mode: the NIC of each node does what the manual allows but hardware rarely does
    /// (docs/use/FAULTS.md). Default: off.
    #[serde(default, alias = "unkind", skip_serializing_if = "Option::is_none")]
    pub adversarial: Option<u64>,
    /// What happens when a driver breaks a rule of the device programmer's manual. Live only.
    #[serde(default, skip_serializing_if = "is_off")]
    pub rules: RuleChecking,
    /// What happens to the other nodes when a node's guest powers off, reboots or panics, or its QEMU ends. Only for
    /// `niclab run` and `niclab up`.
    #[serde(default, skip_serializing_if = "OnNodeExit::is_stop")]
    pub on_node_exit: OnNodeExit,
    /// Links to the switch. An entry without `node` changes the default for all nodes.
    pub link: Vec<LinkEntry>,
}

impl Default for ClusterFile {
    fn default() -> Self {
        Self {
            name: None,
            nodes: None,
            node: Vec::new(),
            memory_mib: 256,
            vcpus: 1,
            queues: one_pair(),
            packages: Vec::new(),
            kernel: None,
            image: None,
            driver: None,
            driver_args: String::new(),
            qemu_args: Vec::new(),
            accelerator: AcceleratorChoice::default(),
            boot: BootChoice::default(),
            profile: None,
            forwarding: None,
            framing: None,
            lockstep: None,
            seed: 1,
            nic: NicConfig::default(),
            device_faults: DeviceFaults::default(),
            adversarial: None,
            rules: RuleChecking::default(),
            on_node_exit: OnNodeExit::default(),
            link: Vec::new(),
        }
    }
}

/// What happens to the other nodes when a node ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnNodeExit {
    /// The cluster ends.
    #[default]
    Stop,
    /// The other nodes continue, and the cluster ends with the last one.
    Continue,
}

impl OnNodeExit {
    /// Whether the cluster ends.
    #[must_use]
    pub const fn is_stop(&self) -> bool {
        matches!(self, Self::Stop)
    }
}

const fn one_pair() -> u32 {
    1
}

/// Whether this is the default, which is not written to files.
const fn is_one_pair(queues: &u32) -> bool {
    *queues == one_pair()
}

/// Whether rule checking is off, which is not written to files.
fn is_off(rules: &RuleChecking) -> bool {
    !rules.is_on()
}

/// One node that differs from the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeEntry {
    /// Host name. Lower-case letters, digits and hyphens.
    pub name: Option<String>,
    /// Memory, in MiB.
    #[schemars(range(min = 96, max = 1_048_576))]
    pub memory_mib: Option<u32>,
    /// Virtual CPUs.
    #[schemars(range(min = 1, max = 4096))]
    pub vcpus: Option<u32>,
    /// Queue pairs of the Ethernet function, instead of the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub queues: Option<u32>,
    /// Debian packages, instead of the cluster's.
    pub packages: Option<Vec<String>>,
    /// NIC, instead of the cluster's.
    pub nic: Option<NicConfig>,
    /// Faults of the node's NIC, instead of the cluster's.
    pub device_faults: Option<DeviceFaults>,
    /// Seed of the NIC's adversarial mode, instead of the cluster's.
    #[serde(default, alias = "unkind", skip_serializing_if = "Option::is_none")]
    pub adversarial: Option<u64>,
    /// Driver of your own for this node, instead of the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<PathBuf>,
    /// Parameters of the driver, instead of the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_args: Option<String>,
}

/// One node's link to the switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkEntry {
    /// The node, by name. Without a node, the entry is the default for nodes whose own entry does not have the same
    /// key.
    pub node: Option<String>,
    /// Serialization rate in model time, in bits per second. Default: the profile's.
    #[schemars(range(min = 1))]
    pub bandwidth_bits_per_s: Option<u64>,
    /// Propagation time in model time, in nanoseconds. Default: the profile's.
    pub latency_ns: Option<u64>,
    /// Largest Ethernet payload, in bytes, without VLAN tags (at most two). Default: 1500.
    #[schemars(range(min = 256, max = 9000))]
    pub mtu_bytes: Option<u32>,
    /// Maximum number of frames in the switch's queue for this link. Default: 65536. This is more than credits allow in
    /// flight to one card, so the switch drops no message of cards with flow control.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub queue_frames: Option<u32>,
    /// Faults of the link. Default: none.
    pub faults: Option<Faults>,
}

/// How QEMU executes the guests' instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AcceleratorChoice {
    /// KVM if it can be opened and the processor has vmx or svm, else TCG.
    #[default]
    Auto,
    /// QEMU's own translation; works everywhere.
    Tcg,
    /// KVM, or an error.
    Kvm,
}

/// How nodes start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BootChoice {
    /// From a template if that is known to work, else cold; niclab then prints the reason.
    #[default]
    Auto,
    /// From a template: a guest that was booted once, without its card, and saved. An error if no template is possible.
    Template,
    /// Each node boots by itself.
    Cold,
}

/// The JSON Schema of the cluster file.
#[must_use]
pub fn schema() -> Schema {
    schema_for!(ClusterFile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_exit_stops_the_cluster_unless_the_file_says_continue() {
        let file = |text: &str| toml::from_str::<ClusterFile>(text);
        assert_eq!(file("").unwrap().on_node_exit, OnNodeExit::Stop);
        let continued = file("on_node_exit = \"continue\"").unwrap();
        assert_eq!(continued.on_node_exit, OnNodeExit::Continue);
        assert_eq!(file(&toml::to_string(&continued).unwrap()).unwrap(), continued);
        let error = file("on_node_exit = \"restart\"").unwrap_err().to_string();
        assert!(error.contains("`stop` or `continue`"), "{error}");
    }
}
