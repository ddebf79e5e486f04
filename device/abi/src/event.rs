//! What an interrupt tells: one buffer of the event queue, one cause.
//!
//! The card has one interrupt line, so that the cause travels in memory. The device fills one buffer for each interrupt
//! that it raises. When the driver has left no buffer, causes of the same kind and port are merged into one, which is
//! delivered as soon as there is one again: a cause is never lost.

use crate::layout;

layout! {
    /// A buffer of [`crate::QUEUE_EVENT`], at least this long.
    pub struct Event: 16 {
        /// One of the `CAUSE_` constants.
        pub cause: u32,
        /// The port it concerns.
        pub port: u32,
        /// Causes that this event stands for: 1, or more when events were merged.
        pub count: u64,
    }
}

/// A packet with the interrupt flag was stored ([`crate::bar::CODE_INTERRUPT`]).
pub const CAUSE_MESSAGE: u32 = 1;
/// The slice that [`crate::bar::CompleterPage::armed`] waits for was stored.
pub const CAUSE_ARMED: u32 = 2;
/// A packet from a sender without authorization was discarded, and the NIC is configured to raise that (Fröning et
/// al., section 3.2: "a system interrupt is thrown").
pub const CAUSE_UNAUTHORIZED: u32 = 3;
/// The firmware misbehaved: the device has taken its built-in program and goes on with it. No port is meant.
pub const CAUSE_FIRMWARE: u32 = 4;
/// The program that was loaded runs from now on ([`crate::config::FEATURE_HAND_OVER`]). No port is meant.
pub const CAUSE_HANDED_OVER: u32 = 5;
/// Frames were received ([`crate::config::FEATURE_RINGS`]). No port is meant: the driver looks into its ring.
pub const CAUSE_FRAMES: u32 = 6;
/// The link of a card with stations of its own was cut, and `port` is 1, or is whole again, and `port` is 0. Of the two
/// the later one alone waits for a buffer. A driver whose link is cut when it leaves its first buffers is told at once.
pub const CAUSE_LINK: u32 = 7;
