//! Firmware reload while guests run: the old firmware finishes its messages in flight before the new firmware starts.
//!
//! If several cards reload together, each [begins](FirmwareReloadStep::Begin). Their driver waits until every card [is
//! drained](Progress::Drained) and the network has none of their frames. Then all [switch](FirmwareReloadStep::Switch).

use alloc::string::String;

use thiserror::Error;

/// A step of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirmwareReloadStep<'a> {
    /// Load this firmware once all messages in flight are complete. The card begins no new message until then. It
    /// switches on [`FirmwareReloadStep::Switch`], or by itself once it is drained.
    Begin {
        /// The firmware image, in the format of the model's own tools. Empty: the firmware that the card was made
        /// with.
        image: &'a [u8],
        /// When it switches.
        switch: Switch,
    },
    /// Switch, because all other cards are drained too. Ignored by a card that does not wait for this step.
    Switch,
    /// Continue with the old firmware, because another card refused the new one. Ignored by a card that does not wait.
    Cancel,
}

/// When a drained card switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// At once: it is the only card.
    Drained,
    /// On [`FirmwareReloadStep::Switch`]. Cards that reload together get one epoch, greater than any earlier epoch of
    /// theirs.
    Told {
        /// The epoch.
        epoch: u16,
    },
}

/// Progress of a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// No reload.
    #[default]
    Runs,
    /// Messages of the old firmware are in flight.
    Drains,
    /// No message is in flight; the card waits for [`FirmwareReloadStep::Switch`].
    Drained,
    /// The new firmware is loading.
    Switches,
}

/// Why a card does not reload.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FirmwareReloadError {
    /// Cards of this model take no firmware.
    #[error("cards of this model cannot load firmware while they run")]
    Fixed,
    /// A reload has already begun.
    #[error("the card is already loading firmware; wait until it runs")]
    Busy,
    /// The image is invalid, or not for this card.
    #[error("{0}")]
    Image(String),
}
