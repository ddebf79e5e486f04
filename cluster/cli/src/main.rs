//! The `niclab` command.

// Messages to a standard error that nobody reads any more are no reason to leave a cluster behind.
#[macro_use]
extern crate niclab_output;

mod arguments;
mod commands;
#[cfg(test)]
mod documented;
mod extcap;
mod link_faults;
mod match_unit;
mod name;
mod protocol;

use std::{panic, process::ExitCode};

use crate::arguments::Cli;
use clap::Parser;
use niclab_cluster::host::{exhaustion::HostCounters, signals};
use niclab_spec::{descriptors, renamed};

/// The standard library panics where the kernel denies a thread. What ran out is said after its message.
fn say_why_no_thread(host: HostCounters) {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        if let Some(what) = host.what_ran_out(&info.to_string()) {
            eprintln!("niclab: {what}");
        }
    }));
}

/// Options of the version before this one still work, as hidden aliases.
fn warn_of_old_options() {
    // What follows belongs to a command in the guests.
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
        log::warn!("signals are not taken care of: {error}");
    }
    // The launcher holds a few descriptors for each node itself, and its children begin with its limit.
    if let Err(error) = descriptors::raise_limit() {
        log::warn!("cannot raise the limit of open files: {error}");
    }
    ExitCode::from(niclab_output::exit_code(commands::dispatch(cli.command), |error| {
        if niclab_output::is_unread(error.as_ref()) {
            return niclab_output::READER_GONE;
        }
        let text = niclab_spec::explain(error.as_ref());
        eprintln!("niclab: {text}");
        // A cluster's failure says so itself.
        if let Some(what) = host.what_ran_out(&text).filter(|what| !text.contains(what)) {
            eprintln!("niclab: {what}");
        }
        commands::error_code(&error)
    }))
}
