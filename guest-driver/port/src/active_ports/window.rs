//! The credit window between two nodes (Chiola, Ciaccio, Mancini, Rotondo, section 3): a sender has so many frames on
//! their way and no more, until one acknowledgement gives all of them back. It neither repeats nor asks.

use core::num::NonZeroU32;

/// What may be sent to one other node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Frames that may be on their way; none: any number.
    frames: Option<NonZeroU32>,
    /// Number of the last frame sent.
    sent: u32,
    /// Number of the last frame that the other node has taken.
    acknowledged: u32,
}

impl Outbound {
    /// To a node that nothing was sent to, with a window of so many frames; zero: none is kept.
    #[must_use]
    pub const fn new(frames: u32) -> Self {
        Self { frames: NonZeroU32::new(frames), sent: 0, acknowledged: 0 }
    }

    /// Frames that may be sent now.
    #[must_use]
    pub const fn room(&self) -> u32 {
        match self.frames {
            None => u32::MAX,
            Some(frames) => frames.get().saturating_sub(self.sent.wrapping_sub(self.acknowledged)),
        }
    }

    /// Whether frames are on their way that were not acknowledged, so many that no other may be sent.
    #[must_use]
    pub const fn is_used_up(&self) -> bool {
        self.room() == 0
    }

    /// Another frame is sent, for which there is room. Its number.
    pub const fn send(&mut self) -> u32 {
        self.sent = self.sent.wrapping_add(1);
        self.sent
    }

    /// The other node says that it has taken all frames up to this one. False if it says what cannot be: of frames that
    /// were not sent, or were acknowledged before.
    pub const fn on_acknowledgement(&mut self, number: u32) -> bool {
        let under_way = self.sent.wrapping_sub(self.acknowledged);
        let acknowledged = number.wrapping_sub(self.acknowledged);
        let is_news = acknowledged != 0 && acknowledged <= under_way;
        if is_news {
            self.acknowledged = number;
        }
        is_news
    }
}

/// What a frame is among those of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The next one, or one behind some that did not come.
    New {
        /// So many before it are lost. Each is told once.
        lost: u32,
    },
    /// One that has come, or that was told to be lost.
    Old,
}

/// What was taken of what one other node sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// Number of the last frame taken.
    taken: u32,
    /// Number of the last frame that was acknowledged.
    acknowledged: u32,
    /// Frames after which an acknowledgement is due; none: never.
    every: Option<NonZeroU32>,
}

impl Inbound {
    /// From a node that has sent nothing, whose window is given back after so many frames; zero: never.
    #[must_use]
    pub const fn new(every: u32) -> Self {
        Self { taken: 0, acknowledged: 0, every: NonZeroU32::new(every) }
    }

    /// A frame of this number was taken out of the receive ring.
    pub const fn take(&mut self, number: u32) -> Taken {
        let ahead = number.wrapping_sub(self.taken);
        // In the half behind the last one are those that have come.
        if ahead == 0 || ahead > u32::MAX / 2 {
            return Taken::Old;
        }
        self.taken = number;
        Taken::New { lost: ahead - 1 }
    }

    /// The acknowledgement that is due, by its number. It counts as sent.
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
        assert!(!out.on_acknowledgement(8), "said before");
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
        /// Whatever is lost on the way: at most a window of frames is on its way, each lost frame with one behind it is
        /// told once, and a sender goes on as long as the acknowledgements come and not all of its last frames are
        /// lost.
        #[test]
        fn what_is_lost_is_told_once(
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
                    Taken::Old => prop_assert!(false, "it came once"),
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
