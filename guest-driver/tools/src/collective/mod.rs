//! Barriers, multicasts and reductions of groups, which cards carry out among themselves: how long they take, whether
//! the result is correct, and whether any host was woken.

mod plain;
mod report;

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use niclab_output::eprintln;
use niclab_user::inic::{
    Barrier, Command, Event, EventKind, MAX_COLLECTIVE_BYTES, Multicast, Outcome, Port, PortOptions, Receive,
    Reduce, Region,
};
use niclab_user::{Device, DeviceInfo, Error};
use niclab_workloads::Mark;

use self::report::{Document, Row};
use crate::Failure;
use crate::cli::CollectiveArguments;
use crate::counters::{Counters, Span};
use crate::nic;
use crate::task::Task;

/// Receive buffers for multicasts.
const PLACES: usize = 32;
/// Size of the event queue. It is large enough that no event is released while hosts are watched, because a release
/// rings a doorbell.
const EVENTS: u32 = 1024;
/// Bytes of the tag before a multicast's payload, which names its sender.
const TAG_BYTES: usize = 16;
/// Delay of the last member of an operation in which the other hosts are watched.
const LATE: Duration = Duration::from_millis(200);
/// Pause between two polls of counters, and of the queue of a watched host.
const NAP: Duration = Duration::from_millis(2);

/// A group that this node is a member of.
struct Group {
    /// Its number among all groups, from 1; all programs use the same numbers.
    number: u32,
    /// The name by which cards know it. It depends on the members: a node that has finished this run, or takes no part
    /// in it, may begin the next run with other groups while this one still exists.
    name: u32,
    nodes: Vec<u32>,
    place: usize,
    /// Number of reductions so far.
    reduced: u64,
    /// For each member, by index: multicasts that are due, and multicasts received (`heard`).
    due: Vec<u64>,
    heard: Vec<u64>,
}

impl Group {
    fn new(number: u32, nodes: &[u32], node: u32) -> Option<Self> {
        let place = nodes.iter().position(|member| *member == node)?;
        let none = vec![0; nodes.len()];
        // FNV-1a, of numbers instead of bytes.
        let name =
            nodes.iter().fold(0x811c_9dc5 ^ number, |name, node| (name ^ node).wrapping_mul(0x0100_0193));
        Some(Self { number, name, nodes: nodes.to_vec(), place, reduced: 0, due: none.clone(), heard: none })
    }

    /// The data of operation `number` of the member at index `place`.
    fn mark(&self, place: usize, number: u64, bytes: usize) -> Mark {
        Mark { flow: self.number << 16 | place as u32, bytes: bytes as u32, number }
    }
}

/// A node and its groups.
struct Member {
    port: Port,
    /// Receive buffers of multicasts.
    room: Region,
    /// Buffers that were read and must be posted again.
    read: Vec<usize>,
    /// For each group, the data of its operation, and later its result.
    values: Region,
    groups: Vec<Group>,
    inbox: VecDeque<Event>,
    bytes: usize,
    timeout: Duration,
    task: Task,
    /// Operations that are posted and not complete.
    open: usize,
}

