//! What crosses the boundary of a model, counted outside of it.

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
}

impl Interrupts {
    /// Of every cause.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.message + self.armed + self.unauthorized + self.handed_over
    }

    /// Those of another port, too.
    pub const fn add(&mut self, other: &Self) {
        self.message += other.message;
        self.armed += other.armed;
        self.unauthorized += other.unauthorized;
        self.handed_over += other.handed_over;
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
