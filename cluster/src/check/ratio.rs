//! Ratios of wall times to a baseline of the same boot, measured in alternating runs until they are decided.

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

/// The arguments that select the baseline.
const TCP: &[&str] = &["--transport", "tcp"];

/// The beginning of the subject of these verdicts.
const SUBJECT: &str = "live: wall time of ";

/// Whether the subject of a verdict is a ratio of wall times.
#[must_use]
pub fn is_subject(what: &str) -> bool {
    what.starts_with(SUBJECT)
}

/// The subject of the verdict.
fn subject(baseline: &Baseline) -> String {
    match baseline {
        Baseline::Tcp => format!("{SUBJECT}tcp divided by that of the modelled NIC"),
        Baseline::Command(command) => {
            format!("{SUBJECT}`{}` divided by that of the program", command.join(" "))
        }
    }
}

/// Measures both in alternation. It stops when the median ratio is below or above the limit with the required
/// confidence, or when the rounds are used up.
///
/// # Errors
/// If a run fails or measures nothing.
pub fn verdict(ratio: &Ratio, workload: &Workload, cluster: &mut LiveCluster) -> Result<Verdict> {
    let own = |cluster: &mut LiveCluster| match &ratio.baseline {
        Baseline::Tcp => figure(workload, &cluster.measure()?),
        Baseline::Command(_) => runs_per_s(&cluster.run_command(&workload.command)?),
    };
    let other = |cluster: &mut LiveCluster| match &ratio.baseline {
        Baseline::Tcp => figure(workload, &cluster.benchmark(TCP)?),
        Baseline::Command(command) => runs_per_s(&cluster.run_command(command)?),
    };
    decide(ratio, &mut |round| {
        // They alternate in going first, so that a disturbance within a round favours neither.
        if round % 2 == 0 {
            let own = own(cluster)?;
            Ok(own / other(cluster)?)
        } else {
            let other = other(cluster)?;
            Ok(own(cluster)? / other)
        }
    })
}

/// How often a command could run in a second.
#[expect(clippy::cast_precision_loss, reason = "wall time, whose noise is larger")]
fn runs_per_s(report: &Report) -> Result<f64> {
    let wall = report.wall.as_ref().context("the report has no wall time")?;
    Ok(1e9 / wall.commands_ns.max(1) as f64)
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
        what: subject(&ratio.baseline),
        outcome,
        expected: format!(
            "at least {}, with an error probability of at most 1 in {:.0}",
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
            format!("median {median} of {rounds} rounds; the true median is above {lower} at that confidence")
        }
        Some(Side::Below) => {
            format!("median {median} of {rounds} rounds; the true median is below {upper} at that confidence")
        }
        None => format!(
            "median {median} of all {rounds} rounds; the true median is between {lower} and {upper} at that confidence"
        ),
    }
}

/// A figure that grows with speed: round trips or payload bytes per second.
#[expect(clippy::cast_precision_loss, reason = "wall time, whose noise is larger")]
fn figure(workload: &Workload, report: &Report) -> Result<f64> {
    let results = report.wall.as_ref().map(|wall| wall.results.as_slice()).unwrap_or_default();
    let result = results.first().context("niclab-perf measured nothing; its messages are above")?;
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
    fn rounds_end_when_the_limit_is_outside_the_interval() {
        let (verdict, rounds) = decided(|_| 20.9);
        assert_eq!((verdict.outcome, rounds), (Outcome::Held, 13));
        assert_eq!(
            verdict.found,
            "median 20.90 of 13 rounds; the true median is above 20.90 at that confidence"
        );
        assert_eq!(verdict.expected, "at least 3, with an error probability of at most 1 in 1000");
        assert_eq!(decided(|_| 2.4).0.outcome, Outcome::Broken);
        // One round in five is disturbed: a median of 20.9 still holds.
        let (verdict, rounds) = decided(|round| if round % 5 == 1 { 1.1 } else { 20.9 });
        assert!(verdict.outcome == Outcome::Held && rounds < 100, "{verdict:?}");
    }

    #[test]
    fn rounds_without_a_decision_are_undecided() {
        let (verdict, rounds) = decided(|round| f64::from(round % 2 * 2 + 2));
        assert_eq!((verdict.outcome, rounds), (Outcome::Undecided, 100));
        assert!(
            verdict.found.contains("between 2.00 and 4.00") && verdict.found.contains("100 rounds"),
            "{verdict:?}"
        );
    }

    #[test]
    fn subject_names_the_baseline_and_is_recognised() {
        let command = subject(&Baseline::Command(vec!["./x".into(), "1".into()]));
        assert_eq!(command, "live: wall time of `./x 1` divided by that of the program");
        assert!(
            is_subject(&command) && is_subject(&subject(&Baseline::Tcp)) && !is_subject("live: messages")
        );
    }

    #[test]
    fn failed_round_ends_the_measurement() {
        let error = decide(&RATIO, &mut |_| anyhow::bail!("no round trip")).unwrap_err();
        assert_eq!(error.to_string(), "no round trip");
    }
}
