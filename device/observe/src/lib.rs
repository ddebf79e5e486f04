//! Files about a run: [`Timeline`]s for Perfetto, [`Capture`]s for Wireshark, and recordings that can be replayed
//! ([`Recorder`]).
//!
//! All files are streamed with bounded memory. All times in them are model time, exact to the picosecond.

pub mod capture;
pub mod recording;
pub mod timeline;

pub use capture::{Capture, Fate, Heading};
pub use recording::Recorder;
pub use timeline::Timeline;
