//! Waveforms, parsed back: each cycle has the machine's state and activity.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::Path;

use crate::support::{folder, on_files, text};
use niclab_matching::firmware::Firmware;
use niclab_matching::input::{read_headers, read_list};
use niclab_matching::machine::{Machine, Setup};
use niclab_model::models::matching::list_manager::Use;
use vcd::{Command, IdCode, ScopeItem, TimescaleUnit, Value};

/// The signals by their paths, at each time at which one of them changes.
struct Wave {
    at: BTreeMap<u64, BTreeMap<String, String>>,
}

impl Wave {
    fn read(path: &Path) -> Self {
        let mut parser = vcd::Parser::new(BufReader::new(fs::File::open(path).unwrap()));
        let header = parser.parse_header().unwrap();
        assert_eq!(header.timescale, Some((1, TimescaleUnit::NS)));
        let mut names = BTreeMap::new();
        collect(&header.items, "", &mut names);
        let (mut at, mut now, mut levels) = (BTreeMap::new(), 0, BTreeMap::new());
        for command in parser {
            let (id, level) = match command.unwrap() {
                Command::Timestamp(time) => {
                    assert!(time > now || time == 0, "times increase");
                    at.insert(now, levels.clone());
                    now = time;
                    continue;
                }
                Command::ChangeScalar(id, value) => (id, value.to_string()),
                Command::ChangeVector(id, value) => (id, number(value.iter())),
                Command::ChangeString(id, value) => (id, value),
                Command::Begin(_) | Command::End(_) => continue,
                other => panic!("{other:?}"),
            };
            levels.insert(names[&id].clone(), level);
        }
        at.insert(now, levels);
        Self { at }
    }

    /// A signal in a cycle; a cycle lasts two nanoseconds.
    fn get(&self, cycle: u64, signal: &str) -> &str {
        let path = format!("niclab.{signal}");
        self.at
            .get(&(2 * cycle))
            .and_then(|levels| levels.get(&path))
            .unwrap_or_else(|| panic!("{path} at {cycle}"))
    }
}

fn collect(items: &[ScopeItem], scope: &str, names: &mut BTreeMap<IdCode, String>) {
    for item in items {
        match item {
            ScopeItem::Scope(inner) => {
                collect(&inner.items, &format!("{scope}{}.", inner.identifier), names);
            }
            ScopeItem::Var(var) => {
                assert!(names.insert(var.code, format!("{scope}{}", var.reference)).is_none())
            }
            _ => {}
        }
    }
}

/// The decimal form of a number of up to 64 bits; longer ones stay binary.
fn number(bits: impl Iterator<Item = Value>) -> String {
    let bits: String = bits.map(|bit| bit.to_string()).collect();
    if bits.len() > 64 {
        return bits;
    }
    u64::from_str_radix(&bits, 2).map_or(bits, |value| value.to_string())
}

fn or_none<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "z".to_owned(), |value| value.to_string())
}

#[test]
fn the_waveform_shows_the_machines_state_and_activity() {
    let folder = folder();
    let folder = folder.path();
    let output = on_files(folder, "run", &["--trace", "run.vcd", "--json"], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        output.stdout,
        on_files(folder, "run", &["--json"], "").stdout,
        "the waveform changes no result"
    );
    let wave = Wave::read(&folder.join("run.vcd"));

    let setup = Setup {
        firmware: Firmware::load(None).unwrap(),
        items: read_list(&folder.join("list.json")).unwrap(),
        headers: read_headers(&folder.join("headers.json")).unwrap(),
        uses: Use::Consume,
        watchdog: 10_000,
        queue: None,
        files: Vec::new(),
    };
    let mut machine = Machine::new(&setup).unwrap();
    while !machine.is_done() {
        let cycle = machine.tick().unwrap();
        let at = |signal: &str| wave.get(cycle.number, signal).to_owned();
        let before = &cycle.before;
        for number in 1..16 {
            assert_eq!(at(&format!("unit.r{number}")), before.unit.alu[number].to_string());
            assert_eq!(at(&format!("unit.t{number}")), before.unit.ternary[number].to_string());
            assert_eq!(at(&format!("unit.p{number}")), u8::from(before.unit.predicates[number]).to_string());
        }
        assert_eq!(at("unit.pc"), before.unit.pc.to_string());
        assert_eq!(at("unit.stall"), u8::from(cycle.unit.stages.waits).to_string());
        assert_eq!(at("unit.stage_read"), or_none(cycle.unit.stages.read));
        assert_eq!(at("unit.stage_execute"), or_none(cycle.unit.stages.execute));
        assert_eq!(at("unit.stage_write"), or_none(cycle.unit.stages.write));
        assert_eq!(at("unit.took"), or_none(cycle.unit.took));
        assert_eq!(at("unit.appended"), or_none(cycle.unit.appended));
        assert_eq!(at("list_manager.header"), or_none(before.header));
        assert_eq!(at("list_manager.item"), or_none(before.judged));
        assert_eq!(at("list_manager.input_fifo_fill"), before.unit.input.len().to_string());
        assert_eq!(at("list_manager.output_fifo_fill"), before.unit.output.len().to_string());
        assert_eq!(at("list_manager.sends"), or_none(cycle.unit.fed));
        assert_eq!(at("list_manager.hears"), or_none(cycle.unit.heard));
        assert_eq!(at("clock"), "1");
        assert_eq!(wave.at[&(2 * cycle.number + 1)]["niclab.clock"], "0");
    }
    assert_eq!(*wave.at.keys().last().unwrap(), 2 * machine.cycles());
}

