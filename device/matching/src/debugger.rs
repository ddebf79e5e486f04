//! The debugger: executes cycles, stops at words and events, and shows the machine. Commands and replies are text, so a
//! terminal and a script use it in the same way.

mod command;
mod show;

use std::collections::VecDeque;
use std::path::PathBuf;

use niclab_asm::Register;
use thiserror::Error;

use crate::firmware::Firmware;
use crate::input::parse_number;
use crate::machine::{Cycle, Machine, Party, Setup, SetupError, Snapshot, Stages, Stopped};
use crate::results::write_found;
use crate::trace::{TickError, Trace, TraceError, tick};
use command::{COMMANDS, Command, CommandError, Event, Point};

/// Number of cycles whose stages are kept.
const HISTORY: usize = 1_024;

/// The debugger cannot continue. An invalid command is not such an error.
#[derive(Debug, Error)]
pub enum DebugError {
    /// The setup cannot be run.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The waveform cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Lines for the user.
    pub text: String,
    /// Whether that was the last command.
    pub quits: bool,
}

/// A breakpoint: at a word of a unit, on an event, or on a change of a unit's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Word(Party, usize),
    Event(Event),
    Change(Party, Register),
}

/// The reason why the machine stopped.
enum StopReason {
    Breakpoint(usize),
    Count,
    Done,
    Stopped(Stopped),
}

/// A machine under the debugger.
pub struct Debugger {
    setup: Setup,
    machine: Machine,
    /// The unit that commands refer to.
    unit: Party,
    /// The waveform's file.
    path: Option<PathBuf>,
    trace: Option<Trace>,
    /// Breakpoints with their numbers, counted from 1.
    stops: Vec<(usize, Stop)>,
    next_stop: usize,
    /// The machine before the last command that moved it.
    before: Snapshot,
    /// Stages of the last cycles, of the matching unit and of the queue unit.
    history: VecDeque<(u64, [Stages; 2])>,
}

impl Debugger {
    /// A debugger with a machine before its first cycle. `path` is the file for a waveform, if any.
    ///
    /// # Errors
    /// [`DebugError`].
    pub fn new(setup: Setup, path: Option<PathBuf>) -> Result<Self, DebugError> {
        let machine = Machine::new(&setup)?;
        let trace = path.as_deref().map(|path| Trace::create(path, &setup.files)).transpose()?;
        let before = machine.snapshot();
        let (stops, history) = (Vec::new(), VecDeque::new());
        // A user who gives a queue program probably wants to debug it.
        let unit = if machine.has_queue() { Party::Queue } else { Party::Matcher };
        Ok(Self { setup, machine, unit, path, trace, stops, next_stop: 1, before, history })
    }

    /// The greeting.
    #[must_use]
    pub fn greeting(&self) -> String {
        let Setup { firmware, queue, items, headers, .. } = &self.setup;
        let said =
            |firmware: &Firmware| format!("program {}, {} words; ", firmware.name(), firmware.words().len());
        let queue = queue.as_ref().map_or_else(String::new, |queue| {
            format!("list kept by {}`unit` changes between both; ", said(queue))
        });
        let (items, headers) = (items.len(), headers.len());
        let rest = format!("{items} items, {headers} headers; `help` lists the commands\n");
        said(firmware) + &queue + &rest + &show::next(&self.machine, self.unit)
    }

    /// Executes a command line. An invalid line gets an error reply and changes nothing.
    ///
    /// # Errors
    /// [`DebugError`].
    pub fn execute(&mut self, line: &str) -> Result<Reply, DebugError> {
        let command = command::parse(line);
        let quits = command == Ok(Command::Quit);
        let text = match command {
            Ok(Command::Step(count)) => self.advance(count, true)?,
            Ok(Command::Continue(count)) => self.advance(count.unwrap_or(u64::MAX), false)?,
            Ok(Command::Restart) => self.restart()?,
            Ok(command) => self.answer(command).unwrap_or_else(|error| complaint(&error)),
            Err(error) => complaint(&error),
        };
        Ok(Reply { text, quits })
    }

