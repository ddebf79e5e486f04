//! How fast the simulator carries the card's packets, with every component at work: acknowledgements, order, packets
//! that go again.

use anyhow::Result;
use niclab_spec::{Faults, SimConfig, WorkloadKind};

use super::{configuration, with};
use crate::{figure::Goal, sim::Load};

/// As many as a header with four bits for a node can name.
const NODES: u32 = 16;
const LOSS: f64 = 0.01;
/// Millions of packets for each second of a core's time.
const GOAL: Goal = Goal::AtLeast(0.5);

/// Everybody sends to everybody over links that lose: messages of a packet, and of three full ones.
pub(super) const LOADS: &[Load] = &[
    Load {
        name: "inic_conf4_64",
        what: "INIC, CONF4, 16 nodes, all to all, 64 bytes a message, 1 % of all frames lost",
        goal: GOAL,
        config: || config(64, 200),
    },
    Load {
        name: "inic_conf4_4096",
        what: "the same with 4,096 bytes a message",
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
    fn every_link_loses_and_every_node_sends_to_every_other() {
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
