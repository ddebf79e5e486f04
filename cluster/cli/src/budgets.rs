//! The options that limit the counts and model times of a run.

use clap::{Args, ValueEnum};
use niclab_spec::{Budget, BudgetText, BudgetTextError, Cluster};

/// Limits on a run. If one is broken, the run's exit code is 1.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Budgets")]
pub struct BudgetArgs {
    /// A limit on a count or a model time of the run, as `[NODE:]QUANTITY[/UNIT]`, `<=`, `>=` or `==`, and a number
    /// (docs/use/CI.md): 'interrupts<=16', 'node0:doorbells/sent<=0.1', 'model_messages_per_s>=4e8'. Can be repeated.
    #[arg(long = "budget", value_name = "BUDGET")]
    pub budgets: Vec<BudgetText>,
    /// Fail if this happens during the run.
    #[arg(long, value_enum, value_name = "EVENT")]
    pub fail_on: Vec<FailOn>,
}

/// An event that breaks a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A message was sent but not received, as --budget 'lost_messages==0'.
    Lost,
}

impl BudgetArgs {
    /// All budgets.
    ///
    /// # Errors
    /// If a budget is invalid for this cluster.
    pub fn of(&self, cluster: &Cluster) -> Result<Vec<Budget>, BudgetTextError> {
        self.budgets.iter().try_for_each(|text| text.check(cluster))?;
        let given = self.budgets.iter().map(|text| text.budget().clone());
        let implied = self.fail_on.contains(&FailOn::Lost).then(Budget::nothing_lost);
        Ok(given.chain(implied).collect())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        budgets: BudgetArgs,
    }

    fn budgets(words: &[&str]) -> Result<Vec<Budget>, String> {
        let line = Line::try_parse_from([&["niclab"], words].concat()).map_err(|error| error.to_string())?;
        let cluster = niclab_spec::Source::default().resolve(&niclab_spec::ClusterFile::default()).unwrap();
        line.budgets.of(&cluster).map_err(|error| error.to_string())
    }

    #[test]
    fn budgets_and_events_become_limits() {
        let limits = budgets(&["--budget", "interrupts<=16", "--fail-on", "lost"]).unwrap();
        assert_eq!((limits.len(), limits[0].at_most), (2, Some(16.0)));
        assert_eq!(limits[1], Budget::nothing_lost());
        assert_eq!(budgets(&[]).unwrap(), []);
    }

    #[test]
    fn invalid_budget_names_text_position_and_fix() {
        for (text, part) in [
            ("interrupts", "character 11"),
            ("interupts<=1", "did you mean `interrupts`?"),
            ("node9:interrupts<=1", "there is no node `node9`"),
        ] {
            let message = budgets(&["--budget", text]).unwrap_err();
            assert!(message.contains(part) && message.contains(text), "{message}");
        }
    }
}
