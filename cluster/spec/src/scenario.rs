//! A scenario: a cluster, a workload, and its budgets.
//!
//! ```toml
//! mode = "sim"
//!
//! [cluster]
//! nodes = 2
//!
//! [workload]
//! kind = "ping-pong"
//! count = 200
//!
//! [[budget]]
//! what = "pio_write"
//! per = "message"
//! exact = 1
//! ```
//!
//! Counts and model time are exact, so a budget on them gives the same verdict on any machine. There are no limits on
//! wall times, only on the ratio of the workload to a baseline, measured alternately in the same boot ([`Ratio`]).

use std::path::PathBuf;

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::workload::{Function, WorkloadKind};
use crate::{Budget, Cluster, ClusterFile, Faults, Source, SpecError, Workload};

/// The contents of a scenario file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "niclab scenario")]
pub struct ScenarioFile {
    /// Where the scenario runs.
    #[serde(default)]
    pub mode: ScenarioMode,
    /// Number of runs. Every run must keep the budgets. All runs must have equal counts, except those of a `program`.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 1000))]
    pub repeat: u32,
    /// Path of a cluster file, relative to the folder of this file. It excludes `cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_file: Option<PathBuf>,
    /// The keys of a cluster file. Default: two nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFile>,
    /// The messages that the nodes send.
    pub workload: Workload,
    /// The budgets on counts and model time.
    #[serde(default)]
    pub budget: Vec<Budget>,
    /// The limits on ratios of wall times, in live runs.
    #[serde(default)]
    pub ratio: Vec<Ratio>,
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScenarioMode {
    /// QEMU guests.
    Live,
    /// The simulator.
    #[default]
    Sim,
    /// Both. Their counts must be equal, and if the live run's model time is exact, their model times, too.
    Both,
}

/// A ratio of wall times: the baseline's over the workload's, so higher is better. Both run alternately in the same
/// boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// The baseline.
    pub baseline: Baseline,
    /// The minimum ratio.
    pub at_least: f64,
    /// Confidence of the verdict, below 1. The probability that a median ratio above the limit is called broken, or one
    /// below it held, is at most 1 minus this, for any number of rounds.
    #[serde(default = "usual_confidence")]
    pub confidence: f64,
    /// Maximum number of rounds. They end as soon as the verdict has this confidence; without it, the verdict is
    /// `undecided`.
    #[serde(default = "usual_rounds")]
    #[schemars(range(min = 1, max = 1000))]
    pub rounds: u32,
}

/// The baseline of a live workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Baseline {
    /// The same benchmark over TCP, through the card's Ethernet function. For a ping-pong and a stream.
    Tcp,
    /// For a `program`: another command, as in `baseline.command = ["./other"]`, with the environment of the first.
    /// niclab compares the wall times of the two, from their start to their end on all nodes.
    Command(Vec<String>),
}

const fn once() -> u32 {
    1
}

const fn usual_confidence() -> f64 {
    0.999
}

const fn usual_rounds() -> u32 {
    100
}

/// Maximum number of rounds and of runs: more would take too long.
const MAX_ROUNDS: u32 = 1000;

/// A scenario with valid values.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where it runs.
    pub mode: ScenarioMode,
    /// Number of runs.
    pub repeat: u32,
    /// The cluster.
    pub cluster: Cluster,
    /// The messages to send.
    pub workload: Workload,
    /// The budgets on counts and model time.
    pub budgets: Vec<Budget>,
    /// The limits on ratios of wall times.
    pub ratios: Vec<Ratio>,
}

impl Scenario {
    /// What the scenario probably misses, although it is valid.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let loses = |faults: &Faults| {
            faults.partition || faults.loss > 0.0 || faults.corrupt > 0.0 || faults.bit_errors > 0.0
        };
        let faulty: Vec<&str> = (self.cluster.nodes.iter())
            .filter(|node| loses(&node.link.faults))
            .map(|node| node.name.as_str())
            .collect();
        if faulty.is_empty() || self.budgets.iter().any(Budget::is_about_delivery) {
            return Vec::new();
        }
        vec![format!(
            "the links of {} lose or damage frames, but no budget says how many messages must arrive\n  fix: add a \
             budget with what = \"lost_messages\" or what = \"messages\"",
            faulty.join(", ")
        )]
    }
}

