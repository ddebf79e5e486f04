//! Flow: what is joined delivers. Packets come from where they must, verdicts speak of the data that they come with,
//! nothing is acknowledged that is dropped, and nothing that is missing is waited for without being sent again.

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

/// The components that hold back what is not in order, so that it must be sent again: they may drop what nobody was
/// told of.
fn sequencers(assembly: &Assembly) -> impl Iterator<Item = usize> {
    assembly.of_kind(Kind::SelectiveRepeat).chain(with_policy(assembly, Policy::GoBackN))
}

fn with_policy(assembly: &Assembly, policy: Policy) -> impl Iterator<Item = usize> {
    assembly
        .of_kind(Kind::OrderPkts)
        .filter(move |place| value(assembly, *place, Parameter::Policy).map(Policy::of) == Some(policy))
}

/// Packets, headers and data come from where they must: a packet that came from the network does not go back there as
/// it is.
fn sources(assembly: &Assembly, faults: &mut Vec<Fault>) {
    for (component, of) in assembly.components().iter().enumerate() {
        let row = of.kind().row();
        for (port, what) in row.ports.iter().enumerate().filter(|(_, what)| what.direction == Direction::In) {
            let wanted = match what.carries {
                PortType::Packet if row.block == Block::C => Kind::WireIn,
                PortType::Packet => Kind::Xmit,
                // Acknowledgements ride on packets that may be dropped: the generator sees every header.
                PortType::Header | PortType::Data => Kind::SplitPacket,
                _ => continue,
            };
            let end = End { component, port };
            let path = assembly.path(end);
            let is_right = path.is_some_and(|path| kind(assembly, path.source) == Some(wanted));
            if !is_right {
                let problem =
                    Problem::Astray { port: PortName::of(assembly, end), source_kind: wanted.row().name };
                faults.push(Fault { place: Place::Component(component), problem });
            }
        }
    }
}

/// Components that are useless or stuck without one of another kind.
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
        need(component, Kind::Genp, "a packet that is lost is waited for, and nobody sends it again");
    }
    let genp = assembly.of_kind(Kind::Genp).next();
    for (component, genp) in with_policy(assembly, Policy::Newer).zip(genp) {
        let problem =
            Problem::DropsRepeats { component: name(assembly, component), genp: name(assembly, genp) };
        faults.push(Fault { place: Place::Component(component), problem });
    }
}

/// Whether headers on their way to a component are all there, in the order in which they came.
fn sees_all(assembly: &Assembly, component: usize) -> bool {
    let path = assembly.path_to(component, PortType::Header);
    let passed = path.map(|path| path.passed).unwrap_or_default();
    passed.iter().all(|passed| kind(assembly, *passed) == Some(Kind::DupFind))
}

/// Where data meets verdicts or headers, both are about the same packets.
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
        let problem = Problem::Astray { port: PortName::of(assembly, end), source_kind };
        faults.push(Fault { place: Place::Component(genp), problem });
    }
}

/// Nothing is acknowledged that is dropped, and what is acknowledged one by one fits the mask.
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

/// What a component was set to.
fn value(assembly: &Assembly, component: usize, parameter: Parameter) -> Option<u32> {
    assembly.components().get(component).and_then(|of| of.value(parameter))
}

/// Duplicates are told from what was dropped and comes again: beside go-back-N by the next number alone, else by all
/// numbers that can come behind one that is missing.
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

/// Where packets can be missing or out of order, they say themselves where they belong.
fn placement(assembly: &Assembly, faults: &mut Vec<Fault>) {
    let unplaced = assembly.of_kind(Kind::Genp).filter(|_| !assembly.promises().in_order);
    // What is lost and not sent again leaves a gap, also where the rest is in order.
    for generator in unplaced.chain(assembly.of_kind(Kind::GenpUnreliable)) {
        if value(assembly, generator, Parameter::Placement) == Some(0) {
            let problem = Problem::Unplaced { generator: name(assembly, generator) };
            faults.push(Fault { place: Place::Parameter(generator, Parameter::Placement), problem });
        }
    }
}
