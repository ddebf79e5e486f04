//! The boot and life of a cluster: the daemon, the guests, and the events about them.
//!
//! The owner's thread starts and ends processes, and receives [`Event`]s. Each wait (for the end of a process, a
//! guest's answer, a signal) has a small thread, which sends an event. Every orderly end of a cluster goes through
//! [`RunningCluster::shut_down`]. If the owner dies, the kernel kills its children.

use std::{
    collections::BTreeMap,
    fmt,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ChildStdin, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use niclab_images::Cache;
use niclab_spec::{OnNodeExit, daemon::READY_LINE};
use rustix::{fs::CWD, process::Signal};

pub use crate::boot::failure::{DownRequest, Failure, KernelPanic};
use crate::host::deadline::Deadline;
use crate::{
    boot::{
        driver::{self, LoadError},
        failure::DAEMON_READY_TIMEOUT,
        node_end::NodeEnd,
        progress::{BootProgress, Stage},
        template::{self, Damage, GuestMemory, Saved},
    },
    daemon::rules,
    guests::{
        agent::{AgentClient, AgentError, join_now},
        panic::{self, Panic},
        qmp::{Qmp, QmpError},
    },
    host::{
        exhaustion::HostCounters,
        own,
        placement::Placement,
        process::{Process, ProcessId, Streams, tail, wait_readable},
        runtime::ClusterFolder,
        signals,
    },
    plan::{NodePlan, Plan},
};

/// Lines of a console or log that a message shows.
const TAIL_LINES: usize = 15;

/// Time limit for the end of a QEMU that closed its connection to the agent. It ends at once, except on a busy host.
const HUNG_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit from a kernel's oops to its panic, when another node's panic ends the cluster.
const PANIC_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit from the first panic to the first line of an oops on other nodes.
const NEXT_PANIC_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval at which the launcher reads the console of such a kernel.
const PANIC_INTERVAL: Duration = Duration::from_millis(20);

/// Interval at which the launcher queries a guest's health while it boots.
const HEALTH_INTERVAL: Duration = Duration::from_millis(50);

/// Time limit for a guest's answer about its health.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);

/// Guests per host core that are restored at the same time. More than one, because each guest sometimes waits for the
/// host.
const RESTORED_AT_ONCE_PER_CORE: usize = 2;

/// Time limit for guests to write back and power off, before the launcher ends QEMU.
const POWER_OFF_TIMEOUT: Duration = Duration::from_secs(4);

/// Time limit for a process to end after SIGTERM, before the launcher kills it.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);

/// An event of a cluster.
#[derive(Debug)]
pub enum Event {
    /// The daemon listens on all its sockets.
    DaemonReady,
    /// The memory of a guest to be restored is ready, or cannot be made.
    Memory(usize, Result<GuestMemory, Damage>),
    /// A guest cannot be restored.
    RestoreFailed(usize, QmpError),
    /// The process of this name ended.
    Ended(String),
    /// A guest is healthy; its agent.
    Healthy(usize, Arc<AgentClient>),
    /// The user's driver does not load in a guest or bind to its card.
    DriverFailed(usize, LoadError),
    /// A guest's agent cannot be used.
    AgentFailed(usize, String),
    /// This process got a signal.
    Signal(i32),
    /// A command on a node ended: its exit code, or why it has none.
    CommandOver(usize, Result<u8, String>),
    /// A coordinated benchmark stopped at a cue or ended; the receiver checks which.
    Performance,
    /// A client asks to take down the cluster.
    Down(DownRequest),
    /// The `niclab up` that started the cluster has reported that it is up.
    HandedOver,
    /// That `niclab up` ended without reporting.
    Abandoned,
}

impl fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentClient").finish_non_exhaustive()
    }
}

/// A running cluster.
pub struct RunningCluster {
    plan: Plan,
    folder: ClusterFolder,
    /// The host's counters before anything was started.
    host: HostCounters,
    events: Receiver<Event>,
    sender: Sender<Event>,
    daemon: Process,
    /// The daemon ends when this pipe closes, so it ends with the owner even if the kernel's death signal fails.
    daemon_stdin: Option<ChildStdin>,
    guests: Vec<Process>,
    agents: Vec<Option<Arc<AgentClient>>>,
    progress: BootProgress,
    /// Keeps the daemon's threads on cores near the guests.
    placement: Option<Placement>,
    /// The folder of the saved consoles, once they are saved.
    kept: Option<PathBuf>,
    /// The nodes that ended while the others continue, by rank.
    ended_nodes: BTreeMap<usize, NodeEnd>,
}

