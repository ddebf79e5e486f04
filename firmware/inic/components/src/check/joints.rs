//! Checks connections: every port is connected once, to a port of its type, and no cycle consists of wires only.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

use crate::assembly::{Assembly, Connection, End, MAX_COMPONENTS};
use crate::check::{Fault, Place, PortName, Problem};
use crate::kinds::{Direction, Kind};

pub(super) fn check(assembly: &Assembly, faults: &mut Vec<Fault>) {
    for (component, of) in assembly.components().iter().enumerate() {
        for port in 0..of.kind().row().ports.len() {
            port_of(assembly, End { component, port }, faults);
        }
    }
    for (place, connection) in assembly.connections().iter().enumerate() {
        ends_of(assembly, place, connection, faults);
    }
    faults.extend(cycle(assembly));
}

/// Checks the number of a port's connections.
fn port_of(assembly: &Assembly, end: End, faults: &mut Vec<Fault>) {
    let Some((component, port)) = assembly.port(end) else { return };
    let touches = |connection: &Connection| connection.from == end || connection.to == end;
    let numbered = assembly.connections().iter().enumerate();
    let mut touching = numbered.filter(|(_, connection)| touches(connection));
    let Some((_, first)) = touching.next() else {
        let problem = Problem::Unconnected { port: PortName::of(assembly, end), row: port };
        faults.push(Fault { place: Place::Component(end.component), problem });
        return;
    };
    if component.kind() == Kind::Stub {
        faults.extend(touching.map(|(place, _)| Fault {
            place: Place::Connection(place),
            problem: Problem::BusyStub { stub: component.name().to_owned() },
        }));
        return;
    }
    if port.direction != Direction::In {
        return;
    }
    let mut seen: Vec<End> = [first.from].into();
    for (place, connection) in touching {
        if port.takes_many && !seen.contains(&connection.from) {
            seen.push(connection.from);
            continue;
        }
        let problem = Problem::TwoDrivers {
            to: PortName::of(assembly, end),
            first: PortName::of(assembly, first.from),
            second: PortName::of(assembly, connection.from),
        };
        faults.push(Fault { place: Place::Connection(place), problem });
    }
}

/// Checks that the ends of a connection fit.
fn ends_of(assembly: &Assembly, place: usize, connection: &Connection, faults: &mut Vec<Fault>) {
    let Some((from, output)) = assembly.port(connection.from) else { return };
    let Some((to, input)) = assembly.port(connection.to) else { return };
    let mut fault = |problem| faults.push(Fault { place: Place::Connection(place), problem });
    if !output.carries.fits(input.carries) {
        fault(Problem::Types {
            from: PortName::of(assembly, connection.from),
            from_type: output.carries.name(),
            to: PortName::of(assembly, connection.to),
            to_type: input.carries.name(),
        });
    }
    for (stub, port, end) in [(from, input, connection.to), (to, output, connection.from)] {
        if stub.kind() == Kind::Stub && !port.may_be_closed {
            fault(Problem::Closed { port: PortName::of(assembly, end) });
        }
    }
}

/// A cycle of connections of depth 0, if there is one.
fn cycle(assembly: &Assembly) -> Option<Fault> {
    let numbered = assembly.connections().iter().enumerate();
    let mut wires: Vec<_> = numbered.filter(|(_, connection)| connection.depth == 0).collect();
    // For each component, a bit for each component that a wire leads to. A guest chooses the image, so the work must
    // be bounded: rounds, times components squared.
    let mut next = [0_u64; MAX_COMPONENTS];
    for (_, wire) in &wires {
        if let Some(next) = next.get_mut(wire.from.component) {
            *next |= 1_u64.checked_shl(wire.to.component as u32).unwrap_or(0);
        }
    }
    // Removes components without a wire to them, or without a wire from them: they are in no cycle. Cycles remain, and
    // paths between cycles.
    let is_in = |set: u64, component: usize| set.checked_shr(component as u32).unwrap_or(0) & 1 == 1;
    let mut rest = u64::MAX;
    loop {
        let remains = |(component, leads_to): (usize, &u64)| {
            let leads_here = |(from, to): (usize, &u64)| is_in(rest, from) && is_in(*to, component);
            let has_both = leads_to & rest != 0 && next.iter().enumerate().any(leads_here);
            u64::from(is_in(rest, component) && has_both) << component
        };
        let smaller: u64 = next.iter().enumerate().map(remains).sum();
        if smaller == rest {
            break;
        }
        rest = smaller;
    }
    wires.retain(|(_, wire)| is_in(rest, wire.from.component) && is_in(rest, wire.to.component));
    let (mut place, mut wire) = *wires.first()?;
    let mut path = Vec::from([wire.from.component]);
    while !path.contains(&wire.to.component) {
        path.push(wire.to.component);
        (place, wire) = *wires.iter().find(|(_, next)| next.from.component == wire.to.component)?;
    }
    let begin = path.iter().position(|component| *component == wire.to.component)?;
    let around = path.iter().skip(begin).chain([&wire.to.component]);
    let names: Vec<String> = around
        .filter_map(|component| assembly.components().get(*component))
        .map(|component| component.name().to_owned())
        .collect();
    Some(Fault { place: Place::Connection(place), problem: Problem::Circle(names) })
}
