//! `niclab fault`: sets and shows the faults of the links and NICs of a running cluster.

use anyhow::{Context, Result, bail};
use niclab_cluster::{
    daemon::monitor,
    guests::qmp::Qmp,
    output::table,
    plan::{NodePlan, Plan},
};
use niclab_spec::{
    DeviceFaults, DeviceFaultsChange, FaultValue, Faults, FaultsChange, LinkFault,
    monitor::{LinkState, LinkStates},
};

use super::{plan_of, terminal};
use crate::arguments::FaultArgs;

/// Changes or shows the faults.
///
/// # Errors
/// When there is no such cluster or node, or the guest's carrier cannot be changed.
pub fn run(args: &FaultArgs) -> Result<u8> {
    let plan = plan_of(&args.name.name)?;
    let node = args.node.as_deref().map(|name| node_of(&plan, name)).transpose()?;
    let device = device_change(&args.device)?;
    if let Some(node) = node.filter(|_| args.heal) {
        monitor::set_device_faults(&plan.monitor_socket, &node.name, DeviceFaults::default())?;
    } else if let Some(node) = node.filter(|_| !device.is_empty()) {
        monitor::change_device_faults(&plan.monitor_socket, &node.name, device)?;
    }
    let mut states = match (node, change(args)) {
        (Some(node), Some(change)) => apply(&plan, node, change)?,
        _ => monitor::faults(&plan.monitor_socket)?,
    };
    states.nodes.retain(|state| node.is_none_or(|node| node.name == state.name));
    terminal::print(&if args.json { serde_json::to_string_pretty(&states)? } else { text(&states) })?;
    Ok(0)
}

/// The changes to a NIC's faults from the `--device` options. The daemon applies them to the current faults, so two
/// concurrent commands both take effect.
fn device_change(changes: &[String]) -> Result<DeviceFaultsChange> {
    let mut all = DeviceFaultsChange::new();
    for change in changes {
        let (key, value) = change
            .split_once('=')
            .with_context(|| format!("--device {change}: write KEY=VALUE, such as stale=0.01"))?;
        let value = serde_json::from_str(value).with_context(|| {
            format!("--device {change}: the value is a number, or a list of numbers such as [3,7]")
        })?;
        all.insert(key.to_owned(), value);
        // Invalid keys and values fail before anything changes.
        if let Err(error) = DeviceFaults::default().changed(&all) {
            bail!("--device {change}: {error}");
        }
    }
    Ok(all)
}

fn node_of<'a>(plan: &'a Plan, name: &str) -> Result<&'a NodePlan> {
    let Some(node) = plan.node(name) else {
        let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        bail!("there is no node `{name}`; the nodes are {}", names.join(", "));
    };
    Ok(node)
}

/// The link faults to change; `None` if the command only shows links.
fn change(args: &FaultArgs) -> Option<FaultsChange> {
    if args.heal {
        return Some(FaultsChange::to(&Faults::default()));
    }
    Some(args.link.0).filter(|change| *change != FaultsChange::default())
}

/// Changes the link. If the change cuts or reconnects the link, changes the guest's carrier, too.
fn apply(plan: &Plan, node: &NodePlan, change: FaultsChange) -> Result<LinkStates> {
    let Some(partition) = change.partition else {
        return Ok(monitor::change_faults(&plan.monitor_socket, &node.name, change)?);
    };
    // QMP serves one client at a time, so this connection is also a lock. Without it, two concurrent commands that cut
    // and reconnect a link could leave the carrier in the wrong state.
    let mut qemu = Qmp::connect(&node.qmp_socket).with_context(|| {
        format!(
            "the link of {} was not changed: niclab cannot reach QEMU to change the guest's carrier with it",
            node.name
        )
    })?;
    let states = monitor::change_faults(&plan.monitor_socket, &node.name, change)?;
    qemu.set_carrier(!partition).with_context(|| {
        let done = if partition { "cut" } else { "reconnected" };
        format!("the link of {} is {done}, but the guest's carrier does not show it", node.name)
    })?;
    Ok(states)
}

fn text(states: &LinkStates) -> String {
    let faults = shown_as_values().map(|fault| fault.heading);
    let heading = ["node", "link"].into_iter().chain(faults).chain(["frames so far"]);
    let mut rows = vec![heading.map(str::to_owned).collect()];
    rows.extend(states.nodes.iter().map(row));
    let devices = states.nodes.iter().filter(|state| !state.device_faults.is_none());
    let devices: Vec<String> = devices
        .map(|state| format!("NIC of {}: {}\n", state.name, device_text(&state.device_faults)))
        .collect();
    format!("{}{}", table(&rows), devices.concat())
}

/// The faults of a NIC that are enabled.
fn device_text(faults: &DeviceFaults) -> String {
    let mut parts = Vec::new();
    for rate in faults.rates() {
        if rate.chance > 0.0 {
            parts.push(format!("{} {}", rate.key, rate.chance));
        }
        if !rate.at.is_empty() {
            parts.push(format!("{}_at {:?}", rate.key, rate.at));
        }
    }
    if faults.delay > 0.0 || !faults.delay_at.is_empty() {
        parts.push(format!("delay_ns {} (model time)", faults.delay_ns));
    }
    parts.join(", ")
}

