//! Builds a circuit of an assembly: its components, with their values and machines.

use alloc::boxed::Box;
use alloc::vec::Vec;

use niclab_components::kinds::Direction;
use niclab_components::{Checked, Component as Part, Kind, Parameter, Policy};

use crate::models::inic::arrivals::Number;
use crate::models::inic::circuit::{Circuit, Component, Connection, Plan, Ports};
use crate::models::inic::components::bad_pkt_filter::BadPktFilter;
use crate::models::inic::components::build_acks::BuildAcks;
use crate::models::inic::components::drop_pkt::DropPkt;
use crate::models::inic::components::dup_find::DupFind;
use crate::models::inic::components::edges::{Source, Stub, WireOut};
use crate::models::inic::components::genp::{Genp, Parameters};
use crate::models::inic::components::genp_unreliable::GenpUnreliable;
use crate::models::inic::components::host_receive::HostReceive;
use crate::models::inic::components::mitigate::{Mitigate, Rules};
use crate::models::inic::components::order_pkts::{self, OrderPkts};
use crate::models::inic::components::rate_control::RateControl;
use crate::models::inic::components::rcv_pkt::RcvPkt;
use crate::models::inic::components::selective_repeat::SelectiveRepeat;
use crate::models::inic::components::split_packet::SplitPacket;
use crate::models::inic::components::timer::Timer;
use crate::models::inic::components::xmit::Xmit;
use crate::models::inic::settings::{dialect, packet_bytes, place_bytes, value};
use crate::models::inic::wire::Dialect;
use crate::parts::host_interface::HostInterface;
use crate::time::Span;

/// A circuit, and the indices of its edge components.
pub(super) struct Assembled {
    pub(super) circuit: Circuit,
    pub(super) host_send: usize,
    pub(super) host_receive: usize,
    pub(super) wire_in: usize,
    /// Identifies the assembly in all epochs.
    pub(super) id: u16,
}

/// The environment of an assembly.
pub(super) struct Site<'a> {
    pub(super) interface: &'a HostInterface,
    /// Nodes of the cluster.
    pub(super) nodes: u32,
    /// Number of the first packet from each node to each other.
    pub(super) first: Number,
}

/// The machine of each kind of component, by its name in profiles and in timelines.
const MACHINES: [(Kind, &str); 15] = [
    (Kind::HostReceive, "host_receive"),
    (Kind::Genp, "genp"),
    (Kind::GenpUnreliable, "genp_unreliable"),
    (Kind::BuildAcks, "build_acks"),
    (Kind::Timer, "timer"),
    (Kind::DupFind, "dup_find"),
    (Kind::OrderPkts, "order_pkts"),
    (Kind::DropPkt, "drop_pkt"),
    (Kind::SelectiveRepeat, "selective_repeat"),
    (Kind::Mitigate, "mitigate"),
    (Kind::Xmit, "xmit"),
    (Kind::RateControl, "rate_control"),
    (Kind::RcvPkt, "rcv_pkt"),
    (Kind::BadPktFilter, "bad_pkt_filter"),
    (Kind::SplitPacket, "split_packet"),
];

/// Builds the circuit of an assembly. Only cards of the same epoch accept its frames.
pub(super) fn assemble(assembly: &Checked, site: &Site<'_>, epoch: u16) -> Assembled {
    let dialect = dialect(assembly, epoch);
    let parts = assembly.components();
    let place = |kind: Kind| parts.iter().position(|part| part.kind() == kind).unwrap_or(0);
    let components = parts.iter().map(|part| {
        let row = part.kind().row();
        let count = |direction| row.ports.iter().filter(|port| port.direction == direction).count();
        // The single port of a stub may be an input or an output.
        let either = count(Direction::Either);
        let ports = Ports { inputs: count(Direction::In) + either, outputs: count(Direction::Out) + either };
        let machine = MACHINES.iter().find(|(kind, _)| *kind == part.kind()).map_or("", |(_, name)| name);
        (component(part, assembly, dialect, site), site.interface.machine(machine, machine), ports)
    });
    let components: Vec<_> = components.collect();
    // A component numbers its inputs and its outputs separately.
    let port = |part: usize, port: usize, direction: Direction| {
        let ports = parts.get(part).map_or(&[][..], |part| part.kind().row().ports);
        let before = ports.iter().take(port).filter(|port| port.direction == direction).count();
        (part, before)
    };
    let connections = assembly.connections().iter().map(|connection| Connection {
        from: port(connection.from.component, connection.from.port, Direction::Out),
        to: port(connection.to.component, connection.to.port, Direction::In),
        depth: connection.depth.into(),
    });
    let connections = connections.collect();
    Assembled {
        circuit: Circuit::new(Plan { components, connections }),
        host_send: place(Kind::HostSend),
        host_receive: place(Kind::HostReceive),
        wire_in: place(Kind::WireIn),
        id: assembly.id(),
    }
}

