//! The layout of the benchmark's data in memory: `struct memd` and `struct ptlhdr` of the paper's figure 1.
//!
//! The paper says that an item has 64 bytes with fields of 16 to 64 bits and that the header is slightly smaller. The
//! order of the fields is ours, and there are two orders ([`Placement`]). The first favours the processors: all fields
//! that an item needs if it does not match, including the pointer to the next item, lie in one cache line of 32 bytes.
//! So do all fields that are needed of a header. The second takes figure 1 literally.
//!
//! Constants: ours, the addresses in memory; items have 64 bytes, headers eight words of 64 bits (the paper's section
//! 4.1).

use crate::memory::{OutsideMemory, ProcessorMemory};

/// Bytes of an item, and the distance between items.
pub const ITEM_BYTES: u32 = 64;
/// The distance between headers.
pub const HEADER_BYTES: u32 = 64;
/// Headers of one pass (paper, section 5.1).
pub const HEADERS: u32 = 64;

/// Any source node.
pub const ANY_NID: u32 = u32::MAX;
/// Any source process.
pub const ANY_PID: u16 = u16::MAX;
/// The operation of a header: put.
pub const PUT: u16 = 1;
/// The operation of a header: get.
pub const GET: u16 = 2;

/// Address of the code.
pub const CODE: u32 = 0x1000;
/// The header queue's pointer to the next header, followed by the pointer to its end.
pub const QUEUE: u32 = 0x8000;
/// Headers, as they arrive from the network.
pub const HEADER_RING: u32 = 0x9000;
/// A slot of [`RESULT_BYTES`] for each header: offset (64 bits), length (32), item (32).
pub const RESULTS: u32 = 0xa000;
/// The distance between results.
pub const RESULT_BYTES: u32 = 16;
/// Words in the header FIFO, [`HEADER_BYTES`] for each header. This is memory of the FIFO; no program uses the address.
const FIFO_WORDS: u32 = 0xb000;
/// The list.
pub const LIST: u32 = 0x10000;

/// Layout of items, and the way in which headers arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Favours the processors: the fields that are read first lie on one line. The network writes headers to memory,
    /// and the program reads one line of each.
    Packed,
    /// As in the paper's figures: an item is a match entry, a memory descriptor, the pointer to the next item and the
    /// lock, in this order. Headers wait in a FIFO, and the program reads them completely.
    InMemory,
}

/// Offsets in an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as the fields of `Item`")]
pub struct ItemFields {
    pub match_bits: i16,
    pub dont_ignore: i16,
    pub nid: i16,
    pub pid: i16,
    pub flags: i16,
    pub threshold: i16,
    pub next: i16,
    pub length: i16,
    pub local_offset: i16,
    pub max_size: i16,
    /// A word that is not zero while the lock is free.
    pub lock: i16,
}

const PACKED: ItemFields = ItemFields {
    match_bits: 0,
    dont_ignore: 8,
    nid: 16,
    pid: 20,
    flags: 22,
    threshold: 24,
    next: 28,
    length: 32,
    local_offset: 40,
    max_size: 48,
    lock: 56,
};

/// Two bytes of padding after the process complete the match entry; the flags are the lower half of a word.
const IN_MEMORY: ItemFields = ItemFields {
    match_bits: 0,
    dont_ignore: 8,
    nid: 16,
    pid: 20,
    length: 24,
    local_offset: 32,
    max_size: 40,
    threshold: 48,
    flags: 54,
    next: 56,
    lock: 60,
};

impl Placement {
    /// Offsets in an item.
    pub const fn item(self) -> &'static ItemFields {
        match self {
            Self::Packed => &PACKED,
            Self::InMemory => &IN_MEMORY,
        }
    }
}

/// Offsets in a header: the eight words of the match unit's header.
pub mod header {
    #![allow(missing_docs, reason = "named as the fields of `Header`")]
    pub const MATCH_BITS: i16 = 0;
    pub const PID: i16 = 12;
    pub const OPERATION: i16 = 14;
    pub const LENGTH: i16 = 16;
    pub const REMOTE_OFFSET: i16 = 24;
}

/// Bits of an item's flags.
pub mod flag {
    /// The memory descriptor is valid.
    pub const VALID: u16 = 1 << 0;
    /// The descriptor responds to puts.
    pub const PUTS: u16 = 1 << 1;
    /// The descriptor responds to gets.
    pub const GETS: u16 = 1 << 2;
    /// The header gives the offset.
    pub const REMOTE_OFFSET: u16 = 1 << 3;
    /// The descriptor is inactive if less than its maximum size is left.
    pub const MAX_SIZE: u16 = 1 << 4;
    /// A message that is too long for the remaining space is truncated.
    pub const TRUNCATE: u16 = 1 << 5;
}

/// A match entry and memory descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as in the paper's figure 1")]
pub struct Item {
    pub match_bits: u64,
    pub dont_ignore: u64,
    pub nid: u32,
    pub pid: u16,
    pub flags: u16,
    pub threshold: u32,
    pub length: u64,
    pub local_offset: u64,
    pub max_size: u64,
}

