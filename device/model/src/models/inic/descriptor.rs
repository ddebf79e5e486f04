//! INIC in the registry.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use niclab_abi::config::{
    FEATURE_COLLECTIVES, FEATURE_FIRMWARE, FEATURE_HAND_OVER, FEATURE_POSTS, FEATURE_REGIONS,
};
use niclab_abi::inic::POST_UNALIKE;
use niclab_abi::receive::MAX_SLICES;
use niclab_components::{Assembly, Bundled, Checked, Fault, Format, Kind as Part, Parameter as Setting};

use crate::models::inic::assemblies::CHOICES;
use crate::models::inic::config::Config;
use crate::models::inic::drawing;
use crate::models::inic::nic::Inic;
use crate::models::inic::wire::{self, PROTOCOL};
use crate::nic::Address;
use crate::nic::host_values::{self, Bound, HostValue, NEVER_COUNTED, ValueLocation};
use crate::nic::registry::{
    AnyNic, Begun, BuildError, CardContext, Choice, Draw, DrawnWorkload, Limits, Model, Origin, Parameter,
    ParameterKind, Problem, Programs, Promise, Promises, Swarm, Value, Values,
};
use crate::nic::windows::PAGES_OF_PORTS;

/// INIC.
pub static MODEL: Model = Model {
    name: "inic",
    title: "INIC",
    article: "an",
    protocol: PROTOCOL,
    summary: "a protocol assembled from components: reliable or not, in order or not, as the application needs",
    paper: "R. G. Jaganathan, K. D. Underwood, R. Sass, A Configurable Network Protocol for Cluster Based \
            Communications using Modular Hardware Primitives on an Intelligent NIC",
    ports: 1,
    parameters: PARAMETERS,
    check: |values| assembly(values, 0).err().into_iter().collect(),
    limits,
    promises,
    default_profile: "i960-32-33",
    machines: &[
        "load",
        "genp",
        "genp_unreliable",
        "build_acks",
        "timer",
        "dup_find",
        "order_pkts",
        "drop_pkt",
        "selective_repeat",
        "mitigate",
        "xmit",
        "rate_control",
        "rcv_pkt",
        "bad_pkt_filter",
        "split_packet",
        "host_receive",
        "collectives",
        "reconfigure",
    ],
    features: FEATURE_POSTS | FEATURE_REGIONS | FEATURE_FIRMWARE | FEATURE_HAND_OVER | FEATURE_COLLECTIVES,
    windows: PAGES_OF_PORTS,
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
    programs: Some(Programs { promises: promises_of_image, draw: drawing::image }),
    swarm: Swarm { one_in: 0, draws_device_faults: true, draws_apart: false, draw },
};

/// Words of an event, counted from the last, as [`niclab_abi::inic::PostEvent`] has them. Ours: the interface.
const HOST_VALUES: &[HostValue] = &[
    HostValue::new("event kind", ValueLocation::Completion(0), 0, 8, Bound::Fixed(64)),
    HostValue::new("event result", ValueLocation::Completion(0), 8, 8, Bound::Fixed(POST_UNALIKE as u64 + 1)),
    HostValue::new("event message", ValueLocation::Completion(6), 0, 64, Bound::Fixed(NEVER_COUNTED)),
    HostValue::new("event source", ValueLocation::Completion(7), 0, 64, Bound::Fixed(1 << 32)),
    HostValue::new("moved bytes", ValueLocation::Completion(8), 0, 64, Bound::MessageBytes),
    HostValue::new("message bytes", ValueLocation::Completion(9), 0, 64, Bound::MessageBytes),
    HostValue::new("user value", ValueLocation::Completion(10), 0, 64, Bound::Unknown),
];

const ASSEMBLY: &str = "assembly";
const MESSAGE_BYTES: &str = "max_message_bytes";
const FORMAT: &str = "format";
const FITTING: &str = "fitting";
const FIRST_NUMBER: &str = "first_number";

