//! The lines that a user sees while cases run. One boot may have thousands of seeds, so several seeds share a line.

use niclab_cluster::conform::{case::CaseKind, verdict::Verdict};

use super::outcome;

/// Number of passed seeds of one boot that share a line.
const SEEDS_A_LINE: usize = 10;

/// Counts the cases, and makes the lines.
pub struct Progress {
    all: usize,
    is_one_boot: bool,
    done: usize,
    /// Seeds that passed and have no line yet.
    passed: Option<Passed>,
}

struct Passed {
    label: String,
    first: u64,
    last: u64,
    count: usize,
    wall_s: f64,
}

impl Progress {
    /// For `all` cases. With `is_one_boot`, the seeds of the adversarial device share a boot.
    pub const fn new(all: usize, is_one_boot: bool) -> Self {
        Self { all, is_one_boot, done: 0, passed: None }
    }

    /// Counts one more case, and returns the lines to show now.
    pub fn add(&mut self, verdict: &Verdict) -> Vec<String> {
        let label = verdict.label();
        let is_joined = self.is_one_boot && verdict.passed && verdict.case == CaseKind::Adversarial;
        let mut lines = Vec::new();
        if !is_joined || self.passed.as_ref().is_some_and(|passed| passed.label != label) {
            lines.extend(self.rest());
        }
        self.done += 1;
        let (seed, wall_s) = (verdict.seed, verdict.wall_s);
        if !is_joined {
            let what = outcome(verdict);
            lines.push(format!("{} of {}: {label}, seed {seed}: {what}, {wall_s:.1} s", self.done, self.all));
            return lines;
        }
        let passed =
            self.passed.get_or_insert(Passed { label, first: seed, last: seed, count: 0, wall_s: 0.0 });
        passed.last = seed;
        passed.count += 1;
        passed.wall_s += wall_s;
        if passed.count >= SEEDS_A_LINE {
            lines.extend(self.rest());
        }
        lines
    }

    /// The line for the passed seeds that have no line yet.
    pub fn rest(&mut self) -> Option<String> {
        let Passed { label, first, last, wall_s, .. } = self.passed.take()?;
        let seeds = if first == last { format!("seed {first}") } else { format!("seeds {first} to {last}") };
        Some(format!("{} of {}: {label}, {seeds}: passed, {wall_s:.1} s", self.done, self.all))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use niclab_cluster::conform::{traffic::Traffic, verdict::Named};

    use super::*;

    fn verdict(case: CaseKind, seed: u64, is_passed: bool) -> Verdict {
        let named = if is_passed { Vec::new() } else { vec![Named::Hang { what: "x".into() }] };
        Verdict {
            case,
            seed,
            debug_kernel: false,
            passed: is_passed,
            believed_device: false,
            named,
            note: None,
            not_run: None,
            consoles: None,
            not_exercised: None,
            traffic: Traffic::default(),
            moments: Vec::new(),
            wall_s: 0.5,
            adversarial: BTreeMap::new(),
            booted_with: None,
            repeat: String::new(),
            repeat_boot: None,
        }
    }

    #[test]
    fn passed_seeds_of_one_boot_share_lines() {
        let mut progress = Progress::new(14, true);
        let mut lines: Vec<String> = progress.add(&verdict(CaseKind::Plain, 1, true));
        lines.extend(
            (1..=12).flat_map(|seed| progress.add(&verdict(CaseKind::Adversarial, seed, seed != 12))),
        );
        lines.extend(progress.add(&verdict(CaseKind::Adversarial, 13, true)));
        lines.extend(progress.rest());
        assert_eq!(
            lines,
            [
                "1 of 14: plain, seed 1: passed (0 sent, 0 received, 0 events), 0.5 s",
                "11 of 14: adversarial, seeds 1 to 10: passed, 5.0 s",
                "12 of 14: adversarial, seed 11: passed, 0.5 s",
                "13 of 14: adversarial, seed 12: FAILED, hang: x, 0.5 s",
                "14 of 14: adversarial, seed 13: passed, 0.5 s"
            ]
        );
        assert!(progress.rest().is_none());
    }

    #[test]
    fn each_case_with_a_boot_of_its_own_has_a_line() {
        let mut progress = Progress::new(2, false);
        assert_eq!(progress.add(&verdict(CaseKind::Adversarial, 1, true)).len(), 1);
        assert_eq!(progress.add(&verdict(CaseKind::Adversarial, 2, true)).len(), 1);
    }
}
