//! The match unit: cycles of model time that are simulated per second of a core's time. Other programs on a busy
//! machine do not affect this time.

use anyhow::{Context, Result};
use serde_json::Value;

use super::comparison;
use crate::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
};

/// Minimum rate with the list manager, in millions of cycles per second.
const GOAL: Goal = Goal::AtLeast(300.0);

/// Runs `niclab-processors bench`.
///
/// # Errors
/// When the program cannot be found or built, fails, or prints something else.
pub fn measure(options: &Options) -> Result<Measured> {
    let rounds = options.rounds.to_string();
    let output = comparison::output(&["bench", "--json", "--rounds", &rounds], options.cluster.offline)?;
    let what = "niclab-processors bench printed no rates; build niclab and niclab-processors together";
    let rates: Value = serde_json::from_slice(&output).context(what)?;
    let figures = figures(&rates).context(what)?;
    Ok(Measured { figures, details: Some(rates), ..Measured::default() })
}

fn figures(rates: &Value) -> Option<Vec<Figure>> {
    rates.get("rates")?.as_array()?.iter().map(figure).collect()
}

fn figure(rate: &Value) -> Option<Figure> {
    let rounds = rate.get("model_cycles_per_processor_s")?.as_array()?;
    let samples = rounds.iter().map(|rate| Some(rate.as_f64()? * 1e-6)).collect::<Option<Vec<f64>>>()?;
    let (name, what) = match rate.get("items")?.as_u64() {
        None => {
            ("match_unit_rate".to_owned(), "the match unit alone, per second of a core's time".to_owned())
        }
        Some(items) => {
            let plural = if items == 1 { "item" } else { "items" };
            let what = format!("match unit and list manager, {items} {plural}, per second of a core's time");
            (format!("match_unit_list_rate_{items}"), what)
        }
    };
    Some(Figure::new(&name, &what, Clock::Wall, "M cycles/s", samples).with_goal(GOAL))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_configuration_of_the_unit_is_a_figure() {
        let rates = json!({"rates": [
            {"items": null, "model_cycles_per_processor_s": [4e8, 2e8, 3.5e8]},
            {"items": 10, "model_cycles_per_processor_s": [1e8]},
        ]});
        let found = figures(&rates).unwrap();
        assert_eq!(
            (found[0].name.as_str(), found[0].median, found[0].reached),
            ("match_unit_rate", 350.0, Some(true))
        );
        assert_eq!((found[1].name.as_str(), found[1].reached), ("match_unit_list_rate_10", Some(false)));
        assert!(figures(&json!({"rates": [{"items": 1}]})).is_none());
    }
}
