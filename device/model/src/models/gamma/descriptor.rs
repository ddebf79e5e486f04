//! GAMMA in the registry.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use niclab_abi::config::FEATURE_RINGS;
use niclab_abi::gamma::{ACTIVE_PORT_MAX_MESSAGE_BYTES, ACTIVE_PORTS};
use niclab_abi::receive::MAX_SLICES;
use niclab_abi::rings::{OP_FIFO_LOOK, OP_RING_TERMS, RING_LENGTH_SHIFT, RING_MAX_BUFFER_BYTES};

use crate::models::gamma::config::{Config, acknowledgements};
use crate::models::gamma::nic::Gamma;
use crate::models::gamma::wire::{Carried, PROTOCOL};
use crate::nic::host_values::{self, Bound, HostValue, ValueLocation};
use crate::nic::registry::{
    AnyNic, Begun, BuildError, CardContext, Choice, Draw, DrawnWorkload, Limits, Model, Origin, Parameter,
    ParameterKind, Promise, Promises, Swarm, Value, Values,
};
use crate::nic::windows::PAGES_OF_PORTS;

/// GAMMA.
pub static MODEL: Model = Model {
    name: "gamma",
    title: "GAMMA",
    article: "a",
    protocol: PROTOCOL,
    summary: "frames by descriptors on a plain Fast Ethernet card, active ports and a credit window in the driver",
    paper: "G. Chiola, G. Ciaccio, L. V. Mancini, P. Rotondo, GAMMA on DEC 2114x with Efficient Flow Control",
    ports: ACTIVE_PORTS,
    windows: PAGES_OF_PORTS,
    parameters: PARAMETERS,
    check: |_| Vec::new(),
    limits,
    promises,
    default_profile: "fast-ethernet-p133",
    machines: &[],
    features: FEATURE_RINGS,
    host_values: &[host_values::OF_EVERY_CARD, HOST_VALUES],
    begun,
    routing: None,
    build,
    programs: None,
    swarm: Swarm { one_in: 0, draws_device_faults: false, draws_apart: true, draw },
};

/// The length in a returned descriptor, and the terms of the cluster's drivers
/// ([`niclab_abi::rings::RingTerms`]). Ours: the interface.
const HOST_VALUES: &[HostValue] = &[
    HostValue::new(
        "frame length",
        ValueLocation::Completion(0),
        RING_LENGTH_SHIFT,
        14,
        Bound::Fixed(RING_MAX_BUFFER_BYTES as u64 + 1),
    ),
    term("receive buffers", 0, Bound::Fixed(1 << 20)),
    term("window", 32, Bound::Fixed(1 << 20)),
    term("frames to an acknowledgement", 64, Bound::Fixed(1 << 20)),
    term("buffers of other protocols", 96, Bound::Fixed(1 << 20)),
    term("longest frame", 192, Bound::Fixed(RING_MAX_BUFFER_BYTES as u64 + 1)),
    term("protocol", 288, Bound::Fixed(256)),
    HostValue::new("bytes in the FIFO", ValueLocation::Answer(OP_FIFO_LOOK), 0, 32, Bound::Fixed(1 << 16)),
];

const fn term(name: &'static str, first_bit: u32, bound: Bound) -> HostValue {
    HostValue::new(name, ValueLocation::Answer(OP_RING_TERMS), first_bit, 32, bound)
}

const BUFFERS: &str = "receive_buffers";
const WINDOW: &str = "window_frames";
const ACKNOWLEDGE: &str = "acknowledge_every";
const LINE_RATE: &str = "line_rate_mbit_per_s";
const TRANSMIT_FIFO: &str = "transmit_fifo_bytes";
const THRESHOLD: &str = "transmit_threshold_bytes";
const RECEIVE_FIFO: &str = "receive_fifo_bytes";
const BURST: &str = "receive_burst_bytes";
const INTERRUPT: &str = "interrupt_frames";
const DELAY: &str = "interrupt_delay_us";
const TRANSFER: &str = "transfer";
const CPU_DRIVEN: &str = "cpu-driven";
const DESCRIPTORS: &str = "descriptors";

