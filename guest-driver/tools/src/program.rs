//! A workload's program as the simulator's hosts perform it, so that both count the same: `--as-simulated`.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use niclab_user::lists::Region;
use niclab_user::slices::PortOptions;
use niclab_user::{Address, BarePort, Device, FEATURE_LISTS};
use niclab_workloads::lists::{Limits, ListTransport, Receive, Terms};
use niclab_workloads::slices::SliceTransport;
use niclab_workloads::{
    AtomicMemory, End, Listener, Mark, PortPlan, Ports, Program, Script, Sizes, Transport, Wrong,
};

use crate::Failure;
use crate::bench::{End as Side, Outcome, Step};
use crate::cli::Pair;
use crate::cue;
use crate::nic::NicOptions;

/// Looks that find nothing between two questions whether time is up and the device lives.
const LOOKS_PER_CHECK: u32 = 1 << 20;

/// What two ends do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One message there, one back.
    PingPong,
    /// Messages in one direction, and one that confirms them.
    Stream,
}

/// Performs `step` between cues; the first end gets the outcome.
///
/// # Errors
///
/// [`Failure::Nic`], [`Failure::OutOfStep`], [`Failure::NotConducted`].
pub fn run(
    device: &Device,
    options: &NicOptions,
    pair: Pair,
    kind: Kind,
    step: &Step,
) -> Result<Option<Outcome>, Failure> {
    let port = |pair: Pair| -> PortPlan {
        let peer = End { node: pair.peer as u16, port: options.port as u16 };
        // A pair's flows have the numbers of those who send them.
        PortPlan { number: options.port, sends: Some((pair.rank, peer)), partners: vec![(pair.peer, peer)] }
    };
    let (node, plan) = (pair.rank as u16, port(pair));
    if device.info().has(FEATURE_LISTS) {
        let limits = Limits {
            events: options.slices,
            entries: u64::from(device.info().list_entries / device.info().ports.max(1)),
            unexpected_messages: u64::MAX,
            partners: 2,
        };
        let terms = Terms::new(Receive::Posted, step.payload_bytes as u64, &limits);
        return perform(device, options, pair, kind, step, ListTransport::new(node, &plan, terms));
    }
    perform(device, options, pair, kind, step, SliceTransport::new(node, &plan))
}

/// The port, and its region where there is one.
struct Opened {
    port: BarePort,
    region: Option<Region>,
}

impl Ports for Opened {
    type Memory<'a> = AtomicMemory<'a>;

    fn memory(&mut self, _: usize) -> AtomicMemory<'_> {
        let region = self.region.as_ref().map_or(&[][..], |region| region.memory().words());
        AtomicMemory { page: self.port.page(), records: self.port.records(), region }
    }

    fn announce(&mut self) {
        self.port.announce();
    }

    fn completer(&self) -> &[AtomicU64] {
        self.port.records().completer
    }
}

/// Remembers the first message that is not what was sent.
struct Strict {
    peer: End,
    wrong: Option<String>,
}

impl Listener for Strict {
    fn on_message(&mut self, _: End, from: End, mark: &Mark, payload: impl Iterator<Item = u64>) {
        if from != self.peer || !payload.eq(mark.payload()) {
            self.wrong.get_or_insert_with(|| format!("{mark:?} from {from:?}"));
        }
    }

    fn on_wrong(&mut self, _: Wrong, what: impl FnOnce() -> String) {
        self.wrong.get_or_insert_with(what);
    }
}

struct Performer<T: Transport> {
    program: Program<T>,
    opened: Opened,
    listener: Strict,
    peer: String,
    timeout: Duration,
}

impl<T: Transport> Performer<T> {
    /// Performs a script until `expected` messages came.
    fn perform(&mut self, script: Script, expected: u64) -> Result<(), Failure> {
        let due = self.program.received() + expected;
        self.program.perform(script);
        let (mut looks, began) = (0_u32, Instant::now());
        while !self.program.is_done() || self.program.received() < due {
            let stepped = self.program.step(&mut self.opened, &mut self.listener);
            let is_idle = !stepped.map_err(|fault| self.out_of_step(fault.to_string()))?;
            if let Some(wrong) = self.listener.wrong.take() {
                return Err(self.out_of_step(wrong));
            }
            looks = if is_idle { looks.wrapping_add(1) } else { 0 };
            if is_idle && looks.is_multiple_of(LOOKS_PER_CHECK) {
                self.opened.port.check()?;
                if began.elapsed() > self.timeout {
                    return Err(self.out_of_step(format!("{} of {due} messages", self.program.received())));
                }
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn out_of_step(&self, found: String) -> Failure {
        Failure::OutOfStep { peer: self.peer.clone(), expected: "the workload's next message".into(), found }
    }
}

fn perform<T: Transport>(
    device: &Device,
    options: &NicOptions,
    pair: Pair,
    kind: Kind,
    step: &Step,
    transport: T,
) -> Result<Option<Outcome>, Failure> {
    let port = BarePort::open(device, PortOptions::default().port(options.port).slices(options.slices))?;
    let bytes = usize::try_from(transport.region_bytes()).unwrap_or(usize::MAX);
    let (region, name) = if bytes == 0 {
        (None, 0)
    } else {
        let (region, name) = port.allocate(bytes)?;
        (Some(region), name)
    };
    let peer = Address { node: pair.peer, port: options.port };
    let credits = transport.credits(options.slices);
    let mut performer = Performer {
        program: Program::default(),
        opened: Opened { port, region },
        listener: Strict { peer: peer.into(), wrong: None },
        peer: peer.to_string(),
        timeout: options.timeout,
    };
    performer.program.open(transport, options.slices, &mut performer.opened);
    if let Some(credits) = credits {
        performer.opened.port.authorize(peer, credits)?;
        performer.opened.port.route(peer)?;
    }
    performer.program.begin(0, name);
    performer.perform(Script::idle(), 0)?;
    cue::wait(cue::CONNECTED)?;
    if step.warmup > 0 {
        let (script, expected) = script(kind, pair, step, step.warmup);
        performer.perform(script, expected)?;
    }
    cue::wait(cue::WARM)?;
    let (script, expected) = script(kind, pair, step, step.iterations);
    let began = Instant::now();
    performer.perform(script, expected)?;
    let elapsed = began.elapsed();
    cue::wait(cue::MEASURED)?;
    let messages = if kind == Kind::PingPong { 2 * step.iterations } else { step.iterations };
    Ok((pair.end == Side::First).then_some(Outcome { messages, elapsed, round_trip: None }))
}

/// What this end does, and how many messages it receives.
fn script(kind: Kind, pair: Pair, step: &Step, count: u64) -> (Script, u64) {
    let sizes = Sizes { bytes: step.payload_bytes as u32, interrupt_every: step.flags.interrupt_every };
    match (kind, pair.end) {
        (Kind::PingPong, Side::First) => (Script::ping(sizes, pair.rank, count), count),
        (Kind::PingPong, Side::Second) => (Script::pong(sizes, pair.rank, count), count),
        (Kind::Stream, Side::First) => (Script::burst(sizes, vec![pair.rank], count), 1),
        (Kind::Stream, Side::Second) => (Script::confirm(sizes, pair.rank, count), count),
    }
}
