//! The simulator: `niclab-sim bench`, over rising numbers of nodes.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use niclab_images::Terminal;
use serde_json::Value;

use super::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
};
use crate::{process::die_with_owner, tools};

/// The number of nodes that goals are for.
const NODES: u64 = 1_024;
/// Least events a second on one core, in millions.
const RATE_GOAL: Goal = Goal::AtLeast(1.0);
/// Most memory, in GiB.
const MEMORY_GOAL: Goal = Goal::Below(2.0);

/// Runs it.
///
/// # Errors
/// When the program cannot be found or built, fails, or prints something else.
pub fn measure(options: &Options) -> Result<Measured> {
    let program = tools::locate_simulator(options.cluster.offline, &Terminal::new())?;
    let mut command = Command::new(&program);
    command.args(["bench", "--json"]).stdin(Stdio::null()).stderr(Stdio::piped());
    die_with_owner(&mut command);
    let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{} bench failed ({}): {}", program.display(), output.status, stderr.trim());
    }
    let table: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{} bench printed no JSON", program.display()))?;
    let figures = figures(&table).with_context(|| {
        format!(
            "{} bench printed no row of {NODES} nodes; build niclab and niclab-sim together",
            program.display()
        )
    })?;
    Ok(Measured { figures, details: Some(table) })
}

/// The figures of the row with [`NODES`] nodes.
fn figures(table: &Value) -> Option<Vec<Figure>> {
    let rows = table.get("rows")?.as_array()?;
    let row = rows.iter().find(|row| row.get("nodes").and_then(Value::as_u64) == Some(NODES))?;
    let number = |key: &str, scale: f64| row.get(key)?.as_f64().map(|value| value * scale);
    let rate = vec![number("events_per_wall_s", 1e-6)?];
    let memory = vec![number("peak_bytes", 1.0 / f64::from(1 << 30))?];
    let what = "1,024 ULTRA nodes, 8 partners each, one core, ledger on";
    Some(vec![
        Figure::new("sim_event_rate", what, Clock::Wall, "M events/s", rate).with_goal(RATE_GOAL),
        Figure::new("sim_peak_memory", what, Clock::None, "GiB", memory).with_goal(MEMORY_GOAL),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_row_of_the_goals_becomes_figures() {
        let table = json!({"rows": [{"nodes": 16}, {"nodes": 1024, "events_per_wall_s": 2_000_000, "peak_bytes": 1 << 29}]});
        let found = figures(&table).unwrap();
        assert_eq!((found[0].median, found[0].reached), (2.0, Some(true)));
        assert_eq!((found[1].median, found[1].reached), (0.5, Some(true)));
        assert!(figures(&json!({"rows": [{"nodes": 16}]})).is_none());
    }
}
