//! The matching rule (Figure 1) as the card's firmware applies it by itself: unexpected messages are searched with it
//! ([`target`](super::target)). Tests hold it, and the match unit's programs, against the figure in C (`tests/figure1`).

use crate::models::matching::item::{ANY_NODE, ANY_PROCESS, Header, Item, Operation, flag};

/// Whether one item takes the message: offset and length. The comments are the lines of Figure 1.
#[must_use]
pub fn accepts(item: &Item, header: &Header) -> Option<(u64, u64)> {
    // 11: match bits.
    if (item.match_bits ^ header.match_bits) & item.dont_ignore_bits != 0 {
        return None;
    }
    // 14, 15: node and process.
    if item.node != ANY_NODE && item.node != header.node {
        return None;
    }
    if item.process != ANY_PROCESS && item.process != header.process {
        return None;
    }
    // 18: valid and active.
    if !item.has(flag::VALID) || item.threshold == 0 {
        return None;
    }
    // 21, 22: responds to the operation.
    match header.operation {
        Operation::Put if !item.has(flag::PUT) => return None,
        Operation::Get if !item.has(flag::GET) => return None,
        Operation::Put | Operation::Get | Operation::Other => {}
    }
    // 28-33: offset.
    let offset =
        if item.has(flag::REMOTE_OFFSET) { header.remote_offset.min(item.length) } else { item.local_offset };
    // 36: room.
    let remain = item.length.wrapping_sub(offset);
    // 39-42: inactive when less than the maximum size is left.
    if item.has(flag::MAX_SIZE) && !item.has(flag::TRUNCATE) && remain < item.max_size {
        return None;
    }
    // 45-47: length.
    if header.length <= remain {
        Some((offset, header.length))
    } else if item.has(flag::TRUNCATE) {
        Some((offset, remain))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::matching::item::INFINITE;

    const OPEN: Item = Item {
        match_bits: 0xab,
        dont_ignore_bits: 0xff,
        node: 7,
        process: 3,
        flags: flag::VALID | flag::PUT,
        length: 100,
        local_offset: 40,
        max_size: 0,
        threshold: INFINITE,
        start: 0,
    };
    const HEADER: Header = Header {
        match_bits: 0x1ab,
        node: 7,
        process: 3,
        operation: Operation::Put,
        length: 60,
        remote_offset: 90,
    };

    #[test]
    fn each_line_of_the_rule_decides() {
        let taken = |change: &dyn Fn(&mut Item, &mut Header)| {
            let (mut item, mut header) = (OPEN, HEADER);
            change(&mut item, &mut header);
            accepts(&item, &header)
        };
        assert_eq!(taken(&|_, _| ()), Some((40, 60)));
        assert_eq!(taken(&|item, _| item.dont_ignore_bits = 0x1ff), None);
        assert_eq!(taken(&|_, header| header.node = 8), None);
        assert_eq!(taken(&|item, header| (item.node, header.node) = (ANY_NODE, 8)), Some((40, 60)));
        assert_eq!(taken(&|_, header| header.process = 8), None);
        assert_eq!(taken(&|item, header| (item.process, header.process) = (ANY_PROCESS, 8)), Some((40, 60)));
        assert_eq!(taken(&|item, _| item.flags &= !flag::VALID), None);
        assert_eq!(taken(&|item, _| item.threshold = 0), None);
        assert_eq!(taken(&|_, header| header.operation = Operation::Get), None);
        assert_eq!(taken(&|_, header| header.operation = Operation::Other), Some((40, 60)));
        assert_eq!(taken(&|_, header| header.length = 61), None);
        assert_eq!(
            taken(&|item, header| {
                item.flags |= flag::TRUNCATE;
                header.length = 61;
            }),
            Some((40, 60))
        );
        let remote = |item: &mut Item| item.flags |= flag::REMOTE_OFFSET;
        assert_eq!(taken(&|item, _| remote(item)), None, "10 bytes are left at 90");
        assert_eq!(
            taken(&|item, header| {
                remote(item);
                header.length = 10;
            }),
            Some((90, 10))
        );
        assert_eq!(
            taken(&|item, header| {
                remote(item);
                (header.remote_offset, header.length) = (1_000, 0);
            }),
            Some((100, 0)),
            "clamped"
        );
        let limited = |item: &mut Item| {
            item.flags |= flag::MAX_SIZE;
            item.max_size = 61;
        };
        assert_eq!(taken(&|item, _| limited(item)), None);
        assert_eq!(
            taken(&|item, _| {
                limited(item);
                item.flags |= flag::TRUNCATE;
            }),
            Some((40, 60))
        );
    }
}
