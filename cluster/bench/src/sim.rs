//! The simulator: runs `niclab-sim bench`, with increasing numbers of nodes, and with the loads of models.

use std::{io::Write as _, path::Path};

use anyhow::{Context, Result, bail};
use niclab_cluster::programs;
use niclab_images::Terminal;
use niclab_spec::SimConfig;
use serde::Deserialize;
use serde_json::Value;
use tempfile::NamedTempFile;

use super::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
    program,
};

/// The number of nodes for the goals.
const NODES: u64 = 1_024;
/// Minimum rate of events on one core, in millions per second.
const RATE_GOAL: Goal = Goal::AtLeast(1.0);
/// Minimum speed-up of two threads over one.
const THREADS_GOAL: Goal = Goal::AtLeast(1.7);
/// Maximum memory, in GiB.
const MEMORY_GOAL: Goal = Goal::Below(2.0);

/// A simulation for the measurement of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The end of its figures' names.
    pub name: &'static str,
    /// The load in words.
    pub what: &'static str,
    /// Millions of frames per second of a core's time.
    pub goal: Goal,
    /// The simulation.
    pub config: fn() -> Result<SimConfig>,
}

/// The output of `niclab-sim bench --config`.
#[derive(Debug, Deserialize)]
struct Speed {
    frames: u64,
    events: u64,
    frames_per_processor_s: Vec<f64>,
    events_per_processor_s: Vec<f64>,
    failed_checks: Vec<String>,
}

/// Runs the benchmark.
///
/// # Errors
/// When the program cannot be found or built, fails, or prints something else, or a check of a load fails.
pub(crate) fn measure(options: &Options, loads: impl Iterator<Item = &'static Load>) -> Result<Measured> {
    let simulator = programs::locate(programs::SIMULATOR, options.cluster.offline, &Terminal::new())?;
    let arguments = ["bench", "--json"];
    let table = program::json(&simulator, &arguments)?;
    let mut figures =
        figures(&table).ok_or_else(|| program::unreadable(&simulator, &arguments, "a row of 1,024 nodes"))?;
    let mut details = table;
    for load in loads {
        let measured = speed(&simulator, load, options.rounds)?;
        figures.extend(load.figures(&Speed::deserialize(&measured)?)?);
        details[load.name] = measured;
    }
    Ok(Measured { figures, details: Some(details), ..Measured::default() })
}

fn speed(simulator: &Path, load: &Load, rounds: usize) -> Result<Value> {
    let mut file = NamedTempFile::new().context("cannot make a temporary file")?;
    file.write_all(&serde_json::to_vec(&(load.config)()?)?)?;
    let (path, rounds) = (file.path().display().to_string(), rounds.to_string());
    Ok(program::json(simulator, &["bench", "--json", "--config", &path, "--rounds", &rounds])?)
}

impl Load {
    /// Retransmissions and frames with only an acknowledgement count as frames, too.
    fn figures(&self, speed: &Speed) -> Result<[Figure; 4]> {
        if let Some(failed) = speed.failed_checks.first() {
            bail!("{}: {failed}", self.what);
        }
        let figure = |key: &str, what: &str, clock: Clock, unit: &str, samples: Vec<f64>| {
            let (name, what) = (format!("sim_{key}_{}", self.name), format!("{}: {what}", self.what));
            Figure::new(&name, &what, clock, unit, samples)
        };
        let millions = |rates: &[f64]| rates.iter().map(|rate| rate * 1e-6).collect();
        let (frames, events) = (&speed.frames_per_processor_s, &speed.events_per_processor_s);
        let per_frame = speed.events as f64 / (speed.frames as f64).max(1.0);
        Ok([
            figure("frames", "frames", Clock::None, "frames", vec![speed.frames as f64]),
            figure(
                "frame_rate",
                "delivered per second of a core's time",
                Clock::Wall,
                "M frames/s",
                millions(frames),
            )
            .with_goal(self.goal),
            figure("event_rate", "per second of a core's time", Clock::Wall, "M events/s", millions(events)),
            figure("events_per_frame", "events per frame", Clock::None, "events", vec![per_frame]),
        ])
    }
}

/// The figures of the row with [`NODES`] nodes, which have goals, and the growth in all rows.
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
    figures.extend(rows.iter().filter(|row| threads_of(row) == 1).filter_map(growth).flatten());
    figures.extend(rows.windows(2).filter_map(speed_up));
    Some(figures)
}