impl RunningCluster {
    /// Starts everything and waits until every guest is healthy. Calls `on_healthy` for each.
    ///
    /// # Errors
    /// [`Failure`]; every process has then ended, and the folder is removed.
    pub fn boot(
        plan: Plan,
        folder: ClusterFolder,
        timeout: Duration,
        on_healthy: &mut dyn FnMut(&NodePlan),
    ) -> Result<Self, Failure> {
        Self::boot_hearing(plan, folder, mpsc::channel(), timeout, on_healthy)
    }

    /// [`Self::boot`] with a channel, over which other threads can send events during the boot.
    ///
    /// # Errors
    /// As [`Self::boot`].
    pub fn boot_hearing(
        plan: Plan,
        folder: ClusterFolder,
        channel: (Sender<Event>, Receiver<Event>),
        timeout: Duration,
        on_healthy: &mut dyn FnMut(&NodePlan),
    ) -> Result<Self, Failure> {
        let mut cluster = Self::begin(plan, folder, channel)?;
        match cluster.bring_up(timeout, on_healthy) {
            Ok(()) => Ok(cluster),
            Err(failure) => {
                cluster.shut_down(false);
                Err(failure)
            }
        }
    }

    /// Starts a cluster. The caller continues with [`Self::bring_up`], and can examine a cluster that does not come up.
    ///
    /// # Errors
    /// As [`Self::boot`].
    pub fn begin(
        plan: Plan,
        folder: ClusterFolder,
        (sender, events): (Sender<Event>, Receiver<Event>),
    ) -> Result<Self, Failure> {
        let owner = sender.clone();
        // If the receiver is gone, the owner is already taking the cluster down.
        signals::tell(move |signal| drop(owner.send(Event::Signal(signal))));
        Self::start(plan, folder, sender, events)
    }

    /// Writes the files and starts the daemon.
    fn start(
        plan: Plan,
        folder: ClusterFolder,
        sender: Sender<Event>,
        events: Receiver<Event>,
    ) -> Result<Self, Failure> {
        let host = HostCounters::read();
        let start = || {
            for file in &plan.files {
                let written = own::create_file(&CWD, &file.path);
                written
                    .and_then(|mut written| written.write_all(file.text.as_bytes()))
                    .map_err(Failure::Prepare)?;
            }
            for (node, restore) in plan.nodes.iter().filter_map(|node| Some((node, node.restore.as_ref()?))) {
                template::begin_console(&restore.template, &node.console).map_err(Failure::Prepare)?;
            }
            let mut daemon = Process::spawn("daemon", &plan.daemon, Streams::Pipes, &[])?;
            let (stdin, stdout) =
                daemon.take_pipes().ok_or(Failure::Prepare(std::io::ErrorKind::BrokenPipe.into()))?;
            monitor_exit(&daemon, &sender)?;
            let ready = sender.clone();
            // Continues to read after the line: a daemon that prints more must not block on a full pipe.
            thread::spawn(move || {
                for line in BufReader::new(stdout.take(1 << 20)).lines().map_while(Result::ok) {
                    if line == READY_LINE {
                        let _ = ready.send(Event::DaemonReady);
                    }
                }
            });
            Ok((daemon, stdin))
        };
        match start() {
            Ok((daemon, stdin)) => Ok(Self {
                progress: BootProgress::new(plan.nodes.len()),
                agents: vec![None; plan.nodes.len()],
                guests: Vec::new(),
                placement: None,
                kept: None,
                ended_nodes: BTreeMap::new(),
                daemon_stdin: Some(stdin),
                daemon,
                sender,
                events,
                folder,
                plan,
                host,
            }),
            Err(failure) => {
                let failure = Failure::explained_by(failure, &host);
                remove(folder);
                Err(failure)
            }
        }
    }

