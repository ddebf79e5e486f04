//! Many random simulations. Each seed gives a configuration, a workload, and the faults of links and devices. The
//! workload first runs with the faults. Then all faults are removed, the workload runs again, and no message may be
//! lost any more.
//!
//! Threads share the runs. The output depends on the seeds alone.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use niclab_abi::config::FEATURE_LISTS;
use niclab_model::nic::registry::{DrawnWorkload, Value};
use niclab_model::random::Random;
use niclab_observe::recording::{Recorded, Recorder};
use niclab_spec::Forwarding;
use niclab_spec::report::Checked;
use niclab_spec::sim::{SIM_CONFIG_VERSION, SimFirmwareReload, SimNode};
use niclab_spec::{
    DeviceFaults, Faults, Function, LinkConfig, NicConfig, NicModel, Profile, Receive, SimConfig, Workload,
    WorkloadKind,
};

use crate::run::{Options, run};

/// Stream of the seed for the configuration.
const CONFIGURATION_STREAM: u64 = 1 << 42;
/// Stream of the seed for faults of devices.
const DEVICE_FAULTS_STREAM: u64 = CONFIGURATION_STREAM + 1;
/// Stream of the seed for recordings.
const RECORDING_STREAM: u64 = 1 << 43;
/// First stream of the seed for parameters of models with streams of their own; one stream for each protocol.
const VALUES_STREAM: u64 = 1 << 45;
/// Stream of the seed for firmware programs of cards.
const FIRMWARE_RELOADS_STREAM: u64 = 1 << 44;
/// Number of profiles to choose from. Profiles added later change no seed.
const DRAWN_PROFILES: usize = 9;
/// Maximum payload of a datagram on the random links.
const MAX_DATAGRAM_BYTES: u32 = LinkConfig::DEFAULT_MTU_BYTES - Workload::ETHERNET_HEADERS_BYTES;

/// One run of a swarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmRun {
    /// Its seed.
    pub seed: u64,
    /// The configuration, in one line.
    pub what: String,
    /// Number of events processed.
    pub events: u64,
    /// Number of messages that programs received.
    pub received: u64,
    /// The failed checks, or the error of a run that did not start.
    pub broken: Vec<Checked>,
}

/// All runs of a swarm, by seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swarm {
    /// The model of all runs, if one was requested.
    pub model: Option<NicModel>,
    /// The seed of adversarial cards, if these were requested.
    pub adversarial: Option<u64>,
    /// The runs, in the order of their seeds.
    pub runs: Vec<SwarmRun>,
}

impl Swarm {
    /// Runs `count` seeds from `seed` on, on `threads` threads.
    #[must_use]
    pub fn new(seed: u64, count: usize, threads: usize) -> Self {
        Self::of(None, None, seed, count, threads)
    }

    /// The same with one model alone, or with adversarial cards. The cards of each run use the sum of `adversarial` and
    /// the run's own seed.
    #[must_use]
    pub fn of(
        model: Option<NicModel>,
        adversarial: Option<u64>,
        seed: u64,
        count: usize,
        threads: usize,
    ) -> Self {
        let results: Vec<Mutex<Option<SwarmRun>>> = (0..count).map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((offset, place)) = take(&next, &results) {
                let result = run_seed_of(model, adversarial, seed.wrapping_add(offset), &Options::default());
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.clamp(1, count.max(1)) {
                scope.spawn(work);
            }
            work();
        });
        let result = |place: Mutex<_>| place.into_inner().unwrap_or_else(PoisonError::into_inner);
        Self { model, adversarial, runs: results.into_iter().filter_map(result).collect() }
    }

    /// Whether every check of every run held.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.runs.iter().all(|run| run.broken.is_empty())
    }
}

fn take<'a, T>(next: &AtomicUsize, places: &'a [T]) -> Option<(u64, &'a T)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    places.get(number).map(|place| (number as u64, place))
}

impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for run in self.runs.iter().filter(|run| !run.broken.is_empty()) {
            writeln!(f, "seed {}: {}", run.seed, run.what)?;
            for checked in &run.broken {
                writeln!(f, "  {} failed: {}", checked.name, checked.detail)?;
            }
            write!(f, "  to reproduce: niclab-sim --swarm 1 --seed {}", run.seed)?;
            self.model.map_or(Ok(()), |model| write!(f, " --nic {}", model.name))?;
            self.adversarial.map_or(Ok(()), |adversarial| write!(f, " --adversarial {adversarial}"))?;
            writeln!(f)?;
        }
        let sum = |of: fn(&SwarmRun) -> u64| self.runs.iter().map(of).sum::<u64>();
        let failed = self.runs.iter().filter(|run| !run.broken.is_empty()).count();
        writeln!(
            f,
            "{} runs, {failed} failed; {} events, {} messages received",
            self.runs.len(),
            sum(|run| run.events),
            sum(|run| run.received)
        )
    }
}

