//! The `niclab` command.

// Macros that ignore a closed standard error, so that the command still shuts its cluster down.
#[macro_use]
extern crate niclab_output;

mod arguments;
mod budgets;
mod commands;
#[cfg(test)]
mod documented;
mod extcap;
mod link_faults;
mod match_unit;
mod name;
mod protocol;
mod reports;

use std::{panic, process::ExitCode};

use crate::arguments::Cli;
use clap::Parser;
use niclab_cluster::host::{exhaustion::HostCounters, signals};
use niclab_spec::{descriptors, renamed};

/// The standard library panics if the kernel refuses a thread. This hook adds which resource of the host ran out.
fn say_why_no_thread(host: HostCounters) {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        if let Some(what) = host.what_ran_out(&info.to_string()) {
            eprintln!("niclab: {what}");
        }
    }));
}

/// Warns of renamed options, which still work as hidden aliases.
fn warn_of_old_options() {
    // The arguments after `--` belong to a command in the guests.
    for argument in std::env::args().skip(1).take_while(|argument| argument != "--") {
        let option = argument.split('=').next().unwrap_or_default();
        if let Some(warning) = renamed::warning(&renamed::OPTIONS, option) {
            log::warn!("{warning}");
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let environment = env_logger::Env::default().default_filter_or(level);
    env_logger::Builder::from_env(environment).format_timestamp_millis().format_target(false).init();
    warn_of_old_options();
    let host = HostCounters::read();
    say_why_no_thread(host.clone());
    if let Err(error) = signals::take_over() {
        log::warn!("cannot install the signal handlers: {error}");
    }
    // The launcher holds a few descriptors for each node, and its child processes inherit the limit.
    if let Err(error) = descriptors::raise_limit() {
        log::warn!("cannot raise the limit of open files: {error}");
    }
    ExitCode::from(niclab_output::exit_code(commands::dispatch(cli.command), |error| {
        if niclab_output::is_unread(error.as_ref()) {
            return niclab_output::READER_GONE;
        }
        let text = niclab_spec::explain(error.as_ref());
        eprintln!("niclab: {text}");
        // The error of a cluster may name the resource already.
        if let Some(what) = host.what_ran_out(&text).filter(|what| !text.contains(what)) {
            eprintln!("niclab: {what}");
        }
        commands::error_code(&error)
    }))
}
