//! Findings about a driver that come from elsewhere than the command: broken rules from the device, and debug kernels.

use std::{collections::BTreeMap, time::Duration};

use niclab_spec::{monitor::DaemonStats, report::NodeFigures};

use crate::host::deadline::Deadline;
use crate::{
    boot::running::{Event, Failure, RunningCluster},
    daemon::monitor,
    debug_kernel,
};

use super::{
    case::{self, CaseKind},
    traffic::{Moment, Traffic},
    verdict::Named,
};

/// Time limit for events that wait for a buffer after the end of the command. Nothing else then delays the driver's
/// interrupt handler.
const EVENTS_LEFT: Duration = Duration::from_secs(10);

/// Interval at which the number of waiting events is read.
const EVENTS_INTERVAL: Duration = Duration::from_millis(50);

/// The rule against keeping event buffers. The card cannot distinguish a driver that keeps them from a late one; only
/// the end of the command shows it.
const BUFFERS_BACK: &str = "event-buffers-back";

/// All findings in a cluster since its start, most specific first. Without an answer from the daemon there are no
/// broken rules. If the guests do not answer, their consoles are read instead.
pub fn of(running: &mut RunningCluster, is_answering: bool) -> Vec<Named> {
    let mut named = rules(running, is_answering);
    let asked = if is_answering { debug_kernel::look(running).ok() } else { None };
    named.extend(kernels(asked.unwrap_or_else(|| debug_kernel::look_at_consoles(running.plan()))));
    named
}

/// The findings that need no query to the guests. This takes no time if there are none.
pub fn seen(running: &mut RunningCluster, is_answering: bool) -> Vec<Named> {
    let mut named = rules(running, is_answering);
    named.extend(kernels(debug_kernel::look_at_consoles(running.plan())));
    named
}

/// The findings of the nodes' debug kernels.
///
/// # Errors
/// If the cluster ended meanwhile.
pub fn asked(running: &mut RunningCluster) -> Result<Vec<Named>, Failure> {
    match debug_kernel::look(running) {
        Ok(watched) => Ok(kernels(watched)),
        Err(error) => {
            let failure = error.downcast::<Failure>();
            failure.map_or_else(|_| Ok(kernels(debug_kernel::look_at_consoles(running.plan()))), Err)
        }
    }
}