const PARAMETERS: &[Parameter] = &[
    Parameter {
        key: BUFFERS,
        help: "Buffers of each node's receive ring. Each other node needs window_frames of them, and one for each \
               acknowledgement of a window (one, unless acknowledge_every is set). The rest is for IP.",
        origin: Origin::Source("section 3: 1,024 buffers of 1.5 KB"),
        kind: ParameterKind::Number { default: 1_024, least: 4, most: 4_096 },
    },
    Parameter {
        key: WINDOW,
        help: "Maximum unacknowledged frames from one node to another; 0: any number, and frames that find no \
               buffer are lost.",
        origin: Origin::Source("section 5: a window of some tens of frames does not slow transfers"),
        kind: ParameterKind::Number { default: 32, least: 0, most: 1_024 },
    },
    Parameter {
        key: ACKNOWLEDGE,
        help: "Frames from a node after which the receiver acknowledges them; 0: after the whole window.",
        origin: Origin::Source("section 3: when the whole window is used"),
        kind: ParameterKind::Number { default: 0, least: 0, most: 1_024 },
    },
    Parameter {
        key: LINE_RATE,
        help: "Line rate of the card, in megabits per second. The links of the cluster have separate rates.",
        origin: Origin::Source("section 1: Fast Ethernet"),
        kind: ParameterKind::Number { default: 100, least: 1, most: 400_000 },
    },
    Parameter {
        key: TRANSMIT_FIFO,
        help: "Bytes of the transmit FIFO.",
        origin: Origin::Assumed("room for two full frames and more"),
        kind: ParameterKind::Number { default: 4_096, least: 64, most: 1 << 20 },
    },
    Parameter {
        key: THRESHOLD,
        help: "Bytes of a frame in the transmit FIFO at which it begins to leave; 0: all bytes (store and forward).",
        origin: Origin::Source(
            "DEC 21143 hardware reference, CSR6: 128 bytes at 100 Mb/s, the least of four",
        ),
        kind: ParameterKind::Number { default: 128, least: 0, most: 2_048 },
    },
    Parameter {
        key: RECEIVE_FIFO,
        help: "Bytes of the receive FIFO. The card drops and counts frames that find it full.",
        origin: Origin::Assumed("room for two full frames and more"),
        kind: ParameterKind::Number { default: 4_096, least: 64, most: 1 << 20 },
    },
    Parameter {
        key: BURST,
        help: "Bytes of a burst, in which the card stores a frame while it receives it; 0: after the whole frame.",
        origin: Origin::Assumed("one or two cache lines of that time"),
        kind: ParameterKind::Number { default: 64, least: 0, most: 2_048 },
    },
    Parameter {
        key: INTERRUPT,
        help: "Received frames after which the card interrupts its driver; 0: the driver polls.",
        origin: Origin::Assumed("polling, the faster of the paper's two ways to receive"),
        kind: ParameterKind::Number { default: 0, least: 0, most: 1_024 },
    },
    Parameter {
        key: DELAY,
        help: "Microseconds of model time after which the card interrupts for fewer frames than interrupt_frames.",
        origin: Origin::Assumed("about half of a full frame's 120 us on the wire"),
        kind: ParameterKind::Number { default: 50, least: 0, most: 1_000_000 },
    },
    Parameter {
        key: TRANSFER,
        help: "What drives transfers between host and card. The guests' driver supports descriptors only.",
        origin: Origin::Source("section 4: the new prototype's descriptor-based DMA"),
        kind: ParameterKind::Choice {
            default: DESCRIPTORS,
            choices: &[
                Choice {
                    name: "descriptors",
                    help: "the card, along rings of descriptors in the host's memory",
                },
                Choice {
                    name: CPU_DRIVEN,
                    help: "the processor: it reads each frame's header from the card, programs the destination \
                           of the data, and waits (the 3C595's mode)",
                },
            ],
        },
    },
];

fn limits(_: &Values) -> Limits {
    Limits {
        open_ports: (0..ACTIVE_PORTS as u16).collect(),
        max_slices: MAX_SLICES,
        senders_per_port: None,
        senders_raised_by: None,
        entries: 0,
        unexpected_messages: 0,
        max_message_bytes: ACTIVE_PORT_MAX_MESSAGE_BYTES,
        message_raised_by: None,
        message_unit_bytes: 1,
        payload_bytes: 0,
        first_segment_bytes: 0,
        peripheral_ports: Vec::new(),
    }
}

/// Bytes of a receive FIFO that holds one Ethernet frame, which waits for the bus, while the next one arrives. Ours:
/// the swarm's choice.
const ROOMY_FIFO_BYTES: u64 = 4_096;

/// No frame is retransmitted. The receiver reports a frame that a link loses, and its message fails. A window protects
/// the host's buffers. A FIFO that holds a single frame may stay full while other masters use the bus.
fn promises(values: &Values) -> Promises {
    let is_controlled = values.number(WINDOW) != 0 && values.number(RECEIVE_FIFO) >= ROOMY_FIFO_BYTES;
    Promises {
        sound: Promise { is_delivered: is_controlled, ..Promise::ALL },
        faulty: Promise { is_delivered: false, ..Promise::ALL },
    }
}

