//! The guest agent: runs commands for the launcher.
//!
//! It is one thread around one `poll`: the port, and of each command its standard streams and its pidfd.

mod agent;
mod command;
mod health;

use std::{
    fs::OpenOptions,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::ExitCode,
};

use agent::{Agent, Mode};
use niclab_agent::PORT_NAME;

const USAGE: &str = "usage: niclab-agent [--stdio]

Runs commands for the niclab launcher, which speaks to it through the virtio-serial port niclab.agent.
With --stdio it speaks on standard input instead, which must then be a socket; that is for tests.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let opened = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => open_port().map(|port| (port, Mode::Guest)),
        ["--stdio"] => io::stdin().as_fd().try_clone_to_owned().map(|port| (port, Mode::Test)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match opened.and_then(|(port, mode)| Agent::new(port, mode)).and_then(|mut agent| agent.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("niclab-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open_port() -> io::Result<OwnedFd> {
    let path = Path::new("/dev/virtio-ports").join(PORT_NAME);
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|error| {
        let text =
            format!("cannot open {}: {error}; the launcher gives each guest this port", path.display());
        io::Error::new(error.kind(), text)
    })?;
    Ok(file.into())
}
