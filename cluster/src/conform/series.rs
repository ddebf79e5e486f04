//! Several seeds of an adversarial device in one boot. Each seed is set while the cards have no driver, so that a
//! driver begins with it like a driver that was loaded.
//!
//! After each seed the launcher checks how the command ended, which rules were broken, what kernels wrote to their
//! consoles, and whether one panicked. Querying a guest takes seconds (`debug`: leaks, and whether all debug tools
//! still run). So one query covers several seeds, and its findings are attributed to all of them. The first seed that
//! does not pass is the last of its boot: a later one would not begin in an intact guest.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{
    Booted, Found, Halt, Request,
    case::Case,
    conduct::Conduct,
    findings::{self, Activity},
    laboratory::{Laboratory, Trouble},
    of_trouble,
    traffic::Traffic,
    verdict::{Named, Verdict},
};
use crate::host::runtime::RuntimeRoot;

/// Seeds per query of guests with a debug kernel: one query takes as long as several seeds.
const SEEDS_PER_QUERY: usize = 25;

/// The note of a seed whose guests could not be queried.
const NOT_QUERIED: &str = "passed, but not checked for leaks, because its guests ended first";

/// The seeds of one boot, in order.
pub(super) struct Series<'a, 'r> {
    request: &'a Request<'r>,
    cases: &'a [Case],
    /// The seeds that passed since the last query of the guests.
    unasked: Vec<Done>,
    /// The count of each kind of adversarial behaviour after the last seed, and what the cards had done.
    adversarial_before: Counts,
    traffic_before: Traffic,
    /// Receives the verdict of each seed.
    on_verdict: &'a mut dyn FnMut(Verdict),
}

type Counts = BTreeMap<String, u64>;

/// A seed that has ended.
struct Done {
    case: Case,
    wall: Duration,
    /// How often each kind of adversarial behaviour happened during this seed.
    adversarial: Counts,
    /// What the cards did during this seed.
    traffic: Traffic,
}

/// The findings after a seed.
struct Seen {
    named: Vec<Named>,
    /// Whether guests with a debug kernel were queried.
    is_asked: bool,
    /// Why the seed could not be run.
    not_run: Option<String>,
}

impl Seen {
    fn is_passed(&self) -> bool {
        self.named.is_empty() && self.not_run.is_none()
    }
}

impl<'a, 'r> Series<'a, 'r> {
    /// For these seeds.
    pub(super) fn new(
        request: &'a Request<'r>,
        cases: &'a [Case],
        on_verdict: &'a mut dyn FnMut(Verdict),
    ) -> Self {
        Self {
            request,
            cases,
            unasked: Vec::new(),
            adversarial_before: Counts::new(),
            traffic_before: Traffic::default(),
            on_verdict,
        }
    }

    /// Runs them up to the first that does not pass; returns the number of seeds that ran.
    pub(super) fn carry_out(mut self, root: &RuntimeRoot) -> Result<usize, Halt> {
        let Some(&first) = self.cases.first() else { return Ok(0) };
        let mut begin = Instant::now();
        let mut booted = match Booted::begin(self.request, first, root) {
            Ok(booted) => booted,
            Err(failed) => {
                let found = Found::of(Err(failed))?;
                let (adversarial, traffic) = (Counts::new(), Traffic::default());
                self.report(Done { case: first, wall: begin.elapsed(), adversarial, traffic }, found);
                return Ok(1);
            }
        };
        let mut done = Ok(self.cases.len());
        for (number, &case) in self.cases.iter().enumerate() {
            let is_last = number + 1 == self.cases.len();
            let seen = match self.one(&mut booted, case, number > 0, is_last) {
                Ok(seen) => seen,
                Err(halt) => {
                    self.report_passed(Some(NOT_QUERIED));
                    done = Err(halt);
                    break;
                }
            };
            let (adversarial, traffic) = self.since_the_last(&booted);
            let over = Done { case, wall: begin.elapsed(), adversarial, traffic };
            if !seen.is_passed() {
                let consoles = if seen.named.is_empty() { None } else { booted.running.keep_consoles() };
                self.end(over, seen, consoles);
                done = Ok(number + 1);
                break;
            }
            self.unasked.push(over);
            if seen.is_asked {
                self.report_passed(None);
            }
            begin = Instant::now();
        }
        booted.running.shut_down(false);
        done
    }

