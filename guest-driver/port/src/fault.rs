//! Faults of a device, and values that a command cannot have.

use crate::Refusal;

/// The device violates the contract, or reports that the host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The status line has an impossible number of taken posts.
    #[error("the status line reports {said} taken slots, but {known} were known and {launched} are posted")]
    Taken {
        /// The reported number.
        said: u64,
        /// The number reported before.
        known: u64,
        /// Number of posts.
        launched: u64,
    },
    /// The device refused posts or register writes.
    #[error("{count} posts or register writes were refused")]
    Refused {
        /// Number since the last such report.
        count: u64,
        /// Reason of the last refusal, if the device reports one.
        refusal: Option<Refusal>,
    },
    /// The device skipped records, or wrote invalid ones. The queue has skipped them too.
    #[error("{count} record(s) from number {number} on are lost: {loss}")]
    Lost {
        /// Number of the first one, counted from 1 since the port was opened.
        number: u64,
        /// Number of lost records.
        count: u64,
        /// How the loss was detected.
        loss: Loss,
    },
}

/// How the loss of a record was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// Its status word is invalid.
    #[error("its status word {0:#018x} is invalid")]
    Invalid(u64),
    /// A later record was written.
    #[error("slice {0} was written, but they were not")]
    Skipped(u64),
}

/// A value that does not fit into a slot, or is invalid; nothing was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}, but must be at most {most}")]
pub struct BadValue {
    /// Name of the value.
    pub what: &'static str,
    /// The value.
    pub value: u64,
    /// The largest allowed value.
    pub most: u64,
}

impl BadValue {
    /// Returns `value`, which must not exceed `most`.
    ///
    /// # Errors
    /// [`BadValue`].
    pub fn check(what: &'static str, value: u64, most: u64) -> Result<u64, Self> {
        if value <= most { Ok(value) } else { Err(Self { what, value, most }) }
    }
}
