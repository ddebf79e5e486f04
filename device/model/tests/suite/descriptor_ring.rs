//! Descriptor rings and chains in host memory: random interleavings of a host and a card, word by word, compared with a
//! plain list of the descriptors that the host gave to the card; and hosts that break the rules.

use std::collections::{BTreeMap, VecDeque};

use niclab_model::parts::descriptor_ring::dec2114x::{
    BYTES, CHAINED, Dec2114x, Descriptor, END_OF_RING, OWN,
};
use niclab_model::parts::descriptor_ring::{DescriptorRing, Found, Layout, Next, RingFault, Taken};
use proptest::prelude::*;

const FIRST: u64 = 0x1000;
/// Distance of descriptors. Those of a chain lie in no particular order.
const STRIDE: u64 = 64;
const LOOKS: u32 = 64;

/// A custom layout with the ownership word in the middle: number, next, number and owner, number.
struct Middle;

impl Layout for Middle {
    const WORDS: usize = 4;
    const OWNERSHIP: usize = 2;
    const STATUS: u64 = 0xff << 8;

    fn is_cards(&self, ownership: u64) -> bool {
        ownership & 1 != 0
    }

    fn next(&self, words: &[u64]) -> Next {
        if words[1] == 0 { Next::First } else { Next::Behind(STRIDE) }
    }
}

/// The host's side of a layout.
trait Host: Layout {
    /// Words of the descriptor with this number, owned by the card. `next` is the address of the next descriptor.
    fn give(number: u32, next: Option<u64>) -> Vec<u64>;
    /// The descriptor's number.
    fn number(words: &[u64]) -> u32;
    /// The ownership word with which the card returns the descriptor.
    fn done(words: &[u64], number: u32) -> u64;
}

impl Host for Middle {
    fn give(number: u32, next: Option<u64>) -> Vec<u64> {
        vec![number.into(), next.unwrap_or(0), u64::from(number) << 32 | 1, number.into()]
    }

    fn number(words: &[u64]) -> u32 {
        assert!(words[0] == words[3] && words[2] >> 32 == words[0], "a torn descriptor: {words:x?}");
        words[0] as u32
    }

    fn done(_: &[u64], number: u32) -> u64 {
        u64::from(number) << 32 | 2
    }
}

impl Host for Dec2114x {
    fn give(number: u32, next: Option<u64>) -> Vec<u64> {
        let flag = if next.is_some() { CHAINED } else { END_OF_RING };
        let control = flag | (number % 1_024);
        let second = next.unwrap_or(0);
        vec![u64::from(control) << 32 | u64::from(OWN), second << 32 | u64::from(number)]
    }

    fn number(words: &[u64]) -> u32 {
        let descriptor = Descriptor::new(words);
        let number = words[1] as u32;
        assert_eq!(descriptor.control % 1_024, number % 1_024, "a torn descriptor: {words:x?}");
        number
    }

    fn done(words: &[u64], number: u32) -> u64 {
        Descriptor::new(words).done(number & 0xffff)
    }
}

/// A ring of these descriptors with its host and its card.
struct Play<L: Host> {
    memory: BTreeMap<u64, u64>,
    ring: DescriptorRing<L>,
    addresses: Vec<u64>,
    /// Descriptors that the host began to give to the card. `storing` has the words that it has yet to store.
    given: u32,
    storing: VecDeque<(u64, u64)>,
    reaped: u32,
    /// Bytes of the descriptor that the card has read. `reading` has the addresses that it has yet to read.
    read: Vec<u8>,
    reading: VecDeque<u64>,
    is_looking: bool,
    tokens: u64,
    taken: Vec<Taken>,
    numbers: Vec<u32>,
}

impl<L: Host> Play<L> {
    fn new(layout: L, addresses: Vec<u64>, max_taken: usize) -> Self {
        let mut ring = DescriptorRing::new(layout, max_taken, LOOKS);
        ring.start(addresses[0]).unwrap();
        Self {
            memory: BTreeMap::new(),
            ring,
            addresses,
            given: 0,
            storing: VecDeque::new(),
            reaped: 0,
            read: Vec::new(),
            reading: VecDeque::new(),
            is_looking: false,
            tokens: 0,
            taken: Vec::new(),
            numbers: Vec::new(),
        }
    }

    fn word(&self, address: u64) -> u64 {
        self.memory.get(&address).copied().unwrap_or(0)
    }