/// Runs one seed, with cards of `model` if given, which are adversarial if `adversarial` is given.
#[must_use]
pub fn run_seed_of(
    model: Option<NicModel>,
    adversarial: Option<u64>,
    seed: u64,
    options: &Options<'_>,
) -> SwarmRun {
    let mut config = configuration_of(seed, model);
    let adversarial = adversarial.map(|adversarial| adversarial.wrapping_add(seed));
    config.nodes.iter_mut().for_each(|node| node.adversarial = adversarial);
    let what = describe(&config);
    let recording = recording(&config);
    let options = Options { heals: true, recording: recording.as_deref(), ..options.clone() };
    match run(&config, &options) {
        Ok(outcome) => SwarmRun {
            seed,
            what,
            events: outcome.events,
            received: outcome.received,
            broken: outcome.report.checks.into_iter().filter(|checked| !checked.held).collect(),
        },
        // A configuration that cannot run is a bug of this module.
        Err(error) => {
            let checked = Checked { name: "runs".to_owned(), held: false, detail: error.to_string() };
            SwarmRun { seed, what, events: 0, received: 0, broken: vec![checked] }
        }
    }
}

/// The configuration of a seed.
#[must_use]
pub fn configuration(seed: u64) -> SimConfig {
    configuration_of(seed, None)
}

/// The configuration of a seed with one model.
#[must_use]
pub fn configuration_of(seed: u64, model: Option<NicModel>) -> SimConfig {
    let mut sampler = Sampler(Random::new(seed, CONFIGURATION_STREAM));
    let workload = sampler.workload();
    let count = match workload.kind {
        WorkloadKind::AllToAll => 2 + sampler.below(8),
        // An odd number of neighbours needs an even number of nodes.
        WorkloadKind::NeighbourExchange | WorkloadKind::Random => 10 + 2 * sampler.below(6),
        _ => 2 + sampler.below(15),
    };
    let mut workload = workload;
    let model = model.unwrap_or_else(|| sampler.model(workload.function));
    let nic = if model.swarm.draws_apart {
        Sampler(Random::new(seed, VALUES_STREAM + u64::from(model.protocol))).nic(model, count, &mut workload)
    } else {
        sampler.nic(model, count, &mut workload)
    };
    let is_faulty = sampler.one_in(2) || sampler.one_in(2);
    let queue_frames =
        if sampler.one_in(8) { 1 + sampler.below(64) } else { LinkConfig::DEFAULT_QUEUE_FRAMES };
    let mut device_sampler = Sampler(Random::new(seed, device_faults_stream(model)));
    let has_device_faults = device_sampler.one_in(3) && model.swarm.draws_device_faults;
    // A link that is cut delays answers, and no answer overtakes another one. But a delayed answer would write its data
    // into memory again.
    let may_be_cut = workload.receive != Receive::Exposed;
    let mut node = |rank: u32, sampler: &mut Sampler| SimNode {
        name: format!("node{rank}"),
        nic: nic.clone(),
        device_faults: if has_device_faults {
            device_sampler.device_faults()
        } else {
            DeviceFaults::default()
        },
        adversarial: None,
        link: LinkConfig {
            bandwidth_bits_per_s: 1_000_000_000 * u64::from(1 + sampler.below(20)),
            latency_ns: sampler.below(200).into(),
            mtu_bytes: LinkConfig::DEFAULT_MTU_BYTES,
            queue_frames,
            faults: if is_faulty { sampler.faults(may_be_cut) } else { Faults::default() },
        },
    };
    let profile = sampler.profile(model);
    SimConfig {
        version: SIM_CONFIG_VERSION,
        cluster: "swarm".to_owned(),
        seed,
        framing: profile.framing,
        profile,
        forwarding: if sampler.one_in(4) { Forwarding::StoreAndForward } else { Forwarding::CutThrough },
        nodes: (0..count).map(|rank| node(rank, &mut sampler)).collect(),
        firmware_reloads: if workload.function == Function::Cluster {
            firmware_reloads(seed, model, count)
        } else {
            Vec::new()
        },
        workload,
    }
}

