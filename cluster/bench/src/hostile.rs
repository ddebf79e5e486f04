//! Effects of one guest on all others: runs `niclab-device hostile`, in process and without QEMU.

use anyhow::Result;
use niclab_cluster::programs::Programs;
use niclab_images::Terminal;
use serde_json::Value;

use super::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
    program,
};

/// Limit of the 99th percentile of answer times during an attack, in milliseconds.
const P99_GOAL: Goal = Goal::Below(10.0);

/// Limit of all answer times during an attack, in milliseconds.
const MAX_GOAL: Goal = Goal::Below(100.0);

const ARGUMENTS: [&str; 2] = ["hostile", "--json"];

/// Runs the attacks.
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

/// For each attack, the 99th percentile and the maximum of the waiting times.
fn figures(report: &Value) -> Option<Vec<Figure>> {
    let rows = report.get("rows")?.as_array()?;
    Some(rows.iter().map(row).collect::<Option<Vec<_>>>()?.concat())
}

fn row(row: &Value) -> Option<[Figure; 2]> {
    let attack = row.get("attack")?.as_str()?;
    let name = attack.replace(' ', "_");
    let is_answered = row.get("failure")?.is_null();
    let figure = |key, what, pointer, goal| {
        // Without an answer there is no waiting time.
        let ms = if is_answered { row.get(pointer)?.as_f64()? / 1e3 } else { f64::INFINITY };
        let what = format!("{attack}: {what}");
        Some(
            Figure::new(&format!("hostile_{name}_{key}"), &what, Clock::Wall, "ms", vec![ms]).with_goal(goal),
        )
    };
    Some([
        figure("p99", "a bystander's request, p99", "wall_p99_us", P99_GOAL)?,
        figure("most", "the longest wait", "wall_most_us", MAX_GOAL)?,
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attack_without_an_answer_reaches_no_goal() {
        let row = |failure: Value| {
            json!({
                "attack": "a b", "wall_p99_us": 9_000.0, "wall_most_us": 100_001.0, "failure": failure
            })
        };
        let found = figures(&json!({"rows": [row(Value::Null), row(json!("gone"))]})).unwrap();
        let reached: Vec<_> = found.iter().map(|figure| figure.reached).collect();
        assert_eq!(reached, [Some(true), Some(false), Some(false), Some(false)]);
        assert_eq!((found[0].name.as_str(), found[0].median), ("hostile_a_b_p99", 9.0));
        assert!(figures(&json!({"rows": [{"attack": "a"}]})).is_none());
    }
}