    /// Waits until every guest is healthy. Calls `on_healthy` for each.
    ///
    /// # Errors
    /// [`Failure`]; the processes then stay until [`Self::shut_down`].
    pub fn bring_up(
        &mut self,
        timeout: Duration,
        on_healthy: &mut dyn FnMut(&NodePlan),
    ) -> Result<(), Failure> {
        self.boot_all(timeout, on_healthy).map_err(|failure| failure.explained_by(&self.host))
    }

    fn boot_all(&mut self, timeout: Duration, on_healthy: &mut dyn FnMut(&NodePlan)) -> Result<(), Failure> {
        self.record()?;
        (0..self.plan.nodes.len()).for_each(|rank| self.progress.begins(rank, Stage::Memory));
        copy_memories(&self.plan, &self.sender);
        let mut memories: Vec<Option<GuestMemory>> = self.plan.nodes.iter().map(|_| None).collect();
        let mut deadline = Deadline::after(DAEMON_READY_TIMEOUT);
        let mut is_daemon_ready = false;
        while self.agents.iter().any(Option::is_none) {
            match self.next_event(deadline)? {
                Some(Event::DaemonReady) => {
                    is_daemon_ready = true;
                    rules::follow(&self.plan);
                    deadline = Deadline::after(timeout);
                }
                Some(Event::Memory(rank, memory)) => {
                    let (node, _) = self.node_and_console(rank);
                    let memory = memory.map_err(|error| Failure::Memory { node, error })?;
                    if let Some(slot) = memories.get_mut(rank) {
                        *slot = Some(memory);
                    }
                }
                Some(Event::Healthy(rank, agent)) => {
                    self.cut_carrier(rank)?;
                    self.adopt(rank, agent);
                    self.plan.nodes.get(rank).into_iter().for_each(&mut *on_healthy);
                }
                Some(_) => {}
                None if is_daemon_ready => {
                    let failure = self.not_healthy(timeout);
                    return Err(self.with_consoles(failure));
                }
                None => {
                    return Err(Failure::DaemonNotReady { log: tail(&self.plan.daemon.log, TAIL_LINES) });
                }
            }
            if is_daemon_ready {
                self.start_guests(&mut memories, deadline)?;
            }
        }
        let (guests, daemon) = self.pids();
        self.placement = Placement::follow(&guests, daemon);
        Ok(())
    }

    /// Starts guests in the order of their ranks, up to the first whose memory is not ready. It limits the number of
    /// guests that are being restored at a time. Each keeps a core busy until it is healthy, so guests that share a
    /// core delay each other.
    fn start_guests(
        &mut self,
        memories: &mut [Option<GuestMemory>],
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let before = self.guests.len();
        let healthy = self.agents.iter().flatten().count();
        let at_once = RESTORED_AT_ONCE_PER_CORE * thread::available_parallelism().map_or(1, usize::from);
        while let Some(node) = self.plan.nodes.get(self.guests.len()) {
            let rank = self.guests.len();
            let streams = match &node.restore {
                None => Streams::Log,
                Some(_) if rank >= healthy + at_once => break,
                Some(_) => match memories.get_mut(rank).and_then(Option::take) {
                    Some(memory) => Streams::Input(memory.descriptor().map_err(Failure::Prepare)?),
                    None => break,
                },
            };
            let guest = Process::spawn(&node.name, &node.qemu, streams, &[])?;
            monitor_exit(&guest, &self.sender)?;
            self.guests.push(guest);
            self.progress.begins(rank, Stage::Qemu);
            ask_until_healthy(rank, node, deadline, &self.progress, &self.sender);
        }
        if self.guests.len() > before { self.record() } else { Ok(()) }
    }

    /// Takes down the carrier of a guest whose link is cut, after the guest has seen it up.
    fn cut_carrier(&self, rank: usize) -> Result<(), Failure> {
        let Some(node) = self.plan.nodes.get(rank).filter(|node| node.is_cut) else { return Ok(()) };
        let taken = Qmp::connect(&node.qmp_socket).and_then(|mut qemu| qemu.set_carrier(false));
        taken.map_err(|error| Failure::Carrier { node: node.name.clone(), error })
    }

    fn record(&self) -> Result<(), Failure> {
        let processes: Vec<ProcessId> = self.guests.iter().chain([&self.daemon]).map(Process::id).collect();
        Ok(self.folder.record(&processes)?)
    }

