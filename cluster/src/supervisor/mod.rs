//! The process that keeps a cluster up after `niclab up` has returned.
//!
//! It reads its plan from standard input, and reports the boot on standard output, one JSON [`Progress`] per line. When
//! it reports that the cluster is up, the `niclab up` that started it answers [`HandedOver`]. If standard input ends
//! before, that `niclab up` has died. No user then knows of the cluster, so the supervisor takes it down.
//!
//! After [`HandedOver`] the supervisor serves the control socket. It ends when a client asks it to take the cluster
//! down, or when the cluster ends by itself. In the latter case it leaves the reason in the cluster's folder for later
//! commands.

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
use crate::host::deadline::Deadline;
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

/// Time limit for a guest's answer about its health.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for reconnecting to a lost agent.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for the agent's guest, which may have restarted, to become a node again. An agent waits up to 20 s for a
/// network interface.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for the cluster's owner to find out why a guest's QEMU ended.
const ENDING_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum length of the reason for a client: it fits into a frame of the agent's protocol.
const MAX_REASON_BYTES: usize = 32 * 1024;

/// Time limit for a command to end after its client closed the connection.
const HANG_UP_GRACE: Duration = Duration::from_secs(1);

/// The supervisor's input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The folder of all clusters.
    pub root: std::path::PathBuf,
    /// The plan to carry out.
    pub plan: Plan,
    /// Time limit until the guests are healthy.
    pub boot_timeout: Duration,
}

/// The progress of a boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "progress", rename_all = "kebab-case")]
pub enum Progress {
    /// A node is healthy.
    Healthy {
        /// The node's name.
        node: String,
    },
    /// All nodes are healthy, and the control socket exists.
    Up,
    /// The cluster ended.
    Failed {
        /// Why.
        message: String,
    },
}

/// The answer of `niclab up` to [`Progress::Up`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {}

/// Carries out an order. Returns when the cluster is down.
///
/// # Errors
/// If the order cannot be read.
pub fn supervise() -> Result<(), ControlError> {
    let order: Order = control::read_line(&mut io::stdin().lock())?;
    // A session of its own, so that the terminal's signals and end do not affect the supervisor. This fails only for
    // the leader of a process group, which a new child is not; a failure would only lose this protection.
    let _ = rustix::process::setsid();
    signals::take_over()?;
    // Sockets and files are private to the user, for any umask of the user.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    if let Err(message) = Supervisor::run(&order) {
        report_progress(&Progress::Failed { message });
    }
    Ok(())
}

/// Reports progress; the receiver may have ended.
fn report_progress(progress: &Progress) {
    let mut stdout = io::stdout().lock();
    let _ = control::write_line(&mut stdout, progress);
    let _ = stdout.flush();
}

/// Why the cluster or some of its nodes ended, for threads that serve clients.
#[derive(Default)]
struct Ending {
    reasons: Mutex<EndReasons>,
    known: Condvar,
}

#[derive(Default)]
struct EndReasons {
    /// The reason of the cluster's end: written once, before the guests are ended.
    of_cluster: Option<String>,
    /// The reasons of nodes without which the others continue, by rank.
    of_nodes: BTreeMap<usize, String>,
}

impl EndReasons {
    fn of(&self, rank: usize) -> Option<&String> {
        self.of_nodes.get(&rank).or(self.of_cluster.as_ref())
    }
}

impl Ending {
    fn set_reason(&self, failure: &Failure) {
        self.lock().of_cluster = Some(failure.to_string());
        self.known.notify_all();
    }

    fn set_node_reasons(&self, ended: &BTreeMap<usize, NodeEnd>) {
        self.lock().of_nodes = ended.iter().map(|(rank, end)| (*rank, end.reason.clone())).collect();
        self.known.notify_all();
    }

