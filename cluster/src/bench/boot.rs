//! How long two nodes take from a warm cache until both are healthy, and what the daemon then keeps resident.

use anyhow::Result;

use super::{
    Measured, Options,
    figure::{Clock, Figure, Goal},
    memory::{self, ResidentMemory},
};
use crate::{cli::ClusterArgs, runtime::RuntimeRoot};

/// Most wall time from the command to two healthy nodes, in seconds.
const BOOT_GOAL: Goal = Goal::Below(12.0);

/// A boot takes seconds, so its median is of fewer samples than a round trip's.
const MAX_BOOTS: usize = 3;

/// Boots two nodes a few times.
///
/// # Errors
/// When a boot fails.
pub fn measure(options: &Options, root: &RuntimeRoot) -> Result<Measured> {
    let args = ClusterArgs { nodes: Some(2), ..options.cluster.clone() };
    let (mut preparations, mut boots, mut totals) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = None;
    for _ in 0..options.rounds.clamp(1, MAX_BOOTS) {
        let booted = super::boot(options, root, &args, |_| {})?;
        preparations.push(booted.preparation.as_secs_f64());
        boots.push(booted.boot.as_secs_f64());
        totals.push((booted.preparation + booted.boot).as_secs_f64());
        memory = Some(booted.finish(|running| Ok(ResidentMemory::of(running.pids().1)?))?);
    }
    let seconds = |name, what, samples| Figure::new(name, what, Clock::Wall, "s", samples);
    let mut figures = vec![
        seconds("preparation", "command line to plan: programs, cache, accelerator", preparations),
        seconds("boot", "first process to both nodes healthy", boots),
        seconds("start", "command line to both nodes healthy", totals).with_goal(BOOT_GOAL),
    ];
    figures.extend(memory.iter().flat_map(|memory| memory::figures(memory, "idle")));
    Ok(Measured { figures, ..Measured::default() })
}
