//! Checks the flow of packets. Packets come from the right component, and verdicts match the data that they arrive
//! with. No dropped packet is acknowledged, and no component waits for a missing packet that is never retransmitted.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

use crate::assembly::{Assembly, End};
use crate::check::{Fault, Place, PortName, Problem};
use crate::kinds::{ACK_MASK_BITS, Block, Direction, Kind, Parameter, Policy, PortType};

pub(super) fn check(assembly: &Assembly, faults: &mut Vec<Fault>) {
    sources(assembly, faults);
    if !faults.is_empty() {
        return;
    }
    companions(assembly, faults);
    meetings(assembly, faults);
    acknowledgements(assembly, faults);
    duplicates(assembly, faults);
    placement(assembly, faults);
}

fn name(assembly: &Assembly, component: usize) -> String {
    assembly.components().get(component).map(|of| of.name().to_owned()).unwrap_or_default()
}

fn kind(assembly: &Assembly, component: usize) -> Option<Kind> {
    assembly.components().get(component).map(|of| of.kind())
}

/// The components that require order. They drop packets without an acknowledgement, so these must be retransmitted.
fn sequencers(assembly: &Assembly) -> impl Iterator<Item = usize> {
    assembly.of_kind(Kind::SelectiveRepeat).chain(with_policy(assembly, Policy::GoBackN))
}

fn with_policy(assembly: &Assembly, policy: Policy) -> impl Iterator<Item = usize> {
    assembly
        .of_kind(Kind::OrderPkts)
        .filter(move |place| value(assembly, *place, Parameter::Policy).map(Policy::of) == Some(policy))
}

/// Packets, headers and data come from the right component: a received packet must not return to the network
/// unchanged.
fn sources(assembly: &Assembly, faults: &mut Vec<Fault>) {
    for (component, of) in assembly.components().iter().enumerate() {
        let row = of.kind().row();
        for (port, what) in row.ports.iter().enumerate().filter(|(_, what)| what.direction == Direction::In) {
            let wanted = match what.carries {
                PortType::Packet if row.block == Block::C => Kind::WireIn,
                PortType::Packet => Kind::Xmit,
                // Acknowledgements are part of packets that may be dropped, so the generator must get every header.
                PortType::Header | PortType::Data => Kind::SplitPacket,
                _ => continue,
            };
            let end = End { component, port };
            let path = assembly.path(end);
            let is_right = path.is_some_and(|path| kind(assembly, path.source) == Some(wanted));
            if !is_right {
                let problem = Problem::WrongSource {
                    port: PortName::of(assembly, end),
                    source_kind: wanted.row().name,
                };
                faults.push(Fault { place: Place::Component(component), problem });
            }
        }
    }
}

/// Components that are useless or block without a component of another kind.
fn companions(assembly: &Assembly, faults: &mut Vec<Fault>) {
    let has = |kind| assembly.of_kind(kind).next().is_some();
    let mut need = |component, kind: Kind, why| {
        if !has(kind) {
            let problem = Problem::Needs { component: name(assembly, component), kind: kind.row().name, why };
            faults.push(Fault { place: Place::Component(component), problem });
        }
    };
    for genp in assembly.of_kind(Kind::Genp) {
        need(genp, Kind::BuildAcks, "the other node would wait for acknowledgements for ever");
    }
    for component in sequencers(assembly).chain(assembly.of_kind(Kind::DupFind)) {
        need(component, Kind::Genp, "it would wait for lost packets, which are never retransmitted");
    }
    let genp = assembly.of_kind(Kind::Genp).next();
    for (component, genp) in with_policy(assembly, Policy::Newer).zip(genp) {
        let problem =
            Problem::DropsRepeats { component: name(assembly, component), genp: name(assembly, genp) };
        faults.push(Fault { place: Place::Component(component), problem });
    }
}

/// Whether a component gets all headers, in the order of arrival.
fn sees_all(assembly: &Assembly, component: usize) -> bool {
    let path = assembly.path_to(component, PortType::Header);
    let passed = path.map(|path| path.passed).unwrap_or_default();
    passed.iter().all(|passed| kind(assembly, *passed) == Some(Kind::DupFind))
}

/// If data meets verdicts or headers, both must be about the same packets.
fn meetings(assembly: &Assembly, faults: &mut Vec<Fault>) {
    let meet = assembly.of_kind(Kind::DropPkt).chain(assembly.of_kind(Kind::SelectiveRepeat));
    for place in meet {
        let path = assembly.path_to(place, PortType::Data);
        let passed = path.map(|path| path.passed).unwrap_or_default();
        let is_whole = passed.iter().all(|passed| kind(assembly, *passed) == Some(Kind::Mitigate));
        let verdicts = assembly.input(place, PortType::Verdict);
        let judges: Vec<usize> = match verdicts {
            Some(verdicts) => assembly.drivers(verdicts).map(|joint| joint.from.component).collect(),
            None => [place].into(),
        };
        for judge in judges.into_iter().filter(|judge| !is_whole || !sees_all(assembly, *judge)) {
            let problem = Problem::Apart { component: name(assembly, place), with: name(assembly, judge) };
            faults.push(Fault { place: Place::Component(place), problem });
        }
    }
    for genp in assembly.of_kind(Kind::Genp).filter(|genp| !sees_all(assembly, *genp)) {
        let end = assembly.input(genp, PortType::Header).unwrap_or(End { component: genp, port: 0 });
        let source_kind = Kind::SplitPacket.row().name;
        let problem = Problem::WrongSource { port: PortName::of(assembly, end), source_kind };
        faults.push(Fault { place: Place::Component(genp), problem });
    }
}

/// No dropped packet is acknowledged, and packets that are acknowledged one by one fit the mask.
fn acknowledgements(assembly: &Assembly, faults: &mut Vec<Fault>) {
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

/// The value of a component's parameter.
fn value(assembly: &Assembly, component: usize, parameter: Parameter) -> Option<u32> {
    assembly.components().get(component).and_then(|of| of.value(parameter))
}

/// `dup_find` must distinguish duplicates from retransmissions of dropped packets: with go-back-N only by the next
/// number, otherwise by all numbers that can follow a missing one.
fn duplicates(assembly: &Assembly, faults: &mut Vec<Fault>) {
    let go_back_n = with_policy(assembly, Policy::GoBackN).next();
    for place in assembly.of_kind(Kind::DupFind) {
        let Some(beyond) = value(assembly, place, Parameter::Beyond) else { continue };
        let dup_find = name(assembly, place);
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
        faults.push(Fault { place: Place::Parameter(place, Parameter::Beyond), problem });
    }
}

/// Packets that can be missing or out of order must give their position.
fn placement(assembly: &Assembly, faults: &mut Vec<Fault>) {
    let unplaced = assembly.of_kind(Kind::Genp).filter(|_| !assembly.promises().in_order);
    // Without retransmission, lost packets leave gaps even if the others are in order.
    for generator in unplaced.chain(assembly.of_kind(Kind::GenpUnreliable)) {
        if value(assembly, generator, Parameter::Placement) == Some(0) {
            let problem = Problem::Unplaced { generator: name(assembly, generator) };
            faults.push(Fault { place: Place::Parameter(generator, Parameter::Placement), problem });
        }
    }
}
