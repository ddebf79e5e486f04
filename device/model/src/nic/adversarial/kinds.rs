//! Kinds of adversarial behaviour, each with its own generator and its own count of opportunities.

use crate::random::Random;

/// First of the random streams of a seed for adversarial behaviour, one for each kind of each node.
const FIRST_STREAM: u64 = 1 << 46;
/// Bits of a stream's number that name the kind.
const KIND_BITS: u32 = 5;

/// Behaviour that the specification allows, and that most devices seldom show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdversarialKind {
    /// A completion becomes visible after later completions of other ports.
    CompletionLate,
    /// A status line or a counter becomes visible after later completions of its port.
    StatusLate,
    /// An interrupt arrives some time after the event that it reports.
    InterruptLate,
    /// An event waits although a buffer is free.
    EventLate,
    /// An event is merged with others of its cause and port although a buffer is free.
    EventMerged,
    /// An event overtakes an earlier one.
    EventReordered,
    /// The device uses a buffer of the event queue before an earlier one.
    BufferReordered,
    /// A later interrupt also reports this event or reply.
    InterruptShared,
    /// An interrupt without an event.
    InterruptSpurious,
    /// A request is answered some time after it was carried out.
    ReplyLate,
    /// A request is answered just before the time limit.
    ReplyAtLimit,
    /// A request is answered before an earlier one.
    ReplyReordered,
    /// The device takes only one of several queued requests at a time.
    RequestsOneByOne,
    /// The magic word of the information page appears late.
    MagicLate,
    /// The doorbell's word changes while the device is awake.
    DoorbellChanged,
    /// Posted slots stay in their page until a later poll.
    SlotsLeft,
    /// The device polls pages in another order than that of their ports.
    PortsReordered,
}

impl AdversarialKind {
    /// Number of kinds.
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

    /// The kind happens at one in n opportunities. Ours: frequent enough that some dozens of messages meet most kinds,
    /// and rare enough that most messages are not affected.
    const fn one_in(self) -> u32 {
        match self {
            Self::ReplyAtLimit => 256,
            Self::InterruptSpurious | Self::StatusLate => 8,
            Self::CompletionLate | Self::InterruptLate | Self::ReplyLate | Self::BufferReordered => 4,
            Self::EventLate | Self::InterruptShared | Self::SlotsLeft | Self::MagicLate => 3,
            // These kinds are sampled only where the device has a choice.
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
fn generator(seed: u64, node: u16, kind: AdversarialKind) -> Random {
    Random::new(seed, FIRST_STREAM + (u64::from(node) << KIND_BITS) + kind as u64)
}

/// The random choices of one card, and how often each kind happened.
#[derive(Clone, Debug)]
pub struct Sampler {
    seed: u64,
    node: u16,
    reseeds: u64,
    lots: [Lot; AdversarialKind::COUNT],
}

impl Sampler {
    /// The choices of the device of node `node`. The fate of the n-th opportunity of a kind depends only on seed,
    /// node, kind and n.
    pub fn new(seed: u64, node: u16) -> Self {
        let lot = |kind: AdversarialKind| Lot { random: generator(seed, node, kind), count: 0 };
        Self { seed, node, reseeds: 0, lots: AdversarialKind::ALL.map(lot) }
    }

    /// Continues with the choices of a new state with this seed. Counts continue.
    pub fn reseed(&mut self, seed: u64) {
        for (kind, lot) in AdversarialKind::ALL.into_iter().zip(&mut self.lots) {
            lot.random = generator(seed, self.node, kind);
        }
        self.seed = seed;
        self.reseeds += 1;
    }

    /// The current seed.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Number of calls of [`Sampler::reseed`].
    pub const fn reseeds(&self) -> u64 {
        self.reseeds
    }

    /// Whether `kind` happens at this opportunity, and a number below `choices` for how. Every call samples the same
    /// number of values. A caller that applies the behaviour calls [`Sampler::count`].
    pub fn draw(&mut self, kind: AdversarialKind, choices: u32) -> Option<u32> {
        let random = &mut self.lots[kind as usize].random;
        let happens = random.below(kind.one_in()) == 0;
        let choice = random.below(choices);
        happens.then_some(choice)
    }

    /// Counts one occurrence of `kind`.
    pub const fn count(&mut self, kind: AdversarialKind) {
        self.lots[kind as usize].count += 1;
    }

    /// How often each kind happened.
    pub fn counts(&self) -> impl Iterator<Item = (AdversarialKind, u64)> + '_ {
        AdversarialKind::ALL.into_iter().zip(self.lots.iter().map(|lot| lot.count))
    }
}

const _: () = assert!(AdversarialKind::COUNT <= 1 << KIND_BITS, "a stream for each kind");

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn kinds_are_in_order_of_their_numbers_with_distinct_names() {
        for (place, kind) in AdversarialKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
            assert!(AdversarialKind::ALL[..place].iter().all(|other| other.name() != kind.name()));
        }
    }

    #[test]
    fn fate_depends_only_on_seed_node_kind_and_number() {
        let fates = |sampler: &mut Sampler| -> Vec<_> {
            (0..64).map(|_| sampler.draw(AdversarialKind::EventLate, 9)).collect()
        };
        let of = |seed, node| fates(&mut Sampler::new(seed, node));
        assert_eq!(of(3, 1), of(3, 1));
        assert!(of(3, 1) != of(4, 1) && of(3, 1) != of(3, 2));
        let mut disturbed = Sampler::new(3, 1);
        (0..7).for_each(|_| {
            disturbed.draw(AdversarialKind::EventMerged, 2);
        });
        disturbed.count(AdversarialKind::EventLate);
        assert_eq!(fates(&mut disturbed), of(3, 1));
        // A new seed's choices do not depend on earlier ones, and counts stay.
        disturbed.reseed(4);
        assert_eq!(fates(&mut disturbed), of(4, 1));
        disturbed.reseed(3);
        assert_eq!(fates(&mut disturbed), of(3, 1));
        assert_eq!((disturbed.seed(), disturbed.reseeds()), (3, 2));
        assert_eq!(disturbed.counts().map(|(_, count)| count).sum::<u64>(), 1);
    }
}