    /// Receives the next event that does not end the cluster; `None` at the deadline.
    ///
    /// # Errors
    /// [`Failure`] if the event ends the cluster.
    pub fn next_event(&mut self, deadline: Deadline) -> Result<Option<Event>, Failure> {
        let event = match deadline.receive(&self.events) {
            Ok(event) => event,
            // This struct holds a sender, so the channel cannot be closed.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(None),
        };
        self.outcome(event).map(Some).map_err(|failure| self.with_consoles(failure))
    }

    fn outcome(&mut self, event: Event) -> Result<Event, Failure> {
        match event {
            Event::Ended(ref name) => self.process_ended(name).map(|()| event),
            // The agent's connection closes before the process ends. The process's end gives the better reason.
            Event::CommandOver(_, Err(_)) => self.hung_up().map(|()| event),
            Event::Signal(signal) => Err(Failure::Signal(signal)),
            Event::Down(request) => Err(Failure::Down(request)),
            Event::Abandoned => Err(Failure::Abandoned),
            Event::AgentFailed(rank, error) => {
                let (node, console) = self.node_and_console(rank);
                Err(Failure::Agent { node, error, console })
            }
            Event::DriverFailed(rank, error) => {
                let (node, console) = self.node_and_console(rank);
                Err(Failure::Driver { node, error, console })
            }
            Event::RestoreFailed(rank, error) => {
                let (node, _) = self.node_and_console(rank);
                let log = self.plan.nodes.get(rank).map(|node| tail(&node.qemu.log, TAIL_LINES));
                Err(Failure::Restore { node, error, log: log.unwrap_or_default() })
            }
            event => Ok(event),
        }
    }

    /// Checks for QEMUs that have closed their connection to the agent.
    ///
    /// # Errors
    /// The [`Failure`] that ends the cluster.
    pub fn check_guests(&mut self) -> Result<(), Failure> {
        self.hung_up().map_err(|failure| self.with_consoles(failure))
    }

    /// Waits for the QEMUs that have closed their connections to the agents, and records their ends.
    fn hung_up(&mut self) -> Result<(), Failure> {
        let mut ended = Vec::new();
        for (rank, (guest, agent)) in self.guests.iter_mut().zip(&self.agents).enumerate() {
            let has_hung_up = agent.as_ref().is_some_and(|agent| agent.has_hung_up());
            if has_hung_up
                && !self.ended_nodes.contains_key(&rank)
                && guest.wait_until(Deadline::after(HUNG_UP_TIMEOUT)).is_some()
            {
                ended.push(guest.name.clone());
            }
        }
        ended.iter().try_for_each(|name| self.process_ended(name))
    }

    /// Handles a process's end, which ends the cluster, unless the process is a node's QEMU and the other nodes
    /// continue.
    fn process_ended(&mut self, name: &str) -> Result<(), Failure> {
        let rank = self.guests.iter().position(|guest| guest.name == name);
        if rank.is_some_and(|rank| self.ended_nodes.contains_key(&rank)) {
            return Ok(());
        }
        let failure = self.ended(name);
        let is_up = self.agents.iter().all(Option::is_some);
        let has_others = self.ended_nodes.len() + 1 < self.plan.nodes.len();
        match (rank, NodeEnd::of(&failure)) {
            (Some(rank), Some(end)) if self.keeps_going() && is_up && has_others => {
                eprintln!(
                    "niclab: {}; the other nodes continue; the end of its log and console:\n{}",
                    end.reason, end.details
                );
                self.ended_nodes.insert(rank, end);
                Ok(())
            }
            _ => Err(failure),
        }
    }

    fn keeps_going(&self) -> bool {
        self.plan.on_node_exit == OnNodeExit::Continue
    }

    /// The nodes that ended while the others continue, by rank.
    #[must_use]
    pub const fn ended_nodes(&self) -> &BTreeMap<usize, NodeEnd> {
        &self.ended_nodes
    }

    /// Adds to the failure what ran out on the host, and saves the consoles of all nodes in a folder that it names.
    pub fn with_consoles(&mut self, failure: Failure) -> Failure {
        if failure.is_asked_for() {
            return failure;
        }
        let failure = failure.explained_by(&self.host);
        match self.keep_consoles() {
            Some(folder) => Failure::Kept { failure: Box::new(failure), folder },
            None => failure,
        }
    }

