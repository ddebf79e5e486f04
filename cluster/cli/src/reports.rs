//! The options about reports: pages for people, and limits on changes.

use std::path::PathBuf;

use clap::Args;
use niclab_spec::ChangeLimit;

/// A page about a run.
#[derive(Clone, Debug, Default, Args)]
pub struct PageArgs {
    /// Write a page about the run to this file as well: one HTML file without scripts, which needs no network.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Reports, as `niclab run --report json` or `niclab sim` writes them. Of two reports the first is the baseline.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Compare each node, not only the sums over all nodes.
    #[arg(long)]
    pub per_node: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Print Markdown for a comment on a merge request: verdicts, a summary, and what changed.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// A page about the last report. With two reports it highlights the changes.
    #[command(flatten)]
    pub page: PageArgs,
    /// Exit with 1 if a figure of the second report has changed by more than this from the first, as in
    /// `interrupts>+0%`, `messages<-10` or `node1:interrupts>+2.5%`. Can be repeated (docs/use/CI.md).
    #[arg(long, value_name = "CHANGE")]
    pub fail_if: Vec<ChangeLimit>,
    /// Let `--fail-if` limit wall times, which depend on the machine and on its load.
    #[arg(long, requires = "fail_if")]
    pub allow_wall: bool,
}
