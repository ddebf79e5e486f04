//! A whole workload, run as one rank with the program of the simulator's hosts, so that both do the same.

mod gamma;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use niclab_user::matching::Region;
use niclab_user::slices::PortOptions;
use niclab_user::{
    BarePort, Device, FEATURE_CHANNELS, FEATURE_LISTS, FEATURE_POSTS, FEATURE_RINGS, FEATURE_TURNS,
};
use niclab_workloads::grim::ChannelTransport;
use niclab_workloads::inic::PostTransport;
use niclab_workloads::matching::ListTransport;
use niclab_workloads::slices::SliceTransport;
use niclab_workloads::{
    AtomicMemory, InTurn, Pattern, Plan, PortPlan, Ports, Program, Script, Transport, Verifier, Workload,
};

use crate::Failure;
use crate::bench::{Latency, Outcome, room_for};
use crate::cue;

/// Size limit of a workload's description.
const MAX_BYTES: u64 = 16 << 20;
/// Empty polls before the program sleeps between polls. They take a few milliseconds, in which any message in flight
/// arrives. A program without messages by then waits for others, and leaves them its core.
const LOOKS_BEFORE_NAPS: u32 = 1 << 14;
/// The same in lockstep, where another program has the grant most of the time.
const LOOKS_BETWEEN_TURNS: u32 = 1 << 8;
/// Duration of a sleep.
const NAP: Duration = Duration::from_micros(50);
/// Sleeps between two checks of the time limit and the device.
const NAPS_PER_CHECK: u32 = 1 << 10;

/// Reads a workload, a JSON document: the whole file, or with `-` one line of standard input, so that answers to cues
/// can follow.
///
/// # Errors
///
/// [`Failure::Workload`].
pub fn read(path: &Path) -> Result<Workload, Failure> {
    let wrong = |what: String| Failure::Workload { path: path.to_owned(), what };
    let mut text = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_BYTES).read_until(b'\n', &mut text)
    } else {
        File::open(path).and_then(|file| BufReader::new(file).take(MAX_BYTES).read_to_end(&mut text))
    };
    let bytes = read.map_err(|error| wrong(error.to_string()))? as u64;
    if bytes == MAX_BYTES {
        return Err(wrong(format!("longer than {} bytes", MAX_BYTES - 1)));
    }
    let workload: Workload = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    workload.check().map_err(wrong)?;
    Ok(workload)
}

/// Runs the part of `rank` between cues. Returns the outcome if this rank measures.
///
/// # Errors
///
/// [`Failure::Nic`], [`Failure::Usage`], [`Failure::OutOfStep`], [`Failure::NotCoordinated`].
pub fn run(
    device: &Device,
    workload: &Workload,
    rank: u16,
    timeout: Duration,
) -> Result<Option<Outcome>, Failure> {
    if u32::from(rank) >= workload.nodes() {
        let what =
            format!("rank {rank} is not in this workload of {} nodes: give a lower --rank", workload.nodes());
        return Err(Failure::Usage(what));
    }
    let plan = Plan::new(workload);
    let stage = Stage { device, workload, plan: &plan, rank, timeout };
    if device.info().has(FEATURE_RINGS) {
        return measure(&stage, &mut gamma::Performer::open(&stage)?);
    }
    if device.info().has(FEATURE_POSTS) {
        return perform(&stage, |port| PostTransport::new(rank, port, workload.post_terms()));
    }
    if device.info().has(FEATURE_CHANNELS) {
        return perform(&stage, |port| ChannelTransport::new(rank, port, workload.channel_terms()));
    }
    if !device.info().has(FEATURE_LISTS) {
        return perform(&stage, |port| SliceTransport::new(rank, port));
    }
    let terms = workload.terms(plan.max_partners());
    if terms.window == 0 {
        return Err(Failure::Usage(
            "the cards have no room for a message of this workload: raise `slices` or lower `message_bytes`"
                .into(),
        ));
    }
    perform(&stage, |port| ListTransport::new(rank, port, terms))
}

/// The workload, the device that runs it, and the rank.
struct Stage<'a> {
    device: &'a Device,
    workload: &'a Workload,
    plan: &'a Plan,
    rank: u16,
    timeout: Duration,
}

/// Most stores that share a doorbell while the program finds more to do.
const MAX_BATCH: u32 = 32;

