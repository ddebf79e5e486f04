//! The NIC models and their parts, sans-IO.
