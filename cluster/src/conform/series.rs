//! Several seeds of an adversarial device in one boot: for each the cards are given its seed between two drivers, so that a
//! driver begins with it as one does that is loaded.
//!
//! What a seed finds is looked for behind it: how the command ended, rules that were broken, what kernels wrote on
//! their consoles, panics. Asking a guest takes seconds (`debug`: leaks, and whether everything still watches), so
//! that one question is for several seeds, and what it finds is said to be of all of them. The first seed that is not
//! passed is the last of its boot: what comes behind it would not begin in a sound guest.

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

/// Seeds for which guests whose kernel watches are asked once: a question takes as long as some seeds.
const SEEDS_A_LOOK: usize = 25;

/// What is said of a seed whose guests could not be asked.
const NOT_ASKED: &str = "passed, but nobody looked for leaks: its guests ended before";

/// Seeds of one boot, one after the other.
pub(super) struct Series<'a, 'r> {
    request: &'a Request<'r>,
    cases: &'a [Case],
    /// Those that passed since guests were asked.
    unasked: Vec<Done>,
    /// How often each kind of adversarial behaviour had happened behind the last seed, and what the cards had done.
    adversarial_before: Counts,
    traffic_before: Traffic,
    /// Is told what became of each.
    on_verdict: &'a mut dyn FnMut(Verdict),
}

type Counts = BTreeMap<String, u64>;

/// A seed that is over.
struct Done {
    case: Case,
    wall: Duration,
    /// How often each kind of adversarial behaviour happened meanwhile.
    adversarial: Counts,
    /// What the cards did meanwhile.
    traffic: Traffic,
}

/// What was found behind a seed.
struct Seen {
    named: Vec<Named>,
    /// Whether guests were asked, if their kernel watches.
    is_asked: bool,
    /// Why it could not be carried out.
    not_run: Option<String>,
}

impl Seen {
    fn is_passed(&self) -> bool {
        self.named.is_empty() && self.not_run.is_none()
    }
}

impl<'a, 'r> Series<'a, 'r> {
    /// These seeds.
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

    /// Carries them out, up to the first that is not passed; how many that were.
    pub(super) fn carry_out(mut self, root: &RuntimeRoot) -> Result<usize, Halt> {
        let Some(&first) = self.cases.first() else { return Ok(0) };
        let mut begin = Instant::now();
        let mut booted = match Booted::begin(self.request, first, root) {
            Ok(booted) => booted,
            Err(failed) => {
                let found = Found::of(Err(failed))?;
                let (adversarial, traffic) = (Counts::new(), Traffic::default());
                self.tell(Done { case: first, wall: begin.elapsed(), adversarial, traffic }, found);
                return Ok(1);
            }
        };
        let mut done = Ok(self.cases.len());
        for (number, &case) in self.cases.iter().enumerate() {
            let is_last = number + 1 == self.cases.len();
            let seen = match self.one(&mut booted, case, number > 0, is_last) {
                Ok(seen) => seen,
                Err(halt) => {
                    self.tell_passed(Some(NOT_ASKED));
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
                self.tell_passed(None);
            }
            begin = Instant::now();
        }
        booted.running.shut_down(false);
        done
    }

    /// How often each kind of adversarial behaviour happened since this was last asked, and what the cards did.
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

    /// One seed, and what was found behind it.
    fn one(&self, booted: &mut Booted, case: Case, is_later: bool, is_last: bool) -> Result<Seen, Halt> {
        let up = if is_later { Ok(()) } else { booted.bring_up() };
        let result = up.and_then(|()| {
            let mut lab = Laboratory::new(&mut booted.running);
            Conduct::new(&mut lab, case, self.request.commands.of(case.kind), booted.limit)
                .one_of_several(case.seed, is_later)
        });
        // A guest that hangs or is gone is not asked.
        let is_answering = !matches!(result, Err(Trouble::Ended(_) | Trouble::Hang(_)));
        let of_command = Found::of(result.map_err(|trouble| of_trouble(trouble, booted.has_own)))?;
        let mut named = findings::seen(&mut booted.running, is_answering);
        let on_debug_kernel = booted.running.plan().debug_kernel.is_some();
        let is_due = is_last || self.unasked.len() + 1 >= SEEDS_A_LOOK;
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

    /// The last seed of the boot, which is not passed.
    fn end(&mut self, over: Done, seen: Seen, consoles: Option<PathBuf>) {
        let is_of_several = seen.named.iter().any(Named::is_of_several_seeds);
        let shared =
            format!("passed, but for what is named at seed {}, which may be of this one", over.case.seed);
        let note = is_of_several.then_some(shared.as_str());
        self.tell_passed(note.or((!seen.is_asked).then_some(NOT_ASKED)));
        // What was found is worth more than why nothing more could be.
        let not_run = seen.not_run.filter(|_| seen.named.is_empty());
        self.tell(over, Found { named: seen.named, not_run, consoles, ..Found::default() });
    }

    /// Those that wait for it are passed.
    fn tell_passed(&mut self, note: Option<&str>) {
        for done in std::mem::take(&mut self.unasked) {
            self.tell(done, Found { note: note.map(str::to_owned), ..Found::default() });
        }
    }

    fn tell(&mut self, Done { case, wall, adversarial, traffic }: Done, found: Found) {
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
