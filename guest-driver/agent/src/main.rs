//! The guest agent: it makes the guest a node of its cluster, and runs commands for the launcher.
//!
//! One thread polls the port and, for each command, its standard streams and its pidfd.

mod agent;
mod command;
mod health;
mod memory;
mod network;
mod node;
mod port;
mod random;

use std::{io, os::fd::AsFd, process::ExitCode};

use agent::{Agent, Mode};

const USAGE: &str = "usage: niclab-agent [--stdio | --release-memory]

Runs commands for the niclab launcher over the virtio-serial port niclab.agent.
With --stdio it uses standard input instead, which must be a socket. This is for tests.
With --release-memory it fills the guest's free memory with zeros, so that a saved guest omits it, and exits.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => port::open().and_then(|port| Agent::new(port, Mode::Guest)?.run()),
        ["--stdio"] => {
            io::stdin().as_fd().try_clone_to_owned().and_then(|port| Agent::new(port, Mode::Test)?.run())
        }
        ["--release-memory"] => {
            memory::release().map(|bytes| println!("{} KiB of free memory cleared", bytes / 1024))
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("niclab-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
