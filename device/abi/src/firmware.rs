//! Firmware ([`crate::config::FEATURE_FIRMWARE`]): the program that the card's processor runs.

use crate::layout;

/// Loads firmware into the match unit: [`FirmwareLoad`], answered by [`FirmwareLoaded`]. Headers that arrived before are
/// matched by the program before; a refused image changes nothing. It stays until another is loaded, whatever a driver resets.
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
