//! The queue that a program keeps against the one that hardware keeps: the same becomes of every header, and what it costs.

#![allow(clippy::unwrap_used)]

#[path = "support/match_cases.rs"]
mod cases;
#[path = "support/plain_rule.rs"]
mod plain_rule;

use cases::{header, item};
use niclab_isa::{Bits, Word};
use niclab_model::matching::item::{Header, INFINITE, Item, Operation, flag};
use niclab_model::matching::list_manager::{Handle, ListManager, Matched, Misbehaved, Timing, Use};
use niclab_model::matching::program;
use niclab_model::matching::queue_manager::{MatchQueue, QueueManager, command};
use niclab_model::matching::unit::Unit;
use proptest::prelude::*;

/// Cycles after which a program is taken to hang.
const WATCHDOG: u64 = 10_000;

fn matcher() -> Unit {
    Unit::new(&program::portals().unwrap()).unwrap()
}

fn hardwired(uses: Use) -> ListManager {
    ListManager::new(Timing::default(), uses, matcher())
}

fn programmed(timing: Timing, uses: Use) -> QueueManager {
    QueueManager::new(timing, uses, Unit::new(&program::queue().unwrap()).unwrap(), matcher())
}

/// What is done to a queue.
#[derive(Clone, Debug)]
enum Act {
    Append(Item),
    /// Unlinks one of the items that were appended so far, be it linked or not.
    Unlink(prop::sample::Index),
    Header(Header),
    /// Waits until all headers have their outcome.
    Run,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => item().prop_map(Act::Append),
        1 => any::<prop::sample::Index>().prop_map(Act::Unlink),
        6 => header().prop_map(Act::Header),
        1 => Just(Act::Run),
    ]
}

/// What becomes of each header: the item, its place, offset and length, and how many items were judged.
type Found = Vec<(Option<Matched>, usize)>;

