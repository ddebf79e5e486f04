//! The process that keeps a cluster up after `niclab up` returned.
//!
//! It takes its plan from standard input and tells on standard output, one JSON [`Progress`] a line, how the boot goes.
//! Once it has told that the cluster is up, the one that ordered it answers [`HandedOver`]; where standard input ends
//! before, that one died, and the cluster, of which nobody knows, is taken down. From then on the supervisor serves the
//! control socket until it is asked to take the cluster down, or until the cluster ends by itself; then it leaves the
//! reason in the cluster's folder for the commands that come later.

pub mod control;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use niclab_agent::{Decoder, Refusal, ToGuest, ToHost};
use rustix::{
    fs::{CWD, Mode},
    process::Signal,
};
use serde::{Deserialize, Serialize};

use self::control::{
    ControlError, FAILURE, NodeStatus, PLAN, Reply, Request, SOCKET, STATUS_VERSION, Status,
};
use crate::{
    boot::{
        node_end::NodeEnd,
        running::{DownRequest, Event, Failure, RunningCluster},
    },
    guests::agent::{AgentClient, AgentError, CommandHandle, CommandSender, join_now},
    host::{
        exit_code::OWN_FAILURE,
        own,
        runtime::{ClusterFolder, RuntimeRoot},
        signals,
    },
    plan::{NodePlan, Plan},
};

/// How long a guest may take to say how healthy it is when somebody asks.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an agent that was lost may take to answer again.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long its guest, which may have been started anew, may then take to become a node again. An agent that waits for
/// a network interface does so for 20 s.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the cluster's owner may take to see why a guest's QEMU ended.
const ENDING_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes of the reason that a client is told: it fits a frame of the agent's protocol.
const MAX_REASON_BYTES: usize = 32 * 1024;

/// How long a command may take to end after its client hung up.
const HANG_UP_GRACE: Duration = Duration::from_secs(1);

/// What a supervisor is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The folder of all clusters.
    pub root: std::path::PathBuf,
    /// What to start.
    pub plan: Plan,
    /// How long the guests may take until they are healthy.
    pub boot_timeout: Duration,
}

/// How a boot goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "progress", rename_all = "kebab-case")]
pub enum Progress {
    /// A node is healthy.
    Healthy {
        /// Which.
        node: String,
    },
    /// All are, and the control socket is there.
    Up,
    /// The cluster ended.
    Failed {
        /// Why.
        message: String,
    },
}

/// What whoever ordered a cluster answers to [`Progress::Up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {}

/// Carries out an order. Returns when the cluster is down.
///
/// # Errors
/// When the order cannot be read.
pub fn supervise() -> Result<(), ControlError> {
    let order: Order = control::read_line(&mut io::stdin().lock())?;
    // A session of its own, so that the terminal's signals and end do not reach it. Fails for the leader of a process
    // group, which a fresh child is not; and even then it would only be less well protected.
    let _ = rustix::process::setsid();
    signals::take_over()?;
    // Sockets and files are the user's alone, whatever mask the user has. Nothing that is made here is for others.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    if let Err(message) = Supervisor::run(&order) {
        tell(&Progress::Failed { message });
    }
    Ok(())
}

/// Whoever listened may be gone by now.
fn tell(progress: &Progress) {
    let mut stdout = io::stdout().lock();
    let _ = control::write_line(&mut stdout, progress);
    let _ = stdout.flush();
}

/// Why the cluster or nodes of it ended, for threads that serve clients.
#[derive(Default)]
struct Ending {
    reasons: Mutex<EndReasons>,
    known: Condvar,
}

#[derive(Default)]
struct EndReasons {
    /// Of the cluster: written once, before the guests are ended.
    of_cluster: Option<String>,
    /// Of nodes that the others do without, by rank.
    of_nodes: BTreeMap<usize, String>,
}

impl EndReasons {
    fn of(&self, rank: usize) -> Option<&String> {
        self.of_nodes.get(&rank).or(self.of_cluster.as_ref())
    }
}

