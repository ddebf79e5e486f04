//! A card whose device the front end has stopped, and may start again where it stopped.
//!
//! QEMU 11.1 sends the same messages when its machine stops (a debugger, QMP `stop`) and when a driver resets the
//! device: each queue is disabled, and GET_VRING_BASE stops it. Only the next start tells the two apart. After a stop
//! of the machine every queue continues at the index and the addresses at which it stopped; after a reset the queues
//! are new. Until then the card keeps its state, and neither reads nor writes the guest's memory, which may belong to
//! another program after a reset.

use niclab_model::fabric::ethernet::{Frame, FrameClass, node_of_mac};
use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Passage;
use smallvec::SmallVec;

/// Maximum of the frames held for one card, in bytes. Further frames are dropped: a peer could send without end to a
/// stopped device.
pub const MAX_HELD_BYTES: usize = 16 << 20;

/// What a held frame counts in addition to its bytes.
const HELD_FRAME_BYTES: usize = 128;

/// A frame that arrived for a card while its device was stopped.
#[derive(Debug)]
pub struct HeldFrame {
    /// When its first and its last byte arrived.
    pub passage: Passage,
    /// The frame.
    pub frame: SharedFrame,
    /// The message that it carries.
    pub message: Option<TraceTag>,
    /// Its frame class.
    pub class: FrameClass,
}

/// What waits for a stopped device to start again.
#[derive(Debug, Default)]
pub struct Stopped {
    frames: Vec<HeldFrame>,
    held_bytes: usize,
    /// The nodes that sent these frames.
    senders: SmallVec<[u16; 4]>,
    dropped: u64,
}

impl Stopped {
    /// Holds a frame until the device starts, or drops it when there is no room.
    pub fn hold(&mut self, held: HeldFrame) {
        let bytes = held.frame.len() + HELD_FRAME_BYTES;
        if self.held_bytes + bytes > MAX_HELD_BYTES {
            self.dropped += 1;
            return;
        }
        let source = Frame::new_checked(&held.frame).and_then(|frame| node_of_mac(&frame.source()));
        let sender = held.message.map(|message| message.node).or(source);
        self.senders.extend(sender.filter(|sender| !self.senders.contains(sender)));
        self.held_bytes += bytes;
        self.frames.push(held);
    }

    /// Whether a frame of `node` is held: its sender gets no reply before the device starts.
    pub fn holds_from(&self, node: usize) -> bool {
        self.senders.iter().any(|sender| usize::from(*sender) == node)
    }

    /// The held frames in order of arrival, and the number of dropped ones.
    pub fn into_frames(self) -> (Vec<HeldFrame>, u64) {
        (self.frames, self.dropped)
    }
}

/// Whether the device of a card runs.
#[derive(Debug, Default)]
pub struct DeviceState {
    /// The driver has sent a request since the last reset. Before that, nothing is stored into its memory.
    pub is_running: bool,
    /// The front end has stopped the device, and may start it again where it stopped.
    pub stopped: Option<Box<Stopped>>,
    /// The last request was `OP_RESET`.
    pub is_quiesced: bool,
}

impl DeviceState {
    /// Where frames for a stopped device are held. A device that its driver closed with `OP_RESET` holds none: it
    /// replies to its peers as without the stop.
    pub fn holder(&mut self) -> Option<&mut Stopped> {
        self.stopped.as_deref_mut().filter(|_| !self.is_quiesced)
    }

    /// Whether the device is stopped, and the card does nothing.
    #[inline]
    pub const fn is_stopped(&self) -> bool {
        self.stopped.is_some() && !self.is_quiesced
    }
}

#[cfg(test)]
mod tests {
    use niclab_model::fabric::ethernet::mac_of_node;
    use niclab_model::time::Time;

    use super::*;

    fn frame(sender: u16, bytes: usize) -> HeldFrame {
        let mut frame = vec![0; bytes];
        frame[6..12].copy_from_slice(&mac_of_node(sender));
        let frame = SharedFrame::from(&frame[..]);
        HeldFrame { passage: Time::ZERO.into(), frame, message: None, class: FrameClass::Card }
    }

    #[test]
    fn frames_beyond_the_bound_are_dropped() {
        let mut stopped = Stopped::default();
        let room = MAX_HELD_BYTES / (1_000 + HELD_FRAME_BYTES);
        (0..room + 5).for_each(|_| stopped.hold(frame(3, 1_000)));
        assert!(stopped.holds_from(3) && !stopped.holds_from(2));
        let (frames, dropped) = stopped.into_frames();
        assert_eq!((frames.len(), dropped), (room, 5));
    }
}
