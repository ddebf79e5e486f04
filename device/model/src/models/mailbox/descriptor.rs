//! Mailbox in the registry.

use alloc::boxed::Box;
use alloc::vec::Vec;

use niclab_abi::bar::PAYLOAD_WORDS;
use niclab_abi::config::FEATURE_SLICES;
use niclab_abi::receive::MAX_SLICES;

use crate::models::mailbox::config::{Config, MAX_PARTNERS, PORTS};
use crate::models::mailbox::nic::Mailbox;
use crate::models::mailbox::wire::{self, Header, PROTOCOL};
use crate::nic::host_values;
use crate::nic::registry::{
    AnyNic, Begun, BuildError, CardContext, Draw, DrawnWorkload, Limits, Model, Origin, Parameter,
    ParameterKind, Promise, Promises, Swarm, Value, Values,
};
use crate::nic::windows::PAGES_OF_PORTS;
use crate::parts::effects::WORD_BYTES;
use crate::time::Span;

/// Mailbox.
pub static MODEL: Model = Model {
    name: "mailbox",
    title: "Mailbox",
    article: "a",
    protocol: PROTOCOL,
    summary: "one letter at a time, repeated until it is acknowledged: the smallest card, a template for new models",
    paper: "K. A. Bartlett, R. A. Scantlebury, P. T. Wilkinson, A note on reliable full-duplex transmission over \
            half-duplex links, 1969 (its protocol)",
    ports: PORTS as u32,
    windows: PAGES_OF_PORTS,
    parameters: PARAMETERS,
    check: |_| Vec::new(),
    limits,
    promises: |_| Promises { sound: Promise::ALL, faulty: Promise::ALL },
    default_profile: "htx-200mhz-fitted",
    machines: &["load", "transmit", "receive", "store"],
    features: FEATURE_SLICES,
    host_values: &[host_values::OF_EVERY_CARD, host_values::OF_PORTS, host_values::OF_SLICES],
    begun,
    routing: None,
    build,
    programs: None,
    swarm: Swarm { one_in: 0, draws_device_faults: true, draws_apart: false, draw },
};

const REPEAT: &str = "repeat_us";

const PARAMETERS: &[Parameter] = &[Parameter {
    key: REPEAT,
    help: "How long a letter waits for its acknowledgement before the card sends it again, in microseconds of \
           model time. The wait doubles each time, up to 100 ms.",
    origin: Origin::Assumed("many times a round trip of a few microseconds"),
    kind: ParameterKind::Number { default: 100, least: 1, most: 1_000_000 },
}];

fn limits(_: &Values) -> Limits {
    Limits {
        open_ports: (0..PORTS as u16).collect(),
        max_slices: MAX_SLICES,
        senders_per_port: Some(MAX_PARTNERS as u32),
        senders_raised_by: None,
        entries: 0,
        unexpected_messages: 0,
        max_message_bytes: WORD_BYTES * PAYLOAD_WORDS as u64,
        message_raised_by: None,
        message_unit_bytes: WORD_BYTES as u32,
        payload_bytes: 0,
        first_segment_bytes: 0,
        peripheral_ports: Vec::new(),
    }
}

fn begun(frame: &[u8]) -> Option<Begun> {
    let (header, _) = Header::parse(frame).ok()?;
    let wire::FrameKind::Letter { interrupt, .. } = header.kind else { return None };
    Some(Begun { from: header.source, to: header.target, interrupt })
}

fn build(values: &Values, context: CardContext) -> Result<AnyNic, BuildError> {
    let first_wait = Span::from_ns(1_000 * values.number(REPEAT));
    let CardContext { node, nodes, profile, .. } = context;
    Ok(Box::new(Mailbox::new(Config { node, nodes, first_wait, profile })?))
}

fn draw(below: &mut Draw<'_>, _: &mut DrawnWorkload) -> Values {
    Values::defaults(&MODEL).with(REPEAT, Value::Number((1 + below(200)).into()))
}
