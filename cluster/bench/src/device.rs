//! The device in process: `niclab-device bench`, which drives the daemon's own code with no QEMU.

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

/// Least messages of 16 bytes a second on one core, in millions.
const RATE_GOAL: Goal = Goal::AtLeast(3.0);

/// One way, in nanoseconds.
const ONE_WAY_GOAL: Goal = Goal::Below(1_000.0);

/// What is left of the message rate with ledgers.
const LEDGER_GOAL: Goal = Goal::AtLeast(0.9);

/// Long puts, in GB/s: what is asked for between two guests.
const MATCH_BANDWIDTH_GOAL: Goal = Goal::AtLeast(4.0);

/// Frames a second, as a part of what testpmd's vhost ports forward.
const TESTPMD_GOAL: Goal = Goal::AtLeast(0.25);

/// A round takes seconds and measures each figure for a whole one, so fewer of them do.
const MAX_ROUNDS: usize = 3;

/// What DPDK's packages call it.
const TESTPMD: [&str; 2] = ["dpdk-testpmd", "testpmd"];

/// The program to compare with is not there, though it was asked for.
#[derive(Debug, Error)]
#[error("--testpmd: there is no {}; install the package dpdk, or leave the option out", .0.display())]
pub struct NoTestpmd(PathBuf);

/// Runs it.
///
/// # Errors
/// [`program::ProgramError`], [`NoTestpmd`], or when the program cannot be found or built.
pub fn measure(options: &Options) -> Result<Measured> {
    let testpmd = testpmd(options.testpmd.as_deref(), &env::var_os("PATH").unwrap_or_default())?;
    let device = Programs::locate(options.cluster.offline, &Terminal::new())?.device;
    let rounds = options.rounds.clamp(1, MAX_ROUNDS);
    let mut arguments = vec!["bench", "--json"];
    let path = testpmd.as_ref().map(|path| path.to_string_lossy());
    arguments.extend(path.iter().flat_map(|path| ["--testpmd", path.as_ref()]));
    let reports: Vec<Value> =
        (0..rounds).map(|_| program::json(&device, &arguments)).collect::<Result<_, _>>()?;
    let figures = figures(&reports).map_err(|key| program::unreadable(&device, &arguments, key))?;
    let left_out = left_out(&reports, testpmd.is_some());
    Ok(Measured { figures, details: Some(Value::Array(reports)), left_out })
}

/// The testpmd that is measured: the one that is named, which must be there, else the one in `PATH`, if there is any.
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

/// Which rows are not there, and why.
fn left_out(reports: &[Value], has_testpmd: bool) -> Vec<String> {
    if !has_testpmd {
        return vec![format!(
            "testpmd: there is none in PATH; install the package dpdk, or name one with --testpmd ({})",
            TESTPMD.join(", ")
        )];
    }
    let why = reports.iter().find_map(|report| report.pointer("/testpmd_left_out")?.as_str());
    why.map(|why| format!("testpmd: {why}")).into_iter().collect()
}

/// The figures in its reports, one for each round, or the key that one of them lacks.
fn figures(reports: &[Value]) -> Result<Vec<Figure>, &'static str> {
    let figure = |name, what, scale, pointer| figure(reports, name, what, scale, pointer);
    let frames = ("M frames/s", 1e-6);
    let mut figures = vec![
        figure(
            "device_message_rate",
            "requester pages, 16 bytes, one core, ledger on",
            ("M messages/s", 1e-6),
            "/ultra/wall_messages_per_s",
        )?
        .with_goal(RATE_GOAL),
        figure(
            "device_ledger_rate",
            "message rate: ledger on over off, in turns",
            ("times", 1.0),
            "/ultra/wall_rate_ledger_on_over_off",
        )?
        .with_goal(LEDGER_GOAL),
        figure(
            "device_one_way",
            "requester pages, 16 bytes, p50 one way",
            ("ns", 1.0),
            "/ultra/wall_one_way_p50_ns",
        )?
        .with_goal(ONE_WAY_GOAL),
        figure(
            "device_frame_rate",
            "Ethernet function, 64-byte frames each way, one core for both ends",
            frames,
            "/ethernet/wall_frames_per_s_each",
        )?,
    ];
    figures.extend(match_figures(reports)?);
    let device = figure(
        "device_frame_rate_two_cores",
        "Ethernet function, 64-byte frames each way, a core for the device",
        frames,
        "/ethernet_two_cores/wall_frames_per_s_each",
    )?;
    let testpmd = figure(
        "testpmd_frame_rate",
        "testpmd's vhost ports, 64-byte frames each way, a core for testpmd",
        frames,
        "/testpmd/wall_frames_per_s_each",
    );
    let comparison = testpmd.map(|testpmd| {
        let what = "frame rate: Ethernet function over testpmd, a core each";
        let ratio = Figure::ratio("testpmd_ratio", what, &device, &testpmd).with_goal(TESTPMD_GOAL);
        [testpmd, ratio]
    });
    figures.push(device);
    // Without testpmd its key is null.
    figures.extend(comparison.into_iter().flatten());
    Ok(figures)
}

