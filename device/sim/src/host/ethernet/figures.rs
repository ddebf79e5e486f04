//! An Ethernet function's host in the form of reports.

use niclab_assembly::figures;
use niclab_model::platform::ledger::Crossing;
use niclab_spec::report::{NodeFigures, TrafficStats};

use super::EthernetHost;
use crate::host::Sum;

/// Its part of the report.
pub(super) fn node(host: &EthernetHost) -> NodeFigures {
    let tally = host.tally();
    NodeFigures {
        ethernet: TrafficStats {
            sent_frames: tally.sent_frames,
            sent_bytes: tally.sent_bytes,
            received_frames: tally.received_frames,
            received_bytes: tally.received_bytes,
            dropped_frames: tally.dropped_frames,
        },
        doorbells: tally.doorbells,
        interrupts: figures::named([("ethernet_receive", tally.receive_interrupts)]),
        ethernet_ledger: figures::entries(host.nic().ledger()),
        ethernet_model_latency: figures::histogram(host.nic().ledger().latency()),
        ..NodeFigures::default()
    }
}

/// The ledger against what crossed the boundary of the function.
pub(super) fn sums(host: &EthernetHost) -> Vec<Sum> {
    let line = |crossing| host.nic().ledger().line(crossing);
    let tally = host.tally();
    vec![
        Sum::new("bytes of DMA writes", line(Crossing::DmaWrite).bytes, tally.received_bytes),
        Sum::new("bytes of DMA reads", line(Crossing::DmaRead).bytes, tally.sent_bytes),
        Sum::new("interrupts", line(Crossing::Interrupt).count, tally.receive_interrupts),
        Sum::new("doorbells", line(Crossing::Doorbell).count, tally.doorbells),
        Sum::new("messages sent", line(Crossing::HostSend).count, tally.sent_frames),
    ]
}
