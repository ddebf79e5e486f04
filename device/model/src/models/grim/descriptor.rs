//! GRIM in the registry.

use alloc::boxed::Box;
use alloc::vec::Vec;

use niclab_abi::config::{FEATURE_CHANNELS, FEATURE_REGIONS};
use niclab_abi::grim::{
    CHANNEL_MAX_BULK_BYTES, CHANNEL_PAYLOAD_BYTES, CHANNEL_PAYLOAD_PAGES, WINDOW_CHANNEL_PAYLOAD,
};
use niclab_abi::receive::MAX_SLICES;

use crate::models::grim::config::{Config, HEADER_BYTES, MAX_CHANNELS, outbound_bytes};
use crate::models::grim::nic::Grim;
use crate::models::grim::peripherals;
use crate::models::grim::wire::{Fragment, FrameKind, HEAD_BYTES, Header, PROTOCOL, Purpose};
use crate::nic::Address;
use crate::nic::host_values::{self, Bound, HostValue, ValueLocation};
use crate::nic::registry::{
    AnyNic, Begun, BuildError, CardContext, Draw, DrawnWorkload, Limits, Model, Origin, Parameter,
    ParameterKind, Problem, Promise, Promises, Swarm, Value, Values,
};
use crate::nic::windows::{COMPLETER, REQUESTER, Window};
use crate::time::Span;

/// GRIM.
pub static MODEL: Model = Model {
    name: "grim",
    title: "GRIM",
    article: "a",
    protocol: PROTOCOL,
    summary: "active messages over logical channels, pushed into the card, with flow control between the cards",
    paper: "C. Ulmer, S. Yalamanchili, A Messaging Layer for Heterogeneous Endpoints in Resource Rich Clusters",
    ports: MAX_CHANNELS as u32,
    windows: WINDOWS,
    parameters: PARAMETERS,
    check: |values| memory_problem(values).into_iter().chain(peripheral_problem(values)).collect(),
    limits,
    promises: |_| Promises { sound: Promise::ALL, faulty: Promise::ALL },
    default_profile: "lanai4-pci",
    machines: &[
        "processor_send",
        "processor_receive",
        "processor_acknowledge",
        "scan",
        "io_card_receive",
        "io_card_send",
        "function_card",
    ],
    features: FEATURE_CHANNELS | FEATURE_REGIONS,
    host_values: &[
        host_values::OF_EVERY_CARD,
        host_values::OF_PORTS,
        host_values::OF_REGIONS,
        host_values::OF_SLICES,
        HOST_VALUES,
    ],
    begun,
    routing: None,
    build,
    programs: None,
    swarm: Swarm { one_in: 0, draws_device_faults: true, draws_apart: false, draw },
};

/// Payload words of a slice, counted from the status word: the handler, and the location of the payload, if any. Ours:
/// the interface.
const HOST_VALUES: &[HostValue] = &[
    HostValue::new("handler", ValueLocation::Completion(3), 0, 64, Bound::Unknown),
    HostValue::new("payload offset", ValueLocation::Completion(4), 0, 32, Bound::Fixed(1 << 30)),
    HostValue::new(
        "payload bytes",
        ValueLocation::Completion(4),
        32,
        32,
        Bound::Fixed(CHANNEL_MAX_BULK_BYTES + 1),
    ),
];

/// Headers and registers are stored one by one, payload in bursts (section 5.2).
const WINDOWS: &[Window] = &[
    REQUESTER,
    COMPLETER,
    Window {
        name: "payload region",
        kind: WINDOW_CHANNEL_PAYLOAD,
        pages: CHANNEL_PAYLOAD_PAGES,
        ..REQUESTER
    },
];

const CHANNELS: &str = "channels";
const HEADERS: &str = "headers_per_channel";
const PAYLOAD: &str = "payload_bytes_per_channel";
const WEIGHTS: &str = "weights";
const MEMORY: &str = "card_memory_bytes";
const WINDOW_FRAMES: &str = "window_frames";
const REPEAT: &str = "repeat_us";
const PAUSE: &str = "pause_us";
const LONGEST: &str = "longest_wait_us";
const STALL: &str = "stall_us";
/// A peripheral's parameter contains its channel; 0: no such peripheral.
const NO_CHANNEL: u64 = 0;
/// Programs read it from the limits.
const SEGMENT: &str = "first_segment_bytes";