    /// The host stores one word. It stores a descriptor's ownership word last.
    fn host_stores(&mut self) {
        if self.storing.is_empty() {
            let entries = self.addresses.len() as u32;
            if self.given - self.reaped == entries {
                return;
            }
            let place = self.given % entries;
            let address = self.addresses[place as usize];
            let next = self.addresses.get(place as usize + 1).copied();
            let words: Vec<_> = (0..).step_by(8).zip(L::give(self.given, next)).collect();
            let at = |(offset, word): (u64, u64)| (address + offset, word);
            let others = words.iter().enumerate().filter(|(index, _)| *index != L::OWNERSHIP);
            self.storing.extend(others.map(|(_, word)| at(*word)));
            self.storing.push_back(at(words[L::OWNERSHIP]));
            self.given += 1;
        }
        let Some((address, word)) = self.storing.pop_front() else { return };
        self.memory.insert(address, word);
        if self.storing.is_empty() {
            self.ring.demand();
        }
    }

    /// The host takes back descriptors that the card has finished, in order.
    fn host_reaps(&mut self) {
        let whole = self.given - u32::from(!self.storing.is_empty());
        if self.reaped == whole {
            return;
        }
        let address = self.addresses[self.reaped as usize % self.addresses.len()];
        let word = self.word(address + 8 * L::OWNERSHIP as u64);
        self.reaped += u32::from(word == L::done(&self.words(address), self.reaped));
    }

    fn words(&self, address: u64) -> Vec<u64> {
        (0..L::WORDS as u64).map(|index| self.word(address + 8 * index)).collect()
    }

