//! All integration tests of the package in one program, which is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

/// Implements `Observed` for a wrapper of a card: every query goes to the wrapped card `self.nic`.
macro_rules! observed_as_its_nic {
    ($wrapper:ty) => {
        impl niclab_model::nic::Observed for $wrapper {
            fn delivered(&self, port: u32) -> u64 {
                self.nic.delivered(port)
            }
            fn unordered(&self) -> u64 {
                self.nic.unordered()
            }
            fn ledger(&self) -> &niclab_model::platform::ledger::Ledger {
                self.nic.ledger()
            }
            fn ledger_mut(&mut self) -> &mut niclab_model::platform::ledger::Ledger {
                self.nic.ledger_mut()
            }
            fn statistics(&self, shell: &niclab_model::nic::ShellCounts) -> niclab_model::nic::Statistics {
                self.nic.statistics(shell)
            }
        }
    };
}
pub(crate) use observed_as_its_nic;

mod adversarial;
mod device_faults;
mod endless;
mod firmware_reload;
mod mac_endpoints;
mod matching;
mod observed;
mod program;
mod recorded;
mod swarm;
mod tampered;
mod tcp;
mod threads;
mod workloads;