fn threads_of(row: &Value) -> u64 {
    row.get("threads").and_then(Value::as_u64).unwrap_or(1)
}

/// The speed-up of a row with two threads over the row before, with one.
fn speed_up(rows: &[Value]) -> Option<Figure> {
    let [one, two] = rows else { return None };
    let nodes = |row: &Value| row.get("nodes")?.as_u64();
    let rate = |row: &Value| row.get("events_per_wall_s")?.as_f64();
    if nodes(one)? != nodes(two)? || (threads_of(one), threads_of(two)) != (1, 2) {
        return None;
    }
    let nodes = nodes(one)?;
    let (name, what) = (format!("sim_two_threads_{nodes}"), format!("{nodes} nodes: two threads over one"));
    let times = vec![rate(two)? / rate(one)?.max(1.0)];
    Some(Figure::new(&name, &what, Clock::Wall, "times", times).with_goal(THREADS_GOAL))
}

/// The number of events of a row, the time of each, and the growth of time and memory over n log n since the first row.
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
        figure("event_ns", "time per event", Clock::Wall, "ns", 1e9 / number("events_per_wall_s")?.max(1.0)),
        figure("time_growth", &time, Clock::Wall, "times", number("wall_over_n_log_n")?),
        figure("memory_growth", &memory, Clock::None, "times", number("memory_over_n_log_n")?),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn row_with_the_number_of_nodes_of_the_goals_gives_figures() {
        let table = json!({"rows": [
            {"nodes": 16},
            {"nodes": 1024, "events_per_wall_s": 2_000_000, "peak_bytes": 1 << 29}
        ]});
        let found = figures(&table).unwrap();
        assert_eq!((found[0].median, found[0].reached), (2.0, Some(true)));
        assert_eq!((found[1].median, found[1].reached), (0.5, Some(true)));
        assert_eq!(found.len(), 2, "rows without growth have no such figures");
        assert!(figures(&json!({"rows": [{"nodes": 16}]})).is_none());
    }

    #[test]
    fn row_of_two_threads_is_compared_with_the_row_before() {
        let row =
            |nodes, threads, rate| json!({"nodes": nodes, "threads": threads, "events_per_wall_s": rate});
        let rows = [row(16, 1, 9), row(1_024, 1, 2_000_000), row(1_024, 2, 3_000_000), row(4_096, 1, 1)];
        let found: Vec<Figure> = rows.windows(2).filter_map(speed_up).collect();
        assert_eq!(
            found.iter().map(|figure| (&*figure.name, figure.median)).collect::<Vec<_>>(),
            [("sim_two_threads_1024", 1.5)]
        );
    }

    #[test]
    fn each_row_has_growth_of_time_and_memory() {
        let row = json!({
            "nodes": 64, "events": 2_000_000, "events_per_wall_s": 4_000_000,
            "wall_over_n_log_n": 1.25, "memory_over_n_log_n": 0.5,
        });
        let found = growth(&row).unwrap();
        let medians: Vec<f64> = found.iter().map(|figure| figure.median).collect();
        assert_eq!(medians, [2.0, 250.0, 1.25, 0.5]);
        assert_eq!((found[2].name.as_str(), found[2].clock), ("sim_time_growth_64", Clock::Wall));
    }

    #[test]
    fn load_has_a_goal_and_fails_if_a_check_fails() {
        let load = crate::models::loads().next().unwrap();
        let speed = |failed: &[&str]| Speed {
            frames: 1_000,
            events: 4_000,
            frames_per_processor_s: vec![400_000.0, 600_000.0, 700_000.0],
            events_per_processor_s: vec![2e6; 3],
            failed_checks: failed.iter().map(|check| (*check).to_owned()).collect(),
        };
        let found = load.figures(&speed(&[])).unwrap();
        assert_eq!((found[1].median, found[1].reached), (0.6, Some(true)));
        assert_eq!(found.map(|figure| figure.median), [1_000.0, 0.6, 2.0, 4.0]);
        assert!(load.figures(&speed(&["drained: 3 left"])).unwrap_err().to_string().contains("3 left"));
        assert_eq!(load.goal, Goal::AtLeast(0.5));
    }
}
