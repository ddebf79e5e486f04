//! The matching program on the match unit compared with the paper's Figure 1, for random lists and headers; and the
//! paper's cycle counts, word by word.

use crate::cases::{any_offset, header, item};
use niclab_figure1::{self as figure1, Found, Reading, option};
use niclab_isa::Word;
use niclab_model::models::matching::item::{ANY_NODE, ANY_PROCESS, Header, Item, Operation, flag};
use niclab_model::models::matching::list_manager::{ListManager, Misbehaved, Outcome, Steps, Timing, Use};
use niclab_model::models::matching::program::{self, DONE, FAILED, SUCCEEDED};
use niclab_model::models::matching::unit::{Step, Unit};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// Cycles after which the watchdog stops a program.
const WATCHDOG: u64 = 10_000;

fn portals() -> Vec<Word> {
    program::portals().unwrap()
}

fn machine(program: &[Word], items: &[Item], timing: Timing, uses: Use) -> ListManager {
    let mut manager = ListManager::new(timing, uses, Unit::new(program).unwrap());
    for item in items {
        manager.preload(*item);
    }
    manager
}

/// An item in the figure's form.
fn entry(item: &Item) -> figure1::Entry {
    let options = [
        (flag::VALID, option::VALID),
        (flag::PUT, option::PUTS),
        (flag::GET, option::GETS),
        (flag::REMOTE_OFFSET, option::REMOTE_OFFSET),
        (flag::MAX_SIZE, option::MAX_SIZE),
        (flag::TRUNCATE, option::TRUNCATION),
    ];
    let set = options.into_iter().filter(|(flag, _)| item.has(*flag));
    figure1::Entry {
        match_bits: item.match_bits,
        dont_ignore_bits: item.dont_ignore_bits,
        length: item.length,
        local_offset: item.local_offset,
        max_size: item.max_size,
        node: if item.node == ANY_NODE { figure1::ANY } else { item.node },
        process: if item.process == ANY_PROCESS { figure1::ANY } else { item.process.into() },
        threshold: item.threshold,
        options: set.map(|(_, option)| option).sum(),
    }
}

/// A header in the figure's form.
fn message(header: &Header) -> figure1::Message {
    figure1::Message {
        match_bits: header.match_bits,
        length: header.length,
        remote_offset: header.remote_offset,
        node: header.node,
        process: header.process.into(),
        operation: match header.operation {
            Operation::Put => figure1::PUT,
            Operation::Get => figure1::GET,
            Operation::Other => 0,
        },
    }
}

/// The figure's results for the headers, under this reading of the figure.
fn read(reading: Reading, items: &[Item], headers: &[Header], uses: Use) -> Vec<Option<Found>> {
    let entries: Vec<_> = items.iter().map(entry).collect();
    let messages: Vec<_> = headers.iter().map(message).collect();
    reading.of(&entries, &messages, uses == Use::Consume)
}

/// The match unit's results for the headers.
fn run(
    program: &[Word],
    items: &[Item],
    headers: &[Header],
    timing: Timing,
    uses: Use,
) -> Result<Vec<Option<Found>>, Misbehaved> {
    let mut manager = machine(program, items, timing, uses);
    headers.iter().for_each(|header| manager.on_header(*header));
    manager.run(WATCHDOG)?;
    let found = std::iter::from_fn(|| manager.poll_outcome()).map(|outcome: Outcome| {
        outcome.matched.map(|matched| Found {
            place: matched.index as u64,
            offset: matched.offset,
            // The figure's length has 32 bits.
            length: matched.length as u32,
        })
    });
    Ok(found.collect())
}

/// The results of the match unit and of the figure.
fn both(
    program: &[Word],
    items: &[Item],
    headers: &[Header],
    timing: Timing,
    uses: Use,
) -> Result<[Vec<Option<Found>>; 2], Misbehaved> {
    Ok([run(program, items, headers, timing, uses)?, read(figure1::as_printed(), items, headers, uses)])
}

/// A header whose length fits the figure's 32 bits. The offset of the matching item advances by the stored length.
fn short_header() -> impl Strategy<Value = Header> {
    header().prop_map(|header| Header { length: header.length & u64::from(u32::MAX), ..header })
}

fn timing() -> impl Strategy<Value = Timing> {
    (1..4_usize, 0..60_u64, 1..20_usize, 0..8_u64).prop_map(
        |(cache_items, memory_latency, fifo_words, pull)| Timing {
            cache_items,
            memory_latency,
            fifo_words,
            steps: Steps { pull, ..Steps::DERIVED },
            ..Timing::default()
        },
    )
}

/// Runs of the differential test on each of two cores. A case is one header matched against one list. With lists of up
/// to eleven items and up to eight headers each, these runs are a million cases.
const RUNS: u32 = 120_000;

