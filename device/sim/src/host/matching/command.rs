//! Commands of the Match NIC, as a program stores them into a slot.

use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};
use niclab_abi::matching::{ANY_NODE, ANY_PORT, COMMAND_APPEND, COMMAND_GET, COMMAND_PUT};

use crate::plan::End;

/// The portal to which messages are put.
pub const PORTAL_DATA: u64 = 0;
/// The portal to which receivers put their credits.
pub const PORTAL_CREDIT: u64 = 1;
/// The portal from which receivers get long messages.
pub const PORTAL_GET: u64 = 2;

/// Part of the port's region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Name of the region.
    pub region: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A command: the lower half of its launch word, and its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Lower half of the launch word.
    pub code: u32,
    /// The slot's words.
    pub words: [u64; PAYLOAD_WORDS + TAG_WORDS],
}

/// What a put or a get says beside its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Match bits.
    pub match_bits: u64,
    /// For the receiver.
    pub header_data: u64,
    /// For the sender's own events.
    pub user: u64,
    /// The target's portal.
    pub portal: u64,
    /// Flags.
    pub flags: u32,
}

/// A put of `part` to a port.
#[must_use]
pub const fn put(to: End, transfer: &Transfer, part: &Part) -> Command {
    Command { code: COMMAND_PUT | transfer.flags, words: words(to, transfer, part) }
}

/// A get into `part` from a port.
#[must_use]
pub const fn get(from: End, transfer: &Transfer, part: &Part) -> Command {
    Command { code: COMMAND_GET | transfer.flags, words: words(from, transfer, part) }
}

const fn words(target: End, transfer: &Transfer, part: &Part) -> [u64; PAYLOAD_WORDS + TAG_WORDS] {
    let Transfer { match_bits, header_data, user, portal, .. } = *transfer;
    let to = place(part.region, portal, target.port as u64, target.node as u64);
    [match_bits, header_data, user, to, part.offset, part.bytes, 0, 0, 0, 0]
}

const fn place(region: u32, portal: u64, port: u64, node: u64) -> u64 {
    region as u64 | portal << 32 | port << 40 | node << 48
}

/// A match entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Match bits.
    pub match_bits: u64,
    /// Those that are not compared.
    pub ignore_bits: u64,
    /// Comes back with its events.
    pub user: u64,
    /// Its portal.
    pub portal: u64,
    /// From whom; none: from anybody.
    pub source: Option<End>,
    /// Operations after which it is unlinked.
    pub threshold: u64,
    /// A counter.
    pub counter: Option<u64>,
    /// The entry is unlinked once less is left.
    pub max_size: u64,
    /// Flags.
    pub flags: u32,
}

/// Appends an entry whose memory is `part`.
#[must_use]
pub fn append(entry: &Entry, part: &Part) -> Command {
    let (port, node) =
        entry.source.map_or((ANY_PORT, ANY_NODE), |source| (source.port.into(), source.node.into()));
    let words = [
        entry.match_bits,
        entry.ignore_bits,
        entry.user,
        place(part.region, entry.portal, port, node),
        part.offset,
        part.bytes,
        entry.threshold,
        entry.counter.map_or(0, |counter| counter + 1),
        entry.max_size,
        0,
    ];
    Command { code: COMMAND_APPEND | entry.flags, words }
}
