//! Assemblies: components with names and values, and their connections.
//!
//! An [`Assembly`] is plain data with consistent indices: each component has a value for each of its kind's
//! parameters, and each connection leads from an existing port to another. [`Assembly::check`] decides whether it is
//! valid.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use thiserror::Error;

use crate::kinds::{Direction, Kind, Parameter, Port, Resources};

/// Max components of an assembly. Bounds the work that an image can cause on a card.
pub const MAX_COMPONENTS: usize = 64;

/// Max connections of an assembly.
pub const MAX_CONNECTIONS: usize = 256;

/// Max bytes of a component's name.
pub const MAX_NAME_BYTES: usize = 32;

/// Default depth of a FIFO.
pub const DEFAULT_DEPTH: u16 = 16;

/// Max depth of a FIFO.
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

    /// The value of a parameter; none if its kind has no such parameter.
    #[must_use]
    pub fn value(&self, parameter: Parameter) -> Option<u32> {
        self.values.get(self.kind.row().place_of(parameter)?).copied()
    }
}

/// A port of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// The component's index in [`Assembly::components`].
    pub component: usize,
    /// The port's index in [`crate::kinds::Row::ports`].
    pub port: usize,
}

/// A FIFO from an output to an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Connection {
    /// The output.
    pub from: End,
    /// The input.
    pub to: End,
    /// Tokens that the FIFO holds; 0: a wire.
    pub depth: u16,
}

/// Components and connections. The default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    components: Vec<Component>,
    connections: Vec<Connection>,
}

/// Why a part is invalid in any assembly.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PartError {
    /// An invalid name.
    #[error(
        "`{0}` is not a valid name of a component: use 1 to {MAX_NAME_BYTES} small letters, digits and underscores, \
         a letter first"
    )]
    Name(String),
    /// A duplicate name.
    #[error("two components are named `{0}`")]
    Twice(String),
    /// Too many components.
    #[error("more than {MAX_COMPONENTS} components")]
    Components,
    /// Too many connections.
    #[error("more than {MAX_CONNECTIONS} connections")]
    Connections,
    /// The kind does not have the parameter.
    #[error("{kind} has no parameter `{parameter}`")]
    Parameter {
        /// The kind.
        kind: &'static str,
        /// The parameter.
        parameter: &'static str,
    },
    /// There is no such component, or it has no port of this direction.
    #[error("no component {component} with {} {port}", if *.is_output { "an output" } else { "an input" })]
    Port {
        /// The component's index.
        component: usize,
        /// The port's index.
        port: usize,
        /// Whether it must be an output.
        is_output: bool,
    },
    /// The FIFO is too deep.
    #[error("a connection has depth {0}, but the maximum is {MAX_DEPTH}")]
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

    /// The index of the component with this name.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.components.iter().position(|component| component.name == name)
    }

    /// Component and port of an end.
    #[must_use]
    pub fn port(&self, end: End) -> Option<(&Component, &'static Port)> {
        let component = self.components.get(end.component)?;
        Some((component, component.kind.row().ports.get(end.port)?))
    }

    /// Adds a component whose parameters have their defaults, and returns its index.
    ///
    /// # Errors
    /// [`PartError`] about the name, or because there are too many components.
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

    /// Sets a parameter of a component, possibly to a value that a check rejects.
    ///
    /// # Errors
    /// [`PartError::Parameter`], and [`PartError::Port`] if there is no such component.
    pub fn set_at(&mut self, component: usize, parameter: Parameter, value: u32) -> Result<(), PartError> {
        let none = PartError::Port { component, port: 0, is_output: false };
        let found = self.components.get_mut(component).ok_or(none)?;
        let row = found.kind.row();
        let missing = PartError::Parameter { kind: row.name, parameter: parameter.name() };
        let place = row.place_of(parameter).ok_or(missing)?;
        found.values[place] = value;
        Ok(())
    }

    /// Sets a parameter of every component of a kind, and returns their number.
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

    /// Connects an output and an input.
    ///
    /// # Errors
    /// [`PartError`] if there is no such port, the FIFO is too deep, or there are too many connections.
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

    /// The sum of the components' FPGA resources.
    #[must_use]
    pub fn resources(&self) -> Resources {
        self.components.iter().fold(Resources::default(), |sum, component| {
            let Resources { flip_flops, luts } = component.kind.row().resources;
            Resources { flip_flops: sum.flip_flops + flip_flops, luts: sum.luts + luts }
        })
    }
}
