//! The monitor socket: one JSON request per line, one JSON answer per line.
//!
//! The monitor keeps answering if a client connects and sends nothing ([`connections`]), or if a thread never unlocks
//! the nodes ([`heart`]).

pub mod connections;
pub mod heart;
mod watch;

use crate::shell::adversarial;
use crate::shell::ledgers;
use crate::shell::settings;
use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use niclab_assembly::figures::{
    adversarial, device_faults, entries, fabric, histogram, link_events, named, nic_counts, peripherals,
    refusals,
};
use niclab_model::nic::adversarial::Adversarial;
use niclab_model::platform::histogram::Histogram;
use niclab_spec::monitor::{
    Answer, BrokenRules, BrokenRulesOfNode, DaemonHealth, DaemonStats, LinkState, LinkStates,
    MAX_REQUEST_BYTES, NodeHealth, RULES_WAIT, Request, STATS_VERSION, Stuck,
};
use niclab_spec::report::{ModelFigures, NodeFigures, PortFigures, TrafficStats, why_estimate};
use niclab_spec::{DeviceFaultProblem, DeviceFaults, Faults, rules};
use thiserror::Error;
use vhost_user_backend::VringT;
use virtio_queue::QueueT;

use self::connections::{ConnectionSlot, Connections, MAX_WATCHES};
use self::heart::Heart;
use self::watch::serve;
use crate::connection::listen_remedy;
use crate::ethernet::QUEUES_PER_PAIR;
use crate::shell::card::{Card, Traffic};
use crate::shell::events::cause_name;
use crate::shell::firmware_reload::LoadError;
use crate::shell::locks::LockedNodes;
use crate::shell::{Connected, Shell};

