//! Counters of every card, for drivers and reports.

use alloc::vec::Vec;
use core::ops::Range;

use niclab_abi::control::{
    COUNTERS_PER_REPLY, Counter, CountersFrom, CountersHead, MAX_COUNTERS, Reply, STATUS_OK,
};
use niclab_abi::{FromBytes, ToBytes};

use crate::nic::ReplyBytes;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets, or messages, sent to the network.
    pub packets_sent: u64,
    /// Packets, or messages, received from the network and stored.
    pub packets_received: u64,
    /// Payload and tag bytes sent.
    pub bytes_sent: u64,
    /// Payload and tag bytes stored.
    pub bytes_received: u64,
    /// Doorbells rung by the guest.
    pub doorbells: u64,
    /// Posts that the shell found by polling, without a doorbell.
    pub doorbells_spared: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Packets discarded because their sender is not authorized.
    pub unauthorized: u64,
    /// Frames discarded because a check sequence was wrong.
    pub crc_errors: u64,
    /// Frames discarded for another format error: length, port, kind, stale connection.
    pub malformed: u64,
    /// Messages discarded because there was no room for them at the receiver.
    pub overruns: u64,
    /// Posts and register writes refused.
    pub refused: u64,
    /// Acknowledgements sent.
    pub acknowledgements_sent: u64,
    /// Messages discarded unsent because their port was closed.
    pub discarded_at_close: u64,
    /// Control requests refused.
    pub control_refused: u64,
    /// Events merged into a later one because the driver had left no event buffer.
    pub events_merged: u64,
}

impl Statistics {
    /// All counters, with the names that drivers show.
    pub const fn by_name(&self) -> [(&'static str, u64); 16] {
        [
            ("packets_sent", self.packets_sent),
            ("packets_received", self.packets_received),
            ("bytes_sent", self.bytes_sent),
            ("bytes_received", self.bytes_received),
            ("doorbells", self.doorbells),
            ("doorbells_spared", self.doorbells_spared),
            ("interrupts", self.interrupts),
            ("unauthorized", self.unauthorized),
            ("crc_errors", self.crc_errors),
            ("malformed", self.malformed),
            ("overruns", self.overruns),
            ("refused", self.refused),
            ("acknowledgements_sent", self.acknowledgements_sent),
            ("discarded_at_close", self.discarded_at_close),
            ("control_refused", self.control_refused),
            ("events_merged", self.events_merged),
        ]
    }
}

/// Bytes of an answer to [`niclab_abi::control::OP_COUNTERS`], its head included.
const COUNTERS_REPLY_BYTES: usize =
    Reply::BYTES + CountersHead::BYTES + COUNTERS_PER_REPLY as usize * Counter::BYTES;

/// The answer to [`niclab_abi::control::OP_COUNTERS`] of a card that counts `common`, as every card does, and `own`.
/// All answers have the same length, however many counters the driver requests.
pub fn counters_reply(from: &CountersFrom, common: &Statistics, own: &[(&'static str, u64)]) -> ReplyBytes {
    let all: Vec<(&str, u64)> = common.by_name().iter().chain(own).copied().collect();
    debug_assert!(
        all.len() <= MAX_COUNTERS as usize,
        "drivers have no room for more than MAX_COUNTERS counters"
    );
    let total = all.len().min(MAX_COUNTERS as usize);
    let first = (from.first as usize).min(total);
    let wanted: Range<usize> = first..(first + COUNTERS_PER_REPLY as usize).min(total);
    let mut bytes = ReplyBytes::from_elem(0, COUNTERS_REPLY_BYTES);
    let body_bytes = (COUNTERS_REPLY_BYTES - Reply::BYTES) as u32;
    let (reply, body) = bytes.split_at_mut(Reply::BYTES);
    Reply { status: STATUS_OK, body_bytes }.to_bytes(reply);
    let (head, counters) = body.split_at_mut(CountersHead::BYTES);
    CountersHead { total: total as u32, count: wanted.len() as u32 }.to_bytes(head);
    let places = counters.chunks_exact_mut(Counter::BYTES);
    for (place, (name, value)) in places.zip(all.get(wanted).unwrap_or_default()) {
        Counter::new(name, *value).to_bytes(place);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::string::String;

    use niclab_abi::config::name_in;

    use super::*;

    fn read(first: u32) -> (CountersHead, Vec<(String, u64)>) {
        let common = Statistics { packets_sent: 1, events_merged: 16, ..Statistics::default() };
        let bytes = counters_reply(&CountersFrom { first, reserved: 0 }, &common, &[("own", 17)]);
        assert_eq!(bytes.len(), COUNTERS_REPLY_BYTES);
        let head = CountersHead::from_bytes(&bytes[Reply::BYTES..]).unwrap();
        let counters = bytes[Reply::BYTES + CountersHead::BYTES..].chunks(Counter::BYTES).map(|bytes| {
            let counter = Counter::from_bytes(bytes).unwrap();
            (name_in(&counter.name_bytes()).unwrap_or_default().into(), counter.value)
        });
        (head, counters.collect())
    }

    #[test]
    fn counters_come_in_parts_and_by_name() {
        let (head, first) = read(0);
        assert_eq!((head.total, head.count), (17, 16));
        assert_eq!(
            (first[0].clone(), first[15].clone()),
            (("packets_sent".into(), 1), ("events_merged".into(), 16))
        );
        let (head, rest) = read(16);
        assert_eq!(
            (head.count, rest[0].clone(), rest[1].clone()),
            (1, ("own".into(), 17), (String::new(), 0))
        );
        for beyond in [17, u32::MAX] {
            let (head, none) = read(beyond);
            assert_eq!((head.total, head.count), (17, 0));
            assert!(none.iter().all(|(name, value)| name.is_empty() && *value == 0));
        }
    }

    #[test]
    fn names_are_distinct() {
        let names: BTreeSet<_> = Statistics::default().by_name().map(|(name, _)| name).into();
        assert_eq!(names.len(), 16);
    }
}