/// Firmware reloads of the cards, if the model has firmware. One of three runs begins with one, and one of four runs
/// has some under load.
fn firmware_reloads(seed: u64, model: NicModel, nodes: u32) -> Vec<SimFirmwareReload> {
    let Some(programs) = &model.descriptor().programs else { return Vec::new() };
    let mut sampler = Sampler(Random::new(seed, FIRMWARE_RELOADS_STREAM));
    let mut times = Vec::new();
    if sampler.one_in(3) {
        times.push(0);
    }
    if sampler.one_in(4) {
        let mut at_us = 0;
        times.extend((0..=sampler.below(4)).map(|_| {
            at_us += 1 + sampler.below(5_000);
            at_us
        }));
    }
    let mut reload = |at_us| SimFirmwareReload {
        model_time_ps: u64::from(at_us) * 1_000_000,
        image: (programs.draw)(&mut |bound| sampler.below(bound), nodes),
    };
    times.into_iter().map(&mut reload).collect()
}

/// Each model has a stream of its own, so that one model's choices do not change those of another.
fn device_faults_stream(model: NicModel) -> u64 {
    let own = if model == NicModel::default() { 0 } else { u64::from(model.protocol) << 16 };
    DEVICE_FAULTS_STREAM + own
}

/// The random recording that a configuration replays, if any: messages between close ranks at random times.
#[must_use]
pub fn recording(config: &SimConfig) -> Option<String> {
    config.workload.recording.as_ref()?;
    let mut sampler = Sampler(Random::new(config.seed, RECORDING_STREAM));
    let nodes = config.nodes.len() as u32;
    let mut time_ps = 0;
    // Writing to memory does not fail.
    let mut recorder = Recorder::new(Vec::new(), nodes).ok()?;
    for _ in 0..config.workload.count {
        time_ps += u64::from(sampler.below(2_000_000));
        let node = sampler.below(nodes);
        // A port has one destination, at this distance.
        let port = sampler.below(Workload::MAX_PORTS.min(nodes - 1));
        let message = Recorded {
            model_time_ps: time_ps,
            node: node as u16,
            port: port as u16,
            to: ((node + 1 + port) % nodes) as u16,
            to_port: port as u16,
            bytes: 8 * sampler.below(9),
            interrupt: sampler.one_in(4),
        };
        recorder.add(&message).ok()?;
    }
    String::from_utf8(recorder.finish().ok()?).ok()
}

fn describe(config: &SimConfig) -> String {
    let SimConfig { workload, nodes, .. } = config;
    let is_faulty = nodes.iter().any(|node| node.link.faults != Faults::default());
    let has_device_faults = nodes.iter().any(|node| !node.device_faults.is_none());
    format!(
        "{} of {} messages of {} bytes{}{} among {} nodes with {} slices, profile {}{}{}",
        workload.kind.name(),
        workload.count,
        workload.message_bytes,
        over(config),
        if workload.datagram_every == 0 { "" } else { " and datagrams" },
        nodes.len(),
        workload.slices,
        config.profile.name,
        if is_faulty { ", faulty links" } else { "" },
        if has_device_faults { ", faulty devices" } else { "" }
    )
}

/// The transport of the messages, if it is not the default model.
fn over(config: &SimConfig) -> String {
    let model = config.nodes.first().map(|node| node.nic.model).unwrap_or_default();
    match config.workload.function {
        Function::Ethernet => " over the Ethernet function".to_owned(),
        Function::Tcp => " over TCP".to_owned(),
        Function::Cluster if model == NicModel::default() => String::new(),
        Function::Cluster if model.has(FEATURE_LISTS) => {
            format!(" over {} cards, received as {}", model.title, config.workload.receive.name())
        }
        Function::Cluster => format!(" over {} cards{}{}", model.title, choices(config), programs(config)),
    }
}

/// The random parameters of the cards that are words.
fn choices(config: &SimConfig) -> String {
    let values = config.nodes.first().into_iter().flat_map(|node| node.nic.values().iter());
    let words = values.filter_map(|(parameter, value)| match value {
        Value::Word(word) if parameter.default_value() != *value => {
            Some(format!(", {} {word}", parameter.key))
        }
        _ => None,
    });
    words.collect()
}

/// The firmware reloads of the cards.
fn programs(config: &SimConfig) -> String {
    match config.firmware_reloads.len() {
        0 => String::new(),
        1 => ", another program".to_owned(),
        count => format!(", {count} other programs"),
    }
}

/// Makes random configurations that can run.
struct Sampler(Random);

impl Sampler {
    fn below(&mut self, bound: u32) -> u32 {
        self.0.below(bound)
    }