    /// Whether a program was stopped since the beginning or the last `restart`.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.machine.stopped().is_some()
    }

    /// Completes the waveform after the last command; the file appears.
    ///
    /// # Errors
    /// [`DebugError`].
    pub fn finish(self) -> Result<(), DebugError> {
        Ok(self.trace.map_or(Ok(()), |trace| trace.finish(&self.machine))?)
    }

    /// Commands that do not move the machine.
    fn answer(&mut self, command: Command) -> Result<String, CommandError> {
        let Self { machine, before, unit, .. } = self;
        let firmware = machine.firmware(*unit);
        Ok(match command {
            Command::Unit(chosen) => self.choose(chosen)?,
            Command::Break(point) => self.add(point)?,
            Command::Breaks => self.stops_text(),
            Command::Delete(number) => self.delete(number)?,
            Command::Registers => show::registers(firmware, machine.snapshot().of(*unit), before.of(*unit)),
            Command::Predicates => show::predicates(firmware, machine.snapshot().of(*unit), before.of(*unit)),
            Command::Fifos => show::fifos(machine, *unit),
            Command::Pipeline(cycles) => {
                let skipped = self.history.len().saturating_sub(usize::try_from(cycles).unwrap_or(HISTORY));
                let place = usize::from(*unit == Party::Queue && machine.has_queue());
                let history = self.history.iter().skip(skipped);
                show::pipeline(firmware, history.map(|(cycle, stages)| (*cycle, stages[place])))
            }
            Command::Manager => show::manager(machine, &self.setup.headers),
            Command::List => show::list(machine),
            Command::Program(place) => {
                let around = place.map(|place| self.address(&place)).transpose()?;
                show::program(&self.machine, self.unit, around)
            }
            Command::Results => {
                let mut text = String::new();
                // Writing to a string does not fail.
                let _ = write_found(&mut text, machine.found());
                text
            }
            Command::Help => help(),
            Command::Step(_) | Command::Continue(_) | Command::Restart | Command::Quit | Command::Nothing => {
                String::new()
            }
        })
    }

    /// Selects the unit that commands refer to, if one is named. Returns its next word.
    fn choose(&mut self, unit: Option<Party>) -> Result<String, CommandError> {
        match unit {
            Some(Party::Queue) if !self.machine.has_queue() => return Err(CommandError::NoQueue),
            Some(unit) => self.unit = unit,
            None => {}
        }
        let name = if self.unit == Party::Queue { "queue" } else { "match" };
        let program = self.machine.firmware(self.unit).name();
        Ok(format!("unit {name}, program {program}\n{}", show::next(&self.machine, self.unit)))
    }

    fn register(&self, name: &str) -> Result<Register, CommandError> {
        let firmware = self.machine.firmware(self.unit);
        firmware.register(name).ok_or_else(|| {
            let names: Vec<&str> = firmware.names().iter().map(|(name, _)| name.as_str()).collect();
            let names = if names.is_empty() { "no other names".to_owned() } else { names.join(", ") };
            let there_is = format!("the unit has r0 to r15, t0 to t15, p0 to p15, and {names}");
            CommandError::Change { name: name.to_owned(), there_is }
        })
    }

    fn address(&self, place: &str) -> Result<usize, CommandError> {
        let firmware = self.machine.firmware(self.unit);
        let words = firmware.words().len();
        let number = parse_number(place).and_then(|address| usize::try_from(address).ok());
        let found = firmware.address(place).or(number).filter(|address| *address < words);
        found.ok_or_else(|| {
            let labels: Vec<&str> = firmware.labels().iter().map(|(name, _)| name.as_str()).collect();
            let labels = if labels.is_empty() { "no labels".to_owned() } else { labels.join(", ") };
            let there_is = format!("it has words 0 to {}, and {labels}", words - 1);
            CommandError::Place { place: place.to_owned(), there_is }
        })
    }

    fn add(&mut self, point: Point) -> Result<String, CommandError> {
        let stop = match point {
            Point::Word(place) => Stop::Word(self.unit, self.address(&place)?),
            Point::Change(name) => Stop::Change(self.unit, self.register(&name)?),
            Point::Event(event) => Stop::Event(event),
        };
        let number = self.next_stop;
        self.next_stop += 1;
        self.stops.push((number, stop));
        Ok(format!("breakpoint {number}: {}\n", self.stop_text(stop)))
    }

    fn delete(&mut self, number: Option<usize>) -> Result<String, CommandError> {
        let before = self.stops.len();
        self.stops.retain(|(own, _)| number.is_some_and(|number| number != *own));
        match number {
            Some(number) if self.stops.len() == before => Err(CommandError::Breakpoint(number)),
            _ => Ok(self.stops_text()),
        }
    }

    fn stop_text(&self, stop: Stop) -> String {
        let of = |party| match party {
            _ if !self.machine.has_queue() => "",
            Party::Matcher => " of unit match",
            Party::Queue => " of unit queue",
        };
        match stop {
            Stop::Word(party, address) => {
                format!("word {}{}", show::at(self.machine.firmware(party), address), of(party))
            }
            Stop::Event(event) => format!("on {}", event.name()),
            Stop::Change(party, register) => {
                format!("on a change of {}{}", show::named(self.machine.firmware(party), register), of(party))
            }
        }
    }

    fn stops_text(&self) -> String {
        if self.stops.is_empty() {
            return "no breakpoints\n".to_owned();
        }
        self.stops
            .iter()
            .map(|(number, stop)| format!("breakpoint {number}: {}\n", self.stop_text(*stop)))
            .collect()
    }

    fn restart(&mut self) -> Result<String, DebugError> {
        self.machine = Machine::new(&self.setup)?;
        // The old waveform is dropped before the new one begins.
        self.trace = None;
        let trace = self.path.as_deref().map(|path| Trace::create(path, &self.setup.files));
        self.trace = trace.transpose()?;
        self.before = self.machine.snapshot();
        self.history.clear();
        Ok(show::next(&self.machine, self.unit))
    }

    /// Executes `count` cycles, unless something stops the machine.
    fn advance(&mut self, count: u64, shows: bool) -> Result<String, DebugError> {
        self.before = self.machine.snapshot();
        let (mut text, unit) = (String::new(), self.unit);
        let why = self.cycles(count, |machine, cycle| {
            if shows {
                text += &show::cycle(machine, unit, cycle, &machine.snapshot());
            }
        })?;
        let cycle = self.machine.cycles();
        match why {
            StopReason::Count => {}
            StopReason::Breakpoint(number) => text += &format!("breakpoint {number}, before cycle {cycle}\n"),
            StopReason::Done => {
                text += &format!(
                    "every header has its outcome, after {cycle} cycles; `results` shows them, `restart` restarts \
                     the program\n"
                );
                return Ok(text);
            }
            StopReason::Stopped(stopped) => text += &format!("the program was stopped: {stopped}\n"),
        }
        Ok(text + &show::next(&self.machine, self.unit))
    }

    fn cycles(
        &mut self,
        count: u64,
        mut each: impl FnMut(&Machine, &Cycle),
    ) -> Result<StopReason, DebugError> {
        for _ in 0..count {
            if self.machine.is_done() {
                return Ok(StopReason::Done);
            }
            let cycle = match tick(&mut self.machine, self.trace.as_mut()) {
                Ok(cycle) => cycle,
                Err(TickError::Stopped(stopped)) => return Ok(StopReason::Stopped(stopped)),
                Err(TickError::Trace(error)) => return Err(error.into()),
            };
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            let both = [Party::Matcher, Party::Queue].map(|party| cycle.of(party).stages);
            self.history.push_back((cycle.number, both));
            each(&self.machine, &cycle);
            if let Some((number, _)) = self.stops.iter().find(|(_, stop)| self.is_at(*stop, &cycle)) {
                return Ok(StopReason::Breakpoint(*number));
            }
        }
        Ok(StopReason::Count)
    }

    fn is_at(&self, stop: Stop, cycle: &Cycle) -> bool {
        match stop {
            // A waiting word has already stopped the machine when it was reached.
            Stop::Word(party, address) => self.machine.pc(party) == address && !cycle.of(party).stages.waits,
            Stop::Change(party, register) => {
                self.machine.snapshot().of(party).get(register) != cycle.before.of(party).get(register)
            }
            Stop::Event(Event::Header) => cycle.began.is_some(),
            Stop::Event(Event::Verdict) => cycle.verdict().is_some(),
            Stop::Event(Event::Outcome) => cycle.ended.is_some(),
        }
    }
}

fn complaint(error: &CommandError) -> String {
    format!("error: {error}\n")
}

fn help() -> String {
    let line = |(_, usage, does): &(&str, &str, &str)| format!("{usage}\n        {does}\n");
    COMMANDS.iter().map(line).collect::<String>()
        + "A command may be abbreviated to a prefix that no other command has. Numbers are decimal or 0x....\n"
}
