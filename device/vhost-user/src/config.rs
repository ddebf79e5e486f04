//! From the launcher's configuration to a world of cards.

use niclab_abi::config::{DeviceConfig, MODEL_MATCH, MODEL_ULTRA};
use niclab_abi::{ABI_VERSION, MAGIC};
use niclab_assembly::CardError;
use niclab_model::fabric::link::LinkError;
use niclab_model::fabric::{Fabric, FabricConfig, Forwarding};
use niclab_model::parts::profile::Profile;
use niclab_model::time::Span;
use niclab_model::{matching, ultra};
use niclab_spec::NicModel;
use niclab_spec::daemon::{DaemonConfig, DaemonNode};
use thiserror::Error;

use crate::shell::NodeInfo;
use crate::shell::card::AnyNic;
use crate::shell::network::Network;
use crate::shell::pages::{Pages, PagesError};
use crate::shell::wait::Policy;
use crate::shell::world::World;

/// Longest time a control request may take, by which drivers know a dead device. Requests take microseconds; the rest is
/// for a host that is out of processors.
pub const CONTROL_TIMEOUT_MS: u32 = 5_000;

/// The configuration describes a cluster that cannot be.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A card's parameters.
    #[error("node {node}: {error}; correct the cluster file's [nic] table")]
    Nic {
        /// Host name.
        node: String,
        /// Why.
        #[source]
        error: CardError,
    },
    /// A link's parameters.
    #[error("{0}; correct the cluster file's [[link]] tables")]
    Link(#[from] LinkError),
    /// The node's pages.
    #[error(transparent)]
    Pages(#[from] PagesError),
    /// There are none, or more than an address can name.
    #[error("a cluster of {0} nodes; give 1 to 65535")]
    Nodes(usize),
}

/// Makes the world that `config` describes, on a host with `cores` cores.
///
/// # Errors
/// [`ConfigError`] names what cannot be.
pub fn build(config: &DaemonConfig, cores: usize) -> Result<(World, Vec<NodeInfo>), ConfigError> {
    let nodes = u16::try_from(config.nodes.len()).ok().filter(|nodes| *nodes > 0);
    let nodes = nodes.ok_or(ConfigError::Nodes(config.nodes.len()))?;
    let profile = niclab_assembly::profile(&config.profile);
    let mtu_bytes = niclab_assembly::least_mtu_bytes(config.nodes.iter().map(|node| &node.link));
    let mut cards = Vec::new();
    let mut infos = Vec::new();
    for (number, node) in (0..nodes).zip(&config.nodes) {
        let (nic, device) = card(node, number, nodes, mtu_bytes, profile)
            .map_err(|error| ConfigError::Nic { node: node.name.clone(), error })?;
        let ports = device.ports;
        let pages = Pages::new(ports)?;
        let device = DeviceConfig { bar_pages: (pages.bytes() / niclab_abi::PAGE_BYTES) as u32, ..device };
        cards.push((nic, pages, ports));
        let policy = Policy::choose(node.nic.wait, node.nic.poll_for_us, cores, config.nodes.len());
        infos.push(NodeInfo { name: node.name.clone(), config: device, policy });
    }
    let mut world = World::new(cards, profile, network(config, &profile)?, config.seed);
    for (number, node) in config.nodes.iter().enumerate() {
        world.set_device_faults(number, &node.device_faults);
    }
    Ok((world, infos))
}

/// The network of links and switch, with the faults that the configuration begins with.
fn network(config: &DaemonConfig, profile: &Profile) -> Result<Network, ConfigError> {
    let fabric = Fabric::new(&FabricConfig {
        links: config.nodes.iter().map(|node| niclab_assembly::link(&node.link)).collect(),
        // ULTRA's network is ATOLL's, which cuts through; Match's paper has none.
        forwarding: Forwarding::CutThrough,
        switch_fall_through: Span::from_ps(profile.network.switch_fall_through_ps),
        seed: config.seed,
    })?;
    let mut network = Network::new(fabric);
    for (number, node) in (0..).zip(&config.nodes) {
        network.set_faults(number, &node.link.faults);
    }
    Ok(network)
}

/// A node's model, and what its driver reads about it.
fn card(
    node: &DaemonNode,
    number: u16,
    nodes: u16,
    mtu_bytes: u32,
    profile: Profile,
) -> Result<(AnyNic, DeviceConfig), CardError> {
    let device = DeviceConfig {
        magic: MAGIC,
        abi_version: ABI_VERSION,
        node: number.into(),
        nodes: nodes.into(),
        control_timeout_ms: CONTROL_TIMEOUT_MS,
        mac: mac_word(node.mac.0),
        ..DeviceConfig::default()
    };
    match node.nic.model {
        NicModel::Ultra => {
            let config = niclab_assembly::ultra(&node.nic.ultra, number, nodes, profile);
            let device = DeviceConfig {
                model: MODEL_ULTRA,
                ports: ultra::config::PORTS as u32,
                max_slices: config.max_slices,
                authorizations: config.authorizations.into(),
                ..device
            };
            Ok((Box::new(ultra::Ultra::new(config)?), device))
        }
        NicModel::Match => {
            let config = niclab_assembly::matching(&node.nic.matching, number, nodes, mtu_bytes, profile);
            let device = DeviceConfig {
                model: MODEL_MATCH,
                ports: matching::config::PORTS as u32,
                max_slices: config.max_events,
                match_entries: config.match_entries,
                max_message_bytes: config.max_message_bytes,
                ..device
            };
            Ok((Box::new(matching::Match::new(config)?), device))
        }
    }
}

/// An Ethernet address as the configuration space holds it: first byte lowest.
fn mac_word([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

#[cfg(test)]
mod tests {
    use niclab_spec::{ClusterFile, ClusterName, Source};

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
        let (world, infos) = build(&config(), 2).unwrap();
        assert_eq!((world.cards.len(), infos.len()), (2, 2));
        let device = infos[1].config;
        assert_eq!((device.node, device.nodes, device.ports), (1, 2, 8));
        assert_eq!(device.mac.to_le_bytes()[..6], config().nodes[1].mac.0);
        assert!(device.bar_pages.is_power_of_two());
    }

    #[test]
    fn a_match_card_says_what_it_holds() {
        let mut of_match = config();
        of_match.nodes[1].nic.model = NicModel::Match;
        of_match.nodes[1].nic.matching.match_entries = 77;
        let (_, infos) = build(&of_match, 2).unwrap();
        let device = infos[1].config;
        assert_eq!(
            (device.model, device.match_entries, device.max_message_bytes),
            (MODEL_MATCH, 77, 16 << 20)
        );
        assert_eq!((infos[0].config.model, infos[0].config.match_entries), (MODEL_ULTRA, 0));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let mut bad = config();
        bad.nodes[1].nic.ultra.fifo_words_per_port = [1; 8];
        let error = build(&bad, 2).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("node1") && error.contains("FIFO"), "{error}");
        bad.nodes.clear();
        assert!(matches!(build(&bad, 2), Err(ConfigError::Nodes(0))));
    }
}