/// The same with a plain list, by the rule of the paper.
fn by_the_rule(acts: &[Act]) -> Found {
    let (mut list, mut handles, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for act in acts {
        match act {
            Act::Append(item) => {
                let handle = Handle::new(handles.len() as u64);
                handles.push(handle);
                list.push((handle, *item));
            }
            Act::Unlink(index) if !handles.is_empty() => {
                let handle = *index.get(&handles);
                list.retain(|(own, _)| *own != handle);
            }
            Act::Unlink(_) | Act::Run => {}
            Act::Header(header) => {
                let taker = list.iter().enumerate().find_map(|(index, (_, item))| {
                    plain_rule::takes(item, header).map(|(offset, length)| (index, offset, length))
                });
                let Some((index, offset, length)) = taker else {
                    found.push((None, list.len()));
                    continue;
                };
                let (handle, item) = &mut list[index];
                let handle = *handle;
                let is_unlinked = plain_rule::uses_up(item, length);
                if is_unlinked {
                    list.remove(index);
                }
                found.push((Some(Matched { handle, index, offset, length, is_unlinked }), index + 1));
            }
        }
    }
    found
}

fn perform(queue: &mut impl MatchQueue, acts: &[Act]) -> Result<Found, Misbehaved> {
    let mut handles: Vec<Handle> = Vec::new();
    for act in acts {
        match act {
            Act::Append(item) => handles.push(queue.append(*item)),
            Act::Unlink(_) if handles.is_empty() => {}
            Act::Unlink(index) => queue.unlink(*index.get(&handles)),
            // A change that comes while headers wait is made at another place in each: here it is not tried.
            Act::Header(header) => {
                queue.on_header(*header);
                queue.run(WATCHDOG)?;
            }
            Act::Run => queue.run(WATCHDOG)?,
        }
    }
    queue.run(WATCHDOG)?;
    Ok(std::iter::from_fn(|| queue.poll_outcome())
        .map(|outcome| (outcome.matched, outcome.traversed))
        .collect())
}

fn timing() -> impl Strategy<Value = Timing> {
    (0..60_u64, 1..20_usize, 1..8_u64).prop_map(|(memory_latency, fifo_words, turnaround)| Timing {
        memory_latency,
        fifo_words,
        turnaround,
        ..Timing::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_program_keeps_the_queue_as_the_hardware_does(acts in prop::collection::vec(act(), 0..40), timing in timing()) {
        let expected = by_the_rule(&acts);
        prop_assert_eq!(&perform(&mut hardwired(Use::Consume), &acts).unwrap(), &expected, "hardware");
        let found = perform(&mut programmed(timing, Use::Consume), &acts).unwrap();
        prop_assert_eq!(found, expected, "program");
    }

    #[test]
    fn headers_that_wait_are_matched_one_after_the_other(
        items in prop::collection::vec(item(), 0..9),
        headers in prop::collection::vec(header(), 1..9),
        keeps: bool,
        timing in timing(),
    ) {
        let uses = if keeps { Use::Keep } else { Use::Consume };
        let found = |queue: &mut dyn MatchQueue| {
            items.iter().for_each(|item| {
                queue.append(*item);
            });
            headers.iter().for_each(|header| queue.on_header(*header));
            queue.run(WATCHDOG).unwrap();
            std::iter::from_fn(|| queue.poll_outcome().map(|outcome| outcome.matched)).collect::<Vec<_>>()
        };
        prop_assert_eq!(found(&mut programmed(timing, uses)), found(&mut hardwired(uses)));
    }
}

const ITEM: Item = Item {
    match_bits: 5,
    dont_ignore_bits: u64::MAX,
    node: 1,
    process: 1,
    flags: flag::VALID | flag::PUT,
    length: 1_000_000,
    local_offset: 0,
    max_size: 0,
    threshold: INFINITE,
    start: 0,
};
const HEADER: Header =
    Header { match_bits: 5, node: 1, process: 1, operation: Operation::Put, length: 64, remote_offset: 0 };

/// Cycles from one header to the next when the item behind `misses` others matches.
fn cycles(queue: &mut dyn MatchQueue, misses: usize) -> u64 {
    for _ in 0..misses {
        queue.append(Item { match_bits: 6, ..ITEM });
    }
    queue.append(ITEM);
    let mut time = |headers: usize| {
        let begin = queue.cycle();
        (0..headers).for_each(|_| queue.on_header(HEADER));
        queue.run(100_000).unwrap();
        queue.cycle() - begin
    };
    // What comes once is not counted: that items are appended, and the first header.
    time(1);
    let few = time(2);
    (time(10) - few) / 8
}

#[test]
fn a_programmed_queue_costs_cycles_for_a_header_and_none_for_an_item() {
    for (uses, header) in [(Use::Keep, 56), (Use::Consume, 68)] {
        for misses in [1, 2, 9, 29, 99] {
            let n = misses as u64 + 1;
            let hardwired = cycles(&mut hardwired(uses), misses);
            let programmed = cycles(&mut programmed(Timing::default(), uses), misses);
            assert_eq!((hardwired, programmed), (30 + 8 * n, header + 8 * n), "{uses:?}, {n} items");
        }
    }
}

#[test]
fn under_truncation_the_maximum_size_unlinks_nothing() {
    let item = Item { length: 100, max_size: 60, flags: ITEM.flags | flag::MAX_SIZE, ..ITEM };
    let cut = Item { flags: item.flags | flag::TRUNCATE, ..item };
    // 64 bytes leave 36: the first goes, and the second takes the rest, and then nothing of each message.
    for (item, stored) in [(item, &[(0, 64)][..]), (cut, &[(0, 64), (64, 36), (100, 0), (100, 0)][..])] {
        let acts = [vec![Act::Append(item)], vec![Act::Header(HEADER); 4]].concat();
        for (name, found) in [
            ("hardware", perform(&mut hardwired(Use::Consume), &acts).unwrap()),
            ("program", perform(&mut programmed(Timing::default(), Use::Consume), &acts).unwrap()),
        ] {
            let taken: Vec<_> = found.iter().filter_map(|(matched, _)| *matched).collect();
            let places: Vec<_> = taken.iter().map(|matched| (matched.offset, matched.length)).collect();
            assert_eq!(places, stored, "{name}");
            assert_eq!(taken.iter().any(|matched| matched.is_unlinked), stored.len() == 1, "{name}");
        }
    }
}

/// What becomes of one header when this program keeps the queue.
fn run_with(source: &[Word]) -> Result<(), Misbehaved> {
    let mut queue = QueueManager::new(Timing::default(), Use::Consume, Unit::new(source).unwrap(), matcher());
    queue.append(ITEM);
    queue.on_header(HEADER);
    queue.run(1_000)
}

#[test]
fn programs_that_misbehave_are_stopped_with_the_reason() {
    let program = program::queue().unwrap();
    assert_eq!(run_with(&program), Ok(()));
    // It never answers.
    let branch = niclab_isa::Branch { sense: true, ..Default::default() };
    let idle = [Word { branch, ..Word::default() }, Word::default(), Word::default()];
    assert_eq!(run_with(&idle), Err(Misbehaved::Watchdog { cycles: 1_000 }));
    assert_eq!(run_with(&[Word::default()]), Err(Misbehaved::RanOut { pc: 1 }));
    // Whatever word of it is left out: it is stopped or goes on, and nothing else happens.
    let mut stopped = 0;
    for address in 0..program.len() {
        let mut program = program.clone();
        program[address] = Word::default();
        stopped += usize::from(run_with(&program).is_err());
    }
    assert!(stopped > program.len() / 3, "{stopped} of {}", program.len());
}

#[test]
fn commands_that_make_no_sense_are_refused() {
    // Loads a constant, and sends it.
    let command = |word: u32| {
        let number = |immediate| niclab_isa::Alu {
            dest: Bits::truncated(1),
            join: Bits::truncated(7),
            half: niclab_isa::Half::Lower,
            immediate: Bits::truncated(immediate),
            ..Default::default()
        };
        let copy = niclab_isa::Copy { source: Bits::truncated(1), output: true, ..Default::default() };
        let wait = niclab_isa::Input { take: true, ..Default::default() };
        vec![
            Word { alu: number(word), ..Word::default() },
            Word { copy, ..Word::default() },
            Word { input: wait, ..Word::default() },
        ]
    };
    // No such command; nothing to send; no header; nothing to append; a word that scratch memory has not; nothing linked.
    for word in [13, u32::from(command::SEND), 2, 8, 7 << 16 | 6, 12] {
        assert_eq!(run_with(&command(word)), Err(Misbehaved::Command { word: word.into() }));
    }
}
