//! How long bystanders wait while another guest attacks.
//!
//! The benchmark uses the daemon's real sockets, rings and pages. The attacker runs as fast as it can, on its own
//! core. One bystander, a node that does not communicate with the attacker, requests its statistics once per
//! millisecond. Another bystander connects and disconnects, and sends heartbeat requests to the monitor. Drivers give
//! up after five seconds.
//!
//! The machine itself contributes to every wait. So each attack has a control in the same run: the same cards,
//! connections and requests, without an attack.

mod attacks;

use niclab_abi::control::{CountersFrom, OP_COUNTERS};
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use niclab_model::nic::registry::Value;
use niclab_spec::NicConfig;
use niclab_spec::monitor::Request;
use serde::Serialize;

use self::attacks::{ATTACKS, NOTHING};
use super::{BenchError, attacks_by_feature, card_with};
use crate::frontend::{ClusterGuest, FrontendError};
use crate::lab::Lab;

/// Version of [`Report`] as JSON.
pub const REPORT_VERSION: u32 = 2;

/// The time in which 99 of 100 requests must be answered during any attack of another guest.
pub const GOAL_P99: Duration = Duration::from_millis(10);

/// The time in which every request must be answered.
pub const GOAL_MOST: Duration = Duration::from_millis(100);

/// Between two requests of the bystander. A bystander that requests without a pause would itself be an attacker.
const PAUSE: Duration = Duration::from_millis(1);

/// Nodes: the attacker, a node that it may send to, and two bystanders.
pub(super) const NODES: u16 = 4;

/// The bystander that sends requests.
const BYSTANDER: usize = 2;

/// The bystander that connects.
const NEWCOMER: usize = 3;

/// Between two connections, and between two requests to the monitor.
const NEWCOMER_PAUSE: Duration = Duration::from_millis(20);

/// How long bystanders waited.
#[derive(Clone, Debug, Serialize)]
pub struct Waits {
    /// Requests of the bystander that were answered.
    pub requests: u64,
    /// Wall time from request to answer: the median.
    pub wall_p50_us: f64,
    /// The 99th percentile of the same.
    pub wall_p99_us: f64,
    /// The maximum of the same.
    pub wall_most_us: f64,
    /// The maximum wall time in which the second bystander connected, including its card's first answer.
    pub wall_connect_most_us: f64,
    /// The maximum wall time from a request to the monitor to its answer.
    pub wall_monitor_most_us: f64,
    /// A request or connection without an answer in the time limit of drivers, or the success of the attack, in
    /// words.
    pub failure: Option<String>,
}

/// How long bystanders waited while a guest attacked.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The name of the attack.
    pub attack: &'static str,
    /// How often the attacker repeated it. An attack that did nothing shows nothing.
    pub attempts: u64,
    /// How long bystanders waited meanwhile.
    #[serde(flatten)]
    pub waits: Waits,
    /// How long bystanders waited with the same cards in the same run, without an attack.
    pub control: Option<Waits>,
}

impl Waits {
    /// Whether the bystanders' waits are within the limits.
    pub fn is_held(&self) -> bool {
        let most_us = GOAL_MOST.as_secs_f64() * 1e6;
        self.failure.is_none()
            && self.wall_p99_us <= GOAL_P99.as_secs_f64() * 1e6
            && [self.wall_most_us, self.wall_connect_most_us, self.wall_monitor_most_us]
                .iter()
                .all(|us| *us <= most_us)
    }
}

/// The table of attacks.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Cores of the host.
    pub cores: usize,
    /// One row for each attack. In the first one no guest attacks.
    pub rows: Vec<Row>,
}

/// Measures each attack, and its control, for `duration`; only those whose name contains `only`.
///
/// # Errors
/// [`BenchError`] if an attack cannot be set up. A bystander without an answer is a result, not an error.
pub fn run(duration: Duration, only: &str) -> Result<Report, BenchError> {
    let attacks = ATTACKS.iter().chain(attacks_by_feature()).filter(|attack| attack.name.contains(only));
    Ok(Report {
        version: REPORT_VERSION,
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        rows: attacks.map(|attack| measure_with_control(attack, duration)).collect::<Result<_, _>>()?,
    })
}

/// Measures the same cards without an attack, and then the attack.
fn measure_with_control(attack: &Attack, duration: Duration) -> Result<Row, BenchError> {
    let quiet = Attack { parameters: attack.parameters, features: attack.features, ..NOTHING };
    let control = measure(&quiet, |asked, _| asked >= duration)?.waits;
    let row = measure(attack, |asked, _| asked >= duration)?;
    Ok(Row { control: Some(control), ..row })
}