/// Open ports in order, each with its region if it has one.
#[derive(Default)]
struct OpenPorts {
    ports: Vec<(BarePort, Option<Region>)>,
    /// Stores may share a doorbell: not in lockstep, where a program stores once for each grant.
    batches: bool,
    /// Stores that the device was not notified of.
    deferred: u32,
}

impl OpenPorts {
    /// Notifies the device of all stores.
    fn announce_deferred(&mut self) {
        if std::mem::take(&mut self.deferred) > 0 {
            // All ports share one doorbell.
            self.ports.iter().take(1).for_each(|(port, _)| port.announce());
        }
    }
}

impl Ports for OpenPorts {
    type Memory<'a> = AtomicMemory<'a>;

    fn memory(&mut self, place: usize) -> AtomicMemory<'_> {
        let (port, region) = &self.ports[place];
        let region = region.as_ref().map_or(&[][..], |region| region.memory().words());
        AtomicMemory { page: port.page(), records: port.records(), region, payload: port.payload() }
    }

    fn announce(&mut self) {
        self.deferred += 1;
        if !self.batches || self.deferred >= MAX_BATCH {
            self.announce_deferred();
        }
    }

    fn completer(&self) -> &[AtomicU64] {
        self.ports.first().map_or(&[], |(port, _)| port.records().completer)
    }
}

/// Runs scripts over open ports.
trait Performs {
    /// Runs a script until it is done and `expected` messages arrived. Calls `on_message` for each message.
    fn perform(&mut self, script: Script, expected: u64, on_message: &mut dyn FnMut())
    -> Result<(), Failure>;
}

/// Runs all parts between cues.
fn measure(stage: &Stage<'_>, performer: &mut impl Performs) -> Result<Option<Outcome>, Failure> {
    let &Stage { device, workload, plan, rank, .. } = stage;
    let script = |scripts: &[Script]| scripts.get(usize::from(rank)).cloned().unwrap_or_else(Script::idle);
    performer.perform(Script::idle(), 0, &mut || ())?;
    // The card processes earlier posts before it answers this request, so all receives are posted when others begin.
    device.statistics()?;
    cue::wait(cue::CONNECTED)?;
    performer.perform(script(&plan.warmup), plan.expected(&plan.warmup, rank), &mut || ())?;
    cue::wait(cue::WARM)?;
    let is_pair = matches!(workload.pattern, Pattern::PingPong | Pattern::Stream);
    let is_first_of_pair = is_pair && rank.is_multiple_of(2) && u32::from(rank) + 1 < workload.nodes();
    let has_more = |script: &Script| script.unsent() > 0;
    let is_echoed = matches!(workload.pattern, Pattern::Echo(_))
        && plan.measured.get(usize::from(rank)).is_some_and(has_more);
    let is_measured = is_first_of_pair || is_echoed;
    let takes_trips = is_measured && workload.pattern != Pattern::Stream;
    let mut trips = room_for(if takes_trips { workload.count } else { 0 })?;
    let began = Instant::now();
    let mut last = began;
    performer.perform(script(&plan.measured), plan.expected(&plan.measured, rank), &mut || {
        if takes_trips {
            let now = Instant::now();
            trips.push(now.duration_since(last).as_nanos() as u64);
            last = now;
        }
    })?;
    let elapsed = began.elapsed();
    cue::wait(cue::MEASURED)?;
    let messages = if takes_trips { 2 * workload.count } else { workload.count };
    Ok(is_measured.then(|| Outcome {
        messages,
        elapsed,
        round_trip: Latency::of(&mut trips),
        ..Outcome::default()
    }))
}

/// A program over ports whose pages and records are mapped into its memory.
struct Performer<T: Transport> {
    program: Program<T>,
    ports: OpenPorts,
    verifier: Verifier,
    takes_turns: bool,
    timeout: Duration,
}

fn perform<T: Transport>(
    stage: &Stage<'_>,
    transport: impl Fn(&PortPlan) -> T,
) -> Result<Option<Outcome>, Failure> {
    let &Stage { device, workload, plan, rank, timeout } = stage;
    let mut performer = Performer {
        program: Program::default(),
        ports: OpenPorts { batches: !device.info().has(FEATURE_TURNS), ..OpenPorts::default() },
        verifier: Verifier::new(plan.flows.clone(), workload.promise),
        takes_turns: device.info().has(FEATURE_TURNS),
        timeout,
    };
    for port in plan.ports_of(workload, rank, performer.takes_turns) {
        performer.open(stage, &port, transport(&port))?;
    }
    measure(stage, &mut performer)
}