/// The parameters of a card with these values.
pub fn config(values: &Values, context: CardContext) -> Config {
    Config {
        node: context.node,
        nodes: context.nodes,
        mtu_bytes: context.mtu_bytes,
        // Ours: units.
        line_rate_bits_per_s: values.number(LINE_RATE) * 1_000_000,
        is_cpu_driven: values.word(TRANSFER) == CPU_DRIVEN,
        transmit_fifo_bytes: values.number_u32(TRANSMIT_FIFO),
        transmit_threshold_bytes: values.number_u32(THRESHOLD),
        receive_fifo_bytes: values.number_u32(RECEIVE_FIFO),
        receive_burst_bytes: values.number_u32(BURST),
        receive_buffers: values.number_u32(BUFFERS),
        window_frames: values.number_u32(WINDOW),
        acknowledge_every: values.number_u32(ACKNOWLEDGE),
        interrupt_frames: values.number_u32(INTERRUPT),
        // Ours: units.
        interrupt_delay_ns: values.number_u32(DELAY) * 1_000,
        profile: context.profile,
    }
}

fn begun(frame: &[u8]) -> Option<Begun> {
    match Carried::by(frame) {
        Carried::Data { from, to, is_first: true, .. } => Some(Begun { from, to, interrupt: false }),
        _ => None,
    }
}

fn build(values: &Values, context: CardContext) -> Result<AnyNic, BuildError> {
    Ok(Box::new(Gamma::new(config(values, context))?))
}

fn draw(below: &mut Draw<'_>, workload: &mut DrawnWorkload) -> Values {
    let number = |value: u32| Value::Number(value.into());
    // Messages of one frame, of a few frames that fill the FIFO, and of many frames.
    workload.message_bytes = match below(4) {
        0 => below(8_000),
        1 => 1_000 + below(1_000),
        _ => below(100),
    };
    let is_cpu_driven = below(4) == 0;
    let window = if below(6) == 0 || is_cpu_driven { 0 } else { 1 + below(40) };
    // No more datagrams in flight than the buffers outside of the windows hold.
    if !is_cpu_driven && below(2) == 0 {
        workload.datagram_every = u64::from(window.max(1) + below(20));
    }
    let acknowledge_every = below(window + 1);
    let buffers = draw_buffers(below, workload, window, acknowledge_every);
    let transfer = if is_cpu_driven { CPU_DRIVEN } else { DESCRIPTORS };
    Values::defaults(&MODEL)
        .with(TRANSFER, Value::Word(transfer.to_string()))
        .with(WINDOW, number(window))
        .with(BUFFERS, number(buffers))
        .with(ACKNOWLEDGE, number(acknowledge_every))
        .with(TRANSMIT_FIFO, number(2_048 << below(3)))
        .with(THRESHOLD, number(64 * below(8)))
        .with(RECEIVE_FIFO, number(2_048 << below(3)))
        .with(BURST, number(32 * below(5)))
        .with(INTERRUPT, number(below(4)))
        .with(DELAY, number(below(100)))
}

/// Maximum datagrams of a sender in flight. A sender posts at least a window of messages between two datagrams. So two
/// datagrams may share one acknowledgement, and a third may wait in the driver. Ours: the swarm's choice.
const DATAGRAMS_IN_FLIGHT: u32 = 3;

/// Buffers of a random card: the paper's number, or hardly more than the windows need. In both cases the card may miss
/// no frame. Without windows: so few buffers that the card misses frames.
fn draw_buffers(below: &mut Draw<'_>, workload: &DrawnWorkload, window: u32, acknowledge_every: u32) -> u32 {
    // Section 3.
    const PAPERS: u32 = 1_024;
    // Ours: the minimum of the parameter.
    const LEAST: u32 = 4;
    // Ours: a few, soon used up.
    const FEW: u32 = 100;
    let (is_tight, more) = (below(2) == 0, below(FEW));
    if !is_tight {
        return PAPERS;
    }
    if window == 0 {
        return LEAST + more;
    }
    let datagrams = if workload.datagram_every == 0 { 0 } else { DATAGRAMS_IN_FLIGHT };
    let of_each = window + acknowledgements(window, acknowledge_every) + datagrams;
    // Half of these cards have no spare buffer.
    ((workload.nodes - 1) * of_each + more.saturating_sub(FEW / 2)).max(LEAST)
}
