//! The device in process: runs `niclab-device bench`, which uses the daemon's own code without QEMU.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::Result;
use niclab_cluster::programs::Programs;
use niclab_images::Terminal;
use serde_json::Value;
use thiserror::Error;

use super::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
    program,
};

/// Minimum ratio of frames per second to those of testpmd's vhost ports.
const TESTPMD_GOAL: Goal = Goal::AtLeast(1.0);

/// Names of the program in DPDK's packages.
const TESTPMD: [&str; 2] = ["dpdk-testpmd", "testpmd"];

/// The testpmd that the user named does not exist.
#[derive(Debug, Error)]
#[error("--testpmd: there is no {}; install the package dpdk-dev, or omit the option", .0.display())]
pub struct NoTestpmd(PathBuf);

/// Runs the benchmark.
///
/// # Errors
/// [`program::ProgramError`], [`NoTestpmd`], or when the program cannot be found or built.
pub(crate) fn measure(options: &Options, of_models: impl Iterator<Item = &'static Row>) -> Result<Measured> {
    let testpmd = testpmd(options.testpmd.as_deref(), &env::var_os("PATH").unwrap_or_default())?;
    let device = Programs::locate(options.cluster.offline, &Terminal::new())?.device;
    let rounds = options.rounds.max(1);
    let mut arguments = vec!["bench", "--json"];
    let path = testpmd.as_ref().map(|path| path.to_string_lossy());
    arguments.extend(path.iter().flat_map(|path| ["--testpmd", path.as_ref()]));
    let queues = options.cluster.queues.unwrap_or(1).to_string();
    arguments.extend(["--queues", &queues]);
    let reports: Vec<Value> =
        (0..rounds).map(|_| program::json(&device, &arguments)).collect::<Result<_, _>>()?;
    let figures =
        figures(&reports, of_models).map_err(|key| program::unreadable(&device, &arguments, key))?;
    let left_out = left_out(&reports, testpmd.is_some());
    Ok(Measured { figures, details: Some(Value::Array(reports)), left_out })
}

/// The testpmd to measure: the one that the user names, which must exist, or else the one in `PATH`, if any.
fn testpmd(named: Option<&Path>, path: &OsStr) -> Result<Option<PathBuf>, NoTestpmd> {
    match named {
        Some(named) if named.is_file() => Ok(Some(named.to_owned())),
        Some(named) => Err(NoTestpmd(named.to_owned())),
        None => {
            let mut places = env::split_paths(path).flat_map(|folder| TESTPMD.map(|name| folder.join(name)));
            Ok(places.find(|program| program.is_file()))
        }
    }
}

/// The rows that were omitted, and why.
fn left_out(reports: &[Value], has_testpmd: bool) -> Vec<String> {
    if !has_testpmd {
        return vec![format!(
            "testpmd: not found in PATH; install the package dpdk-dev, or give one with --testpmd ({})",
            TESTPMD.join(", ")
        )];
    }
    let why = reports.iter().find_map(|report| report.pointer("/testpmd_left_out")?.as_str());
    why.map(|why| format!("testpmd: {why}")).into_iter().collect()
}

/// A number in the program's report that is a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The figure's name.
    pub name: &'static str,
    /// The figure in words.
    pub what: &'static str,
    /// The unit, and the factor that converts the number to it.
    pub unit: (&'static str, f64),
    /// JSON pointer of the number in the report.
    pub pointer: &'static str,
    /// The goal.
    pub goal: Option<Goal>,
}

/// The Ethernet function's row; models have rows of their own.
const ETHERNET: Row = Row {
    name: "device_frame_rate",
    what: "Ethernet function, 64-byte frames in both directions, one core for both ends",
    unit: ("M frames/s", 1e-6),
    pointer: "/ethernet/wall_frames_per_s_each",
    goal: None,
};
const ETHERNET_TWO_CORES: Row = Row {
    name: "device_frame_rate_two_cores",
    what: "Ethernet function, 64-byte frames in both directions, a core for the device",
    pointer: "/ethernet_two_cores/wall_frames_per_s_each",
    ..ETHERNET
};
const TESTPMD_ROW: Row = Row {
    name: "testpmd_frame_rate",
    what: "testpmd's vhost ports, 64-byte frames in both directions, a core for testpmd",
    pointer: "/testpmd/wall_frames_per_s_each",
    ..ETHERNET
};

