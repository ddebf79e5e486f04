//! How long two nodes take until both are healthy, restored from a template and booted, stage by stage. Also what the
//! first use of a template costs, and how much memory the daemon then keeps resident.

use std::time::{Duration, Instant};

use anyhow::Result;
use niclab_cluster::{arguments::ClusterArgs, boot::progress::Stage, host::runtime::RuntimeRoot, plan::Plan};
use niclab_images::{Cache, Silent};

use super::{
    Booted, Measured, Options,
    figure::{Clock, Figure, Goal},
    memory::{self, ResidentMemory},
};

/// Maximum wall time from the command to two healthy nodes, in seconds.
const START_GOAL: Goal = Goal::Below(1.2);

/// Maximum wall time that a template adds to the first run that needs it, in seconds.
const TEMPLATE_GOAL: Goal = Goal::Below(3.0);

/// A boot takes seconds, so its median has fewer samples than that of a round trip.
const MAX_ROUNDS: usize = 5;

/// Samples of one kind of start.
#[derive(Default)]
struct Starts {
    preparation: Vec<f64>,
    /// From the first process to both nodes healthy.
    processes: Vec<f64>,
    stages: [Vec<f64>; Stage::ALL.len()],
    /// From the command line to both nodes healthy.
    total: Vec<f64>,
}

impl Starts {
    fn add(&mut self, booted: &Booted) {
        self.preparation.push(booted.preparation.as_secs_f64());
        self.processes.push(booted.boot.as_secs_f64());
        self.total.push((booted.preparation + booted.boot).as_secs_f64());
        for (samples, stage) in self.stages.iter_mut().zip(Stage::ALL) {
            let took = booted.running.progress().took(stage);
            samples.extend(took.iter().map(Duration::as_secs_f64));
        }
    }

    /// The times of all stages, in order.
    fn figures(&self, name: &str, what: &str) -> Vec<Figure> {
        let mut figures = vec![
            seconds(
                &format!("{name}_preparation"),
                &format!("{what}: command line to plan"),
                &self.preparation,
            ),
            seconds(
                &format!("{name}_processes"),
                &format!("{what}: first process to both healthy"),
                &self.processes,
            ),
        ];
        let stages = self.stages.iter().zip(Stage::ALL).filter(|(samples, _)| !samples.is_empty());
        figures.extend(stages.map(|(samples, stage)| {
            let waits_for = format!("{what}: each node waits for {}", stage.waits_for());
            seconds(&format!("{name}_{}", stage.name()), &waits_for, samples)
        }));
        figures.push(seconds(name, &format!("{what}: command line to both healthy"), &self.total));
        figures
    }
}

fn seconds(name: &str, what: &str, samples: &[f64]) -> Figure {
    Figure::new(name, what, Clock::Wall, "s", samples.to_vec())
}

/// Starts two nodes several times, alternately in each way.
///
/// # Errors
/// When a start fails.
pub fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
    let warm = ClusterArgs { nodes: Some(2), ..options.cluster.clone() };
    let cold = ClusterArgs { cold: true, ..warm.clone() };
    let (mut restored, mut booted, mut packed) = (Starts::default(), Starts::default(), Starts::default());
    let mut templates = Vec::new();
    let mut memory = None;
    for _ in 0..options.rounds.clamp(1, MAX_ROUNDS) {
        let start = super::boot(options, root, &warm, |_| {})?;
        restored.add(&start);
        templates.push(template(start.running.plan())?);
        memory = Some(start.finish(|running| Ok(ResidentMemory::of(running.pids().1)?))?);
        for (starts, is_packed) in [(&mut booted, false), (&mut packed, true)] {
            let start = super::boot(options, root, &cold, |plan| {
                if is_packed {
                    pack(plan);
                }
            })?;
            starts.add(&start);
            start.finish(|_| Ok(()))?;
        }
    }
    let mut figures = restored.figures("start", "restored");
    if let Some(start) = figures.pop() {
        figures.push(start.with_goal(START_GOAL));
    }
    figures.extend(booted.figures("cold", "booted"));
    let total = |name, what, starts: &Starts| seconds(name, what, &starts.total);
    let [start, cold] = [total("start", "", &restored), total("cold", "", &booted)];
    let packed = total("cold_packed", "booted, with a kernel that unpacks itself", &packed);
    figures.push(Figure::ratio("start_over_cold", "ratio: restored over booted", &start, &cold));
    let unpacked = Figure::ratio(
        "cold_over_packed",
        "ratio: booted over booted with a kernel that unpacks itself",
        &cold,
        &packed,
    );
    figures.extend([unpacked, packed]);
    let added = templates.iter().zip(&restored.total).zip(&booted.total);
    let added: Vec<f64> = added.map(|((template, restored), booted)| template + restored - booted).collect();
    figures.push(seconds("template", "making a template", &templates));
    let what = "extra time of a first run that makes the template, compared with a boot";
    figures.push(seconds("template_added", what, &added).with_goal(TEMPLATE_GOAL));
    figures.extend(memory.iter().flat_map(|memory| memory::figures(memory, "idle")));
    Ok(Measured { figures, ..Measured::default() })
}

/// Makes the plan's templates in a temporary cache; returns the seconds.
fn template(plan: &Plan) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let cache = Cache::at(folder.path())?;
    let begin = Instant::now();
    plan.templates.iter().try_for_each(|template| template.ensure(&cache, &Silent))?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Makes the nodes boot the compressed kernel of the package.
fn pack(plan: &mut Plan) {
    for node in &mut plan.nodes {
        if let Some(kernel) = node.qemu.args.iter().position(|arg| arg == "-kernel") {
            node.qemu.args[kernel + 1].clone_from(&plan.packed_kernel);
        }
    }
}
