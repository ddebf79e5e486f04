//! Speed of the simulator with the card's packets, with all components in use: acknowledgements, reordering,
//! retransmission.

use anyhow::Result;
use niclab_spec::{Faults, SimConfig, WorkloadKind};

use super::{configuration, with};
use crate::{figure::Goal, sim::Load};

/// Maximum number of nodes for a header with four bits for a node.
const NODES: u32 = 16;
const LOSS: f64 = 0.01;
/// Minimum rate in millions of packets per second of a core's time.
const GOAL: Goal = Goal::AtLeast(0.5);

/// All nodes send to all others over links with losses: messages of one packet, and of three full ones.
pub(super) const LOADS: &[Load] = &[
    Load {
        name: "inic_conf4_64",
        what: "INIC, CONF4, 16 nodes, all to all, 64 bytes per message, 1 % of all frames lost",
        goal: GOAL,
        config: || config(64, 200),
    },
    Load {
        name: "inic_conf4_4096",
        what: "the same with 4,096 bytes per message",
        goal: GOAL,
        config: || config(4_096, 40),
    },
];

fn config(message_bytes: u32, count: u64) -> Result<SimConfig> {
    let mut config = configuration("pcie4-100g", "conf4", NODES, &[], message_bytes)?;
    for node in &mut config.nodes {
        node.link.faults = Faults { loss: LOSS, ..Faults::default() };
    }
    Ok(with(&config, WorkloadKind::AllToAll, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_loses_and_all_nodes_send_to_all() {
        for load in LOADS {
            let config = (load.config)().unwrap();
            assert_eq!(config.nodes.len(), 16);
            assert!(
                config
                    .nodes
                    .iter()
                    .all(|node| node.link.faults.loss == LOSS && node.nic.model.name == "inic")
            );
            assert_eq!(config.workload.problems(&config.workload_nodes()), Vec::new());
        }
    }
}
