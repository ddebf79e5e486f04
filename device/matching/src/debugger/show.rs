//! The machine as text.

use std::fmt::Write as _;

use niclab_isa::{PREDICATES, REGISTERS};
use niclab_model::matching::item::Header;

use crate::firmware::Firmware;
use crate::input::item_text;
use crate::machine::{Cycle, Machine, Snapshot, Stages};
use crate::trace::phase_name;

/// Words before and behind one that is looked at.
const AROUND: usize = 4;

/// What a cycle brought, in a few lines.
pub fn cycle(firmware: &Firmware, cycle: &Cycle, after: &Snapshot) -> String {
    let pc = cycle.before.pc;
    let does = if cycle.stages.waits { "waits at" } else { "issues" };
    let mut text = format!("cycle {:<6} {does} {}: {}\n", cycle.number, at(firmware, pc), firmware.line(pc));
    let mut line = |what: String| text += &format!("             {what}\n");
    for (what, word) in [
        ("unit takes", cycle.took),
        ("unit sends", cycle.appended),
        ("list manager sends", cycle.fed),
        ("list manager hears", cycle.heard),
    ] {
        word.into_iter().for_each(|word| line(format!("{what} {word:#x}")));
    }
    for (file, before, after) in
        [('r', &cycle.before.alu, &after.alu), ('t', &cycle.before.ternary, &after.ternary)]
    {
        for number in (0..REGISTERS).filter(|number| before[*number] != after[*number]) {
            line(format!("{file}{number}: {:#x} -> {:#x}", before[number], after[number]));
        }
    }
    let (before, after) = (&cycle.before.predicates, &after.predicates);
    for number in (0..PREDICATES).filter(|number| before[*number] != after[*number]) {
        line(format!("p{number}: {} -> {}", u8::from(before[number]), u8::from(after[number])));
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

/// The word that comes next.
pub fn next(machine: &Machine) -> String {
    let (firmware, pc) = (machine.firmware(), machine.pc());
    if machine.word().is_none() {
        return format!("next: nothing; the program's last word is {}\n", firmware.words().len() - 1);
    }
    let branch = match machine.snapshot().taken {
        Some((target, 1)) => format!(", then branches to {}", firmware.place(target)),
        Some((target, left)) => format!(", branches to {} in {left} words", firmware.place(target)),
        None => String::new(),
    };
    let cycle = machine.cycles();
    format!("next: cycle {cycle}, word {}{branch}: {}\n", at(firmware, pc), firmware.line(pc))
}

/// A word's address, and its place where it has one by a label.
pub fn at(firmware: &Firmware, address: usize) -> String {
    let (number, place) = (address.to_string(), firmware.place(address));
    if place == number { number } else { format!("{number} {place}") }
}

/// Both register files.
pub fn registers(now: &Snapshot, before: &Snapshot) -> String {
    let mark = |is_changed: bool| if is_changed { '*' } else { ' ' };
    let row = |number: usize| {
        let (r, t) = (now.alu[number], now.ternary[number]);
        let (r_mark, t_mark) = (mark(r != before.alu[number]), mark(t != before.ternary[number]));
        let (r_name, t_name) = (format!("r{number}"), format!("t{number}"));
        format!("{r_name:>4} {r:#018x} {r_mark}   {t_name:>4} {t:#018x} {t_mark}").trim_end().to_owned()
            + "\n"
    };
    (0..REGISTERS).map(row).collect()
}

/// The predicates.
pub fn predicates(now: &Snapshot, before: &Snapshot) -> String {
    let one = |number: usize| {
        let value = now.predicates[number];
        let mark = if value == before.predicates[number] { "" } else { "*" };
        format!("p{number}={}{mark}", u8::from(value))
    };
    let row = |numbers: std::ops::Range<usize>| numbers.map(one).collect::<Vec<_>>().join(" ") + "\n";
    row(0..PREDICATES / 2) + &row(PREDICATES / 2..PREDICATES)
}

/// Both FIFOs, what leaves next first.
pub fn fifos(machine: &Machine) -> String {
    let state = machine.snapshot().manager;
    let mut text = format!("input, {} of {}:\n", state.input.len(), machine.fifo_words());
    state.input.iter().for_each(|word| text += &format!("    {word:#x}\n"));
    text += &format!("output, {}:\n", state.output.len());
    for word in &state.output {
        text += &format!("    {:#x}, heard in cycle {}\n", word.word, word.from_cycle);
    }
    text
}

/// Which word was in which stage.
pub fn pipeline<'a>(firmware: &Firmware, cycles: impl Iterator<Item = &'a (u64, Stages)>) -> String {
    let mut text = format!("{:>8}  {:<20} {:<20} {:<20}", "cycle", "read", "execute", "write");
    let place = |address: Option<usize>, waits: bool| match address {
        Some(address) if waits => format!("{} (waits)", firmware.place(address)),
        Some(address) => firmware.place(address),
        None => "-".to_owned(),
    };
    for (number, Stages { read, waits, execute, write }) in cycles {
        let (read, execute, write) = (place(*read, *waits), place(*execute, false), place(*write, false));
        let _ = write!(text, "\n{number:>8}  {read:<20} {execute:<20} {write}");
    }
    text + "\n"
}

/// What the list manager does.
pub fn manager(machine: &Machine, headers: &[Header]) -> String {
    let Snapshot { manager, header, judged, .. } = machine.snapshot();
    let waiting = manager.headers_waiting;
    let mut text = format!("cycle {}: {waiting} of {} headers wait\n", machine.cycles(), machine.headers());
    let (Some(matching), Some(place)) = (manager.matching, header) else {
        return text + &format!("no header is being matched; none begins before cycle {}\n", manager.free_at);
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
    text + &format!(
        "\n{} words sent, {} items judged; awaits {} of {on}\n",
        matching.sent,
        matching.judged,
        phase_name(matching.phase)
    )
}

/// The list as it is.
pub fn list(machine: &Machine) -> String {
    let judged = machine.snapshot().judged;
    let mut text = String::new();
    for (place, item) in machine.list() {
        let mark = if Some(place) == judged { '>' } else { ' ' };
        text += &format!("{mark}{place:>6}  {}\n", item_text(item));
    }
    if text.is_empty() { "the list is empty\n".to_owned() } else { text }
}

/// The program, or what is around a word.
pub fn program(machine: &Machine, around: Option<usize>) -> String {
    let firmware = machine.firmware();
    let first = around.map_or(0, |around| around.saturating_sub(AROUND));
    let last = around.map_or(usize::MAX, |around| around.saturating_add(AROUND));
    let mut text = String::new();
    for address in (0..firmware.words().len()).filter(|address| (first..=last).contains(address)) {
        for (name, _) in firmware.labels().iter().filter(|(_, labelled)| *labelled == address) {
            text += &format!("{name}:\n");
        }
        let mark = if address == machine.pc() { '>' } else { ' ' };
        text += &format!("{mark}{address:>6}  {}\n", firmware.line(address));
    }
    text
}
