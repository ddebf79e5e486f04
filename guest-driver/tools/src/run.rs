//! One invocation: from the command line to the report.

use std::io::Write as _;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use niclab_output::eprintln;
use niclab_user::{Device, FEATURE_CHANNELS, FEATURE_LISTS, FEATURE_POSTS, FEATURE_RINGS, WaitPolicy};

use crate::Failure;
use crate::bench::{Buffers, End, FlagPlan, Outcome, Step, inject, interrupts, pingpong, rate, stream};
use crate::channel::{Channel, Interrupting};
use crate::cli::{
    Command, InterruptArguments, Pair, RunArguments, Transport, WorkloadArguments, WorldArguments,
};
use crate::collective;
use crate::counters::{Counters, Span};
use crate::cue;
use crate::gamma::{self, ActiveChannel};
use crate::grim::{self, InTurn, PushChannel};
use crate::inic::{self, PostChannel};
use crate::matching::{self, ListChannel, Matching};
use crate::meeting;
use crate::nic::{self, NicOptions};
use crate::report::{self, Document, Row, Section};
use crate::slices::{self, SliceChannel};
use crate::tcp::{self, TcpChannel, TcpOptions};
use crate::udp::{self, UdpChannel};
use crate::workload;

/// A benchmark that any channel can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Benchmark {
    Pingpong,
    Stream,
    Rate,
    Inject,
}

impl Benchmark {
    fn name(self) -> &'static str {
        match self {
            Self::Pingpong => "pingpong",
            Self::Stream => "stream",
            Self::Rate => "rate",
            Self::Inject => "inject",
        }
    }

    /// Default numbers of measured messages and of warm-up messages. A run takes well under a minute even if each
    /// message takes a millisecond.
    fn counts(self) -> (u64, u64) {
        match self {
            Self::Pingpong => (2_000, 200),
            Self::Stream | Self::Rate | Self::Inject => (20_000, 1_000),
        }
    }

    fn run<C: Channel>(
        self,
        channel: &mut C,
        step: &Step,
        buffers: &mut Buffers,
    ) -> Result<Option<Outcome>, Failure> {
        match self {
            Self::Pingpong => pingpong::run(channel, step, buffers),
            Self::Stream => stream::run(channel, step, buffers),
            Self::Rate => rate::run(channel, step, buffers),
            Self::Inject => inject::run(channel, step, buffers),
        }
    }
}

/// What to run; the same at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    command: &'static str,
    parts: Vec<Part>,
    flags: FlagPlan,
    /// Messages that may share a doorbell. None: all that are ready.
    batch: Option<NonZeroU64>,
    matching: Matching,
    /// Number of channels, used round robin.
    channels: u32,
    /// Stop at cues; then there is one part of one size.
    is_coordinated: bool,
}

/// One benchmark and its sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    benchmark: Benchmark,
    sizes: Vec<usize>,
    iterations: u64,
    warmup: u64,
}

impl Plan {
    fn of(benchmark: Benchmark, arguments: &RunArguments) -> Self {
        let (iterations, warmup) = benchmark.counts();
        Self {
            command: benchmark.name(),
            parts: vec![Part {
                benchmark,
                sizes: arguments.sizes(),
                iterations: arguments.iterations.unwrap_or(iterations),
                warmup: arguments.warmup.unwrap_or(warmup),
            }],
            flags: arguments.flags(),
            batch: arguments.batch,
            matching: arguments.matching(),
            channels: arguments.channels,
            is_coordinated: arguments.coordinated,
        }
    }

    fn demo() -> Self {
        let part = |benchmark: Benchmark, sizes: &[usize]| {
            let (iterations, warmup) = benchmark.counts();
            Part { benchmark, sizes: sizes.to_vec(), iterations, warmup }
        };
        Self {
            command: "demo",
            parts: vec![part(Benchmark::Pingpong, &[8, 16, 32, 64]), part(Benchmark::Stream, &[16, 64])],
            flags: FlagPlan::default(),
            batch: None,
            matching: Matching::default(),
            channels: 1,
            is_coordinated: false,
        }
    }

    fn sizes(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().flat_map(|part| part.sizes.iter().copied())
    }

    /// Largest payload.
    fn payload_bytes(&self) -> usize {
        self.sizes().max().unwrap_or_default()
    }
}

