//! Cards with a seeded bug, with which tests check that the simulator's checker finds bugs. A wrapper around the card's
//! model applies the bug to one in 50 of the outputs that it concerns, at random.

use niclab_model::models::ultra::wire::{Header, Packet, PacketKind};
use niclab_model::nic::registry::AnyNic;
use niclab_model::nic::{DescriptorQueue, HostRange, Input, Nic, Output};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::random::Random;
use niclab_model::time::Time;
use smallvec::SmallVec;

/// A seeded bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tamper {
    /// The card does not write a slice.
    DropSlice,
    /// The card writes a slice without its status word, which is the last word.
    DropSliceStatus,
    /// The card does not write a status line.
    DropStatusLine,
    /// The status word of a slice has a wrong sequence number.
    WrongSliceNumber,
    /// A packet has a wrong sequence number, but a correct check sequence.
    WrongPacketNumber,
    /// The status word of a slice has a wrong source port.
    WrongSource,
    /// A word of a payload is wrong.
    WrongPayload,
    /// The card sends a packet twice, the second time with the next sequence number.
    DoublePacket,
    /// The card does not raise an interrupt.
    DropInterrupt,
    /// The card writes a slice to the next index of the receive queue.
    WrongSlice,
    /// A Match card does not write an event. The bugs from here on are those of Match cards.
    DropEvent,
    /// An event has a wrong sequence number.
    WrongEventNumber,
    /// An event has wrong match bits.
    WrongMatchBits,
    /// An event has a wrong offset of its data.
    WrongOffset,
    /// An event is visible before its data.
    EarlyEvent,
    /// The card does not write a counter.
    DropCounter,
    /// The card does not store the data of a message.
    DropData,
    /// The card stores data at an address that is 8 bytes too high.
    WrongDataPlace,
    /// The card stores data beyond the page that it belongs to.
    DataBeyondPage,
}

/// Number of words in a status line.
const STATUS_LINE_WORDS: usize = 8;
/// Number of words in an event.
const EVENT_WORDS: usize = 11;
/// Number of words in a counter.
const COUNTER_WORDS: usize = 2;
/// The bug affects one in this many outputs.
const ONE_IN: u32 = 50;

impl Tamper {
    /// Bugs for ULTRA cards.
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

    /// Bugs for all cards whose receive queue has slices. They do not depend on the frame format.
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

    /// Bugs for Match cards that the checker finds although injected device faults cause errors, too.
    pub const AMID_FAULTS: [Self; 5] =
        [Self::DropEvent, Self::WrongEventNumber, Self::DropData, Self::DataBeyondPage, Self::DropInterrupt];

    /// The name of the check that must fail because of the bug.
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

/// A card with a seeded bug.
pub struct Tampered {
    tamper: Tamper,
    random: Random,
    nic: AnyNic,
    /// The second packet of [`Tamper::DoublePacket`], which is the next output.
    duplicate: Option<Output>,
}

impl Tampered {
    pub fn boxed(tamper: Tamper, seed: u64, node: u16, nic: AnyNic) -> AnyNic {
        let random = Random::new(seed, (1 << 43) + u64::from(node));
        Box::new(Self { tamper, random, nic, duplicate: None })
    }

    /// Whether the bug affects this output.
    fn is_affected(&mut self) -> bool {
        self.random.below(ONE_IN) == 0
    }

