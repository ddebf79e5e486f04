//! The command line of the tools for protocols that are assembled from components.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::name::NameArgs;

/// A tool.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Check assemblies: show what each provides and requires, or all its errors.
    ///
    /// Every error names line, component and port, and the fix; docs/use/ASSEMBLIES.md describes the language. Exits
    /// with 1 if an assembly has an error.
    Check(CheckArgs),
    /// Build the image of an assembly, which cards load.
    ///
    /// Exits with 1, and writes nothing, if the assembly has an error.
    Build(BuildArgs),
    /// Draw an assembly: its blocks with their components and values, the connections, and what it requires and
    /// provides.
    Show(ShowArgs),
    /// Load another assembly into the cards of a running cluster, while its guests keep running.
    ///
    /// The cards change together: messages in flight finish under the old assembly, and messages that guests send
    /// meanwhile wait. Returns when the new assembly runs.
    Load(LoadArgs),
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Sources, or images.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// Arguments of `build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The source.
    #[arg(value_name = "FILE.toml")]
    pub source: PathBuf,
    /// Where to write the image. Default: next to the source, with the file extension of images.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// A source, an image, or the name of a built-in assembly. Default: each card's own of the cluster file.
    #[arg(value_name = "FILE|NAME")]
    pub assembly: Option<PathBuf>,
    /// The nodes. Default: all. Cards with different assemblies cannot communicate.
    #[arg(long, value_name = "NODE", num_args = 1..)]
    pub node: Vec<String>,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A source, an image, or the name of a built-in assembly: conf1 to conf4, unreliable_ordered, selective_repeat,
    /// rate_controlled.
    #[arg(value_name = "FILE|NAME")]
    pub assembly: PathBuf,
}
