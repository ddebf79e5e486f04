//! An Ethernet function in the form of reports.

use niclab_assembly::figures;
use niclab_model::platform::ledger::Crossing;
use niclab_spec::report::{NodeFigures, TrafficStats};

use super::Function;
use crate::host::Sum;

/// Its part of the report, beside that of the NIC that the program uses.
pub fn add(function: &Function, mut node: NodeFigures) -> NodeFigures {
    let Function { nic, tally, .. } = function;
    node.interrupts.append(&mut figures::named([("ethernet_receive", tally.receive_interrupts)]));
    NodeFigures {
        ethernet: TrafficStats {
            sent_frames: tally.sent_frames,
            sent_bytes: tally.sent_bytes,
            received_frames: tally.received_frames,
            received_bytes: tally.received_bytes,
            dropped_frames: tally.dropped_frames,
        },
        doorbells: tally.doorbells,
        ethernet_ledger: figures::entries(nic.ledger()),
        ethernet_model_latency: figures::histogram(nic.ledger().latency()),
        ..node
    }
}

/// The ledger against what crossed the boundary of the function.
pub fn sums(function: &Function) -> Vec<Sum> {
    let sent = function.nic.ledger().line(Crossing::HostSend).count;
    let mut sums = sums_of_card(function);
    sums.push(Sum::new("messages sent", sent, function.tally.sent_frames));
    sums
}

/// The same of its card alone.
pub fn sums_of_card(Function { nic, tally, .. }: &Function) -> Vec<Sum> {
    let line = |crossing| nic.ledger().line(crossing);
    vec![
        Sum::new("bytes of DMA writes", line(Crossing::DmaWrite).bytes, tally.received_bytes),
        Sum::new("bytes of DMA reads", line(Crossing::DmaRead).bytes, tally.sent_bytes),
        Sum::new("interrupts", line(Crossing::Interrupt).count, tally.receive_interrupts),
        Sum::new("doorbells", line(Crossing::Doorbell).count, tally.doorbells),
    ]
}
