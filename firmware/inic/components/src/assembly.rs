//! Assemblies: components with names and values, and what joins them.
//!
//! An [`Assembly`] is plain data whose numbers hold together: each component is of a kind and has a value for each of
//! the kind's parameters, and each connection leads from a port that there is to another. Whether it makes sense is
//! another question, which [`Assembly::check`] answers.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use thiserror::Error;

use crate::kinds::{Direction, Kind, Parameter, Port, Resources};

/// Most components of an assembly. Bounds what an image can make a card build.
pub const MAX_COMPONENTS: usize = 64;

/// Most connections of an assembly.
pub const MAX_CONNECTIONS: usize = 256;

/// Bytes of a component's name.
pub const MAX_NAME_BYTES: usize = 32;

/// Places of a FIFO where nothing is said.
pub const DEFAULT_DEPTH: u16 = 16;

/// Most places of a FIFO.
pub const MAX_DEPTH: u16 = 1024;

/// A component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    name: String,
    kind: Kind,
    values: Vec<u32>,
}

impl Component {
    /// Its name in the assembly.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The values of all its parameters, in the order of [`crate::kinds::Row::parameters`].
    #[must_use]
    pub fn values(&self) -> &[u32] {
        &self.values
    }

    /// The value of a parameter; none where its kind has no such parameter.
    #[must_use]
    pub fn value(&self, parameter: Parameter) -> Option<u32> {
        self.values.get(self.kind.row().place_of(parameter)?).copied()
    }
}

/// A port of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// The component's place in [`Assembly::components`].
    pub component: usize,
    /// The port's place in [`crate::kinds::Row::ports`].
    pub port: usize,
}

/// A FIFO from an output to an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection {
    /// The output.
    pub from: End,
    /// The input.
    pub to: End,
    /// Places; 0: none, a wire.
    pub depth: u16,
}

/// Components and connections. The default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    components: Vec<Component>,
    connections: Vec<Connection>,
}

/// What cannot be part of any assembly.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PartError {
    /// A name that is none.
    #[error(
        "`{0}` is no name of a component: 1 to {MAX_NAME_BYTES} small letters, digits and underscores, a letter first"
    )]
    Name(String),
    /// A name that was given before.
    #[error("two components are named `{0}`")]
    Twice(String),
    /// Too many components.
    #[error("more than {MAX_COMPONENTS} components")]
    Components,
    /// Too many connections.
    #[error("more than {MAX_CONNECTIONS} connections")]
    Connections,
    /// A parameter that the kind does not have.
    #[error("{kind} has no parameter `{parameter}`")]
    Parameter {
        /// The kind.
        kind: &'static str,
        /// The parameter.
        parameter: &'static str,
    },
    /// No such component, or none of its ports that leads this way.
    #[error("no component {component} with {} {port}", if *.is_output { "an output" } else { "an input" })]
    Port {
        /// The component's place.
        component: usize,
        /// The port's place.
        port: usize,
        /// Whether an output was asked for.
        is_output: bool,
    },
    /// A FIFO that is too deep.
    #[error("a connection of depth {0}: at most {MAX_DEPTH}")]
    Depth(u64),
}

impl Assembly {
    /// The components, in the order in which they were added.
    #[must_use]
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The connections, in the order in which they were added.
    #[must_use]
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// The place of the component of this name.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.components.iter().position(|component| component.name == name)
    }

    /// The component and the port of an end.
    #[must_use]
    pub fn port(&self, end: End) -> Option<(&Component, &'static Port)> {
        let component = self.components.get(end.component)?;
        Some((component, component.kind.row().ports.get(end.port)?))
    }

    /// Adds a component, whose parameters have their defaults, and says its place.
    ///
    /// # Errors
    /// [`PartError`] about the name, or because there are too many.
    pub fn add(&mut self, name: &str, kind: Kind) -> Result<usize, PartError> {
        let is_name = name.len() <= MAX_NAME_BYTES
            && name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !is_name {
            return Err(PartError::Name(name.chars().take(MAX_NAME_BYTES).collect()));
        }
        if self.place_of(name).is_some() {
            return Err(PartError::Twice(name.to_string()));
        }
        if self.components.len() == MAX_COMPONENTS {
            return Err(PartError::Components);
        }
        let values = kind.row().parameters.iter().map(|setting| setting.default).collect();
        self.components.push(Component { name: name.to_string(), kind, values });
        Ok(self.components.len() - 1)
    }

    /// Gives a parameter of the component at a place its value, which may be one that a check refuses.
    ///
    /// # Errors
    /// [`PartError::Parameter`], and [`PartError::Port`] where there is no such component.
    pub fn set_at(&mut self, component: usize, parameter: Parameter, value: u32) -> Result<(), PartError> {
        let none = PartError::Port { component, port: 0, is_output: false };
        let found = self.components.get_mut(component).ok_or(none)?;
        let row = found.kind.row();
        let missing = PartError::Parameter { kind: row.name, parameter: parameter.name() };
        let place = row.place_of(parameter).ok_or(missing)?;
        found.values[place] = value;
        Ok(())
    }

    /// Gives a parameter of every component of a kind its value, and says how many there are.
    ///
    /// # Errors
    /// [`PartError::Parameter`].
    pub fn set(&mut self, kind: Kind, parameter: Parameter, value: u32) -> Result<usize, PartError> {
        let row = kind.row();
        let missing = PartError::Parameter { kind: row.name, parameter: parameter.name() };
        let place = row.place_of(parameter).ok_or(missing)?;
        let of_kind = self.components.iter_mut().filter(|component| component.kind == kind);
        Ok(of_kind.map(|component| component.values[place] = value).count())
    }

    /// Joins an output and an input.
    ///
    /// # Errors
    /// [`PartError`] where there is no such port, or the FIFO is too deep, or there are too many.
    pub fn connect(&mut self, from: End, to: End, depth: u16) -> Result<(), PartError> {
        for (end, direction) in [(from, Direction::Out), (to, Direction::In)] {
            if !self.port(end).is_some_and(|(_, port)| port.leads(direction)) {
                let is_output = direction == Direction::Out;
                return Err(PartError::Port { component: end.component, port: end.port, is_output });
            }
        }
        if depth > MAX_DEPTH {
            return Err(PartError::Depth(depth.into()));
        }
        if self.connections.len() == MAX_CONNECTIONS {
            return Err(PartError::Connections);
        }
        self.connections.push(Connection { from, to, depth });
        Ok(())
    }

    /// What all components take of the FPGAs.
    #[must_use]
    pub fn resources(&self) -> Resources {
        self.components.iter().fold(Resources::default(), |sum, component| {
            let Resources { flip_flops, luts } = component.kind.row().resources;
            Resources { flip_flops: sum.flip_flops + flip_flops, luts: sum.luts + luts }
        })
    }
}
