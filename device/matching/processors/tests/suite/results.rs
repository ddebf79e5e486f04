//! The simulated machines compute the same results as the paper's match function.

use niclab_processors::Machine;
use niclab_processors::benchmark::Processor;
use niclab_processors::comparison::Machines;
use niclab_processors::embedded::EmbeddedConfig;
use niclab_processors::layout::{self, ANY_NID, ANY_PID, GET, Header, Item, Matched, PUT, flag};
use niclab_processors::multithreaded::{MultithreadedConfig, Spawning};
use niclab_processors::program::Locks;
use proptest::prelude::*;
use proptest::sample::select;

/// Figure 1, line by line; the source node is 0, as in figure 5.
fn plain_match(list: &[Item], header: &Header) -> Option<Matched> {
    for (index, item) in (0..).zip(list) {
        let has = |flag| item.flags & flag != 0;
        if (item.match_bits ^ header.match_bits) & item.dont_ignore != 0
            || (item.nid != ANY_NID && item.nid != 0)
            || (item.pid != ANY_PID && item.pid != header.pid)
            || !has(flag::VALID)
            || item.threshold == 0
            || (header.operation == PUT && !has(flag::PUTS))
            || (header.operation == GET && !has(flag::GETS))
        {
            continue;
        }
        let offset =
            if has(flag::REMOTE_OFFSET) { header.remote_offset.min(item.length) } else { item.local_offset };
        let remain = item.length.wrapping_sub(offset);
        if has(flag::MAX_SIZE) && !has(flag::TRUNCATE) && remain < item.max_size {
            continue;
        }
        let length = match header.length <= remain {
            true => header.length,
            false if has(flag::TRUNCATE) => remain,
            false => continue,
        };
        return Some(Matched { index, offset, length: length as u32 });
    }
    None
}

/// Values that differ in their upper or lower words, or not at all.
fn double() -> impl Strategy<Value = u64> {
    select(vec![0, 1, 1000, 0xffff_ffff, 1 << 32, (1 << 32) + 1, 1 << 63, u64::MAX])
}

fn item() -> impl Strategy<Value = Item> {
    (
        (double(), select(vec![0, 1, 1 << 32, u64::MAX]), select(vec![0, 0, 5, ANY_NID])),
        (select(vec![7, 7, 8, ANY_PID]), 0u16..64, select(vec![0, 1, 1, u32::MAX])),
        (double(), double(), double()),
    )
        .prop_map(
            |((match_bits, dont_ignore, nid), (pid, flags, threshold), (length, local_offset, max_size))| {
                Item {
                    match_bits,
                    dont_ignore,
                    nid,
                    pid,
                    // Items that may match are more interesting than invalid ones.
                    flags: flags | if flags % 3 == 0 { flag::VALID | flag::PUTS } else { 0 },
                    threshold,
                    length,
                    local_offset,
                    max_size,
                }
            },
        )
}

fn header() -> impl Strategy<Value = Header> {
    (double(), select(vec![7, 8]), select(vec![PUT, PUT, GET, 3]), double(), double()).prop_map(
        |(match_bits, pid, operation, length, remote_offset)| Header {
            match_bits,
            pid,
            operation,
            length,
            remote_offset,
        },
    )
}

fn machines() -> Vec<Machine> {
    let spinning = MultithreadedConfig { waiting_spins: true, ..MultithreadedConfig::two_cores() };
    let Machines { embedded, multithreaded: [one, two, sixteen] } = Machines::from_memory();
    let reserving = |config| MultithreadedConfig { locks: Locks::Reserved, ..config };
    vec![
        Machine::Embedded(EmbeddedConfig::default()),
        Machine::Multithreaded(MultithreadedConfig::one_core()),
        Machine::Multithreaded(spinning),
        Machine::Multithreaded(MultithreadedConfig::sixteen_cores()),
        Machine::Embedded(embedded),
        Machine::Multithreaded(two),
        Machine::Multithreaded(sixteen),
        Machine::Multithreaded(reserving(one)),
        Machine::Multithreaded(reserving(MultithreadedConfig { spawning: Spawning::Far, ..sixteen })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_machine_matches_as_figure_1_does(
        list in prop::collection::vec(item(), 1..12),
        headers in prop::collection::vec(header(), 1..4),
    ) {
        for machine in machines() {
            let mut memory = layout::memory(&list, machine.placement()).unwrap();
            let mut processor = Processor::new(machine).unwrap();
            for header in &headers {
                processor.pass(&mut memory, header, 1_000_000, &mut ()).unwrap();
                for index in 0..layout::HEADERS {
                    prop_assert_eq!(layout::result(&memory, index).unwrap(), plain_match(&list, header));
                }
            }
        }
    }
}
