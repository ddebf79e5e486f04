//! File descriptors: how many the daemon of a cluster needs, and the limit of this process.
//!
//! The kernel passes a message's descriptors to the receiver only up to the receiver's limit, and drops the others
//! without an error. So vhost-user connections of a daemon at its limit break without a visible cause. The launcher
//! therefore counts descriptors before it boots anything.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// Descriptors of the daemon that belong to no node: standard streams, sockets, event descriptors of its own threads,
/// the monitor's connections, and the files of observers.
pub const DAEMON_BASE: u64 = 64;

/// Descriptors of the daemon for each node: two listeners, two connections, and for each function its epoll, its
/// events, the kick and call events of its queues, the BAR, and up to four regions of the guest's memory.
pub const DAEMON_PER_NODE: u64 = 44;

/// Descriptors of the daemon for each node whose Ethernet function has several queue pairs: the relay's listener and
/// connections.
const RELAY: u64 = 3;

/// Descriptors of the daemon for each queue pair of a node but the first: two kick and two call events.
const DAEMON_PER_QUEUE_PAIR: u64 = 4;

/// Descriptors of the daemon for a node whose Ethernet function has `queue_pairs` pairs, beyond [`DAEMON_PER_NODE`].
#[must_use]
pub const fn of_queue_pairs(queue_pairs: u32) -> u64 {
    match queue_pairs {
        0 | 1 => 0,
        several => RELAY + DAEMON_PER_QUEUE_PAIR * (several as u64 - 1),
    }
}

/// Maximum number of descriptors of a cluster's daemon. `queue_pairs` has the number of queue pairs of each node.
#[must_use]
pub fn needed_by_daemon(queue_pairs: impl Iterator<Item = u32>) -> u64 {
    queue_pairs.map(|pairs| DAEMON_PER_NODE + of_queue_pairs(pairs)).fold(DAEMON_BASE, u64::saturating_add)
}

/// The number of nodes with one queue pair that fit within a limit.
#[must_use]
pub const fn nodes_within(limit: u64) -> u64 {
    limit.saturating_sub(DAEMON_BASE) / DAEMON_PER_NODE
}

/// Raises this process's soft limit of open files to its hard limit, and returns the resulting limit. Most users have a
/// soft limit of 1,024, for programs that call `select`; niclab's programs do not.
///
/// # Errors
/// When the kernel refuses. The old limit stays.
pub fn raise_limit() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(hard_limit())
}

/// This process's hard limit of open files: the maximum for its own soft limit and for that of its children.
#[must_use]
pub fn hard_limit() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// A cluster needs more descriptors than its daemon may open.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "a cluster of {nodes} nodes needs up to {needed} open files in its daemon, and the hard limit is {limit} \
     (`ulimit -Hn`), enough for {fit} nodes with one queue pair each; take fewer nodes or `queues`, or raise the \
     hard limit (`nofile` in /etc/security/limits.conf, LimitNOFILE= of a systemd unit, --ulimit nofile= of a \
     container)"
)]
pub struct TooFewDescriptors {
    /// Nodes of the cluster.
    pub nodes: u64,
    /// Descriptors that its daemon needs.
    pub needed: u64,
    /// The hard limit.
    pub limit: u64,
    /// Nodes with one queue pair that the limit allows.
    pub fit: u64,
}

/// Checks that the daemon of a cluster can open all its descriptors under this hard limit. `queue_pairs` has the number
/// of queue pairs of each node.
///
/// # Errors
/// [`TooFewDescriptors`].
pub fn check(queue_pairs: impl ExactSizeIterator<Item = u32>, limit: u64) -> Result<(), TooFewDescriptors> {
    let nodes = queue_pairs.len() as u64;
    let needed = needed_by_daemon(queue_pairs);
    if needed <= limit {
        return Ok(());
    }
    Err(TooFewDescriptors { nodes, needed, limit, fit: nodes_within(limit) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_passes_exactly_up_to_the_nodes_that_fit() {
        let check_of = |nodes: u64, limit| check(std::iter::repeat_n(1, nodes as usize), limit);
        for limit in [0, 40, 108, 150, 1024, 524_288] {
            let fit = nodes_within(limit);
            if limit >= DAEMON_BASE {
                assert_eq!(check_of(fit, limit), Ok(()), "{limit}");
            }
            let refused = check_of(fit + 1, limit).unwrap_err();
            assert_eq!((refused.limit, refused.fit), (limit, fit));
        }
        assert_eq!(check_of(1_000_000, u64::MAX), Ok(()));
        let refused = check_of(28, 1024).unwrap_err().to_string();
        assert!(refused.contains("28 nodes") && refused.contains("enough for 21 nodes"), "{refused}");
    }

    #[test]
    fn queue_pairs_beyond_the_first_are_counted() {
        let needed = DAEMON_BASE + 3 * DAEMON_PER_NODE + 3 + 4 + 3 + 28;
        assert_eq!(needed_by_daemon([1, 2, 8].into_iter()), needed);
        assert_eq!(check([1, 2, 8].into_iter(), needed), Ok(()));
        assert_eq!(check([1, 2, 9].into_iter(), needed).unwrap_err().needed, needed + 4);
    }

    #[test]
    fn soft_limit_is_raised_to_the_hard_one() {
        let limit = raise_limit().unwrap();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!((current, current.unwrap_or(u64::MAX)), (maximum, limit));
    }
}
