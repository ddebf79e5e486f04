//! The command line of the tools for programs of the match unit.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};

/// A tool.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Assemble a program of the match unit into a firmware image.
    ///
    /// All errors are shown, each with its line and the fix; docs/use/match/MACHINE.md describes the language. Exits with
    /// 1, and writes nothing, where the source is refused.
    Asm(AsmArgs),
    /// Print a firmware image of the match unit as source, which assembles to the same image.
    ///
    /// Exits with 1 where the image is damaged or none.
    Disasm(DisasmArgs),
    /// Run a program of the match unit on a list and headers, or step through it.
    ///
    /// `niclab match run` prints for each header which item takes it, and in how many cycles; `niclab match debug`
    /// stops at words, headers and verdicts and shows the unit; both write waveforms (docs/use/match/RUNNING.md). Exits
    /// with 1 where the program had to be stopped, and with 2 where it cannot be run.
    Match(MatchArgs),
}

/// Arguments of `asm`.
#[derive(Debug, Args)]
pub struct AsmArgs {
    /// The source.
    #[arg(value_name = "FILE.nma")]
    pub source: PathBuf,
    /// Where to write the image. Without this, beside the source, as .nmi.
    #[arg(short, long, value_name = "FILE.nmi")]
    pub output: Option<PathBuf>,
    /// Print every word with its address and bits.
    #[arg(long)]
    pub listing: bool,
    /// Refuse a source that is warned of.
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
    /// Use no network when the program behind this command is built.
    #[arg(long)]
    pub offline: bool,
    /// What to do: `run` or `debug`, with their options; `niclab match run --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}
