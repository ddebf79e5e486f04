//! Ratios of wall times to a baseline of the same boot, measured in turns, with a stated confidence.

use anyhow::{Context, Result};
use niclab_spec::{
    Report, Workload, WorkloadKind,
    scenario::{Baseline, Ratio},
};

use super::{budget::Verdict, live::LiveCluster};

/// Measures both in turns, and says whether the median ratio is above the limit with the confidence asked for.
///
/// # Errors
/// When a run fails or measures nothing.
pub fn verdict(ratio: &Ratio, workload: &Workload, cluster: &mut LiveCluster) -> Result<Verdict> {
    let Baseline::Tcp = ratio.baseline;
    let mut ratios = Vec::new();
    for _ in 0..ratio.rounds {
        let own = figure(workload, &cluster.benchmark(workload, &[])?)?;
        let baseline = figure(workload, &cluster.benchmark(workload, &["--transport", "tcp"])?)?;
        ratios.push(own / baseline);
    }
    ratios.sort_by(f64::total_cmp);
    let bound = lower_bound(&ratios, ratio.confidence);
    let percent = ratio.confidence * 100.0;
    Ok(Verdict {
        what: "live: wall time, tcp over the modelled NIC".to_owned(),
        held: bound >= ratio.at_least,
        expected: format!("at least {} times with a confidence of {percent} %", ratio.at_least),
        found: format!(
            "median {:.2}, above {bound:.2} with that confidence, {} rounds",
            ratios[ratios.len() / 2],
            ratios.len()
        ),
        causes: Vec::new(),
    })
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

/// The largest of the sorted values below which the median lies with a probability of at most `1 - confidence`, whatever
/// their distribution: the number of values below the median is binomial.
fn lower_bound(sorted: &[f64], confidence: f64) -> f64 {
    let n = sorted.len();
    let mut probability = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut at_most = probability;
    let mut bound = sorted.first().copied().unwrap_or_default();
    for (k, value) in (1..n).zip(sorted.iter().skip(1)) {
        // From the chance of k - 1 successes in n to that of k.
        #[expect(clippy::cast_precision_loss, reason = "at most 100 rounds")]
        let step = (n - k + 1) as f64 / k as f64;
        probability *= step;
        at_most += probability;
        if at_most > 1.0 - confidence {
            break;
        }
        bound = *value;
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_sign_test() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        // Of 5 values the least is a bound at 96.9 %; of 9 the second at 98.0 %; of 20 the sixth at 97.9 % and the third at 99.98 %.
        assert!((lower_bound(&values[..5], 0.95) - 1.0).abs() < f64::EPSILON);
        assert!((lower_bound(&values[..9], 0.95) - 2.0).abs() < f64::EPSILON);
        assert!((lower_bound(&values, 0.95) - 6.0).abs() < f64::EPSILON);
        assert!((lower_bound(&values, 0.999) - 3.0).abs() < f64::EPSILON);
    }
}
