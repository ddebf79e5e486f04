//! What comes to an input, and through what.

use alloc::vec::Vec;

use crate::assembly::{Assembly, Connection, End};
use crate::kinds::{Direction, Kind, PortType};

/// Where what comes to an input comes from.
#[derive(Debug)]
pub(crate) struct Path {
    /// The component that makes it.
    pub source: usize,
    /// The components that pass it on, the last one first.
    pub passed: Vec<usize>,
}

impl Assembly {
    /// The components of a kind, by their places.
    pub(crate) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = usize> {
        let numbered = self.components().iter().enumerate();
        numbered.filter(move |(_, component)| component.kind() == kind).map(|(place, _)| place)
    }

    /// What leads to an input.
    pub(crate) fn drivers(&self, to: End) -> impl Iterator<Item = &Connection> {
        self.connections().iter().filter(move |connection| connection.to == to)
    }

    /// The input of a component that carries this type.
    pub(crate) fn input(&self, component: usize, carries: PortType) -> Option<End> {
        let ports = self.components().get(component)?.kind().row().ports;
        let port = ports.iter().position(|port| port.carries == carries && port.leads(Direction::In))?;
        Some(End { component, port })
    }

    /// Where what comes to an input is made: back through every component that has an input of the same type. None
    /// where nothing leads there, or only what goes round in a circle.
    pub(crate) fn path(&self, to: End) -> Option<Path> {
        let carries = self.port(to)?.1.carries;
        let (mut to, mut passed) = (to, Vec::new());
        // Longer than there are components it would be a circle.
        for _ in self.components() {
            let source = self.drivers(to).next()?.from.component;
            let Some(input) = self.input(source, carries) else { return Some(Path { source, passed }) };
            passed.push(source);
            to = input;
        }
        None
    }

    /// The same for the one input of a component that carries this type.
    pub(crate) fn path_to(&self, component: usize, carries: PortType) -> Option<Path> {
        self.path(self.input(component, carries)?)
    }
}
