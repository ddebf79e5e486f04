//! Judges the change of figures between two reports.

use std::collections::BTreeMap;

use niclab_spec::{
    ChangeLimit, Report,
    report::{GuestTime, Mode},
};

use super::budget::{MAX_CAUSES, Outcome, Part, Verdict, counted};

/// The verdict on each limit, from the first report to the second.
#[must_use]
pub fn verdicts(limits: &[ChangeLimit], base: &Report, new: &Report) -> Vec<Verdict> {
    limits.iter().map(|limit| verdict(limit, base, new)).collect()
}

fn verdict(limit: &ChangeLimit, base: &Report, new: &Report) -> Verdict {
    let what = limit.subject();
    let (Some((before, parts_before)), Some((after, parts_after))) =
        (figure(limit, base), figure(limit, new))
    else {
        let (expected, found) = (limit.to_string(), "a report does not count this figure".to_owned());
        return Verdict { what, outcome: Outcome::Broken, expected, found, causes: Vec::new() };
    };
    let is_broken = limit.is_broken(before, after);
    let mut causes = if is_broken { differences(parts_before, parts_after) } else { Vec::new() };
    if is_broken && limit.what.starts_with("model_") {
        causes.extend([base, new].into_iter().filter_map(estimate));
    }
    let outcome = Outcome::of(!is_broken);
    Verdict { what, outcome, expected: limit.allowed(before), found: found(before, after), causes }
}

/// The second value, and its difference to the first.
fn found(before: u64, after: u64) -> String {
    let by = i128::from(after) - i128::from(before);
    #[expect(clippy::cast_precision_loss, reason = "shown rounded; the difference itself is exact")]
    let percent = by as f64 * 100.0 / before as f64;
    match (by, before) {
        (0, _) => format!("{after}, unchanged"),
        (_, 0) => format!("{after} ({by:+})"),
        _ => format!("{after} ({by:+}, {percent:+.2}%)"),
    }
}

/// A warning that model time is not exact.
fn estimate(report: &Report) -> Option<String> {
    let why = report.model.why_estimate.as_deref().filter(|_| !report.model.is_exact)?;
    Some(format!("the model time of {} is an estimate: {why}", report.cluster))
}

/// A figure and its contributions; `None` if the report does not count it.
fn figure(limit: &ChangeLimit, report: &Report) -> Option<(u64, Vec<Part>)> {
    let wall = report.wall.as_ref();
    let value = match limit.what.as_str() {
        "model_time_ps" => Some(report.model.time_ps),
        "wall_boot_ns" => Some(wall?.boot_ns),
        "wall_commands_ns" => Some(wall?.commands_ns),
        "wall_guests_busy_ns" => {
            let guests = wall.filter(|wall| !wall.guests.is_empty())?.guests.iter();
            Some(guests.map(GuestTime::busy_ns).fold(0, u64::saturating_add))
        }
        // A simulated card with slots always polls, so its 0 would say nothing.
        "doorbells" if report.mode == Mode::Sim && report.nodes.iter().all(|node| node.doorbells == 0) => {
            return None;
        }
        _ => None,
    };
    match value {
        Some(value) => Some((value, Vec::new())),
        None => counted(&limit.what, limit.node.as_deref(), report),
    }
}

/// The contributions that differ, the largest difference first.
fn differences(before: Vec<Part>, after: Vec<Part>) -> Vec<String> {
    let mut pairs: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (file, parts) in [before, after].into_iter().enumerate() {
        for (whose, count) in parts {
            let sum = &mut pairs.entry(whose).or_default()[file];
            *sum = sum.saturating_add(count);
        }
    }
    let mut changed: Vec<(String, [u64; 2])> =
        pairs.into_iter().filter(|(_, [before, after])| before != after).collect();
    changed.sort_by_key(|(_, [before, after])| std::cmp::Reverse(before.abs_diff(*after)));
    let left = changed.len().saturating_sub(MAX_CAUSES);
    let mut causes: Vec<String> = (changed.into_iter().take(MAX_CAUSES))
        .map(|(whose, [before, after])| format!("{whose}: {after}, was {before}"))
        .collect();
    if left > 0 {
        causes.push(format!("and {left} more"));
    }
    causes
}

#[cfg(test)]
mod tests {
    use niclab_spec::report::NodeFigures;

    use super::*;
    use crate::report::samples::sample;

    fn judged(limit: &str, new: &Report) -> Verdict {
        verdict(&limit.parse().unwrap(), &sample(), new)
    }

    #[test]
    fn one_more_interrupt_breaks_and_names_node_and_cause() {
        let mut new = sample();
        new.nodes[0].interrupts.insert("armed".to_owned(), 1);
        let found = judged("interrupts>+0%", &new);
        assert_eq!((found.outcome, found.found.as_str()), (Outcome::Broken, "3 (+1, +50.00%)"));
        assert_eq!((found.what.as_str(), found.expected.as_str()), ("interrupts", "at most 2 +0%"));
        assert_eq!(found.causes, ["node0, cause armed: 1, was 0"]);
        assert!(judged("interrupts>+50%", &new).is_held() && judged("interrupts>+1", &new).is_held());
        assert!(judged("interrupts>+0%", &sample()).is_held());
    }

    #[test]
    fn model_and_wall_times_are_judged_like_counts() {
        let mut new = sample();
        new.model.time_ps += 1;
        new.model.latency.p99_ps = 900_000;
        new.wall.as_mut().unwrap().guests[0].user_ns += 1;
        for limit in ["model_time_ps>+0%", "model_latency_p99_ps>+5%", "wall_guests_busy_ns>+0%"] {
            assert_eq!(judged(limit, &new).outcome, Outcome::Broken, "{limit}");
            assert!(judged(limit, &sample()).is_held(), "{limit}");
        }
        let causes = judged("model_time_ps>+0%", &new).causes;
        assert_eq!(causes.last().unwrap(), "the model time of c is an estimate: races");
    }

    #[test]
    fn figure_that_a_report_lacks_is_broken() {
        let mut new = sample();
        (new.mode, new.wall, new.nodes[0].guest_interrupts) = (Mode::Sim, None, None);
        new.nodes[0].doorbells = 0;
        for limit in ["wall_boot_ns>+0%", "guest_interrupts>+0%", "doorbells>+0%"] {
            let found = judged(limit, &new);
            assert_eq!(found.outcome, Outcome::Broken, "{limit}");
            assert_eq!(found.found, "a report does not count this figure");
        }
    }

    #[test]
    fn extreme_counts_end_no_process() {
        let mut new = sample();
        new.nodes[0].interrupts.insert("a".to_owned(), u64::MAX);
        new.nodes[0].interrupts.insert("b".to_owned(), u64::MAX);
        assert_eq!(judged("interrupts>+0%", &new).outcome, Outcome::Broken);
        assert_eq!(judged("messages>+0%", &new).outcome, Outcome::Held);
        new.nodes =
            [u64::MAX, 7].map(|sent| NodeFigures { messages_sent: sent, ..new.nodes[0].clone() }).to_vec();
        assert_eq!(judged("lost_messages>+0%", &new).outcome, Outcome::Broken);
    }
}
