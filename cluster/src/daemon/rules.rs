//! Reports broken rules while a cluster runs, and stops the guest if the user asked for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    thread,
};

use niclab_spec::{
    RuleChecking,
    monitor::{Answer, BrokenRules, Request, STATS_VERSION},
    report::{BrokenRule, NodeFigures},
    rules,
};

use super::monitor::{self, MonitorError};
use crate::{
    guests::{
        processors::whereabouts,
        qmp::{Qmp, QmpError},
    },
    plan::{NodePlan, Plan},
};

/// Waits until more than `seen` rules were broken since the daemon started, or a time-out; returns them all.
///
/// # Errors
/// [`MonitorError`].
pub fn await_broken(socket: &Path, seen: u64) -> Result<BrokenRules, MonitorError> {
    match monitor::ask(socket, &Request::AwaitBrokenRules { seen })? {
        Answer::BrokenRules(broken) if broken.version == STATS_VERSION => Ok(broken),
        _ => Err(MonitorError::Unexpected),
    }
}

/// Reports broken rules on a thread of its own, until the daemon ends.
pub fn follow(plan: &Plan) {
    if !plan.rules.is_on() {
        return;
    }
    let plan = plan.clone();
    thread::spawn(move || {
        let mut follower = Follower::default();
        let mut seen = 0;
        // Ends with the daemon.
        while let Ok(broken) = await_broken(&plan.monitor_socket, seen) {
            seen = broken.total;
            follower.report(&plan, &broken);
        }
    });
}

/// What has been reported so far.
#[derive(Default)]
struct Follower {
    /// The number of the last reported entry, by node.
    reported: BTreeMap<String, u64>,
    stopped: BTreeSet<String>,
    /// Node and rule whose first entry has the guest's position.
    placed: BTreeSet<(String, String)>,
}

impl Follower {
    fn report(&mut self, plan: &Plan, broken: &BrokenRules) {
        for of_node in &broken.nodes {
            let Some(node) = plan.node(&of_node.name) else { continue };
            let last = self.reported.entry(node.name.clone()).or_insert(0);
            let new: Vec<&BrokenRule> =
                of_node.broken_rule_log.iter().filter(|entry| entry.number > *last).collect();
            *last = new.last().map_or(*last, |entry| entry.number);
            let Some(first) = new.first() else { continue };
            // Stop the guest first: a debugger does not see what it does until then.
            let stops = plan.rules == RuleChecking::Stop && self.stopped.insert(node.name.clone());
            if stops {
                eprintln!("{}", stopped_text(plan, node, first, &stop(node)));
            }
            let is_new = |entry: &&&BrokenRule| self.placed.insert((node.name.clone(), entry.rule.clone()));
            let unplaced: Vec<u64> = new.iter().filter(is_new).map(|entry| entry.number).collect();
            let place =
                if unplaced.is_empty() { None } else { place(node, self.stopped.contains(&node.name)) };
            for entry in new {
                let guest_at = place.clone().filter(|_| unplaced.contains(&entry.number));
                if let Some(guest_at) = guest_at.clone() {
                    let (node, number) = (node.name.clone(), entry.number);
                    // If the daemon is gone, so is its report.
                    let _ = monitor::ask(
                        &plan.monitor_socket,
                        &Request::PlaceBrokenRule { node, number, guest_at },
                    );
                }
                let entry = BrokenRule { guest_at, ..entry.clone() };
                eprintln!("niclab: {}", broken_text(&node.name, &entry));
            }
        }
    }
}

fn stop(node: &NodePlan) -> Result<(), QmpError> {
    Qmp::connect(&node.qmp_socket)?.stop()
}

/// The guest's position now. The rule was broken an unknown time earlier.
fn place(node: &NodePlan, is_stopped: bool) -> Option<String> {
    let place = Qmp::connect(&node.qmp_socket).and_then(|mut qemu| whereabouts(&mut qemu, node));
    let how = if is_stopped { "stopped a moment later" } else { "a moment later" };
    place
        .map(|place| format!("{how}, {place}"))
        .map_err(|error| log::warn!("cannot determine where {} is: {error}", node.name))
        .ok()
}

