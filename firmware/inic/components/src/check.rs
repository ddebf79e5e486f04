//! Whether an assembly makes sense: every port joined, to one of its type, values that go together, and nothing on its
//! way that would wait for ever. What a check lets pass delivers, in whatever network, or says that it does not.

mod fault;
mod flow;
mod joints;
mod values;

use core::ops::Deref;

use alloc::vec::Vec;

pub use fault::{Fault, Place, PortName, Problem};

use crate::assembly::Assembly;
use crate::kinds::{Kind, PortType};

/// An assembly that was found to make sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked(Assembly);

impl Deref for Checked {
    type Target = Assembly;

    fn deref(&self) -> &Assembly {
        &self.0
    }
}

impl Assembly {
    /// The assembly, if it makes sense.
    ///
    /// # Errors
    /// Every [`Fault`] that was found. Those of values and joints come first and alone: only what is joined can be
    /// asked whether it delivers.
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

/// What holds of the messages between two cards with one assembly, whatever the network does to frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// Each arrives, or its sender is told that the other node is gone.
    pub delivered: bool,
    /// None arrives twice.
    pub once: bool,
    /// Those of one sender arrive in the order in which they were sent.
    pub in_order: bool,
}

impl Checked {
    /// What it promises.
    #[must_use]
    pub fn promises(&self) -> Promises {
        self.0.promises()
    }

    /// The assembly, to be changed; it must then be checked again.
    #[must_use]
    pub fn into_assembly(self) -> Assembly {
        self.0
    }
}

impl Assembly {
    /// What it would promise if everything is joined. Once and in order: by what stands on the way of data to the host.
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
                // No number comes after itself.
                once |= matches!(kind, Kind::DupFind | Kind::SelectiveRepeat | Kind::OrderPkts);
                in_order |= matches!(kind, Kind::OrderPkts | Kind::SelectiveRepeat);
            }
        }
        Promises { delivered: self.of_kind(Kind::Genp).next().is_some(), once, in_order }
    }
}