    /// Why the node ended, by itself or with the cluster. Waits for the reason, at most for `limit`.
    fn wait(&self, rank: usize, limit: Duration) -> Option<String> {
        let waited = self.known.wait_timeout_while(self.lock(), limit, |reasons| reasons.of(rank).is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.of(rank).cloned()
    }

    /// Why the node ended while the others continue, if it did.
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
                report_progress(&Progress::Up);
                close_stdout();
                let failure = wait_for_end(&mut cluster, &ending);
                ending.set_reason(&failure);
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
                // If the folder no longer exists, no later command reads the reason, either.
                let file = own::create_file(&CWD, &path.join(FAILURE));
                let _ = file.and_then(|mut file| file.write_all(message.as_bytes()));
                return Err(message);
            }
        }
        Ok(())
    }

    fn boot(order: &Order, folder: ClusterFolder, ending: Arc<Ending>) -> Result<RunningCluster, Failure> {
        let mut on_healthy =
            |node: &crate::plan::NodePlan| report_progress(&Progress::Healthy { node: node.name.clone() });
        let (sender, events) = mpsc::channel();
        await_handover(sender.clone());
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
                // The owner ignores events only while it is taking the cluster down already.
                let _ = self.events.send(Event::Down(DownRequest(sender)));
                // An error means that the owner dropped the request at its end, which is the awaited event.
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
            format!("there is no node `{name}`; the nodes are {}", names.join(", "))
        })?;
        let command = self.agent(rank)?.exec(exec).map_err(|error| error.to_string())?;
        Ok((rank, command))
    }

    /// The node's agent. If the connection was lost (the guest's init restarts the agent), it reconnects. Returns an
    /// error if the node has ended.
    fn agent(&self, rank: usize) -> Result<Arc<AgentClient>, String> {
        let unknown = || format!("there is no node {rank}");
        let (slot, node) = self.agents.get(rank).zip(self.plan.nodes.get(rank)).ok_or_else(unknown)?;
        let ended = |rank| self.ending.of_node(rank);
        if let Some(reason) = ended(rank) {
            return Err(reason);
        }
        let mut agent = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if agent.is_lost() {
            // The reason may be known only now: the connection closes before the process ends.
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
    let agent = AgentClient::connect(&node.agent_socket, Deadline::after(RECONNECT_TIMEOUT))?;
    agent.join(&join_now(&node.identity), Deadline::after(JOIN_TIMEOUT))?;
    Ok(agent)
}

/// Sends an event when `niclab up` answers that it has reported the cluster to its user, or when it ends.
fn await_handover(sender: mpsc::Sender<Event>) {
    thread::spawn(move || {
        let answer = control::read_line::<HandedOver>(&mut io::stdin().lock());
        // If the receiver is gone, the cluster is being taken down.
        let _ = sender.send(if answer.is_ok() { Event::HandedOver } else { Event::Abandoned });
    });
}

/// Closes standard output for its reader, although this process continues.
fn close_stdout() {
    if let Ok(null) = fs::OpenOptions::new().write(true).open("/dev/null")
        && let Err(error) = rustix::stdio::dup2_stdout(&null)
    {
        log::warn!("cannot close standard output: {error}");
    }
}

fn wait_for_end(cluster: &mut RunningCluster, ending: &Ending) -> Failure {
    loop {
        // Any distant time, because the loop repeats.
        match cluster.next_event(Deadline::after(Duration::from_secs(3600))) {
            Ok(_) => ending.set_node_reasons(cluster.ended_nodes()),
            Err(failure) => return failure,
        }
    }
}

/// Relays messages between a client and its command until one of them ends.
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
    // The other half holds the connection too, so the client would otherwise not see its end.
    let _ = stream.shutdown(Shutdown::Both);
    result
}

/// The refusal for a command without an exit status. If QEMU has ended, it has the reason of the node's or the
/// cluster's end.
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

/// The client is gone: sends the command SIGHUP, as a closed terminal does, and kills it after the grace period.
fn end_politely(command: &CommandSender) {
    for (signal, grace) in [(Signal::HUP, HANG_UP_GRACE), (Signal::KILL, Duration::ZERO)] {
        // If the agent is gone, so is the command.
        let _ = command.send(ToGuest::Signal(signal.as_raw()));
        thread::sleep(grace);
    }
}

/// Relays the client's messages until it is gone. An error means that a message is invalid, or that the command's agent
/// is gone, which the other half reports to the client.
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
            // Messages about the whole guest are reserved for the supervisor.
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
