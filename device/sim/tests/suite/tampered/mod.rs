//! A card with a seeded bug: a wrapper around a model that spoils one of 50 outputs.

use niclab_model::models::ultra::wire::{Header, Kind, Packet};
use niclab_model::nic::registry::AnyNic;
use niclab_model::nic::{DescriptorQueue, HostRange, Input, Nic, Output};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::random::Random;
use niclab_model::time::Time;
use smallvec::SmallVec;

/// The seeded bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tamper {
    /// A slice's burst, whose last word is its status, is not written.
    DropSlice,
    /// A slice is written without its status word.
    DropSliceStatus,
    /// A status line is not written.
    DropStatusLine,
    /// A slice has a wrong number.
    WrongSliceNumber,
    /// A packet has a wrong number, with a correct check sequence.
    WrongPacketNumber,
    /// A slice names a wrong sender port.
    WrongSource,
    /// A word of a payload is wrong.
    WrongPayload,
    /// A packet is sent twice, the second time with the next number.
    DoublePacket,
    /// An interrupt is not raised.
    DropInterrupt,
    /// A slice is written to the index after its own.
    WrongSlice,
    /// A Match card does not write an event.
    DropEvent,
    /// An event has a wrong number.
    WrongEventNumber,
    /// An event has wrong match bits.
    WrongMatchBits,
    /// An event has a wrong offset of the data.
    WrongOffset,
    /// An event is visible before its data.
    EarlyEvent,
    /// A counter is not written.
    DropCounter,
    /// Data is not stored.
    DropData,
    /// Data is stored at a higher address.
    WrongDataPlace,
    /// Data is stored in the memory after its page.
    DataBeyondPage,
}

/// Number of words in a status line.
const STATUS_LINE_WORDS: usize = 8;
/// Number of words in an event.
const EVENT_WORDS: usize = 11;
/// Number of words in a counter.
const COUNTER_WORDS: usize = 2;
/// One of this number of outputs is spoiled.
const ONE_IN: u32 = 50;

impl Tamper {
    pub const ALL: [Self; 10] = [
        Self::DropSlice,
        Self::DropSliceStatus,
        Self::DropStatusLine,
        Self::WrongSliceNumber,
        Self::WrongPacketNumber,
        Self::WrongSource,
        Self::WrongPayload,
        Self::DoublePacket,
        Self::DropInterrupt,
        Self::WrongSlice,
    ];

    /// Bugs for all cards with a receive queue of slices, with any frame format.
    pub const SLICES: [Self; 8] = [
        Self::DropSlice,
        Self::DropSliceStatus,
        Self::DropStatusLine,
        Self::WrongSliceNumber,
        Self::WrongSource,
        Self::WrongPayload,
        Self::DropInterrupt,
        Self::WrongSlice,
    ];

    /// Bugs for Match cards.
    pub const MATCH: [Self; 11] = [
        Self::DropEvent,
        Self::WrongEventNumber,
        Self::WrongMatchBits,
        Self::WrongOffset,
        Self::EarlyEvent,
        Self::DropCounter,
        Self::DropData,
        Self::WrongDataPlace,
        Self::DataBeyondPage,
        Self::DropStatusLine,
        Self::DropInterrupt,
    ];

    /// Bugs of Match cards that are found even if device faults mislead their programs.
    pub const AMID_FAULTS: [Self; 5] =
        [Self::DropEvent, Self::WrongEventNumber, Self::DropData, Self::DataBeyondPage, Self::DropInterrupt];

    /// The check that must find the bug.
    pub fn found_by(self) -> &'static str {
        match self {
            Self::DropSlice | Self::DropStatusLine | Self::DropSliceStatus | Self::DropInterrupt => {
                "ledger-sums"
            }
            Self::WrongSliceNumber | Self::WrongSlice => "drained",
            Self::WrongPacketNumber => "nothing-lost",
            Self::WrongSource => "right-port",
            Self::WrongPayload | Self::WrongMatchBits | Self::WrongOffset => "right-contents",
            Self::WrongEventNumber => "flow-control",
            Self::DropEvent | Self::DropCounter | Self::DropData => "ledger-sums",
            Self::EarlyEvent | Self::WrongDataPlace | Self::DataBeyondPage => "right-memory",
            Self::DoublePacket => "nothing-duplicated",
        }
    }
}

/// The card with the bug.
pub struct Tampered {
    tamper: Tamper,
    random: Random,
    nic: AnyNic,
    again: Option<Output>,
}

impl Tampered {
    pub fn boxed(tamper: Tamper, seed: u64, node: u16, nic: AnyNic) -> AnyNic {
        let random = Random::new(seed, (1 << 43) + u64::from(node));
        Box::new(Self { tamper, random, nic, again: None })
    }

    fn hits(&mut self) -> bool {
        self.random.below(ONE_IN) == 0
    }

