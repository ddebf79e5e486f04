//! The options of `niclab fault` for the faults of a link.

use clap::{Arg, Args, FromArgMatches};
use niclab_spec::{FaultValue, Faults, FaultsChange, LinkFault};

/// The options for the faults of a link: one for each row of [`Faults::TABLE`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkFaultArgs(pub FaultsChange);

impl Args for LinkFaultArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(Faults::TABLE.iter().map(link_fault_option))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LinkFaultArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let mut change = FaultsChange::default();
        for fault in Faults::TABLE {
            let value = match (fault.value)(&Faults::default()) {
                FaultValue::Probability(_) => {
                    matches.get_one(fault.key).copied().map(FaultValue::Probability)
                }
                FaultValue::DelayNs(_) => matches.get_one(fault.key).copied().map(FaultValue::DelayNs),
                FaultValue::Switch(_) => matches.get_one(fault.key).copied().map(FaultValue::Switch),
            };
            if let Some(value) = value {
                (fault.set)(&mut change, value);
            }
        }
        Ok(Self(change))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn link_fault_option(fault: &LinkFault) -> Arg {
    let option = Arg::new(fault.key)
        .long(clap::builder::Str::from(fault.key.replace('_', "-")))
        .group("change")
        .conflicts_with("heal");
    let help = fault.help.trim();
    match (fault.value)(&Faults::default()) {
        FaultValue::Probability(_) => option.value_name("P").value_parser(probability).help(help),
        FaultValue::DelayNs(_) => {
            let range = clap::value_parser!(u64).range(..=Faults::MAX_DELAY_NS);
            option.value_name("N").value_parser(range).help(help)
        }
        FaultValue::Switch(_) => option
            .value_name("BOOL")
            .value_parser(clap::value_parser!(bool))
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .help(format!("{help} `=false` ends this fault alone.")),
    }
}

/// A number from 0 to 1.
fn probability(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "give a number from 0 to 1, such as 0.01 for one frame in a hundred".to_owned())
}
