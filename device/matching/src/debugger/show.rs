//! The machine as text.

use std::fmt::Write as _;

use niclab_asm::Register;
use niclab_isa::{PREDICATES, REGISTERS};
use niclab_model::models::matching::item::Header;

use crate::firmware::Firmware;
use crate::input::item_text;
use crate::machine::{Cycle, Machine, Party, Snapshot, Stages, UnitView};
use crate::trace::phase_name;

/// Words shown before and after a word.
const AROUND: usize = 4;

/// A cycle in a few lines: the activity of one unit, and the headers that began or ended.
pub fn cycle(machine: &Machine, party: Party, cycle: &Cycle, after: &Snapshot) -> String {
    let (firmware, did) = (machine.firmware(party), cycle.of(party));
    let (before, after) = (cycle.before.of(party), after.of(party));
    let does = if did.stages.waits { "waits at" } else { "issues" };
    let place = at(firmware, before.pc);
    let mut text = format!("cycle {:<6} {does} {place}: {}\n", cycle.number, firmware.line(before.pc));
    let mut line = |what: String| text += &format!("             {what}\n");
    let manager = if party == Party::Queue { "hardware" } else { "list manager" };
    for (what, word) in [
        ("unit takes".to_owned(), did.took),
        ("unit sends".to_owned(), did.appended),
        (format!("{manager} sends"), did.fed),
        (format!("{manager} hears"), did.heard),
    ] {
        word.into_iter().for_each(|word| line(format!("{what} {word:#x}")));
    }
    for register in all_registers().filter(|register| before.get(*register) != after.get(*register)) {
        let (name, is_bit) = (named(firmware, register), matches!(register, Register::Predicate(_)));
        let (from, to) = (before.get(register), after.get(register));
        line(if is_bit {
            format!("{name}: {from} -> {to}")
        } else {
            format!("{name}: {from:#x} -> {to:#x}")
        });
    }
    let verdict = cycle.verdict().map(|verdict| match cycle.before.judged {
        Some(item) => format!("item {item} {verdict}"),
        None => format!("end of the list: {verdict}"),
    });
    verdict.into_iter().for_each(&mut line);
    cycle.ended.into_iter().for_each(|header| line(format!("header {header} ends")));
    cycle.began.into_iter().for_each(|header| line(format!("header {header} begins")));
    text
}

fn all_registers() -> impl Iterator<Item = Register> {
    let files = (0..REGISTERS).map(Register::Alu).chain((0..REGISTERS).map(Register::Ternary));
    files.chain((0..PREDICATES).map(Register::Predicate))
}

/// A register or a predicate with its names in the source.
pub fn named(firmware: &Firmware, register: Register) -> String {
    match firmware.names_of(register) {
        none if none.is_empty() => register.to_string(),
        names => format!("{register} ({names})"),
    }
}

/// The next word.
pub fn next(machine: &Machine, party: Party) -> String {
    let (firmware, pc) = (machine.firmware(party), machine.pc(party));
    let cycle = machine.cycles();
    let of = match (machine.has_queue(), party) {
        (false, _) => "",
        (true, Party::Matcher) => " of unit match",
        (true, Party::Queue) => " of unit queue",
    };
    if machine.word(party).is_none() {
        return format!("next: nothing{of}; the program's last word is {}\n", firmware.words().len() - 1);
    }
    let branch = match machine.snapshot().of(party).taken {
        Some((target, 1)) => format!(", then branches to {}", firmware.place(target)),
        Some((target, left)) => format!(", branches to {} in {left} words", firmware.place(target)),
        None => String::new(),
    };
    format!("next: cycle {cycle}, word {}{of}{branch}: {}\n", at(firmware, pc), firmware.line(pc))
}

/// A word's address, and its location relative to a label, if any.
pub fn at(firmware: &Firmware, address: usize) -> String {
    let (number, place) = (address.to_string(), firmware.place(address));
    if place == number { number } else { format!("{number} {place}") }
}

/// Both register files.
pub fn registers(firmware: &Firmware, now: &UnitView, before: &UnitView) -> String {
    let cell = |register: Register| {
        let mark = if now.get(register) == before.get(register) { ' ' } else { '*' };
        format!(
            "{:>4} {:#018x} {mark} {}",
            register.to_string(),
            now.get(register),
            firmware.names_of(register)
        )
    };
    let left: Vec<String> = (0..REGISTERS).map(|number| cell(Register::Alu(number))).collect();
    let width = left.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let rows = left.iter().enumerate().map(|(number, left)| {
        format!("{left:<width$}   {}", cell(Register::Ternary(number))).trim_end().to_owned() + "\n"
    });
    rows.collect()
}