/// Values of an assembly that a cluster file can change: key of the parameter, components, and the components' key.
const OVERRIDES: [(&str, &[Part], Setting); 7] = [
    ("packet_bytes", &[Part::Genp, Part::GenpUnreliable], Setting::PacketBytes),
    ("outstanding_limit", &[Part::Genp], Setting::OutstandingLimit),
    ("ack_threshold", &[Part::BuildAcks], Setting::Threshold),
    ("timeout_us", &[Part::Timer], Setting::TimeoutUs),
    ("retries", &[Part::Timer], Setting::Retries),
    ("rcv_chunk_size", &[Part::Mitigate], Setting::RcvChunkSize),
    ("rate_interval_us", &[Part::RateControl], Setting::IntervalUs),
];

const PARAMETERS: &[Parameter] = &[
    Parameter {
        key: ASSEMBLY,
        help: "The assembly that the card starts with.",
        origin: Origin::Assumed("all of section 2: reliable and ordered"),
        kind: ParameterKind::Choice { default: "conf4", choices: CHOICES },
    },
    Parameter {
        key: "packet_bytes",
        help: "Bytes of payload in a packet, a multiple of 4; 0: as in the assembly.",
        origin: Origin::Assumed("zero is none: assemblies have their own"),
        kind: ParameterKind::Number { default: 0, least: 0, most: 2_040 },
    },
    Parameter {
        key: "outstanding_limit",
        help: "Maximum unacknowledged packets to a node; 0: as in the assembly.",
        origin: Origin::Assumed("zero is none: assemblies have their own"),
        kind: ParameterKind::Number { default: 0, least: 0, most: 1_024 },
    },
    Parameter {
        key: "ack_threshold",
        help: "Packets from a node after which the card must acknowledge; 0: as in the assembly.",
        origin: Origin::Assumed("zero is none: assemblies have their own"),
        kind: ParameterKind::Number { default: 0, least: 0, most: 512 },
    },
    Parameter {
        key: "timeout_us",
        help: "Silence of a node before the card retransmits a packet, in microseconds of model time; 0: as in the \
               assembly.",
        origin: Origin::Assumed("zero is none: assemblies have their own"),
        kind: ParameterKind::Number { default: 0, least: 0, most: 10_000_000 },
    },
    Parameter {
        key: "retries",
        help: "Consecutive timeouts after which messages to a node fail; 0: as in the assembly.",
        origin: Origin::Assumed("zero is none: assemblies have their own"),
        kind: ParameterKind::Number { default: 0, least: 0, most: 65_535 },
    },
    Parameter {
        key: "rcv_chunk_size",
        help: "Received bytes before an interrupt, if the assembly mitigates interrupts; 0: as in the assembly.",
        origin: Origin::Assumed("zero is none: assemblies have their own"),
        kind: ParameterKind::Number { default: 0, least: 0, most: 1 << 30 },
    },
    Parameter {
        key: "rate_interval_us",
        help: "Time between two packets, in microseconds of model time, if the assembly controls its rate; 0: as in \
               the assembly.",
        origin: Origin::Assumed("zero is none: assemblies have their own"),
        kind: ParameterKind::Number { default: 0, least: 0, most: 1_000_000 },
    },
    Parameter {
        key: FORMAT,
        help: "Format of the packet header.",
        origin: Origin::Source("section 3: the format is the cluster's, by its nodes"),
        kind: ParameterKind::Choice {
            default: FITTING,
            choices: &[
                Choice {
                    name: FITTING,
                    help: "as in the assembly if that can name all nodes; otherwise seq8_node12",
                },
                Choice {
                    name: "seq24_node4",
                    help: "24 bits of sequence number, 4 bits for each node: the paper's cluster",
                },
                Choice {
                    name: "seq8_node12",
                    help: "8 bits of sequence number, 12 bits for each node: up to 4096 nodes",
                },
            ],
        },
    },
    Parameter {
        key: MESSAGE_BYTES,
        help: "Maximum message length, in bytes.",
        origin: Origin::Assumed("larger than typical messages of cluster programs"),
        kind: ParameterKind::Number { default: 16 << 20, least: 64, most: 1 << 30 },
    },
    Parameter {
        key: "send_crossings",
        help: "How often each sent packet crosses the card's internal bus. The paper counts four crossings for sent \
               and received packets together.",
        origin: Origin::Source("section 5.3: four crossings, read as two at either end"),
        kind: ParameterKind::Number { default: 2, least: 0, most: 8 },
    },
    Parameter {
        key: "receive_crossings",
        help: "How often each received packet crosses the card's internal bus.",
        origin: Origin::Source("section 5.3: four crossings, read as two at either end"),
        kind: ParameterKind::Number { default: 2, least: 0, most: 8 },
    },
    Parameter {
        key: FIRST_NUMBER,
        help: "Number of the first packet between any two nodes, the same at all nodes. Tests set it to make numbers \
               wrap.",
        origin: Origin::Assumed("numbers start at zero"),
        kind: ParameterKind::Number { default: 0, least: 0, most: u32::MAX as u64 },
    },
];