    fn one_in(&mut self, chances: u32) -> bool {
        self.below(chances) == 0
    }

    fn workload(&mut self) -> Workload {
        const KINDS: [WorkloadKind; 7] = [
            WorkloadKind::PingPong,
            WorkloadKind::Stream,
            WorkloadKind::AllToAll,
            WorkloadKind::NeighbourExchange,
            WorkloadKind::Incast,
            WorkloadKind::Random,
            WorkloadKind::Replay,
        ];
        let is_ethernet = self.one_in(6);
        let kind = KINDS[self.below(KINDS.len() as u32) as usize];
        let has_neighbours = matches!(kind, WorkloadKind::NeighbourExchange | WorkloadKind::Random);
        let interrupt_every = if self.one_in(3) { 1 + self.below(10) } else { 0 };
        Workload {
            function: if is_ethernet { Function::Ethernet } else { Function::Cluster },
            message_bytes: if is_ethernet { self.below(1 + MAX_DATAGRAM_BYTES) } else { 8 * self.below(9) },
            count: (1 + self.below(200)).into(),
            warmup: self.below(20).into(),
            interrupt_every: if is_ethernet { 0 } else { interrupt_every.into() },
            // The recording is generated, and never read from a file.
            recording: (kind == WorkloadKind::Replay).then(|| "drawn.jsonl".into()),
            slices: 8 << self.below(6),
            neighbours: has_neighbours.then(|| 1 + self.below(8)),
            ..Workload::new(kind)
        }
    }

    fn model(&mut self, function: Function) -> NicModel {
        if function == Function::Ethernet {
            return NicModel::default();
        }
        let others = NicModel::all().skip(1).filter(|model| model.swarm.one_in != 0);
        others.into_iter().find(|model| self.one_in(model.swarm.one_in)).unwrap_or_default()
    }

    fn nic(&mut self, model: NicModel, nodes: u32, workload: &mut Workload) -> NicConfig {
        let Workload { message_bytes, slices, .. } = *workload;
        let mut drawn =
            DrawnWorkload { nodes, message_bytes, slices, receive: 0, echoes: false, datagram_every: 0 };
        let values = (model.swarm.draw)(&mut |bound| self.below(bound), &mut drawn);
        if workload.function == Function::Cluster {
            workload.message_bytes = drawn.message_bytes;
            workload.slices = drawn.slices;
            workload.datagram_every = drawn.datagram_every;
            workload.receive = Receive::ALL[drawn.receive % Receive::ALL.len()];
            if workload.receive == Receive::Exposed {
                workload.kind = WorkloadKind::PingPong;
                (workload.neighbours, workload.recording) = (None, None);
            }
            if drawn.echoes {
                workload.kind = WorkloadKind::Echo;
                (workload.neighbours, workload.recording) = (None, None);
            }
        }
        NicConfig::with_values(values)
    }

    fn faults(&mut self, may_be_cut: bool) -> Faults {
        let mut chance = |most: u32| f64::from(self.below(2) * self.below(most)) / 1000.0;
        Faults {
            loss: chance(100),
            duplicate: chance(100),
            corrupt: chance(100),
            bit_errors: 0.0,
            reorder: chance(100),
            delay_ns: self.below(500).into(),
            partition: self.one_in(40) && may_be_cut,
        }
    }

    /// Every second node has faults, and each kind with probability one half.
    fn device_faults(&mut self) -> DeviceFaults {
        let is_faulty = self.below(2);
        let mut chance = || f64::from(is_faulty * self.below(2) * self.below(50)) / 1000.0;
        DeviceFaults {
            stale: chance(),
            short: chance(),
            bad_status: chance(),
            delay: chance(),
            lost_interrupt: chance(),
            duplicated_interrupt: chance(),
            delay_ns: (1 + self.below(20_000)).into(),
            ..DeviceFaults::default()
        }
    }

    fn profile(&mut self, model: NicModel) -> Profile {
        let names: Vec<&str> = Profile::bundled_names().take(DRAWN_PROFILES).collect();
        let name = names.get(self.below(names.len() as u32) as usize);
        // `htx-200mhz` is the platform of its own card. Other cards get `htx-200mhz-fitted`, so that old seeds stay the
        // same.
        let is_guest = |name: &&str| *name == "htx-200mhz" && model.default_profile != *name;
        let name = name.map(|name| if is_guest(name) { "htx-200mhz-fitted" } else { *name });
        // A test of the profiles' crate reads every bundled profile.
        name.and_then(Profile::bundled).unwrap_or_else(|| unreachable!("no bundled profile"))
    }
}