/// The faults that have a column of their own. The column `link` shows whether the link is cut.
fn shown_as_values() -> impl Iterator<Item = &'static LinkFault> {
    Faults::TABLE.iter().filter(|fault| !matches!((fault.value)(&Faults::default()), FaultValue::Switch(_)))
}

fn row(state: &LinkState) -> Vec<String> {
    let events = state.link_events.iter().filter(|(_, count)| **count > 0);
    let events: Vec<String> = events.map(|(name, count)| format!("{name} {count}")).collect();
    let link = if state.faults.partition { "cut" } else { "intact" };
    let mut row = vec![state.name.clone(), link.to_owned()];
    row.extend(shown_as_values().map(|fault| match (fault.value)(&state.faults) {
        // A small probability would have many zeros.
        FaultValue::Probability(value) if value != 0.0 && value < 1e-4 => format!("{value:e}"),
        FaultValue::Probability(value) => value.to_string(),
        FaultValue::DelayNs(value) => value.to_string(),
        FaultValue::Switch(value) => value.to_string(),
    }));
    row.push(if events.is_empty() { "none dropped or changed".to_owned() } else { events.join(", ") });
    row
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Cli, Command};

    fn parsed(line: &str) -> Result<FaultArgs, String> {
        let words = ["niclab", "fault"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Fault(args) => Ok(args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn only_the_link_faults_that_are_given_change() {
        let of = |line| change(&parsed(line).unwrap());
        let with = |change| Some(change);
        assert_eq!(
            of("node0 --loss 0.25 --delay-ns 7"),
            with(FaultsChange { loss: Some(0.25), delay_ns: Some(7), ..FaultsChange::default() })
        );
        assert_eq!(
            of("node0 --bit-errors 1e-10"),
            with(FaultsChange { bit_errors: Some(1e-10), ..FaultsChange::default() })
        );
        let cut = |cut| Some(FaultsChange { partition: Some(cut), ..FaultsChange::default() });
        assert_eq!((of("node0 --partition"), of("node0 --partition=false")), (cut(true), cut(false)));
        for shown in ["", "node0", "--show", "node0 --show"] {
            assert_eq!(of(shown), None, "{shown}");
        }
        let before =
            Faults { loss: 1.0, bit_errors: 1e-9, delay_ns: 9, partition: true, ..Faults::default() };
        assert_eq!(before.changed(&of("node0 --heal").unwrap()), Faults::default());
    }

    #[test]
    fn only_the_device_faults_that_are_given_change() {
        let before = DeviceFaults { stale: 0.5, short_at: vec![3], ..DeviceFaults::default() };
        let args = parsed("node0 --device stale=0 --device delay_at=[1,2] --device delay_ns=7").unwrap();
        let expected = DeviceFaults { stale: 0.0, delay_at: vec![1, 2], delay_ns: 7, ..before.clone() };
        assert_eq!(before.changed(&device_change(&args.device).unwrap()), Ok(expected));
        assert_eq!(change(&args), None, "the link stays as it is");
        for (wrong, part) in
            [("stale", "KEY=VALUE"), ("stale=x", "[3,7]"), ("bald=1", "bald"), ("stale_at=1", "stale_at=1")]
        {
            let error = format!("{:#}", device_change(&[wrong.to_owned()]).unwrap_err());
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }

    #[test]
    fn invalid_value_is_refused_with_the_name_of_its_option() {
        for (line, part) in [
            ("node0 --loss 1.5", "--loss"),
            ("node0 --corrupt NaN", "--corrupt"),
            ("node0 --bit-errors 2", "--bit-errors"),
            ("node0 --reorder=-0.1", "from 0 to 1"),
            ("node0 --delay-ns 1000000001", "--delay-ns"),
            ("--loss 0.5", "NODE"),
            ("node0 --heal --loss 0.5", "--heal"),
            ("node0 --show --partition", "--show"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn table_shows_faults_and_their_frame_counts() {
        let faults =
            Faults { loss: 0.25, bit_errors: 1e-10, delay_ns: 100, partition: true, ..Faults::default() };
        let events = [("dropped_down".to_owned(), 3), ("lost".to_owned(), 0)].into();
        let device_faults = DeviceFaults { stale: 0.5, short_at: vec![3, 7], ..DeviceFaults::default() };
        let cut = LinkState { name: "node1".into(), faults, link_events: events, device_faults };
        let whole = LinkState { name: "node0".into(), ..LinkState::default() };
        let text = text(&LinkStates { version: 1, nodes: vec![whole, cut] });
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[1][..8], ["node0", "intact", "0", "0", "0", "0", "0", "0"]);
        assert_eq!(words[2], ["node1", "cut", "0.25", "0", "0", "0", "1e-10", "100", "dropped_down", "3"]);
        assert_eq!(text.lines().nth(3), Some("NIC of node1: stale 0.5, short_at [3, 7]"));
        assert_eq!(text.lines().count(), 4, "a NIC without faults is not mentioned");
    }
}