    /// Saves the consoles of all nodes beyond the end of the cluster, once, and returns their folder. If that fails, it
    /// logs a warning.
    pub fn keep_consoles(&mut self) -> Option<PathBuf> {
        if self.kept.is_none() {
            let consoles = self.plan.nodes.iter().map(|node| (node.name.as_str(), node.console.as_path()));
            let kept = self.folder.keep_consoles(consoles);
            let name = &self.plan.name;
            self.kept =
                kept.inspect_err(|error| log::warn!("the consoles of {name} are not kept: {error}")).ok();
        }
        self.kept.clone()
    }

    fn ended(&mut self, name: &str) -> Failure {
        // A guest that depends on a dead daemon may end, and be noticed, before the daemon.
        if let Some(status) = self.daemon.exit_status() {
            return Failure::DaemonEnded { how: how(status), log: tail(&self.plan.daemon.log, TAIL_LINES) };
        }
        let rank = self.guests.iter().position(|guest| guest.name == name).unwrap_or_default();
        let status = self.guests.get_mut(rank).and_then(Process::exit_status);
        let (node, console) = self.node_and_console(rank);
        // With `--keep-going` one node's end does not involve the other nodes.
        let panics = if self.keeps_going() {
            self.plan.nodes.get(rank).and_then(kernel_panic).into_iter().collect()
        } else {
            self.panics()
        };
        if !panics.is_empty() {
            return Failure::Panicked(panics);
        }
        match status {
            Some(status) if !status.success() => {
                let log = self.plan.nodes.get(rank).map(|node| tail(&node.qemu.log, TAIL_LINES));
                Failure::QemuEnded { node, how: how(status), log: log.unwrap_or_default(), console }
            }
            _ => Failure::SwitchedOff { node, console },
        }
    }

    /// The panics of all nodes. The first ends the cluster, and other nodes often meet the same fault shortly after.
    fn panics(&mut self) -> Vec<KernelPanic> {
        let begin = Instant::now();
        let is_any = self.plan.nodes.iter().any(|node| kernel_panic(node).is_some());
        for (node, guest) in self.plan.nodes.iter().zip(&mut self.guests) {
            // A kernel without a driver of the user's continues after an oops.
            while is_any && node.driver.is_some() && guest.exit_status().is_none() {
                let is_oops_open = panic::is_oops_open(&tail(&node.console, usize::MAX));
                if begin.elapsed() >= if is_oops_open { PANIC_TIMEOUT } else { NEXT_PANIC_TIMEOUT } {
                    break;
                }
                thread::sleep(PANIC_INTERVAL);
            }
        }
        self.plan.nodes.iter().filter_map(kernel_panic).collect()
    }

    fn node_and_console(&self, rank: usize) -> (String, String) {
        let node = self.plan.nodes.get(rank);
        node.map(|node| (node.name.clone(), tail(&node.console, TAIL_LINES))).unwrap_or_default()
    }

    fn not_healthy(&self, timeout: Duration) -> Failure {
        let details: Vec<String> = (self.plan.nodes.iter().enumerate())
            .filter_map(|(rank, node)| {
                let (waiting, console) = (self.progress.waiting(rank)?, tail(&node.console, TAIL_LINES));
                Some(format!("{} waits for {waiting}; its console:\n{console}", node.name))
            })
            .collect();
        Failure::NotHealthy { timeout, details: details.join("\n") }
    }

    /// The cluster's plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The cluster's folder.
    #[must_use]
    pub fn folder(&self) -> &ClusterFolder {
        &self.folder
    }

    /// How the nodes came up.
    #[must_use]
    pub fn progress(&self) -> &BootProgress {
        &self.progress
    }

    /// The agents, by rank. All of them once [`Self::boot`] is done.
    pub fn agents(&self) -> impl Iterator<Item = &Arc<AgentClient>> {
        self.agents.iter().flatten()
    }

    /// The agent of a node; none while its guest reboots.
    #[must_use]
    pub fn agent(&self, rank: usize) -> Option<&Arc<AgentClient>> {
        self.agents.get(rank)?.as_ref()
    }

