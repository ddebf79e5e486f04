//! Builds the cluster's nodes and cards from the launcher's configuration.

use crate::shell::adversarial;
use crate::shell::lockstep;
use crate::shell::settings;
use std::sync::Arc;

use niclab_abi::config::{DeviceConfig, FEATURE_TURNS};
use niclab_abi::{ABI_VERSION, MAGIC};
use niclab_model::fabric::link::LinkError;
use niclab_model::fabric::{Fabric, FabricConfig};
use niclab_model::nic::registry::{AnyNic, BuildError};
use niclab_model::platform::profile::Profile;
use niclab_model::time::Span;
use niclab_spec::daemon::{DaemonConfig, DaemonNode};
use niclab_spec::pci::MAX_QUEUE_PAIRS;
use thiserror::Error;

use crate::shell::NodeInfo;
use crate::shell::adversary::{AT_LIMIT_MS, MARGIN_MS};
use crate::shell::cluster::Cluster;
use crate::shell::pages::{Pages, PagesError};
use crate::shell::wait::Policy;

/// Maximum wall time of a control request. A driver takes a card for dead after it. Requests take microseconds; the
/// rest is margin for a host whose processors are busy.
pub const CONTROL_TIMEOUT_MS: u32 = 5_000;

const _: () = assert!(AT_LIMIT_MS + MARGIN_MS <= CONTROL_TIMEOUT_MS, "no answer is too late");

/// The configuration describes an invalid cluster.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A card's parameters.
    #[error("node {node}: {error}; correct the cluster file's [nic] table")]
    Nic {
        /// Host name.
        node: String,
        /// Why.
        #[source]
        error: BuildError,
    },
    /// A link's parameters.
    #[error("{0}; correct the cluster file's [[link]] tables")]
    Link(#[from] LinkError),
    /// The node's pages.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// The number of nodes does not fit into a node address, or is zero.
    #[error("a cluster of {0} nodes is not supported; give 1 to 65535 nodes")]
    Nodes(usize),
}

/// Builds the cluster that `config` describes, on a host with `cores` cores.
///
/// # Errors
/// [`ConfigError`] names the invalid part.
pub fn build(config: &DaemonConfig, cores: usize) -> Result<(Cluster, Vec<NodeInfo>), ConfigError> {
    let nodes = u16::try_from(config.nodes.len()).ok().filter(|nodes| *nodes > 0);
    let nodes = nodes.ok_or(ConfigError::Nodes(config.nodes.len()))?;
    let profile = Arc::new(niclab_assembly::profile(&config.profile));
    let mtu_bytes = niclab_assembly::least_mtu_bytes(config.nodes.iter().map(|node| &node.link));
    let mut cards = Vec::new();
    let mut infos = Vec::new();
    for (number, node) in (0..nodes).zip(&config.nodes) {
        let (nic, device) = card(node, number, nodes, mtu_bytes, &profile, config.lockstep)
            .map_err(|error| ConfigError::Nic { node: node.name.clone(), error })?;
        let ports = device.ports;
        let pages = Pages::new(node.nic.model.windows, ports)?;
        let device =
            DeviceConfig { bar_pages: (pages.bar.bytes() / niclab_abi::PAGE_BYTES) as u32, ..device };
        cards.push((nic, pages, ports));
        let policy = Policy::choose(node.nic.wait, node.nic.poll_for_us, cores, config.nodes.len());
        let queue_pairs = node.queues.clamp(1, MAX_QUEUE_PAIRS) as usize;
        infos.push(NodeInfo { name: node.name.clone(), config: device, policy, queue_pairs });
    }
    let cluster = Cluster::new(cards, &profile, fabric(config, &profile)?, config.seed);
    let mut locked = cluster.lock_all();
    for (number, node) in (0..).zip(&config.nodes) {
        if let Some(seed) = node.adversarial {
            adversarial::make_adversarial(&mut locked, number.into(), seed);
        }
        if let Some(card) = locked.nodes.card_mut(number.into()) {
            card.host_values = node.nic.model.host_values;
            card.limits = niclab_assembly::card_limits(&node.nic, nodes.into());
        }
        settings::set_device_faults(&mut locked, number.into(), &node.device_faults);
        settings::set_link_faults(&mut locked, number, &node.link.faults);
    }
    if config.lockstep {
        lockstep::start(&mut locked);
    }
    drop(locked);
    Ok((cluster, infos))
}

/// Links and switch.
fn fabric(config: &DaemonConfig, profile: &Profile) -> Result<Fabric, ConfigError> {
    let fabric = Fabric::new(&FabricConfig {
        links: config.nodes.iter().map(|node| niclab_assembly::link(&node.link, config.framing)).collect(),
        forwarding: niclab_assembly::forwarding(config.forwarding),
        switch_fall_through: Span::from_ps(profile.network.switch_fall_through_ps),
        seed: config.seed,
    })?;
    Ok(fabric.routed_by(niclab_assembly::routing(config.framing)))
}

