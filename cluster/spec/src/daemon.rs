//! The daemon's configuration: one JSON file, which the launcher writes for `niclab-device --config FILE`.
//!
//! The daemon listens on every socket of the configuration, then prints the line [`READY_LINE`] on its standard output.
//! Only then may a QEMU start. The daemon ends on SIGTERM, and when its standard input closes.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Cluster, ClusterName, DeviceFaults, Forwarding, Framing, LinkConfig, MacAddress, NicConfig, Profile,
    RuleChecking,
};

/// The line that the daemon prints when it listens on all sockets.
pub const READY_LINE: &str = "ready";

/// The version of [`DaemonConfig`] that this build writes and reads.
pub const CONFIG_VERSION: u32 = 1;

/// The configuration of one daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DaemonConfig {
    /// [`CONFIG_VERSION`].
    pub version: u32,
    /// The cluster's name, for log lines.
    pub cluster: ClusterName,
    /// Socket for [`crate::monitor`] requests.
    pub monitor_socket: PathBuf,
    /// How the switch forwards.
    #[serde(default)]
    pub forwarding: Forwarding,
    /// Framing on the links.
    #[serde(default)]
    pub framing: Framing,
    /// The seed of all random decisions.
    pub seed: u64,
    /// Programs run in lockstep: one at a time, in the order of model time.
    #[serde(default)]
    pub lockstep: bool,
    /// Whether cards check drivers for broken rules.
    #[serde(default)]
    pub rules: RuleChecking,
    /// The prices.
    pub profile: Profile,
    /// The nodes, by rank.
    pub nodes: Vec<DaemonNode>,
}

/// The configuration of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DaemonNode {
    /// Host name.
    pub name: String,
    /// Ethernet address of the card.
    pub mac: MacAddress,
    /// vhost-user socket of the cluster function; the daemon listens.
    pub cluster_socket: PathBuf,
    /// vhost-user socket of the Ethernet function; the daemon listens.
    pub ethernet_socket: PathBuf,
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
    /// Queue pairs of the Ethernet function.
    #[serde(default = "one_pair")]
    pub queues: u32,
}

const fn one_pair() -> u32 {
    1
}

/// A daemon's configuration cannot be used.
#[derive(Debug, Error)]
pub enum DaemonConfigError {
    /// The file cannot be read.
    #[error("cannot read the daemon's configuration {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The file is not what this build expects.
    #[error(
        "{} is not a valid configuration of this daemon: {error}; `niclab` writes this file, do not edit it",
        path.display()
    )]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: serde_json::Error,
    },
    /// Launcher and daemon come from different builds.
    #[error(
        "{} has version {found}, and this daemon reads {CONFIG_VERSION}; build `niclab` and `niclab-device` together",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in it.
        found: u32,
    },
}

impl DaemonConfig {
    /// The configuration for `cluster`; `cluster_socket` and `ethernet_socket` give each rank its socket paths.
    #[must_use]
    pub fn new(
        cluster: &Cluster,
        name: &ClusterName,
        monitor_socket: PathBuf,
        sockets: impl Fn(u16) -> NodeSockets,
    ) -> Self {
        let nodes = cluster
            .nodes
            .iter()
            .map(|node| {
                let NodeSockets { cluster_socket, ethernet_socket } = sockets(node.rank);
                DaemonNode {
                    name: node.name.clone(),
                    mac: node.mac(),
                    cluster_socket,
                    ethernet_socket,
                    nic: node.nic.clone(),
                    device_faults: node.device_faults.clone(),
                    adversarial: node.adversarial,
                    link: node.link,
                    queues: node.queues,
                }
            })
            .collect();
        Self {
            version: CONFIG_VERSION,
            cluster: name.clone(),
            monitor_socket,
            forwarding: cluster.forwarding,
            framing: cluster.framing,
            seed: cluster.seed,
            lockstep: cluster.lockstep,
            rules: cluster.rules,
            profile: cluster.profile.clone(),
            nodes,
        }
    }

    /// Reads the file that the launcher wrote.
    ///
    /// # Errors
    /// See [`DaemonConfigError`].
    pub fn read(path: &Path) -> Result<Self, DaemonConfigError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| DaemonConfigError::Read { path: path.to_owned(), error })?;
        let parse_error = |error| DaemonConfigError::Parse { path: path.to_owned(), error };
        // The version first: a file of another version may have other keys.
        let Version { version } = serde_json::from_str(&text).map_err(parse_error)?;
        if version != CONFIG_VERSION {
            return Err(DaemonConfigError::Version { path: path.to_owned(), found: version });
        }
        serde_json::from_str(&text).map_err(parse_error)
    }
}

/// The two sockets of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSockets {
    /// vhost-user socket of the cluster function.
    pub cluster_socket: PathBuf,
    /// vhost-user socket of the Ethernet function.
    pub ethernet_socket: PathBuf,
}

/// The name of the daemon's thread that serves the doorbells of the node of this rank: within the kernel's 15 bytes.
#[must_use]
pub fn doorbell_thread_name(rank: usize) -> String {
    format!("doorbell-{rank}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterFile, Source};

    fn example() -> DaemonConfig {
        let cluster = Source::default().resolve(&ClusterFile::default()).unwrap();
        DaemonConfig::new(&cluster, &ClusterName::default(), "/run/m".into(), |rank| NodeSockets {
            cluster_socket: format!("/run/{rank}.c").into(),
            ethernet_socket: format!("/run/{rank}.e").into(),
        })
    }

    fn read(text: &str) -> Result<DaemonConfig, DaemonConfigError> {
        let path = std::env::temp_dir().join(format!("niclab-config-{}-{}", std::process::id(), text.len()));
        std::fs::write(&path, text).unwrap();
        let result = DaemonConfig::read(&path);
        std::fs::remove_file(path).unwrap();
        result
    }

    #[test]
    fn json_round_trips() {
        let config = example();
        assert_eq!(read(&serde_json::to_string(&config).unwrap()).unwrap(), config);
        assert_eq!(config.nodes[1].ethernet_socket, Path::new("/run/1.e"));
    }

    #[test]
    fn another_version_is_named_even_if_its_keys_differ() {
        let error = read(r#"{"version": 7, "future": true}"#).unwrap_err();
        assert!(matches!(error, DaemonConfigError::Version { found: 7, .. }), "{error}");
    }
}
