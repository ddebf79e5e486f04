//! The table of components.

use super::Direction::{Either, In, Out};
use super::PortType::{Ack, Any, Data, Disable, Expiry, Header, Message, Next, Packet, Pinfo, Verdict};
use super::Source::{Allotted, Derived, Own};
use super::{
    ACK_MASK_BITS, ANY_NODE, Block, Direction, Kind, MAX_MESSAGE_BYTES, Number, Parameter, Port, PortType,
    Resources, Row, Setting, Source, Values,
};

const fn port(name: &'static str, direction: Direction, carries: PortType) -> Port {
    Port { name, direction, carries, may_be_closed: false, takes_many: false }
}

/// The port with a stub allowed.
const fn optional(port: Port) -> Port {
    Port { may_be_closed: true, ..port }
}

const fn number(parameter: Parameter, default: u32, least: u32, most: u32) -> Setting {
    Setting { parameter, values: Values::Number { least, most, step: 1 }, default }
}

/// A number of bytes that is a multiple of a word of 32 bits, as the header counts them (section 3).
const fn words(parameter: Parameter, default: u32, least: u32, most: u32) -> Setting {
    Setting { parameter, values: Values::Number { least, most, step: 4 }, default }
}

const fn flag(parameter: Parameter, default: bool) -> Setting {
    Setting { parameter, values: Values::Flag, default: default as u32 }
}

const FORMAT: Setting = Setting {
    parameter: Parameter::Format,
    values: Values::Choice(&["seq24_node4", "seq8_node12"]),
    default: 0,
};

/// The paper measured with 1408 bytes (section 5.2). More than 2040 would not fit the header's length of nine bits, in
/// words (section 3).
const PACKET_BYTES: Setting = words(Parameter::PacketBytes, 1408, 4, 2040);

const PLACEMENT: Setting = flag(Parameter::Placement, false);

/// A row of a component without parameters, of which an assembly may have any number.
const fn row(kind: Kind, name: &'static str, block: Block, ports: &'static [Port]) -> Row {
    let resources = Resources { flip_flops: 0, luts: 0 };
    Row { kind, name, block, ports, parameters: &[], resources, source: Own, number: Number::Any }
}

/// The row of a component that every assembly has exactly once.
const fn once(row: Row) -> Row {
    Row { number: Number::One, ..row }
}

/// The row with parameters.
const fn set(row: Row, parameters: &'static [Setting]) -> Row {
    Row { parameters, ..row }
}

/// The row with the FPGA resources of the component.
const fn cost(row: Row, flip_flops: u32, luts: u32, source: Source) -> Row {
    Row { resources: Resources { flip_flops, luts }, source, ..row }
}

/// Every kind, in the order of their numbers.
///
/// Resources. Table 1 fixes sums: 1643 flip-flops and 1977 look-up tables for CONF1's five components; 522 and 1403
/// more for `genp`, `build_acks` and `timer` instead of `genp_unreliable`; 369 and 404 for `dup_find` and `drop_pkt`;
/// 116 and 149 for `order_pkts`. A sum is divided by the state that each component needs for each of 16 nodes: a
/// window (`genp`), a base and a mask (`build_acks`, `dup_find`), a time (`timer`). Edges belong to the board, and
/// synthesis removes stubs, which are constants: both take nothing. Components that the paper did not build are
/// estimated from those that it did: `selective_repeat` as `dup_find` and `order_pkts` together, and 64 look-up tables
/// that hold an address of 32 bits for each of 32 packets; `rate_control` as a counter of 32 bits, its comparator and
/// 6 bits of state; `mitigate` as two of these.
pub static KINDS: [Row; 19] = [
    once(row(Kind::HostSend, "host_send", Block::None, &[port("messages", Out, Message)])),
    set(once(row(Kind::HostReceive, "host_receive", Block::None, &[port("data", In, Data)])), &[PLACEMENT]),
    once(row(Kind::WireIn, "wire_in", Block::None, &[port("packets", Out, Packet)])),
    once(row(Kind::WireOut, "wire_out", Block::None, &[port("packets", In, Packet)])),
    GENP,
    GENP_UNRELIABLE,
    BUILD_ACKS,
    TIMER,
    DUP_FIND,
    ORDER_PKTS,
    DROP_PKT,
    SELECTIVE_REPEAT,
    MITIGATE,
    XMIT,
    RATE_CONTROL,
    RCV_PKT,
    cost(
        once(row(
            Kind::BadPktFilter,
            "bad_pkt_filter",
            Block::C,
            &[port("packets", In, Packet), port("packets", Out, Packet)],
        )),
        93,
        122,
        Allotted,
    ),
    SPLIT_PACKET,
    row(Kind::Stub, "stub", Block::None, &[port("port", Either, Any)]),
];

const GENP: Row = cost(
    set(
        row(
            Kind::Genp,
            "genp",
            Block::B,
            &[
                port("messages", In, Message),
                port("headers", In, Header),
                port("expiries", In, Expiry),
                port("pinfo", Out, Pinfo),
                port("next", Out, Next),
                port("disable", Out, Disable),
            ],
        ),
        // A card stores unacknowledged packets in its memory, for each node. The limit bounds the memory that an image
        // can use.
        &[PACKET_BYTES, number(Parameter::OutstandingLimit, 32, 1, 1024), PLACEMENT],
    ),
    512,
    935,
    Allotted,
);