    /// The output of a Match card with the bug; none if the card omits it.
    fn spoil_match(&mut self, mut output: Output) -> Option<Output> {
        match (&mut output, self.tamper) {
            (Output::DmaWrite { words, .. }, Tamper::DropEvent)
                if words.len() == EVENT_WORDS && self.hits() =>
            {
                return None;
            }
            (Output::DmaWrite { words, .. }, Tamper::DropCounter)
                if words.len() == COUNTER_WORDS && self.hits() =>
            {
                return None;
            }
            (Output::DmaWrite { words, .. }, Tamper::WrongEventNumber)
                if words.len() == EVENT_WORDS && self.hits() =>
            {
                words[EVENT_WORDS - 1] += 1 << 32;
            }
            (Output::DmaWrite { words, .. }, Tamper::WrongMatchBits)
                if words.len() == EVENT_WORDS && self.hits() =>
            {
                words[1] ^= 1 << 20;
            }
            (Output::DmaWrite { words, .. }, Tamper::WrongOffset)
                if words.len() == EVENT_WORDS && words[4] > 8 && self.hits() =>
            {
                words[5] += 1;
            }
            (Output::DmaWrite { words, at, .. }, Tamper::EarlyEvent)
                if words.len() == EVENT_WORDS && words[4] > 0 && self.hits() =>
            {
                *at = Time::ZERO;
            }
            (Output::DmaFrame { .. }, Tamper::DropData) if self.hits() => return None,
            (Output::DmaFrame { ranges, .. }, Tamper::WrongDataPlace) if self.hits() => {
                ranges.iter_mut().for_each(|range| range.address += 8);
            }
            (Output::DmaFrame { ranges, .. }, Tamper::DataBeyondPage) if self.hits() => {
                ranges.iter_mut().for_each(|range| range.address |= 4096);
            }
            _ => {}
        }
        Some(output)
    }

    /// The output of a card with the bug; none if the card omits it.
    fn spoil(&mut self, output: Output) -> Option<Output> {
        let mut output = self.spoil_match(output)?;
        match (&mut output, self.tamper) {
            (Output::DmaWrite { words, address, .. }, tamper) => {
                let is_line = words.len() == STATUS_LINE_WORDS && address.is_multiple_of(1 << 32);
                if is_line == (tamper == Tamper::DropStatusLine) && self.hits() {
                    let count = words.len();
                    match tamper {
                        Tamper::DropSlice | Tamper::DropStatusLine => return None,
                        Tamper::DropSliceStatus => drop(words.pop()),
                        Tamper::WrongSliceNumber => words[count - 1] += 1 << 32,
                        Tamper::WrongSource => words[count - 1] ^= 1 << 16,
                        Tamper::WrongPayload if count > 3 => words[0] ^= 1,
                        Tamper::WrongSlice => *address += 88,
                        _ => {}
                    }
                }
            }
            (
                Output::Frame { frame, at, tail, message },
                Tamper::WrongPacketNumber | Tamper::DoublePacket,
            ) => {
                if let Some(wrong) = renumbered(frame).filter(|_| self.hits()) {
                    if self.tamper == Tamper::WrongPacketNumber {
                        *frame = wrong.into();
                    } else {
                        let frame = wrong.into();
                        self.again = Some(Output::Frame { at: *at, tail: *tail, frame, message: *message });
                    }
                }
            }
            (Output::Interrupt { .. }, Tamper::DropInterrupt) if self.hits() => return None,
            _ => {}
        }
        Some(output)
    }
}

/// The packet with data, with the next number.
fn renumbered(frame: &[u8]) -> Option<niclab_model::nic::FrameBytes> {
    let packet = Packet::new_checked(frame).ok()?;
    let header = Header::parse(&packet).ok()?;
    let words: Vec<u64> = packet.words().collect();
    let is_data = matches!(header.kind, Kind::Data { .. });
    is_data.then(|| Header { number: header.number.wrapping_add(1), ..header }.emit(&words))
}

impl Nic for Tampered {
    fn handle(&mut self, now: Time, input: Input<'_>, node: &mut NodeBus) {
        self.nic.handle(now, input, node);
    }

    fn memory_named_by(&self, request: &[u8]) -> SmallVec<[HostRange; 2]> {
        self.nic.memory_named_by(request)
    }

    fn poll_output(&mut self) -> Option<Output> {
        if let Some(again) = self.again.take() {
            return Some(again);
        }
        loop {
            let output = self.nic.poll_output()?;
            if let Some(output) = self.spoil(output) {
                return Some(output);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.nic.poll_timeout()
    }

    fn descriptors_wanted(&self, queue: DescriptorQueue) -> Option<usize> {
        self.nic.descriptors_wanted(queue)
    }

    fn accepts_store(&self, port: u32) -> bool {
        self.nic.accepts_store(port)
    }

    fn is_open(&self, port: u32) -> bool {
        self.nic.is_open(port)
    }
}

crate::observed_as_its_nic!(Tampered);
