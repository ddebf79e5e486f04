//! What a debug kernel found in a run, and whether its tools were on.

mod console;
pub mod coverage;
mod guest;

use std::{fmt::Write as _, fs::File, path::Path, time::Duration};

use anyhow::Result;
use niclab_images::{Cache, DebugTool, DriverModule};
use niclab_spec::report::KernelFinding;

use self::guest::Answer;
use crate::{
    boot::{
        command::{self, CommandError, NodeCommand},
        running::RunningCluster,
    },
    plan::{DebugKernelPlan, NodePlan, Plan},
};

/// Time limit for a guest to report its findings; it waits for 6 s itself.
const LIMIT: Duration = Duration::from_secs(60);

/// The kind of finding for a tool that was off.
const NOT_CHECKING: &str = "not-checking";

/// Where a module's build finds the kernel's headers.
const KERNEL_HEADERS: &str = "/usr/lib/modules/";

/// Lines of a finding that are printed; the report has all of them.
const SHOWN_LINES: usize = 48;

/// The results of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFindings {
    /// The node.
    pub node: String,
    /// The findings.
    pub findings: Vec<KernelFinding>,
    /// The tools that were on.
    pub tools: Vec<DebugTool>,
}

/// Queries all guests and reads their consoles. Without a debug kernel the result is empty. For a guest that does not
/// answer, all tools count as off.
///
/// # Errors
/// [`crate::boot::running::Failure`] when the cluster ends.
pub fn look(running: &mut RunningCluster) -> Result<Vec<KernelFindings>> {
    let Some(debug_kernel) = running.plan().debug_kernel.clone() else { return Ok(Vec::new()) };
    let names: Vec<String> = debug_kernel.kernel.tools.iter().map(|tool| tool.name().to_owned()).collect();
    let limit = LIMIT * running.plan().timeout_factor;
    let command = |rank, _: &NodePlan| NodeCommand::shell(rank, guest::ASK, &names);
    let texts = match command::run_on_all(running, command, limit) {
        Ok(texts) => texts,
        Err(error) if error.is::<CommandError>() => {
            log::warn!("{error}");
            vec![None; running.plan().nodes.len()]
        }
        Err(error) => return Err(error),
    };
    let nodes = running.plan().nodes.iter().zip(&texts);
    let answer = |text: &str| guest::answer(&debug_kernel.kernel.tools, text);
    let text = |text: &Option<String>| answer(text.as_deref().unwrap_or_default());
    Ok(nodes.map(|(node, said)| of_node(&debug_kernel, node, text(said))).collect())
}

/// The findings on the consoles alone, for a cluster that has ended.
#[must_use]
pub fn look_at_consoles(plan: &Plan) -> Vec<KernelFindings> {
    let Some(debug_kernel) = &plan.debug_kernel else { return Vec::new() };
    plan.nodes.iter().map(|node| of_node(debug_kernel, node, Answer::default())).collect()
}

fn of_node(debug_kernel: &DebugKernelPlan, node: &NodePlan, answer: Answer) -> KernelFindings {
    let drivers = [node.driver.as_ref().map(|own| &own.module), debug_kernel.driver.as_ref()];
    let (findings, tools) = evaluate(&node.console, &drivers, answer);
    KernelFindings { node: node.name.clone(), findings, tools }
}

/// All findings, and the tools that were on.
fn evaluate(
    console: &Path,
    drivers: &[Option<&DriverModule>],
    answer: Answer,
) -> (Vec<KernelFinding>, Vec<DebugTool>) {
    // A missing console counts as empty.
    let mut findings = File::open(console).map(console::findings).unwrap_or_default();
    findings.extend(answer.leaks);
    for finding in &mut findings {
        place(finding, drivers);
    }
    let mut findings = merged(findings);
    // A finding may switch other tools off; its report says so.
    if findings.is_empty() {
        findings.extend(answer.off.into_iter().map(|(tool, why)| not_checking(tool, &why)));
    }
    (findings, answer.on)
}

fn not_checking(tool: DebugTool, why: &str) -> KernelFinding {
    KernelFinding {
        kind: NOT_CHECKING.to_owned(),
        title: format!("{tool} was off: {why}"),
        count: 1,
        ..KernelFinding::default()
    }
}