/// Whether a component generates acknowledgements for `xmit`.
fn has_acks(assembly: &Checked) -> bool {
    let is_xmit = |component: usize| assembly.components().get(component).map(Part::kind) == Some(Kind::Xmit);
    assembly.connections().iter().any(|connection| {
        let from = assembly.components().get(connection.from.component).map(Part::kind);
        is_xmit(connection.to.component) && from == Some(Kind::BuildAcks)
    })
}

fn component(part: &Part, assembly: &Checked, dialect: Dialect, site: &Site<'_>) -> Box<dyn Component> {
    let of = |parameter| part.value(parameter).unwrap_or(0);
    let is = |parameter| of(parameter) != 0;
    let first = site.first;
    match part.kind() {
        Kind::HostSend | Kind::WireIn => Box::new(Source),
        Kind::WireOut => Box::new(WireOut),
        Kind::Stub => Box::new(Stub),
        Kind::HostReceive => {
            Box::new(HostReceive::new(is(Parameter::Placement), packet_bytes(assembly).into(), first))
        }
        Kind::Genp => {
            let parameters = Parameters {
                packet_bytes: of(Parameter::PacketBytes).into(),
                outstanding_limit: of(Parameter::OutstandingLimit) as usize,
                is_placed: is(Parameter::Placement),
                retries: value(assembly, Kind::Timer, Parameter::Retries),
            };
            Box::new(Genp::new(parameters, first))
        }
        Kind::GenpUnreliable => {
            Box::new(GenpUnreliable::new(of(Parameter::PacketBytes).into(), is(Parameter::Placement), first))
        }
        Kind::BuildAcks => {
            Box::new(BuildAcks::new(of(Parameter::Threshold), is(Parameter::AcknowledgeLast), first))
        }
        Kind::Timer => Box::new(Timer::new(microseconds(of(Parameter::TimeoutUs)))),
        Kind::DupFind => Box::new(DupFind::new(of(Parameter::Beyond), first)),
        Kind::OrderPkts => {
            let policy = match Policy::of(of(Parameter::Policy)) {
                Policy::GoBackN => order_pkts::Policy::GoBackN,
                Policy::Newer => order_pkts::Policy::Newer,
            };
            Box::new(OrderPkts::new(policy, first))
        }
        Kind::DropPkt => Box::new(DropPkt),
        Kind::SelectiveRepeat => Box::new(SelectiveRepeat::new(of(Parameter::BufferPackets), first)),
        Kind::Mitigate => {
            let rules = Rules {
                rcv_chunk_size: of(Parameter::RcvChunkSize).into(),
                min_message_bytes: of(Parameter::MinMessageBytes).into(),
                at_end: is(Parameter::AtEnd),
                source: of(Parameter::Source).into(),
            };
            Box::new(Mitigate::new(rules, place_bytes(assembly)))
        }
        Kind::Xmit => Box::new(Xmit::new(dialect, has_acks(assembly))),
        Kind::RateControl => Box::new(RateControl::new(microseconds(of(Parameter::IntervalUs)))),
        Kind::RcvPkt => Box::new(RcvPkt::new(of(Parameter::MemoryBytes) as usize, site.nodes)),
        Kind::BadPktFilter => Box::new(BadPktFilter),
        Kind::SplitPacket => Box::new(SplitPacket::new(dialect, site.nodes, first)),
    }
}

const fn microseconds(count: u32) -> Span {
    Span::from_ns(count as u64 * 1_000)
}
