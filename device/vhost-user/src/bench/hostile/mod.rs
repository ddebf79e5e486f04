//! What one guest can do to all others: how long a bystander's control request waits while another guest attacks.
//!
//! Everything goes through the daemon's own sockets, rings and pages. The attacker does what it does as fast as it can, on
//! a core of its own; the bystander, a node that has nothing to do with it, asks for its statistics once a millisecond
//! and measures until the answer is there. Drivers give up after five seconds.

mod attacks;

use niclab_abi::control::{CountersFrom, OP_COUNTERS};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use self::attacks::ATTACKS;
use super::{BenchError, attacks_by_feature, card_with};
use crate::frontend::{ClusterGuest, FrontendError};
use crate::lab::Lab;

/// Version of [`Report`] as JSON.
pub const REPORT_VERSION: u32 = 1;

/// Within which 99 of 100 requests are answered, whatever another guest does.
pub const GOAL_P99: Duration = Duration::from_millis(10);

/// Within which every request is answered.
pub const GOAL_MOST: Duration = Duration::from_millis(100);

/// Between two requests of the bystander. It sleeps: one that asks without a pause would be an attacker itself.
const PAUSE: Duration = Duration::from_millis(1);

/// Nodes: the attacker, somebody whom it may send to, and two bystanders.
const NODES: u16 = 4;

/// The bystander that asks.
const BYSTANDER: usize = 2;

/// How long a bystander waited while somebody attacked.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the attacker did.
    pub attack: &'static str,
    /// How often it did so. An attack that did nothing shows nothing.
    pub attempts: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Wall time from request to answer: the median.
    pub wall_p50_us: f64,
    /// 99 of 100.
    pub wall_p99_us: f64,
    /// The longest.
    pub wall_most_us: f64,
    /// A request that was not answered before a driver gives up, in words.
    pub failure: Option<String>,
}

impl Row {
    /// Whether the bystander was served as it should be.
    pub fn is_held(&self) -> bool {
        self.failure.is_none()
            && self.wall_p99_us <= GOAL_P99.as_secs_f64() * 1e6
            && self.wall_most_us <= GOAL_MOST.as_secs_f64() * 1e6
    }
}

/// The table of attacks.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Cores of the host.
    pub cores: usize,
    /// One row for each attack; the first is nobody's.
    pub rows: Vec<Row>,
}

/// Measures each attack for `duration`; only those whose name contains `only`.
///
/// # Errors
/// [`BenchError`] when an attack cannot be set up. That a bystander is not answered is a result.
pub fn run(duration: Duration, only: &str) -> Result<Report, BenchError> {
    let attacks = ATTACKS.iter().chain(attacks_by_feature()).filter(|attack| attack.name.contains(only));
    Ok(Report {
        version: REPORT_VERSION,
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        rows: attacks
            .map(|attack| measure(attack, |asked, _| asked >= duration))
            .collect::<Result<_, _>>()?,
    })
}

/// One way to hurt others.
pub(super) struct Attack {
    /// In the table.
    pub name: &'static str,
    /// What the cards of all nodes can do: bits of [`niclab_abi::config`].
    pub features: u64,
    /// Attacks until the scene is over, and counts how often it did.
    pub run: fn(&Scene<'_>) -> Result<(), BenchError>,
}

/// What an attacker gets: a laboratory, and until when.
pub(super) struct Scene<'a> {
    pub lab: &'a Lab,
    is_over: AtomicBool,
    attempts: AtomicU64,
}

impl Scene<'_> {
    /// Whether to go on.
    pub fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// It was done again, so many times.
    pub fn count(&self, attempts: u64) {
        self.attempts.fetch_add(attempts, Ordering::Relaxed);
    }
}

