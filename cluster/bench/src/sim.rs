//! The simulator: `niclab-sim bench`, over rising numbers of nodes.

use anyhow::Result;
use niclab_cluster::programs;
use niclab_images::Terminal;
use serde_json::Value;

use super::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
    program,
};

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
    let simulator = programs::locate(programs::SIMULATOR, options.cluster.offline, &Terminal::new())?;
    let arguments = ["bench", "--json"];
    let table = program::json(&simulator, &arguments)?;
    let figures =
        figures(&table).ok_or_else(|| program::unreadable(&simulator, &arguments, "a row of 1,024 nodes"))?;
    Ok(Measured { figures, details: Some(table), ..Measured::default() })
}

/// The figures of the row with [`NODES`] nodes, for which there are goals, and what all rows say of growth.
fn figures(table: &Value) -> Option<Vec<Figure>> {
    let rows = table.get("rows")?.as_array()?;
    let row = rows.iter().find(|row| row.get("nodes").and_then(Value::as_u64) == Some(NODES))?;
    let number = |key: &str, scale: f64| row.get(key)?.as_f64().map(|value| value * scale);
    let rate = vec![number("events_per_wall_s", 1e-6)?];
    let memory = vec![number("peak_bytes", 1.0 / f64::from(1 << 30))?];
    let what = "1,024 nodes, 8 partners each, one core, ledger on";
    let mut figures = vec![
        Figure::new("sim_event_rate", what, Clock::Wall, "M events/s", rate).with_goal(RATE_GOAL),
        Figure::new("sim_peak_memory", what, Clock::None, "GiB", memory).with_goal(MEMORY_GOAL),
    ];
    figures.extend(rows.iter().filter_map(growth).flatten());
    Some(figures)
}

/// How many events a row had, how long each took, and how time and memory have grown over n log n since the first row.
fn growth(row: &Value) -> Option<[Figure; 4]> {
    let nodes = row.get("nodes")?.as_u64()?;
    let number = |key: &str| row.get(key).and_then(Value::as_f64);
    let figure = |key: &str, what: &str, clock: Clock, unit: &str, value: f64| {
        Figure::new(
            &format!("sim_{key}_{nodes}"),
            &format!("{nodes} nodes: {what}"),
            clock,
            unit,
            vec![value],
        )
    };
    let over = "over events * log2(events), 16 nodes = 1";
    let (time, memory) = (format!("wall time {over}"), format!("memory {over}"));
    Some([
        figure("events", "events", Clock::None, "M events", number("events")? * 1e-6),
        figure("event_ns", "each event", Clock::Wall, "ns", 1e9 / number("events_per_wall_s")?.max(1.0)),
        figure("time_growth", &time, Clock::Wall, "times", number("wall_over_n_log_n")?),
        figure("memory_growth", &memory, Clock::None, "times", number("memory_over_n_log_n")?),
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
        assert_eq!(found.len(), 2, "rows without growth say nothing of it");
        assert!(figures(&json!({"rows": [{"nodes": 16}]})).is_none());
    }

    #[test]
    fn each_row_says_how_time_and_memory_grow() {
        let row = json!({
            "nodes": 64, "events": 2_000_000, "events_per_wall_s": 4_000_000,
            "wall_over_n_log_n": 1.25, "memory_over_n_log_n": 0.5,
        });
        let found = growth(&row).unwrap();
        let medians: Vec<f64> = found.iter().map(|figure| figure.median).collect();
        assert_eq!(medians, [2.0, 250.0, 1.25, 0.5]);
        assert_eq!((found[2].name.as_str(), found[2].clock), ("sim_time_growth_64", Clock::Wall));
    }
}
