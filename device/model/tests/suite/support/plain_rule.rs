//! The matching rule of the paper's Figure 1 over a plain list, and the state of an entry after a message. The models
//! are compared with this code, which shares only plain data types with them. The numbers are the figure's lines.

use niclab_model::models::matching::item::{ANY_NODE, ANY_PROCESS, Header, INFINITE, Item, Operation, flag};

fn has(item: &Item, flag: u16) -> bool {
    item.flags & flag == flag
}

/// Offset and length of the stored data, if the item matches the message.
pub fn takes(item: &Item, header: &Header) -> Option<(u64, u64)> {
    let is_addressed = (item.match_bits ^ header.match_bits) & item.dont_ignore_bits == 0 // 11
        && [ANY_NODE, header.node].contains(&item.node) // 14
        && [ANY_PROCESS, header.process].contains(&item.process); // 15
    let is_active = has(item, flag::VALID) && item.threshold > 0; // 18
    let is_answering = match header.operation {
        Operation::Put => has(item, flag::PUT), // 21
        Operation::Get => has(item, flag::GET), // 22
        Operation::Other => true,
    };
    if !is_addressed || !is_active || !is_answering {
        return None;
    }
    let offset = match has(item, flag::REMOTE_OFFSET) {
        true => header.remote_offset.min(item.length), // 29, 30
        false => item.local_offset,                    // 32
    };
    let remain = item.length - offset; // 36
    if is_inactive(item, remain) {
        return None;
    }
    match has(item, flag::TRUNCATE) {
        _ if header.length <= remain => Some((offset, header.length)), // 45
        true => Some((offset, remain)),                                // 46
        false => None,                                                 // 47
    }
}

/// Lines 39 to 42: the maximum size has no effect on an item that truncates.
fn is_inactive(item: &Item, remain: u64) -> bool {
    has(item, flag::MAX_SIZE) && !has(item, flag::TRUNCATE) && remain < item.max_size
}

/// Updates the item after it has stored a message. Returns whether no later message can match it. If the sender names
/// the offset, the remaining length depends on the message, so only the threshold counts.
pub fn uses_up(item: &mut Item, stored: u64) -> bool {
    if item.threshold != INFINITE {
        item.threshold -= 1;
    }
    if has(item, flag::REMOTE_OFFSET) {
        return item.threshold == 0;
    }
    item.local_offset += stored;
    item.threshold == 0 || is_inactive(item, item.length - item.local_offset)
}