    /// Waits for a guest that was reset, on a thread. Its old agent is dropped. [`Event::Healthy`] reports that the
    /// guest is its node again, with its driver loaded; the receiver then calls [`Self::adopt`].
    pub fn await_rebooted(&mut self, rank: usize, deadline: Deadline) {
        let (Some(slot), Some(node)) = (self.agents.get_mut(rank), self.plan.nodes.get(rank)) else { return };
        *slot = None;
        // It boots, even if it was restored from a template before.
        let node = NodePlan { restore: None, ..node.clone() };
        ask_until_healthy(rank, &node, deadline, &self.progress, &self.sender);
    }

    /// Sets the node's agent.
    pub fn adopt(&mut self, rank: usize, agent: Arc<AgentClient>) {
        if let Some(slot) = self.agents.get_mut(rank) {
            *slot = Some(agent);
        }
    }

    /// A sender of events, for other threads.
    #[must_use]
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// The pids of the guests, by rank, and of the daemon.
    #[must_use]
    pub fn pids(&self) -> (Vec<u32>, u32) {
        (self.guests.iter().map(|guest| guest.id().pid).collect(), self.daemon.id().pid)
    }

    /// Powers off the guests, ends every process, and removes the folder unless `keep_folder` is set.
    pub fn shut_down(mut self, keep_folder: bool) {
        for (rank, agent) in self.agents.drain(..).enumerate() {
            match (agent, self.guests.get_mut(rank)) {
                // On a thread of its own: a hung guest may not receive the message.
                (Some(agent), _) => drop(thread::spawn(move || agent.power_off())),
                // A guest without an agent has nothing to write back.
                (None, Some(guest)) => guest.signal(Signal::TERM),
                (None, None) => {}
            }
        }
        let daemon_lives = self.daemon.exit_status().is_none();
        // Without the daemon the guests' drivers would wait until their time-out, so the guests get no grace period.
        let grace = if daemon_lives { POWER_OFF_TIMEOUT } else { Duration::ZERO };
        end_all(&mut self.guests, grace);
        self.daemon_stdin.take();
        end_all(std::slice::from_mut(&mut self.daemon), Duration::ZERO);
        let Self { folder, guests, daemon, .. } = self;
        drop((guests, daemon));
        if !keep_folder {
            remove(folder);
        }
    }
}

/// The panic on a node's console, with its source lines in the node's own driver.
fn kernel_panic(node: &NodePlan) -> Option<KernelPanic> {
    let Panic { reason, text } = panic::panic_of(&tail(&node.console, usize::MAX))?;
    let own = node.driver.as_ref().zip(Cache::locate().ok());
    let places =
        own.map_or_else(Vec::new, |(driver, cache)| niclab_images::locations(&cache, &driver.module, &text));
    Some(KernelPanic { node: node.name.clone(), reason, locations: places, text })
}

fn remove(folder: ClusterFolder) {
    let path = folder.path().to_owned();
    if let Err(error) = folder.remove() {
        log::warn!("{error}; remove {} yourself", path.display());
    }
}

/// Waits for processes to end, sends SIGTERM to the others, and kills those that ignore it.
fn end_all(processes: &mut [Process], grace: Duration) {
    let deadline = Deadline::after(grace);
    for process in &mut *processes {
        if process.wait_until(deadline).is_none() {
            log::debug!("sending SIGTERM to {}", process.name);
            process.signal(Signal::TERM);
        }
    }
    let deadline = Deadline::after(QUIT_TIMEOUT);
    for process in processes {
        if process.wait_until(deadline).is_none() {
            log::debug!("killing {}", process.name);
            process.signal(Signal::KILL);
        }
    }
}

/// Sends an event when the process ends.
fn monitor_exit(process: &Process, sender: &Sender<Event>) -> Result<(), Failure> {
    let exit = process.exit_descriptor().map_err(Failure::Prepare)?;
    let (name, sender) = (process.name.clone(), sender.clone());
    thread::spawn(move || {
        while !wait_readable(&exit, Deadline::after(Duration::from_secs(3600))) {}
        // If the receiver is gone, the cluster is being taken down.
        let _ = sender.send(Event::Ended(name));
    });
    Ok(())
}