/// Runs the operations of the command line. The first member of the first group prints the report.
///
/// # Errors
///
/// Any [`Failure`]; [`Failure::Combined`] if a result is wrong, [`Failure::Woken`] if a host was woken.
pub fn run(arguments: &CollectiveArguments) -> Result<(), Failure> {
    let device = nic::open_device(arguments.device.as_deref())?;
    let &DeviceInfo { node, nodes, max_message_bytes, .. } = device.info();
    let most = max_message_bytes.min(MAX_COLLECTIVE_BYTES).saturating_sub(TAG_BYTES as u64);
    let size = arguments.size;
    if size == 0 || !size.is_multiple_of(8) || size as u64 > most {
        return Err(Failure::Usage(format!(
            "--size {size}: give a multiple of 8 from 8 to {most}, the limit of this card"
        )));
    }
    let all = arguments.groups_of(nodes)?;
    if !all.iter().any(|members| members.contains(&node)) {
        eprintln!("niclab-perf: node {node} is in no group");
        return Ok(());
    }
    let mut member = Member::open(&device, arguments, &all)?;
    member.meet()?;
    let tasks = arguments.tasks();
    let mut watched = 0;
    for task in &tasks {
        watched += member.watch(&device, *task)?;
    }
    let rows =
        tasks.iter().map(|task| Ok(Row::new(*task, &mut member.perform(*task, arguments.iterations)?)));
    let rows = rows.collect::<Result<Vec<_>, Failure>>()?;
    // A member that leaves a group early ends the group for the others.
    member.barrier()?;
    if all.first().and_then(|members| members.first()) != Some(&node) {
        return Ok(());
    }
    report::write(&Document::new(node, all, size, watched, rows), arguments.json)
}

impl Member {
    fn open(device: &Device, arguments: &CollectiveArguments, all: &[Vec<u32>]) -> Result<Self, Failure> {
        let mut port = Port::open(device, PortOptions::default().slices(EVENTS))?;
        port.set_wait_policy(arguments.poll.policy());
        let node = device.info().node;
        let groups: Vec<Group> =
            (1..).zip(all).filter_map(|(number, nodes)| Group::new(number, nodes, node)).collect();
        let stride = TAG_BYTES + arguments.size;
        let mut member = Self {
            room: port.allocate(PLACES * stride)?,
            read: (0..PLACES).collect(),
            values: port.allocate(groups.len() * stride)?,
            port,
            groups,
            inbox: VecDeque::new(),
            bytes: arguments.size,
            timeout: Duration::from_secs(arguments.timeout),
            task: Task::Barrier,
            open: 0,
        };
        member.post()?;
        for group in &member.groups {
            member.port.make_group(group.name, &group.nodes)?;
        }
        Ok(member)
    }

    fn stride(&self) -> usize {
        TAG_BYTES + self.bytes
    }

    fn launch(&mut self, command: &impl Command) -> Result<(), Failure> {
        self.port.launch_reading(command, &mut self.inbox, self.timeout)?;
        Ok(())
    }

    /// Posts room for multicasts.
    fn post(&mut self) -> Result<(), Failure> {
        let room = self.room.clone();
        while let Some(place) = self.read.pop() {
            let begin = place * self.stride();
            self.launch(&Receive::new(room.span(begin..begin + self.stride())?).user(place as u64))?;
        }
        Ok(())
    }

    /// Waits until all members have created all groups.
    fn meet(&mut self) -> Result<(), Failure> {
        self.barrier().map_err(|failure| match failure {
            Failure::Nic(Error::TimedOut { waited, .. }) => {
                Failure::PeerAbsent { peer: "a member of a group".into(), waited, command: "collective" }
            }
            other => other,
        })
    }

    /// A barrier of all groups at the same time.
    fn barrier(&mut self) -> Result<(), Failure> {
        self.begin(Task::Barrier);
        (0..self.groups.len()).try_for_each(|index| self.ask(index, 0, false))?;
        self.finish()
    }

    fn begin(&mut self, task: Task) {
        self.task = task;
    }

    /// Writes the data of a group's next operation; `root` is the index of the member that sends a multicast.
    fn prepare(&mut self, index: usize, root: usize) -> Result<(), Failure> {
        let (bytes, begin) = (self.bytes, index * self.stride());
        let Some(group) = self.groups.get_mut(index) else { return Ok(()) };
        let carried: Vec<u8> = match self.task {
            Task::Barrier => return Ok(()),
            Task::Multicast => {
                let is_root = group.place == root;
                let Some(due) = group.due.get_mut(root) else { return Ok(()) };
                *due += 1;
                let mark = Mark { number: *due, ..group.mark(root, 0, bytes) };
                if !is_root {
                    return Ok(());
                }
                group.heard[root] += 1;
                mark.tag().into_iter().chain(mark.payload()).flat_map(u64::to_le_bytes).collect()
            }
            Task::Reduce(_, element) => {
                group.reduced += 1;
                plain::values(element, &group.mark(group.place, group.reduced, bytes))
            }
        };
        Ok(self.values.write(begin, &carried)?)
    }