    /// The card loads one word, in the order that the ring requests.
    fn card_reads(&mut self) {
        if !self.is_looking {
            self.tokens += 1;
            let Some(ranges) = self.ring.look(self.tokens) else { return };
            let words =
                ranges.iter().flat_map(|range| (range.address..range.address + range.bytes).step_by(8));
            self.reading.extend(words);
            self.is_looking = true;
        }
        if let Some(address) = self.reading.pop_front() {
            self.read.extend(self.word(address).to_le_bytes());
        }
        if self.reading.is_empty() {
            self.is_looking = false;
            match self.ring.on_data(self.tokens, &std::mem::take(&mut self.read), true) {
                Found::Taken(taken) => {
                    self.numbers.push(L::number(taken.words()));
                    self.taken.push(taken);
                }
                Found::Nothing => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The card finishes one of its descriptors.
    fn card_writes(&mut self, choice: usize) {
        if self.taken.is_empty() {
            return;
        }
        let taken = self.taken.swap_remove(choice % self.taken.len());
        let word = L::done(taken.words(), L::number(taken.words()));
        let written = self.ring.write_back(taken, word).unwrap();
        self.memory.insert(written.address, written.word);
    }

    fn step(&mut self, step: u8) {
        match step % 8 {
            0..3 => self.host_stores(),
            3 => self.host_reaps(),
            4..7 => self.card_reads(),
            _ => self.card_writes(step as usize / 8),
        }
    }

    /// Checks that the card took every descriptor once and in order, and returned it.
    fn check(mut self) {
        while !self.storing.is_empty() {
            self.host_stores();
        }
        for _ in 0..100 * self.addresses.len() {
            self.card_reads();
            self.card_writes(0);
            self.host_reaps();
        }
        assert_eq!(self.numbers, (0..self.given).collect::<Vec<_>>());
        assert_eq!((self.reaped, self.ring.is_exhausted()), (self.given, false));
    }
}

proptest! {
    #[test]
    fn no_descriptor_is_lost_duplicated_or_torn(
        steps in prop::collection::vec(any::<u8>(), 0..600),
        entries in 1_u64..9,
        max_taken in 1_usize..6,
    ) {
        let in_a_row: Vec<u64> = (0..entries).map(|entry| FIRST + entry * STRIDE).collect();
        // Multiples of three modulo a prime are all different.
        let chained = (0..entries).map(|entry| FIRST + entry * 3 % 11 * STRIDE).collect();
        let dec = Dec2114x { skip_bytes: STRIDE - BYTES };
        let mut plays = (Play::new(Middle, in_a_row, max_taken), Play::new(dec, chained, max_taken));
        for step in steps {
            plays.0.step(step);
            plays.1.step(step);
        }
        plays.0.check();
        plays.1.check();
    }
}

/// A started ring of DEC 21140 descriptors.
fn started(first: u64) -> DescriptorRing<Dec2114x> {
    let mut ring = DescriptorRing::new(Dec2114x::default(), 4, LOOKS);
    ring.start(first).unwrap();
    ring
}

/// The result of reading one descriptor with these words.
fn find(ring: &mut DescriptorRing<Dec2114x>, status: u32, control: u32, second: u32) -> Found {
    assert!(ring.look(7).is_some());
    let words = [u64::from(control) << 32 | u64::from(status), u64::from(second) << 32];
    ring.on_data(7, &words.map(u64::to_le_bytes).concat(), true)
}

fn taken(found: Found) -> Taken {
    match found {
        Found::Taken(taken) => taken,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_ownership_word_is_loaded_first() {
    let ranges = started(FIRST).look(1).unwrap();
    assert_eq!(
        ranges.iter().map(|range| (range.address, range.bytes)).collect::<Vec<_>>(),
        [(FIRST, 8), (FIRST + 8, 8)]
    );
    let mut ring = DescriptorRing::new(Middle, 1, LOOKS);
    ring.start(FIRST).unwrap();
    let ranges = ring.look(1).unwrap();
    assert_eq!(
        ranges.iter().map(|range| (range.address, range.bytes)).collect::<Vec<_>>(),
        [(FIRST + 16, 8), (FIRST, 16), (FIRST + 24, 8)]
    );
    assert_eq!(ring.look(2), None, "one read at a time");
}

#[test]
fn a_cyclic_chain_ends_when_the_card_has_all_descriptors() {
    let mut ring = started(FIRST);
    let next = FIRST as u32 + 0x40;
    let first = taken(find(&mut ring, OWN, CHAINED, next));
    assert!(!ring.is_exhausted());
    let second = taken(find(&mut ring, OWN, CHAINED, FIRST as u32));
    ring.demand();
    assert_eq!((ring.look(7), ring.is_exhausted()), (None, true));
    assert_eq!(ring.write_back(second, 0).map(|back| back.address), Some(next.into()));
    assert_eq!(ring.look(7), None, "the next one is still the card's");
    assert!(ring.write_back(first, 0).is_some());
    assert!(ring.look(7).is_some());
}

#[test]
fn each_poll_demand_reads_a_bounded_number_of_descriptors() {
    let mut ring = started(FIRST);
    let mut looks = 0;
    while ring.look(7).is_some() {
        looks += 1;
        // The card finishes the descriptor, and the host gives it to the card again at once.
        let words = [u64::from(END_OF_RING) << 32 | u64::from(OWN), 0];
        let own = taken(ring.on_data(7, &words.map(u64::to_le_bytes).concat(), true));
        assert!(ring.write_back(own, 0).is_some());
    }
    assert_eq!(looks, LOOKS);
    ring.demand();
    assert!(ring.look(7).is_some());
}

#[test]
fn a_card_holds_at_most_its_limit_of_descriptors() {
    let mut ring = started(FIRST);
    let mut all: Vec<Taken> = (0..4).map(|_| taken(find(&mut ring, OWN, 0, 0))).collect();
    assert_eq!((ring.look(7), ring.is_exhausted()), (None, true));
    let back = ring.write_back(all.remove(2), 0).unwrap();
    assert_eq!((back.address, back.word), (FIRST + 2 * BYTES, 0));
    assert!(ring.look(7).is_some());
    all.into_iter().for_each(Taken::void);
}

#[test]
fn invalid_rings_are_reported_with_the_fault() {
    let mut ring = started(FIRST);
    assert_eq!(ring.start(0x2000), Err(RingFault::Moved { address: 0x2000 }), "while the ring is started");
    assert!(ring.look(7).is_some(), "the ring still works");
    assert!(matches!(
        ring.on_data(7, &[], false),
        Found::Broken(RingFault::OutsideMemory { address: FIRST })
    ));
    assert_eq!(ring.start(FIRST + 4), Err(RingFault::Unaligned { address: FIRST + 4 }));
    assert!(!ring.is_started());
    ring.start(FIRST).unwrap();
    let found = find(&mut ring, OWN, CHAINED, 0x2004);
    assert!(matches!(found, Found::Broken(RingFault::Unaligned { address: 0x2004 })));
    // A descriptor at the end of the address space.
    ring.start(u64::MAX - 7).unwrap();
    let last = taken(find(&mut ring, OWN, 0, 0));
    assert!(ring.is_exhausted(), "no descriptor follows it");
    last.void();
}

#[test]
fn data_read_for_a_stopped_ring_is_stale() {
    let mut ring = started(FIRST);
    let own = taken(find(&mut ring, OWN, 0, 0));
    assert!(ring.look(8).is_some());
    ring.stop();
    assert!(matches!(ring.on_data(8, &[0xff; 16], true), Found::Stale));
    ring.start(0x2000).unwrap();
    assert!(matches!(ring.on_data(8, &[0xff; 16], true), Found::Stale));
    // The same descriptor in a restarted ring.
    ring.stop();
    ring.start(FIRST).unwrap();
    let again = taken(find(&mut ring, OWN, 0, 0));
    assert_eq!(ring.write_back(own, 0), None);
    assert!(ring.write_back(again, 0).is_some());
    assert!(matches!(find(&mut ring, 0, 0, 0), Found::Nothing));
    assert_eq!(ring.look(9), None, "until the host demands it");
}
