//! Checks values: each within its limits, and values that must be consistent.

use alloc::borrow::ToOwned as _;
use alloc::vec::Vec;

use crate::assembly::Assembly;
use crate::check::{Fault, Place, Problem};
use crate::kinds::{Format, KINDS, Kind, MAX_DATA_BYTES, Number, PLACEMENT_BYTES, Parameter};

/// A component's index, its name, and the value of one of its parameters.
type Found<'a> = (usize, &'a str, u32);

pub(super) fn check(assembly: &Assembly, faults: &mut Vec<Fault>) {
    for row in KINDS.iter().filter(|row| row.number == Number::One) {
        let found = assembly.of_kind(row.kind).count();
        if found != 1 {
            let place = assembly.of_kind(row.kind).nth(1).map_or(Place::Whole, Place::Component);
            faults.push(Fault { place, problem: Problem::Number { kind: row.name, found } });
        }
    }
    for (place, component) in assembly.components().iter().enumerate() {
        for (setting, &value) in component.kind().row().parameters.iter().zip(component.values()) {
            let (parameter, values) = (setting.parameter, setting.values);
            if !values.contain(value) {
                let component = component.name().to_owned();
                let problem = Problem::Value { component, parameter, value, values };
                faults.push(Fault { place: Place::Parameter(place, parameter), problem });
            }
        }
    }
    windows(assembly, faults);
    formats(assembly, faults);
    placements(assembly, faults);
}

/// The components of a kind, with the value of a parameter.
fn all<'a>(
    assembly: &'a Assembly,
    kind: Kind,
    parameter: Parameter,
) -> impl Iterator<Item = Found<'a>> + use<'a> {
    let numbered = assembly.components().iter().enumerate();
    let of_kind = numbered.filter(move |(_, component)| component.kind() == kind);
    of_kind.filter_map(move |(place, component)| Some((place, component.name(), component.value(parameter)?)))
}

/// The limit of unacknowledged packets must be large enough for the threshold, and small enough for packet numbers.
fn windows(assembly: &Assembly, faults: &mut Vec<Fault>) {
    for (place, genp, limit) in all(assembly, Kind::Genp, Parameter::OutstandingLimit) {
        let place = Place::Parameter(place, Parameter::OutstandingLimit);
        let builders = all(assembly, Kind::BuildAcks, Parameter::Threshold);
        let below = builders.filter(|(_, _, threshold)| limit < threshold.saturating_mul(2));
        faults.extend(below.map(|(_, build_acks, threshold)| Fault {
            place,
            problem: Problem::BelowThreshold {
                genp: genp.to_owned(),
                limit,
                build_acks: build_acks.to_owned(),
                threshold,
            },
        }));
        for (_, xmit, format) in all(assembly, Kind::Xmit, Parameter::Format) {
            let numbers = 1u64 << Format::of(format).sequence_bits();
            if u64::from(limit) >= numbers / 2 {
                let (genp, xmit) = (genp.to_owned(), xmit.to_owned());
                faults.push(Fault { place, problem: Problem::BeyondSequence { genp, limit, numbers, xmit } });
            }
        }
    }
}

fn formats(assembly: &Assembly, faults: &mut Vec<Fault>) {
    for (_, xmit, formed) in all(assembly, Kind::Xmit, Parameter::Format) {
        let split = all(assembly, Kind::SplitPacket, Parameter::Format);
        faults.extend(split.filter(|(_, _, taken)| *taken != formed).map(|(place, split_packet, _)| Fault {
            place: Place::Parameter(place, Parameter::Format),
            problem: Problem::Formats { xmit: xmit.to_owned(), split_packet: split_packet.to_owned() },
        }));
    }
}

/// Host and generators must agree on placement words, and the words need room.
fn placements(assembly: &Assembly, faults: &mut Vec<Fault>) {
    let generators = [Kind::Genp, Kind::GenpUnreliable];
    for (place, generator, placement) in
        generators.into_iter().flat_map(|kind| all(assembly, kind, Parameter::Placement))
    {
        let hosts = all(assembly, Kind::HostReceive, Parameter::Placement);
        faults.extend(hosts.filter(|(_, _, placed)| *placed != placement).map(|(host, host_receive, _)| {
            Fault {
                place: Place::Parameter(host, Parameter::Placement),
                problem: Problem::Placements {
                    generator: generator.to_owned(),
                    host_receive: host_receive.to_owned(),
                },
            }
        }));
        let bytes = assembly.components().get(place).and_then(|of| of.value(Parameter::PacketBytes));
        if let Some(bytes) = bytes
            && placement != 0
            && bytes.saturating_add(PLACEMENT_BYTES) > MAX_DATA_BYTES
        {
            let problem = Problem::TooLong { generator: generator.to_owned(), bytes };
            faults.push(Fault { place: Place::Parameter(place, Parameter::PacketBytes), problem });
        }
    }
}
