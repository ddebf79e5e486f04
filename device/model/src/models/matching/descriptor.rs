//! Match in the registry.

use alloc::boxed::Box;
use alloc::vec::Vec;

use niclab_abi::config::{FEATURE_FIRMWARE, FEATURE_LISTS, FEATURE_REGIONS, FEATURE_SPILL};
use niclab_abi::matching::{EVENT_REFUSED, MAX_ENTRIES, PORTALS, RESULT_LIST_FULL};

use crate::models::matching::config::{Config, PORTS};
use crate::models::matching::nic::Match;
use crate::models::matching::wire::{self, Frame, Operation, PROTOCOL};
use crate::nic::Address;
use crate::nic::host_values::{self, Bound, HostValue, NEVER_COUNTED, ValueLocation};
use crate::nic::registry::{
    AnyNic, Begun, BuildError, CardContext, Draw, DrawnWorkload, Limits, Model, Origin, Parameter,
    ParameterKind, Promise, Promises, Swarm, Value, Values,
};
use crate::nic::windows::PAGES_OF_PORTS;
use crate::time::Span;

/// Match.
pub static MODEL: Model = Model {
    name: "match",
    title: "Match",
    article: "a",
    protocol: PROTOCOL,
    summary: "posted receives that a microcoded unit compares with arriving messages",
    paper: "K. S. Hemmert, K. D. Underwood, A. Rodrigues, An Architecture to Perform NIC Based MPI Matching",
    ports: PORTS as u32,
    windows: PAGES_OF_PORTS,
    parameters: PARAMETERS,
    check: |_| Vec::new(),
    limits,
    // The card sends a frame that a link lost again, until it arrives.
    promises: |_| Promises { sound: Promise::ALL, faulty: Promise::ALL },
    default_profile: "match-500mhz",
    machines: &["load", "transmit", "receive", "store"],
    features: FEATURE_LISTS | FEATURE_REGIONS | FEATURE_FIRMWARE | FEATURE_SPILL,
    host_values: &[
        host_values::OF_EVERY_CARD,
        host_values::OF_PORTS,
        host_values::OF_REGIONS,
        host_values::OF_FIRMWARE,
        HOST_VALUES,
    ],
    begun,
    routing: None,
    build,
    programs: None,
    swarm: Swarm { one_in: 3, draws_device_faults: true, draws_apart: false, draw },
};

/// Words of an event, counted back from the last one, as [`niclab_abi::matching::ListEvent`] defines them, and of a
/// counter. Ours: the interface.
const HOST_VALUES: &[HostValue] = &[
    HostValue::new("event kind", ValueLocation::Completion(0), 0, 8, Bound::Fixed(EVENT_REFUSED as u64 + 1)),
    HostValue::new(
        "event result",
        ValueLocation::Completion(0),
        8,
        8,
        Bound::Fixed(RESULT_LIST_FULL as u64 + 1),
    ),
    HostValue::new("event portal", ValueLocation::Completion(0), 16, 8, Bound::Fixed(PORTALS as u64)),
    HostValue::new("overflow user value", ValueLocation::Completion(2), 0, 64, Bound::Unknown),
    HostValue::new("overflow handle", ValueLocation::Completion(3), 0, 64, Bound::Unknown),
    HostValue::new("event handle", ValueLocation::Completion(4), 0, 32, Bound::Unknown),
    HostValue::new("event port", ValueLocation::Completion(4), 32, 16, Bound::Ports),
    HostValue::new("event node", ValueLocation::Completion(4), 48, 16, Bound::Nodes),
    HostValue::new("event offset", ValueLocation::Completion(5), 0, 64, Bound::Fixed(NEVER_COUNTED)),
    HostValue::new("moved bytes", ValueLocation::Completion(6), 0, 64, Bound::MessageBytes),
    HostValue::new("requested bytes", ValueLocation::Completion(7), 0, 64, Bound::MessageBytes),
    HostValue::new("user value", ValueLocation::Completion(10), 0, 64, Bound::Unknown),
    HostValue::new(
        "counted failures",
        ValueLocation::Counts { word: 0, words: 2 },
        0,
        64,
        Bound::Fixed(NEVER_COUNTED),
    ),
    HostValue::new(
        "counted successes",
        ValueLocation::Counts { word: 1, words: 2 },
        0,
        64,
        Bound::Fixed(NEVER_COUNTED),
    ),
];

const ENTRIES: &str = "match_entries";
const MESSAGE_BYTES: &str = "max_message_bytes";
const WINDOW: &str = "window_frames";
const UNEXPECTED: &str = "unexpected_messages";
const RETRANSMIT: &str = "retransmit_us";

