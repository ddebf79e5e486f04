//! What one guest can do to all others: `niclab-device hostile`, in process and without QEMU.

use anyhow::Result;
use niclab_cluster::programs::Programs;
use niclab_images::Terminal;
use serde_json::Value;

use super::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
    program,
};

/// Milliseconds within which 99 of 100 requests are to be answered, whatever another guest does.
const P99_GOAL: Goal = Goal::Below(10.0);

/// Milliseconds within which every request is to be answered.
const MAX_GOAL: Goal = Goal::Below(100.0);

const ARGUMENTS: [&str; 2] = ["hostile", "--json"];

/// Runs it.
///
/// # Errors
/// [`program::ProgramError`], or when the program cannot be found or built.
pub fn measure(options: &Options) -> Result<Measured> {
    let device = Programs::locate(options.cluster.offline, &Terminal::new())?.device;
    let report = program::json(&device, &ARGUMENTS)?;
    let figures =
        figures(&report).ok_or_else(|| program::unreadable(&device, &ARGUMENTS, "a row for each attack"))?;
    Ok(Measured { figures, details: Some(report), ..Measured::default() })
}

/// For each attack the wait that 99 of 100 requests do not exceed, and the longest; the longest of a connection and of a request to
/// the monitor; and what 99 of 100 requests waited on the same cards when nobody attacked.
fn figures(report: &Value) -> Option<Vec<Figure>> {
    let rows = report.get("rows")?.as_array()?;
    Some(rows.iter().map(row).collect::<Option<Vec<_>>>()?.concat())
}

fn row(row: &Value) -> Option<[Figure; 5]> {
    let attack = row.get("attack")?.as_str()?;
    let name = attack.replace(' ', "_");
    let is_answered = row.get("failure")?.is_null();
    let wait = |key: &str, what: &str, ms: f64| {
        let what = format!("{attack}: {what}");
        Figure::new(&format!("hostile_{name}_{key}"), &what, Clock::Wall, "ms", vec![ms])
    };
    let figure = |key, what, pointer, goal| {
        // A request that was given up has no length.
        let ms = if is_answered { row.get(pointer)?.as_f64()? / 1e3 } else { f64::INFINITY };
        Some(wait(key, what, ms).with_goal(goal))
    };
    let control_ms = row.get("control")?.get("wall_p99_us")?.as_f64()? / 1e3;
    Some([
        figure("p99", "a bystander's request, p99", "wall_p99_us", P99_GOAL)?,
        figure("most", "the longest", "wall_most_us", MAX_GOAL)?,
        figure("connect", "the longest connection of another node", "wall_connect_most_us", MAX_GOAL)?,
        figure("monitor", "the longest request to the monitor", "wall_monitor_most_us", MAX_GOAL)?,
        wait("control_p99", "a request when nobody attacks, p99", control_ms),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_attack_that_silences_others_reaches_no_goal() {
        let row = |failure: Value| {
            json!({
                "attack": "a b", "wall_p99_us": 9_000.0, "wall_most_us": 100_001.0, "wall_connect_most_us": 99_000.0,
                "wall_monitor_most_us": 100_002.0, "failure": failure, "control": {"wall_p99_us": 5_000.0},
            })
        };
        let found = figures(&json!({"rows": [row(Value::Null), row(json!("gone"))]})).unwrap();
        let reached: Vec<_> = found.iter().map(|figure| figure.reached).collect();
        let [yes, no] = [Some(true), Some(false)];
        assert_eq!(reached, [yes, no, yes, no, None, no, no, no, no, None]);
        assert_eq!((found[0].name.as_str(), found[0].median), ("hostile_a_b_p99", 9.0));
        assert_eq!((found[4].name.as_str(), found[4].median), ("hostile_a_b_control_p99", 5.0));
        assert!(figures(&json!({"rows": [{"attack": "a"}]})).is_none());
    }
}