impl<T: Transport> Performer<T> {
    /// Opens a port, and authorizes its partners to send to it.
    fn open(&mut self, stage: &Stage<'_>, plan: &PortPlan, transport: T) -> Result<(), Failure> {
        let slices = stage.workload.slices;
        let place = self.ports.ports.len();
        let port = BarePort::open(stage.device, PortOptions::default().port(plan.number).slices(slices))?;
        let bytes = usize::try_from(transport.region_bytes()).unwrap_or(usize::MAX);
        let region = (bytes > 0).then(|| port.allocate(bytes)).transpose()?;
        let (region, name) = region.map_or((None, 0), |(region, name)| (Some(region), name));
        self.ports.ports.push((port, region));
        let credits = transport.credits(slices);
        self.program.open(plan, transport, slices, &mut self.ports);
        if let (Some(credits), Some((port, _))) = (credits, self.ports.ports.last()) {
            plan.partners.iter().try_for_each(|(_, partner)| port.authorize((*partner).into(), credits))?;
            plan.sends.iter().try_for_each(|(_, target)| port.route((*target).into()))?;
        }
        let requests = self.program.begin(place, name);
        if let Some((port, _)) = self.ports.ports.last() {
            requests.iter().try_for_each(|(operation, body)| port.request(*operation, body))?;
        }
        Ok(())
    }

    /// Does one operation, if there is one. Returns whether there was one; `None` once the script is done and all
    /// messages arrived.
    fn go_on(&mut self, due: u64) -> Result<Option<bool>, Failure> {
        let is_done = self.is_done(due);
        if is_done && !self.takes_turns {
            return Ok(None);
        }
        let went_on = if self.takes_turns {
            self.program.take_turn(&mut self.ports, &mut self.verifier)
        } else {
            let stepped = self.program.step(&mut self.ports, &mut self.verifier);
            stepped.map(|has_moved| if has_moved { InTurn::Taken } else { InTurn::Waits })
        };
        let went_on = went_on.map_err(|fault| out_of_step(fault.to_string()))?;
        match (self.verifier.take_wrong(), went_on) {
            (Some(wrong), _) => Err(out_of_step(wrong)),
            (None, InTurn::Over) if is_done => Ok(None),
            (None, InTurn::Over) => {
                Err(out_of_step(format!("the end of the run after {} of {due}", self.program.received())))
            }
            (None, went_on) => Ok(Some(went_on == InTurn::Taken)),
        }
    }

    fn is_done(&self, due: u64) -> bool {
        self.program.is_done() && self.program.received() >= due
    }

    /// Fails if the device is gone, or if the program has made no progress since `since` for longer than its timeout.
    fn check(&self, since: Instant, due: u64) -> Result<(), Failure> {
        self.ports.ports.iter().try_for_each(|(port, _)| port.check())?;
        // In lockstep a program waits for others even when its own script is done.
        if since.elapsed() > self.timeout && !self.is_done(due) {
            return Err(out_of_step(format!("no more messages after {} of {due}", self.program.received())));
        }
        Ok(())
    }
}

impl<T: Transport> Performs for Performer<T> {
    fn perform(
        &mut self,
        script: Script,
        expected: u64,
        on_message: &mut dyn FnMut(),
    ) -> Result<(), Failure> {
        let due = self.program.received() + expected;
        let looks_before_naps = if self.takes_turns {
            self.program.perform_in_turns(script, &mut self.ports);
            LOOKS_BETWEEN_TURNS
        } else {
            self.program.perform(script);
            LOOKS_BEFORE_NAPS
        };
        let (mut looks, mut quiet) = (0_u32, None);
        let mut before = self.program.received();
        while let Some(has_moved) = self.go_on(due)? {
            if self.program.received() > before {
                before = self.program.received();
                on_message();
            }
            if !has_moved {
                self.ports.announce_deferred();
            }
            looks = if has_moved { 0 } else { looks.saturating_add(1) };
            if has_moved {
                quiet = None;
            } else if looks < looks_before_naps {
                std::hint::spin_loop();
            } else {
                thread::sleep(NAP);
                if looks.is_multiple_of(NAPS_PER_CHECK) {
                    self.check(*quiet.get_or_insert_with(Instant::now), due)?;
                }
            }
        }
        self.ports.announce_deferred();
        Ok(())
    }
}

fn out_of_step(found: String) -> Failure {
    Failure::OutOfStep { peer: "the workload".into(), expected: "its next message".into(), found }
}
