//! Files about a run: [`Timeline`]s for Perfetto, [`Capture`]s for Wireshark, and recordings that can be replayed
//! ([`Recorder`]).
//!
//! All are written as they come, in bounded memory, and every instant in them is model time, exact to the picosecond.

pub mod capture;
pub mod recording;
pub mod timeline;

pub use capture::{Capture, Fate, Heading};
pub use recording::Recorder;
pub use timeline::Timeline;