/// The assembly of a card with these values, in a cluster of `nodes` nodes.
///
/// # Errors
/// Why the values give no valid assembly.
fn assembly(values: &Values, nodes: u32) -> Result<Checked, Problem> {
    let name = values.word(ASSEMBLY);
    let problem = |key, what, remedy: &str| Problem { key, what, remedy: remedy.to_string() };
    let mut assembly = match Bundled::named(name).map(Bundled::assembly) {
        Some(assembly) => assembly,
        None => {
            return Err(problem(ASSEMBLY, format!("there is no assembly `{name}`"), "see `niclab schema`"));
        }
    };
    for (key, parts, setting) in OVERRIDES {
        let value = values.number_u32(key);
        if value == 0 {
            continue;
        }
        let set = parts.iter().map(|part| assembly.set(*part, setting, value).unwrap_or(0)).sum::<usize>();
        if set == 0 {
            let what = format!("the assembly `{name}` has no component that takes it");
            return Err(problem(key, what, "leave it out, or choose another assembly"));
        }
    }
    let format = match values.word(FORMAT) {
        "seq24_node4" => Some(Format::Seq24Node4),
        "seq8_node12" => Some(Format::Seq8Node12),
        _ if nodes > wire::nodes_of(Format::Seq24Node4) => Some(Format::Seq8Node12),
        _ => None,
    };
    for part in [Part::Xmit, Part::SplitPacket] {
        if let Some(format) = format {
            // Every assembly has both components, and both have this setting.
            let _ = assembly.set(part, Setting::Format, format as u32);
        }
    }
    assembly.check().map_err(|faults| {
        let what = faults.first().map_or_else(|| format!("`{name}` is invalid"), Fault::to_string);
        problem(ASSEMBLY, what, "change the values that the message names")
    })
}

/// Bytes of the tag that workloads put before each message. Ours: the interface.
const TAG_BYTES: u64 = 16;

fn limits(values: &Values) -> Limits {
    Limits {
        open_ports: [0].into(),
        max_slices: MAX_SLICES,
        senders_per_port: None,
        senders_raised_by: None,
        entries: 0,
        unexpected_messages: 0,
        max_message_bytes: values.number(MESSAGE_BYTES) - TAG_BYTES,
        message_raised_by: Some(MESSAGE_BYTES),
        message_unit_bytes: 1,
        payload_bytes: 0,
        first_segment_bytes: 0,
        peripheral_ports: Vec::new(),
    }
}

/// Delivery guarantees of an assembly. Without faults a switch with a full queue or a card with full memory may still
/// drop frames. Retransmitted frames then arrive late. An assembly without retransmissions keeps the order.
fn promises(values: &Values) -> Promises {
    promises_of(assembly(values, 0).map(|assembly| assembly.promises()).unwrap_or_default())
}

fn promises_of(promises: niclab_components::Promises) -> Promises {
    let faulty =
        Promise { is_delivered: promises.delivered, is_once: promises.once, is_in_order: promises.in_order };
    let sound = if faulty.is_delivered { faulty } else { Promise { is_delivered: false, ..Promise::ALL } };
    Promises { sound, faulty }
}

