//! What 100 MB cost the hosts of an INIC, beside those of a conventional NIC (section 5.2, figure 7), out of the
//! ledgers.
//!
//! The paper's user time is the program's own, its system time the driver's. A ledger has software before a message or
//! datagram and behind it, which is the program's and its library's; copies and interrupts are the kernel's. How many
//! there are emerges; what each costs is the profile's, and fitted there. A protocol stack's computing is in neither,
//! so that the conventional NIC's times are a lower bound.

use anyhow::{Context, Result};
use niclab_cluster::output::table;
use niclab_spec::{Function, Value, Workload, WorkloadKind, report::LedgerEntry};
use serde::Serialize;

use super::{PACKET_BYTES, PROFILES, Simulate, TRANSFER_BYTES, configuration, with};
use crate::figures::compared::{Compared, Published};

/// What a send, a copied byte and an interrupt cost a host.
const HOST_PRICES: &str = "host send_ps, copy_per_byte_ps, interrupt_ps";

/// Bytes before the card interrupts its host.
const CHUNK_BYTES: u64 = 64 << 10;

/// One host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostTime {
    /// `inic`, or `ethernet`.
    pub nic: &'static str,
    /// Whether it receives.
    pub is_receiver: bool,
    /// Software before messages and behind them.
    pub model_user_ps: u64,
    /// Copies and interrupt handlers.
    pub model_system_ps: u64,
    /// All of it, waiting included.
    pub model_real_ps: u64,
    /// Messages or datagrams.
    pub messages: u64,
    /// Interrupts that it took.
    pub interrupts: u64,
}

/// The card, over the assembly that the paper measured: one message, both hosts; then datagrams of as many bytes as its
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
                let of_kinds = ledger.filter(|entry: &&LedgerEntry| kinds.contains(&entry.crossing.as_str()));
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

/// The paper's three sentences (its numbers are in a drawing), each of both ends.
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
        // A thousandth of its real time.
        claim(
            "user time of the INIC's hosts",
            "almost zero",
            all(|own, _| own.model_user_ps < own.model_real_ps / 1_000),
        ),
        claim(
            "system time of the INIC's hosts, beside Ethernet's",
            "lower",
            all(|own, other| own.model_system_ps < other.model_system_ps),
        ),
        claim(
            "real time with the INIC, beside Ethernet's",
            "higher",
            all(|own, other| own.model_real_ps > other.model_real_ps),
        ),
    ]
}

pub(super) fn text(text: &mut String, hosts: &[HostTime]) {
    *text += &format!(
        "\nTime of hosts while 100,000,000 bytes pass (figure 7), i960-32-33: unreliable_ordered, one message, rcv_chunk_size \
         {CHUNK_BYTES};\nEthernet: datagrams of {PACKET_BYTES} bytes. Counts and real time emerge. Fitted in the profile: what a send, a \
         copied byte\nand an interrupt cost. A protocol stack's own computing is in neither: Ethernet's times are a lower bound. Its driver\n\
         looks for more while there is more, so that a stream interrupts it once; one interrupt a packet, as on the paper's hosts,\n\
         would add 5 us each.\n\n"
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
