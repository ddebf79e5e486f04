//! `niclab inspect`: a cluster's nodes, their health and their counters.

use anyhow::Result;
use niclab_spec::monitor::{DaemonHealth, DaemonStats};
use serde::Serialize;

use super::{status_of, terminal};
use crate::{cli::InspectArgs, control::Status, monitor, output::table, report::text::device_text};

#[derive(Serialize)]
struct Inspection {
    #[serde(flatten)]
    status: Status,
    connections: Option<DaemonHealth>,
    device: Option<DaemonStats>,
}

/// Prints it. The code is 1 if a node is not healthy.
///
/// # Errors
/// When there is no such cluster.
pub fn run(args: &InspectArgs) -> Result<u8> {
    let status = status_of(&args.name.name)?;
    let report = |error| log::warn!("{error}");
    let connections = monitor::health(&status.monitor_socket).map_err(report).ok();
    let device = monitor::stats(&status.monitor_socket).map_err(report).ok();
    let is_healthy =
        |node: &crate::control::NodeStatus| node.health.as_ref().is_ok_and(niclab_agent::Health::is_healthy);
    let code = u8::from(!status.nodes.iter().all(is_healthy));
    let inspection = Inspection { status, connections, device };
    terminal::print(&if args.json { serde_json::to_string_pretty(&inspection)? } else { text(&inspection) })?;
    Ok(code)
}

fn text(inspection: &Inspection) -> String {
    let status = &inspection.status;
    let mut rows =
        vec![["node", "address", "mac", "pid", "health", "interrupts (guest)"].map(str::to_owned).to_vec()];
    for node in &status.nodes {
        let (health, interrupts) = match &node.health {
            Ok(health) if health.is_healthy() => ("healthy".to_owned(), health.interrupts),
            Ok(health) => (health.to_string(), health.interrupts),
            Err(error) => (error.clone(), None),
        };
        rows.push(vec![
            node.name.clone(),
            node.address.to_string(),
            node.mac.to_string(),
            node.pid.to_string(),
            health,
            interrupts.map_or_else(|| "-".to_owned(), |count| count.to_string()),
        ]);
    }
    let mut text = format!(
        "cluster {}: NIC {}, accelerator {}, daemon pid {}, up for {} s (wall)\n\n{}",
        status.name,
        status.nic,
        status.accelerator,
        status.daemon_pid,
        status.wall_uptime_s,
        table(&rows)
    );
    if let Some(device) = &inspection.device {
        text += "\n";
        text += &device_text(device);
    }
    text
}
