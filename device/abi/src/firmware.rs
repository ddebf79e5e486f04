//! Firmware ([`crate::config::FEATURE_FIRMWARE`]): the program that the card's processor runs.

use crate::layout;

/// Loads firmware into the match unit: [`FirmwareLoad`]. The reply is [`FirmwareLoaded`]. The old program matches
/// headers that have arrived. A refused image changes nothing. The firmware stays until another is loaded, and no reset
/// by a driver removes it.
///
/// A card with [`crate::config::FEATURE_HAND_OVER`] replies when it has read and accepted the image. The old program
/// then finishes the messages in flight. In this time the card takes commands, and begins no message.
/// [`crate::event::CAUSE_HANDED_OVER`] reports that the new program runs.
pub const OP_FIRMWARE_LOAD: u32 = 12;

layout! {
    /// Body of [`OP_FIRMWARE_LOAD`].
    pub struct FirmwareLoad: 16 {
        /// Guest-physical address of the image.
        pub address: u64,
        /// Length of the image in bytes; zero: the built-in program.
        pub bytes: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Reply to [`OP_FIRMWARE_LOAD`].
    pub struct FirmwareLoaded: 8 {
        /// Number of words of the program.
        pub words: u32,
        /// Its checksum.
        pub checksum: u32,
    }
}

/// The image is not firmware, or is truncated: wrong magic word or length.
pub const STATUS_FIRMWARE_IMAGE: u32 = 9;
/// The image's checksum does not match its content.
pub const STATUS_FIRMWARE_CHECKSUM: u32 = 10;
/// The device does not run images of this version.
pub const STATUS_FIRMWARE_VERSION: u32 = 11;
/// A word of the program has an undefined value.
pub const STATUS_FIRMWARE_WORD: u32 = 12;
/// The program is longer than the control store.
pub const STATUS_FIRMWARE_SIZE: u32 = 13;
/// The image is intact but does not fit this card: components of a protocol do not fit together, or packets are longer
/// than the network carries.
pub const STATUS_FIRMWARE_UNFIT: u32 = 14;
/// The card is already loading firmware.
pub const STATUS_FIRMWARE_BUSY: u32 = 15;
