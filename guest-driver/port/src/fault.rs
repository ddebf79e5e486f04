//! What a device did that it must not, and what it was asked that it cannot do.

use crate::Refusal;

/// A device does not keep to the contract, or says that the host did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The status line counts launches that cannot have been taken.
    #[error("the status line says that {said} slots were taken, after {known} of {launched} launched")]
    Taken {
        /// What it says.
        said: u64,
        /// What it said before.
        known: u64,
        /// Launches.
        launched: u64,
    },
    /// The device refused launches or register writes.
    #[error("{count} launches or register writes were refused")]
    Refused {
        /// How many since the last such report.
        count: u64,
        /// Why the last one was, if the device says so.
        refusal: Option<Refusal>,
    },
    /// The device left records out, or wrote what is none. The queue has gone past them.
    #[error("{count} record(s) from number {number} on are lost: {loss}")]
    Lost {
        /// The first, counted from 1 since the port was opened.
        number: u64,
        /// How many.
        count: u64,
        /// How that is known.
        loss: Loss,
    },
}

/// How it is known that a record is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// Its status word is none.
    #[error("its status word is {0:#018x}, which is none")]
    Unsound(u64),
    /// A later one is there.
    #[error("slice {0} is there, and they are not")]
    Skipped(u64),
}

/// A value that has no room in a slot, or means nothing; nothing was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}, but must be at most {most}")]
pub struct BadValue {
    /// Which value.
    pub what: &'static str,
    /// What it is.
    pub value: u64,
    /// The largest that can be.
    pub most: u64,
}

impl BadValue {
    /// `value`, which must not exceed `most`.
    ///
    /// # Errors
    /// [`BadValue`].
    pub fn check(what: &'static str, value: u64, most: u64) -> Result<u64, Self> {
        if value <= most { Ok(value) } else { Err(Self { what, value, most }) }
    }
}
