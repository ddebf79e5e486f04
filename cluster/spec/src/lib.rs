//! The cluster file, platform profiles, and the daemon's monitor protocol.