/// Runs what the command line asks for, and prints the report.
///
/// # Errors
///
/// Any [`Failure`].
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Pingpong(arguments) => bench_as_told(arguments, Benchmark::Pingpong),
        Command::Stream(arguments) => bench_as_told(arguments, Benchmark::Stream),
        Command::Rate(arguments) => bench_as_told(arguments, Benchmark::Rate),
        Command::Inject(arguments) => bench_as_told(arguments, Benchmark::Inject),
        Command::Demo(arguments) => bench(&arguments.world, &Plan::demo()),
        Command::Interrupts(arguments) => count_interrupts(arguments),
        Command::Collective(arguments) => collective::run(arguments),
        Command::Workload(arguments) => perform(arguments),
    }
}

fn bench_as_told(arguments: &RunArguments, benchmark: Benchmark) -> Result<(), Failure> {
    bench(&arguments.world, &Plan::of(benchmark, arguments))
}

fn bench(world: &WorldArguments, plan: &Plan) -> Result<(), Failure> {
    if let Some(transport) = world.transport.filter(|transport| transport.is_of_sockets()) {
        refuse_matching(transport, plan)?;
        return bench_sockets(world, plan, transport);
    }
    if world.transport == Some(Transport::Slices) {
        // Checked before the NIC is opened: the limit is the same on all cards.
        plan.sizes().try_for_each(slices::check_size)?;
    }
    let device = nic::open_device(world.device.as_deref())?;
    let transport = transport_of(world, &device);
    let options = nic_options(world, world.policy(), &device, transport);
    let Some(pair) = nic_pair(world, &device)? else { return Ok(()) };
    let setting = Setting { world, device: &device, pair, transport };
    match transport {
        Transport::Lists => {
            refuse_channels(transport, plan)?;
            plan.sizes().try_for_each(|bytes| matching::check_size(&device, bytes))?;
            let (bytes, matching) = (plan.payload_bytes(), plan.matching);
            bench_nic(&setting, plan, ListChannel::open(&device, &options, pair.peer, bytes, matching)?)
        }
        Transport::Posts => {
            refuse_matching(transport, plan)?;
            if plan.flags != FlagPlan::default() {
                return Err(Failure::Usage(
                    "posted messages have no flags: drop --interrupt-every, --notify and --acknowledge"
                        .into(),
                ));
            }
            plan.sizes().try_for_each(|bytes| inic::check_size(&device, bytes))?;
            bench_nic(&setting, plan, PostChannel::open(&device, &options, pair.peer, plan.payload_bytes())?)
        }
        Transport::Channels => {
            refuse_matching(transport, plan)?;
            if plan.flags.acknowledge {
                return Err(Failure::Usage("channels acknowledge nothing: drop --acknowledge".into()));
            }
            plan.sizes().try_for_each(|bytes| grim::check_size(bytes, plan.is_coordinated, &device))?;
            let open = |number| {
                let options = NicOptions { port: options.port + number, ..options.clone() };
                PushChannel::open(&device, &options, pair.peer, plan.payload_bytes())
            };
            let channels = (0..plan.channels).map(open).collect::<Result<_, _>>()?;
            bench_nic(&setting, plan, InTurn::new(channels))
        }
        Transport::Active => {
            refuse_matching(transport, plan)?;
            if plan.flags != FlagPlan::default() {
                return Err(Failure::Usage(
                    "messages between active ports have no flags: drop --interrupt-every, --notify and \
                     --acknowledge"
                        .into(),
                ));
            }
            plan.sizes().try_for_each(gamma::check_size)?;
            bench_nic(
                &setting,
                plan,
                ActiveChannel::open(&device, &options, pair.peer, plan.payload_bytes())?,
            )
        }
        Transport::Slices | Transport::Tcp | Transport::Udp => {
            refuse_matching(transport, plan)?;
            plan.sizes().try_for_each(slices::check_size)?;
            bench_nic(&setting, plan, SliceChannel::open(&device, &options, pair.peer)?)
        }
    }
}

/// The transport of the command line, or else that of the NIC's features.
fn transport_of(world: &WorldArguments, device: &Device) -> Transport {
    world.transport.unwrap_or_else(|| natural_transport(device))
}

/// The transport of the NIC's features.
fn natural_transport(device: &Device) -> Transport {
    let natural = [
        (FEATURE_LISTS, Transport::Lists),
        (FEATURE_POSTS, Transport::Posts),
        (FEATURE_CHANNELS, Transport::Channels),
        (FEATURE_RINGS, Transport::Active),
    ];
    let found = natural.into_iter().find(|(feature, _)| device.info().has(*feature));
    found.map_or(Transport::Slices, |(_, transport)| transport)
}