/// Copies the memory of the guests to be restored, in parallel, in the order of their ranks.
fn copy_memories(plan: &Plan, sender: &Sender<Event>) {
    let restored =
        plan.nodes.iter().enumerate().filter_map(|(rank, node)| Some((rank, node.restore.clone()?)));
    let restored: Arc<Vec<_>> = Arc::new(restored.collect());
    let next = Arc::new(AtomicUsize::new(0));
    let copiers = thread::available_parallelism().map_or(1, usize::from).min(restored.len());
    for _ in 0..copiers {
        let (restored, next, sender) = (Arc::clone(&restored), Arc::clone(&next), sender.clone());
        thread::spawn(move || {
            while let Some((rank, restore)) = restored.get(next.fetch_add(1, Ordering::Relaxed)) {
                let saved = Saved::open(&restore.template, restore.memory_bytes);
                // If the receiver is gone, the cluster is being taken down.
                let _ = sender.send(Event::Memory(*rank, saved.and_then(|saved| saved.memory())));
            }
        });
    }
}

/// Restores a guest if its plan says so, connects to its agent, polls its health until it is healthy, and sends an
/// event.
fn ask_until_healthy(
    rank: usize,
    node: &NodePlan,
    deadline: Deadline,
    progress: &BootProgress,
    sender: &Sender<Event>,
) {
    let (node, progress, sender) = (node.clone(), progress.clone(), sender.clone());
    thread::spawn(move || {
        let result = healthy_agent(rank, &node, deadline, &progress);
        let event = match result {
            Ok(agent) => Event::Healthy(rank, agent),
            // The owner reports the time-out, and QEMU's end is an event of its own, which gives the better reason.
            Err(Unhealthy::Late | Unhealthy::Gone) => return,
            Err(Unhealthy::Agent(error)) => Event::AgentFailed(rank, error.to_string()),
            Err(Unhealthy::Restore(error)) => Event::RestoreFailed(rank, error),
            Err(Unhealthy::Driver(error)) => Event::DriverFailed(rank, error),
        };
        let _ = sender.send(event);
    });
}

/// Why a guest is not healthy.
enum Unhealthy {
    /// It exceeded the deadline.
    Late,
    /// Its QEMU has ended.
    Gone,
    /// Its agent cannot be used.
    Agent(AgentError),
    /// QEMU does not restore it.
    Restore(QmpError),
    /// The user's driver does not load or bind to the card.
    Driver(LoadError),
}

impl From<AgentError> for Unhealthy {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Silent(_) => Self::Late,
            AgentError::Gone(_) | AgentError::HungUp => Self::Gone,
            error => Self::Agent(error),
        }
    }
}

impl From<LoadError> for Unhealthy {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Agent(error) => error.into(),
            error => Self::Driver(error),
        }
    }
}

impl From<QmpError> for Unhealthy {
    fn from(error: QmpError) -> Self {
        match error {
            QmpError::HungUp => Self::Gone,
            error => Self::Restore(error),
        }
    }
}

fn healthy_agent(
    rank: usize,
    node: &NodePlan,
    deadline: Deadline,
    progress: &BootProgress,
) -> Result<Arc<AgentClient>, Unhealthy> {
    let stream = AgentClient::reach(&node.agent_socket, deadline)?;
    if let Some(restore) = &node.restore {
        progress.begins(rank, Stage::State);
        let mut qemu = Qmp::reach(&node.qmp_socket, deadline)?;
        qemu.wait_until_running(deadline)?;
        progress.begins(rank, Stage::Card);
        restore.card.iter().try_for_each(|function| qemu.plug(function))?;
    }
    progress.begins(rank, Stage::Agent);
    let agent = AgentClient::over(stream, deadline)?;
    progress.begins(rank, Stage::Identity);
    agent.join(&join_now(&node.identity), deadline)?;
    progress.begins(rank, Stage::Nic);
    if let Some(own) = &node.driver {
        progress.says(rank, format!("your driver {} is being loaded", own.module.name));
        driver::load(&agent, node, own, deadline)?;
    }
    while !deadline.is_over() {
        match agent.health(HEALTH_TIMEOUT) {
            Ok(health) if health.is_healthy() => {
                progress.is_healthy(rank);
                return Ok(agent);
            }
            Ok(health) => progress.says(rank, health.to_string()),
            Err(AgentError::Gone(_) | AgentError::HungUp) => return Err(Unhealthy::Gone),
            Err(error) => progress.says(rank, error.to_string()),
        }
        thread::sleep(HEALTH_INTERVAL);
    }
    Err(Unhealthy::Late)
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
