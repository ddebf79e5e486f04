//! The cluster of one case, and the actions on it: start and kill programs, unbind and unload drivers and load them
//! again, reset guests. Every wait has a time limit, and ends at once if the cluster ends.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use niclab_agent::{Exec, ExitStatus, ToGuest};
use niclab_spec::DeviceFaults;
use rustix::process::Signal;
use thiserror::Error;

use crate::host::deadline::Deadline;
use crate::{
    boot::{
        driver,
        running::{Event, Failure, RunningCluster},
    },
    daemon::monitor::{self, MonitorError},
    guests::{
        agent::{AgentError, CommandHandle, CommandSender, Output},
        qmp::{Qmp, QmpError},
    },
};

use super::traffic::Traffic;

/// Maximum number of bytes that are kept of a program's output: its end.
const KEPT_BYTES: usize = 4 * 1024;

/// Time limit for a killed program to end. After it, the program is stuck in the kernel.
const KILLED: Duration = Duration::from_secs(15);

/// Time limit for binding, unbinding, loading or unloading a driver.
const STEP: Duration = Duration::from_secs(40);

/// Time limit for a guest's reboot.
const REBOOT: Duration = Duration::from_secs(180);

/// Interval at which a guest's health is polled.
const HEALTH_INTERVAL: Duration = Duration::from_millis(50);

/// Time limit for a guest's answer about its health.
const HEALTH: Duration = Duration::from_secs(10);

/// Finds the card, its device and its driver with shell builtins only: starting a program takes long on a debug kernel.
const CARD: &str = r#"
for device in /sys/bus/virtio/devices/*; do
    read -r id <"$device/device" && [ "$id" = 0x0026 ] && break
done
name=${device##*/}
"#;

/// Interval at which the cards' counters are read.
pub const TRAFFIC_INTERVAL: Duration = Duration::from_millis(2);

/// Unbinds the card's driver, and records its name. It waits until its standard input is closed, so that the unbind
/// itself needs no new process.
const UNBIND: &str = r#"
read -r go
[ -e "$device/driver" ] || exit 0
driver=$(readlink -f "$device/driver") || exit
echo "$driver" >/run/niclab/unbound && echo "$name" >"$driver/unbind"
"#;

/// Binds the driver again.
const BIND: &str = r#"
[ -e "$device/driver" ] || {
    read -r driver </run/niclab/unbound && echo "$name" >"$driver/bind"
} || {
    dmesg | tail -n 5 >&2
    exit 1
}
"#;

/// Unloads the module `$1`.
const UNLOAD: &str = "rmmod \"$1\"";

/// Loads niclab's own module.
const LOAD_OURS: &str = "modprobe niclab";

/// Resets the guest, as a held power button does: no driver is notified.
const RESET: &str = "echo b >/proc/sysrq-trigger; sleep 60";

/// The name of the step that unbinds a driver.
const UNBINDING: &str = "unbinding the driver";

/// niclab's own module.
pub const OURS: &str = "niclab";

