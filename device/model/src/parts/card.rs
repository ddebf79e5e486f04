//! The methods of [`crate::nic::Nic`] and [`crate::nic::Observed`] that every card has alike: its effects, its control
//! requests and its ledger. The argument of both macros is the field with the card's
//! [`crate::parts::effects::Effects`].

/// Methods of [`crate::nic::Nic`]: an input is taken by `Self::take`, while the interface has the node's bus.
macro_rules! nic_of_effects {
    ($($field:ident).+) => {
        #[inline]
        fn handle(
            &mut self,
            now: $crate::time::Time,
            input: $crate::nic::Input<'_>,
            node: &mut $crate::platform::node_bus::NodeBus,
        ) {
            self.$($field).+.interface.enter(node);
            self.take(now, input);
            self.$($field).+.interface.leave(node);
        }

        fn memory_named_by(&self, request: &[u8]) -> $crate::nic::HostRanges {
            $crate::parts::control::memory_named_by::<Self>(request)
        }

        #[inline]
        fn poll_output(&mut self) -> Option<$crate::nic::Output> {
            self.$($field).+.poll()
        }
    };
}

/// Methods of [`crate::nic::Observed`].
macro_rules! observed_of_effects {
    ($($field:ident).+) => {
        fn unordered(&self) -> u64 {
            self.$($field).+.counters.card.unordered
        }

        fn ledger(&self) -> &$crate::platform::ledger::Ledger {
            self.$($field).+.interface.ledger()
        }

        fn ledger_mut(&mut self) -> &mut $crate::platform::ledger::Ledger {
            self.$($field).+.interface.ledger_mut()
        }

        fn statistics(&self, shell: &$crate::nic::ShellCounts) -> $crate::nic::Statistics {
            self.$($field).+.counters.statistics(shell)
        }
    };
}

pub(crate) use {nic_of_effects, observed_of_effects};
