//! Guest tools: niclab-perf.
