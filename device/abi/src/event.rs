//! Events: one buffer of the event queue for one cause of an interrupt.
//!
//! The card has one interrupt line, so the cause is in memory. The device fills one buffer for each interrupt that it
//! raises. If the driver has left no buffer, the device merges causes of the same kind and port, and delivers them when
//! there is a buffer. No cause is lost.

use crate::layout;

layout! {
    /// A buffer of [`crate::QUEUE_EVENT`]; it may be longer.
    pub struct Event: 16 {
        /// One of the `CAUSE_` constants.
        pub cause: u32,
        /// The port of the cause.
        pub port: u32,
        /// Number of causes that this event reports: 1, or more if the device merged events.
        pub count: u64,
    }
}

/// A packet with the interrupt flag was stored ([`crate::bar::CODE_INTERRUPT`]).
pub const CAUSE_MESSAGE: u32 = 1;
/// The slice that [`crate::bar::CompleterPage::armed`] names was stored.
pub const CAUSE_ARMED: u32 = 2;
/// The card discarded a packet from an unauthorized sender, and is configured to raise this cause (Fröning et al.,
/// section 3.2: "a system interrupt is thrown").
pub const CAUSE_UNAUTHORIZED: u32 = 3;
/// The firmware misbehaved, and the device has replaced it with its built-in program. The event names no port.
pub const CAUSE_FIRMWARE: u32 = 4;
/// The firmware that was loaded runs from now on ([`crate::config::FEATURE_HAND_OVER`]). The event names no port.
pub const CAUSE_HANDED_OVER: u32 = 5;
/// Frames were received ([`crate::config::FEATURE_RINGS`]). The event names no port: the driver polls its ring.
pub const CAUSE_FRAMES: u32 = 6;
/// The link of a card with MAC endpoints changed: `port` is 1 if it was cut, and 0 if it was restored. Only the latest
/// change waits for a buffer. If the link is cut when a driver adds its first buffers, the device reports that at once.
pub const CAUSE_LINK: u32 = 7;
