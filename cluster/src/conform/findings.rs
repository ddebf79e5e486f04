//! What others than the command see of a driver: the device, whose rules it broke, and kernels that watch.

use std::collections::BTreeMap;

use crate::{
    boot::running::{Failure, RunningCluster},
    daemon::monitor,
    watching,
};

use super::verdict::Named;

/// What was found in a cluster since it was started, the sharpest first. A daemon that does not answer knows of nothing; guests that
/// do not have what they said looked at.
pub fn of(running: &mut RunningCluster, is_answering: bool) -> Vec<Named> {
    let mut named = rules(running);
    let asked = if is_answering { watching::look(running).ok() } else { None };
    named.extend(kernels(asked.unwrap_or_else(|| watching::look_at_consoles(running.plan()))));
    named
}

/// What can be seen without asking guests, which takes no time.
pub fn seen(running: &RunningCluster) -> Vec<Named> {
    let mut named = rules(running);
    named.extend(kernels(watching::look_at_consoles(running.plan())));
    named
}

/// What the nodes' kernels say that they have found, where they watch.
///
/// # Errors
/// The cluster ended meanwhile.
pub fn asked(running: &mut RunningCluster) -> Result<Vec<Named>, Failure> {
    match watching::look(running) {
        Ok(watched) => Ok(kernels(watched)),
        Err(error) => {
            let failure = error.downcast::<Failure>();
            failure.map_or_else(|_| Ok(kernels(watching::look_at_consoles(running.plan()))), Err)
        }
    }
}

/// What the nodes' kernels have found.
fn kernels(watched: Vec<watching::Watched>) -> Vec<Named> {
    let of_node = |watched: watching::Watched| {
        let node = watched.node;
        watched.findings.into_iter().map(move |finding| Named::Kernel {
            node: node.clone(),
            kind: finding.kind,
            what: finding.title,
            function: finding.function,
            said: finding.text,
            seeds: None,
        })
    };
    watched.into_iter().flat_map(of_node).collect()
}

/// How often each kind of unkindness happened since the cluster was started, at all nodes together.
pub fn unkind(running: &RunningCluster) -> BTreeMap<String, u64> {
    let stats = monitor::stats(&running.plan().monitor_socket).map_err(|error| log::warn!("{error}"));
    let mut sums = BTreeMap::new();
    for (kind, count) in stats.into_iter().flat_map(|stats| stats.nodes).flat_map(|node| node.unkind) {
        let sum: &mut u64 = sums.entry(kind).or_default();
        *sum = sum.wrapping_add(count);
    }
    sums
}

/// The rules that the nodes broke.
fn rules(running: &RunningCluster) -> Vec<Named> {
    let stats = monitor::stats(&running.plan().monitor_socket).map_err(|error| log::warn!("{error}"));
    let nodes = stats.map_or_else(|()| Vec::new(), |stats| stats.nodes);
    let mut named = Vec::new();
    for node in &nodes {
        for (rule, &count) in &node.broken_rules {
            let first = node.broken_rule_log.iter().find(|entry| entry.rule == *rule);
            let said = first.map(|entry| {
                let at = entry.guest_at.as_ref().map_or_else(String::new, |at| format!(", at {at}"));
                format!("{}{at}", entry.seen)
            });
            let (node, rule) = (node.name.clone(), rule.clone());
            named.push(Named::Rule { node, rule, count, said: said.unwrap_or_default() });
        }
    }
    named
}
