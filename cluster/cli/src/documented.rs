//! The commands that the documentation shows are commands of this program.

use clap::CommandFactory as _;
use niclab_harness::{documented, invalid};

use crate::arguments::Cli;

#[test]
fn documented_commands_are_valid() {
    let commands = documented("niclab");
    assert!(commands.len() > 150, "only {} commands were found", commands.len());
    let wrong = invalid::<Cli>(&commands, &[]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn arguments_are_consistent() {
    Cli::command().debug_assert();
}
