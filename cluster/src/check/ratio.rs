//! Ratios of wall times to a baseline of the same boot, measured in turns until they are decided.

use anyhow::{Context, Result};
use niclab_spec::{
    Report, Workload, WorkloadKind,
    scenario::{Baseline, Ratio},
};

use super::{
    budget::{Outcome, Verdict},
    live::LiveCluster,
    sequence::{Sequence, Side},
};

/// What makes a benchmark the baseline.
const TCP: &[&str] = &["--transport", "tcp"];

/// What such a verdict is of.
pub const SUBJECT: &str = "live: wall time, tcp over the modelled NIC";

/// Measures both in turns until the median ratio is below or above the limit with the confidence asked for, or the
/// rounds are used up.
///
/// # Errors
/// When a run fails or measures nothing.
pub fn verdict(ratio: &Ratio, workload: &Workload, cluster: &mut LiveCluster) -> Result<Verdict> {
    let Baseline::Tcp = ratio.baseline;
    decide(ratio, &mut |round| {
        // Either goes first in turns, so that what comes and goes within a round favours neither.
        let (own, baseline);
        if round % 2 == 0 {
            own = figure(workload, &cluster.measure()?)?;
            baseline = figure(workload, &cluster.benchmark(TCP)?)?;
        } else {
            baseline = figure(workload, &cluster.benchmark(TCP)?)?;
            own = figure(workload, &cluster.measure()?)?;
        }
        Ok(own / baseline)
    })
}

fn decide(ratio: &Ratio, measure: &mut dyn FnMut(u32) -> Result<f64>) -> Result<Verdict> {
    let mut sequence = Sequence::new(ratio.at_least, ratio.confidence);
    let mut side = None;
    for round in 0..ratio.rounds {
        side = sequence.push(measure(round)?);
        if side.is_some() {
            break;
        }
    }
    let outcome = match side {
        Some(Side::Above) => Outcome::Held,
        Some(Side::Below) => Outcome::Broken,
        None => Outcome::Undecided,
    };
    Ok(Verdict {
        what: SUBJECT.to_owned(),
        outcome,
        expected: format!(
            "at least {} times, wrong at most once in {:.0}",
            ratio.at_least,
            1.0 / (1.0 - ratio.confidence)
        ),
        found: found(&sequence, side),
        causes: Vec::new(),
    })
}

fn found(sequence: &Sequence, side: Option<Side>) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| format!("{value:.2}"));
    let (lower, upper) = sequence.interval();
    let (median, lower, upper) = (number(sequence.median()), number(lower), number(upper));
    let rounds = sequence.len();
    match side {
        Some(Side::Above) => {
            format!("median {median}, above {lower} with that confidence, after {rounds} rounds")
        }
        Some(Side::Below) => {
            format!("median {median}, below {upper} with that confidence, after {rounds} rounds")
        }
        None => format!(
            "median {median}, between {lower} and {upper} with that confidence, after all {rounds} rounds"
        ),
    }
}

/// What is better when more: round trips or payload a second.
#[expect(clippy::cast_precision_loss, reason = "wall time, whose noise is larger")]
fn figure(workload: &Workload, report: &Report) -> Result<f64> {
    let results = report.wall.as_ref().map(|wall| wall.results.as_slice()).unwrap_or_default();
    let result = results.first().context("niclab-perf measured nothing; its messages stand above")?;
    if workload.kind == WorkloadKind::PingPong {
        let latency = result.round_trip.context("niclab-perf reported no round trip")?;
        return Ok(1e9 / latency.p50_ns.max(1) as f64);
    }
    Ok(result.payload_bytes_per_s.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATIO: Ratio = Ratio { baseline: Baseline::Tcp, at_least: 3.0, confidence: 0.999, rounds: 100 };

    fn decided(measure: impl Fn(u32) -> f64) -> (Verdict, u32) {
        let mut rounds = 0;
        let verdict = decide(&RATIO, &mut |round| {
            rounds += 1;
            Ok(measure(round))
        });
        (verdict.unwrap(), rounds)
    }

    #[test]
    fn rounds_end_when_the_limit_is_outside() {
        let (verdict, rounds) = decided(|_| 20.9);
        assert_eq!((verdict.outcome, rounds), (Outcome::Held, 13));
        assert_eq!(verdict.found, "median 20.90, above 20.90 with that confidence, after 13 rounds");
        assert_eq!(verdict.expected, "at least 3 times, wrong at most once in 1000");
        assert_eq!(decided(|_| 2.4).0.outcome, Outcome::Broken);
        // One round in five was disturbed: a median of 20.9 is no broken gate.
        let (verdict, rounds) = decided(|round| if round % 5 == 1 { 1.1 } else { 20.9 });
        assert!(verdict.outcome == Outcome::Held && rounds < 100, "{verdict:?}");
    }

    #[test]
    fn rounds_that_decide_nothing_are_undecided() {
        let (verdict, rounds) = decided(|round| f64::from(round % 2 * 2 + 2));
        assert_eq!((verdict.outcome, rounds), (Outcome::Undecided, 100));
        assert!(
            verdict.found.contains("between 2.00 and 4.00") && verdict.found.contains("100 rounds"),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_round_that_fails_ends_it() {
        let error = decide(&RATIO, &mut |_| anyhow::bail!("no round trip")).unwrap_err();
        assert_eq!(error.to_string(), "no round trip");
    }
}