fn refuse_channels(transport: Transport, plan: &Plan) -> Result<(), Failure> {
    if plan.channels == 1 || transport == Transport::Channels {
        return Ok(());
    }
    let name = transport.name();
    Err(Failure::Usage(format!("--transport {name} has no channels: drop --channels")))
}

fn refuse_matching(transport: Transport, plan: &Plan) -> Result<(), Failure> {
    refuse_channels(transport, plan)?;
    if plan.matching == Matching::default() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--transport {} does not match messages: drop --depth and --match-on, or choose --transport match",
        transport.name()
    )))
}

/// Where a benchmark runs.
struct Setting<'a> {
    world: &'a WorldArguments,
    device: &'a Device,
    pair: Pair,
    transport: Transport,
}

fn bench_nic(setting: &Setting<'_>, plan: &Plan, mut channel: impl Channel) -> Result<(), Failure> {
    let &Setting { world, device, pair, transport } = setting;
    // In a coordinated run the coordinator synchronises both ends, and greetings would count as measured messages.
    if !plan.is_coordinated {
        meeting::meet(&mut channel, plan.command, &format!("{plan:?}"), world.timeout())?;
    }
    let before = Counters::read(device)?;
    let (sections, steps) = run_parts(&mut channel, plan, pair, Benchmark::run)?;
    let span = Span { before, after: Counters::read(device)? };
    let peer_span = Span::from_words(meeting::part(&mut channel, steps, span.to_words())?);
    let document = Document {
        sections,
        matching: (transport == Transport::Lists).then_some(plan.matching),
        device: Some(span),
        peer_device: Some(peer_span),
        ..document(transport, plan.command, pair)
    };
    print(world, pair, &document)
}

/// Runs this rank's part of a workload.
fn perform(arguments: &WorkloadArguments) -> Result<(), Failure> {
    let WorkloadArguments { spec, rank, device, timeout, json } = arguments;
    let workload = workload::read(spec)?;
    let device = nic::open_device(device.as_deref())?;
    let rank = rank.unwrap_or(device.info().node);
    let place = u16::try_from(rank).unwrap_or(u16::MAX);
    let outcome = workload::run(&device, &workload, place, Duration::from_secs(*timeout))?;
    let Some(outcome) = outcome else { return Ok(()) };
    let benchmark = if outcome.round_trip.is_some() { "pingpong" } else { "stream" };
    let row = Row::new(workload.message_bytes as usize, workload.count, &outcome);
    let sections = vec![Section { benchmark, rows: vec![row] }];
    let pair = Pair { rank, peer: rank + 1, end: End::First };
    let transport = natural_transport(&device);
    write(*json, &Document { sections, ..document(transport, "workload", pair) })
}

fn bench_sockets(world: &WorldArguments, plan: &Plan, transport: Transport) -> Result<(), Failure> {
    check_sockets(world, plan, transport)?;
    let rank = world.rank.ok_or(Failure::NoRank)?;
    let Some(pair) = world.pair(rank, world.ranks)? else {
        announce_idle(rank);
        return Ok(());
    };
    let lower = pair.rank.min(pair.peer);
    let port = u16::try_from(lower).ok().and_then(|rank| world.tcp_port.checked_add(rank));
    let port = port.ok_or_else(|| Failure::Usage(format!("no TCP port {} plus {lower}", world.tcp_port)))?;
    let options = TcpOptions {
        listen: SocketAddr::new(world.address(lower)?, port),
        is_listener: pair.rank == lower,
        peer: world.address(pair.peer)?,
        payload_bytes: plan.payload_bytes(),
        policy: world.policy(),
        timeout: world.timeout(),
    };
    let mut channel = TcpChannel::open(&options, plan.command)?;
    let told = format!("{} {plan:?}", transport.name());
    meeting::meet(&mut channel, plan.command, &told, world.timeout())?;
    let sections = if transport == Transport::Udp {
        let own = world.address(pair.rank)?;
        let mut channel = UdpChannel::open(channel, own, options.peer, world.timeout())?;
        let (sections, steps) =
            run_parts(&mut channel, plan, pair, |_, channel, step, buffers| channel.stream(step, buffers))?;
        meeting::part(channel.control(), steps, [0; 6])?;
        sections
    } else {
        let (sections, steps) = run_parts(&mut channel, plan, pair, Benchmark::run)?;
        meeting::part(&mut channel, steps, [0; 6])?;
        sections
    };
    print(world, pair, &Document { sections, ..document(transport, plan.command, pair) })
}

