//! The kinds of adversarial behaviour, each with a generator and a count of opportunities of its own.

use crate::random::Random;

/// First of the streams of a seed from which adversarial behaviour is drawn, one for each kind of each node.
const FIRST_STREAM: u64 = 1 << 46;
/// Bits of a stream's number that name the kind.
const KIND_BITS: u32 = 5;

/// What a device may do, and kind ones seldom do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A completion is visible later than those of other ports that came behind it.
    CompletionLate,
    /// A status line or a counter is visible later than completions of its port that came behind it.
    StatusLate,
    /// An interrupt comes some time after what it tells of.
    InterruptLate,
    /// An event waits though there is a buffer for it.
    EventLate,
    /// An event is told with others of its cause and port, though there was a buffer for it.
    EventMerged,
    /// An event overtakes one that was raised before it.
    EventReordered,
    /// A buffer of the event queue is used before one that was given earlier.
    BufferReordered,
    /// The interrupt of an event or a reply is left to a later one.
    InterruptShared,
    /// An interrupt without anything to tell.
    InterruptSpurious,
    /// A request is answered some time after it was carried out.
    ReplyLate,
    /// A request is answered just before the limit.
    ReplyAtLimit,
    /// A request is answered before an earlier one.
    ReplyReordered,
    /// Of several requests in the queue one alone is taken at a time.
    RequestsOneByOne,
    /// The magic word of the information page is late.
    MagicLate,
    /// The doorbell's word changes while the device is awake.
    DoorbellChanged,
    /// Launched slots stay in their page for a later look.
    SlotsLeft,
    /// Pages are looked at in another order than that of their ports.
    PortsReordered,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::CompletionLate,
        Self::StatusLate,
        Self::InterruptLate,
        Self::EventLate,
        Self::EventMerged,
        Self::EventReordered,
        Self::BufferReordered,
        Self::InterruptShared,
        Self::InterruptSpurious,
        Self::ReplyLate,
        Self::ReplyAtLimit,
        Self::ReplyReordered,
        Self::RequestsOneByOne,
        Self::MagicLate,
        Self::DoorbellChanged,
        Self::SlotsLeft,
        Self::PortsReordered,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CompletionLate => "completion_late",
            Self::StatusLate => "status_late",
            Self::InterruptLate => "interrupt_late",
            Self::EventLate => "event_late",
            Self::EventMerged => "event_merged",
            Self::EventReordered => "event_reordered",
            Self::BufferReordered => "buffer_reordered",
            Self::InterruptShared => "interrupt_shared",
            Self::InterruptSpurious => "interrupt_spurious",
            Self::ReplyLate => "reply_late",
            Self::ReplyAtLimit => "reply_at_limit",
            Self::ReplyReordered => "reply_reordered",
            Self::RequestsOneByOne => "requests_one_by_one",
            Self::MagicLate => "magic_late",
            Self::DoorbellChanged => "doorbell_changed",
            Self::SlotsLeft => "slots_left",
            Self::PortsReordered => "ports_reordered",
        }
    }

    /// It happens at one of so many opportunities. Ours: often enough that some dozens of messages meet most kinds,
    /// seldom enough that most messages pass as they would.
    const fn one_in(self) -> u32 {
        match self {
            Self::ReplyAtLimit => 256,
            Self::InterruptSpurious | Self::StatusLate => 8,
            Self::CompletionLate | Self::InterruptLate | Self::ReplyLate | Self::BufferReordered => 4,
            Self::EventLate | Self::InterruptShared | Self::SlotsLeft | Self::MagicLate => 3,
            // What follows is drawn where there is a choice at all.
            Self::EventMerged
            | Self::EventReordered
            | Self::ReplyReordered
            | Self::RequestsOneByOne
            | Self::DoorbellChanged
            | Self::PortsReordered => 2,
        }
    }
}

/// The opportunities of one kind.
#[derive(Clone, Debug)]
struct Lot {
    random: Random,
    count: u64,
}

/// The generator of a kind of node `node`'s device.
fn generator(seed: u64, node: u16, kind: Kind) -> Random {
    Random::new(seed, FIRST_STREAM + (u64::from(node) << KIND_BITS) + kind as u64)
}

/// What one card draws, and how often each kind happened.
#[derive(Clone, Debug)]
pub struct Dice {
    seed: u64,
    node: u16,
    reseeds: u64,
    lots: [Lot; Kind::COUNT],
}

impl Dice {
    /// Those of the device of node `node`. The fate of the n-th opportunity of a kind follows from seed, node, kind and
    /// n alone.
    pub fn new(seed: u64, node: u16) -> Self {
        let lot = |kind: Kind| Lot { random: generator(seed, node, kind), count: 0 };
        Self { seed, node, reseeds: 0, lots: Kind::ALL.map(lot) }
    }

    /// Draws from here on what new ones of this seed draw. Counts go on.
    pub fn reseed(&mut self, seed: u64) {
        for (kind, lot) in Kind::ALL.into_iter().zip(&mut self.lots) {
            lot.random = generator(seed, self.node, kind);
        }
        self.seed = seed;
        self.reseeds += 1;
    }

    /// The seed in force.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// How often another seed was given.
    pub const fn reseeds(&self) -> u64 {
        self.reseeds
    }

    /// Whether `kind` is to happen at this opportunity, and a number below `choices` for how. Draws as much in any
    /// case. Whoever has it happen says so by [`Dice::count`].
    pub fn draw(&mut self, kind: Kind, choices: u32) -> Option<u32> {
        let random = &mut self.lots[kind as usize].random;
        let happens = random.below(kind.one_in()) == 0;
        let choice = random.below(choices);
        happens.then_some(choice)
    }

    /// `kind` happened.
    pub const fn count(&mut self, kind: Kind) {
        self.lots[kind as usize].count += 1;
    }

    /// How often each kind happened.
    pub fn counts(&self) -> impl Iterator<Item = (Kind, u64)> + '_ {
        Kind::ALL.into_iter().zip(self.lots.iter().map(|lot| lot.count))
    }
}

const _: () = assert!(Kind::COUNT <= 1 << KIND_BITS, "a stream for each kind");

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_kind_is_at_the_place_of_its_number_and_has_a_name_of_its_own() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
            assert!(Kind::ALL[..place].iter().all(|other| other.name() != kind.name()));
        }
    }

    #[test]
    fn the_fate_of_an_opportunity_follows_from_seed_node_kind_and_number() {
        let fates = |dice: &mut Dice| -> Vec<_> { (0..64).map(|_| dice.draw(Kind::EventLate, 9)).collect() };
        let of = |seed, node| fates(&mut Dice::new(seed, node));
        assert_eq!(of(3, 1), of(3, 1));
        assert!(of(3, 1) != of(4, 1) && of(3, 1) != of(3, 2));
        let mut disturbed = Dice::new(3, 1);
        (0..7).for_each(|_| {
            disturbed.draw(Kind::EventMerged, 2);
        });
        disturbed.count(Kind::EventLate);
        assert_eq!(fates(&mut disturbed), of(3, 1));
        // What was drawn before is no matter to what a later seed draws, and its counts stay.
        disturbed.reseed(4);
        assert_eq!(fates(&mut disturbed), of(4, 1));
        disturbed.reseed(3);
        assert_eq!(fates(&mut disturbed), of(3, 1));
        assert_eq!((disturbed.seed(), disturbed.reseeds()), (3, 2));
        assert_eq!(disturbed.counts().map(|(_, count)| count).sum::<u64>(), 1);
    }
}