/// A node's model, and the configuration that its driver reads.
fn card(
    node: &DaemonNode,
    number: u16,
    nodes: u16,
    mtu_bytes: u32,
    profile: &Arc<Profile>,
    lockstep: bool,
) -> Result<(AnyNic, DeviceConfig), BuildError> {
    let limits = node.nic.limits();
    let device = DeviceConfig {
        magic: MAGIC,
        abi_version: ABI_VERSION,
        features: node.nic.model.features | if lockstep { FEATURE_TURNS } else { 0 },
        node: number.into(),
        nodes: nodes.into(),
        ports: node.nic.model.ports,
        max_slices: limits.max_slices,
        authorizations: limits.senders_per_port.unwrap_or(0),
        list_entries: limits.entries,
        message_unit_bytes: limits.message_unit_bytes,
        max_message_bytes: limits.max_message_bytes,
        channel_payload_bytes: u32::try_from(limits.payload_bytes).unwrap_or(u32::MAX),
        channel_segment_bytes: u32::try_from(limits.first_segment_bytes).unwrap_or(u32::MAX),
        control_timeout_ms: CONTROL_TIMEOUT_MS,
        mac: mac_word(node.mac.0),
        ..DeviceConfig::default()
    }
    .with_name(node.nic.model.name);
    Ok((niclab_assembly::card(&node.nic, number, nodes.into(), mtu_bytes, Arc::clone(profile))?, device))
}

/// An Ethernet address as the configuration space has it: the first byte is the lowest.
fn mac_word([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

#[cfg(test)]
mod tests {
    use niclab_abi::config::{FEATURE_LISTS, FEATURE_SLICES, name_in};
    use niclab_spec::{ClusterFile, ClusterName, NicModel, Source, Value};

    use super::*;

    fn config() -> DaemonConfig {
        let cluster = Source::default().resolve(&ClusterFile::default()).unwrap();
        DaemonConfig::new(&cluster, &ClusterName::default(), "/m".into(), |rank| {
            niclab_spec::daemon::NodeSockets {
                cluster_socket: format!("/{rank}.c").into(),
                ethernet_socket: format!("/{rank}.e").into(),
            }
        })
    }

    #[test]
    fn drivers_read_what_the_cluster_file_says() {
        let (cluster, infos) = build(&config(), 2).unwrap();
        assert_eq!((cluster.lock_all().nodes.len(), infos.len()), (2, 2));
        let device = infos[1].config;
        assert_eq!((device.node, device.nodes, device.ports), (1, 2, 8));
        assert_eq!(device.mac.to_le_bytes()[..6], config().nodes[1].mac.0);
        assert!(device.bar_pages.is_power_of_two());
    }

    #[test]
    fn match_card_reports_its_limits_to_drivers() {
        let mut of_match = config();
        let nic = &mut of_match.nodes[1].nic;
        nic.model = NicModel::named("match").unwrap();
        nic.set("match_entries", Value::Number(77)).unwrap();
        let (_, infos) = build(&of_match, 2).unwrap();
        let device = infos[1].config;
        assert_eq!(
            (device.list_entries, device.max_message_bytes, device.message_unit_bytes),
            (77, 16 << 20, 1)
        );
        assert_eq!((name_in(&device.name_bytes()), device.has(FEATURE_LISTS)), (Some("match"), true));
        let device = infos[0].config;
        assert_eq!((device.list_entries, device.max_message_bytes, device.message_unit_bytes), (0, 64, 8));
        assert_eq!((name_in(&device.name_bytes()), device.features), (Some("ultra"), FEATURE_SLICES));
    }

    #[test]
    fn grim_card_reports_its_push_sizes_to_drivers() {
        let mut of_grim = config();
        let nic = &mut of_grim.nodes[0].nic;
        nic.model = NicModel::named("grim").unwrap();
        nic.set("channels", Value::Number(4)).unwrap();
        nic.set("payload_bytes_per_channel", Value::Number(192 << 10)).unwrap();
        nic.set("first_segment_bytes", Value::Number(100)).unwrap();
        let reported =
            |info: &NodeInfo| (info.config.channel_payload_bytes, info.config.channel_segment_bytes);
        let (_, infos) = build(&of_grim, 2).unwrap();
        assert_eq!((reported(&infos[0]), reported(&infos[1])), ((192 << 10, 100), (0, 0)));
        assert_eq!(infos[0].config.max_message_bytes, 48 << 10);
    }

    #[test]
    fn error_names_the_invalid_node_or_count() {
        let mut bad = config();
        bad.nodes[1].nic.set("fifo_words_per_port", Value::Numbers(vec![1; 8])).unwrap();
        let error = build(&bad, 2).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("node1") && error.contains("FIFO"), "{error}");
        bad.nodes.clear();
        assert!(matches!(build(&bad, 2), Err(ConfigError::Nodes(0))));
    }
}