fn stopped_text(plan: &Plan, node: &NodePlan, first: &BrokenRule, stopped: &Result<(), QmpError>) -> String {
    let (name, node, rule) = (&plan.name, &node.name, &first.rule);
    match stopped {
        Ok(()) => format!(
            "niclab: {node} broke the rule {rule} and is stopped there; `niclab debug --name {name} {node}` opens a \
             debugger, which can resume it; until then other nodes wait for it (Ctrl-C ends a run, `niclab down` a \
             cluster that is up)"
        ),
        Err(error) => format!("niclab: {node} broke the rule {rule}, but cannot be stopped: {error}"),
    }
}

/// One broken rule on a line.
#[must_use]
pub fn broken_text(node: &str, entry: &BrokenRule) -> String {
    let BrokenRule { rule, section, seen, .. } = entry;
    let port = entry.port.map(|port| format!(", port {port}")).unwrap_or_default();
    let place = entry.guest_at.as_ref().map(|place| format!("; the guest, {place}")).unwrap_or_default();
    format!("{node}{port}: broken rule {rule} (DEVICE.md, chapter {section}): {seen}{place}")
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// The rules that these nodes broke, each with its fix; empty if there are none.
#[must_use]
pub fn broken_rules_text(nodes: &[NodeFigures]) -> String {
    let mut text = String::new();
    for node in nodes {
        for (name, count) in &node.broken_rules {
            let Some(entry) = node.broken_rule_log.iter().find(|entry| entry.rule == *name) else {
                text += &format!("{}: broken rule {name}, {}\n", node.name, times(*count));
                continue;
            };
            text += &format!("{}\n", broken_text(&node.name, entry));
            text += &format!("  {} in all\n", times(*count));
            if !entry.operations.is_empty() {
                text += &format!("  before it: {}\n", entry.operations.join("; "));
            }
            if let Some(rule) = rules::rule(name) {
                text += &format!("  fix: {} See `niclab rules {name}`.\n", rule.fix);
            }
        }
    }
    text
}

/// The broken rules, or how many were checked without one broken; empty if rules are off.
#[must_use]
pub fn rules_text(nodes: &[NodeFigures]) -> String {
    let broken = broken_rules_text(nodes);
    let checked = nodes.iter().map(|node| node.rules_checked).max().unwrap_or(0);
    if broken.is_empty() && checked > 0 {
        return format!(
            "rules: {checked} of the manual's rules were checked on every node, and none was broken\n"
        );
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_run_says_that_rules_were_checked() {
        let node = |broken: &[(&str, u64)], rules_checked| NodeFigures {
            broken_rules: broken.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            rules_checked,
            ..NodeFigures::new("node0")
        };
        let clean = rules_text(&[node(&[], 55), node(&[], 55)]);
        assert_eq!(
            clean,
            "rules: 55 of the manual's rules were checked on every node, and none was broken\n"
        );
        assert_eq!(rules_text(&[node(&[], 0)]), "", "rules are off");
        let broken = rules_text(&[node(&[("launch-doorbell", 1)], 55)]);
        assert!(broken.contains("launch-doorbell") && !broken.contains("none was broken"), "{broken}");
    }

    #[test]
    fn broken_rule_is_reported_with_place_proof_and_fix() {
        let entry = BrokenRule {
            number: 1,
            rule: "launch-doorbell".into(),
            section: 5,
            port: Some(3),
            seen: "no doorbell".into(),
            guest_at: Some("stopped a moment later, processor 0 near f+0x1: f at a.c:7".into()),
            operations: vec!["port 3: post 1, code 0x40".into()],
            ..BrokenRule::default()
        };
        let node = NodeFigures {
            broken_rules: [("launch-doorbell".to_owned(), 2), ("of-another-build".to_owned(), 1)].into(),
            broken_rule_log: vec![entry],
            ..NodeFigures::new("node0")
        };
        let text = broken_rules_text(&[NodeFigures::new("node1"), node]);
        for part in [
            "node0, port 3: broken rule launch-doorbell (DEVICE.md, chapter 5): no doorbell; the guest, stopped a \
             moment later, processor 0 near f+0x1: f at a.c:7\n  2 times in all\n",
            "  before it: port 3: post 1, code 0x40\n",
            "See `niclab rules launch-doorbell`.",
            "node0: broken rule of-another-build, once\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("node1"), "{text}");
    }
}
