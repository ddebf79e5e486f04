//! The niclab command: plan, boot, run, inspect, report.