/// The findings of the nodes' debug kernels.
fn kernels(watched: Vec<debug_kernel::KernelFindings>) -> Vec<Named> {
    let of_node = |watched: debug_kernel::KernelFindings| {
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

/// The daemon's counts since its start, summed over all nodes.
#[derive(Debug, Default)]
pub struct Activity {
    /// The messages and events of the cards.
    pub traffic: Traffic,
    /// How often each kind of adversarial behaviour happened.
    pub adversarial: BTreeMap<String, u64>,
    /// How often each fault of the device happened.
    pub faults: BTreeMap<String, u64>,
}

/// The daemon's counts; zero if it does not answer.
pub fn activity(running: &RunningCluster) -> Activity {
    let mut activity = Activity::default();
    for node in stats(running).into_iter().flat_map(|stats| stats.nodes) {
        activity.traffic = activity.traffic + Traffic::of(&node);
        add(&mut activity.adversarial, node.adversarial);
        add(&mut activity.faults, node.device_faults);
    }
    activity
}

fn add(sums: &mut BTreeMap<String, u64>, counts: BTreeMap<String, u64>) {
    for (kind, count) in counts {
        let sum = sums.entry(kind).or_default();
        *sum = sum.wrapping_add(count);
    }
}

impl Activity {
    /// Why a case with these counts exercised nothing, if that is so.
    #[must_use]
    pub fn not_exercised(&self, kind: CaseKind, moments: &[Moment]) -> Option<String> {
        if self.traffic.is_none() {
            return Some(
                "the cards transferred no message and raised no event: does the command use the driver?"
                    .to_owned(),
            );
        }
        if let Some(first) = moments.first().filter(|_| moments.iter().all(|moment| moment.traffic.is_none()))
        {
            return Some(format!(
                "no card transferred a message or raised an event between the start of the command and any {}",
                first.what
            ));
        }
        let CaseKind::Fault(number) = kind else { return None };
        let key = case::fault_key(number);
        let count = self.faults.get(key).copied().unwrap_or(0);
        (count == 0).then(|| format!("the fault `{key}` never happened: the card had no opportunity for it"))
    }
}

fn stats(running: &RunningCluster) -> Option<DaemonStats> {
    monitor::stats(&running.plan().monitor_socket).map_err(|error| log::warn!("{error}")).ok()
}

/// The rules that the nodes broke. `is_answering`: the guests work, so waiting events are their drivers' fault.
fn rules(running: &mut RunningCluster, is_answering: bool) -> Vec<Named> {
    let Some(stats) = stats(running) else { return Vec::new() };
    let mut named = Vec::new();
    for node in &stats.nodes {
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
    if is_answering {
        named.extend(events_left(running, &stats));
    }
    named
}

/// Drivers that left events without a buffer, and gave none after the command ended.
fn events_left(running: &mut RunningCluster, stats: &DaemonStats) -> Vec<Named> {
    let limit = EVENTS_LEFT * running.plan().timeout_factor;
    let deadline = Deadline::after(limit);
    let mut nodes: Vec<NodeFigures> = stats.nodes.clone();
    loop {
        nodes.retain(|node| node.events_waiting > 0);
        if nodes.is_empty() {
            return Vec::new();
        }
        if deadline.is_over() {
            break;
        }
        // The end of the cluster is reported elsewhere.
        match running.next_event(Deadline::after(EVENTS_INTERVAL)) {
            Ok(Some(Event::Healthy(rank, agent))) => running.adopt(rank, agent),
            Ok(_) => {}
            Err(_) => return Vec::new(),
        }
        nodes = self::stats(running).map_or_else(Vec::new, |stats| stats.nodes);
    }
    let of_node = |node: NodeFigures| Named::Rule {
        said: format!(
            "{} events waited for {} s after the end of the command, and the driver gave no buffer for them",
            node.events_waiting,
            limit.as_secs()
        ),
        node: node.name,
        rule: BUFFERS_BACK.to_owned(),
        count: node.events_waiting,
    };
    nodes.into_iter().map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(events: u64) -> Moment {
        let traffic = Traffic { events, ..Traffic::default() };
        Moment { what: "unbind", node: Some("node0".to_owned()), traffic }
    }

    #[test]
    fn case_without_traffic_before_any_moment_is_not_exercised() {
        let idle = Activity::default();
        assert!(idle.not_exercised(CaseKind::Plain, &[]).is_some_and(|why| why.contains("no message")));
        let traffic = Traffic { messages_sent: 5, ..Traffic::default() };
        let busy = Activity { traffic, ..Activity::default() };
        assert_eq!(busy.not_exercised(CaseKind::Plain, &[]), None);
        let before_any = busy.not_exercised(CaseKind::Rebind, &[moment(0), moment(0)]);
        assert!(before_any.is_some_and(|why| why.ends_with("any unbind")));
        assert_eq!(busy.not_exercised(CaseKind::Rebind, &[moment(0), moment(1)]), None);
    }

    #[test]
    fn fault_that_never_happened_is_not_exercised() {
        let traffic = Traffic { messages_sent: 5, ..Traffic::default() };
        let mut busy = Activity { traffic, ..Activity::default() };
        let kind = CaseKind::named("stale").unwrap();
        assert!(busy.not_exercised(kind, &[]).is_some_and(|why| why.contains("`stale`")));
        busy.faults.insert("stale".to_owned(), 1);
        assert_eq!(busy.not_exercised(kind, &[]), None);
    }
}