/// Attacks until it is enough: that is said by how long the bystander has asked, and how often the attacker has tried.
fn measure(attack: &Attack, is_enough: impl Fn(Duration, u64) -> bool) -> Result<Row, BenchError> {
    let model = card_with(attack.features);
    let lab = Lab::new(NODES, |config| {
        for node in &mut config.nodes {
            node.nic.model = model.into();
        }
    })?;
    let bystander = lab.guest(BYSTANDER)?;
    let scene = Scene { lab: &lab, is_over: AtomicBool::new(false), attempts: AtomicU64::new(0) };
    let attempts = || scene.attempts.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let attacker = scope.spawn(|| (attack.run)(&scene));
        let asked = ask(&bystander, |asked| attacker.is_finished() || is_enough(asked, attempts()));
        scene.is_over.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| BenchError::Attacker { attack: attack.name })??;
        Ok(row(attack.name, attempts(), asked))
    })
}

/// Asks for statistics, once at least, until it is over: the waits, and why there are no more.
fn ask(
    bystander: &ClusterGuest,
    is_over: impl Fn(Duration) -> bool,
) -> (Vec<Duration>, Option<FrontendError>) {
    let mut waits = Vec::new();
    let begin = Instant::now();
    loop {
        let asked = Instant::now();
        if let Err(error) = bystander.command(OP_COUNTERS, &CountersFrom::default()) {
            return (waits, Some(error));
        }
        waits.push(asked.elapsed());
        if is_over(begin.elapsed()) {
            return (waits, None);
        }
        std::thread::sleep(PAUSE);
    }
}

fn row(attack: &'static str, attempts: u64, asked: (Vec<Duration>, Option<FrontendError>)) -> Row {
    let (mut waits, failure) = asked;
    waits.sort_unstable();
    let us = |index: usize| waits.get(index).map_or(0.0, |wait| wait.as_secs_f64() * 1e6);
    Row {
        attack,
        attempts,
        requests: waits.len() as u64,
        wall_p50_us: us(waits.len() / 2),
        wall_p99_us: us(waits.len() * 99 / 100),
        wall_most_us: us(waits.len().saturating_sub(1)),
        failure: failure.map(|error| error.to_string()),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "How long a bystander's control request waits, wall time in us, on {} cores\n",
            self.cores
        )?;
        let width = self.rows.iter().map(|row| row.attack.len()).max().unwrap_or(0);
        writeln!(
            f,
            "{:width$}  {:>10} {:>9} {:>9} {:>9} {:>9}",
            "attack", "attempts", "requests", "p50", "p99", "most"
        )?;
        for row in &self.rows {
            let Row { attack, attempts, requests, wall_p50_us, wall_p99_us, wall_most_us, failure } = row;
            write!(
                f,
                "{attack:width$}  {attempts:>10} {requests:>9} {wall_p50_us:>9.0} {wall_p99_us:>9.0} {wall_most_us:>9.0}"
            )?;
            match failure {
                Some(failure) => writeln!(f, "  NOT ANSWERED: {failure}")?,
                None if row.is_held() => writeln!(f)?,
                None => writeln!(f, "  too long")?,
            }
        }
        let held = self.rows.iter().filter(|row| row.is_held()).count();
        writeln!(
            f,
            "\n{held} of {} within {} ms (p99) and {} ms (most)",
            self.rows.len(),
            GOAL_P99.as_millis(),
            GOAL_MOST.as_millis()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_only_when_all_were_answered_in_time() {
        let ms = Duration::from_millis;
        let waits = |late: u64| (0..200).map(|index| if index == 7 { ms(late) } else { ms(1) }).collect();
        assert!(row("a", 1, (waits(99), None)).is_held());
        assert!(!row("a", 1, (waits(101), None)).is_held());
        assert!(!row("a", 1, (vec![ms(11); 200], None)).is_held());
        assert!(!row("a", 1, (waits(1), Some(FrontendError::Malformed("nothing")))).is_held());
    }

    #[test]
    fn every_attack_attacks_and_the_bystander_is_answered() {
        const NEVER: Duration = Duration::from_mins(1);
        for attack in ATTACKS.iter().chain(attacks_by_feature()) {
            // However long the first attempt takes on this host. One that never comes is seen after a minute.
            let is_tried = |asked, attempts| attempts > 0 || asked >= NEVER;
            let row = measure(attack, is_tried).unwrap();
            assert!(row.attempts > 0, "{}: nothing was tried", row.attack);
            assert_eq!(row.failure, None, "{}", row.attack);
        }
    }
}
