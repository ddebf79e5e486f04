//! What a person looks at: [`Timeline`]s for Perfetto and [`Capture`]s for Wireshark.
//!
//! Both are written as they come, in bounded memory, and every instant in them is model time, exact to the picosecond.

pub mod capture;
pub mod timeline;

pub use capture::{Capture, Fate, Heading};
pub use timeline::Timeline;