/// The predicates.
pub fn predicates(firmware: &Firmware, now: &UnitView, before: &UnitView) -> String {
    let row = |number: usize| {
        let register = Register::Predicate(number);
        let mark = if now.get(register) == before.get(register) { ' ' } else { '*' };
        let row = format!(
            "{:>4} {} {mark} {}",
            register.to_string(),
            now.get(register),
            firmware.names_of(register)
        );
        row.trim_end().to_owned() + "\n"
    };
    (0..PREDICATES).map(row).collect()
}

/// Both FIFOs of a unit, next word first.
pub fn fifos(machine: &Machine, party: Party) -> String {
    let snapshot = machine.snapshot();
    let unit = snapshot.of(party);
    let mut text = format!("input, {} of {}:\n", unit.input.len(), machine.fifo_words(party));
    unit.input.iter().for_each(|word| text += &format!("    {word:#x}\n"));
    text += &format!("output, {}:\n", unit.output.len());
    for word in &unit.output {
        text += &format!("    {:#x}, heard in cycle {}\n", word.word, word.from_cycle);
    }
    text
}

/// The word in each stage, by cycle.
pub fn pipeline(firmware: &Firmware, cycles: impl Iterator<Item = (u64, Stages)>) -> String {
    let mut text = format!("{:>8}  {:<20} {:<20} {:<20}", "cycle", "read", "execute", "write");
    let place = |address: Option<usize>, waits: bool| match address {
        Some(address) if waits => format!("{} (waits)", firmware.place(address)),
        Some(address) => firmware.place(address),
        None => "-".to_owned(),
    };
    for (number, Stages { read, waits, execute, write }) in cycles {
        let (read, execute, write) = (place(read, waits), place(execute, false), place(write, false));
        let _ = write!(text, "\n{number:>8}  {read:<20} {execute:<20} {write}");
    }
    text + "\n"
}

/// State of the list manager, or of the hardware around a queue program.
pub fn manager(machine: &Machine, headers: &[Header]) -> String {
    let Snapshot { manager, header, judged, .. } = machine.snapshot();
    let waiting = manager.headers_waiting;
    let mut text = format!("cycle {}: {waiting} of {} headers wait\n", machine.cycles(), machine.headers());
    if let Some(program) = &manager.program {
        let is_ready = if program.is_ready { "is ready" } else { "is at a request" };
        let fetched: Vec<String> = program.fetched.iter().map(ToString::to_string).collect();
        let fetched = if fetched.is_empty() { "none".to_owned() } else { fetched.join(" ") };
        let changes = program.changes_waiting;
        text += &format!(
            "its program {is_ready}; {changes} changes wait; slots fetched and not sent: {fetched}\n"
        );
    }
    let (Some(matching), Some(place)) = (manager.matching, header) else {
        let begins = manager.free_at.map(|cycle| format!("; none begins before cycle {cycle}"));
        return text + &format!("no header is being matched{}\n", begins.unwrap_or_default());
    };
    text += &format!("header {place}, since cycle {}", matching.began);
    if let Some(header) = headers.get(place) {
        text += &format!(
            ": match {:#x} node {} process {} {:?} length {} offset {}",
            header.match_bits,
            header.node,
            header.process,
            header.operation,
            header.length,
            header.remote_offset
        );
    }
    let on = judged.map_or_else(|| "the end of the list".to_owned(), |item| format!("item {item}"));
    let sent = match manager.program {
        None => format!("{} words sent, ", matching.sent),
        Some(_) => String::new(),
    };
    text + &format!(
        "\n{sent}{} items judged; awaits {} of {on}\n",
        matching.judged,
        phase_name(matching.phase)
    )
}

/// The current list.
pub fn list(machine: &Machine) -> String {
    let judged = machine.snapshot().judged;
    let mut text = String::new();
    for (slot, place, item) in machine.list() {
        let mark = if Some(place) == judged { '>' } else { ' ' };
        let slot = slot.map_or_else(String::new, |slot| format!("slot {slot}  "));
        text += &format!("{mark}{place:>6}  {slot}{}\n", item_text(&item));
    }
    if text.is_empty() { "the list is empty\n".to_owned() } else { text }
}

/// The program, or the words around one.
pub fn program(machine: &Machine, party: Party, around: Option<usize>) -> String {
    let firmware = machine.firmware(party);
    let first = around.map_or(0, |around| around.saturating_sub(AROUND));
    let last = around.map_or(usize::MAX, |around| around.saturating_add(AROUND));
    let mut text = String::new();
    for address in (0..firmware.words().len()).filter(|address| (first..=last).contains(address)) {
        for (name, _) in firmware.labels().iter().filter(|(_, labelled)| *labelled == address) {
            text += &format!("{name}:\n");
        }
        let mark = if address == machine.pc(party) { '>' } else { ' ' };
        text += &format!("{mark}{address:>6}  {}\n", firmware.line(address));
    }
    text
}