#[test]
fn the_program_matches_as_the_figure_does() {
    let program = portals();
    let compare = || {
        let config = ProptestConfig { cases: RUNS, failure_persistence: None, ..ProptestConfig::default() };
        let cases = (prop::collection::vec(item(), 0..12), prop::collection::vec(short_header(), 1..9));
        let compared = TestRunner::new(config).run(&cases, |(items, headers)| {
            let [found, expected] =
                both(&program, &items, &headers, Timing::default(), Use::Consume).unwrap();
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
    fn the_program_matches_for_any_arrival_times_of_words(
        items in prop::collection::vec(item(), 0..7),
        headers in prop::collection::vec(header(), 1..4),
        timing in timing(),
    ) {
        let [found, expected] = both(&portals(), &items, &headers, timing, Use::Keep).unwrap();
        prop_assert_eq!(found, expected);
    }

    /// If an item's local offset is beyond its length, line 36 wraps, and so does the program. The list manager refuses
    /// the result.
    #[test]
    fn the_program_wraps_where_the_figure_does(
        item in any_offset(),
        header in header(),
    ) {
        let mut words = header.to_words().to_vec();
        words.extend(item.to_words());
        words.extend(Item::END.to_words());
        let said = outputs(&words);
        let [expected] = read(figure1::as_printed(), &[item], &[header], Use::Keep)[..] else { unreachable!() };
        match expected {
            None => prop_assert_eq!(&said[..], [FAILED, FAILED]),
            Some(found) => {
                prop_assert_eq!((said[0], said[1], said[2] as u32), (SUCCEEDED, found.offset, found.length));
                prop_assert_eq!(&said[3..], [DONE]);
            }
        }
        let is_outside = item.local_offset > item.length && !item.has(flag::REMOTE_OFFSET);
        let outcome = run(&portals(), &[item], &[header], Timing::default(), Use::Consume);
        match outcome {
            Ok(found) => prop_assert!(found == [expected] && !(expected.is_some() && is_outside)),
            Err(wrong) => {
                let is_named = matches!(wrong, Misbehaved::Result { .. });
                prop_assert!(is_outside && is_named, "{}", wrong);
            }
        }
    }
}

/// The program's outputs until it has taken all of these words and finished the header.
fn outputs(words: &[u64]) -> Vec<u64> {
    let mut unit = Unit::new(&portals()).unwrap();
    let mut words = words.iter().copied().peekable();
    let mut said = Vec::new();
    for _ in 0..WATCHDOG {
        match unit.step(words.peek().copied()) {
            Step::Issued { took, output } => {
                if took {
                    words.next();
                }
                said.extend(output);
            }
            Step::Waited => return said,
            Step::RanOut => panic!("after {said:?}"),
        }
    }
    panic!("no end after {said:?}");
}

/// Whether any random case shows that `program` or the reading is wrong.
fn is_found(program: &[Word], reading: Reading) -> bool {
    let mut runner = TestRunner::deterministic();
    let strategy = (prop::collection::vec(item(), 0..7), prop::collection::vec(short_header(), 1..9));
    (0..20_000).any(|_| {
        let tree = proptest::strategy::Strategy::new_tree(&strategy, &mut runner).unwrap();
        let (items, headers) = proptest::strategy::ValueTree::current(&tree);
        let found = run(program, &items, &headers, Timing::default(), Use::Consume);
        found.map_or(true, |found| found != read(reading, &items, &headers, Use::Consume))
    })
}

#[test]
fn tests_detect_any_word_removed_from_the_program() {
    assert!(!is_found(&portals(), figure1::as_printed()));
    for address in 0..portals().len() {
        let mut program = portals();
        let word = &mut program[address];
        // The word keeps its input, so that the input stream stays in step.
        let emptied = Word { input: word.input, ..Word::default() };
        if *word == emptied {
            continue;
        }
        *word = emptied;
        assert!(is_found(&program, figure1::as_printed()), "word {address}");
    }
}

#[test]
fn tests_detect_any_wrong_reading_of_the_figure() {
    let missed: Vec<_> =
        figure1::wrong_readings().filter(|reading| !is_found(&portals(), *reading)).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    assert_eq!(figure1::wrong_readings().count(), 19);
}

/// Cycles before the program's first header: one for each word, as many as in Table 1.
const INITIALIZATION_CYCLES: u64 = 4;

/// The cycle of each output, with input always available.
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
fn cycles_equal_the_papers() {
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
    // Three items fail, then one matches. The outputs: failed, failed, failed, succeeded, offset, length, done.
    let at = cycles_to_outputs(&[misses, misses, misses, fits, fits], &header, 7);
    assert_eq!((at[1] - at[0], at[2] - at[1]), (8, 8), "eight cycles for an item whose match bits differ");
    // From the third failure, in the sixth shared word, to 'done': two words for the rest of that item and the first
    // word of the next one, the match, and the flush.
    assert_eq!(at[6] - at[2], 2 + 14 + 8);
    // One header whose first item matches, after the initialization.
    let at = cycles_to_outputs(&[fits, fits], &header, 4);
    assert_eq!(at[3] - INITIALIZATION_CYCLES, 31);
}