    /// How often each kind of adversarial behaviour happened since the last call, and what the cards did.
    fn since_the_last(&mut self, booted: &Booted) -> (Counts, Traffic) {
        let Activity { adversarial: now, traffic, .. } = findings::activity(&booted.running);
        let traffic_before = std::mem::replace(&mut self.traffic_before, traffic);
        let before = std::mem::replace(&mut self.adversarial_before, now.clone());
        let since = |(kind, count): (String, u64)| {
            let count = count.wrapping_sub(before.get(&kind).copied().unwrap_or(0));
            (count > 0).then_some((kind, count))
        };
        (now.into_iter().filter_map(since).collect(), traffic.since(traffic_before))
    }

    /// Runs one seed, and returns the findings after it.
    fn one(&self, booted: &mut Booted, case: Case, is_later: bool, is_last: bool) -> Result<Seen, Halt> {
        let up = if is_later { Ok(()) } else { booted.bring_up() };
        let result = up.and_then(|()| {
            let mut lab = Laboratory::new(&mut booted.running);
            Conduct::new(&mut lab, case, self.request.commands.of(case.kind), booted.limit)
                .one_of_several(case.seed, is_later)
        });
        // A guest that hangs or has ended is not queried.
        let is_answering = !matches!(result, Err(Trouble::Ended(_) | Trouble::Hang(_)));
        let of_command = Found::of(result.map_err(|trouble| of_trouble(trouble, booted.has_own)))?;
        let mut named = findings::seen(&mut booted.running, is_answering);
        let on_debug_kernel = booted.running.plan().debug_kernel.is_some();
        let is_due = is_last || self.unasked.len() + 1 >= SEEDS_PER_QUERY;
        let is_found = !named.is_empty() || !of_command.named.is_empty();
        let is_asked = !on_debug_kernel || is_answering && (is_found || is_due);
        if on_debug_kernel && is_asked {
            let first = self.unasked.first().map_or(case.seed, |done| done.case.seed);
            let asked = match findings::asked(&mut booted.running) {
                Ok(asked) => asked,
                Err(failure) => Found::of(Err(of_trouble(failure.into(), booted.has_own)))?.named,
            };
            let new: Vec<Named> = asked.into_iter().filter(|found| !named.contains(found)).collect();
            named.extend(new.into_iter().map(|found| found.in_seeds(first, case.seed)));
        }
        named.extend(of_command.named);
        Ok(Seen { named, is_asked, not_run: of_command.not_run })
    }

    /// Reports the last seed of the boot, which did not pass.
    fn end(&mut self, over: Done, seen: Seen, consoles: Option<PathBuf>) {
        let is_of_several = seen.named.iter().any(Named::is_of_several_seeds);
        let shared = format!(
            "passed, except for the findings at seed {}, which may belong to this seed",
            over.case.seed
        );
        let note = is_of_several.then_some(shared.as_str());
        self.report_passed(note.or((!seen.is_asked).then_some(NOT_QUERIED)));
        // Findings are reported instead of the reason why the case could not continue.
        let not_run = seen.not_run.filter(|_| seen.named.is_empty());
        self.report(over, Found { named: seen.named, not_run, consoles, ..Found::default() });
    }

    /// Reports the pending seeds as passed.
    fn report_passed(&mut self, note: Option<&str>) {
        for done in std::mem::take(&mut self.unasked) {
            self.report(done, Found { note: note.map(str::to_owned), ..Found::default() });
        }
    }

    fn report(&mut self, Done { case, wall, adversarial, traffic }: Done, found: Found) {
        let not_exercised = Activity { traffic, ..Activity::default() }.not_exercised(case.kind, &[]);
        let found = Found { adversarial, traffic, not_exercised, ..found };
        let mut verdict = found.verdict(case, wall, (self.request.repeat)(&case, 1));
        let first = self.cases.first().map_or(case.seed, |first| first.seed);
        if case.seed != first {
            verdict.booted_with = Some(first);
            let boot = Case { seed: first, ..case };
            verdict.repeat_boot = Some((self.request.repeat)(&boot, case.seed.saturating_sub(first) + 1));
        }
        (self.on_verdict)(verdict);
    }
}