const PARAMETERS: &[Parameter] = &[
    Parameter {
        key: CHANNELS,
        help: "Logical channels, one for each port. The card's processor polls all of them in turn.",
        origin: Origin::Assumed("two for each of four programs; the profiles were measured with 4"),
        kind: ParameterKind::Number { default: 8, least: 1, most: MAX_CHANNELS as u64 },
    },
    Parameter {
        key: HEADERS,
        help: "Messages that the header ring of a channel's outbound queue holds.",
        origin: Origin::Assumed("the paper's gap begins to grow beyond bursts of 200 (section 6.1)"),
        kind: ParameterKind::Number { default: 256, least: 1, most: 4_096 },
    },
    Parameter {
        key: PAYLOAD,
        help: "Bytes of the payload region of a channel's outbound queue, a multiple of 64, and the maximum payload of \
               a message.",
        origin: Origin::Source("section 5.1: the longest bulk message"),
        kind: ParameterKind::Number { default: 48 << 10, least: 64, most: CHANNEL_PAYLOAD_BYTES },
    },
    Parameter {
        key: WEIGHTS,
        help: "Consecutive frames that each channel sends while others wait, from the first channel on. Further \
               channels have the last weight. Zero counts as one.",
        origin: Origin::Source("section 4.2: round robin"),
        kind: ParameterKind::Numbers { default: &[1; 8], most: 1_024 },
    },
    Parameter {
        key: MEMORY,
        help: "Bytes of the card's memory. Outbound queues take headers_per_channel * 32 + \
               payload_bytes_per_channel for each channel; the rest is for received messages whose endpoint has \
               no room.",
        origin: Origin::Source("section 6: 1 MB on the card"),
        kind: ParameterKind::Number { default: 1 << 20, least: 1 << 10, most: 1 << 30 },
    },
    Parameter {
        key: WINDOW_FRAMES,
        help: "Maximum unacknowledged frames of a channel to one other card.",
        origin: Origin::Assumed("the number of messages in a header ring"),
        kind: ParameterKind::Number { default: 256, least: 1, most: 65_536 },
    },
    Parameter {
        key: REPEAT,
        help: "Time without acknowledgement before the card retransmits a frame, in microseconds of model time, in \
               addition to the time that a window of full frames takes. Doubles each time, up to longest_wait_us.",
        origin: Origin::Assumed("many times a round trip of tens of microseconds"),
        kind: ParameterKind::Number { default: 1_000, least: 1, most: 1_000_000 },
    },
    Parameter {
        key: PAUSE,
        help: "Time before the card retransmits a refused frame, in microseconds of model time. Doubles with each \
               further refusal, up to longest_wait_us.",
        origin: Origin::Assumed("about a round trip"),
        kind: ParameterKind::Number { default: 20, least: 1, most: 1_000_000 },
    },
    Parameter {
        key: LONGEST,
        help: "Maximum time before the card retransmits a frame, in microseconds of model time.",
        origin: Origin::Assumed("a thousand times the latency of a message"),
        kind: ParameterKind::Number { default: 10_000, least: 1, most: 10_000_000 },
    },
    Parameter {
        key: STALL,
        help: "Maximum time between two pushes of a program to the same message, in microseconds of model time. Then \
               the card abandons the message. A receiving card assumes this time for all senders: a message of \
               which nothing arrives for eight times the sum of this and longest_wait_us loses its room to \
               messages that wait for it.",
        origin: Origin::Assumed("a program that pauses for a second has a fault"),
        kind: ParameterKind::Number { default: 2_000_000, least: 1, most: 10_000_000 },
    },
    Parameter {
        key: SEGMENT,
        help: "Bytes of the first segment that a program pushes; each further segment is twice as long. So the card \
               sends the start of a message while the program pushes its end (cut-through; the paper's 32). 0: \
               whole messages (store and forward).",
        origin: Origin::Source("section 5.2: cut-through starts with 32 bytes"),
        kind: ParameterKind::Number { default: 32, least: 0, most: CHANNEL_MAX_BULK_BYTES },
    },
    channel_of(peripherals::KINDS[0]),
    channel_of(peripherals::KINDS[1]),
];

/// The parameter for a peripheral's channel.
const fn channel_of(kind: &peripherals::PeripheralKind) -> Parameter {
    Parameter {
        key: kind.channel_key,
        help: kind.help,
        origin: Origin::Assumed("no card unless it is configured"),
        kind: ParameterKind::Number { default: NO_CHANNEL, least: 0, most: MAX_CHANNELS as u64 - 1 },
    }
}