/// The figures in the reports, which are one for each round; or the key that a report lacks.
fn figures(
    reports: &[Value],
    of_models: impl Iterator<Item = &'static Row>,
) -> Result<Vec<Figure>, &'static str> {
    let rows = of_models.copied().chain([ETHERNET]);
    let mut figures = rows.map(|row| row.figure(reports)).collect::<Result<Vec<_>, _>>()?;
    let device = ETHERNET_TWO_CORES.figure(reports)?;
    let comparison = TESTPMD_ROW.figure(reports).map(|testpmd| {
        let what = "frame rate: Ethernet function over testpmd, one core each";
        let ratio = Figure::ratio("testpmd_ratio", what, &device, &testpmd).with_goal(TESTPMD_GOAL);
        [testpmd, ratio]
    });
    figures.push(device);
    // Without testpmd, the key is null.
    figures.extend(comparison.into_iter().flatten());
    Ok(figures)
}

impl Row {
    /// The figure, with a sample of each report; or the key that a report lacks.
    fn figure(&self, reports: &[Value]) -> Result<Figure, &'static str> {
        let (unit, scale) = self.unit;
        let number = |report: &Value| Some(report.pointer(self.pointer)?.as_f64()? * scale);
        let samples = reports.iter().map(number).collect::<Option<Vec<f64>>>().ok_or(self.pointer)?;
        let figure = Figure::new(self.name, self.what, Clock::Wall, unit, samples);
        Ok(match self.goal {
            Some(goal) => figure.with_goal(goal),
            None => figure,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::models::device_rows;

    #[test]
    fn reports_become_figures_and_a_missing_key_is_named() {
        let report = |one_way: u32, testpmd: Value| {
            json!({
                "ultra": {"wall_messages_per_s": 4e6, "wall_rate_ledger_on_over_off": 0.95,
                    "wall_one_way_p50_ns": one_way,
                    "wall_rate_two_pairs_over_one": 1.9, "wall_rate_two_pairs_over_apart": 1.0},
                "matching": {
                    "wall_one_way_p50_ns": 900,
                    "wall_bytes_per_s_mtu_9000": 5e9,
                    "wall_bytes_per_s_mtu_1500": 2e9,
                    "wall_bytes_per_s_memcpy": 11e9,
                },
                "ethernet": {"wall_frames_per_s_each": 3e6},
                "ethernet_two_cores": {"wall_frames_per_s_each": 2e6},
                "testpmd": testpmd,
            })
        };
        let reports = [1500, 300, 1200].map(|ns| report(ns, json!({"wall_frames_per_s_each": 4e6})));
        let found = figures(&reports, device_rows()).unwrap();
        let of = |name: &str| found.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!((of("device_message_rate").median, of("device_message_rate").reached), (4.0, Some(true)));
        assert_eq!((of("device_one_way").median, of("device_one_way").reached), (1200.0, Some(false)));
        assert_eq!((of("match_bandwidth_mtu_9000").median, of("match_one_way").median), (5.0, 900.0));
        assert_eq!((of("testpmd_ratio").median, of("testpmd_ratio").reached), (0.5, Some(false)));
        assert_eq!(
            figures(&[report(1, Value::Null)], device_rows()).unwrap().len(),
            11,
            "without testpmd there is no ratio"
        );
        assert_eq!(figures(&[json!({})], device_rows()).unwrap_err(), "/ultra/wall_messages_per_s");
    }

    #[test]
    fn without_testpmd_its_rows_are_omitted_with_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().as_os_str();
        assert_eq!(testpmd(None, path).unwrap(), None);
        let said = left_out(&[json!({})], false);
        assert!(said[0].contains("install the package dpdk"), "{said:?}");
        let missing = folder.path().join("dpdk-testpmd");
        let refused = testpmd(Some(&missing), path).unwrap_err().to_string();
        assert!(refused.contains("dpdk-testpmd; install"), "the testpmd that is given must exist: {refused}");
        std::fs::write(&missing, "").unwrap();
        assert_eq!(testpmd(None, path).unwrap(), Some(missing.clone()));
        assert_eq!(testpmd(Some(&missing), OsStr::new("")).unwrap(), Some(missing));
        let broken = json!({"testpmd_left_out": "it ended with 1"});
        assert_eq!(
            left_out(&[json!({"testpmd_left_out": null}), broken], true),
            ["testpmd: it ended with 1"]
        );
    }
}