/// Finds the function, file and line of the first frame of a driver.
fn place(finding: &mut KernelFinding, drivers: &[Option<&DriverModule>]) {
    for driver in drivers.iter().copied().flatten() {
        let of_driver = format!("[{}]", driver.name);
        let is_frame =
            |line: &&str| line.contains(&of_driver) && line.contains("+0x") && !line.trim().starts_with('?');
        let Some(line) = finding.text.lines().find(is_frame) else { continue };
        finding.function = line
            .split([' ', '\t'])
            .find(|word| word.contains("+0x"))
            .and_then(|frame| Some(frame.split_once("+0x")?.0.to_owned()));
        let locations = Cache::locate()
            .map_or_else(|_| Vec::new(), |cache| niclab_images::locations(&cache, driver, line));
        // An inlined function of the kernel's headers is called by a line of the driver, which is more useful.
        let is_drivers = |location: &&niclab_images::SourceLocation| !location.at.starts_with(KERNEL_HEADERS);
        let Some(location) = locations.iter().find(is_drivers).or_else(|| locations.first()) else { return };
        finding.function = Some(location.function.clone());
        let (file, number) = location.at.rsplit_once(':').unwrap_or((&location.at, ""));
        finding.file = Some(file.to_owned());
        finding.line = number.parse().ok();
        return;
    }
}

/// Merges findings at the same place for the same reason, and counts them.
fn merged(found: Vec<KernelFinding>) -> Vec<KernelFinding> {
    let mut merged: Vec<KernelFinding> = Vec::new();
    for finding in found {
        let place = |finding: &KernelFinding| (finding.function.clone(), finding.file.clone(), finding.line);
        let is_same = |known: &&mut KernelFinding| {
            (&known.kind, &known.title) == (&finding.kind, &finding.title) && place(known) == place(&finding)
        };
        match merged.iter_mut().find(is_same) {
            Some(known) => known.count = known.count.saturating_add(1),
            None => merged.push(finding),
        }
    }
    merged
}

/// The text for users: each finding with its place and text; without findings, the tools that were on.
#[must_use]
pub fn text(watched: &[KernelFindings]) -> String {
    let mut text = String::new();
    for node in watched {
        for finding in &node.findings {
            let times = if finding.count > 1 { format!(", {} times", finding.count) } else { String::new() };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "niclab: {}: {}{times}: {}", node.node, finding.kind, headline(finding));
            for line in finding.text.lines().take(SHOWN_LINES) {
                let _ = writeln!(text, "  {line}");
            }
        }
        if node.findings.is_empty() {
            let names: Vec<&str> = node.tools.iter().map(|tool| tool.name()).collect();
            let _ = writeln!(text, "niclab: {}: no findings by {}", node.node, names.join(", "));
        }
    }
    text
}

fn headline(finding: &KernelFinding) -> String {
    let place = match (&finding.function, &finding.file, finding.line) {
        (Some(function), Some(file), Some(line)) => format!(" (in {function}, {file}:{line})"),
        (Some(function), ..) => format!(" (in {function})"),
        _ => String::new(),
    };
    format!("{}{place}", finding.title)
}

/// Whether there is a finding, a tool that was off included.
#[must_use]
pub fn is_anything_found(watched: &[KernelFindings]) -> bool {
    watched.iter().any(|node| !node.findings.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(title: &str, line: u32) -> KernelFinding {
        KernelFinding {
            kind: "kmemleak".into(),
            title: title.into(),
            count: 1,
            function: Some("f".into()),
            file: Some("/me/a.c".into()),
            line: Some(line),
            text: "one\ntwo\n".into(),
        }
    }

    #[test]
    fn equal_findings_at_one_place_are_merged_and_counted() {
        let found = merged(vec![finding("a", 1), finding("a", 1), finding("a", 2), finding("b", 1)]);
        assert_eq!(found.iter().map(|finding| finding.count).collect::<Vec<_>>(), [2, 1, 1]);
        let watched = [KernelFindings { node: "node0".into(), findings: found, tools: Vec::new() }];
        let text = text(&watched);
        assert!(
            text.starts_with("niclab: node0: kmemleak, 2 times: a (in f, /me/a.c:1)\n  one\n  two\n"),
            "{text}"
        );
        assert!(is_anything_found(&watched));
    }

    #[test]
    fn run_without_findings_names_the_tools() {
        let quiet = KernelFindings {
            node: "node1".into(),
            tools: vec![DebugTool::Kasan, DebugTool::Lockdep],
            ..KernelFindings::default()
        };
        assert_eq!(text(&[quiet]), "niclab: node1: no findings by kasan, lockdep\n");
    }

    #[test]
    fn tool_that_is_off_is_a_finding_only_without_others() {
        let folder = tempfile::tempdir().unwrap();
        let console = folder.path().join("console");
        let kinds = || {
            let off = vec![(DebugTool::Lockdep, "off".into())];
            let (findings, _) = evaluate(&console, &[], Answer { off, ..Answer::default() });
            findings.into_iter().map(|found| found.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(), [NOT_CHECKING]);
        std::fs::write(&console, "BUG: KASAN: x in f+0x1/0x2 [m]\n").unwrap();
        assert_eq!(kinds(), ["kasan"]);
    }
}