/// The configured peripherals, with their channels.
fn peripherals_of(values: &Values) -> Vec<(u8, &'static peripherals::PeripheralKind)> {
    let of = |kind: &&'static peripherals::PeripheralKind| (values.number(kind.channel_key) as u8, *kind);
    let all = peripherals::KINDS.iter().map(of);
    all.filter(|(channel, _)| u64::from(*channel) != NO_CHANNEL).collect()
}

/// Reports a peripheral whose channel does not exist or belongs to another peripheral.
fn peripheral_problem(values: &Values) -> Option<Problem> {
    let channels = values.number(CHANNELS);
    let all = peripherals_of(values);
    let (_, kind) = all.iter().enumerate().find_map(|(place, (channel, kind))| {
        let is_taken = all[..place].iter().any(|(other, _)| other == channel);
        (u64::from(*channel) >= channels || is_taken).then_some((channel, kind))
    })?;
    let channel = values.number(kind.channel_key);
    let what = if channel < channels {
        alloc::format!("channel {channel} belongs to another peripheral")
    } else {
        alloc::format!("a card with {CHANNELS} = {channels} has no channel {channel}")
    };
    let remedy = alloc::format!("use another channel from 1 to {}, or 0 for no such card", channels - 1);
    Some(Problem { key: kind.channel_key, what, remedy })
}

/// Reports a card whose memory is too small for its queues and one short received frame.
fn memory_problem(values: &Values) -> Option<Problem> {
    let problem = |key, what, remedy| Some(Problem { key, what, remedy });
    let payload = values.number(PAYLOAD);
    if !payload.is_multiple_of(64) {
        let remedy = alloc::format!("use {}", payload.next_multiple_of(64));
        return problem(PAYLOAD, alloc::format!("{payload} is not a multiple of 64"), remedy);
    }
    let (channels, headers, memory) =
        (values.number_u32(CHANNELS), values.number_u32(HEADERS), values.number(MEMORY));
    let needed = outbound_bytes(channels, headers, payload) + HEAD_BYTES as u64;
    if needed <= memory {
        return None;
    }
    let what = alloc::format!(
        "{channels} channels with {headers} headers of {HEADER_BYTES} bytes and {payload} bytes of payload each, \
         and a frame, need {needed} bytes, but the card has {memory}"
    );
    problem(MEMORY, what, alloc::format!("use {needed} or more, or lower {CHANNELS}, {HEADERS} or {PAYLOAD}"))
}

/// Ports without a peripheral.
fn open_ports(values: &Values) -> Vec<u16> {
    let peripherals = peripherals_of(values);
    let is_taken = |port: &u16| peripherals.iter().any(|(other, _)| u16::from(*other) == *port);
    (0..values.number(CHANNELS) as u16).filter(|port| !is_taken(port)).collect()
}

fn limits(values: &Values) -> Limits {
    Limits {
        open_ports: open_ports(values),
        max_slices: MAX_SLICES,
        senders_per_port: None,
        senders_raised_by: None,
        entries: 0,
        unexpected_messages: 0,
        max_message_bytes: CHANNEL_MAX_BULK_BYTES.min(values.number(PAYLOAD)),
        message_raised_by: Some(PAYLOAD),
        message_unit_bytes: 1,
        payload_bytes: values.number(PAYLOAD),
        first_segment_bytes: values.number(SEGMENT),
        peripheral_ports: peripherals_of(values).into_iter().map(|(port, _)| port.into()).collect(),
    }
}

/// Identifies a message by its first frame. A retransmitted frame cannot be distinguished from a new one.
fn begun(frame: &[u8]) -> Option<Begun> {
    let (header, _) = Header::parse(frame).ok()?;
    let FrameKind::Message(Fragment {
        endpoint, purpose: Purpose::Handler { .. }, interrupt, offset: 0, ..
    }) = header.kind
    else {
        return None;
    };
    Some(Begun {
        from: Address { node: header.source, port: header.channel },
        to: Address { node: header.destination, port: endpoint as u8 },
        interrupt,
    })
}

