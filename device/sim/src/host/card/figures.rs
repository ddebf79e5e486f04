//! Reports of a card's host.

use niclab_assembly::figures;
use niclab_model::nic::ShellCounts;
use niclab_model::nic::adversarial::Adversarial;
use niclab_model::nic::fault_injector::{Fault, FaultInjector};
use niclab_model::platform::ledger::Transaction;
use niclab_spec::report::{NodeFigures, PortFigures};
use niclab_workloads::Transport;

use super::CardHost;
use crate::host::Sum;
use crate::host::ethernet;
use crate::host::tally::Interrupts;

/// The node's part of the report.
pub(super) fn node<T: Transport>(host: &CardHost<T>) -> NodeFigures {
    let tally = host.tally();
    let nic = host.nic();
    // The simulator gives every post to the card at once, so no doorbell is needed.
    let counts = ShellCounts { doorbells_spared: tally.launches, ..ShellCounts::default() };
    let model = nic.statistics(&counts);
    let (device_faults, device_fault_log) = figures::device_faults(nic);
    let of_card = NodeFigures {
        device_faults,
        device_fault_log,
        adversarial: figures::adversarial(nic.adversarial().into_iter().flat_map(Adversarial::counts)),
        adversarial_seed: nic.adversarial().map(Adversarial::seed),
        messages_sent: model.packets_sent,
        messages_received: model.packets_received,
        bytes_sent: model.bytes_sent,
        bytes_received: model.bytes_received,
        cluster: tally.traffic(),
        spared_doorbells: model.doorbells_spared,
        ledger: figures::entries(nic.ledger()),
        peripherals: figures::peripherals(nic),
        unordered: nic.unordered(),
        model_latency: figures::histogram(nic.ledger().latency()),
        interrupts: host.interrupts().by_name(),
        ports: host.ports().map(port_figures).collect(),
        nic_counts: figures::nic_counts(nic),
        violations: figures::refusals(&model),
        ..NodeFigures::default()
    };
    ethernet::figures::add(&host.ethernet, of_card)
}

fn port_figures((port, launches, of_port): (u32, u64, Interrupts)) -> PortFigures {
    PortFigures { port, launches, interrupts: of_port.by_name() }
}

/// Compares the ledger with the traffic at the model's interface.
pub(super) fn sums<T: Transport>(host: &CardHost<T>) -> Vec<Sum> {
    let line = |transaction| host.nic().ledger().line(transaction);
    let tally = host.tally();
    let count = |fault| host.nic().fault_injector().map_or(0, |fault_injector| fault_injector.count(fault));
    let withheld_bytes = host.nic().fault_injector().map_or(0, FaultInjector::withheld_bytes);
    // These add the effects of device faults to what the host saw.
    let written_bytes = tally.dma_bytes + withheld_bytes;
    let raised = line(Transaction::Interrupt).count + count(Fault::DuplicatedInterrupt);
    let seen = host.interrupts().total() + count(Fault::LostInterrupt);
    let of_card = [
        Sum::new("bytes of DMA writes", line(Transaction::DmaWrite).bytes, written_bytes),
        Sum::new("bytes of DMA reads", line(Transaction::DmaRead).bytes, tally.read_bytes),
        Sum::new("bytes of programmed I/O", line(Transaction::PioWrite).bytes, tally.pio_bytes),
        Sum::new("interrupts", raised, seen),
        Sum::new("launches", line(Transaction::HostSend).count, tally.launches),
    ];
    of_card.into_iter().chain(ethernet::figures::sums(&host.ethernet)).collect()
}
