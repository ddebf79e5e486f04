//! `niclab sim`: runs a scenario's workload in the simulator, without its budgets.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use niclab_cluster::host::exit_code::OWN_FAILURE;
use niclab_cluster::{
    check::{BAD_SCENARIO, BROKEN, HELD},
    page,
    programs::simulator::{Observed, Refused, Simulator, Unread},
    report::text::report_text,
};
use niclab_output::{OutputFile, READER_GONE, Stdout, probe_all};
use niclab_spec::{SimConfig, Source, WorkloadKind};

use super::{report::write_page, terminal};
use crate::arguments::{ReportFormat, SimArgs};

/// Simulates the scenario or the swarm.
///
/// # Errors
/// When the simulator is missing or fails, or a file cannot be written. The files are checked before the simulation.
pub fn run(args: &SimArgs) -> Result<u8> {
    if let Some(count) = args.swarm {
        return swarm(count, args);
    }
    let Some(file) = &args.scenario else { bail!("give a scenario file, or --swarm N") };
    let mut scenario = match Source::read(file).and_then(|source| source.scenario()) {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("niclab: {error}");
            return Ok(BAD_SCENARIO);
        }
    };
    if scenario.workload.kind == WorkloadKind::Program {
        eprintln!(
            "niclab: {}: the simulator runs no programs\n  fix: use `niclab check`, or record a run of the program and \
             simulate the recording (docs/use/SIMULATOR.md)",
            file.display()
        );
        return Ok(BAD_SCENARIO);
    }
    scenario.cluster.make_adversarial(args.adversarial);
    let name = file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut config = SimConfig::new(&scenario.cluster, &name, &scenario.workload);
    config.seed = args.seed.unwrap_or(config.seed);
    let paths = [&args.trace, &args.capture, &args.report_file, &args.page.html].map(Option::as_deref);
    let inputs: [&Path; 1] = [file];
    let [trace, capture, report_file, html] = probe_all(paths, &inputs, Stdout::Taken)?;
    let create = |path: PathBuf| OutputFile::create(&path, &inputs);
    let (report_file, html) = (report_file.map(create).transpose()?, html.map(create).transpose()?);
    let observed = Observed { trace: trace.as_deref(), capture: capture.as_deref() };
    let report = match Simulator::locate(args.offline)?.run_observed(&config, observed) {
        Err(error) if error.is::<Refused>() => {
            eprintln!("niclab: {error}");
            return Ok(BAD_SCENARIO);
        }
        Err(error) if error.is::<Unread>() => return Ok(READER_GONE),
        report => report?,
    };
    let written = report_file.map(|file| file.write(report.to_json().as_bytes())).transpose();
    let page = html.map(|file| write_page(file, &report)).transpose();
    terminal::print(&match args.report {
        ReportFormat::Summary => page::summary(&report),
        ReportFormat::Text => report_text(&report),
        ReportFormat::Json => report.to_json(),
    })?;
    written?;
    page?;
    Ok(if report.checks.iter().all(|checked| checked.held) { HELD } else { BROKEN })
}

fn swarm(count: u32, args: &SimArgs) -> Result<u8> {
    let mut arguments = vec!["--swarm".to_owned(), count.to_string()];
    let options = [
        ("--seed", args.seed),
        ("--adversarial", args.adversarial),
        ("--threads", args.threads.map(u64::from)),
    ];
    for (option, value) in options {
        if let Some(value) = value {
            arguments.extend([option.to_owned(), value.to_string()]);
        }
    }
    arguments.extend(args.nic.iter().flat_map(|nic| ["--nic".to_owned(), nic.clone()]));
    let status = Simulator::locate(args.offline)?.pass_on(&arguments)?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(OWN_FAILURE))
}
