//! Parameters of a GAMMA card, and what the drivers of a cluster agree on.

use alloc::sync::Arc;

use niclab_abi::gamma::CHECK_BYTES;
use niclab_abi::rings::{RING_MAX_BUFFER_BYTES, RingTerms};
use thiserror::Error;

use crate::fabric::ethernet::{HEADER_BYTES, mac_of_endpoint};
use crate::fabric::link::LinkConfig;
use crate::models::gamma::wire::{HEAD_BYTES, MAC_ENDPOINT, PROTOCOL, word_of};
use crate::platform::profile::Profile;
use crate::time::Span;

/// Bits of a byte, times picoseconds of a second. Ours: units.
const PS_BITS: u64 = 8_000_000_000_000;

/// Why a card cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The node number is not in the cluster.
    #[error("node {node} is not one of the cluster's {nodes} nodes, which are numbered from 0")]
    Node {
        /// This node.
        node: u16,
        /// Nodes of the cluster.
        nodes: u32,
    },
    /// The receive ring has fewer buffers than the windows of all senders need (section 3).
    #[error(
        "{nodes} nodes need {senders} x {window} = {data} buffers for their windows \
         and {acknowledgements} for acknowledgements, {needed} in all, but receive_buffers = {buffers}: \
         use at most {most} nodes, a smaller window_frames, or more receive_buffers"
    )]
    Buffers {
        /// Nodes of the cluster.
        nodes: u32,
        /// Nodes that may send to the same node.
        senders: u32,
        /// Frames of each sender that may be in flight.
        window: u32,
        /// Buffers for the windows of all senders.
        data: u64,
        /// Buffers for the acknowledgements of all senders.
        acknowledgements: u64,
        /// Sum of `data` and `acknowledgements`.
        needed: u64,
        /// Buffers of the receive ring.
        buffers: u32,
        /// Maximum cluster size for this ring.
        most: u32,
    },
    /// The MTU leaves no payload, or is longer than a receive buffer.
    #[error(
        "the cluster's links carry frames of {mtu_bytes} bytes: set mtu_bytes to a value from {least} to {most}"
    )]
    Mtu {
        /// Maximum bytes of a frame after the Ethernet header.
        mtu_bytes: u32,
        /// Minimum.
        least: u32,
        /// Maximum.
        most: u32,
    },
    /// The receive FIFO of a CPU-driven card is too small: received frames wait in the FIFO.
    #[error(
        "{nodes} nodes with windows of {window} frames need {senders} x ({window} + {acknowledgements}) x \
         {frame_bytes} = {needed} bytes, since a CPU-driven card keeps received frames in its FIFO, but \
         receive_fifo_bytes = {bytes}: set window_frames = 0, as the paper's driver does, or set \
         receive_fifo_bytes to {needed} or more"
    )]
    FifoWindows {
        /// Nodes of the cluster.
        nodes: u32,
        /// Nodes that may send to the same node.
        senders: u32,
        /// Frames of each sender that may be in flight.
        window: u32,
        /// Acknowledgements for one window.
        acknowledgements: u32,
        /// The longest frame.
        frame_bytes: u32,
        /// Bytes for the windows and acknowledgements of all senders.
        needed: u64,
        /// Bytes of the FIFO.
        bytes: u32,
    },
    /// A FIFO is smaller than the longest frame.
    #[error(
        "{key} = {bytes} has no room for a frame of {frame_bytes} bytes: set {key} to {frame_bytes} or more"
    )]
    Fifo {
        /// The parameter that sets the FIFO's size.
        key: &'static str,
        /// Bytes of the FIFO.
        bytes: u32,
        /// The longest frame.
        frame_bytes: u32,
    },
}

/// Parameters of a card.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's number.
    pub node: u16,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Maximum bytes of a frame after the Ethernet header.
    pub mtu_bytes: u32,
    /// Line rate of the card, in bits per second.
    pub line_rate_bits_per_s: u64,
    /// The processor drives each transfer, and there are no rings (section 4: the 3C595's mode).
    pub is_cpu_driven: bool,
    /// Bytes of the transmit FIFO.
    pub transmit_fifo_bytes: u32,
    /// Bytes of a frame that must be in the FIFO before the frame begins to leave; zero: all bytes.
    pub transmit_threshold_bytes: u32,
    /// Bytes of the receive FIFO.
    pub receive_fifo_bytes: u32,
    /// Burst in which the card stores a frame while it receives it, in bytes; zero: after the last byte.
    pub receive_burst_bytes: u32,
    /// Descriptors of each driver's receive ring.
    pub receive_buffers: u32,
    /// Frames that may be in flight from one node to another; zero: any number.
    pub window_frames: u32,
    /// Frames after which the receiver acknowledges a window; zero: after the whole window.
    pub acknowledge_every: u32,
    /// Received frames after which the card interrupts its driver; zero: the driver polls.
    pub interrupt_frames: u32,
    /// Nanoseconds after which the card interrupts for fewer frames.
    pub interrupt_delay_ns: u32,
    /// Prices.
    pub profile: Arc<Profile>,
}