/// One attack.
pub(super) struct Attack {
    /// Its name in the table.
    pub name: &'static str,
    /// Features of the cards of all nodes, bits of [`niclab_abi::config`].
    pub features: u64,
    /// Parameters of all cards with other values than their defaults.
    pub parameters: &'static [(&'static str, Setting)],
    /// Attacks until the scene is over, and counts its attempts.
    pub run: fn(&Scene<'_>) -> Result<(), BenchError>,
}

/// A parameter of a card.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting {
    /// A number.
    Number(u64),
    /// A choice.
    Word(&'static str),
}

impl From<Setting> for Value {
    fn from(setting: Setting) -> Self {
        match setting {
            Setting::Number(number) => Self::Number(number),
            Setting::Word(word) => Self::Word(word.to_owned()),
        }
    }
}

/// A connection to the daemon's monitor.
pub(super) struct MonitorClient(BufReader<UnixStream>);

impl MonitorClient {
    /// Connects.
    ///
    /// # Errors
    /// [`BenchError::Monitor`].
    pub fn connect(lab: &Lab) -> Result<Self, BenchError> {
        UnixStream::connect(&lab.config().monitor_socket)
            .map(BufReader::new)
            .map(Self)
            .map_err(BenchError::Monitor)
    }

    /// Sends a request, and waits for the answer, a line of JSON.
    ///
    /// # Errors
    /// [`BenchError::Monitor`].
    pub fn ask(&mut self, request: &Request) -> Result<String, BenchError> {
        let mut answer = serde_json::to_vec(request).map_err(|error| BenchError::Monitor(error.into()))?;
        answer.push(b'\n');
        let mut line = String::new();
        let asked = self.0.get_mut().write_all(&answer).and_then(|()| self.0.read_line(&mut line));
        asked.map_err(BenchError::Monitor)?;
        Ok(line)
    }
}

/// The surroundings of an attack: a laboratory, and whether the time is over.
pub(super) struct Scene<'a> {
    pub lab: &'a Lab,
    is_over: AtomicBool,
    attempts: AtomicU64,
    forged: AtomicU64,
}

impl Scene<'_> {
    /// Whether the attack must continue.
    pub fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Counts attempts of the attack.
    pub fn count(&self, attempts: u64) {
        self.attempts.fetch_add(attempts, Ordering::Relaxed);
    }

    /// Counts received frames of the cluster that no card sent.
    pub fn count_forged(&self, frames: u64) {
        self.forged.fetch_add(frames, Ordering::Relaxed);
    }
}

/// Attacks until `is_enough`, by the bystander's time so far and the attacker's number of attempts.
fn measure(attack: &Attack, is_enough: impl Fn(Duration, u64) -> bool) -> Result<Row, BenchError> {
    let mut card = NicConfig::of(card_with(attack.features));
    for (key, setting) in attack.parameters {
        card.set(key, (*setting).into())?;
    }
    let lab = Lab::new(NODES, |config| config.nodes.iter_mut().for_each(|node| node.nic = card.clone()))?;
    let bystander = lab.guest(BYSTANDER)?;
    let scene = Scene {
        lab: &lab,
        is_over: AtomicBool::new(false),
        attempts: AtomicU64::new(0),
        forged: AtomicU64::new(0),
    };
    let attempts = || scene.attempts.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let attacker = scope.spawn(|| (attack.run)(&scene));
        let newcomer = scope.spawn(|| connect_repeatedly(&scene));
        let asked = ask(&bystander, |asked| attacker.is_finished() || is_enough(asked, attempts()));
        scene.is_over.store(true, Ordering::Relaxed);
        let died = |_| BenchError::Attacker { attack: attack.name };
        attacker.join().map_err(died)??;
        let others = newcomer.join().map_err(died)?;
        let mut waits = waits(asked, others);
        let forged = scene.forged.load(Ordering::Relaxed);
        if forged > 0 {
            waits.failure = Some(format!("{forged} frames of the cluster arrived that no card sent"));
        }
        Ok(Row { attack: attack.name, attempts: attempts(), waits, control: None })
    })
}

