//! ULTRA in the registry.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use niclab_abi::config::FEATURE_SLICES;

use crate::models::ultra::config::{Config, FlowControl, PORTS, Unauthorized};
use crate::models::ultra::nic::Ultra;
use crate::models::ultra::wire::{self, Header, MAX_WORDS, PROTOCOL, Packet};
use crate::nic::host_values;
use crate::nic::registry::{
    AnyNic, Begun, BuildError, CardContext, Choice, Draw, DrawnWorkload, Limits, Model, Origin, Parameter,
    ParameterKind, Problem, Promise, Promises, Swarm, Value, Values,
};
use crate::nic::windows::PAGES_OF_PORTS;
use crate::platform::profile::Passing;

/// ULTRA.
pub static MODEL: Model = Model {
    name: "ultra",
    title: "ULTRA",
    article: "an",
    protocol: PROTOCOL,
    summary: "requester and completer, one I/O cycle for each message",
    paper: "H. Fröning, H. Litz, U. Brüning, A New Ultra-Low Latency Message Transfer Mechanism, University of \
            Mannheim, 2007",
    ports: PORTS as u32,
    windows: PAGES_OF_PORTS,
    parameters: PARAMETERS,
    check,
    limits,
    promises,
    default_profile: "htx-200mhz",
    machines: &["load", "transmit", "receive", "store"],
    features: FEATURE_SLICES,
    host_values: &[host_values::OF_EVERY_CARD, host_values::OF_PORTS, host_values::OF_SLICES],
    begun,
    routing: Some(wire::routed_to),
    build,
    programs: None,
    swarm: Swarm { one_in: 1, draws_device_faults: true, draws_apart: false, draw },
};

/// The largest payload: one cache line, in bytes (section 4).
const PAYLOAD_BYTES: u64 = 64;

const REQUESTER_FIFO: &str = "fifo_words_per_port";
const COMPLETER_FIFO: &str = "completer_fifo_words_per_port";
const PARTNERS: &str = "authorized_partners_per_port";
const UNAUTHORIZED: &str = "unauthorized";
const FLOW_CONTROL: &str = "flow_control";
const PASSING: &str = "passing";

/// Section 3.2 allows either.
const INTERRUPT: &str = "interrupt";
const NO_FLOW_CONTROL: &str = "none";
const CUT_THROUGH: &str = "cut-through";
const STORE_AND_FORWARD: &str = "store-and-forward";

const PARAMETERS: &[Parameter] = &[
    Parameter {
        key: REQUESTER_FIFO,
        help: "How the requester's FIFO RAM is split: words of 64 bits for each of the eight ports. Each is 0 (port \
               unused) or at least 10 (one full packet). Their sum is at most 128 (1 KiB, ULTRA paper section 3.1).",
        origin: Origin::Source("section 3.1: 1 KB in up to eight queues, here equal ones"),
        kind: ParameterKind::Numbers { default: &[16; PORTS], most: Config::FIFO_RAM_WORDS as u64 },
    },
    Parameter {
        key: COMPLETER_FIFO,
        help: "The same for the completer's FIFO RAM.",
        origin: Origin::Source("section 3.2: as the requester's"),
        kind: ParameterKind::Numbers { default: &[16; PORTS], most: Config::FIFO_RAM_WORDS as u64 },
    },
    Parameter {
        key: PARTNERS,
        help: "Partners that one port can authorize.",
        origin: Origin::Source("section 3.2: several partners for each port; how many is assumed"),
        kind: ParameterKind::Number { default: 16, least: 1, most: Config::MAX_AUTHORIZATIONS as u64 },
    },
    Parameter {
        key: UNAUTHORIZED,
        help: "What happens to a packet of an unauthorized partner.",
        origin: Origin::Source("section 3.2: discarded, or a system interrupt"),
        kind: ParameterKind::Choice {
            default: "discard",
            choices: &[
                Choice { name: "discard", help: "Count it and drop it." },
                Choice { name: INTERRUPT, help: "Count it, drop it, and raise a system interrupt." },
            ],
        },
    },
    Parameter {
        key: FLOW_CONTROL,
        help: "What keeps senders from overrunning a receive queue.",
        origin: Origin::Assumed(
            "the paper has flow control of links only, by which one full queue would hold up all others",
        ),
        kind: ParameterKind::Choice {
            default: "credit",
            choices: &[
                Choice {
                    name: "credit",
                    help: "The sender holds a credit for each free slice of the receiver.",
                },
                Choice {
                    name: NO_FLOW_CONTROL,
                    help: "Nothing: a packet that finds no free slice is counted and dropped.",
                },
            ],
        },
    },
    Parameter {
        key: PASSING,
        help: "When Load, TX, RX and Store forward words to the next of them.",
        origin: Origin::Assumed("the platform's profile has what its paper says"),
        kind: ParameterKind::Choice {
            default: "platform",
            choices: &[
                Choice { name: "platform", help: "As the platform's profile says." },
                Choice {
                    name: CUT_THROUGH,
                    help: "Each word as it comes, before the packet is complete, also into the link and into memory.",
                },
                Choice { name: STORE_AND_FORWARD, help: "When they have processed the complete packet." },
            ],
        },
    },
];

