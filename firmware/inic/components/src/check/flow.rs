//! Checks the flow of packets through a connected assembly. The tokens of each input must come from the right kind of
//! component, and a component that combines data with verdicts must get both for the same packets. No component may
//! acknowledge a dropped packet, or wait for a lost packet that is never retransmitted.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

use crate::assembly::{Assembly, End};
use crate::check::{Fault, Place, PortName, Problem};
use crate::kinds::{ACK_MASK_BITS, Block, Direction, Kind, Parameter, Policy, PortType};

pub(super) fn check(assembly: &Assembly, faults: &mut Vec<Fault>) {
    check_sources(assembly, faults);
    // The other checks rely on paths that begin at the right components.
    if !faults.is_empty() {
        return;
    }
    check_required_kinds(assembly, faults);
    check_same_packets(assembly, faults);
    check_acknowledgements(assembly, faults);
    check_duplicates(assembly, faults);
    check_placement(assembly, faults);
}

/// The name of a component. Here and below, `component` is an index into [`Assembly::components`].
fn name(assembly: &Assembly, component: usize) -> String {
    assembly.components().get(component).map(|found| found.name().to_owned()).unwrap_or_default()
}

fn kind(assembly: &Assembly, component: usize) -> Option<Kind> {
    assembly.components().get(component).map(|found| found.kind())
}

/// The components that pass on packets only in order. They may drop packets that arrive too early. These packets must
/// not be acknowledged, so that the sender retransmits them.
fn sequencers(assembly: &Assembly) -> impl Iterator<Item = usize> {
    assembly.of_kind(Kind::SelectiveRepeat).chain(with_policy(assembly, Policy::GoBackN))
}

/// The `order_pkts` components with this policy.
fn with_policy(assembly: &Assembly, policy: Policy) -> impl Iterator<Item = usize> {
    assembly.of_kind(Kind::OrderPkts).filter(move |component| {
        value(assembly, *component, Parameter::Policy).map(Policy::of) == Some(policy)
    })
}

/// Checks that the packets, headers and data of each input come from the right kind of component. For example, a
/// received packet must not return to the network unchanged.
fn check_sources(assembly: &Assembly, faults: &mut Vec<Fault>) {
    for (component, checked) in assembly.components().iter().enumerate() {
        let row = checked.kind().row();
        let inputs = row.ports.iter().enumerate().filter(|(_, input)| input.direction == Direction::In);
        for (port, input) in inputs {
            let expected = match input.carries {
                PortType::Packet if row.block == Block::C => Kind::WireIn,
                PortType::Packet => Kind::Xmit,
                // Headers carry acknowledgements, also those of packets whose data is dropped. So headers must come
                // from the component that splits all received packets.
                PortType::Header | PortType::Data => Kind::SplitPacket,
                _ => continue,
            };
            let end = End { component, port };
            let path = assembly.path(end);
            let is_expected = path.is_some_and(|path| kind(assembly, path.source) == Some(expected));
            if !is_expected {
                let problem = Problem::WrongSource {
                    port: PortName::of(assembly, end),
                    source_kind: expected.row().name,
                };
                faults.push(Fault { place: Place::Component(component), problem });
            }
        }
    }
}

/// Checks that the assembly has the kinds without which other components are useless or block, and that no component
/// drops all retransmissions.
fn check_required_kinds(assembly: &Assembly, faults: &mut Vec<Fault>) {
    let has = |kind| assembly.of_kind(kind).next().is_some();
    let mut require = |component, kind: Kind, why| {
        if !has(kind) {
            let problem = Problem::Needs { component: name(assembly, component), kind: kind.row().name, why };
            faults.push(Fault { place: Place::Component(component), problem });
        }
    };
    for genp in assembly.of_kind(Kind::Genp) {
        require(genp, Kind::BuildAcks, "the other node would wait for acknowledgements for ever");
    }
    for component in sequencers(assembly).chain(assembly.of_kind(Kind::DupFind)) {
        require(component, Kind::Genp, "it would wait for lost packets, which are never retransmitted");
    }
    // With `newer`, `order_pkts` drops every retransmission of a packet that is older than the newest one.
    let genp = assembly.of_kind(Kind::Genp).next();
    for (component, genp) in with_policy(assembly, Policy::Newer).zip(genp) {
        let problem =
            Problem::DropsRepeats { component: name(assembly, component), genp: name(assembly, genp) };
        faults.push(Fault { place: Place::Component(component), problem });
    }
}

/// Whether a component gets the headers of all received packets, in the order of arrival.
fn gets_all_headers(assembly: &Assembly, component: usize) -> bool {
    let path = assembly.path_to(component, PortType::Header);
    let passed = path.map(|path| path.passed).unwrap_or_default();
    passed.iter().all(|passed| kind(assembly, *passed) == Some(Kind::DupFind))
}