const GENP_UNRELIABLE: Row = cost(
    set(
        row(
            Kind::GenpUnreliable,
            "genp_unreliable",
            Block::B,
            &[port("messages", In, Message), port("pinfo", Out, Pinfo)],
        ),
        &[PACKET_BYTES, PLACEMENT],
    ),
    330,
    375,
    Allotted,
);

const BUILD_ACKS: Row = cost(
    set(
        row(
            Kind::BuildAcks,
            "build_acks",
            Block::B,
            &[port("headers", In, Header), port("next", In, Next), port("acks", Out, Ack)],
        ),
        &[number(Parameter::Threshold, 8, 1, 512), flag(Parameter::AcknowledgeLast, true)],
    ),
    220,
    518,
    Allotted,
);

const TIMER: Row = cost(
    set(
        row(
            Kind::Timer,
            "timer",
            Block::B,
            &[port("next", In, Next), port("disable", In, Disable), port("expiries", Out, Expiry)],
        ),
        &[number(Parameter::TimeoutUs, 1000, 1, 10_000_000), number(Parameter::Retries, 64, 0, 65_535)],
    ),
    120,
    325,
    Allotted,
);

const DUP_FIND: Row = cost(
    set(
        row(
            Kind::DupFind,
            "dup_find",
            Block::B,
            &[
                port("headers", In, Header),
                optional(port("headers", Out, Header)),
                optional(port("verdicts", Out, Verdict)),
            ],
        ),
        &[number(Parameter::Beyond, 32, 0, ACK_MASK_BITS)],
    ),
    269,
    294,
    Allotted,
);

const ORDER_PKTS: Row = cost(
    set(
        row(
            Kind::OrderPkts,
            "order_pkts",
            Block::B,
            &[
                port("headers", In, Header),
                optional(port("headers", Out, Header)),
                port("verdicts", Out, Verdict),
            ],
        ),
        &[Setting {
            parameter: Parameter::Policy,
            values: Values::Choice(&["go_back_n", "newer"]),
            default: 0,
        }],
    ),
    116,
    149,
    Derived,
);

const DROP_PKT: Row = cost(
    row(
        Kind::DropPkt,
        "drop_pkt",
        Block::B,
        &[
            port("data", In, Data),
            Port { takes_many: true, ..port("verdicts", In, Verdict) },
            port("data", Out, Data),
        ],
    ),
    100,
    110,
    Allotted,
);

const SELECTIVE_REPEAT: Row = cost(
    set(
        row(
            Kind::SelectiveRepeat,
            "selective_repeat",
            Block::B,
            &[
                port("headers", In, Header),
                port("data", In, Data),
                port("headers", Out, Header),
                port("data", Out, Data),
            ],
        ),
        // The mask could not acknowledge more packets than it has bits.
        &[number(Parameter::BufferPackets, 32, 1, ACK_MASK_BITS)],
    ),
    385,
    507,
    Own,
);

const MITIGATE: Row = cost(
    set(
        row(Kind::Mitigate, "mitigate", Block::B, &[port("data", In, Data), port("data", Out, Data)]),
        &[
            number(Parameter::RcvChunkSize, 0, 0, MAX_MESSAGE_BYTES),
            number(Parameter::MinMessageBytes, 0, 0, MAX_MESSAGE_BYTES),
            flag(Parameter::AtEnd, false),
            Setting { parameter: Parameter::Source, values: Values::Node, default: ANY_NODE },
        ],
    ),
    76,
    112,
    Own,
);

const XMIT: Row = cost(
    set(
        once(row(
            Kind::Xmit,
            "xmit",
            Block::A,
            &[port("pinfo", In, Pinfo), optional(port("acks", In, Ack)), port("packets", Out, Packet)],
        )),
        &[FORMAT],
    ),
    520,
    650,
    Allotted,
);

const RATE_CONTROL: Row = cost(
    set(
        row(
            Kind::RateControl,
            "rate_control",
            Block::A,
            &[port("packets", In, Packet), port("packets", Out, Packet)],
        ),
        // 50 us for packets of 1408 bytes is 225 Mb/s, below the rate of the prototype's internal bus (section 5.3).
        &[number(Parameter::IntervalUs, 50, 1, 1_000_000)],
    ),
    38,
    56,
    Own,
);

const RCV_PKT: Row = cost(
    set(
        once(row(
            Kind::RcvPkt,
            "rcv_pkt",
            Block::C,
            &[port("frames", In, Packet), port("packets", Out, Packet)],
        )),
        &[words(Parameter::MemoryBytes, 1 << 20, 4096, 1 << 26)],
    ),
    390,
    450,
    Allotted,
);

const SPLIT_PACKET: Row = cost(
    set(
        once(row(
            Kind::SplitPacket,
            "split_packet",
            Block::C,
            &[port("packets", In, Packet), optional(port("headers", Out, Header)), port("data", Out, Data)],
        )),
        &[FORMAT],
    ),
    310,
    380,
    Allotted,
);