impl Config {
    /// Checks that a card with these parameters can be built.
    ///
    /// # Errors
    /// [`ConfigError`] names the first invalid parameter.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self { node, nodes, mtu_bytes, receive_buffers: buffers, window_frames: window, .. } = *self;
        if u32::from(node) >= nodes {
            return Err(ConfigError::Node { node, nodes });
        }
        let (head, header) = (HEAD_BYTES as u32, HEADER_BYTES as u32);
        // At least one byte of data between the header and the check sequence.
        let (least, most) = (head - header + CHECK_BYTES + 16, RING_MAX_BUFFER_BYTES - header);
        if !(least..=most).contains(&mtu_bytes) {
            return Err(ConfigError::Mtu { mtu_bytes, least, most });
        }
        let frame_bytes = mtu_bytes + header;
        let fifos = [
            ("transmit_fifo_bytes", self.transmit_fifo_bytes),
            ("receive_fifo_bytes", self.receive_fifo_bytes),
        ];
        if let Some((key, bytes)) = fifos.into_iter().find(|(_, bytes)| *bytes < frame_bytes) {
            return Err(ConfigError::Fifo { key, bytes, frame_bytes });
        }
        let senders = nodes - 1;
        let of_window = acknowledgements(window, self.acknowledge_every);
        if self.is_cpu_driven {
            let bytes = self.receive_fifo_bytes;
            let needed = self.needed_buffers() * u64::from(frame_bytes);
            let fits = needed <= u64::from(bytes);
            let refused = ConfigError::FifoWindows {
                nodes,
                senders,
                window,
                acknowledgements: of_window,
                frame_bytes,
                needed,
                bytes,
            };
            return if fits { Ok(()) } else { Err(refused) };
        }
        let (data, needed) = (self.window_buffers(), self.needed_buffers());
        if needed > u64::from(buffers) {
            let most = buffers / (window + of_window) + 1;
            let acknowledgements = needed - data;
            return Err(ConfigError::Buffers {
                nodes,
                senders,
                window,
                data,
                acknowledgements,
                needed,
                buffers,
                most,
            });
        }
        Ok(())
    }

    /// Buffers for the windows of all other nodes (section 3: 99 x 8 = 792).
    fn window_buffers(&self) -> u64 {
        u64::from(self.nodes - 1) * u64::from(self.window_frames)
    }

    /// Buffers for the acknowledgements of all other nodes (section 3: 99, one acknowledgement for each whole window).
    fn needed_buffers(&self) -> u64 {
        let of_window = acknowledgements(self.window_frames, self.acknowledge_every);
        self.window_buffers() + u64::from(self.nodes - 1) * u64::from(of_window)
    }

    /// What the drivers of the cluster agree on. A card that passed [`Self::check`] has the buffers.
    pub fn terms(&self) -> RingTerms {
        let Self { window_frames: window, acknowledge_every, .. } = *self;
        let receive_buffers = if self.is_cpu_driven { 0 } else { self.receive_buffers };
        let acknowledge_every = every(window, acknowledge_every);
        let other_buffers = u64::from(receive_buffers).saturating_sub(self.needed_buffers()) as u32;
        let station = word_of(mac_of_endpoint(self.node, MAC_ENDPOINT));
        RingTerms {
            receive_buffers,
            window,
            acknowledge_every,
            other_buffers,
            station,
            frame_bytes: self.mtu_bytes + HEADER_BYTES as u32 - CHECK_BYTES,
            interrupt_frames: self.interrupt_frames,
            interrupt_delay_ns: self.interrupt_delay_ns,
            protocol: PROTOCOL.into(),
            // The card fills this field in.
            incarnation: 0,
            reserved: 0,
        }
    }

    /// How long the wire takes for the bytes of a frame.
    pub fn line_time(&self, frame_bytes: usize) -> Span {
        self.span(frame_bytes as u64)
    }

    fn span(&self, bytes: u64) -> Span {
        Span::from_ps(bytes * (PS_BITS / self.line_rate_bits_per_s.max(1)))
    }

    /// Wire time of a frame with preamble, check sequence and inter-frame gap.
    pub fn line_slot(&self, frame_bytes: usize) -> (Span, Span) {
        let ethernet = LinkConfig::ethernet(self.line_rate_bits_per_s);
        let on_wire =
            (frame_bytes as u64).max(ethernet.min_frame_bytes.into()) + u64::from(ethernet.framing_bytes);
        (self.span(on_wire), self.span(on_wire + u64::from(ethernet.gap_bytes)))
    }
}

