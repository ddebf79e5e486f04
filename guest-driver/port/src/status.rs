//! The status line.

use niclab_abi::receive::{
    REFUSED_CLOSED, REFUSED_COMMAND, REFUSED_HEADER, REFUSED_LENGTH, REFUSED_MEMORY, REFUSED_NO_PAYLOAD,
    REFUSED_NO_ROUTE, REFUSED_PAYLOAD, REFUSED_RELEASE, REFUSED_RESERVED_BITS, REFUSED_SEGMENT,
    REFUSED_TARGET,
};

use crate::Reports;

/// Word of the line with the number of refusals; the word before it holds the reason.
const STATUS_REFUSED: usize = 5;

/// A port's status line: counters since the port was opened, as last reported by the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Slots taken out of the requester page.
    pub launched: u64,
    /// Messages with a notification request that left the requester.
    pub notified: u64,
    /// Acknowledgements that returned.
    pub acknowledged: u64,
    /// Packets that left for the network.
    pub sent: u64,
    /// Refused posts and register writes.
    pub refused: u64,
    /// Reason of the last refusal.
    pub refusal: Option<Refusal>,
}

impl Status {
    /// The line as the device last wrote it.
    #[must_use]
    pub fn read(page: &impl Reports) -> Self {
        let refused = page.status_word(STATUS_REFUSED);
        // The device stores the reason before the count. So the reason read after this count is that of this refusal or
        // of a later one.
        page.acquire();
        let [launched, notified, acknowledged, sent, refusal] =
            core::array::from_fn(|word| page.status_word(word));
        Self { launched, notified, acknowledged, sent, refused, refusal: Refusal::from_number(refusal) }
    }
}

/// Why a post or a register write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Reserved bits of the launch word were set.
    ReservedBits,
    /// The length field is invalid.
    Length,
    /// The port has no route: set one before sending.
    NoRoute,
    /// More slices were released than stored.
    Release,
    /// The command was refused: its event has the reason.
    Command,
    /// There is no such command, or a reserved field of it is not zero.
    Header,
    /// There is no such node, or no such endpoint on a node.
    Target,
    /// The payload is empty, too long, or beyond the payload region.
    Payload,
    /// A segment runs backwards, exceeds its message, belongs to no message, or arrives too late; or the message before
    /// it was incomplete.
    Segment,
    /// No program has the target endpoint open.
    Closed,
    /// The target endpoint has no payload region, or a smaller one than the payload.
    NoPayload,
    /// The target endpoint has not exposed the memory that a message addresses.
    Memory,
    /// A reason that this library does not know, by its number.
    Other(u64),
}

impl Refusal {
    /// The refusal for the number in a status line, a `REFUSED_` constant; `None` for zero.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => None,
            REFUSED_RESERVED_BITS => Some(Self::ReservedBits),
            REFUSED_LENGTH => Some(Self::Length),
            REFUSED_NO_ROUTE => Some(Self::NoRoute),
            REFUSED_RELEASE => Some(Self::Release),
            REFUSED_COMMAND => Some(Self::Command),
            REFUSED_HEADER => Some(Self::Header),
            REFUSED_TARGET => Some(Self::Target),
            REFUSED_PAYLOAD => Some(Self::Payload),
            REFUSED_SEGMENT => Some(Self::Segment),
            REFUSED_CLOSED => Some(Self::Closed),
            REFUSED_NO_PAYLOAD => Some(Self::NoPayload),
            REFUSED_MEMORY => Some(Self::Memory),
            other => Some(Self::Other(other)),
        }
    }

    /// The reason as text, with the fix.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ReservedBits => "reserved bits of the launch word were set",
            Self::Length => "the length field of the launch word is invalid",
            Self::NoRoute => "the port has no route: set one before sending",
            Self::Release => "more slices were released than stored",
            Self::Command => "the device refused a command: its event has the reason",
            Self::Header => {
                "the card does not know a message type: build device and program from the same source"
            }
            Self::Target => "there is no such node, or no such endpoint on it",
            Self::Payload => "the payload is empty, too long, or beyond the channel's payload region",
            Self::Segment => {
                "a message was incomplete when the next one began, or a segment does not belong to it"
            }
            Self::Closed => "no program has the target endpoint open: start the receiver first",
            Self::NoPayload => {
                "the target endpoint has no payload region, or one that is too small: the receiver must set one"
            }
            Self::Memory => "the target has not exposed the memory: the receiver must expose the region",
            Self::Other(_) => {
                "of a reason that this library does not know: build device and program from the same source"
            }
        }
    }
}
