//! Random items and headers that often match.

use niclab_model::models::matching::item::{ANY_NODE, ANY_PROCESS, Header, INFINITE, Item, Operation, flag};
use proptest::prelude::*;

/// Few values, so that they are often equal; and the ends of each range, where comparisons go wrong.
fn small() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..4_u64, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1), 1 => Just(1 << 63), 1 => any::<u64>()]
}

/// Any item. Its matching criteria are sampled from few values, so that items are often equal.
pub fn item() -> impl Strategy<Value = Item> {
    let ids = (
        prop_oneof![3 => 0..3_u32, 2 => Just(ANY_NODE), 1 => Just(0x0001_ffff_u32)],
        prop_oneof![3 => 0..3_u16, 2 => Just(ANY_PROCESS)],
    );
    let bits = (0..3_u64, prop_oneof![Just(0), Just(u64::MAX), 0..4_u64]);
    let any_flags = prop_oneof![2 => Just(flag::VALID | flag::PUT | flag::GET), 3 => 0..flag::END];
    let memory = (small(), any::<u16>(), small(), small());
    let threshold = prop_oneof![Just(0_u32), Just(1), 2..5_u32, Just(INFINITE), Just(1 << 16), Just(1 << 31)];
    (bits, ids, any_flags, memory, threshold).prop_map(
        |((match_bits, dont_ignore_bits), (node, process), flags, memory, threshold)| {
            let (length, share, offset, max_size) = memory;
            // The local offset is inside the item's memory, often at one of its ends.
            let local_offset = match share {
                0..0x4000 => 0,
                0x4000..0x8000 => length,
                _ => offset.min(length),
            };
            Item {
                match_bits,
                dont_ignore_bits,
                node,
                process,
                flags,
                length,
                local_offset,
                max_size,
                threshold,
                start: 0x77,
            }
        },
    )
}

/// Any item with any local offset, even outside of its memory; a card would not link such an item.
pub fn any_offset() -> impl Strategy<Value = Item> {
    (item(), small()).prop_map(|(item, local_offset)| Item { local_offset, ..item })
}

/// Any header that is likely to match such an item.
pub fn header() -> impl Strategy<Value = Header> {
    let ids =
        (prop_oneof![3 => 0..3_u32, 1 => Just(ANY_NODE)], prop_oneof![3 => 0..3_u16, 1 => Just(ANY_PROCESS)]);
    let operation = prop_oneof![Just(Operation::Put), Just(Operation::Get), Just(Operation::Other)];
    (0..3_u64, ids, operation, small(), small()).prop_map(
        |(match_bits, (node, process), operation, length, remote_offset)| Header {
            match_bits,
            node,
            process,
            operation,
            length,
            remote_offset,
        },
    )
}
