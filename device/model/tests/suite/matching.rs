//! The matching program on the match unit against the rule, for any lists and headers; and the paper's counts, word by word.

use crate::cases::{header, item};
use niclab_isa::Word;
use niclab_model::models::matching::item::{Header, Item, Operation, flag};
use niclab_model::models::matching::list_manager::{ListManager, Misbehaved, Outcome, Timing, Use};
use niclab_model::models::matching::program;
use niclab_model::models::matching::reference::{Match, first_match};
use niclab_model::models::matching::unit::{Step, Unit};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Cycles after which a program is taken to hang.
const WATCHDOG: u64 = 10_000;

fn portals() -> Vec<Word> {
    program::portals().unwrap()
}

fn machine(program: &[Word], items: &[Item], timing: Timing) -> ListManager {
    let mut manager = ListManager::new(timing, Use::Keep, Unit::new(program).unwrap());
    for item in items {
        manager.append(*item);
    }
    manager
}

/// What becomes of the headers on the machine, and what the rule says.
fn both(
    program: &[Word],
    items: &[Item],
    headers: &[Header],
    timing: Timing,
) -> Result<[Vec<Option<Match>>; 2], Misbehaved> {
    let mut manager = machine(program, items, timing);
    headers.iter().for_each(|header| manager.on_header(*header));
    manager.run(WATCHDOG)?;
    let found = std::iter::from_fn(|| manager.poll_outcome()).map(|outcome: Outcome| {
        outcome.matched.map(|matched| Match {
            index: matched.index,
            offset: matched.offset,
            length: matched.length,
        })
    });
    let found = found.collect();
    Ok([found, headers.iter().map(|header| first_match(items, header)).collect()])
}

fn timing() -> impl Strategy<Value = Timing> {
    (1..4_usize, 0..60_u64, 1..20_usize, 1..8_u64).prop_map(
        |(cache_items, memory_latency, fifo_words, turnaround)| Timing {
            cache_items,
            memory_latency,
            fifo_words,
            turnaround,
            ..Timing::default()
        },
    )
}

/// A case of the differential test is one header matched against one list: with lists of up to six items and up to eight
/// headers each, so many runs on each of two cores are a million cases.
const RUNS: u32 = 120_000;

#[test]
fn the_program_does_what_the_rule_says() {
    let program = portals();
    let compare = || {
        let config = ProptestConfig { cases: RUNS, failure_persistence: None, ..ProptestConfig::default() };
        let cases = (prop::collection::vec(item(), 0..7), prop::collection::vec(header(), 1..9));
        let compared = TestRunner::new(config).run(&cases, |(items, headers)| {
            let [found, expected] = both(&program, &items, &headers, Timing::default()).unwrap();
            prop_assert_eq!(found, expected);
            Ok(())
        });
        compared.unwrap_or_else(|wrong| panic!("{wrong}"));
    };
    std::thread::scope(|scope| {
        scope.spawn(compare);
        compare();
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_slowly_words_arrive(
        items in prop::collection::vec(item(), 0..7),
        headers in prop::collection::vec(header(), 1..4),
        timing in timing(),
    ) {
        let [found, expected] = both(&portals(), &items, &headers, timing).unwrap();
        prop_assert_eq!(found, expected);
    }
}

/// Whether any of these cases shows that `program` is wrong.
fn is_found(program: &[Word]) -> bool {
    let mut runner = TestRunner::deterministic();
    let strategy = (prop::collection::vec(item(), 0..7), prop::collection::vec(header(), 1..9));
    (0..20_000).any(|_| {
        let tree = proptest::strategy::Strategy::new_tree(&strategy, &mut runner).unwrap();
        let (items, headers) = proptest::strategy::ValueTree::current(&tree);
        both(program, &items, &headers, Timing::default()).map_or(true, |[found, expected]| found != expected)
    })
}

#[test]
fn any_word_taken_out_of_the_program_is_found() {
    assert!(!is_found(&portals()));
    for address in 0..portals().len() {
        let mut program = portals();
        let word = &mut program[address];
        // Its input stays, so that the stream is not merely out of step.
        let emptied = Word { input: word.input, ..Word::default() };
        if *word == emptied {
            continue;
        }
        *word = emptied;
        assert!(is_found(&program), "word {address}");
    }
}

/// What the program does before its first header: a word a cycle, as many as Table 1 says.
const INITIALIZATION_CYCLES: u64 = 4;

/// Words that the unit issues from one output to the next, where input never lacks.
fn cycles_to_outputs(items: &[Item], header: &Header, outputs: usize) -> Vec<u64> {
    let mut unit = Unit::new(&portals()).unwrap();
    let mut input: Vec<u64> = header.to_words().to_vec();
    items.iter().for_each(|item| input.extend(item.to_words()));
    let mut words = input.into_iter().peekable();
    let mut at = Vec::new();
    while at.len() < outputs {
        match unit.step(words.peek().copied()) {
            Step::Issued { took, output } => {
                if took {
                    words.next();
                }
                at.extend(output.map(|_| unit.cycles()));
            }
            Step::Waited | Step::RanOut => panic!("after {at:?}"),
        }
    }
    at
}

#[test]
fn cycles_are_those_of_the_paper() {
    let fits = Item {
        match_bits: 1,
        dont_ignore_bits: u64::MAX,
        node: 1,
        process: 1,
        flags: flag::VALID | flag::PUT,
        length: 10,
        threshold: 1,
        ..Item::default()
    };
    let misses = Item { match_bits: 2, ..fits };
    let header =
        Header { match_bits: 1, node: 1, process: 1, operation: Operation::Put, length: 1, remote_offset: 0 };
    // Three that fail, then one that matches: failed, failed, failed, succeeded, offset, length, done.
    let at = cycles_to_outputs(&[misses, misses, misses, fits, fits], &header, 7);
    assert_eq!((at[1] - at[0], at[2] - at[1]), (8, 8), "eight cycles for an item whose match bits differ");
    // From the third failure, in the sixth shared word, to 'done': two words that take the rest of that item and the first
    // word of the next, the match, and the flush.
    assert_eq!(at[6] - at[2], 2 + 14 + 8);
    // One header whose first item matches, behind the initialization.
    let at = cycles_to_outputs(&[fits, fits], &header, 4);
    assert_eq!(at[3] - INITIALIZATION_CYCLES, 31);
}
