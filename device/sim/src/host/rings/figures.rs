//! Reports of a host with rings.

use niclab_assembly::figures;
use niclab_model::nic::ShellCounts;
use niclab_model::nic::adversarial::Adversarial;
use niclab_model::platform::ledger::Transaction;
use niclab_spec::report::NodeFigures;

use super::{Raised, RingHost};
use crate::frames;
use crate::host::Sum;
use crate::host::ethernet;

/// The node's part of the report.
pub(super) fn node(host: &RingHost) -> NodeFigures {
    let nic = &*host.nic;
    let model = nic.statistics(&ShellCounts::default());
    let (device_faults, device_fault_log) = figures::device_faults(nic);
    let mut nic_counts = figures::nic_counts(nic);
    let Raised { lost, damaged, incomplete, old, stray, acknowledgements, .. } = host.raised;
    let stalled = host.peers.values().filter(|peer| peer.outbound.is_used_up()).count() as u64;
    nic_counts.append(&mut figures::named([
        ("driver_lost_frames", lost),
        ("driver_damaged_frames", damaged),
        ("driver_incomplete_messages", incomplete),
        ("driver_old_frames", old),
        ("driver_stray_acknowledgements", stray),
        ("driver_acknowledgements", acknowledgements),
        ("driver_stalled_pairs", stalled),
        ("driver_datagrams_out", host.datagrams.sent),
        ("driver_datagrams_in", host.datagrams.received),
    ]));
    let of_card = NodeFigures {
        device_faults,
        device_fault_log,
        adversarial: figures::adversarial(nic.adversarial().into_iter().flat_map(Adversarial::counts)),
        adversarial_seed: nic.adversarial().map(Adversarial::seed),
        messages_sent: model.packets_sent,
        messages_received: model.packets_received,
        bytes_sent: model.bytes_sent,
        bytes_received: model.bytes_received,
        cluster: host.tally.traffic(),
        doorbells: host.raised.demands,
        ledger: figures::entries(nic.ledger()),
        unordered: nic.unordered(),
        model_latency: figures::histogram(nic.ledger().latency()),
        interrupts: host.interrupts.by_name(),
        nic_counts,
        violations: figures::refusals(&model),
        ..NodeFigures::default()
    };
    let doorbells = of_card.doorbells;
    let node = ethernet::figures::add(&host.ethernet, of_card);
    NodeFigures { doorbells: doorbells + node.doorbells, ..node }
}

/// The driver's counters, in the form in which the frame checker compares them.
pub(super) fn raised(host: &RingHost) -> frames::Raised {
    let Raised { lost, old, incomplete, messages, .. } = host.raised;
    let terms = host.terms.unwrap_or_default();
    let counts = figures::nic_counts(&*host.nic);
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    let (missed, overflows) = (count("missed_frames") + count("truncated_frames"), count("fifo_overflows"));
    let (window, acknowledge_every) = (terms.window, terms.acknowledge_every);
    frames::Raised { lost, old, incomplete, messages, missed, overflows, window, acknowledge_every }
}

/// Compares the ledger with the traffic at the model's interface.
pub(super) fn sums(host: &RingHost) -> Vec<Sum> {
    let line = |transaction| host.nic.ledger().line(transaction);
    let Raised { demands, calls, written_back, .. } = host.raised;
    let of_card = [
        Sum::new("bytes of DMA writes", line(Transaction::DmaWrite).bytes, host.tally.dma_bytes),
        Sum::new("bytes of DMA reads", line(Transaction::DmaRead).bytes, host.tally.read_bytes),
        Sum::new("descriptors written back", line(Transaction::DescriptorWriteBack).count, written_back),
        Sum::new("interrupts", line(Transaction::Interrupt).count, host.interrupts.total()),
        Sum::new("doorbells", line(Transaction::Doorbell).count, demands),
        Sum::new("system calls", line(Transaction::HostSend).count, demands + calls),
    ];
    of_card.into_iter().chain(ethernet::figures::sums(&host.ethernet)).collect()
}