/// Refuses options that sockets do not support.
fn check_sockets(world: &WorldArguments, plan: &Plan, transport: Transport) -> Result<(), Failure> {
    let is_udp = transport == Transport::Udp;
    let (name, most) = if is_udp { ("UDP", udp::MAX_PAYLOAD_BYTES) } else { ("TCP", tcp::MAX_PAYLOAD_BYTES) };
    if plan.flags != FlagPlan::default() {
        let remedy = "drop --interrupt-every, --notify and --acknowledge, or choose another --transport";
        return Err(Failure::Usage(format!("{name} has no message flags: {remedy}")));
    }
    if plan.payload_bytes() > most {
        let size = plan.payload_bytes();
        return Err(Failure::Usage(format!(
            "--size {size}: the largest payload over {name} is {most} bytes"
        )));
    }
    if is_udp && plan.parts.iter().any(|part| part.benchmark != Benchmark::Stream) {
        let only = "datagrams may be lost, and only a stream tolerates that: run `niclab-perf stream`";
        return Err(Failure::Usage(only.into()));
    }
    if is_udp && world.policy() != WaitPolicy::Block {
        return Err(Failure::Usage("UDP always waits in poll(2): drop --poll".into()));
    }
    Ok(())
}

/// Runs a step. A coordinated step has two parts, warm-up and measurement, each numbered from 1 and with cues around
/// it.
fn run_step(
    step: &Step,
    is_coordinated: bool,
    run: &mut dyn FnMut(&Step) -> Result<Option<Outcome>, Failure>,
) -> Result<Option<Outcome>, Failure> {
    if !is_coordinated {
        return run(step);
    }
    cue::wait(cue::CONNECTED)?;
    if step.warmup > 0 {
        run(&Step { iterations: step.warmup, warmup: 0, ..*step })?;
    }
    cue::wait(cue::WARM)?;
    let outcome = run(&Step { warmup: 0, ..*step })?;
    cue::wait(cue::MEASURED)?;
    Ok(outcome)
}

/// How a channel runs a step of a benchmark.
type Run<C> = fn(Benchmark, &mut C, &Step, &mut Buffers) -> Result<Option<Outcome>, Failure>;

/// Runs all steps. Returns their rows, which only the first end has, and the number of steps.
fn run_parts<C>(
    channel: &mut C,
    plan: &Plan,
    pair: Pair,
    run: Run<C>,
) -> Result<(Vec<Section>, u8), Failure> {
    let mut buffers = Buffers::new(plan.payload_bytes());
    let mut sections = Vec::new();
    let mut number = 0;
    for part in &plan.parts {
        let mut rows = Vec::new();
        for &payload_bytes in &part.sizes {
            number += 1;
            let step = Step {
                number,
                end: pair.end,
                payload_bytes,
                iterations: part.iterations,
                warmup: part.warmup,
                flags: plan.flags,
                batch: plan.batch,
            };
            let mut run = |step: &Step| run(part.benchmark, channel, step, &mut buffers);
            let outcome = run_step(&step, plan.is_coordinated, &mut run)?;
            rows.extend(outcome.map(|outcome| Row::new(payload_bytes, part.iterations, &outcome)));
        }
        sections.push(Section { benchmark: part.benchmark.name(), rows });
    }
    Ok((sections, number))
}

