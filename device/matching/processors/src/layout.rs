//! Where the benchmark's data lies, and how: `struct memd` and `struct ptlhdr` of the paper's figure 1.
//!
//! The paper says that an item has 64 bytes with fields of 16 to 64 bits and that the header is slightly smaller; the
//! order of the fields is ours. It is kind to the processors: everything that an item which does not match needs, the
//! pointer to the next one included, lies in one cache line of 32 bytes, and so does everything needed of a header.

use crate::memory::{Memory, OutsideMemory};

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

/// Code begins here.
pub const CODE: u32 = 0x1000;
/// The header queue's pointer to the next header; behind it the pointer to its end.
pub const QUEUE: u32 = 0x8000;
/// Headers, as they arrive from the network.
pub const HEADER_RING: u32 = 0x9000;
/// A [`RESULT_BYTES`] slot for each header: offset (64 bits), length (32), item (32).
pub const RESULTS: u32 = 0xa000;
/// The distance between results.
pub const RESULT_BYTES: u32 = 16;
/// The list.
pub const LIST: u32 = 0x10000;

/// Offsets in an item.
pub mod item {
    #![allow(missing_docs, reason = "named as the fields of `Item`")]
    pub const MATCH_BITS: i16 = 0;
    pub const DONT_IGNORE: i16 = 8;
    pub const NID: i16 = 16;
    pub const PID: i16 = 20;
    pub const FLAGS: i16 = 22;
    pub const THRESHOLD: i16 = 24;
    pub const NEXT: i16 = 28;
    pub const LENGTH: i16 = 32;
    pub const LOCAL_OFFSET: i16 = 40;
    pub const MAX_SIZE: i16 = 48;
}

/// Offsets in a header.
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
    /// It responds to puts.
    pub const PUTS: u16 = 1 << 1;
    /// It responds to gets.
    pub const GETS: u16 = 1 << 2;
    /// The offset comes with the header.
    pub const REMOTE_OFFSET: u16 = 1 << 3;
    /// It is inactive when less than its maximum size is left.
    pub const MAX_SIZE: u16 = 1 << 4;
    /// A message too long for what is left is cut.
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

/// Memory with a list, and space for headers and results.
///
/// # Errors
/// The list does not fit below 4 GB.
pub fn memory(list: &[Item]) -> Result<Memory, OutsideMemory> {
    let mut memory = Memory::new(LIST as usize + list.len() * ITEM_BYTES as usize);
    for (index, entry) in (0..).zip(list) {
        let at = item_address(index);
        let next = if index as usize + 1 < list.len() { item_address(index + 1) } else { 0 };
        memory.write(field(at, item::MATCH_BITS), &entry.match_bits.to_be_bytes())?;
        memory.write(field(at, item::DONT_IGNORE), &entry.dont_ignore.to_be_bytes())?;
        memory.write(field(at, item::NID), &entry.nid.to_be_bytes())?;
        memory.write(field(at, item::PID), &entry.pid.to_be_bytes())?;
        memory.write(field(at, item::FLAGS), &entry.flags.to_be_bytes())?;
        memory.write(field(at, item::THRESHOLD), &entry.threshold.to_be_bytes())?;
        memory.write(field(at, item::NEXT), &next.to_be_bytes())?;
        memory.write(field(at, item::LENGTH), &entry.length.to_be_bytes())?;
        memory.write(field(at, item::LOCAL_OFFSET), &entry.local_offset.to_be_bytes())?;
        memory.write(field(at, item::MAX_SIZE), &entry.max_size.to_be_bytes())?;
    }
    Ok(memory)
}

/// The network writes [`HEADERS`] identical headers into the queue, and the results of the last ones are forgotten.
///
/// # Errors
/// The memory is not of [`memory()`].
pub fn deliver(memory: &mut Memory, arriving: &Header) -> Result<(), OutsideMemory> {
    for index in 0..HEADERS {
        let at = HEADER_RING + index * HEADER_BYTES;
        memory.write(field(at, header::MATCH_BITS), &arriving.match_bits.to_be_bytes())?;
        memory.write(field(at, header::PID), &arriving.pid.to_be_bytes())?;
        memory.write(field(at, header::OPERATION), &arriving.operation.to_be_bytes())?;
        memory.write(field(at, header::LENGTH), &arriving.length.to_be_bytes())?;
        memory.write(field(at, header::REMOTE_OFFSET), &arriving.remote_offset.to_be_bytes())?;
        memory.write(RESULTS + index * RESULT_BYTES, &[0xff; RESULT_BYTES as usize])?;
    }
    memory.write(QUEUE, &HEADER_RING.to_be_bytes())?;
    memory.write(QUEUE + 4, &(HEADER_RING + HEADERS * HEADER_BYTES).to_be_bytes())
}

/// What `match()` returned for one header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matched {
    /// The item's place in the list.
    pub index: u32,
    /// Where in its memory the message goes, in bytes.
    pub offset: u64,
    /// How much of it, in bytes.
    pub length: u32,
}

/// The result for a header: none if no item matched.
///
/// # Errors
/// The memory is not of [`memory()`].
pub fn result(memory: &Memory, header: u32) -> Result<Option<Matched>, OutsideMemory> {
    let at = RESULTS + header * RESULT_BYTES;
    let address = memory.word(at + 12)?;
    if address == 0 {
        return Ok(None);
    }
    let index = address.wrapping_sub(LIST) / ITEM_BYTES;
    Ok(Some(Matched { index, offset: memory.double(at)?, length: memory.word(at + 8)? }))
}
