//! The table of signals: name, width, and value in a cycle.

use std::io::{self, Write};

use niclab_isa::{PREDICATES, REGISTERS, WORD_BITS, Word};
use niclab_model::models::matching::list_manager::inspect::Phase;
use vcd::{IdCode, SimulationCommand, TimescaleUnit, Value, VarType, Writer};

use super::CYCLE_NS;
use crate::machine::{Cycle, Snapshot};

/// Bits of a word's address.
const ADDRESS_BITS: u32 = 13;
/// Bits of a counter.
const COUNT_BITS: u32 = 32;

/// The source of the signals in a cycle.
pub struct View<'a> {
    /// The machine before the cycle.
    pub before: &'a Snapshot,
    /// The cycle; None after the last one.
    pub cycle: Option<&'a Cycle>,
    /// The next word and its location.
    pub word: Option<(Word, String)>,
}

/// The value of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Level {
    /// A number, lowest bits first.
    Bits([u64; 3]),
    /// A word without spaces.
    Text(String),
    /// No value: the wire floats.
    None,
}

impl From<u64> for Level {
    fn from(value: u64) -> Self {
        Self::Bits([value, 0, 0])
    }
}

impl From<bool> for Level {
    fn from(value: bool) -> Self {
        u64::from(value).into()
    }
}

impl From<Option<u64>> for Level {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Self::None, Self::from)
    }
}

impl From<Option<usize>> for Level {
    fn from(value: Option<usize>) -> Self {
        value.map(|value| value as u64).into()
    }
}