/// Frames after which the receiver acknowledges a window, for `acknowledge_every` as configured.
fn every(window: u32, acknowledge_every: u32) -> u32 {
    if acknowledge_every == 0 { window } else { acknowledge_every.min(window) }
}

/// Maximum acknowledgements of one window that wait in the sender's ring. The sender sends no more frames before it
/// reads one of them.
pub(super) fn acknowledgements(window: u32, acknowledge_every: u32) -> u32 {
    window.checked_div(every(window, acknowledge_every)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(nodes: u32) -> Config {
        Config {
            node: 0,
            nodes,
            mtu_bytes: 1_500,
            line_rate_bits_per_s: 100_000_000,
            is_cpu_driven: false,
            transmit_fifo_bytes: 2_048,
            transmit_threshold_bytes: 128,
            receive_fifo_bytes: 2_048,
            receive_burst_bytes: 64,
            receive_buffers: 1_024,
            window_frames: 8,
            acknowledge_every: 0,
            interrupt_frames: 0,
            interrupt_delay_ns: 0,
            profile: Profile::default().into(),
        }
    }

    #[test]
    fn a_hundred_nodes_leave_133_of_1_024_buffers() {
        let config = config(100);
        assert_eq!(config.check(), Ok(()));
        assert_eq!((config.window_buffers(), config.needed_buffers()), (792, 891));
        assert_eq!((config.terms().other_buffers, config.terms().acknowledge_every), (133, 8));
    }

    #[test]
    fn too_many_nodes_are_refused_with_the_arithmetic() {
        assert_eq!(config(114).check(), Ok(()));
        let error = config(115).check().unwrap_err();
        let text = alloc::string::ToString::to_string(&error);
        for part in ["115 nodes", "114 x 8 = 912", "1026", "at most 114 nodes"] {
            assert!(text.contains(part), "{text}: {part}");
        }
        assert_eq!(
            Config { window_frames: 0, ..config(5_000) }.check(),
            Ok(()),
            "no window, so no buffers are reserved"
        );
    }

    #[test]
    fn each_acknowledgement_of_a_window_has_a_buffer() {
        // Windows of 8 frames: with an acknowledgement after every four frames, two wait. After every three frames, two
        // wait as well, and the last two frames are not acknowledged.
        for (acknowledge_every, of_window) in [(0, 1), (8, 1), (9, 1), (5, 1), (4, 2), (3, 2), (1, 8)] {
            let config = Config { acknowledge_every, ..config(11) };
            assert_eq!(config.needed_buffers(), 10 * (8 + of_window), "{acknowledge_every}");
        }
        let often = Config { acknowledge_every: 1, ..config(100) };
        let text = alloc::string::ToString::to_string(&often.check().unwrap_err());
        for part in ["99 x 8 = 792", "and 792 for acknowledgements, 1584 in all", "at most 65 nodes"] {
            assert!(text.contains(part), "{text}: {part}");
        }
        assert_eq!(Config { acknowledge_every: 1, ..config(65) }.check(), Ok(()));
    }

    #[test]
    fn windows_of_a_cpu_driven_card_must_fit_into_its_fifo() {
        let driven = |nodes| Config { is_cpu_driven: true, window_frames: 2, ..config(nodes) };
        let text = alloc::string::ToString::to_string(&driven(3).check().unwrap_err());
        assert!(text.contains("2 x (2 + 1) x 1514 = 9084 bytes"), "{text}");
        assert_eq!(Config { receive_fifo_bytes: 9_084, ..driven(3) }.check(), Ok(()));
        let without = Config { window_frames: 0, ..driven(100) };
        assert_eq!((without.check(), without.terms().receive_buffers), (Ok(()), 0));
    }

    #[test]
    fn the_wire_takes_80_ns_a_byte_and_6_72_us_at_least() {
        let (first, slot) = config(2).line_slot(1_514);
        assert_eq!((first.as_ps(), slot.as_ps()), (1_526 * 80_000, 1_538 * 80_000));
        assert_eq!(config(2).line_slot(20).1.as_ps(), 6_720_000);
    }
}
