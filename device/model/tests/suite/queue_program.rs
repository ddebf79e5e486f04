//! The match queue kept by a program compared with the queue kept by hardware: the same outcome for every header, and
//! the program's cost.

use crate::cases::{header, item};
use niclab_isa::{Bits, Word};
use niclab_model::models::matching::item::{Header, INFINITE, Item, Operation, flag};
use niclab_model::models::matching::list_manager::{
    Due, Handle, ListManager, Matched, Misbehaved, Steps, Timing, Use,
};
use niclab_model::models::matching::program;
use niclab_model::models::matching::queue_manager::{Fault, MatchQueue, Party, QueueManager, command};
use niclab_model::models::matching::unit::Unit;
use proptest::prelude::*;

/// Cycles after which the watchdog stops a program.
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

/// An action on a queue.
#[derive(Clone, Debug)]
enum Act {
    Append(Item),
    /// Unlinks one of the items appended so far, linked or not.
    Unlink(prop::sample::Index),
    Header(Header),
    /// Runs until all headers have their outcome.
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

/// Outcome of each header: the matched item with index, offset and length, and the number of items compared.
type Found = Vec<(Option<Matched>, usize)>;

/// The expected outcomes, from a plain list and the paper's rule.
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
                    crate::plain_rule::takes(item, header).map(|(offset, length)| (index, offset, length))
                });
                let Some((index, offset, length)) = taker else {
                    found.push((None, list.len()));
                    continue;
                };
                let (handle, item) = &mut list[index];
                let handle = *handle;
                let is_unlinked = crate::plain_rule::uses_up(item, length);
                if is_unlinked {
                    list.remove(index);
                }
                found.push((Some(Matched { handle, index, offset, length, is_unlinked }), index + 1));
            }
        }
    }
    found
}

