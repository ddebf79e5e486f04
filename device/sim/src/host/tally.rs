//! Counts the traffic at a model's interface, outside the model.

use std::collections::BTreeMap;

use niclab_assembly::figures;
use niclab_spec::report::TrafficStats;

/// Interrupts by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// For messages that requested one.
    pub message: u64,
    /// For slices that the program waited for.
    pub armed: u64,
    /// For packets from unauthorized senders.
    pub unauthorized: u64,
    /// For firmware reloads.
    pub handed_over: u64,
    /// For frames in a ring.
    pub frames: u64,
}

impl Interrupts {
    /// No interrupts.
    pub const NONE: Self = Self { message: 0, armed: 0, unauthorized: 0, handed_over: 0, frames: 0 };

    /// Sum over all causes.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.message + self.armed + self.unauthorized + self.handed_over + self.frames
    }

    /// By the names of live runs, without causes that never occurred.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let Self { message, armed, unauthorized, handed_over, frames } = *self;
        figures::named([
            ("message", message),
            ("armed", armed),
            ("unauthorized", unauthorized),
            ("handed-over", handed_over),
            ("frames", frames),
        ])
    }

    /// Adds the interrupts of another port.
    pub const fn add(&mut self, other: &Self) {
        self.message += other.message;
        self.armed += other.armed;
        self.unauthorized += other.unauthorized;
        self.handed_over += other.handed_over;
        self.frames += other.frames;
    }
}

/// The traffic at the model's interface, counted outside the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of DMA writes.
    pub dma_writes: u64,
    /// Bytes of DMA writes.
    pub dma_bytes: u64,
    /// Bytes of DMA reads.
    pub read_bytes: u64,
    /// Bytes of programmed I/O: bursts into requester pages, and registers.
    pub pio_bytes: u64,
    /// Number of posts.
    pub launches: u64,
    /// Number of frames sent.
    pub sent_frames: u64,
    /// Bytes of frames sent.
    pub sent_bytes: u64,
    /// Number of frames received.
    pub received_frames: u64,
    /// Bytes of frames received.
    pub received_bytes: u64,
    /// Number of frames that arrived and could not be delivered.
    pub dropped_frames: u64,
}

impl Tally {
    /// Frames and bytes in the form of reports.
    #[must_use]
    pub const fn traffic(&self) -> TrafficStats {
        TrafficStats {
            sent_frames: self.sent_frames,
            sent_bytes: self.sent_bytes,
            received_frames: self.received_frames,
            received_bytes: self.received_bytes,
            dropped_frames: self.dropped_frames,
        }
    }
}