/// A message's header. Its source node is an argument of the match function, as in the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as in the paper's figure 1")]
pub struct Header {
    pub match_bits: u64,
    pub pid: u16,
    pub operation: u16,
    pub length: u64,
    pub remote_offset: u64,
}

fn field(at: u32, offset: i16) -> u32 {
    at.wrapping_add_signed(i32::from(offset))
}

/// The address of an item.
pub fn item_address(index: u32) -> u32 {
    LIST + index * ITEM_BYTES
}

/// Memory with a list, whose locks are free, and space for headers and results.
///
/// # Errors
/// The list does not fit below 4 GB.
pub fn memory(list: &[Item], placement: Placement) -> Result<ProcessorMemory, OutsideMemory> {
    let item = placement.item();
    let mut memory = ProcessorMemory::new(LIST as usize + list.len() * ITEM_BYTES as usize);
    for (index, entry) in (0..).zip(list) {
        let at = item_address(index);
        let next = if index as usize + 1 < list.len() { item_address(index + 1) } else { 0 };
        memory.write(field(at, item.match_bits), &entry.match_bits.to_be_bytes())?;
        memory.write(field(at, item.dont_ignore), &entry.dont_ignore.to_be_bytes())?;
        memory.write(field(at, item.nid), &entry.nid.to_be_bytes())?;
        memory.write(field(at, item.pid), &entry.pid.to_be_bytes())?;
        memory.write(field(at, item.flags), &entry.flags.to_be_bytes())?;
        memory.write(field(at, item.threshold), &entry.threshold.to_be_bytes())?;
        memory.write(field(at, item.next), &next.to_be_bytes())?;
        memory.write(field(at, item.length), &entry.length.to_be_bytes())?;
        memory.write(field(at, item.local_offset), &entry.local_offset.to_be_bytes())?;
        memory.write(field(at, item.max_size), &entry.max_size.to_be_bytes())?;
        memory.write(field(at, item.lock), &1_u32.to_be_bytes())?;
    }
    Ok(memory)
}

/// Delivers [`HEADERS`] identical headers from the network, and clears the results of the previous ones.
///
/// # Errors The memory was not made by [`memory()`].
pub fn deliver(
    memory: &mut ProcessorMemory,
    arriving: &Header,
    placement: Placement,
) -> Result<(), OutsideMemory> {
    let first = match placement {
        Placement::Packed => HEADER_RING,
        Placement::InMemory => FIFO_WORDS,
    };
    for index in 0..HEADERS {
        let at = first + index * HEADER_BYTES;
        memory.write(field(at, header::MATCH_BITS), &arriving.match_bits.to_be_bytes())?;
        memory.write(field(at, header::PID), &arriving.pid.to_be_bytes())?;
        memory.write(field(at, header::OPERATION), &arriving.operation.to_be_bytes())?;
        memory.write(field(at, header::LENGTH), &arriving.length.to_be_bytes())?;
        memory.write(field(at, header::REMOTE_OFFSET), &arriving.remote_offset.to_be_bytes())?;
        memory.write(RESULTS + index * RESULT_BYTES, &[0xff; RESULT_BYTES as usize])?;
    }
    memory.write(QUEUE, &first.to_be_bytes())?;
    memory.write(QUEUE + 4, &(first + HEADERS * HEADER_BYTES).to_be_bytes())
}

/// Whether the header FIFO at [`QUEUE`] holds a word.
///
/// # Errors The address has no FIFO.
pub fn fifo_holds(memory: &ProcessorMemory, fifo: u32) -> Result<bool, OutsideMemory> {
    Ok(memory.word(fifo)? != memory.word(fifo.wrapping_add(4))?)
}

/// Takes a word out of the header FIFO.
///
/// # Errors The address has no FIFO.
pub fn fifo_take(memory: &mut ProcessorMemory, fifo: u32) -> Result<u32, OutsideMemory> {
    let at = memory.word(fifo)?;
    let word = memory.word(at)?;
    memory.write(fifo, &at.wrapping_add(4).to_be_bytes())?;
    Ok(word)
}

/// The result of `match()` for one header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matched {
    /// The item's index in the list.
    pub index: u32,
    /// Offset of the message in the item's memory, in bytes.
    pub offset: u64,
    /// Length of the stored part of the message, in bytes.
    pub length: u32,
}

/// The result for a header; None if no item matched.
///
/// # Errors The memory was not made by [`memory()`].
pub fn result(memory: &ProcessorMemory, header: u32) -> Result<Option<Matched>, OutsideMemory> {
    let at = RESULTS + header * RESULT_BYTES;
    let address = memory.word(at + 12)?;
    if address == 0 {
        return Ok(None);
    }
    let index = address.wrapping_sub(LIST) / ITEM_BYTES;
    Ok(Some(Matched { index, offset: memory.double(at)?, length: memory.word(at + 8)? }))
}