fn perform(queue: &mut impl MatchQueue, acts: &[Act]) -> Result<Found, Fault> {
    let mut handles: Vec<Handle> = Vec::new();
    for act in acts {
        match act {
            Act::Append(item) => handles.push(queue.append(*item)),
            Act::Unlink(_) if handles.is_empty() => {}
            Act::Unlink(index) => queue.unlink(*index.get(&handles)),
            // The two queues apply a change between waiting headers at different points. So this test makes changes
            // only when no header waits.
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
    (0..60_u64, 1..20_usize, 1..8_u64).prop_map(|(memory_latency, fifo_words, pull)| Timing {
        memory_latency,
        fifo_words,
        steps: Steps { pull, ..Steps::DERIVED },
        ..Timing::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_programmed_queue_gives_the_same_outcomes_as_hardware(
        acts in prop::collection::vec(act(), 0..40),
        timing in timing(),
    ) {
        let expected = by_the_rule(&acts);
        prop_assert_eq!(&perform(&mut hardwired(Use::Consume), &acts).unwrap(), &expected, "hardware");
        let found = perform(&mut programmed(timing, Use::Consume), &acts).unwrap();
        prop_assert_eq!(found, expected, "program");
    }

    #[test]
    fn waiting_headers_are_matched_in_order(
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

/// Cycles of a queue that a program keeps.
struct Cost {
    /// Cycles before the first header: the program starts and appends the items.
    changes: u64,
    /// Cycles that each header's outcome reports.
    headers: Vec<u64>,
    /// Cycles from the beginning of a header to that of the next one.
    distances: Vec<u64>,
}

/// Appends `misses` items that do not match, and then `takers`.
fn fill(queue: &mut dyn MatchQueue, misses: usize, takers: &[Item]) {
    let items = std::iter::repeat_n(Item { match_bits: 6, ..ITEM }, misses).chain(takers.iter().copied());
    for item in items {
        queue.append(item);
    }
}

/// The cost of headers that match the item after `misses` others. All headers are present from the first cycle.
fn cost(uses: Use, misses: usize, taker: &[Item], headers: usize) -> Cost {
    let mut queue = programmed(Timing::default(), uses);
    fill(&mut queue, misses, taker);
    (0..headers).for_each(|_| queue.on_header(HEADER));
    let (mut begins, mut last) = (Vec::new(), None);
    while !queue.is_idle() {
        queue.tick().unwrap();
        let began = queue.state().began;
        if began != last {
            begins.extend(began);
            last = began;
        }
    }
    let headers: Vec<u64> = std::iter::from_fn(|| queue.poll_outcome())
        .inspect(|outcome| assert_eq!(outcome.matched.unwrap().index, misses))
        .map(|outcome| outcome.cycles)
        .collect();
    assert_eq!(begins[0], queue.change_cycles(), "the first header begins after the changes");
    let distances = begins.windows(2).map(|two| two[1] - two[0]).collect();
    Cost { changes: queue.change_cycles(), headers, distances }
}

const MANUAL: &str = include_str!("../../../../docs/use/match/INSIDE.md");

/// Checks that the manual's table has this row with the counted numbers.
fn the_manual_says(row: &str, first: u64, further: u64) {
    let text = format!("| {row} | {first} | {further} + 8n |");
    assert!(MANUAL.contains(&text), "docs/use/match/INSIDE.md must say: {text}");
}

#[test]
fn a_programmed_queue_adds_cycles_per_header_but_not_per_item() {
    let twice = Item { threshold: 1_000, ..ITEM };
    let once = vec![Item { threshold: 1, ..ITEM }; 6];
    for (row, uses, takers) in [
        ("stays as it is, as in the paper's benchmark: `--keep`", Use::Keep, &[ITEM][..]),
        ("takes any number of messages", Use::Consume, &[ITEM]),
        ("takes further messages", Use::Consume, &[twice]),
        ("is used up", Use::Consume, &once),
    ] {
        let counted = |misses| {
            let cost = cost(uses, misses, takers, 6);
            assert_eq!(
                cost.headers[..5],
                cost.distances,
                "reported cycles are the distance to the next header"
            );
            assert!(cost.headers.iter().all(|cycles| *cycles == cost.headers[1]), "{:?}", cost.headers);
            cost.headers[0]
        };
        let further = counted(1) - 16;
        for misses in [1, 2, 3, 9, 29, 99] {
            assert_eq!(counted(misses), further + 8 * (misses as u64 + 1), "{row}, {misses} before it");
        }
        the_manual_says(row, counted(0), further);
        // In hardware all of these cost the same, except that an unlink ends a cycle after the flush.
        let more = u64::from(takers.len() > 1);
        for misses in [0, 1, 9] {
            let mut queue = hardwired(uses);
            fill(&mut queue, misses, takers);
            (0..4).for_each(|_| queue.on_header(HEADER));
            queue.run(WATCHDOG).unwrap();
            let cycles = std::iter::from_fn(|| queue.poll_outcome()).skip(1).map(|outcome| outcome.cycles);
            assert!(cycles.eq([28 + more + 8 * (misses as u64 + 1); 3]), "{row}");
        }
    }
    assert!(MANUAL.contains("| in hardware, each of these but the last | 36 | 28 + 8n |"));
    assert!(MANUAL.contains("| in hardware, is used up | 37 | 29 + 8n |"));
}

#[test]
fn cycles_of_an_append_are_counted_in_no_header() {
    let changes = |items: usize| cost(Use::Keep, items - 1, &[ITEM], 1).changes;
    let item = changes(2) - changes(1);
    let begin = changes(1) - item;
    for items in [1, 2, 3, 10, 100] {
        assert_eq!(changes(items), begin + item * items as u64);
    }
    let said = format!(
        "{begin} cycles pass until the program is ready for the first time, and {item} for each item"
    );
    assert!(MANUAL.contains(&said), "docs/use/match/INSIDE.md must say: {said}");
}

#[test]
fn under_truncation_the_maximum_size_unlinks_nothing() {
    let item = Item { length: 100, max_size: 60, flags: ITEM.flags | flag::MAX_SIZE, ..ITEM };
    let cut = Item { flags: item.flags | flag::TRUNCATE, ..item };
    // 64 bytes leave 36. The first item is unlinked. The second stores the remaining 36 bytes, and then none.
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

/// The result of one header when this program keeps the queue.
fn run_with(source: &[Word]) -> Result<(), Misbehaved> {
    run_both(source, &program::portals().unwrap()).map_err(|fault| {
        assert_eq!(fault.party, Party::Queue);
        fault.why
    })
}

/// The same with any two programs.
fn run_both(queue: &[Word], matcher: &[Word]) -> Result<(), Fault> {
    let unit = |program| Unit::new(program).unwrap();
    let mut queue = QueueManager::new(Timing::default(), Use::Consume, unit(queue), unit(matcher));
    queue.append(ITEM);
    queue.on_header(HEADER);
    queue.run(1_000)
}

#[test]
fn misbehaving_programs_are_stopped_with_the_reason() {
    let program = program::queue().unwrap();
    assert_eq!(run_with(&program), Ok(()));
    // A program that never answers.
    let branch = niclab_isa::Branch { sense: true, ..Default::default() };
    let idle = [Word { branch, ..Word::default() }, Word::default(), Word::default()];
    assert_eq!(run_with(&idle), Err(Misbehaved::Watchdog { cycles: 1_000 }));
    assert_eq!(run_with(&[Word::default()]), Err(Misbehaved::RanOut { pc: 1 }));
    // With any one word removed, the program is stopped or continues; the test finds no panic.
    let mut stopped = 0;
    for address in 0..program.len() {
        let mut program = program.clone();
        program[address] = Word::default();
        stopped += usize::from(run_both(&program, &program::portals().unwrap()).is_err());
    }
    assert!(stopped > program.len() / 3, "{stopped} of {}", program.len());
}

/// A program that sends constants and waits for a word.
fn says(constants: &[u32]) -> Vec<Word> {
    let one = |word: u32| {
        let number = |immediate| niclab_isa::Alu {
            dest: Bits::truncated(1),
            join: Bits::truncated(7),
            half: niclab_isa::Half::Lower,
            immediate: Bits::truncated(immediate),
            ..Default::default()
        };
        let copy = niclab_isa::Copy { source: Bits::truncated(1), output: true, ..Default::default() };
        [Word { alu: number(word), ..Word::default() }, Word { copy, ..Word::default() }]
    };
    let wait = niclab_isa::Input { take: true, ..Default::default() };
    let branch = niclab_isa::Branch { sense: true, ..Default::default() };
    let mut program: Vec<Word> = constants.iter().flat_map(|word| one(*word)).collect();
    program.push(Word { input: wait, ..Word::default() });
    let target = Bits::truncated(program.len() as u32 - 1);
    program.push(Word { branch: niclab_isa::Branch { target, ..branch }, ..Word::default() });
    program.extend([Word::default(); 2]);
    program
}

#[test]
fn invalid_queue_commands_are_refused() {
    // Unknown command; nothing to send; no header; nothing to append; a word outside of scratch memory; nothing linked.
    for word in [13, u32::from(command::SEND), 2, 8, 7 << 16 | 6, 12] {
        assert_eq!(run_with(&says(&[word])), Err(Misbehaved::Command { word: word.into() }));
    }
}

#[test]
fn reporting_ready_without_doing_the_request_is_a_fault() {
    // The program reports ready, and reports it again without having appended the item.
    let ready = u64::from(command::READY);
    assert_eq!(run_with(&says(&[1; 20])), Err(Misbehaved::Command { word: ready }));
}

#[test]
fn the_error_names_the_program_at_fault() {
    let (queue, matcher) = (program::queue().unwrap(), program::portals().unwrap());
    let watchdog = Misbehaved::Watchdog { cycles: 1_000 };
    let idle = says(&[]);
    for (by_queue, by_matcher, fault) in [
        // A program that takes all words and answers nothing; a program that spins.
        (&queue, &idle, Fault { party: Party::Matcher, why: watchdog }),
        (&idle, &matcher, Fault { party: Party::Queue, why: watchdog }),
        (&queue, &vec![Word::default()], Fault { party: Party::Matcher, why: Misbehaved::RanOut { pc: 1 } }),
        (&vec![Word::default()], &matcher, Fault { party: Party::Queue, why: Misbehaved::RanOut { pc: 1 } }),
        (
            &queue,
            &says(&[0]),
            Fault { party: Party::Matcher, why: Misbehaved::Answer { word: 0, due: Due::Nothing } },
        ),
    ] {
        let found = run_both(by_queue, by_matcher).unwrap_err();
        assert_eq!(found, fault);
        let name =
            if fault.party == Party::Queue { "the queue's program: " } else { "the matching program: " };
        assert!(found.to_string().contains(name), "{found}");
    }
}
