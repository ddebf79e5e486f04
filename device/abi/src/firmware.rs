//! Firmware ([`crate::config::FEATURE_FIRMWARE`]): the program that the card's processor runs.

use crate::layout;

/// Loads firmware into the match unit: [`FirmwareLoad`], answered by [`FirmwareLoaded`]. Headers that arrived before
/// are matched by the program before; a refused image changes nothing. It stays until another is loaded, whatever a
/// driver resets.
///
/// A card with [`crate::config::FEATURE_HAND_OVER`] answers once it has read the image and found it good. What it has
/// under way then ends by the program before; meanwhile it takes commands, and begins no message.
/// [`crate::event::CAUSE_HANDED_OVER`] tells when the new program runs.
pub const OP_FIRMWARE_LOAD: u32 = 12;

layout! {
    /// Body of [`OP_FIRMWARE_LOAD`].
    pub struct FirmwareLoad: 16 {
        /// Guest-physical address of the image.
        pub address: u64,
        /// Bytes of the image; zero: the built-in program again.
        pub bytes: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Answer to [`OP_FIRMWARE_LOAD`].
    pub struct FirmwareLoaded: 8 {
        /// Words of the program.
        pub words: u32,
        /// Its checksum.
        pub checksum: u32,
    }
}

/// No firmware image, or one that is cut: wrong magic word or length.
pub const STATUS_FIRMWARE_IMAGE: u32 = 9;
/// The image's checksum does not fit its content.
pub const STATUS_FIRMWARE_CHECKSUM: u32 = 10;
/// The image is of a version that this device does not run.
pub const STATUS_FIRMWARE_VERSION: u32 = 11;
/// A word of the program has a value that is not defined.
pub const STATUS_FIRMWARE_WORD: u32 = 12;
/// The program is longer than the control store.
pub const STATUS_FIRMWARE_SIZE: u32 = 13;
/// The image is whole, and makes no sense on this card: a protocol's parts that do not fit together, or packets longer
/// than the network carries.
pub const STATUS_FIRMWARE_UNFIT: u32 = 14;
/// The card is taking another program already.
pub const STATUS_FIRMWARE_BUSY: u32 = 15;