/// Those of the Match card.
fn match_figures(reports: &[Value]) -> Result<[Figure; 4], &'static str> {
    let figure = |name, what, scale, pointer| figure(reports, name, what, scale, pointer);
    Ok([
        figure(
            "match_one_way",
            "Match, puts of 64 bytes into a posted entry, p50 one way",
            ("ns", 1.0),
            "/matching/wall_one_way_p50_ns",
        )?,
        figure(
            "match_bandwidth_mtu_9000",
            "Match, puts of 1 MiB, one core for both ends, frames of 9,000 bytes",
            ("GB/s", 1e-9),
            "/matching/wall_bytes_per_s_mtu_9000",
        )?
        .with_goal(MATCH_BANDWIDTH_GOAL),
        figure(
            "match_bandwidth_mtu_1500",
            "the same with frames of 1,500 bytes",
            ("GB/s", 1e-9),
            "/matching/wall_bytes_per_s_mtu_1500",
        )?,
        figure(
            "memcpy_bandwidth",
            "the same memory copied once by memcpy, for comparison",
            ("GB/s", 1e-9),
            "/matching/wall_bytes_per_s_memcpy",
        )?,
    ])
}

/// One figure: unit and scale, and where it stands in a report.
fn figure(
    reports: &[Value],
    name: &str,
    what: &str,
    (unit, scale): (&str, f64),
    pointer: &'static str,
) -> Result<Figure, &'static str> {
    let number = |report: &Value| report.pointer(pointer).and_then(Value::as_f64);
    let samples = reports.iter().map(|report| number(report).map(|value| value * scale));
    let samples = samples.collect::<Option<Vec<f64>>>().ok_or(pointer)?;
    Ok(Figure::new(name, what, Clock::Wall, unit, samples))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_become_figures_and_a_missing_key_is_named() {
        let report = |one_way: u32, testpmd: Value| {
            json!({
                "ultra": {"wall_messages_per_s": 4e6, "wall_rate_ledger_on_over_off": 0.95, "wall_one_way_p50_ns": one_way},
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
        let found = figures(&reports).unwrap();
        let of = |name: &str| found.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!((of("device_message_rate").median, of("device_message_rate").reached), (4.0, Some(true)));
        assert_eq!((of("device_one_way").median, of("device_one_way").reached), (1200.0, Some(false)));
        assert_eq!((of("match_bandwidth_mtu_9000").median, of("match_one_way").median), (5.0, 900.0));
        assert_eq!((of("testpmd_ratio").median, of("testpmd_ratio").reached), (0.5, Some(true)));
        assert_eq!(figures(&[report(1, Value::Null)]).unwrap().len(), 9, "nothing to compare with");
        assert_eq!(figures(&[json!({})]).unwrap_err(), "/ultra/wall_messages_per_s");
    }

    #[test]
    fn without_testpmd_its_rows_are_left_out_and_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().as_os_str();
        assert_eq!(testpmd(None, path).unwrap(), None);
        let said = left_out(&[json!({})], false);
        assert!(said[0].contains("install the package dpdk"), "{said:?}");
        let missing = folder.path().join("dpdk-testpmd");
        let refused = testpmd(Some(&missing), path).unwrap_err().to_string();
        assert!(refused.contains("dpdk-testpmd; install"), "one that is named must be there: {refused}");
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