#[test]
fn known_cycles_have_known_values() {
    let folder = folder();
    on_files(folder.path(), "run", &["--trace", "run.vcd"], "");
    let wave = Wave::read(&folder.path().join("run.vcd"));
    // The fifth word of the program takes the header's first word, and the sixth one reads it from t1.
    assert_eq!(
        (wave.get(4, "unit.place"), wave.get(4, "unit.took"), wave.get(4, "unit.t1")),
        ("header", "5", "0")
    );
    assert_eq!((wave.get(5, "unit.place"), wave.get(5, "unit.t1")), ("header+1", "5"));
    let stages = ["read", "execute", "write"].map(|stage| wave.get(5, &format!("unit.stage_{stage}")));
    assert_eq!(stages, ["5", "4", "3"]);
    assert_eq!(wave.get(0, "unit.stage_execute"), "z");
    // The list manager sends the first item's first word after the header's eight words, while the unit takes the
    // fifth.
    assert_eq!((wave.get(8, "list_manager.sends"), wave.get(8, "unit.took")), ("6", "0"));
    // The last of the shared words sends 'failed' for the first item; the list manager receives it three cycles later.
    assert_eq!((wave.get(18, "unit.place"), wave.get(18, "unit.appended")), ("item+5", "0"));
    assert_eq!((wave.get(20, "list_manager.verdict"), wave.get(21, "list_manager.verdict")), ("-", "failed"));
    assert_eq!((wave.get(21, "list_manager.item"), wave.get(22, "list_manager.item")), ("0", "1"));
    assert_eq!(wave.get(0, "list_manager.header_begins"), "1");
    assert_eq!((wave.get(55, "list_manager.header"), wave.get(57, "list_manager.header")), ("z", "1"));
    // The 164 bits of the issued word, which takes the header's first word.
    assert_eq!(wave.get(4, "unit.word").len(), 164);
    assert!(wave.get(4, "unit.word").ends_with('1'), "its lowest bit says that it takes a word");
}

#[test]
fn a_waveform_appears_once_it_is_complete() {
    let folder = folder();
    let folder = folder.path();
    let vcd = folder.join("debug.vcd");
    // After a restart the waveform has only the second run.
    let output = on_files(folder, "debug", &["--trace", "debug.vcd"], "step 20\nrestart\nstep 3\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(*Wave::read(&vcd).at.keys().last().unwrap(), 6);

    // The waveform of a stopped program has the cycles before the stop.
    fs::write(folder.join("end.nma"), "r1 = add r0, 7\nnop\n").unwrap();
    let output = on_files(folder, "run", &["--program", "end.nma", "--trace", "end.vcd"], "");
    assert_eq!(output.status.code(), Some(1));
    let wave = Wave::read(&folder.join("end.vcd"));
    assert_eq!((wave.get(0, "unit.r1"), wave.get(2, "unit.r1"), wave.get(2, "unit.word")), ("0", "7", "z"));
    let names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{names:?}");
}