fn check(values: &Values) -> Vec<Problem> {
    [REQUESTER_FIFO, COMPLETER_FIFO]
        .into_iter()
        .filter_map(|key| check_fifo(key, values.numbers(key)))
        .collect()
}

fn check_fifo(key: &'static str, words: &[u64]) -> Option<Problem> {
    let (ram, packet) = (u64::from(Config::FIFO_RAM_WORDS), MAX_WORDS as u64);
    let total = words.iter().fold(0_u64, |sum, words| sum.saturating_add(*words));
    if total > ram {
        return Some(Problem {
            key,
            what: format!("the queues take {total} words, and the FIFO RAM has {ram}"),
            remedy: format!("make the sum at most {ram}"),
        });
    }
    let small = words.iter().find(|&&words| words != 0 && words < packet)?;
    Some(Problem {
        key,
        what: format!("a queue of {small} words cannot hold a full packet of {packet}"),
        remedy: format!("use 0 for an unused port, else at least {packet}"),
    })
}

fn limits(values: &Values) -> Limits {
    let shares = values.numbers(REQUESTER_FIFO).iter().zip(values.numbers(COMPLETER_FIFO));
    let is_open = |(requester, completer): (&u64, &u64)| *requester != 0 && *completer != 0;
    let open = (0_u16..).zip(shares).filter(|(_, shares)| is_open(*shares));
    Limits {
        open_ports: open.map(|(number, _)| number).collect(),
        max_slices: niclab_abi::receive::MAX_SLICES,
        senders_per_port: Some(values.number_u32(PARTNERS)),
        senders_raised_by: Some(PARTNERS),
        entries: 0,
        unexpected_messages: 0,
        max_message_bytes: PAYLOAD_BYTES,
        message_raised_by: None,
        message_unit_bytes: 8,
        payload_bytes: 0,
        first_segment_bytes: 0,
        peripheral_ports: Vec::new(),
    }
}

/// The card does not send a packet again that a link lost. It discards a packet by its number if the packet comes
/// twice, or after a later one.
fn promises(values: &Values) -> Promises {
    let is_controlled = values.word(FLOW_CONTROL) != NO_FLOW_CONTROL;
    Promises {
        sound: Promise { is_delivered: is_controlled, ..Promise::ALL },
        faulty: Promise { is_delivered: false, ..Promise::ALL },
    }
}

/// The parameters of a card with these values.
pub fn config(values: &Values, context: CardContext) -> Config {
    let words = |key| {
        let mut words = [0; PORTS];
        let shares = values.numbers(key).iter();
        words
            .iter_mut()
            .zip(shares)
            .for_each(|(word, share)| *word = u16::try_from(*share).unwrap_or(u16::MAX));
        words
    };
    Config {
        requester_fifo_words: words(REQUESTER_FIFO),
        completer_fifo_words: words(COMPLETER_FIFO),
        authorizations: u16::try_from(values.number(PARTNERS)).unwrap_or(u16::MAX),
        unauthorized: if values.word(UNAUTHORIZED) == INTERRUPT {
            Unauthorized::Interrupt
        } else {
            Unauthorized::Discard
        },
        flow_control: if values.word(FLOW_CONTROL) == NO_FLOW_CONTROL {
            FlowControl::None
        } else {
            FlowControl::Credit
        },
        passing: match values.word(PASSING) {
            CUT_THROUGH => Some(Passing::CutThrough),
            STORE_AND_FORWARD => Some(Passing::StoreAndForward),
            _ => None,
        },
        ..Config::new(context.node, context.nodes, context.profile)
    }
}

fn begun(frame: &[u8]) -> Option<Begun> {
    let header = Header::parse(&Packet::new_checked(frame).ok()?).ok()?;
    let wire::PacketKind::Data { interrupt, .. } = header.kind else { return None };
    Some(Begun { from: header.source, to: header.target, interrupt })
}

fn build(values: &Values, context: CardContext) -> Result<AnyNic, BuildError> {
    Ok(Box::new(Ultra::new(config(values, context))?))
}

fn draw(below: &mut Draw<'_>, _: &mut DrawnWorkload) -> Values {
    // 10 words are one packet, 16 an equal share of the RAM.
    let share = Value::Numbers([u64::from(10 + below(7)); PORTS].to_vec());
    let flow_control = if below(8) == 0 { NO_FLOW_CONTROL } else { "credit" };
    Values::defaults(&MODEL)
        .with(REQUESTER_FIFO, share.clone())
        .with(COMPLETER_FIFO, share)
        .with(FLOW_CONTROL, Value::Word(flow_control.into()))
}