    /// Applies a bug of Match cards to an output; `None` if the bug drops the output. The words of an event are the
    /// fields of `niclab_abi::matching::ListEvent`.
    fn apply_match_bug(&mut self, mut output: Output) -> Option<Output> {
        match (&mut output, self.tamper) {
            (Output::DmaWrite { words, .. }, Tamper::DropEvent)
                if words.len() == EVENT_WORDS && self.is_affected() =>
            {
                return None;
            }
            (Output::DmaWrite { words, .. }, Tamper::DropCounter)
                if words.len() == COUNTER_WORDS && self.is_affected() =>
            {
                return None;
            }
            (Output::DmaWrite { words, .. }, Tamper::WrongEventNumber)
                if words.len() == EVENT_WORDS && self.is_affected() =>
            {
                words[EVENT_WORDS - 1] += 1 << 32;
            }
            (Output::DmaWrite { words, .. }, Tamper::WrongMatchBits)
                if words.len() == EVENT_WORDS && self.is_affected() =>
            {
                words[1] ^= 1 << 20;
            }
            (Output::DmaWrite { words, .. }, Tamper::WrongOffset)
                if words.len() == EVENT_WORDS && words[4] > 8 && self.is_affected() =>
            {
                words[5] += 1;
            }
            (Output::DmaWrite { words, at, .. }, Tamper::EarlyEvent)
                if words.len() == EVENT_WORDS && words[4] > 0 && self.is_affected() =>
            {
                *at = Time::ZERO;
            }
            (Output::DmaFrame { .. }, Tamper::DropData) if self.is_affected() => return None,
            (Output::DmaFrame { ranges, .. }, Tamper::WrongDataPlace) if self.is_affected() => {
                ranges.iter_mut().for_each(|range| range.address += 8);
            }
            (Output::DmaFrame { ranges, .. }, Tamper::DataBeyondPage) if self.is_affected() => {
                ranges.iter_mut().for_each(|range| range.address |= 4096);
            }
            _ => {}
        }
        Some(output)
    }

    /// Applies the bug to an output; `None` if the bug drops the output.
    fn apply_bug(&mut self, output: Output) -> Option<Output> {
        let mut output = self.apply_match_bug(output)?;
        match (&mut output, self.tamper) {
            (Output::DmaWrite { words, address, .. }, tamper) => {
                // In the simulated host, the addresses of status lines are multiples of 2^36, unlike those of slices.
                let is_line = words.len() == STATUS_LINE_WORDS && address.is_multiple_of(1 << 32);
                if is_line == (tamper == Tamper::DropStatusLine) && self.is_affected() {
                    let count = words.len();
                    match tamper {
                        Tamper::DropSlice | Tamper::DropStatusLine => return None,
                        Tamper::DropSliceStatus => drop(words.pop()),
                        Tamper::WrongSliceNumber => words[count - 1] += 1 << 32,
                        Tamper::WrongSource => words[count - 1] ^= 1 << 16,
                        Tamper::WrongPayload if count > 3 => words[0] ^= 1,
                        // A slice has 88 bytes.
                        Tamper::WrongSlice => *address += 88,
                        _ => {}
                    }
                }
            }
            (
                Output::Frame { frame, at, tail, message },
                Tamper::WrongPacketNumber | Tamper::DoublePacket,
            ) => {
                if let Some(wrong) = renumbered(frame).filter(|_| self.is_affected()) {
                    if self.tamper == Tamper::WrongPacketNumber {
                        *frame = wrong.into();
                    } else {
                        let frame = wrong.into();
                        self.duplicate =
                            Some(Output::Frame { at: *at, tail: *tail, frame, message: *message });
                    }
                }
            }
            (Output::Interrupt { .. }, Tamper::DropInterrupt) if self.is_affected() => return None,
            _ => {}
        }
        Some(output)
    }
}

/// A copy of the packet with the next sequence number; `None` if the frame is not a data packet.
fn renumbered(frame: &[u8]) -> Option<niclab_model::nic::FrameBytes> {
    let packet = Packet::new_checked(frame).ok()?;
    let header = Header::parse(&packet).ok()?;
    let words: Vec<u64> = packet.words().collect();
    let is_data = matches!(header.kind, PacketKind::Data { .. });
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
        if let Some(duplicate) = self.duplicate.take() {
            return Some(duplicate);
        }
        loop {
            let output = self.nic.poll_output()?;
            if let Some(output) = self.apply_bug(output) {
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