/// Why a case failed.
#[derive(Debug, Error)]
pub enum Trouble {
    /// The cluster ended.
    #[error(transparent)]
    Ended(#[from] Failure),
    /// A program or a step did not end.
    #[error("{0}")]
    Hang(String),
    /// A step failed.
    #[error("{step} failed: {said}")]
    Step {
        /// The step.
        step: String,
        /// The output in the guest.
        said: String,
    },
    /// The command failed.
    #[error("the command ended with code {code} on {node}: {said}")]
    Exit {
        /// The node.
        node: String,
        /// Its code.
        code: u8,
        /// The end of its output.
        said: String,
    },
    /// The daemon does not answer.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// QEMU cannot reset a guest.
    #[error(transparent)]
    Qemu(#[from] QmpError),
}

/// A program on a node.
pub struct Program {
    number: usize,
    /// The node.
    pub rank: usize,
    sender: CommandSender,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Program {
    /// Closes its standard input.
    fn release(&self) {
        // If the agent is gone, the program has ended; its follower reports that as well.
        let _ = self.sender.send(ToGuest::StdinEnd);
    }
}

/// The cluster of a case.
pub struct Laboratory<'a> {
    running: &'a mut RunningCluster,
    /// How programs ended, by their numbers.
    over: BTreeMap<usize, Result<u8, String>>,
    next: usize,
}

impl<'a> Laboratory<'a> {
    /// Of a cluster that is up.
    pub fn new(running: &'a mut RunningCluster) -> Self {
        Self { running, over: BTreeMap::new(), next: 0 }
    }

    /// The number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.running.plan().nodes.len()
    }

    /// `time`, scaled for guests that are slow because of a debug kernel.
    #[must_use]
    pub fn scaled(&self, time: Duration) -> Duration {
        time * self.running.plan().timeout_factor
    }

    /// The name of a node.
    #[must_use]
    pub fn name(&self, rank: usize) -> String {
        self.running.plan().nodes.get(rank).map(|node| node.name.clone()).unwrap_or_default()
    }

    /// Starts a program on a node. If the guest is gone, the program ends at once.
    pub fn start(&mut self, rank: usize, argv: &[String]) -> Result<Program, Trouble> {
        let program = self.start_with_input(rank, argv)?;
        program.release();
        Ok(program)
    }

    /// Starts a program whose standard input stays open until [`Program::release`].
    fn start_with_input(&mut self, rank: usize, argv: &[String]) -> Result<Program, Trouble> {
        let number = self.next;
        self.next += 1;
        let said = Arc::new(Mutex::new(Vec::new()));
        let node = self.name(rank);
        let agent = self.running.agent(rank).cloned();
        let unanswered = || Trouble::Hang(format!("the guest of {node} does not answer"));
        let exec = Exec { argv: argv.to_vec(), ..Exec::default() };
        let Ok(command) = agent.ok_or_else(unanswered)?.exec(exec) else {
            self.running.check_guests()?;
            return Err(unanswered());
        };
        let sender = command.sender().clone();
        let (events, kept) = (self.running.sender(), Arc::clone(&said));
        thread::spawn(move || {
            let result = follow(&command, &kept).map_err(|error| error.to_string());
            // If the receiver is gone, the cluster is being taken down.
            let _ = events.send(Event::CommandOver(number, result));
        });
        Ok(Program { number, rank, sender, said })
    }

    /// Starts the program on every node.
    pub fn start_all(&mut self, argv: &[String]) -> Result<Vec<Program>, Trouble> {
        (0..self.nodes()).map(|rank| self.start(rank, argv)).collect()
    }

    /// Handles events until `is_enough` or the deadline. Returns whether it was enough.
    fn until(
        &mut self,
        deadline: Deadline,
        is_enough: impl Fn(&BTreeMap<usize, Result<u8, String>>) -> bool,
    ) -> Result<bool, Failure> {
        while !is_enough(&self.over) {
            match self.running.next_event(deadline)? {
                Some(Event::CommandOver(number, result)) => drop(self.over.insert(number, result)),
                Some(Event::Healthy(rank, agent)) => self.running.adopt(rank, agent),
                Some(_) => {}
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Lets the cluster run for this time.
    pub fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        self.until(Deadline::after(time), |_| false).map(drop)
    }

    /// Waits until all programs ended, or one failed, or the limit passed. Returns false at the limit.
    pub fn wait(&mut self, programs: &[Program], limit: Duration) -> Result<bool, Failure> {
        let numbers: Vec<usize> = programs.iter().map(|program| program.number).collect();
        self.until(Deadline::after(limit), |over| {
            let ended = || numbers.iter().filter_map(|number| over.get(number));
            ended().count() == numbers.len() || ended().any(|result| *result != Ok(0))
        })
    }

    /// What the card of a node, or all cards, did since the daemon started.
    pub fn traffic(&self, rank: Option<usize>) -> Result<Traffic, MonitorError> {
        let stats = monitor::stats(&self.running.plan().monitor_socket)?;
        let is_asked = |number: usize| rank.is_none_or(|rank| rank == number);
        let nodes = stats.nodes.iter().enumerate().filter(|(number, _)| is_asked(*number));
        Ok(nodes.map(|(_, node)| Traffic::of(node)).sum())
    }

    /// Waits until a node's card, or all cards, did `wanted` more actions than `before`, until a program failed or all
    /// ended, or until the limit. Returns what the cards did until then.
    pub fn await_traffic(
        &mut self,
        programs: &[Program],
        rank: Option<usize>,
        before: Traffic,
        wanted: u64,
        limit: Duration,
    ) -> Result<Traffic, Trouble> {
        let deadline = Deadline::after(limit);
        loop {
            let done = self.traffic(rank)?.since(before);
            if done.count() >= wanted || deadline.is_over() {
                return Ok(done);
            }
            if self.wait(programs, TRAFFIC_INTERVAL)? {
                return Ok(self.traffic(rank)?.since(before));
            }
        }
    }

    /// Whether all programs succeeded.
    pub fn are_done(&self, programs: &[Program]) -> bool {
        programs.iter().all(|program| self.over.get(&program.number) == Some(&Ok(0)))
    }

    fn is_over(&self, program: &Program) -> bool {
        self.over.contains_key(&program.number)
    }

    /// Kills those programs that still run. `what` names them in an error.
    pub fn kill<'p>(
        &mut self,
        programs: impl IntoIterator<Item = &'p Program>,
        what: &str,
    ) -> Result<(), Trouble> {
        let left: Vec<&Program> = programs.into_iter().filter(|program| !self.is_over(program)).collect();
        for program in &left {
            // If the agent is gone, the program has ended, too.
            let _ = program.sender.send(ToGuest::Signal(Signal::KILL.as_raw()));
        }
        let numbers: Vec<usize> = left.iter().map(|program| program.number).collect();
        let all = |over: &BTreeMap<usize, _>| numbers.iter().all(|number| over.contains_key(number));
        if self.until(Deadline::after(self.scaled(KILLED)), all)? {
            return Ok(());
        }
        let stuck =
            left.iter().filter(|program| !self.is_over(program)).map(|program| self.name(program.rank));
        let nodes = stuck.collect::<Vec<_>>().join(", ");
        Err(Trouble::Hang(format!("{what} cannot be killed on {nodes}")))
    }

    /// The first of the programs that failed by itself.
    pub fn failed(&self, programs: &[Program]) -> Option<Trouble> {
        programs.iter().find_map(|program| {
            let (node, said) = (self.name(program.rank), output_text(&program.said));
            match self.over.get(&program.number)? {
                Ok(0) => None,
                Ok(code) => Some(Trouble::Exit { node, code: *code, said }),
                Err(error) => Some(Trouble::Hang(format!("the guest of {node} does not answer: {error}"))),
            }
        })
    }

    /// The nodes of those programs that have not ended.
    pub fn left(&self, programs: &[Program]) -> Vec<String> {
        let left = programs.iter().filter(|program| !self.is_over(program));
        left.map(|program| self.name(program.rank)).collect()
    }

    /// Runs a script on these nodes at the same time, and waits until it has ended on all.
    fn script(&mut self, ranks: &[usize], step: &str, script: &str, words: &[String]) -> Result<(), Trouble> {
        let prepared = self.prepare(ranks, script, words)?;
        self.run_prepared(&prepared, step)
    }

    /// Starts a script on these nodes, with its standard input open.
    fn prepare(&mut self, ranks: &[usize], script: &str, words: &[String]) -> Result<Vec<Program>, Trouble> {
        let fixed = ["sh", "-c", script, "sh"].map(str::to_owned);
        let argv: Vec<String> = fixed.into_iter().chain(words.iter().cloned()).collect();
        ranks.iter().map(|&rank| self.start_with_input(rank, &argv)).collect()
    }

    /// Closes the standard inputs of scripts, and waits until they have ended.
    fn run_prepared(&mut self, programs: &[Program], step: &str) -> Result<(), Trouble> {
        programs.iter().for_each(Program::release);
        let is_over = self.wait(programs, self.scaled(STEP))?;
        match self.failed(programs) {
            Some(Trouble::Exit { node, said, .. }) => {
                Err(Trouble::Step { step: format!("{step} on {node}"), said })
            }
            Some(trouble) => Err(trouble),
            None if is_over => Ok(()),
            None => {
                let nodes = self.left(programs).join(", ");
                Err(Trouble::Hang(format!(
                    "{step} on {nodes} did not end within {} s",
                    self.scaled(STEP).as_secs()
                )))
            }
        }
    }

    /// Unbinds the drivers of these nodes' cards.
    pub fn unbind(&mut self, ranks: &[usize]) -> Result<(), Trouble> {
        let prepared = self.prepare_unbind(ranks)?;
        self.unbind_prepared(&prepared)
    }

    /// Prepares to unbind the drivers of these nodes' cards.
    pub fn prepare_unbind(&mut self, ranks: &[usize]) -> Result<Vec<Program>, Trouble> {
        self.prepare(ranks, &format!("{CARD}{UNBIND}"), &[])
    }

    /// Unbinds the drivers for which this is prepared.
    pub fn unbind_prepared(&mut self, prepared: &[Program]) -> Result<(), Trouble> {
        self.run_prepared(prepared, UNBINDING)
    }

    /// Binds the drivers again.
    pub fn bind(&mut self, ranks: &[usize]) -> Result<(), Trouble> {
        self.script(ranks, "binding the driver", &format!("{CARD}{BIND}"), &[])?;
        self.wait_healthy(ranks)
    }

    /// Rebinds all drivers, so that they have no state from before.
    pub fn settle(&mut self) -> Result<(), Trouble> {
        let all: Vec<usize> = (0..self.nodes()).collect();
        self.unbind(&all)?;
        self.bind(&all)
    }

    /// Unloads the modules of these nodes.
    pub fn unload(&mut self, ranks: &[usize]) -> Result<(), Trouble> {
        for &rank in ranks {
            let module = self.running.plan().nodes.get(rank).and_then(|node| node.driver.as_ref());
            let module = module.map_or_else(|| OURS.to_owned(), |driver| driver.module.name.clone());
            self.script(&[rank], "unloading the driver", UNLOAD, &[module])?;
        }
        Ok(())
    }

    /// Loads them again.
    pub fn load(&mut self, ranks: &[usize]) -> Result<(), Trouble> {
        let numbers = ranks.iter().map(|&rank| self.begin_load(rank)).collect::<Result<Vec<_>, _>>()?;
        let all = |over: &BTreeMap<usize, _>| numbers.iter().all(|number| over.contains_key(number));
        let is_over = self.until(Deadline::after(self.scaled(STEP)), all)?;
        for (&rank, number) in ranks.iter().zip(&numbers) {
            let step = format!("loading the driver on {}", self.name(rank));
            match self.over.get(number) {
                Some(Ok(0)) => {}
                Some(Ok(code)) => {
                    return Err(Trouble::Step { step, said: format!("modprobe: exit code {code}") });
                }
                Some(Err(said)) => return Err(Trouble::Step { step, said: said.clone() }),
                None => {
                    return Err(Trouble::Hang(format!(
                        "{step} did not end within {} s",
                        self.scaled(STEP).as_secs()
                    )));
                }
            }
        }
        debug_assert!(is_over, "each was looked at");
        self.wait_healthy(ranks)
    }

    /// Begins to load a node's driver; returns the number under which its end is reported.
    fn begin_load(&mut self, rank: usize) -> Result<usize, Trouble> {
        let node = self.running.plan().nodes.get(rank).cloned();
        let Some((node, own)) = node.and_then(|node| Some((node.clone(), node.driver?))) else {
            let argv = ["sh", "-c", LOAD_OURS].map(str::to_owned);
            return Ok(self.start(rank, &argv)?.number);
        };
        let number = self.next;
        self.next += 1;
        let (agent, events) = (self.running.agent(rank).cloned(), self.running.sender());
        let deadline = Deadline::after(self.scaled(STEP));
        thread::spawn(move || {
            let gone = || "the guest is gone".to_owned();
            let loaded = agent.ok_or_else(gone).and_then(|agent| {
                driver::load(&agent, &node, &own, deadline).map_err(|error| error.to_string())
            });
            // If the receiver is gone, the cluster is being taken down.
            let _ = events.send(Event::CommandOver(number, loaded.map(|()| 0)));
        });
        Ok(number)
    }

    /// Waits until the nodes are healthy: their drivers are bound to the cards.
    fn wait_healthy(&mut self, ranks: &[usize]) -> Result<(), Trouble> {
        let deadline = Deadline::after(self.scaled(STEP));
        for &rank in ranks {
            let Some(agent) = self.running.agent(rank).cloned() else { continue };
            loop {
                let health = agent.health(HEALTH);
                if health.as_ref().is_ok_and(niclab_agent::Health::is_healthy) {
                    break;
                }
                if deadline.is_over() {
                    let why = health.map_or_else(|error| error.to_string(), |health| health.to_string());
                    return Err(Trouble::Hang(format!("{} does not become healthy: {why}", self.name(rank))));
                }
                self.pass(HEALTH_INTERVAL)?;
            }
        }
        Ok(())
    }

    /// Resets a guest, waits until it has booted and is its node again, and loads its driver.
    pub fn reset(&mut self, rank: usize) -> Result<(), Trouble> {
        let node = self.name(rank);
        let socket = self.running.plan().nodes.get(rank).map(|node| node.qmp_socket.clone());
        let mut qemu = Qmp::connect(&socket.unwrap_or_default())?;
        // The permission is limited to this reset: a guest that panics also resets itself, and must then end.
        qemu.let_guest_reset(true)?;
        let argv = ["sh", "-c", RESET].map(str::to_owned);
        let reset = self.start(rank, &argv)?;
        let is_gone = self.wait(std::slice::from_ref(&reset), self.scaled(STEP))?;
        let deadline = Deadline::after(self.scaled(REBOOT));
        if is_gone {
            self.running.await_rebooted(rank, deadline);
        }
        let is_back = |lab: &Self| lab.running.agents().count() == lab.nodes();
        while is_gone && !is_back(self) && !deadline.is_over() {
            self.pass(HEALTH_INTERVAL)?;
        }
        qemu.let_guest_reset(false)?;
        if is_gone && is_back(self) {
            return Ok(());
        }
        Err(Trouble::Hang(format!(
            "{node} has not rebooted within {} s after its reset",
            self.scaled(REBOOT).as_secs()
        )))
    }

    /// Sets the seed of the adversarial behaviour of all NICs.
    pub fn set_adversarial_seed(&self, seed: u64) -> Result<(), MonitorError> {
        monitor::set_adversarial_seed(&self.running.plan().monitor_socket, seed)
    }

    /// Sets the faults of all NICs.
    pub fn set_faults(&self, faults: &DeviceFaults) -> Result<(), MonitorError> {
        let plan = self.running.plan();
        let set = |node: &str| monitor::set_device_faults(&plan.monitor_socket, node, faults.clone());
        plan.nodes.iter().try_for_each(|node| set(&node.name))
    }
}

fn output_text(kept: &Mutex<Vec<u8>>) -> String {
    // No thread panics while it holds the lock; if one did, the bytes would still be valid.
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// Waits for a program's end, and keeps the end of its output.
fn follow(command: &CommandHandle, kept: &Mutex<Vec<u8>>) -> Result<u8, AgentError> {
    let keep = |bytes: &[u8]| {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..surplus);
    };
    let ended = command.follow(|output| {
        match output {
            Output::Stdout(bytes) | Output::Stderr(bytes) => keep(bytes),
        }
        Ok::<_, AgentError>(())
    })?;
    Ok(ended.map(ExitStatus::shell_code).unwrap_or_else(|refusal| {
        keep(refusal.message.as_bytes());
        refusal.code
    }))
}
