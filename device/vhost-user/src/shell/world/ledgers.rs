//! All ledgers that there are: those of cards, of what stands beside them, of links and of Ethernet functions.

use niclab_model::platform::ledger::Ledger;

use super::World;

impl World<'_> {
    /// Turns all ledgers on, as they are made, or off, to measure what they cost.
    pub fn set_ledgers_on(&mut self, is_on: bool) {
        self.for_each_ledger(|ledger| ledger.set_on(is_on));
    }

    /// Visits every ledger that there is.
    pub(in crate::shell) fn for_each_ledger(&mut self, mut visit: impl FnMut(&mut Ledger)) {
        for (_, node) in self.nodes.iter_mut() {
            visit(node.card.nic.ledger_mut());
            node.card.nic.peripheral_ledgers_mut().into_iter().for_each(&mut visit);
            visit(node.port.ledger_mut());
        }
        self.common.ethernet.states.iter_mut().for_each(|state| visit(state.nic.ledger_mut()));
    }

    /// A measured part begins: all hosts begin at the same instant, when nothing that was begun before is busy, and
    /// their latencies are counted anew.
    pub fn begin_measurement(&mut self) {
        let begin = self.model_time();
        for (_, node) in self.nodes.iter_mut() {
            node.bus.wait_until(begin);
            node.card.begin(begin);
        }
        self.for_each_ledger(Ledger::restart_latency);
    }
}
