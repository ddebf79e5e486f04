//! The virtio configuration space of the cluster function, which a driver reads first.

use crate::layout;

/// Bytes of configuration space; `config_size` on QEMU's command line. QEMU aborts above 256.
pub const CONFIG_BYTES: u32 = 256;

/// Bytes of a model's name, padded with zeros.
pub const NAME_BYTES: u32 = 16;

/// Each port has a receive queue of slices. It authorizes its senders, and has a route to its receiver.
pub const FEATURE_SLICES: u64 = 1 << 0;
/// Lists of posted receives: slots carry commands, and a queue of events reports their results
/// ([`crate::matching::AppendCommand`]).
pub const FEATURE_LISTS: u64 = 1 << 1;
/// Programs register host memory as regions ([`crate::region`]).
pub const FEATURE_REGIONS: u64 = 1 << 2;
/// A driver can load firmware ([`crate::firmware`]).
pub const FEATURE_FIRMWARE: u64 = 1 << 3;
/// List entries beyond the card's memory are in host memory ([`crate::matching::OP_SPILL_OPEN`]).
pub const FEATURE_SPILL: u64 = 1 << 4;
/// Programs run in lockstep ([`crate::bar::CompleterPage::turn`]). Any model has this feature if the device is
/// configured so.
pub const FEATURE_TURNS: u64 = 1 << 5;
/// Messages from registered memory to any node, from the card's one port, into memory posted there
/// ([`crate::inic::POST_SEND`]).
pub const FEATURE_POSTS: u64 = 1 << 6;
/// Firmware reload while the card runs; an event reports its end ([`crate::firmware::OP_FIRMWARE_LOAD`]).
pub const FEATURE_HAND_OVER: u64 = 1 << 7;
/// Barriers, multicasts and reductions in groups of nodes, which the cards carry out without the hosts
/// ([`crate::inic::PostGroup`]). Requires [`FEATURE_POSTS`].
pub const FEATURE_COLLECTIVES: u64 = 1 << 8;
/// Active messages on logical channels, which programs push into the card, from each port to any
/// ([`crate::grim::CHANNEL_SHORT`]).
pub const FEATURE_CHANNELS: u64 = 1 << 9;
/// Frames by descriptor rings in host memory ([`crate::rings`]). The card has no ports of its own: the driver
/// implements them.
pub const FEATURE_RINGS: u64 = 1 << 10;

layout! {
    /// Configuration space, read-only for the guest. Bytes after the structure are zero. Magic word and version have
    /// the same position in every version.
    pub struct DeviceConfig: 96 {
        /// [`crate::MAGIC`]; any other value is another device with the same virtio identity.
        pub magic: u64,
        /// [`crate::ABI_VERSION`].
        pub abi_version: u32,
        /// This node's number, from 0. It is the node part of an address on the cluster network.
        pub node: u32,
        /// Name of the NIC model for people, first byte lowest. `features` says what the card can do.
        pub name_first: u64,
        /// The other half of the name.
        pub name_rest: u64,
        /// `FEATURE_` bits. A driver ignores bits that it does not know.
        pub features: u64,
        /// Number of nodes of the cluster.
        pub nodes: u32,
        /// Maximum number of open ports.
        pub ports: u32,
        /// Maximum number of slices or events of one port's receive queue.
        pub max_slices: u32,
        /// Authorization entries of one port; zero if senders need none.
        pub authorizations: u32,
        /// Pages of the BAR: the information page, then the windows in its table, then unused pages; at most
        /// [`crate::bar::MAX_BAR_PAGES`].
        pub bar_pages: u32,
        /// Longest time that a control request may take, in milliseconds of wall time. After a longer wait a driver
        /// treats the device as dead.
        pub control_timeout_ms: u32,
        /// [`FEATURE_LISTS`]: number of entries that fit into device memory. Otherwise zero.
        pub list_entries: u32,
        /// The length of a message is a multiple of this number of bytes.
        pub message_unit_bytes: u32,
        /// Maximum length of a message in bytes.
        pub max_message_bytes: u64,
        /// Ethernet address of the card, first byte lowest; the upper two bytes are zero.
        pub mac: u64,
        /// [`FEATURE_CHANNELS`]: bytes of each channel's payload region that the card offers. Otherwise zero.
        pub channel_payload_bytes: u32,
        /// [`FEATURE_CHANNELS`]: length of the first segment of a message in bytes; each further segment doubles. Zero:
        /// programs push complete messages.
        pub channel_segment_bytes: u32,
    }
}

impl DeviceConfig {
    /// This configuration with a model's name, cut to [`NAME_BYTES`].
    #[must_use]
    pub fn with_name(self, name: &str) -> Self {
        let [name_first, name_rest] = words_of_name(name);
        Self { name_first, name_rest, ..self }
    }

    /// The bytes of the model's name, including zeros.
    #[must_use]
    pub fn name_bytes(&self) -> [u8; NAME_BYTES as usize] {
        bytes_of_words([self.name_first, self.name_rest])
    }

    /// Whether the card has all of these features.
    #[must_use]
    pub const fn has(&self, features: u64) -> bool {
        self.features & features == features
    }
}

/// The words of a name, first byte lowest, padded with zeros.
pub(crate) fn words_of_name<const WORDS: usize>(name: &str) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (place, byte) in name.bytes().enumerate().take(WORDS * 8) {
        words[place / 8] |= u64::from(byte) << (8 * (place % 8));
    }
    words
}

/// The bytes of these words, first byte lowest.
pub(crate) fn bytes_of_words<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, byte) in bytes.iter_mut().enumerate().take(WORDS * 8) {
        *byte = (words[place / 8] >> (8 * (place % 8))) as u8;
    }
    bytes
}

/// The name in `bytes`: lower-case letters, digits and underscores before the first zero.
#[must_use]
pub fn name_in(bytes: &[u8]) -> Option<&str> {
    let name = bytes.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    core::str::from_utf8(name).ok().filter(|_| name.iter().all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_invalid_names_are_refused() {
        for name in ["a", "ultra", "exactly_16_bytes"] {
            let config = DeviceConfig::default().with_name(name);
            assert_eq!(name_in(&config.name_bytes()), Some(name));
        }
        let long = DeviceConfig::default().with_name("seventeen_letters");
        assert_eq!(name_in(&long.name_bytes()), Some("seventeen_letter"));
        for wrong in [&b"\0abc"[..], b"", b"Upper", b"a/b", b"\xff", b"a b"] {
            assert_eq!(name_in(wrong), None, "{wrong:?}");
        }
    }
}
