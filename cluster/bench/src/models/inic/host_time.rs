//! Host time for 100 MB with an INIC, compared with a conventional NIC (section 5.2, figure 7), from the ledgers.
//!
//! The paper's user time is that of the program, its system time that of the driver. A ledger has the software before
//! and after a message or datagram, which is the program with its library; copies and interrupts are the kernel's.
//! Their numbers emerge from the simulation; their prices are fitted in the profile. Neither includes a protocol
//! stack's processor time, so the conventional NIC's times are a lower bound.

use anyhow::{Context, Result};
use niclab_cluster::output::table;
use niclab_spec::{Function, Value, Workload, WorkloadKind, report::LedgerEntry};
use serde::Serialize;

use super::{PACKET_BYTES, PROFILES, Simulate, TRANSFER_BYTES, configuration, with};
use crate::figures::compared::{Compared, Published};

/// Prices of a send, a copied byte and an interrupt at the host.
const HOST_PRICES: &str = "host send_ps, copy_per_byte_ps, interrupt_ps";

/// Bytes before the card interrupts its host.
const CHUNK_BYTES: u64 = 64 << 10;

/// The times of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostTime {
    /// `inic`, or `ethernet`.
    pub nic: &'static str,
    /// Whether this host receives.
    pub is_receiver: bool,
    /// Software before and after messages.
    pub model_user_ps: u64,
    /// Copies and interrupt handlers.
    pub model_system_ps: u64,
    /// Total time, including waits.
    pub model_real_ps: u64,
    /// Messages or datagrams.
    pub messages: u64,
    /// Interrupts of this host.
    pub interrupts: u64,
}

/// The card with the assembly that the paper measured: one message, both hosts. Then datagrams of the size of its
/// packets.
pub(super) fn measure(simulate: Simulate<'_>) -> Result<Vec<HostTime>> {
    let most = Value::Number(TRANSFER_BYTES.into());
    let values = [("rcv_chunk_size", Value::Number(CHUNK_BYTES)), ("max_message_bytes", most)];
    let mut config = configuration(PROFILES[0], "unreliable_ordered", 2, &values, TRANSFER_BYTES)?;
    config.workload.slices = 8;
    let card = simulate(&with(&config, WorkloadKind::Stream, 1))?;
    config.workload = Workload {
        function: Function::Ethernet,
        message_bytes: PACKET_BYTES,
        ..Workload::new(WorkloadKind::Stream)
    };
    let datagrams = u64::from(TRANSFER_BYTES.div_ceil(PACKET_BYTES));
    let ethernet = simulate(&with(&config, WorkloadKind::Stream, datagrams))?;
    let mut hosts = Vec::new();
    for (nic, report, messages) in [("inic", &card, 1), (Function::Ethernet.name(), &ethernet, datagrams)] {
        for (rank, is_receiver) in [(0, false), (1, true)] {
            let node = report.nodes.get(rank).context("the simulator's report lacks a node")?;
            let price = |kinds: &[&str]| -> u64 {
                let ledger = node.ledgers().flat_map(|(_, ledger)| ledger);
                let of_kinds =
                    ledger.filter(|entry: &&LedgerEntry| kinds.contains(&entry.transaction.as_str()));
                of_kinds.map(|entry| entry.model_price_ps).sum()
            };
            hosts.push(HostTime {
                nic,
                is_receiver,
                model_user_ps: price(&["host_send", "host_receive"]),
                model_system_ps: price(&["host_copy", "host_interrupt"]),
                model_real_ps: report.model.time_ps,
                messages,
                interrupts: node.interrupts.values().sum(),
            });
        }
    }
    Ok(hosts)
}

/// The paper's three statements (its numbers are in a drawing), each for both ends.
pub(super) fn claims(hosts: &[HostTime]) -> [Compared; 3] {
    let pairs: Vec<(&HostTime, &HostTime)> = hosts
        .iter()
        .filter(|host| host.nic == "inic")
        .filter_map(|own| {
            let is_beside = |other: &&HostTime| other.nic != own.nic && other.is_receiver == own.is_receiver;
            Some((own, hosts.iter().find(is_beside)?))
        })
        .collect();
    let all = |holds: fn(&HostTime, &HostTime) -> bool| {
        !pairs.is_empty() && pairs.iter().all(|(own, other)| holds(own, other))
    };
    let claim = |what: &str, said: &str, agrees| {
        Compared::new("section 5.2", what, "", Published::words(said, agrees)).assumed(HOST_PRICES)
    };
    [
        // At most a thousandth of its real time.
        claim(
            "user time of the INIC's hosts",
            "almost zero",
            all(|own, _| own.model_user_ps < own.model_real_ps / 1_000),
        ),
        claim(
            "system time of the INIC's hosts, compared with Ethernet",
            "lower",
            all(|own, other| own.model_system_ps < other.model_system_ps),
        ),
        claim(
            "real time with the INIC, compared with Ethernet",
            "higher",
            all(|own, other| own.model_real_ps > other.model_real_ps),
        ),
    ]
}

pub(super) fn text(text: &mut String, hosts: &[HostTime]) {
    *text += &format!(
        "\nTime of hosts for 100,000,000 bytes (figure 7), i960-32-33: unreliable_ordered, one message,\n\
         rcv_chunk_size {CHUNK_BYTES}; Ethernet: datagrams of {PACKET_BYTES} bytes. Counts and real time emerge;\n\
         the prices of a send, a copied byte and an interrupt are fitted in the profile. Neither includes a\n\
         protocol stack's processor time: Ethernet's times are a lower bound. Its driver polls while there are\n\
         packets, so a stream interrupts it once; an interrupt per packet, as on the paper's hosts, would add 5 us\n\
         each.\n\n"
    );
    let seconds = |ps: u64| format!("{:.6}", ps as f64 / 1e12);
    let heading = ["", "user s", "system s", "real s", "messages", "interrupts"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(hosts.iter().map(|host| {
        vec![
            format!("{}, {}", host.nic, if host.is_receiver { "receiver" } else { "sender" }),
            seconds(host.model_user_ps),
            seconds(host.model_system_ps),
            seconds(host.model_real_ps),
            host.messages.to_string(),
            host.interrupts.to_string(),
        ]
    }));
    *text += &table(&rows);
}
