//! The name of a cluster, as most commands take it.

use clap::Args;
use niclab_spec::ClusterName;

/// Which cluster that is up.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// The cluster's name.
    #[arg(long, default_value = ClusterName::DEFAULT)]
    pub name: ClusterName,
}