/// Checks components that combine data with verdicts or headers: both must be about the same packets.
fn check_same_packets(assembly: &Assembly, faults: &mut Vec<Fault>) {
    let combining = assembly.of_kind(Kind::DropPkt).chain(assembly.of_kind(Kind::SelectiveRepeat));
    for component in combining {
        let path = assembly.path_to(component, PortType::Data);
        let passed = path.map(|path| path.passed).unwrap_or_default();
        let has_all_data = passed.iter().all(|passed| kind(assembly, *passed) == Some(Kind::Mitigate));
        // The components that decide which data to drop; one without an input for verdicts decides itself.
        let deciding: Vec<usize> = match assembly.input(component, PortType::Verdict) {
            Some(verdicts) => assembly.drivers(verdicts).map(|joint| joint.from.component).collect(),
            None => [component].into(),
        };
        let is_wrong = |other: &usize| !has_all_data || !gets_all_headers(assembly, *other);
        for other in deciding.into_iter().filter(is_wrong) {
            let problem =
                Problem::Apart { component: name(assembly, component), with: name(assembly, other) };
            faults.push(Fault { place: Place::Component(component), problem });
        }
    }
    // `genp` reads the acknowledgements in the headers, so it must get all of them, too.
    for genp in assembly.of_kind(Kind::Genp).filter(|genp| !gets_all_headers(assembly, *genp)) {
        let end = assembly.input(genp, PortType::Header).unwrap_or(End { component: genp, port: 0 });
        let source_kind = Kind::SplitPacket.row().name;
        let problem = Problem::WrongSource { port: PortName::of(assembly, end), source_kind };
        faults.push(Fault { place: Place::Component(genp), problem });
    }
}

/// Checks that no dropped packet is acknowledged. If packets are acknowledged out of order, all outstanding packets
/// must fit into a header's acknowledgement mask.
fn check_acknowledgements(assembly: &Assembly, faults: &mut Vec<Fault>) {
    for build_acks in assembly.of_kind(Kind::BuildAcks) {
        let path = assembly.path_to(build_acks, PortType::Header);
        let passed = path.map(|path| path.passed).unwrap_or_default();
        let place = Place::Component(build_acks);
        for component in sequencers(assembly).filter(|component| !passed.contains(component)) {
            let (build_acks, component) = (name(assembly, build_acks), name(assembly, component));
            faults.push(Fault { place, problem: Problem::Acknowledged { build_acks, component } });
        }
        if with_policy(assembly, Policy::GoBackN).any(|order| passed.contains(&order)) {
            continue;
        }
        for genp in assembly.of_kind(Kind::Genp) {
            let limit = value(assembly, genp, Parameter::OutstandingLimit);
            if let Some(limit) = limit.filter(|limit| *limit > ACK_MASK_BITS) {
                let problem = Problem::BeyondMask { genp: name(assembly, genp), limit };
                faults.push(Fault { place: Place::Parameter(genp, Parameter::OutstandingLimit), problem });
            }
        }
    }
}

/// The value of a component's parameter; none if the component's kind has no such parameter.
fn value(assembly: &Assembly, component: usize, parameter: Parameter) -> Option<u32> {
    assembly.components().get(component).and_then(|found| found.value(parameter))
}

/// Checks that `dup_find` can distinguish duplicates from retransmissions of dropped packets. `order_pkts` with
/// go-back-N drops all packets after a missing one, so `dup_find` must not remember these (`beyond` is 0). Otherwise
/// `dup_find` must remember all packets that `genp` can send after a missing one.
fn check_duplicates(assembly: &Assembly, faults: &mut Vec<Fault>) {
    let go_back_n = with_policy(assembly, Policy::GoBackN).next();
    for component in assembly.of_kind(Kind::DupFind) {
        let Some(beyond) = value(assembly, component, Parameter::Beyond) else { continue };
        let dup_find = name(assembly, component);
        let genp = assembly.of_kind(Kind::Genp).next();
        let limit = genp.and_then(|genp| value(assembly, genp, Parameter::OutstandingLimit));
        let needed = limit.unwrap_or_default().saturating_sub(1);
        let problem = match (go_back_n, genp) {
            (Some(order), _) if beyond > 0 => {
                Problem::Remembers { dup_find, order_pkts: name(assembly, order) }
            }
            (None, Some(genp)) if beyond < needed => {
                Problem::Forgets { dup_find, beyond, genp: name(assembly, genp), needed }
            }
            _ => continue,
        };
        faults.push(Fault { place: Place::Parameter(component, Parameter::Beyond), problem });
    }
}

/// Checks that packets begin with placement words if packets can be missing or out of order. Without them, the receiver
/// cannot place the data.
fn check_placement(assembly: &Assembly, faults: &mut Vec<Fault>) {
    let out_of_order = assembly.of_kind(Kind::Genp).filter(|_| !assembly.promises().in_order);
    // Without retransmission, lost packets leave gaps, even if the other packets are in order.
    for generator in out_of_order.chain(assembly.of_kind(Kind::GenpUnreliable)) {
        if value(assembly, generator, Parameter::Placement) == Some(0) {
            let problem = Problem::Unplaced { generator: name(assembly, generator) };
            faults.push(Fault { place: Place::Parameter(generator, Parameter::Placement), problem });
        }
    }
}
