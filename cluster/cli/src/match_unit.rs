//! The command line of the tools for programs of the match unit.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};

/// A tool.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Assemble a program of the match unit into a firmware image.
    ///
    /// Shows all errors, each with its line and fix; docs/use/match/MACHINE.md describes the language. If the source
    /// has an error, exits with 1 and writes nothing.
    Asm(AsmArgs),
    /// Print a firmware image of the match unit as source, which assembles to the same image.
    ///
    /// Exits with 1 if the file is damaged or is no image.
    Disasm(DisasmArgs),
    /// Run a program of the match unit on a list and headers, or debug it step by step.
    ///
    /// `niclab match run` prints which list item matches each header, and in how many cycles. `niclab match debug` has
    /// breakpoints at words, headers and verdicts, and shows the unit. Both write waveforms
    /// (docs/use/match/RUNNING.md). Exits with 1 if the program had to be stopped, and with 2 if it cannot be run.
    Match(MatchArgs),
}

/// Arguments of `asm`.
#[derive(Debug, Args)]
pub struct AsmArgs {
    /// The source.
    #[arg(value_name = "FILE.nma")]
    pub source: PathBuf,
    /// Where to write the image. Default: next to the source, as .nmi.
    #[arg(short, long, value_name = "FILE.nmi")]
    pub output: Option<PathBuf>,
    /// Print every word with its address and bits.
    #[arg(long)]
    pub listing: bool,
    /// Treat warnings as errors.
    #[arg(long)]
    pub deny_warnings: bool,
}

/// Arguments of `disasm`.
#[derive(Debug, Args)]
pub struct DisasmArgs {
    /// The image.
    #[arg(value_name = "FILE.nmi")]
    pub image: PathBuf,
    /// Print every word with its address and bits instead.
    #[arg(long)]
    pub listing: bool,
}

/// Arguments of `match`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct MatchArgs {
    /// Use no network, even if the program for this command has to be built.
    #[arg(long)]
    pub offline: bool,
    /// What to do: `run` or `debug`, with their options; `niclab match run --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}
