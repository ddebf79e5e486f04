//! Checks that an assembly is valid: every port is connected to one of its type, values are consistent, and no
//! component waits for ever. A checked assembly delivers messages over any network, or its promises state that it does
//! not.

mod fault;
mod flow;
mod joints;
mod values;

use core::ops::Deref;

use alloc::vec::Vec;

pub use fault::{Fault, Place, PortName, Problem};

use crate::assembly::Assembly;
use crate::kinds::{Kind, PortType};

/// A valid assembly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked(Assembly);

impl Deref for Checked {
    type Target = Assembly;

    fn deref(&self) -> &Assembly {
        &self.0
    }
}

impl Assembly {
    /// The assembly, if it is valid.
    ///
    /// # Errors
    /// All [`Fault`]s. If values or connections have faults, only these are reported, because the flow check needs a
    /// connected assembly.
    pub fn check(self) -> Result<Checked, Vec<Fault>> {
        let mut faults = Vec::new();
        values::check(&self, &mut faults);
        joints::check(&self, &mut faults);
        if faults.is_empty() {
            flow::check(&self, &mut faults);
        }
        if faults.is_empty() { Ok(Checked(self)) } else { Err(faults) }
    }
}

/// Properties of the messages between two cards with the same assembly, for any faults of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// Each message arrives, or its sender gets a report that the other node is gone.
    pub delivered: bool,
    /// No message arrives twice.
    pub once: bool,
    /// The messages of a sender arrive in the order of sending.
    pub in_order: bool,
}

impl Checked {
    /// Its promises.
    #[must_use]
    pub fn promises(&self) -> Promises {
        self.0.promises()
    }

    /// The assembly, to change it. It must then be checked again.
    #[must_use]
    pub fn into_assembly(self) -> Assembly {
        self.0
    }
}

impl Assembly {
    /// The promises of a connected assembly. `once` and `in_order` depend on the components on the data's path to the
    /// host.
    fn promises(&self) -> Promises {
        let host = self.of_kind(Kind::HostReceive).next();
        let path = host.and_then(|host| self.path_to(host, PortType::Data));
        let passed = path.map(|path| path.passed).unwrap_or_default();
        let (mut once, mut in_order) = (false, false);
        for place in passed {
            let verdicts = self.input(place, PortType::Verdict).into_iter();
            let judges = verdicts.flat_map(|input| self.drivers(input)).map(|joint| joint.from.component);
            for kind in
                judges.chain([place]).filter_map(|place| self.components().get(place)).map(|of| of.kind())
            {
                // Each of these passes a number at most once.
                once |= matches!(kind, Kind::DupFind | Kind::SelectiveRepeat | Kind::OrderPkts);
                in_order |= matches!(kind, Kind::OrderPkts | Kind::SelectiveRepeat);
            }
        }
        Promises { delivered: self.of_kind(Kind::Genp).next().is_some(), once, in_order }
    }
}
