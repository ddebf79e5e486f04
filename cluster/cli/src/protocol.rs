//! The command line of the tools for protocols that are assembled from components.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::name::NameArgs;

/// A tool.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Check assemblies: what each promises and takes, or all that is wrong with it.
    ///
    /// Every error names line, component and port, and the fix; docs/use/ASSEMBLIES.md describes the language. Exits with
    /// 1 where one is refused.
    Check(CheckArgs),
    /// Build the image of an assembly, which cards load.
    ///
    /// Exits with 1, and writes nothing, where the assembly is refused.
    Build(BuildArgs),
    /// Draw an assembly: its blocks with their components and values, what joins them, what it takes and what it
    /// promises.
    Show(ShowArgs),
    /// Program the cards of a cluster that is up with another assembly, while its guests go on.
    ///
    /// The cards take it together: what is under way ends by the assembly before, and what guests send meanwhile waits.
    /// Returns when it runs.
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
    /// Where to write the image. Without this, beside the source, with the ending of images.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// A source or an image, or the name of an assembly that cards are built with. Without one, each card's own of the
    /// cluster file.
    #[arg(value_name = "FILE|NAME")]
    pub assembly: Option<PathBuf>,
    /// The nodes; without this, all. Cards of different assemblies do not understand one another.
    #[arg(long, value_name = "NODE", num_args = 1..)]
    pub node: Vec<String>,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A source or an image, or the name of an assembly that cards are built with: conf1 to conf4, unreliable_ordered,
    /// selective_repeat, rate_controlled.
    #[arg(value_name = "FILE|NAME")]
    pub assembly: PathBuf,
}
