//! The simulator's configuration: one JSON file, which the launcher writes for `niclab-sim --config FILE`.

use std::path::{Path, PathBuf};

use niclab_abi::config::{FEATURE_CHANNELS, FEATURE_POSTS, FEATURE_RINGS};
use niclab_model::nic::registry::{Promise, Promises};
use niclab_workloads::Recorded;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Cluster, DeviceFaults, Faults, Forwarding, Framing, Limits, LinkConfig, NicConfig, Profile, Workload,
    workload::WorkloadNode,
};

/// The version of [`SimConfig`] that this build writes and reads.
pub const SIM_CONFIG_VERSION: u32 = 1;

/// The configuration of one simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimConfig {
    /// [`SIM_CONFIG_VERSION`].
    pub version: u32,
    /// The cluster's name.
    pub cluster: String,
    /// The seed of all random decisions.
    pub seed: u64,
    /// The prices.
    pub profile: Profile,
    /// How the switch forwards.
    #[serde(default)]
    pub forwarding: Forwarding,
    /// Framing on the links.
    #[serde(default)]
    pub framing: Framing,
    /// The nodes, by rank.
    pub nodes: Vec<SimNode>,
    /// The messages that the nodes send.
    pub workload: Workload,
    /// Programs that are loaded into all cards during the run, in this order.
    #[serde(rename = "hand_overs", default, skip_serializing_if = "Vec::is_empty")]
    pub firmware_reloads: Vec<SimFirmwareReload>,
}

/// A program that is loaded into all cards during the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimFirmwareReload {
    /// Model time at which the load begins, in picoseconds from the start of the measured part. A load waits until the
    /// previous one is complete.
    pub model_time_ps: u64,
    /// The program, as the model's own tools write it, in hexadecimal digits.
    #[serde(with = "hex::serde")]
    #[schemars(with = "String")]
    pub image: Vec<u8>,
}

/// The configuration of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SimNode {
    /// Host name.
    pub name: String,
    /// The NIC.
    pub nic: NicConfig,
    /// Faults of the NIC.
    #[serde(default)]
    pub device_faults: DeviceFaults,
    /// Seed of the adversarial mode; without it the NIC is not adversarial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adversarial: Option<u64>,
    /// The link to the switch.
    pub link: LinkConfig,
}

/// A simulation's configuration cannot be used.
#[derive(Debug, Error)]
pub enum SimConfigError {
    /// The file cannot be read.
    #[error("cannot read the simulation's configuration {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The file is not what this build expects.
    #[error(
        "{} is not a valid configuration of this simulator: {error}; `niclab sim` writes this file",
        path.display()
    )]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why, with line and column.
        #[source]
        error: serde_json::Error,
    },
    /// Launcher and simulator come from different builds.
    #[error(
        "{} has version {found}, and this simulator reads {SIM_CONFIG_VERSION}; build `niclab` and \
         `niclab-sim` together",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in it.
        found: u32,
    },
}

impl SimConfig {
    /// The simulation of `workload` on `cluster`; reports have the name `name`.
    #[must_use]
    pub fn new(cluster: &Cluster, name: &str, workload: &Workload) -> Self {
        let node = |node: &crate::Node| SimNode {
            name: node.name.clone(),
            nic: node.nic.clone(),
            device_faults: node.device_faults.clone(),
            adversarial: node.adversarial,
            link: node.link,
        };
        Self {
            version: SIM_CONFIG_VERSION,
            cluster: name.to_owned(),
            seed: cluster.seed,
            profile: cluster.profile.clone(),
            forwarding: cluster.forwarding,
            framing: cluster.framing,
            nodes: cluster.nodes.iter().map(node).collect(),
            workload: workload.clone(),
            firmware_reloads: Vec::new(),
        }
    }

