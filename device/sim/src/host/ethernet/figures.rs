//! Reports of an Ethernet function.

use niclab_assembly::figures;
use niclab_model::platform::ledger::Transaction;
use niclab_spec::report::{NodeFigures, TrafficStats};

use super::Function;
use crate::host::Sum;

/// Adds the function to the report of the node.
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

/// Compares the ledger with the traffic at the function's interface.
pub fn sums(function: &Function) -> Vec<Sum> {
    let sent = function.nic.ledger().line(Transaction::HostSend).count;
    let mut sums = sums_of_card(function);
    sums.push(Sum::new("messages sent", sent, function.tally.sent_frames));
    sums
}

/// The same without the messages of the host.
pub fn sums_of_card(Function { nic, tally, .. }: &Function) -> Vec<Sum> {
    let line = |transaction| nic.ledger().line(transaction);
    vec![
        Sum::new("bytes of DMA writes", line(Transaction::DmaWrite).bytes, tally.received_bytes),
        Sum::new("bytes of DMA reads", line(Transaction::DmaRead).bytes, tally.sent_bytes),
        Sum::new("interrupts", line(Transaction::Interrupt).count, tally.receive_interrupts),
        Sum::new("doorbells", line(Transaction::Doorbell).count, tally.doorbells),
    ]
}