impl Source {
    /// Reads this text as a scenario, and checks all its values.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] with all problems and their locations; [`SpecError::Read`] for a file that the scenario
    /// names.
    pub fn scenario(&self) -> Result<Scenario, SpecError> {
        let file: ScenarioFile = self.parse()?;
        let cluster = self.scenario_cluster(&file)?;
        let mut problems = self.workload_problems("workload", &file.workload, &cluster);
        if !(1..=1000).contains(&file.repeat) {
            problems.push(self.problem("repeat", format!("{} runs", file.repeat), "use 1 to 1000"));
        }
        let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
        for (index, budget) in file.budget.iter().enumerate() {
            let problem = budget.problem(&names, file.mode != ScenarioMode::Sim);
            problems.extend(
                problem.map(|p| self.problem(&format!("budget[{index}].{}", p.key), p.what, p.remedy)),
            );
        }
        if file.mode != ScenarioMode::Live && file.workload.kind == WorkloadKind::Program {
            let what = "the simulator runs no programs";
            problems.push(self.problem("workload.kind", what, "use mode = \"live\""));
        }
        if file.mode != ScenarioMode::Sim && file.workload.function != Function::Cluster {
            let what = "guests run only workloads of the modelled NIC";
            problems.push(self.problem("workload.function", what, "use mode = \"sim\", or omit it"));
        }
        if file.mode != ScenarioMode::Sim && file.workload.datagram_every != 0 {
            let what = "programs in guests do not send these datagrams";
            problems.push(self.problem("workload.datagram_every", what, "use mode = \"sim\", or omit it"));
        }
        for (index, ratio) in file.ratio.iter().enumerate() {
            let problem = wrong_ratio(ratio, &file);
            problems.extend(
                problem
                    .map(|(key, what, remedy)| self.problem(&format!("ratio[{index}].{key}"), what, remedy)),
            );
        }
        if !problems.is_empty() {
            return Err(SpecError::Invalid(problems));
        }
        Ok(Scenario {
            mode: file.mode,
            repeat: file.repeat,
            cluster,
            workload: Workload {
                recording: file.workload.recording.as_deref().map(|path| self.path_of(path)),
                folder: file.workload.folder.as_deref().map(|path| self.path_of(path)),
                ..file.workload
            },
            budgets: file.budget,
            ratios: file.ratio,
        })
    }

    fn scenario_cluster(&self, file: &ScenarioFile) -> Result<Cluster, SpecError> {
        let resolve = |source: &Self, cluster: &ClusterFile| match file.mode {
            ScenarioMode::Sim => source.resolve(cluster),
            ScenarioMode::Live => source.resolve_booted(cluster),
            ScenarioMode::Both => {
                let lockstep = cluster.lockstep.unwrap_or(true);
                Ok(Cluster { lockstep, ..source.resolve_booted(cluster)? })
            }
        };
        match (&file.cluster_file, &file.cluster) {
            (Some(_), Some(_)) => {
                let remedy = "keep one of the two";
                Err(SpecError::Invalid(vec![self.problem(
                    "cluster_file",
                    "`cluster` and `cluster_file` exclude each other",
                    remedy,
                )]))
            }
            (Some(path), None) => {
                let source = Self::read(&self.path_of(path))?;
                resolve(&source, &source.cluster_file()?)
            }
            (None, cluster) => {
                resolve(&self.within("cluster"), cluster.as_ref().unwrap_or(&ClusterFile::default()))
            }
        }
    }
}