/// The monitor socket cannot be served.
#[derive(Debug, Error)]
pub enum MonitorError {
    /// The daemon cannot listen on it.
    #[error("cannot listen on the monitor socket {}: {error}{}", path.display(), listen_remedy(error))]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The operating system refused.
    #[error("cannot serve the monitor socket {}: {step}: {error}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// What was tried.
        step: &'static str,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// How long a connection may be silent, also within a request or an answer, before the daemon closes it.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a load request waits until the program runs.
const LOAD_TIMEOUT: Duration = Duration::from_secs(50);

/// How often a request that waits for broken rules checks for posts without a doorbell.
const RULES_INTERVAL: Duration = Duration::from_millis(100);

/// How often a waiting request checks whether its connection is open. The thread of a closed connection ends within
/// this time.
const ASK_INTERVAL: Duration = Duration::from_millis(20);

/// How long the accepting thread sleeps if it can accept no connection, so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The served socket, until this value is dropped.
pub struct Monitor {
    path: PathBuf,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Serves `path`.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn start(shell: &Arc<Shell>, path: &Path) -> Result<Self, MonitorError> {
        let failed = |error| MonitorError::Listen { path: path.to_owned(), error };
        let system = |step| move |error| MonitorError::System { path: path.to_owned(), step, error };
        clear_place(path).map_err(failed)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        // The mode must not depend on the umask, and must be set before the first answer.
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(system("setting its mode"))?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (shell, stopped) = (Arc::clone(shell), Arc::clone(&is_stopped));
        let thread = std::thread::Builder::new()
            .name("monitor".to_owned())
            .spawn(move || listen(&shell, &listener, &stopped))
            .map_err(system("starting a thread"))?;
        Ok(Self { path: path.to_owned(), is_stopped, thread: Some(thread) })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread. If that fails, the thread cannot be joined, and ends with the process.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
        // A file of another kind, which another process may have put there, stays.
        let _ = clear_place(&self.path);
    }
}

/// Removes the socket that a killed daemon left. Removes nothing but a socket.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] for anything else.
pub fn clear_place(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(about) if about.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the path exists, and is not a socket; remove it or choose another path",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn listen(shell: &Arc<Shell>, listener: &UnixListener, is_stopped: &AtomicBool) {
    let (connections, heart) = (Arc::new(Connections::default()), Arc::new(Heart::default()));
    for stream in listener.incoming() {
        if is_stopped.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            // The process has no descriptor left. The next attempt would fail at once, so the longest silent
            // connection is closed.
            if !connections.hang_up_on_silent() {
                std::thread::sleep(ACCEPT_PAUSE);
            }
            continue;
        };
        let Some(slot) = connections.admit(stream) else { continue };
        let (shell, heart) = (Arc::clone(shell), Arc::clone(&heart));
        let run = move || {
            if let Err(error) = serve_connection(&shell, &heart, &slot) {
                log::debug!("a monitor connection ended: {error}");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("monitor-client".to_owned()).spawn(run) {
            log::warn!("cannot start a thread for a monitor connection: {error}");
        }
    }
}

/// Answers the requests of one connection until it closes, is silent too long, or sends a line that is too long.
fn serve_connection(shell: &Shell, heart: &Heart, slot: &ConnectionSlot) -> io::Result<()> {
    let stream = slot.stream();
    stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
    stream.set_write_timeout(Some(SILENCE_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = Vec::new();
        let length = reader.by_ref().take(MAX_REQUEST_BYTES as u64).read_until(b'\n', &mut line)?;
        if length == 0 || line.last() != Some(&b'\n') {
            return Ok(());
        }
        slot.on_request();
        let answer = match serde_json::from_slice(&line) {
            Ok(Request::Watch(request)) if slot.watch() => return serve(shell, &request, stream),
            Ok(Request::Watch(_)) => Answer::Error {
                message: format!(
                    "{MAX_WATCHES} connections observe already, the maximum; end one of them first"
                ),
            },
            Ok(request) => answer_while(shell, heart, &request, &|| !slot.is_over()),
            Err(error) => Answer::Error { message: format!("this is not a monitor request: {error}") },
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        writer.write_all(&text)?;
    }
}

/// Answers one request. Only [`serve`] answers a watch request, over the request's own connection.
pub fn answer(shell: &Shell, request: &Request) -> Answer {
    answer_by(shell, &Heart::default(), request)
}

/// As [`answer`]. `heart` knows since when earlier requests have waited for the nodes' locks.
pub fn answer_by(shell: &Shell, heart: &Heart, request: &Request) -> Answer {
    answer_while(shell, heart, request, &|| true)
}

/// As [`answer_by`]. A waiting request ends as soon as `is_asked` is false.
fn answer_while(shell: &Shell, heart: &Heart, request: &Request, is_asked: &dyn Fn() -> bool) -> Answer {
    let refused = |message| Answer::Error { message };
    let answered = match request {
        Request::Heartbeat => heart.beat(shell).map(Answer::Heartbeat),
        Request::Stats => heart.lock_all(shell).map(|mut locked| {
            shell.catch_up(&mut locked);
            settings::check_memory(&mut locked);
            let stats = stats(shell, &locked);
            shell.after_activity(&mut locked);
            Answer::Stats(stats)
        }),
        Request::BeginMeasurement => heart.lock_all(shell).map(|mut locked| {
            shell.catch_up(&mut locked);
            ledgers::begin_measurement(&mut locked);
            let before = stats(shell, &locked);
            shell.after_activity(&mut locked);
            Answer::Stats(before)
        }),
        Request::Watch(_) => Ok(refused("a watch request needs a connection of its own".to_owned())),
        Request::Health => heart.lock_all(shell).map(|locked| Answer::Health(health(shell, &locked))),
        Request::Faults => heart.lock_all(shell).map(|locked| Answer::Faults(link_states(shell, &locked))),
        Request::ChangeFaults { node, change } => {
            let changed = change_faults(shell, heart, node, |faults| faults.changed(change));
            changed.map(|changed| changed.map_or_else(refused, Answer::Faults))
        }
        Request::SetFaults { node, faults } => {
            let changed = change_faults(shell, heart, node, |_| *faults);
            changed.map(|changed| changed.map_or_else(refused, |_| Answer::Done))
        }
        Request::ChangeDeviceFaults { node, change } => {
            let changed = change_device_faults(shell, heart, node, |faults| faults.changed(change));
            changed.map(|changed| changed.map_or_else(refused, Answer::Faults))
        }
        Request::Load { nodes, image } => {
            let loaded = load(shell, heart, nodes, image, is_asked);
            loaded.map(|loaded| loaded.unwrap_or_else(refused))
        }
        Request::SetRules { rules } => heart.lock_all(shell).map(|mut locked| {
            shell.set_rules(&mut locked, rules.is_on());
            Answer::Done
        }),
        Request::AwaitBrokenRules { seen } => {
            await_broken_rules(shell, heart, *seen, is_asked).map(Answer::BrokenRules)
        }
        Request::PlaceBrokenRule { node, number, guest_at } => heart.lock_all(shell).map(|mut locked| {
            let place =
                |node| locked.nodes.card_mut(node).map(|card| card.host.rule_check.place(*number, guest_at));
            number_of(shell, node).map(place).map_or_else(refused, |_| Answer::Done)
        }),
        Request::SetAdversarialSeed { nodes, seed } => set_adversarial_seed(shell, heart, nodes, *seed)
            .map(|set| set.map_or_else(refused, |()| Answer::Done)),
        Request::SetDeviceFaults { node, faults } => {
            let set = change_device_faults(shell, heart, node, |_| Ok(faults.clone()));
            set.map(|set| set.map_or_else(refused, |_| Answer::Done))
        }
    };
    answered.unwrap_or_else(Answer::Stuck)
}

/// Waits until more rules are broken than `seen`, or until [`RULES_WAIT`] is over.
fn await_broken_rules(
    shell: &Shell,
    heart: &Heart,
    seen: u64,
    is_asked: &dyn Fn() -> bool,
) -> Result<BrokenRules, Stuck> {
    let until = Instant::now() + RULES_WAIT;
    loop {
        // The device does not check by itself for posts without a doorbell.
        settings::peek_rules(&mut heart.lock_all(shell)?);
        let is_broken = (0..RULES_INTERVAL.as_millis() / ASK_INTERVAL.as_millis())
            .any(|_| shell.alarm().wait(seen, ASK_INTERVAL) > seen || !is_asked());
        if is_broken || Instant::now() >= until {
            let locked = heart.lock_all(shell)?;
            return Ok(broken_rules(shell, &locked));
        }
    }
}

/// The broken rules of the nodes that broke any.
fn broken_rules(shell: &Shell, locked: &LockedNodes<'_>) -> BrokenRules {
    let of_node = |(number, info): (usize, &crate::shell::NodeInfo)| {
        let book = locked.nodes.card(number)?.host.rule_check.book()?;
        let broken_rules = named(book.counts());
        let broken_rule_log = book.log().cloned().collect();
        let name = info.name.clone();
        (!broken_rules.is_empty()).then_some(BrokenRulesOfNode { name, broken_rules, broken_rule_log })
    };
    let nodes = shell.nodes().iter().enumerate().filter_map(of_node).collect();
    BrokenRules { version: STATS_VERSION, total: shell.alarm().total(), nodes }
}

/// The number of the node of this name, or the message for the client.
fn number_of(shell: &Shell, node: &str) -> Result<usize, String> {
    let names = || shell.nodes().iter().map(|info| info.name.as_str());
    names().position(|name| name == node).ok_or_else(|| {
        format!("there is no node `{node}`; the nodes are {}", names().collect::<Vec<_>>().join(", "))
    })
}

/// Changes the faults of a node's link, and returns the faults of all nodes.
fn change_faults(
    shell: &Shell,
    heart: &Heart,
    node: &str,
    change: impl FnOnce(&Faults) -> Faults,
) -> Result<Result<LinkStates, String>, Stuck> {
    let mut locked = heart.lock_all(shell)?;
    let apply = || {
        let number = number_of(shell, node)?;
        let faults = change(locked.common.network.faults().get(number).unwrap_or(&Faults::default()));
        faults.check().map_err(|error| error.to_string())?;
        shell.set_faults(&mut locked, number as u16, &faults);
        Ok(link_states(shell, &locked))
    };
    Ok(apply())
}

fn link_states(shell: &Shell, locked: &LockedNodes<'_>) -> LinkStates {
    let nodes = (0..).zip(shell.nodes()).zip(locked.common.network.faults());
    let state = |((number, info), faults): ((u16, &crate::shell::NodeInfo), &Faults)| LinkState {
        name: info.name.clone(),
        faults: *faults,
        link_events: locked
            .nodes
            .get(number.into())
            .map(|node| node.port.counters())
            .map(link_events)
            .unwrap_or_default(),
        device_faults: locked
            .nodes
            .card(number.into())
            .map(|card| card.device_faults.clone())
            .unwrap_or_default(),
    };
    LinkStates { version: STATS_VERSION, nodes: nodes.map(state).collect() }
}

/// Changes the faults of a node's NIC, and returns the faults of all nodes.
fn change_device_faults(
    shell: &Shell,
    heart: &Heart,
    node: &str,
    change: impl FnOnce(&DeviceFaults) -> Result<DeviceFaults, String>,
) -> Result<Result<LinkStates, String>, Stuck> {
    let mut locked = heart.lock_all(shell)?;
    let apply = || {
        let number = number_of(shell, node)?;
        let before = locked.nodes.card(number).map(|card| card.device_faults.clone()).unwrap_or_default();
        let faults = change(&before)?;
        let problem = |p: DeviceFaultProblem| format!("`{}`: {}; {}", p.key, p.what, p.remedy);
        let problems: Vec<String> = faults.problems().into_iter().map(problem).collect();
        if !problems.is_empty() {
            return Err(problems.join("\n"));
        }
        if !faults.is_none() {
            shell.idle().shorten();
        }
        settings::set_device_faults(&mut locked, number, &faults);
        Ok(link_states(shell, &locked))
    };
    Ok(apply())
}

/// Sets another seed of adversarial cards.
fn set_adversarial_seed(
    shell: &Shell,
    heart: &Heart,
    nodes: &[String],
    seed: u64,
) -> Result<Result<(), String>, Stuck> {
    let numbers = match numbers_of(shell, nodes) {
        Ok(numbers) => numbers,
        Err(message) => return Ok(Err(message)),
    };
    let mut locked = heart.lock_all(shell)?;
    Ok(adversarial::reseed(&mut locked, &numbers, seed).map_err(|kind| {
        let name = shell.nodes().get(kind).map_or("", |info| &info.name);
        format!(
            "the card of node `{name}` is not adversarial, and cannot become so while it runs: start the cluster with \
             `--adversarial {seed}`, or with `adversarial = {seed}` in its file"
        )
    }))
}

/// The numbers of the nodes of these names, each once. No names mean all nodes. The error is the message for the
/// client.
fn numbers_of(shell: &Shell, nodes: &[String]) -> Result<Vec<usize>, String> {
    let numbers: Result<Vec<usize>, String> = nodes.iter().map(|node| number_of(shell, node)).collect();
    let mut numbers = numbers?;
    if numbers.is_empty() {
        numbers = (0..shell.nodes().len()).collect();
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// Loads another program into cards, and waits until it runs.
fn load(
    shell: &Shell,
    heart: &Heart,
    nodes: &[String],
    image: &[u8],
    is_asked: &dyn Fn() -> bool,
) -> Result<Result<Answer, String>, Stuck> {
    let numbers = match numbers_of(shell, nodes) {
        Ok(numbers) => numbers,
        Err(message) => return Ok(Err(message)),
    };
    let name = |node: usize| shell.nodes().get(node).map_or("", |info| &info.name);
    let mut locked = heart.lock_all(shell)?;
    if let Err(error) = shell.load(&mut locked, &numbers, image) {
        return Ok(Err(match error {
            LoadError::Card { node, error } => format!("node `{}`: {error}", name(node)),
            error => error.to_string(),
        }));
    }
    drop(locked);
    let until = Instant::now() + LOAD_TIMEOUT;
    let mut took = None;
    while took.is_none() && Instant::now() < until && is_asked() {
        took = shell.wait_until_loaded(ASK_INTERVAL);
    }
    let Some(took) = took else {
        let seconds = LOAD_TIMEOUT.as_secs();
        return Ok(Err(format!(
            "the program does not run after {seconds} s, because messages in flight do not end; it starts when they \
             have ended"
        )));
    };
    Ok(Ok(Answer::Loaded { model_time_ps: took.as_ps() }))
}

fn stats(shell: &Shell, locked: &LockedNodes<'_>) -> DaemonStats {
    let nodes = shell.nodes().iter().enumerate();
    let nodes: Vec<NodeFigures> =
        nodes.map(|(number, info)| node_figures(locked, number, &info.name)).collect();
    let mut latency = Histogram::default();
    for (_, card) in locked.nodes.cards() {
        latency.merge(card.nic.ledger().latency());
    }
    let why_estimate = why_estimate(&nodes);
    DaemonStats {
        version: STATS_VERSION,
        wall_uptime_ns: u64::try_from(shell.started().elapsed().as_nanos()).unwrap_or(u64::MAX),
        model: ModelFigures {
            time_ps: locked.model_time().as_ps(),
            is_exact: why_estimate.is_none(),
            why_estimate,
            latency: histogram(&latency),
            ..ModelFigures::default()
        },
        nodes,
        fabric: fabric(locked.nodes.iter().map(|(_, node)| &node.port)),
    }
}

fn node_figures(locked: &LockedNodes<'_>, number: usize, name: &str) -> NodeFigures {
    let mut figures = locked.nodes.card(number).map(card_figures).unwrap_or_default();
    figures.name = name.to_owned();
    figures.model_time_ps = locked.nodes.bus(number).map_or(0, |bus| bus.clock().as_ps());
    figures.doorbells += locked.common.ethernet.doorbells(number);
    if let Some(state) = locked.common.ethernet.states.get(number) {
        figures.ethernet = traffic(&state.traffic);
        figures.ethernet_ledger = entries(state.nic.ledger());
        figures.ethernet_model_latency = histogram(state.nic.ledger().latency());
        figures.interrupts.append(&mut named([
            ("ethernet_receive", state.receive_interrupts),
            ("ethernet_transmit", state.transmit_interrupts),
        ]));
        figures.shortcuts.append(&mut named([("ethernet_batched", state.batched)]));
        figures.violations.append(&mut named(state.violations.iter().map(|(name, count)| (*name, *count))));
    }
    if let Some(node) = locked.nodes.get(number) {
        figures.link_events = link_events(node.port.counters());
        figures
            .shortcuts
            .append(&mut named([("batched", node.card.counts.batched), ("borrowed", node.borrowed_frames)]));
    }
    figures
}

fn card_figures(card: &Card) -> NodeFigures {
    let counts = &card.counts;
    let model = card.statistics();
    let causes = card.host.events.raised.iter().map(|((cause, _), count)| (cause_name(*cause), *count));
    let of_descriptors =
        Some(("descriptor", card.host.descriptors.interrupts)).filter(|(_, count)| *count > 0);
    let violations = card.host.violations.iter().map(|(name, count)| (*name, *count));
    let of_shell = [
        ("control_unanswerable", card.host.control.unanswerable),
        ("event_buffer_unusable", card.host.events.unusable_buffers),
    ];
    let mut figures = NodeFigures {
        cluster: traffic(&counts.traffic),
        messages_sent: model.packets_sent,
        messages_received: model.packets_received,
        bytes_sent: model.bytes_sent,
        bytes_received: model.bytes_received,
        doorbells: card.host.doorbells(),
        spared_doorbells: counts.doorbells_spared,
        polls: counts.polls,
        interrupts: named(causes.chain([("control", card.host.control.interrupts)]).chain(of_descriptors)),
        suppressed_interrupts: card.host.events.suppressed,
        events_merged: model.events_merged,
        control_refused: model.control_refused,
        events_waiting: card.host.events.waiting(),
        ports: port_figures(card),
        nic_counts: nic_counts(&*card.nic),
        violations: named(violations.chain(of_shell)),
        unordered: card.unordered(),
        ledger: entries(card.nic.ledger()),
        peripherals: peripherals(&*card.nic),
        model_latency: histogram(card.nic.ledger().latency()),
        ..NodeFigures::default()
    };
    figures.violations.append(&mut refusals(&model));
    if let Some(book) = card.host.rule_check.book() {
        figures.rules_checked = rules::all().filter(|rule| rule.is_checked()).count() as u64;
        figures.broken_rules = named(book.counts());
        figures.broken_rule_log = book.log().cloned().collect();
    }
    (figures.device_faults, figures.device_fault_log) = device_faults(&*card.nic);
    figures.adversarial = adversarial(card.nic.adversarial().into_iter().flat_map(Adversarial::counts));
    figures
        .adversarial
        .append(&mut adversarial(card.host.adversary.iter().flat_map(|adversary| adversary.counts())));
    // Shell and model have the same seeds.
    figures.adversarial_seed = card.nic.adversarial().map(Adversarial::seed);
    figures.adversarial_reseeds = card.nic.adversarial().map_or(0, Adversarial::reseeds);
    figures
}

/// The ports with a count above zero.
fn port_figures(card: &Card) -> Vec<PortFigures> {
    let figures = |(port, launches): (u32, &u64)| {
        let of_port = card.host.events.raised.iter().filter(|((_, raised_for), _)| *raised_for == port);
        let interrupts = named(of_port.map(|((cause, _), count)| (cause_name(*cause), *count)));
        PortFigures { port, launches: *launches, interrupts }
    };
    let ports = (0..).zip(&card.counts.launches).map(figures);
    ports.filter(|port| port.launches > 0 || !port.interrupts.is_empty()).collect()
}

const fn traffic(traffic: &Traffic) -> TrafficStats {
    TrafficStats {
        sent_frames: traffic.sent_frames,
        sent_bytes: traffic.sent_bytes,
        received_frames: traffic.received_frames,
        received_bytes: traffic.received_bytes,
        dropped_frames: traffic.dropped_frames,
    }
}

fn health(shell: &Shell, locked: &LockedNodes<'_>) -> DaemonHealth {
    // A thread that changes either of the two also locks all nodes first.
    let connected = shell.connected();
    let nodes = shell.nodes().iter().zip(connected).enumerate();
    let node = |(number, (info, connected)): (usize, (&crate::shell::NodeInfo, Connected))| NodeHealth {
        name: info.name.clone(),
        cluster_connected: connected.cluster,
        ethernet_connected: connected.ethernet,
        cluster_driver_ok: locked.nodes.card(number).is_some_and(|card| card.host.state.is_running),
        ethernet_driver_ok: is_ethernet_running(locked, number),
        bar_mapped: connected.bar,
    };
    DaemonHealth { version: STATS_VERSION, nodes: nodes.map(node).collect() }
}

/// Whether the driver of a node's Ethernet function has set DRIVER_OK. The front end then starts the queues, and
/// always those of the first pair.
pub fn is_ethernet_running(locked: &LockedNodes<'_>, number: usize) -> bool {
    locked.common.ethernet.functions.get(number).is_some_and(|function| {
        !function.vrings.is_empty()
            && function.vrings.iter().take(QUEUES_PER_PAIR).all(|vring| vring.get_ref().get_queue().ready())
    })
}
