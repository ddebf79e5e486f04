//! File descriptors: how many the daemon of a cluster needs, and the limit of this process.
//!
//! The kernel hands a message's descriptors over only as far as the receiver's limit allows, and drops the others without
//! an error. A daemon at its limit therefore breaks vhost-user connections in ways that name no cause, so the launcher
//! counts before it boots anything.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// Descriptors of the daemon that belong to no node: standard streams, sockets, event descriptors of its own threads, the
/// monitor's connections, and the files of observers.
pub const DAEMON_BASE: u64 = 64;

/// Descriptors of the daemon for each node: two listeners, two connections, and for each function its epoll, its events,
/// the kick and call events of its queues, the BAR, and up to four regions of the guest's memory.
pub const DAEMON_PER_NODE: u64 = 44;

/// Descriptors that the daemon of a cluster of so many nodes needs at most.
#[must_use]
pub const fn needed_by_daemon(nodes: u64) -> u64 {
    DAEMON_BASE + DAEMON_PER_NODE * nodes
}

/// The number of nodes that fit under a limit of so many descriptors.
#[must_use]
pub const fn nodes_within(limit: u64) -> u64 {
    limit.saturating_sub(DAEMON_BASE) / DAEMON_PER_NODE
}

/// Raises this process's soft limit of open files to its hard limit, and returns the limit that holds then. The kernel
/// gives most users a soft limit of 1,024 for the sake of programs that call `select`, which none of ours does.
///
/// # Errors
/// When the kernel refuses. The old limit holds then.
pub fn raise_limit() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(hard_limit())
}

/// This process's hard limit of open files, the most that it and its children can raise their soft limit to.
#[must_use]
pub fn hard_limit() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// A cluster needs more descriptors than its daemon may open.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "a cluster of {nodes} nodes needs up to {needed} open files in its daemon, and the hard limit is {limit} \
     (`ulimit -Hn`), enough for {fit} nodes; take fewer nodes, or raise the hard limit (`nofile` in \
     /etc/security/limits.conf, LimitNOFILE= of a systemd unit, --ulimit nofile= of a container)"
)]
pub struct TooFewDescriptors {
    /// Nodes of the cluster.
    pub nodes: u64,
    /// Descriptors that its daemon needs.
    pub needed: u64,
    /// The hard limit.
    pub limit: u64,
    /// Nodes that the limit allows.
    pub fit: u64,
}

/// Checks that the daemon of a cluster of so many nodes can open all that it needs under this hard limit.
///
/// # Errors
/// [`TooFewDescriptors`].
pub const fn check(nodes: u64, limit: u64) -> Result<(), TooFewDescriptors> {
    let needed = needed_by_daemon(nodes);
    if needed <= limit {
        return Ok(());
    }
    Err(TooFewDescriptors { nodes, needed, limit, fit: nodes_within(limit) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_nodes_that_fit_pass_the_check() {
        for limit in [0, 40, 108, 150, 1024, 524_288, u64::MAX] {
            let fit = nodes_within(limit);
            if limit >= DAEMON_BASE {
                assert_eq!(check(fit, limit), Ok(()), "{limit}");
            }
            if limit < u64::MAX {
                let refused = check(fit + 1, limit).unwrap_err();
                assert_eq!((refused.limit, refused.fit), (limit, fit));
            }
        }
        let refused = check(28, 1024).unwrap_err().to_string();
        assert!(refused.contains("28 nodes") && refused.contains("enough for 21 nodes"), "{refused}");
    }

    #[test]
    fn soft_limit_is_raised_to_the_hard_one() {
        let limit = raise_limit().unwrap();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!((current, current.unwrap_or(u64::MAX)), (maximum, limit));
    }
}
