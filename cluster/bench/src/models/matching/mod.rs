//! Match cards and the match unit.

mod comparison;
mod depth;
mod figures;
mod guests;
mod rate;

use super::Benches;
use crate::{
    device::Row,
    figure::Goal,
    figures::{Made, PaperFigures},
    instructions::{Program, Work},
    section::BenchSection,
};

pub(super) const BENCHES: Benches = Benches {
    figures: &[
        PaperFigures {
            name: "match",
            help: "The match unit: time to match on lists of different length, compared with processors",
            file: "match.md",
            make: |offline| {
                let measured = figures::Measurements::read(&comparison::output(&["figures"], offline)?)?;
                let figures = figures::MatchFigures::new(measured);
                let compared = figures.compared();
                let others = figures.other_sets_are_as_declared();
                Made::new(&figures, figures.text(), &figures.panels(), compared, others)
            },
        },
        PaperFigures {
            name: "match-live",
            help: "Match cards in guests: latency over the depth of the list, matched on the card and on the host",
            file: "match-live.txt",
            make: |offline| {
                let figures = depth::DepthFigures::measure(offline)?;
                // There are no published numbers to compare with.
                Made::new(&figures, figures.text(), &figures.panels(), Vec::new(), true)
            },
        },
    ],
    sections: &[
        BenchSection {
            name: "match-guests",
            help: "Four guests: messages between two Match cards, compared with two ULTRA cards",
            what: "four guests: messages between two Match cards, compared with two ULTRA cards",
            boots_guests: true,
            measure: guests::measure,
        },
        BenchSection {
            name: "match",
            help: "The match unit: simulated cycles per second, alone and with its list manager",
            what: "the match unit, alone and with its list manager",
            boots_guests: false,
            measure: |options, _| rate::measure(options),
        },
    ],
    device: &[
        Row {
            name: "match_one_way",
            what: "Match, puts of 64 bytes into a posted entry, p50 one way",
            unit: ("ns", 1.0),
            pointer: "/matching/wall_one_way_p50_ns",
            goal: None,
        },
        Row {
            name: "match_bandwidth_mtu_9000",
            what: "Match, puts of 1 MiB, one core for both ends, frames of 9,000 bytes",
            unit: ("GB/s", 1e-9),
            pointer: "/matching/wall_bytes_per_s_mtu_9000",
            // The same goal as between two guests.
            goal: Some(Goal::AtLeast(4.0)),
        },
        Row {
            name: "match_bandwidth_mtu_1500",
            what: "the same with frames of 1,500 bytes",
            unit: ("GB/s", 1e-9),
            pointer: "/matching/wall_bytes_per_s_mtu_1500",
            goal: None,
        },
        Row {
            name: "memcpy_bandwidth",
            what: "the same memory copied once by memcpy, for comparison",
            unit: ("GB/s", 1e-9),
            pointer: "/matching/wall_bytes_per_s_memcpy",
            goal: None,
        },
    ],
    counted: &[
        Work {
            name: "match_put",
            unit: "a put of 64 bytes, from command to event",
            program: Program::Device,
            arguments: &["short-puts"],
            units: 2_000,
        },
        Work {
            name: "match_kib",
            unit: "1 KiB of puts of 1 MiB, MTU 9000",
            program: Program::Device,
            arguments: &["long-puts"],
            units: 32 * 1024,
        },
        Work {
            name: "match_cycle",
            unit: "a cycle of the match unit, with the list manager and 10 items",
            program: Program::Tool(comparison::COMPARISON),
            arguments: &["10"],
            units: 100_000,
        },
    ],
    ..Benches::NONE
};
