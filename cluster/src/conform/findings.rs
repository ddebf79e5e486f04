//! What others than the command see of a driver: the device, whose rules it broke, and kernels that watch.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use niclab_spec::{monitor::DaemonStats, report::NodeFigures};

use crate::{
    boot::running::{Event, Failure, RunningCluster},
    daemon::monitor,
    debug_kernel,
};

use super::{
    case::{self, Kind},
    traffic::{Moment, Traffic},
    verdict::Named,
};

/// How long events may wait for a buffer once the command is over, and nothing else keeps the guest from its driver's
/// interrupt.
const EVENTS_LEFT: Duration = Duration::from_secs(10);

/// Between two readings of how many wait.
const EVENTS_INTERVAL: Duration = Duration::from_millis(50);

/// The rule of a driver that keeps event buffers. The card cannot tell it from one that is late: only the end of the
/// command can.
const BUFFERS_BACK: &str = "event-buffers-back";

/// What was found in a cluster since it was started, the sharpest first. A daemon that does not answer knows of
/// nothing; guests that do not have what they said looked at.
pub fn of(running: &mut RunningCluster, is_answering: bool) -> Vec<Named> {
    let mut named = rules(running, is_answering);
    let asked = if is_answering { debug_kernel::look(running).ok() } else { None };
    named.extend(kernels(asked.unwrap_or_else(|| debug_kernel::look_at_consoles(running.plan()))));
    named
}

/// What can be seen without asking guests, which takes no time where nothing is wrong.
pub fn seen(running: &mut RunningCluster, is_answering: bool) -> Vec<Named> {
    let mut named = rules(running, is_answering);
    named.extend(kernels(debug_kernel::look_at_consoles(running.plan())));
    named
}

/// What the nodes' kernels say that they have found, where they watch.
///
/// # Errors
/// The cluster ended meanwhile.
pub fn asked(running: &mut RunningCluster) -> Result<Vec<Named>, Failure> {
    match debug_kernel::look(running) {
        Ok(watched) => Ok(kernels(watched)),
        Err(error) => {
            let failure = error.downcast::<Failure>();
            failure.map_or_else(|_| Ok(kernels(debug_kernel::look_at_consoles(running.plan()))), Err)
        }
    }
}

/// What the nodes' kernels have found.
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

/// What the daemon counted since it was started, at all nodes together.
#[derive(Debug, Default)]
pub struct Activity {
    /// What the cards did for their drivers.
    pub traffic: Traffic,
    /// How often each kind of adversarial behaviour happened.
    pub adversarial: BTreeMap<String, u64>,
    /// How often each fault of the device happened.
    pub faults: BTreeMap<String, u64>,
}

/// What the daemon counted. One that does not answer has counted nothing.
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
    /// Why a case that saw this has tried nothing, if that is so.
    #[must_use]
    pub fn not_exercised(&self, kind: Kind, moments: &[Moment]) -> Option<String> {
        if self.traffic.is_none() {
            return Some(
                "the cards passed no message and gave no event: does the command use the driver?".to_owned(),
            );
        }
        if let Some(first) = moments.first().filter(|_| moments.iter().all(|moment| moment.traffic.is_none()))
        {
            return Some(format!(
                "no message and no event came between the start of the command and any {}",
                first.what
            ));
        }
        let Kind::Fault(number) = kind else { return None };
        let key = case::fault_key(number);
        let count = self.faults.get(key).copied().unwrap_or(0);
        (count == 0)
            .then(|| format!("the fault `{key}` never happened: the card has had no opportunity for it"))
    }
}

fn stats(running: &RunningCluster) -> Option<DaemonStats> {
    monitor::stats(&running.plan().monitor_socket).map_err(|error| log::warn!("{error}")).ok()
}

/// The rules that the nodes broke. `is_answering`: the guests are well, so that it is their drivers' doing where events
/// are left.
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

/// Drivers that left their cards without a buffer for an event, and did not come to give one though the command was
/// over.
fn events_left(running: &mut RunningCluster, stats: &DaemonStats) -> Vec<Named> {
    let limit = EVENTS_LEFT * running.plan().timeout_factor;
    let deadline = Instant::now() + limit;
    let mut nodes: Vec<NodeFigures> = stats.nodes.clone();
    loop {
        nodes.retain(|node| node.events_waiting > 0);
        if nodes.is_empty() {
            return Vec::new();
        }
        if Instant::now() >= deadline {
            break;
        }
        // A cluster that ends meanwhile is told of by the command's own end.
        match running.next_event(Instant::now() + EVENTS_INTERVAL) {
            Ok(Some(Event::Healthy(rank, agent))) => running.adopt(rank, agent),
            Ok(_) => {}
            Err(_) => return Vec::new(),
        }
        nodes = self::stats(running).map_or_else(Vec::new, |stats| stats.nodes);
    }
    let of_node = |node: NodeFigures| Named::Rule {
        said: format!(
            "{} events waited {} s after the end of the command, and the driver gave no buffer for them",
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
    fn a_case_without_traffic_before_any_moment_tried_nothing() {
        let idle = Activity::default();
        assert!(idle.not_exercised(Kind::Plain, &[]).is_some_and(|why| why.contains("no message")));
        let traffic = Traffic { messages_sent: 5, ..Traffic::default() };
        let busy = Activity { traffic, ..Activity::default() };
        assert_eq!(busy.not_exercised(Kind::Plain, &[]), None);
        let before_any = busy.not_exercised(Kind::Rebind, &[moment(0), moment(0)]);
        assert!(before_any.is_some_and(|why| why.ends_with("any unbind")));
        assert_eq!(busy.not_exercised(Kind::Rebind, &[moment(0), moment(1)]), None);
    }

    #[test]
    fn a_fault_that_never_happened_is_not_passed() {
        let traffic = Traffic { messages_sent: 5, ..Traffic::default() };
        let mut busy = Activity { traffic, ..Activity::default() };
        let kind = Kind::named("stale").unwrap();
        assert!(busy.not_exercised(kind, &[]).is_some_and(|why| why.contains("`stale`")));
        busy.faults.insert("stale".to_owned(), 1);
        assert_eq!(busy.not_exercised(kind, &[]), None);
    }
}
