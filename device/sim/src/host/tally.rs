//! What crosses the boundary of a model, counted outside of it.

use std::collections::BTreeMap;

use niclab_assembly::figures;
use niclab_spec::report::TrafficStats;

/// Interrupts by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// For messages that asked for one.
    pub message: u64,
    /// For slices that the program waited for.
    pub armed: u64,
    /// For packets whose senders are not authorized.
    pub unauthorized: u64,
    /// For programs of the card that it was given.
    pub handed_over: u64,
    /// For frames in a ring.
    pub frames: u64,
}

impl Interrupts {
    /// None.
    pub const NONE: Self = Self { message: 0, armed: 0, unauthorized: 0, handed_over: 0, frames: 0 };

    /// Of every cause.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.message + self.armed + self.unauthorized + self.handed_over + self.frames
    }

    /// By the names that live runs use; what never happened is not there.
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

    /// Those of another port, too.
    pub const fn add(&mut self, other: &Self) {
        self.message += other.message;
        self.armed += other.armed;
        self.unauthorized += other.unauthorized;
        self.handed_over += other.handed_over;
        self.frames += other.frames;
    }
}

/// What crossed the boundary of the model, counted outside of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// DMA writes and their bytes.
    pub dma_writes: u64,
    /// Bytes of them.
    pub dma_bytes: u64,
    /// Bytes of DMA reads.
    pub read_bytes: u64,
    /// Bytes that the program stored: bursts into requester pages and registers.
    pub pio_bytes: u64,
    /// Launches.
    pub launches: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that arrived.
    pub received_frames: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that arrived and could not be delivered.
    pub dropped_frames: u64,
}

impl Tally {
    /// Frames and bytes, as reports have them.
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