impl Ending {
    fn tell(&self, failure: &Failure) {
        self.lock().of_cluster = Some(failure.to_string());
        self.known.notify_all();
    }

    fn tell_nodes(&self, ended: &BTreeMap<usize, NodeEnd>) {
        self.lock().of_nodes = ended.iter().map(|(rank, end)| (*rank, end.reason.clone())).collect();
        self.known.notify_all();
    }

    /// Why the node ended, by itself or with the cluster. Waits for the reason, at most for so long.
    fn wait(&self, rank: usize, limit: Duration) -> Option<String> {
        let waited = self.known.wait_timeout_while(self.lock(), limit, |reasons| reasons.of(rank).is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.of(rank).cloned()
    }

    /// Why the node ended that the others do without, if it did.
    fn of_node(&self, rank: usize) -> Option<String> {
        self.lock().of_nodes.get(&rank).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, EndReasons> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Supervisor {
    ending: Arc<Ending>,
    plan: Plan,
    agents: Vec<Mutex<Arc<AgentClient>>>,
    guest_pids: Vec<u32>,
    daemon_pid: u32,
    up_since: Instant,
    events: mpsc::Sender<Event>,
}

impl Supervisor {
    fn run(order: &Order) -> Result<(), String> {
        let root = RuntimeRoot::at(order.root.clone()).map_err(|error| error.to_string())?;
        let folder = root.claim(&order.plan.name).map_err(|error| error.to_string())?;
        let path = folder.path().to_owned();
        let ending = Arc::new(Ending::default());
        let booted = folder
            .write(PLAN, &serde_json::to_string(&order.plan).unwrap_or_default())
            .map_err(Failure::from)
            .and_then(|()| Self::boot(order, folder, Arc::clone(&ending)));
        let failure = match booted {
            Ok(mut cluster) => {
                tell(&Progress::Up);
                close_stdout();
                let failure = wait_for_end(&mut cluster, &ending);
                ending.tell(&failure);
                cluster.shut_down(!failure.is_asked_for());
                failure
            }
            Err(failure) => failure,
        };
        match failure {
            Failure::Down(request) => request.done(),
            Failure::Signal(_) | Failure::Abandoned => {}
            failure => {
                let message = failure.to_string();
                // The folder may be gone: then nobody comes to read the reason either.
                let file = own::create_file(&CWD, &path.join(FAILURE));
                let _ = file.and_then(|mut file| file.write_all(message.as_bytes()));
                return Err(message);
            }
        }
        Ok(())
    }

    fn boot(order: &Order, folder: ClusterFolder, ending: Arc<Ending>) -> Result<RunningCluster, Failure> {
        let mut on_healthy =
            |node: &crate::plan::NodePlan| tell(&Progress::Healthy { node: node.name.clone() });
        let (sender, events) = mpsc::channel();
        watch_orderer(sender.clone());
        let channel = (sender, events);
        let plan = order.plan.clone();
        let cluster =
            RunningCluster::boot_hearing(plan, folder, channel, order.boot_timeout, &mut on_healthy)?;
        let (guest_pids, daemon_pid) = cluster.pids();
        let supervisor = Arc::new(Self {
            ending,
            plan: order.plan.clone(),
            agents: cluster.agents().cloned().map(Mutex::new).collect(),
            guest_pids,
            daemon_pid,
            up_since: Instant::now(),
            events: cluster.sender(),
        });
        match UnixListener::bind(cluster.folder().path().join(SOCKET)) {
            Ok(listener) => {
                thread::spawn(move || supervisor.serve(&listener));
                Ok(cluster)
            }
            Err(error) => {
                cluster.shut_down(false);
                Err(Failure::Prepare(error))
            }
        }
    }

    fn serve(self: Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming().flatten() {
            let this = Arc::clone(&self);
            thread::spawn(move || {
                if let Err(error) = this.serve_one(stream) {
                    log::debug!("a client: {error}");
                }
            });
        }
    }

    fn serve_one(&self, mut stream: UnixStream) -> Result<(), ControlError> {
        match control::read_line(&mut stream)? {
            Request::Status => control::write_line(&mut stream, &Reply::Status(self.status())),
            Request::Down => {
                let (sender, done) = mpsc::channel();
                // The owner takes no events only while it takes the cluster down already.
                let _ = self.events.send(Event::Down(DownRequest(sender)));
                // An error means that the owner dropped the request at its end, which is what is waited for.
                let _ = done.recv();
                control::write_line(&mut stream, &Reply::Down)
            }
            Request::Exec { node, exec } => match self.start(&node, exec) {
                Ok((rank, command)) => {
                    control::write_line(&mut stream, &Reply::Running)?;
                    relay(&command, stream, rank, &self.ending)
                }
                Err(message) => control::write_line(&mut stream, &Reply::Error { message }),
            },
        }
    }

    fn start(&self, name: &str, exec: niclab_agent::Exec) -> Result<(usize, CommandHandle), String> {
        let rank = self.plan.nodes.iter().position(|node| node.name == name);
        let rank = rank.ok_or_else(|| {
            let names: Vec<&str> = self.plan.nodes.iter().map(|node| node.name.as_str()).collect();
            format!("no node is called `{name}`; the nodes are {}", names.join(", "))
        })?;
        let command = self.agent(rank)?.exec(exec).map_err(|error| error.to_string())?;
        Ok((rank, command))
    }

    /// The node's agent. One that was lost (the guest's init starts it anew) is connected to again.
    /// An error where the node has ended.
    fn agent(&self, rank: usize) -> Result<Arc<AgentClient>, String> {
        let unknown = || format!("there is no node {rank}");
        let (slot, node) = self.agents.get(rank).zip(self.plan.nodes.get(rank)).ok_or_else(unknown)?;
        let ended = |rank| self.ending.of_node(rank);
        if let Some(reason) = ended(rank) {
            return Err(reason);
        }
        let mut agent = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if agent.is_lost() {
            // The reason may become known only meanwhile: the connection closes before the process ends.
            *agent = reconnect(node).map_err(|error| ended(rank).unwrap_or_else(|| error.to_string()))?;
        }
        Ok(Arc::clone(&agent))
    }

    fn status(&self) -> Status {
        let nodes = self.plan.nodes.iter().zip(&self.guest_pids).enumerate();
        Status {
            version: STATUS_VERSION,
            name: self.plan.name.clone(),
            nic: self.plan.nic.clone(),
            accelerator: self.plan.accelerator.name().to_owned(),
            wall_uptime_s: self.up_since.elapsed().as_secs(),
            daemon_pid: self.daemon_pid,
            monitor_socket: self.plan.monitor_socket.clone(),
            nodes: nodes
                .map(|(rank, (node, &pid))| NodeStatus {
                    name: node.name.clone(),
                    pid: self.ending.of_node(rank).is_none().then_some(pid),
                    address: node.address,
                    mac: node.mac,
                    health: self
                        .agent(rank)
                        .and_then(|agent| agent.health(HEALTH_TIMEOUT).map_err(|error| error.to_string())),
                })
                .collect(),
        }
    }
}

fn reconnect(node: &NodePlan) -> Result<Arc<AgentClient>, AgentError> {
    let anew = AgentClient::connect(&node.agent_socket, Instant::now() + RECONNECT_TIMEOUT)?;
    anew.join(&join_now(&node.identity), Instant::now() + JOIN_TIMEOUT)?;
    Ok(anew)
}

/// Tells when the cluster is handed over, or that whoever ordered it is gone.
fn watch_orderer(sender: mpsc::Sender<Event>) {
    thread::spawn(move || {
        let answer = control::read_line::<HandedOver>(&mut io::stdin().lock());
        // If nobody listens any more, the cluster is being taken down.
        let _ = sender.send(if answer.is_ok() { Event::HandedOver } else { Event::Abandoned });
    });
}

/// Lets whoever reads our standard output see its end, though this process lives on.
fn close_stdout() {
    if let Ok(null) = fs::OpenOptions::new().write(true).open("/dev/null")
        && let Err(error) = rustix::stdio::dup2_stdout(&null)
    {
        log::warn!("cannot close standard output: {error}");
    }
}

fn wait_for_end(cluster: &mut RunningCluster, ending: &Ending) -> Failure {
    loop {
        // Any time far away: the loop looks again.
        match cluster.next_event(Instant::now() + Duration::from_secs(3600)) {
            Ok(_) => ending.tell_nodes(cluster.ended_nodes()),
            Err(failure) => return failure,
        }
    }
}

/// Carries messages between a client and its command until the command is over or the client is gone.
fn relay(
    command: &CommandHandle,
    stream: UnixStream,
    rank: usize,
    ending: &Ending,
) -> Result<(), ControlError> {
    let input = command.sender().clone();
    let mut from_client = stream.try_clone()?;
    thread::spawn(move || {
        if relay_input(&mut from_client, &input).is_ok() {
            end_politely(&input);
        }
    });
    let result = relay_output(command, &stream, rank, ending);
    // Whatever the reason: the other half holds the connection too, and the client must see its end.
    let _ = stream.shutdown(Shutdown::Both);
    result
}

/// Why a command has no end of its own: where QEMU has ended, the reason of the node's or the cluster's end.
fn refusal(error: &AgentError, rank: usize, ending: &Ending) -> ToHost {
    let reason = match error {
        AgentError::HungUp => ending.wait(rank, ENDING_TIMEOUT),
        _ => None,
    };
    let mut message = reason.unwrap_or_else(|| error.to_string());
    let end = (0..=MAX_REASON_BYTES.min(message.len())).rev().find(|end| message.is_char_boundary(*end));
    message.truncate(end.unwrap_or(0));
    ToHost::Refused(Refusal { message, code: OWN_FAILURE })
}

fn relay_output(
    command: &CommandHandle,
    mut stream: &UnixStream,
    rank: usize,
    ending: &Ending,
) -> Result<(), ControlError> {
    loop {
        let message = command.next().unwrap_or_else(|error| refusal(&error, rank, ending));
        let is_last = matches!(message, ToHost::Exit(_) | ToHost::Refused(_));
        let mut bytes = Vec::new();
        message.into_frame(0, 0)?.encode(&mut bytes);
        stream.write_all(&bytes)?;
        if is_last {
            return Ok(());
        }
    }
}

/// The client is gone: the command is told so as by a terminal that is closed, and killed if it does not listen.
fn end_politely(command: &CommandSender) {
    for (signal, grace) in [(Signal::HUP, HANG_UP_GRACE), (Signal::KILL, Duration::ZERO)] {
        // If the agent is gone, so is the command.
        let _ = command.send(ToGuest::Signal(signal.as_raw()));
        thread::sleep(grace);
    }
}

/// Passes on what the client says until it is gone. An error means that it makes no sense, or that the command's agent
/// is gone, which the other half tells it.
fn relay_input(stream: &mut UnixStream, command: &CommandSender) -> Result<(), ControlError> {
    let mut decoder = Decoder::default();
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(n) => decoder.push(&buffer[..n]),
        }
        while let Some(frame) = decoder.next_frame() {
            let message = ToGuest::from_frame(frame)?;
            // What is about the guest as a whole is the supervisor's to say.
            let is_for_commands = matches!(
                message,
                ToGuest::Stdin(_)
                    | ToGuest::StdinEnd
                    | ToGuest::Signal(_)
                    | ToGuest::Resize(_)
                    | ToGuest::Credit(_)
            );
            if is_for_commands {
                command.send(message).map_err(|error| ControlError::Refused(error.to_string()))?;
            }
        }
    }
}