type Read = Box<dyn Fn(&View<'_>) -> Level>;

struct Signal {
    name: String,
    width: u32,
    read: Read,
}

impl Signal {
    fn new<L: Into<Level>>(
        name: impl Into<String>,
        width: u32,
        read: impl Fn(&View<'_>) -> L + 'static,
    ) -> Self {
        Self { name: name.into(), width, read: Box::new(move |view| read(view).into()) }
    }

    /// A signal of a cycle, without a value after the last one.
    fn moved<T: Into<Level>>(name: &str, width: u32, read: impl Fn(&Cycle) -> T + 'static) -> Self {
        Self::new(name, width, move |view| view.cycle.map_or(Level::None, |cycle| read(cycle).into()))
    }

    /// A text signal, marked by the width 0.
    fn text(name: &str, read: impl Fn(&View<'_>) -> Option<String> + 'static) -> Self {
        Self::new(name, 0, move |view| Level::Text(read(view).unwrap_or_else(|| "-".to_owned())))
    }

    fn is_text(&self) -> bool {
        self.width == 0
    }
}

fn unit() -> Vec<Signal> {
    let mut signals = vec![
        Signal::new("pc", ADDRESS_BITS, |view| view.before.unit.pc as u64),
        Signal::text("place", |view| view.word.as_ref().map(|(_, place)| place.clone())),
        Signal::new("word", WORD_BITS, |view| {
            view.word.as_ref().map_or(Level::None, |(word, _)| Level::Bits(word.encode()))
        }),
        Signal::moved("stall", 1, |cycle| cycle.unit.stages.waits),
        Signal::moved("stage_read", ADDRESS_BITS, |cycle| cycle.unit.stages.read),
        Signal::moved("stage_execute", ADDRESS_BITS, |cycle| cycle.unit.stages.execute),
        Signal::moved("stage_write", ADDRESS_BITS, |cycle| cycle.unit.stages.write),
        Signal::moved("took", 64, |cycle| cycle.unit.took),
        Signal::moved("appended", 64, |cycle| cycle.unit.appended),
        Signal::new("branch_target", ADDRESS_BITS, |view| view.before.unit.taken.map(|(target, _)| target)),
        Signal::new("branch_words_left", 2, |view| view.before.unit.taken.map(|(_, left)| left)),
    ];
    for number in 1..REGISTERS {
        signals.push(Signal::new(format!("r{number}"), 64, move |view| view.before.unit.alu[number]));
    }
    for number in 1..REGISTERS {
        signals.push(Signal::new(format!("t{number}"), 64, move |view| view.before.unit.ternary[number]));
    }
    for number in 1..PREDICATES {
        signals.push(Signal::new(format!("p{number}"), 1, move |view| view.before.unit.predicates[number]));
    }
    signals
}

fn list_manager() -> Vec<Signal> {
    vec![
        Signal::new("header", COUNT_BITS, |view| view.before.header),
        Signal::new("item", COUNT_BITS, |view| view.before.judged),
        Signal::moved("header_begins", 1, |cycle| cycle.began.is_some()),
        Signal::moved("header_ends", 1, |cycle| cycle.ended.is_some()),
        Signal::text("verdict", |view| {
            view.cycle.and_then(Cycle::verdict).map(|verdict| verdict.to_string())
        }),
        Signal::text("awaits", |view| {
            view.before.manager.matching.map(|matching| phase_name(matching.phase).to_owned())
        }),
        Signal::new("words_sent", COUNT_BITS, |view| {
            view.before.manager.matching.map(|matching| matching.sent)
        }),
        Signal::moved("sends", 64, |cycle| cycle.unit.fed),
        Signal::moved("hears", 64, |cycle| cycle.unit.heard),
        Signal::new("input_fifo_fill", COUNT_BITS, |view| view.before.unit.input.len() as u64),
        Signal::new("input_fifo_front", 64, |view| view.before.unit.input.first().copied()),
        Signal::new("output_fifo_fill", COUNT_BITS, |view| view.before.unit.output.len() as u64),
        Signal::new("headers_waiting", COUNT_BITS, |view| view.before.manager.headers_waiting as u64),
    ]
}

/// The answer that the list manager waits for.
pub const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Verdict => "verdict",
        Phase::Offset => "offset",
        Phase::Length => "length",
        Phase::Done => "done",
    }
}

/// A waveform.
pub struct Wave<W: Write> {
    out: Writer<W>,
    clock: IdCode,
    signals: Vec<(IdCode, Signal, Option<Level>)>,
    /// Start time of the next cycle.
    time_ns: u64,
}

impl<W: Write> Wave<W> {
    /// Begins the waveform with the names and widths of the signals.
    pub fn begin(out: W) -> io::Result<Self> {
        let mut out = Writer::new(out);
        out.version(concat!("niclab ", env!("CARGO_PKG_VERSION")))?;
        out.comment(&format!("model time: a cycle is {CYCLE_NS} ns and begins where the clock rises"))?;
        out.timescale(1, TimescaleUnit::NS)?;
        out.add_module("niclab")?;
        let clock = out.add_wire(1, "clock")?;
        let mut signals = Vec::new();
        for (module, list) in [("unit", unit()), ("list_manager", list_manager())] {
            out.add_module(module)?;
            for signal in list {
                let kind = if signal.is_text() { VarType::String } else { VarType::Wire };
                let id = out.add_var(kind, signal.width.max(1), &signal.name, None)?;
                signals.push((id, signal, None));
            }
            out.upscope()?;
        }
        out.upscope()?;
        out.enddefinitions()?;
        Ok(Self { out, clock, signals, time_ns: 0 })
    }

    /// Adds a cycle.
    pub fn cycle(&mut self, view: &View<'_>) -> io::Result<()> {
        self.rise(view)?;
        self.out.timestamp(self.time_ns + CYCLE_NS / 2)?;
        self.out.change_scalar(self.clock, Value::V0)?;
        self.time_ns += CYCLE_NS;
        Ok(())
    }

    /// Adds the machine's state after the last cycle.
    pub fn end(&mut self, view: &View<'_>) -> io::Result<()> {
        self.rise(view)?;
        self.out.flush()
    }

    fn rise(&mut self, view: &View<'_>) -> io::Result<()> {
        let Self { out, clock, signals, time_ns } = self;
        out.timestamp(*time_ns)?;
        let is_first = *time_ns == 0;
        if is_first {
            out.begin(SimulationCommand::Dumpvars)?;
        }
        out.change_scalar(*clock, Value::V1)?;
        for (id, signal, last) in signals {
            let level = (signal.read)(view);
            if last.as_ref() != Some(&level) {
                change(out, *id, signal.width, &level)?;
                *last = Some(level);
            }
        }
        if is_first {
            out.end()?;
        }
        Ok(())
    }
}

fn change<W: Write>(out: &mut Writer<W>, id: IdCode, width: u32, level: &Level) -> io::Result<()> {
    match level {
        Level::Text(text) => out.change_string(id, text),
        Level::None if width == 1 => out.change_scalar(id, Value::Z),
        Level::None => out.change_vector(id, [Value::Z]),
        Level::Bits([low, ..]) if width == 1 => out.change_scalar(id, *low & 1 == 1),
        Level::Bits(parts) => {
            let bit = |place: u32| Value::from(parts[place as usize / 64] >> (place % 64) & 1 == 1);
            out.change_vector(id, (0..width).rev().map(bit))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_names_every_signal() {
        let manual = include_str!("../../../../docs/use/match/RUNNING.md");
        let (_, waveforms) = manual.split_once("### Waveforms").unwrap();
        for signal in unit().into_iter().chain(list_manager()) {
            // Registers and predicates are named by their first and last.
            let is_numbered =
                signal.name.starts_with(['r', 't', 'p']) && signal.name.len() <= 3 && signal.name != "pc";
            let name = if is_numbered { format!("{}1` to `", &signal.name[..1]) } else { signal.name };
            assert!(
                waveforms.contains(&format!("`{name}`")) || is_numbered && waveforms.contains(&name),
                "{name}"
            );
        }
    }
}
