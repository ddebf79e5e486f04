//! The credit window between two nodes (Chiola, Ciaccio, Mancini, Rotondo, section 3). A sender has at most one window
//! of frames in flight, until one acknowledgement returns the whole window. It neither retransmits frames nor requests
//! an acknowledgement.

use core::num::NonZeroU32;

/// The send window to one other node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Maximum number of frames in flight; `None`: no limit.
    frames: Option<NonZeroU32>,
    /// Number of the last frame sent.
    sent: u32,
    /// Number of the last frame that the other node has taken.
    acknowledged: u32,
}

impl Outbound {
    /// A window of `frames` frames to a node; zero: no window.
    #[must_use]
    pub const fn new(frames: u32) -> Self {
        Self { frames: NonZeroU32::new(frames), sent: 0, acknowledged: 0 }
    }

    /// Number of frames that may be sent now.
    #[must_use]
    pub const fn room(&self) -> u32 {
        match self.frames {
            None => u32::MAX,
            Some(frames) => frames.get().saturating_sub(self.sent.wrapping_sub(self.acknowledged)),
        }
    }

    /// Whether the window is used up, so that no frame may be sent.
    #[must_use]
    pub const fn is_used_up(&self) -> bool {
        self.room() == 0
    }

    /// Counts a frame that is sent; there must be room for it. Returns its number.
    pub const fn send(&mut self) -> u32 {
        self.sent = self.sent.wrapping_add(1);
        self.sent
    }

    /// The other node has acknowledged all frames up to this one. Returns `false` for an invalid acknowledgement: of
    /// frames that were not sent, or that were acknowledged before.
    pub const fn on_acknowledgement(&mut self, number: u32) -> bool {
        let in_flight = self.sent.wrapping_sub(self.acknowledged);
        let acknowledged = number.wrapping_sub(self.acknowledged);
        let is_news = acknowledged != 0 && acknowledged <= in_flight;
        if is_news {
            self.acknowledged = number;
        }
        is_news
    }
}

/// The position of a frame among the frames of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The next frame, or one after lost frames.
    New {
        /// Number of lost frames before it. Each is reported once.
        lost: u32,
    },
    /// A duplicate, or a frame that was reported as lost.
    Old,
}

/// Frames received from one other node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// Number of the last frame taken.
    taken: u32,
    /// Number of the last frame that was acknowledged.
    acknowledged: u32,
    /// Number of frames after which an acknowledgement is due; `None`: never.
    every: Option<NonZeroU32>,
}

impl Inbound {
    /// For a node that has sent no frame yet. An acknowledgement is due after every `every` frames; zero: never.
    #[must_use]
    pub const fn new(every: u32) -> Self {
        Self { taken: 0, acknowledged: 0, every: NonZeroU32::new(every) }
    }

    /// Counts a frame with this number that was taken out of the receive ring.
    pub const fn take(&mut self, number: u32) -> Taken {
        let ahead = number.wrapping_sub(self.taken);
        // Numbers up to half the range below the last one are duplicates.
        if ahead == 0 || ahead > u32::MAX / 2 {
            return Taken::Old;
        }
        self.taken = number;
        Taken::New { lost: ahead - 1 }
    }

    /// The number to acknowledge, if an acknowledgement is due. It then counts as sent.
    pub fn due(&mut self) -> Option<u32> {
        let every = self.every?;
        let is_due = self.taken.wrapping_sub(self.acknowledged) >= every.get();
        is_due.then(|| {
            self.acknowledged = self.taken;
            self.taken
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_acknowledgement_restores_the_whole_window() {
        let (mut out, mut into) = (Outbound::new(8), Inbound::new(8));
        for number in 1..=8 {
            assert_eq!(out.send(), number);
            assert_eq!(into.take(number), Taken::New { lost: 0 });
            assert_eq!(into.due(), (number == 8).then_some(8));
        }
        assert!(out.is_used_up());
        assert!(out.on_acknowledgement(8));
        assert_eq!(out.room(), 8);
        assert!(!out.on_acknowledgement(8), "acknowledged before");
        assert!(!out.on_acknowledgement(9), "never sent");
    }

    #[test]
    fn without_a_window_nothing_is_held_back_or_acknowledged() {
        let (mut out, mut into) = (Outbound::new(0), Inbound::new(0));
        for number in 1..1_000 {
            into.take(out.send());
            assert_eq!((out.is_used_up(), into.due()), (false, None), "{number}");
        }
    }

    proptest! {
        /// For any losses: at most a window of frames is in flight, each lost frame that is followed by another is
        /// reported once, and a sender continues unless acknowledgements or all of its last frames are lost.
        #[test]
        fn each_lost_frame_is_reported_once(
            window in 1..40_u32,
            every in 1..40_u32,
            start: u32,
            losses in prop::collection::vec(any::<bool>(), 1..400),
        ) {
            let every = every.min(window);
            let (mut out, mut into) = (Outbound::new(window), Inbound::new(every));
            (out.sent, out.acknowledged, into.taken, into.acknowledged) = (start, start, start, start);
            let (mut lost, mut told, mut pending) = (0_u32, 0_u32, 0_u32);
            for is_lost in losses {
                if out.is_used_up() {
                    break;
                }
                let number = out.send();
                prop_assert!(number.wrapping_sub(out.acknowledged) <= window);
                if is_lost {
                    pending += 1;
                    continue;
                }
                lost += core::mem::take(&mut pending);
                match into.take(number) {
                    Taken::New { lost } => told += lost,
                    Taken::Old => prop_assert!(false, "each frame arrives once"),
                }
                prop_assert_eq!(into.take(number), Taken::Old);
                if let Some(number) = into.due() {
                    prop_assert!(out.on_acknowledgement(number));
                }
            }
            prop_assert_eq!(lost, told);
        }
    }
}
