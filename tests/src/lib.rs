//! Conformance and VM tests.