/// Key, problem and fix.
type ProblemText = (&'static str, String, String);

fn wrong_ratio(ratio: &Ratio, file: &ScenarioFile) -> Option<ProblemText> {
    let wrong = |key, what: String, remedy: &str| Some((key, what, remedy.to_owned()));
    if file.mode == ScenarioMode::Sim {
        return wrong(
            "baseline",
            "a simulation takes no wall time, so this can never fail".to_owned(),
            "use mode = \"live\" or \"both\"",
        );
    }
    if let Some((what, remedy)) = wrong_baseline(&ratio.baseline, &file.workload) {
        return wrong("baseline", what.to_owned(), remedy);
    }
    if !ratio.at_least.is_finite() || ratio.at_least <= 0.0 {
        return wrong(
            "at_least",
            "no ratio is below this, so it can never fail".to_owned(),
            "use more than 0",
        );
    }
    if !(0.5..1.0).contains(&ratio.confidence) {
        return wrong(
            "confidence",
            format!("a confidence of {} is not valid", ratio.confidence),
            "use 0.5 to less than 1",
        );
    }
    if !(1..=MAX_ROUNDS).contains(&ratio.rounds) {
        return wrong("rounds", format!("{} rounds", ratio.rounds), "use 1 to 1000");
    }
    let possible = possible_confidence(ratio.rounds);
    if possible < ratio.confidence {
        let what = format!("{} rounds can give a confidence of at most {possible:.3}", ratio.rounds);
        let least = (1..=MAX_ROUNDS).find(|rounds| possible_confidence(*rounds) >= ratio.confidence);
        let more = least.map_or_else(String::new, |least| {
            format!("allow {least} or more (they end as soon as the verdict is sure), or ")
        });
        return Some(("rounds", what, format!("{more}use a smaller `confidence`")));
    }
    None
}

/// Why the workload cannot be compared with the baseline, and the fix.
fn wrong_baseline(baseline: &Baseline, workload: &Workload) -> Option<(&'static str, &'static str)> {
    let is_program = workload.kind == WorkloadKind::Program;
    let is_benchmark = matches!(workload.kind, WorkloadKind::PingPong | WorkloadKind::Stream)
        && workload.function == Function::Cluster;
    match baseline {
        Baseline::Tcp if is_program => Some((
            "a program of yours has no variant over TCP that niclab knows",
            "name the command to compare it with: baseline.command = [\"./over-tcp\"]",
        )),
        Baseline::Tcp if !is_benchmark => Some((
            "only a ping-pong and a stream of the modelled NIC are compared with TCP",
            "use another workload, or omit the ratio",
        )),
        Baseline::Command(_) if !is_program => Some((
            "only a program of yours is compared with a command",
            "use kind = \"program\", or baseline = \"tcp\"",
        )),
        Baseline::Command(command) if command.first().is_none_or(String::is_empty) => {
            Some(("the command is empty", "write a list, such as [\"./over-tcp\"]"))
        }
        Baseline::Tcp | Baseline::Command(_) => None,
    }
}

/// Maximum confidence after this many rounds, if all are on one side of the limit. Each such round raises the stake of
/// `niclab check`'s sequential test; in total by the factor (2^(n + 1) - 1) / (n + 1).
fn possible_confidence(rounds: u32) -> f64 {
    let tosses = f64::from(rounds) + 1.0;
    1.0 - tosses / (tosses.exp2() - 1.0)
}

/// The JSON Schema of a scenario.
#[must_use]
pub fn scenario_schema() -> Schema {
    schema_for!(ScenarioFile)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "mode = \"both\"\n[cluster]\nnodes = 2\n[workload]\nkind = \"ping-pong\"\n";

    fn problem(text: &str) -> (usize, String) {
        match Source::from_text("s.toml", text).scenario() {
            Err(SpecError::Invalid(problems)) => {
                let first = &problems[0];
                (first.location.as_ref().map_or(0, |location| location.line), first.to_string())
            }
            other => panic!("expected a problem of\n{text}\ngot {other:?}"),
        }
    }

    #[test]
    fn limit_of_nodes_depends_on_the_mode() {
        let with = |mode: &str| GOOD.replace("both", mode).replace("nodes = 2", "nodes = 66");
        for number in ["0", "65"] {
            let (line, what) = problem(&with("live").replace("66", number));
            let expected = format!("{number} nodes cannot be booted");
            assert!(line == 3 && what.contains(&expected) && what.contains("use 1 to 64,"), "{line}: {what}");
        }
        let text = format!("{}[[budget]]\nwhat = \"pio_write\"\nper = \"message\"\nexact = 1\n", with("sim"));
        assert_eq!(Source::from_text("s.toml", text).scenario().unwrap().cluster.nodes.len(), 66);
    }

    #[test]
    fn a_scenario_is_read_with_its_defaults() {
        let text = format!("{GOOD}[[budget]]\nwhat = \"pio_write\"\nper = \"message\"\nexact = 1\n");
        let scenario = Source::from_text("s.toml", text).scenario().unwrap();
        assert_eq!((scenario.repeat, scenario.cluster.nodes.len()), (1, 2));
        assert_eq!(scenario.budgets[0].subject(), "pio_write per message");
    }

    #[test]
    fn program_is_compared_with_a_command_and_not_with_tcp() {
        let with = |baseline: &str| {
            let workload = "[workload]\nkind = \"program\"\ncommand = [\"x\"]";
            format!("mode = \"live\"\n{workload}\n[[ratio]]\n{baseline}\nat_least = 2\n")
        };
        let scenario =
            Source::from_text("s.toml", with("baseline.command = [\"y\", \"1\"]")).scenario().unwrap();
        assert_eq!(scenario.ratios[0].baseline, Baseline::Command(vec!["y".into(), "1".into()]));
        for (baseline, part) in
            [("baseline = \"tcp\"", "baseline.command"), ("baseline.command = []", "empty")]
        {
            let (line, message) = problem(&with(baseline));
            assert!(line == 6 && message.contains(part), "{line}: {message}");
        }
    }

    #[test]
    fn loss_without_a_budget_about_delivery_is_warned_about() {
        let warnings = |link: &str, budget: &str| {
            let cluster = format!("[cluster]\nnodes = 2\nlink = [{{ faults = {{ {link} }} }}]");
            let text = format!("{cluster}\n[workload]\nkind = \"stream\"\n{budget}");
            Source::from_text("s.toml", text).scenario().unwrap().warnings()
        };
        let interrupts = "[[budget]]\nwhat = \"interrupts\"\nexact = 0\n";
        let delivery = "[[budget]]\nwhat = \"lost_messages\"\nexact = 0\n";
        let found = warnings("loss = 1", interrupts);
        assert!(found.len() == 1 && found[0].contains("the links of node0, node1 lose"), "{found:?}");
        assert_eq!(warnings("partition = true", "").len(), 1);
        assert_eq!(warnings("loss = 1", delivery), [""; 0]);
        assert_eq!(warnings("duplicate = 1", ""), [""; 0], "a copy loses nothing");
    }

    #[test]
    fn budget_that_cannot_hold_or_fail_is_refused() {
        let after = |rest: &str| format!("{GOOD}{rest}");
        for (text, line, part) in [
            (after("[[budget]]\nwhat = \"interupts\"\nexact = 1"), 7, "did you mean `interrupts`?"),
            (after("[[budget]]\nwhat = \"messages\"\nat_least = 0"), 8, "can never fail"),
            (after("[[budget]]\nwhat = \"messages\"\nat_most = 1e300"), 8, "limits nothing"),
            (after("[[budget]]\nwhat = \"messages\"\nexact = -1"), 8, "not valid"),
            (after("[[budget]]\nwhat = \"messages\""), 7, "0 limits"),
            (after("[[budget]]\nwhat = \"messages\"\nexact = 1\nat_most = 2"), 7, "2 limits"),
            (after("[[budget]]\nwhat = \"messages\"\nnode = \"nod0\"\nexact = 1"), 8, "there is no node"),
            (
                after("[[budget]]\nwhat = \"model_latency_p50_ps\"\nper = \"message\"\nexact = 1"),
                8,
                "omit `per`",
            ),
            (after("[[ratio]]\nbaseline = \"tcp\"\nat_least = 0"), 8, "can never fail"),
            (after("[[ratio]]\nbaseline = \"tcp\"\nat_least = 2\nrounds = 3"), 9, "at most 0.733"),
            (after("[[ratio]]\nbaseline = \"tcp\"\nat_least = 2\nrounds = 12"), 9, "allow 13 or more"),
            (after("[[ratio]]\nbaseline = \"tcp\"\nat_least = 2\nrounds = 1001"), 9, "use 1 to 1000"),
            (after("[[ratio]]\nat_least = 2"), 6, "missing field `baseline`"),
            (after("[[ratio]]\nbaseline.command = [\"x\"]\nat_least = 2"), 7, "only a program of yours"),
            (after("function = \"ethernet\""), 6, "guests run only workloads of the modelled NIC"),
            (
                GOOD.replace("kind = \"ping-pong\"", "kind = \"program\"\ncommand = [\"x\"]"),
                5,
                "mode = \"live\"",
            ),
            (GOOD.replace("nodes = 2", "nodes = 1"), 5, "needs 2 nodes"),
            (GOOD.replace("nodes = 2", "nodes = 0"), 3, "fix:"),
            (GOOD.replace("nodes = 2", "nodess = 2"), 3, "did you mean `nodes`?"),
            (
                GOOD.replace("both", "sim") + "[[budget]]\nwhat = \"doorbells\"\nexact = 1",
                7,
                "can never fail",
            ),
            (
                GOOD.replace("both", "sim") + "[[ratio]]\nbaseline = \"tcp\"\nat_least = 2",
                7,
                "can never fail",
            ),
        ] {
            let (found, message) = problem(&text);
            assert!(message.contains(part), "{text}\n{message}");
            assert_eq!(found, line, "{text}\n{message}");
        }
    }
}
