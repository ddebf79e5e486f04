//! The boot stage of each node, and the time that each stage took.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// What a node waits for. Some stages exist for restored nodes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Its copy of the template's memory, or the daemon, whichever takes longer.
    Memory,
    /// QEMU, until it listens.
    Qemu,
    /// Its saved state, until the guest runs.
    State,
    /// Its card, until QEMU has plugged it in.
    Card,
    /// Its agent's answer. A guest that boots does so in this stage.
    Agent,
    /// Name, addresses and shared folder.
    Identity,
    /// Its drivers, until they are bound to the card.
    Nic,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 7] =
        [Self::Memory, Self::Qemu, Self::State, Self::Card, Self::Agent, Self::Identity, Self::Nic];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Qemu => "qemu",
            Self::State => "state",
            Self::Card => "card",
            Self::Agent => "agent",
            Self::Identity => "identity",
            Self::Nic => "nic",
        }
    }

    /// The words after "waits for".
    #[must_use]
    pub const fn waits_for(self) -> &'static str {
        match self {
            Self::Memory => "its memory to be copied, or the daemon",
            Self::Qemu => "QEMU to start",
            Self::State => "its state to be restored",
            Self::Card => "its card to be plugged in",
            Self::Agent => "its agent to answer",
            Self::Identity => "it to become a node",
            Self::Nic => "its NIC",
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// When each stage began.
    begun: Vec<(Stage, Instant)>,
    /// Details of the stage, if there are any.
    detail: String,
    healthy: Option<Instant>,
}

/// The progress of a cluster, shared by the threads that wait for nodes.
#[derive(Clone, Debug)]
pub struct BootProgress(Arc<Mutex<Vec<Node>>>);

impl BootProgress {
    /// Progress of `nodes` nodes, before their first stage.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![Node::default(); nodes])))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Node>> {
        // No thread panics while it holds the lock; if one did, the list would still be intact.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, rank: usize, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.lock().get_mut(rank) {
            change(node);
        }
    }

    /// A node enters a stage.
    pub fn begins(&self, rank: usize, stage: Stage) {
        self.with(rank, |node| {
            node.begun.push((stage, Instant::now()));
            node.detail.clear();
        });
    }

    /// Details from the node about its stage.
    pub fn says(&self, rank: usize, detail: String) {
        self.with(rank, |node| node.detail = detail);
    }

    /// A node is healthy.
    pub fn is_healthy(&self, rank: usize) {
        self.with(rank, |node| node.healthy = Some(Instant::now()));
    }

    /// What a node waits for, in words; `None` once it is healthy.
    #[must_use]
    pub fn waiting(&self, rank: usize) -> Option<String> {
        let nodes = self.lock();
        let node = nodes.get(rank).filter(|node| node.healthy.is_none())?;
        let stage = node.begun.last().map_or(Stage::Qemu, |(stage, _)| *stage);
        let detail = if node.detail.is_empty() { String::new() } else { format!(" ({})", node.detail) };
        Some(format!("{}{detail}", stage.waits_for()))
    }

    /// How long each node was in a stage, by rank, without the nodes that skipped it.
    #[must_use]
    pub fn took(&self, stage: Stage) -> Vec<Duration> {
        let took = |node: &Node| {
            let at = node.begun.iter().position(|(begun, _)| *begun == stage)?;
            let end = node.begun.get(at + 1).map(|(_, next)| *next).or(node.healthy)?;
            Some(end.duration_since(node.begun[at].1))
        };
        self.lock().iter().filter_map(took).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_fill_the_time_until_a_node_is_healthy() {
        let progress = BootProgress::new(2);
        let begin = Instant::now();
        progress.begins(1, Stage::Qemu);
        progress.begins(1, Stage::Agent);
        assert_eq!(progress.waiting(1).unwrap(), "its agent to answer");
        progress.begins(1, Stage::Nic);
        progress.says(1, "link down".to_owned());
        assert_eq!(progress.waiting(1).unwrap(), "its NIC (link down)");
        assert!(progress.took(Stage::Nic).is_empty(), "it has no end yet");
        progress.is_healthy(1);
        assert_eq!(progress.waiting(1), None);
        assert_eq!(progress.waiting(0).unwrap(), "QEMU to start");
        let stages = Stage::ALL.map(|stage| progress.took(stage));
        assert_eq!(stages.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 0, 0, 1, 0, 1]);
        assert!(stages.iter().flatten().sum::<Duration>() <= begin.elapsed());
    }
}