const PARAMETERS: &[Parameter] = &[
    Parameter {
        key: ENTRIES,
        help: "Match entries that fit into device memory, 64 bytes each. Further entries are in the spill area, in \
               host memory, and the card reads them from there each time it traverses a list.",
        origin: Origin::Assumed(
            "64 KB of memory on the card: more than the paper's longest list of 300 items",
        ),
        kind: ParameterKind::Number { default: 1_024, least: 16, most: MAX_ENTRIES as u64 },
    },
    Parameter {
        key: MESSAGE_BYTES,
        help: "The longest message, in bytes.",
        origin: Origin::Assumed("longer than the messages that cluster programs send"),
        kind: ParameterKind::Number { default: 16 << 20, least: 64, most: 1 << 30 },
    },
    Parameter {
        key: WINDOW,
        help: "Frames that may be in flight to one node before the first of them is acknowledged.",
        origin: Origin::Assumed("more than the frames of a round trip on the profiles' links"),
        kind: ParameterKind::Number { default: 32, least: 1, most: 1_024 },
    },
    Parameter {
        key: UNEXPECTED,
        help: "Unexpected messages of one port that may wait for a receive.",
        origin: Origin::Assumed("the same number as entries"),
        kind: ParameterKind::Number { default: 1_024, least: 1, most: 65_536 },
    },
    Parameter {
        key: RETRANSMIT,
        help: "How long a frame waits for its acknowledgement before the card sends it again, in microseconds of \
               model time. The wait doubles each time.",
        origin: Origin::Assumed("many times a round trip of a few microseconds"),
        kind: ParameterKind::Number { default: 100, least: 1, most: 1_000_000 },
    },
];

fn limits(values: &Values) -> Limits {
    Limits {
        open_ports: (0..PORTS as u16).collect(),
        max_slices: niclab_abi::receive::MAX_SLICES,
        senders_per_port: None,
        senders_raised_by: None,
        entries: values.number_u32(ENTRIES),
        unexpected_messages: values.number_u32(UNEXPECTED),
        max_message_bytes: values.number(MESSAGE_BYTES),
        message_raised_by: Some(MESSAGE_BYTES),
        message_unit_bytes: 1,
        payload_bytes: 0,
        first_segment_bytes: 0,
        peripheral_ports: Vec::new(),
    }
}

/// The parameters of a card with these values.
pub fn config(values: &Values, context: CardContext) -> Config {
    let config = Config::new(context.node, context.nodes, context.profile);
    let first = Span::from_ns(values.number(RETRANSMIT).saturating_mul(1_000));
    Config {
        mtu_bytes: context.mtu_bytes,
        match_entries: values.number_u32(ENTRIES),
        max_message_bytes: values.number(MESSAGE_BYTES),
        window_frames: values.number_u32(WINDOW),
        unexpected_messages: values.number_u32(UNEXPECTED),
        retransmit_first: first,
        // Ours: a long first wait can still double a few times.
        retransmit_most: config.retransmit_most.max(first.times(8)),
        ..config
    }
}

/// Data for another card: the data of a put, and the data that a get requested.
fn begun(frame: &[u8]) -> Option<Begun> {
    let Frame { link, kind, .. } = Frame::parse(frame).ok()?;
    let wire::FrameKind::First(header) = kind else { return None };
    let is_data = matches!(header.operation, Operation::Put | Operation::Reply);
    is_data.then_some(Begun {
        from: Address { node: header.source_node, port: header.source_port },
        to: Address { node: link.destination, port: header.target_port },
        interrupt: header.interrupt,
    })
}

fn build(values: &Values, context: CardContext) -> Result<AnyNic, BuildError> {
    Ok(Box::new(Match::new(config(values, context))?))
}

/// Maximum payloads of a long message, which takes some frames, and of a short one, in bytes. Ours: the swarm's choice.
const DRAWN_BYTES: [u32; 2] = [6_000, 100];

/// Samples values, and what only a Match card can do: long messages, and several ways to receive them.
fn draw(below: &mut Draw<'_>, workload: &mut DrawnWorkload) -> Values {
    let window = 1 + below(40);
    let retransmit_us = 1 + below(200);
    workload.receive = below(3) as usize;
    workload.slices = 32 << below(4);
    let [long, short] = DRAWN_BYTES;
    let max_bytes = if below(2) == 0 { short } else { long };
    workload.message_bytes = below(max_bytes);
    Values::defaults(&MODEL)
        .with(WINDOW, Value::Number(window.into()))
        .with(RETRANSMIT, Value::Number(retransmit_us.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::profile::Profile;

    #[test]
    fn card_has_the_values_of_the_cluster_file() {
        let number = Value::Number;
        let own = Values::defaults(&MODEL)
            .with(ENTRIES, number(16))
            .with(MESSAGE_BYTES, number(17))
            .with(WINDOW, number(18))
            .with(UNEXPECTED, number(19))
            .with(RETRANSMIT, number(20_000));
        let context = |node, nodes, mtu_bytes| CardContext {
            node,
            nodes,
            mtu_bytes,
            profile: Profile::default().into(),
        };
        let found = config(&own, context(1, 3, 1_200));
        assert_eq!((found.node, found.nodes, found.mtu_bytes), (1, 3, 1_200));
        assert_eq!((found.match_entries, found.max_message_bytes, found.window_frames), (16, 17, 18));
        assert_eq!((found.unexpected_messages, found.retransmit_first), (19, Span::from_ns(20_000_000)));
        assert_eq!(found.retransmit_most, Span::from_ns(160_000_000));
        assert_eq!(Match::new(found).err(), None);
        let plain = config(&Values::defaults(&MODEL), context(0, 2, 1_500));
        assert_eq!(plain, Config::new(0, 2, Profile::default()), "the model's own defaults");
    }
}