/// The promises of an image's assembly.
///
/// # Errors
/// Why the image is invalid, or the first fault of the assembly.
fn promises_of_image(image: &[u8]) -> Result<Promises, String> {
    let assembly = Assembly::decode(image).map_err(|error| error.to_string())?;
    let first = |faults: Vec<Fault>| faults.first().map(Fault::to_string).unwrap_or_default();
    Ok(promises_of(assembly.check().map_err(first)?.promises()))
}

/// Identifies a message by its last packet, because the header does not mark the first one.
fn begun(frame: &[u8]) -> Option<Begun> {
    [Format::Seq24Node4, Format::Seq8Node12].into_iter().find_map(|format| {
        let header = wire::Header::parse_any(format, frame).ok()?;
        let is_told = header.has_data && header.is_last && !header.is_again && !header.for_card;
        let at = |node| Address { node, port: 0 };
        is_told.then(|| Begun { from: at(header.source), to: at(header.destination), interrupt: false })
    })
}

/// The parameters of a card with these values.
///
/// # Errors
/// Why the values are invalid.
pub fn config(values: &Values, context: CardContext) -> Result<Config, Problem> {
    let CardContext { node, nodes, mtu_bytes, profile } = context;
    Ok(Config {
        node,
        nodes,
        mtu_bytes,
        assembly: assembly(values, nodes)?,
        max_message_bytes: values.number(MESSAGE_BYTES),
        crossings: [values.number_u32("send_crossings"), values.number_u32("receive_crossings")],
        first_number: values.number_u32(FIRST_NUMBER),
        // Ours: bounds.
        regions_per_port: 64,
        // Ours: as before.
        extents_per_port: 65_536,
        profile,
    })
}

fn build(values: &Values, context: CardContext) -> Result<AnyNic, BuildError> {
    let config = config(values, context)
        .map_err(|Problem { key, what, remedy }| format!("{key}: {what}; {remedy}"))?;
    Ok(Box::new(Inic::new(config)?))
}

/// Max payload of a message with several packets, and of a short one. Ours: the swarm's range.
const DRAWN_BYTES: [u32; 2] = [6_000, 100];
/// Max packets of a random message. Ours: the swarm's range.
const DRAWN_PACKETS: u32 = 64;

fn draw(below: &mut Draw<'_>, workload: &mut DrawnWorkload) -> Values {
    let [long, short] = DRAWN_BYTES;
    workload.slices = 32 << below(4);
    let max_bytes = if below(2) == 0 { short } else { long };
    workload.message_bytes = below(max_bytes);
    let name = CHOICES.get(below(CHOICES.len() as u32) as usize).map_or("conf4", |choice| choice.name);
    let (packet, timeout) = (4 * (1 + below(340)), 20 + below(2_000));
    let packet = packet.max((workload.message_bytes / DRAWN_PACKETS).next_multiple_of(4));
    let threshold = 1 + below(16);
    let limit = (2 * threshold + below(16)).min(31);
    let values = Values::defaults(&MODEL).with(ASSEMBLY, Value::Word(name.to_string()));
    let values = values.with("packet_bytes", Value::Number(packet.into()));
    // For half of all cards, numbers soon wrap: those of the wide format, or those inside the card.
    let left = 1 + u64::from(below(400));
    let first = [(1 << 24) - left, (1 << 32) - left].get(below(4) as usize).copied().unwrap_or(0);
    let values = values.with(FIRST_NUMBER, Value::Number(first));
    let is_reliable = !matches!(name, "conf1" | "unreliable_ordered");
    let values = if name == "rate_controlled" {
        values.with("rate_interval_us", Value::Number((1 + below(30)).into()))
    } else {
        values
    };
    if !is_reliable {
        return values;
    }
    // Rate control makes round trips long. Retransmissions before the acknowledgement can arrive would block all
    // progress.
    let timeout = if name == "rate_controlled" { 0 } else { timeout };
    values
        .with("timeout_us", Value::Number(timeout.into()))
        .with("retries", Value::Number(drawing::RETRIES.into()))
        .with("ack_threshold", Value::Number((limit / 2).min(threshold).into()))
        .with("outstanding_limit", Value::Number(limit.into()))
}