fn count_interrupts(arguments: &InterruptArguments) -> Result<(), Failure> {
    let world = &arguments.world;
    if let Some(transport) = world.transport.filter(|transport| transport.is_of_sockets()) {
        let name = transport.name();
        return Err(Failure::Usage(format!(
            "{name} raises no interrupts of the NIC: choose another --transport"
        )));
    }
    if world.poll.is_some_and(|poll| poll != crate::cli::Poll::Spin) {
        return Err(Failure::Usage(
            "with --poll block or adaptive the receiver requests additional interrupts, which would be counted: \
             drop --poll"
                .into(),
        ));
    }
    let device = nic::open_device(world.device.as_deref())?;
    let Some(pair) = nic_pair(world, &device)? else { return Ok(()) };
    let transport = transport_of(world, &device);
    let options = nic_options(world, WaitPolicy::Spin, &device, transport);
    let setting = Setting { world, device: &device, pair, transport };
    match transport {
        Transport::Lists => {
            let matching = Matching::default();
            let channel = ListChannel::open(&device, &options, pair.peer, INTERRUPT_BYTES, matching)?;
            count_interrupts_over(&setting, arguments, channel)
        }
        Transport::Posts => Err(Failure::Usage(
            "a sender of posted messages cannot request interrupts: the receiver's rules do, as in `niclab-perf \
             workload`"
                .into(),
        )),
        Transport::Active => Err(Failure::Usage(
            "a sender to an active port cannot request interrupts: the card raises them by `interrupt_frames` in the \
             [nic] table of the cluster"
                .into(),
        )),
        Transport::Channels => {
            let channel = PushChannel::open(&device, &options, pair.peer, INTERRUPT_BYTES)?;
            count_interrupts_over(&setting, arguments, channel)
        }
        Transport::Slices | Transport::Tcp | Transport::Udp => {
            count_interrupts_over(&setting, arguments, SliceChannel::open(&device, &options, pair.peer)?)
        }
    }
}

/// Payload bytes of a message with an interrupt.
const INTERRUPT_BYTES: usize = 16;
/// Default slices of a receive queue: they need 128 KiB of contiguous memory.
const MOST_SLICES: u32 = 1024;

fn count_interrupts_over(
    setting: &Setting<'_>,
    arguments: &InterruptArguments,
    mut channel: impl Interrupting,
) -> Result<(), Failure> {
    const COMMAND: &str = "interrupts";
    let &Setting { world, device, pair, transport } = setting;
    let plan = format!("{COMMAND} {} {}", arguments.iterations, arguments.interrupt_every);
    meeting::meet(&mut channel, COMMAND, &plan, world.timeout())?;
    let flags = FlagPlan { interrupt_every: arguments.interrupt_every, ..FlagPlan::default() };
    let step = Step {
        number: 1,
        end: pair.end,
        payload_bytes: INTERRUPT_BYTES,
        iterations: arguments.iterations,
        warmup: 0,
        flags,
        batch: None,
    };
    let mut buffers = Buffers::new(INTERRUPT_BYTES);
    let account = interrupts::run(&mut channel, device, &step, &mut buffers, world.timeout())?;
    meeting::part(&mut channel, step.number, [0; 6])?;
    // Both ends print, because each counted its own interrupts.
    write(world.json, &Document { interrupts: Some(account), ..document(transport, COMMAND, pair) })?;
    account.check()
}

fn nic_options(
    world: &WorldArguments,
    policy: WaitPolicy,
    device: &Device,
    transport: Transport,
) -> NicOptions {
    // With more slices a sender waits less often for its receiver. Other cards have windows of their own.
    let usual = if transport == Transport::Slices { MOST_SLICES.min(device.info().max_slices) } else { 256 };
    NicOptions { port: world.port, slices: world.slices.unwrap_or(usual), policy, timeout: world.timeout() }
}

fn nic_pair(world: &WorldArguments, device: &Device) -> Result<Option<Pair>, Failure> {
    let rank = world.rank.unwrap_or(device.info().node);
    let pair = world.pair(rank, Some(world.ranks.unwrap_or(device.info().nodes)))?;
    if pair.is_none() {
        announce_idle(rank);
    }
    Ok(pair)
}

fn announce_idle(rank: u32) {
    eprintln!("niclab-perf: rank {rank} has no neighbour, so it sends no messages");
}

fn document(transport: Transport, command: &'static str, pair: Pair) -> Document {
    Document {
        version: report::VERSION,
        tool: "niclab-perf",
        command,
        clock: "wall",
        transport: transport.name(),
        rank: pair.rank,
        peer: pair.peer,
        matching: None,
        sections: Vec::new(),
        interrupts: None,
        device: None,
        peer_device: None,
    }
}

/// Prints the report at the first end.
fn print(world: &WorldArguments, pair: Pair, document: &Document) -> Result<(), Failure> {
    match pair.end {
        End::First => write(world.json, document),
        End::Second => Ok(()),
    }
}

fn write(is_json: bool, document: &Document) -> Result<(), Failure> {
    let mut out = niclab_output::stdout();
    if is_json {
        report::write_json(document, &mut out)?;
    } else {
        report::write_text(document, &mut out)?;
    }
    Ok(out.flush()?)
}
