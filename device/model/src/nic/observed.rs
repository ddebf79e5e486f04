//! What a report looks at.

use alloc::vec::Vec;

use crate::nic::ShellCounts;
use crate::nic::statistics::Statistics;
use crate::parts::fault_injector::FaultInjector;
use crate::parts::ledger::Ledger;

/// A NIC model as reports and monitors see it: nothing here changes what it does, but for the faults that are put into it.
pub trait Observed {
    /// Messages stored for `port` since it was opened: what its program can have received.
    fn delivered(&self, port: u32) -> u64;

    /// How often the wall clock of a live run decided in which order this node's host did things: what it did is counted
    /// and priced, but another run of the same programs may differ.
    fn unordered(&self) -> u64;

    /// Launches that their program may have held back until it saw something of which no card is told: a counter that rose. A
    /// shell that does not know what a program sees when cannot know when they were made.
    fn untold(&self) -> u64 {
        0
    }

    /// What every crossing of this card has cost: those of the network and of other masters on the node's bus are in theirs.
    fn ledger(&self) -> &Ledger;

    /// To keep single stages, or to turn the ledger off.
    fn ledger_mut(&mut self) -> &mut Ledger;

    /// What every card counts, with these counts of the shell.
    fn statistics(&self, shell: &ShellCounts) -> Statistics;

    /// What only this model counts, by name, for reports: totals since it was made, which only grow.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Who puts faults into what this model wants done; a model by itself has nobody. See [`crate::parts::fault_injector`].
    fn fault_injector(&self) -> Option<&FaultInjector> {
        None
    }

    /// The same, to change the faults.
    fn fault_injector_mut(&mut self) -> Option<&mut FaultInjector> {
        None
    }
}
