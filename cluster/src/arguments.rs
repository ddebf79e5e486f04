//! Which cluster a command boots, from its command line.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use niclab_spec::{ClusterName, OnNodeExit, RuleChecking};

/// Which cluster to boot.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Cluster file (TOML; `niclab schema` describes it). The options below override it.
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// Number of nodes.
    #[arg(long, value_name = "N")]
    pub nodes: Option<u32>,
    /// NIC model of every node.
    #[arg(long, value_name = "MODEL")]
    pub nic: Option<String>,
    /// Memory of each node, in MiB.
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Virtual CPUs of each node.
    #[arg(long, value_name = "N")]
    pub vcpus: Option<u32>,
    /// Queue pairs of each node's Ethernet function. Linux uses one pair for each virtual CPU of the guest.
    #[arg(long, value_name = "N")]
    pub queues: Option<u32>,
    /// Your own driver for the cards: its source folder, or a module NAME.ko; NODE=PATH for one node alone.
    #[arg(long, value_name = "[NODE=]PATH")]
    pub driver: Vec<String>,
    /// Parameters of your driver, as in "debug=1 peer=0".
    #[arg(long, value_name = "ARGS", requires = "driver", allow_hyphen_values = true)]
    pub driver_args: Option<String>,
    /// Make every NIC behave adversarially: as the manual allows, but real hardware seldom does. The seed makes the run
    /// repeatable (docs/use/FAULTS.md).
    #[arg(long, alias = "unkind", value_name = "SEED", value_parser = seed, allow_negative_numbers = true)]
    pub adversarial: Option<u64>,
    /// The guests' kernel: `debug` for the one that `niclab kernel build` makes, or the file of your own kernel, or its
    /// build tree. With a build tree, drivers are built against it.
    #[arg(long, value_name = "debug|FILE")]
    pub kernel: Option<PathBuf>,
    /// Check drivers against the rules of the device programmer's manual (docs/reference/RULES.md): off, report,
    /// fail or stop.
    #[arg(long, value_name = "MODE", value_parser = rule_checking)]
    pub rules: Option<RuleChecking>,
    /// Debian packages to install in the guests, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "PACKAGE")]
    pub packages: Vec<String>,
    /// The cluster's name. Clusters with different names can be up at the same time.
    #[arg(long)]
    pub name: Option<ClusterName>,
    /// Debian mirror to build from. Default: the one that apt uses on this machine.
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Use no network; fail if something is missing.
    #[arg(long)]
    pub offline: bool,
    /// Do not share the current folder with the guests.
    #[arg(long)]
    pub no_share: bool,
    /// The folder to share with the guests instead of the current one. No option sets it.
    #[arg(skip)]
    pub shared_folder: Option<PathBuf>,
    /// Boot each node, instead of restoring it from a template of a booted guest.
    #[arg(long)]
    pub cold: bool,
    /// Seconds until all nodes must be healthy. Default: 60, plus 10 for each node.
    #[arg(long, value_name = "SECONDS")]
    pub boot_timeout: Option<u64>,
}

/// What happens to the other nodes when a node ends.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub struct NodeExitArgs {
    /// Let the other nodes continue when a node powers off, reboots or panics, or its QEMU ends (docs/use/FAULTS.md).
    /// Without it the cluster ends.
    #[arg(long)]
    pub keep_going: bool,
}

impl NodeExitArgs {
    /// The option overrides the cluster file's choice.
    #[must_use]
    pub const fn over(self, of_file: OnNodeExit) -> OnNodeExit {
        if self.keep_going { OnNodeExit::Continue } else { of_file }
    }
}

/// Parses what the daemon does when a driver breaks a rule.
///
/// # Errors
/// The message lists the valid names.
pub fn rule_checking(text: &str) -> Result<RuleChecking, String> {
    let names = RuleChecking::ALL.map(|(name, _)| name);
    RuleChecking::named(text).ok_or_else(|| format!("give one of {}", names.join(", ")))
}

/// Parses a seed of the random generator.
///
/// # Errors
/// The message names the valid range.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("give a seed, which is a whole number from 0 to {}, such as 7", u64::MAX))
}

impl ClusterArgs {
    /// Time limit until `nodes` nodes are healthy. `timeout_factor` scales the default, not `--boot-timeout`.
    #[must_use]
    pub fn boot_timeout(&self, nodes: usize, timeout_factor: u32) -> Duration {
        // Guests share the host's cores, so the time grows with their number.
        let usual = (60 + 10 * nodes as u64) * u64::from(timeout_factor);
        Duration::from_secs(self.boot_timeout.unwrap_or(usual))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_going_overrides_the_cluster_file() {
        let over = |keep_going, of_file| NodeExitArgs { keep_going }.over(of_file);
        assert_eq!(over(true, OnNodeExit::Stop), OnNodeExit::Continue);
        assert_eq!(over(false, OnNodeExit::Continue), OnNodeExit::Continue);
        assert_eq!(over(false, OnNodeExit::Stop), OnNodeExit::Stop);
    }
}
