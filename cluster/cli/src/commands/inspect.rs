//! `niclab inspect`: a cluster's nodes, their health and their counters.

use std::path::Path;

use anyhow::Result;
use niclab_cluster::{
    daemon::monitor::{self, MonitorError},
    output::table,
    report::text::device_text,
    supervisor::control::Status,
};
use niclab_spec::monitor::{DaemonHealth, DaemonStats};
use serde::Serialize;

use super::{status_of, terminal};
use crate::arguments::InspectArgs;

/// The state of the daemon.
#[derive(Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
enum DaemonState {
    /// The daemon serves the guests.
    Answers {
        /// Wall time until the daemon's monitor got the global lock.
        wall_waited_ns: u64,
    },
    /// The daemon answers, but serves no guest.
    Stuck {
        /// Wall time for which the global lock has been held, at least.
        wall_held_ms: u128,
    },
    /// The daemon does not answer.
    Silent {
        /// The error of the request.
        error: String,
    },
}

impl DaemonState {
    fn of(socket: &Path) -> Self {
        match monitor::heartbeat(socket) {
            Ok(heartbeat) => Self::Answers { wall_waited_ns: heartbeat.wall_waited_ns },
            Err(MonitorError::Stuck { wall_held }) => Self::Stuck { wall_held_ms: wall_held.as_millis() },
            Err(error) => Self::Silent { error: error.to_string() },
        }
    }

    /// Why no node is healthy, even if its guest's agent says that it is.
    const fn trouble(&self) -> Option<&'static str> {
        match self {
            Self::Answers { .. } => None,
            Self::Stuck { .. } => Some("the daemon is stuck"),
            Self::Silent { .. } => Some("the daemon does not answer"),
        }
    }
}

#[derive(Serialize)]
struct Inspection {
    #[serde(flatten)]
    status: Status,
    daemon: DaemonState,
    connections: Option<DaemonHealth>,
    device: Option<DaemonStats>,
}

/// Prints the state. The code is 1 if a node is not healthy, or the daemon does not serve the guests.
///
/// # Errors
/// When there is no such cluster.
pub fn run(args: &InspectArgs) -> Result<u8> {
    let status = status_of(&args.name.name)?;
    let socket = &status.monitor_socket;
    let daemon = DaemonState::of(socket);
    let report = |error| log::warn!("{error}");
    // A stuck daemon would fail each of these after a timeout, too.
    let asked = daemon.trouble().is_none().then_some(socket);
    let connections = asked.and_then(|socket| monitor::health(socket).map_err(report).ok());
    let device = asked.and_then(|socket| monitor::stats(socket).map_err(report).ok());
    let is_healthy = |node: &niclab_cluster::supervisor::control::NodeStatus| {
        node.health.as_ref().is_ok_and(niclab_agent::Health::is_healthy)
    };
    let code = u8::from(daemon.trouble().is_some() || !status.nodes.iter().all(is_healthy));
    let inspection = Inspection { status, daemon, connections, device };
    terminal::print(&if args.json { serde_json::to_string_pretty(&inspection)? } else { text(&inspection) })?;
    Ok(code)
}

fn text(inspection: &Inspection) -> String {
    let status = &inspection.status;
    let mut rows =
        vec![["node", "address", "mac", "pid", "health", "interrupts (guest)"].map(str::to_owned).to_vec()];
    for node in &status.nodes {
        let (health, interrupts) = match &node.health {
            Ok(health) if health.is_healthy() => {
                (inspection.daemon.trouble().unwrap_or("healthy").to_owned(), health.interrupts)
            }
            Ok(health) => (health.to_string(), health.interrupts),
            Err(error) => (error.clone(), None),
        };
        rows.push(vec![
            node.name.clone(),
            node.address.to_string(),
            node.mac.to_string(),
            node.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
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
    let after = "`niclab logs daemon` shows its messages, and `niclab down` ends the cluster";
    match &inspection.daemon {
        DaemonState::Answers { .. } => {}
        DaemonState::Stuck { wall_held_ms } => {
            let held_s = *wall_held_ms as f64 / 1e3;
            text += &format!(
                "\nthe daemon is STUCK: its global lock has been held for at least {held_s:.1} s, so it serves no \
                 guest; {after}\n"
            );
        }
        DaemonState::Silent { error } => text += &format!("\nthe daemon is SILENT: {error}; {after}\n"),
    }
    if let Some(device) = &inspection.device {
        text += "\n";
        text += &device_text(device);
    }
    text
}