fn build(values: &Values, context: CardContext) -> Result<AnyNic, BuildError> {
    let CardContext { node, nodes, mtu_bytes, profile } = context;
    let us = |key| Span::from_ns(1_000 * values.number(key));
    let weights: Vec<u32> = values.numbers(WEIGHTS).iter().map(|weight| *weight as u32).collect();
    Ok(Box::new(Grim::new(Config {
        node,
        nodes,
        mtu_bytes,
        channels: values.number_u32(CHANNELS),
        headers: values.number_u32(HEADERS),
        payload_bytes: values.number(PAYLOAD),
        weights: weights.into(),
        card_memory_bytes: values.number(MEMORY),
        window_frames: values.number_u32(WINDOW_FRAMES),
        first_wait: us(REPEAT),
        first_pause: us(PAUSE),
        longest_wait: us(LONGEST),
        stall: us(STALL),
        peripherals: peripherals_of(values),
        // Ours: bounds.
        regions_per_port: 64,
        // Ours: as before.
        extents_per_port: 65_536,
        profile,
    })?))
}

/// Max payload of random workloads: none, short, a few frames, and any length. Ours: the swarm's range.
const DRAWN_BYTES: [u32; 4] = [0, 100, 6_000, 48 << 10];
/// Maximum frame length of a random cluster, for any of its links. Ours: the swarm's choice.
const DRAWN_FRAME: u64 = 10_000;

/// Minimum stall of a random card, in microseconds. A program pushes its next segment when it sees a free slot. The
/// status line that reports the slot, and the pushed data, wait for the bus until all data is stored for which
/// endpoints have room. Eight endpoints of 128 slices, each of 48 KiB, are 0.4 s of PCI. With a shorter room_timeout a
/// card abandons messages of valid programs. Ours: the swarm's choice.
const STALL_US: u32 = 2_000_000;

/// Index of exposed memory among the workloads' receive methods. Ours: the swarm's choice.
const EXPOSED: usize = 3;

fn draw(below: &mut Draw<'_>, workload: &mut DrawnWorkload) -> Values {
    workload.slices = 8 << below(5);
    let longest = DRAWN_BYTES.get(below(4) as usize).copied().unwrap_or(0);
    workload.message_bytes = below(longest + 1);
    let payload = u64::from(workload.message_bytes.max(1) + below(longest + 1)).next_multiple_of(64);
    let payload = payload.min(48 << 10).max(u64::from(workload.message_bytes).next_multiple_of(64));
    let (most_headers, most_frames) = (1 << below(9), 1 << below(7));
    let headers = 1 + below(most_headers);
    let weights = (0..8).map(|_| below(4).into()).collect();
    // Half of all cards have peer devices. In half of these clusters all messages go to peer devices.
    let beside = below(8);
    workload.echoes = matches!(beside, 0 | 1);
    let (is_io_card, is_function_card) = (matches!(beside, 0 | 2), matches!(beside, 1..=3));
    // Programs have eight channels. Some cards have further, unused channels.
    let own = 8 + u64::from(below(2) * below(24));
    let channels = own + u64::from(is_io_card) + u64::from(is_function_card);
    // A third of the workloads that send to programs write to their memory.
    let is_exposed = !workload.echoes && below(3) == 0;
    workload.receive = if is_exposed { EXPOSED } else { 0 };
    // In half of all cards the memory for received messages holds only a few frames.
    let inbound = DRAWN_FRAME + u64::from(if below(2) == 0 { below(3_000) } else { below(1 << 20) });
    let segment = [0, 32, 1 + below(200)].get(below(3) as usize).copied().unwrap_or(0);
    let [io_card, function_card] = peripherals::KINDS.map(|kind| kind.channel_key);
    let channel = |place: Option<u64>| Value::Number(place.unwrap_or(NO_CHANNEL));
    let values = Values::defaults(&MODEL)
        .with(CHANNELS, Value::Number(channels))
        .with(io_card, channel(is_io_card.then_some(own)))
        .with(function_card, channel(is_function_card.then_some(own + u64::from(is_io_card))));
    let number = |number: u32| Value::Number(number.into());
    values
        .with(HEADERS, number(headers))
        .with(PAYLOAD, Value::Number(payload))
        .with(WEIGHTS, Value::Numbers(weights))
        .with(MEMORY, Value::Number(outbound_bytes(channels as u32, headers, payload) + inbound))
        .with(WINDOW_FRAMES, number(1 + below(most_frames)))
        .with(REPEAT, number(20 + below(2_000)))
        .with(PAUSE, number(1 + below(200)))
        .with(LONGEST, number(1_000 + below(20_000)))
        .with(STALL, number(STALL_US + below(200_000)))
        .with(SEGMENT, number(segment))
}