    /// The properties of the nodes that the workload needs.
    pub fn workload_nodes(&self) -> Vec<WorkloadNode<'_>> {
        let nodes = self.nodes.iter();
        nodes.map(|node| WorkloadNode { nic: &node.nic, mtu_bytes: node.link.mtu_bytes }).collect()
    }

    /// The inputs of the programs' scripts, simulated and live: the workload, its [recording](Self::recorded), and the
    /// properties of the cards that matter to programs.
    pub fn programs(&self, recorded: Vec<Recorded>) -> niclab_workloads::Workload {
        let Workload { count, warmup, interrupt_every, slices, .. } = self.workload;
        let limits: Vec<Limits> = self.nodes.iter().map(|node| node.nic.limits()).collect();
        let least = |of: fn(&Limits) -> u64| {
            let with_lists = limits.iter().filter(|card| card.entries > 0);
            with_lists.map(of).min().unwrap_or(0)
        };
        let peripherals = limits.iter().map(|card| card.peripheral_ports.first().copied()).collect();
        niclab_workloads::Workload {
            pattern: self.workload.pattern(self.nodes.len() as u32, peripherals, recorded),
            message_bytes: self.workload.max_bytes(),
            count,
            warmup,
            interrupt_every,
            slices,
            receive: self.workload.receive.into(),
            seed: self.seed,
            entries: least(|card| u64::from(card.entries) / (card.open_ports.len() as u64).max(1)),
            unexpected_messages: least(|card| card.unexpected_messages.into()),
            payload_bytes: limits.iter().map(|card| card.payload_bytes).min().unwrap_or(0),
            first_segment_bytes: limits.iter().map(|card| card.first_segment_bytes).min().unwrap_or(0),
            ports: limits.into_iter().map(|card| card.open_ports).collect(),
            sends_to_many: self.sends_to_many(),
            promise: self.promise(),
        }
    }

    /// Whether one port of each card can send to any number of others.
    pub(crate) fn sends_to_many(&self) -> bool {
        let sends_to_many = |node: &SimNode| {
            [FEATURE_POSTS, FEATURE_CHANNELS, FEATURE_RINGS].iter().any(|it| node.nic.model.has(*it))
        };
        self.nodes.iter().all(sends_to_many)
    }

    /// Bytes of a message's tag in its payload, as recordings have them.
    pub(crate) fn tag_bytes(&self) -> u32 {
        let stands_in_payload = self
            .nodes
            .iter()
            .all(|node| [FEATURE_POSTS, FEATURE_RINGS].iter().any(|it| node.nic.model.has(*it)));
        if stands_in_payload { niclab_workloads::inic::TAG_BYTES as u32 } else { 0 }
    }

    /// What all cards promise about messages.
    #[must_use]
    pub fn promises(&self) -> Promises {
        let promises = self.nodes.iter().map(|node| node.nic.promises());
        let programs = self.nodes.first().and_then(|node| node.nic.model.descriptor().programs.as_ref());
        // An invalid image is refused when it is loaded.
        let images = self.firmware_reloads.iter().filter_map(|it| (programs?.promises)(&it.image).ok());
        promises
            .chain(images)
            .reduce(Promises::and)
            .unwrap_or(Promises { sound: Promise::ALL, faulty: Promise::ALL })
    }

    /// Whether a link loses, duplicates, damages or reorders frames.
    #[must_use]
    pub fn has_faulty_links(&self) -> bool {
        self.nodes.iter().any(|node| node.link.faults != Faults::default())
    }

    /// The length of the switch's shortest queue.
    #[must_use]
    pub fn least_queue_frames(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.link.queue_frames)).min().unwrap_or(0)
    }

    /// Whether the switch has room for all frames that cards have in flight: each message is one frame, and may have
    /// one more frame, of flow control or acknowledgement.
    #[must_use]
    pub fn has_deep_queues(&self) -> bool {
        let max_in_flight = u64::from(self.workload.slices) * u64::from(Workload::MAX_PORTS);
        self.least_queue_frames() >= 2 * max_in_flight
    }

    fn promise(&self) -> niclab_workloads::Promise {
        let Promise { is_delivered, is_once, is_in_order } =
            self.promises().on(self.has_faulty_links(), self.has_deep_queues());
        niclab_workloads::Promise { is_delivered, is_once, is_in_order }
    }

    /// Reads the file that the launcher wrote.
    ///
    /// # Errors
    /// See [`SimConfigError`].
    pub fn read(path: &Path) -> Result<Self, SimConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| SimConfigError::Read { path: path.to_owned(), error })?;
        Self::from_json(path, &text)
    }

    /// Reads a configuration from memory; errors name `path`.
    ///
    /// # Errors
    /// [`SimConfigError::Parse`], [`SimConfigError::Version`].
    pub fn from_json(path: &Path, text: &str) -> Result<Self, SimConfigError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let parse_error = |error| SimConfigError::Parse { path: path.to_owned(), error };
        // The version first: a file of another version may have other keys.
        let Version { version } = serde_json::from_str(text).map_err(parse_error)?;
        if version != SIM_CONFIG_VERSION {
            return Err(SimConfigError::Version { path: path.to_owned(), found: version });
        }
        serde_json::from_str(text).map_err(parse_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterFile, Source, WorkloadKind};

    fn example() -> SimConfig {
        let cluster = Source::default().resolve(&ClusterFile::default()).unwrap();
        SimConfig::new(&cluster, "c", &Workload::new(WorkloadKind::Stream))
    }

    #[test]
    fn json_round_trips() {
        let config = example();
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(SimConfig::from_json(Path::new("c"), &text).unwrap(), config);
        assert_eq!(config.workload_nodes().len(), 2);
    }

    #[test]
    fn another_version_is_named_even_if_its_keys_differ() {
        let error = SimConfig::from_json(Path::new("c"), r#"{"version": 9, "future": true}"#).unwrap_err();
        assert!(matches!(error, SimConfigError::Version { found: 9, .. }), "{error}");
    }

    #[test]
    fn truncated_file_is_named_with_its_line() {
        let text = serde_json::to_string_pretty(&example()).unwrap();
        let error = SimConfig::from_json(Path::new("c.json"), &text[..text.len() / 2]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("c.json") && text.contains("line"), "{text}");
    }
}