/// The maximum waits of a node that connects and of a request to the monitor, or the error of one without an answer.
fn connect_repeatedly(scene: &Scene<'_>) -> Result<[Duration; 2], BenchError> {
    let mut monitor = MonitorClient::connect(scene.lab)?;
    let mut most = [Duration::ZERO; 2];
    loop {
        let begin = Instant::now();
        drop(scene.lab.guest(NEWCOMER)?);
        let connected = Instant::now();
        monitor.ask(&Request::Heartbeat)?;
        for (most, wait) in most.iter_mut().zip([connected - begin, connected.elapsed()]) {
            *most = wait.max(*most);
        }
        if !scene.goes_on() {
            return Ok(most);
        }
        std::thread::sleep(NEWCOMER_PAUSE);
    }
}

/// Requests statistics at least once, until it is over. Returns the waits, and the error that ended them.
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

fn waits(asked: (Vec<Duration>, Option<FrontendError>), others: Result<[Duration; 2], BenchError>) -> Waits {
    let (mut waits, failure) = asked;
    waits.sort_unstable();
    let us = |wait: Duration| wait.as_secs_f64() * 1e6;
    let at = |index: usize| waits.get(index).copied().map_or(0.0, us);
    let failure = failure.map(|error| error.to_string());
    let (others, failure) = match others {
        Ok(others) => (others, failure),
        Err(error) => ([Duration::ZERO; 2], failure.or(Some(error.to_string()))),
    };
    let [connect, monitor] = others.map(us);
    Waits {
        requests: waits.len() as u64,
        wall_p50_us: at(waits.len() / 2),
        wall_p99_us: at(waits.len() * 99 / 100),
        wall_most_us: at(waits.len().saturating_sub(1)),
        wall_connect_most_us: connect,
        wall_monitor_most_us: monitor,
        failure,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "How long bystanders wait, wall time in us, on {} cores; c: the control without an attack\n",
            self.cores
        )?;
        let width = self.rows.iter().map(|row| row.attack.len()).max().unwrap_or(0);
        writeln!(
            f,
            "{:width$}  {:>10} {:>8} {:>7} {:>7} {:>7} {:>8} {:>8} {:>7} {:>7}",
            "attack", "attempts", "requests", "p50", "p99", "max", "connect", "monitor", "c p99", "c max"
        )?;
        for row in &self.rows {
            let Row { attack, attempts, waits, control } = row;
            let Waits { requests, wall_p50_us, wall_p99_us, wall_most_us, .. } = waits;
            let (connect, monitor) = (waits.wall_connect_most_us, waits.wall_monitor_most_us);
            let [p99, most] =
                control.as_ref().map_or([0.0; 2], |control| [control.wall_p99_us, control.wall_most_us]);
            write!(
                f,
                "{attack:width$}  {attempts:>10} {requests:>8} {wall_p50_us:>7.0} {wall_p99_us:>7.0} \
                 {wall_most_us:>7.0} {connect:>8.0} {monitor:>8.0} {p99:>7.0} {most:>7.0}"
            )?;
            match &waits.failure {
                Some(failure) => writeln!(f, "  FAILED: {failure}")?,
                None if waits.is_held() => writeln!(f)?,
                None => writeln!(f, "  too long")?,
            }
        }
        let held = self.rows.iter().filter(|row| row.waits.is_held()).count();
        writeln!(
            f,
            "\n{held} of {} within {} ms (p99) and {} ms (max)",
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
    fn row_is_held_only_if_all_waits_are_within_the_limits() {
        let ms = Duration::from_millis;
        let asked = |late: u64| (0..200).map(|index| if index == 7 { ms(late) } else { ms(1) }).collect();
        let quick = || Ok([ms(1); 2]);
        assert!(waits((asked(99), None), quick()).is_held());
        assert!(!waits((asked(101), None), quick()).is_held());
        assert!(!waits((vec![ms(11); 200], None), quick()).is_held());
        assert!(!waits((asked(1), Some(FrontendError::Malformed("nothing"))), quick()).is_held());
        assert!(!waits((asked(1), None), Ok([ms(101), ms(1)])).is_held());
        assert!(!waits((asked(1), None), Ok([ms(1), ms(101)])).is_held());
        assert!(!waits((asked(1), None), Err(FrontendError::Malformed("nothing").into())).is_held());
    }

    #[test]
    fn bystanders_are_answered_during_every_attack() {
        const NEVER: Duration = Duration::from_secs(60);
        for attack in ATTACKS.iter().chain(attacks_by_feature()) {
            // The first attempt may take long on this host. A missing one fails after a minute.
            let is_tried = |asked, attempts| attempts > 0 || asked >= NEVER;
            let row = measure(attack, is_tried).unwrap();
            assert!(row.attempts > 0, "{}: nothing was tried", row.attack);
            assert_eq!(row.waits.failure, None, "{}", row.attack);
        }
    }
}
