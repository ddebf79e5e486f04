//! Paths from an input back to the component that produces its tokens.

use alloc::vec::Vec;

use crate::assembly::{Assembly, Connection, End};
use crate::kinds::{Direction, Kind, PortType};

/// The path to an input.
#[derive(Debug)]
pub(crate) struct Path {
    /// The component that produces the tokens.
    pub source: usize,
    /// The components that pass them on, the last one first.
    pub passed: Vec<usize>,
}

impl Assembly {
    /// The components of a kind, by index.
    pub(crate) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = usize> {
        let numbered = self.components().iter().enumerate();
        numbered.filter(move |(_, component)| component.kind() == kind).map(|(place, _)| place)
    }

    /// The connections to an input.
    pub(crate) fn drivers(&self, to: End) -> impl Iterator<Item = &Connection> {
        self.connections().iter().filter(move |connection| connection.to == to)
    }

    /// The input of a component that carries this type.
    pub(crate) fn input(&self, component: usize, carries: PortType) -> Option<End> {
        let ports = self.components().get(component)?.kind().row().ports;
        let port = ports.iter().position(|port| port.carries == carries && port.leads(Direction::In))?;
        Some(End { component, port })
    }

    /// The path to an input, back through every component that has an input of the same type. None if there is no
    /// producer, or only a cycle.
    pub(crate) fn path(&self, to: End) -> Option<Path> {
        let carries = self.port(to)?.1.carries;
        let (mut to, mut passed) = (to, Vec::new());
        // A path longer than the number of components would be a cycle.
        for _ in self.components() {
            let source = self.drivers(to).next()?.from.component;
            let Some(input) = self.input(source, carries) else { return Some(Path { source, passed }) };
            passed.push(source);
            to = input;
        }
        None
    }

    /// The path to a component's input of this type.
    pub(crate) fn path_to(&self, component: usize, carries: PortType) -> Option<Path> {
        self.path(self.input(component, carries)?)
    }
}