    /// Posts the prepared operation of a group.
    fn ask(&mut self, index: usize, root: usize, interrupts: bool) -> Result<(), Failure> {
        let (values, begin) = (self.values.clone(), index * self.stride());
        let Some(group) = self.groups.get(index) else { return Ok(()) };
        let name = group.name;
        match self.task {
            Task::Barrier => {
                let command = Barrier::new(name);
                self.launch(&if interrupts { command.interrupt() } else { command })?;
            }
            Task::Multicast if group.place != root => return Ok(()),
            Task::Multicast => {
                let command = Multicast::new(name, values.span(begin..begin + self.stride())?);
                self.launch(&if interrupts { command.interrupt() } else { command })?;
            }
            Task::Reduce(operator, element) => {
                let command = Reduce::new(name, values.span(begin..begin + self.bytes)?, operator, element);
                self.launch(&if interrupts { command.interrupt() } else { command })?;
            }
        }
        self.open += 1;
        Ok(())
    }

    /// Whether all posted operations are done, and all due multicasts have arrived.
    fn is_done(&self) -> bool {
        self.open == 0 && self.groups.iter().all(|group| group.heard >= group.due)
    }

    /// Waits until all is done.
    fn finish(&mut self) -> Result<(), Failure> {
        while !self.is_done() {
            let event = match self.inbox.pop_front() {
                Some(event) => event,
                None => self.port.event(self.timeout)?,
            };
            self.on_event(&event)?;
            self.post()?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: &Event) -> Result<(), Failure> {
        match (event.kind, event.outcome) {
            (EventKind::Done, Outcome::Done) => self.open = self.open.saturating_sub(1),
            (EventKind::Received, Outcome::Done) => self.hear(event)?,
            (_, outcome) => return Err(Failure::Collective { task: self.task.to_string(), outcome }),
        }
        Ok(())
    }

    /// Checks a received multicast: its sender, number and payload.
    fn hear(&mut self, event: &Event) -> Result<(), Failure> {
        let place = (event.user as usize).min(PLACES - 1);
        let mut message = vec![0; self.stride()];
        self.room.read(place * self.stride(), &mut message)?;
        let words: Vec<u64> =
            message.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let &[first, number, ref payload @ ..] = &*words else { return Ok(()) };
        let mark = Mark::from_tag([first, number]);
        let (of, root) = (mark.flow >> 16, mark.flow as usize & 0xffff);
        let group = self.groups.iter_mut().find(|group| group.number == of);
        let next = group.and_then(|group| {
            let is_from = group.nodes.get(root) == Some(&event.node) && mark.bytes as usize == self.bytes;
            group.heard.get_mut(root).filter(|heard| is_from && **heard + 1 == number)
        });
        let Some(heard) = next else {
            return Err(Failure::OutOfStep {
                peer: format!("node {}", event.node),
                expected: "its next multicast".into(),
                found: format!("{mark:?}"),
            });
        };
        *heard += 1;
        self.read.push(place);
        match mark.payload().zip(payload).position(|(sent, found)| sent != *found) {
            None => Ok(()),
            Some(word) => {
                let task = format!("multicast {number} of node {}", event.node);
                Err(Failure::Combined { task, byte: 8 * word })
            }
        }
    }

    /// Compares the result that a group's cards stored with one that the program computes from all members' values.
    fn check(&self, index: usize) -> Result<(), Failure> {
        let (Task::Reduce(operator, element), Some(group)) = (self.task, self.groups.get(index)) else {
            return Ok(());
        };
        let values = (0..group.nodes.len())
            .map(|place| plain::values(element, &group.mark(place, group.reduced, self.bytes)));
        let expected = plain::combined(operator, element, &values.collect::<Vec<_>>());
        let mut found = vec![0; self.bytes];
        self.values.read(index * self.stride(), &mut found)?;
        match expected.iter().zip(&found).position(|(expected, found)| expected != found) {
            None => Ok(()),
            Some(byte) => {
                let task = format!("{} number {} of nodes {:?}", self.task, group.reduced, group.nodes);
                Err(Failure::Combined { task, byte })
            }
        }
    }

    /// Runs `iterations` rounds of all groups at the same time. Returns the durations of rounds that this node posted,
    /// in nanoseconds of wall time.
    fn perform(&mut self, task: Task, iterations: u64) -> Result<Vec<u64>, Failure> {
        let members = self.groups.iter().map(|group| group.nodes.len()).max().unwrap_or(0);
        let roots = if task == Task::Multicast { members } else { 1 };
        let mut samples = Vec::new();
        self.begin(task);
        for root in 0..roots {
            for _ in 0..iterations {
                (0..self.groups.len()).try_for_each(|index| self.prepare(index, root))?;
                let begun = Instant::now();
                (0..self.groups.len()).try_for_each(|index| self.ask(index, root, false))?;
                let has_asked = self.open > 0;
                self.finish()?;
                samples.extend(has_asked.then(|| begun.elapsed().as_nanos() as u64));
                (0..self.groups.len()).try_for_each(|index| self.check(index))?;
            }
        }
        Ok(samples)
    }

    /// Runs one operation of each group, with the last member late. Meanwhile the cards of the other members do all the
    /// work, and their hosts must not notice. Every second member requests one interrupt at the end. Returns the number
    /// of operations in which this host was watched.
    fn watch(&mut self, device: &Device, task: Task) -> Result<u64, Failure> {
        let mut watched = 0;
        for index in 0..self.groups.len() {
            self.begin(Task::Barrier);
            self.ask(index, 0, false)?;
            self.finish()?;
            self.begin(task);
            self.prepare(index, 0)?;
            let Some(group) = self.groups.get(index) else { continue };
            let last = if task == Task::Multicast { 0 } else { group.nodes.len() - 1 };
            let (is_late, is_odd) = (group.place == last, group.place % 2 == 1);
            if is_late {
                thread::sleep(LATE);
            }
            let interrupts = Counters::read(device)?.interrupts;
            self.ask(index, 0, is_odd)?;
            let expected = u64::from(is_odd && self.open > 0);
            // Its own post has rung a doorbell, and the operation may already be complete.
            let before = Counters { interrupts, ..settled(device)? };
            let deadline = Instant::now() + self.timeout;
            // A sleeping host would request an interrupt, and a host that posts buffers would ring, so this loop does
            // neither.
            while !self.is_done() && Instant::now() < deadline {
                match self.inbox.pop_front().or_else(|| self.port.try_event()) {
                    Some(event) => self.on_event(&event)?,
                    None => thread::sleep(NAP),
                }
            }
            let after = settled(device)?;
            self.finish()?;
            self.post()?;
            self.check(index)?;
            if is_late {
                continue;
            }
            let Counters { interrupts, doorbells, doorbells_spared } = Span { before, after }.difference();
            let rung = doorbells + doorbells_spared;
            if (interrupts, rung) != (expected, 0) {
                return Err(Failure::Woken { task: task.to_string(), interrupts, expected, rung });
            }
            watched += 1;
        }
        Ok(watched)
    }
}

/// The device's counters, once the device has processed all earlier doorbells.
fn settled(device: &Device) -> Result<Counters, Failure> {
    let mut before = Counters::read(device)?;
    loop {
        thread::sleep(NAP);
        let now = Counters::read(device)?;
        if now == before {
            return Ok(now);
        }
        before = now;
    }
}
