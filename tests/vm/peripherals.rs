//! Peer devices on the bus of a NIC, in a cluster of real guests.

use niclab_harness::Niclab;
use serde_json::Value;

/// The bytes of a kind of transaction in a ledger.
fn bytes(ledger: &Value, transaction: &str) -> u64 {
    let entries = ledger.as_array().expect("a ledger").iter();
    entries.filter(|entry| entry["crossing"] == transaction).filter_map(|entry| entry["bytes"].as_u64()).sum()
}

/// A program sends to an ordinary socket of another guest through a third node's I/O card, and gets its answer. The
/// kernel of the socket sees the bridge as an ordinary neighbour. The data crosses the bus once in each direction, and
/// does not use the third node's host.
#[test]
fn a_socket_and_a_program_talk_through_another_nodes_io_card() {
    let niclab = Niclab::new();
    niclab_harness::build_c_examples(&niclab);
    let cluster = "nodes = 3\nnic = { model = \"grim\" }\n[[node]]\n[[node]]\nnic = { model = \"grim\", \
        grim.io_card_channel = 7 }\n";
    std::fs::write(niclab.folder().join("bridge.toml"), cluster).expect("a cluster file");
    let arguments = ["run", "--cluster", "bridge.toml", "--report", "json", "--", "./grim_bridge"];
    let outcome = niclab.run(arguments).success();
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(said.contains("node 0: the socket has answered through the bridge"), "{outcome}");
    assert!(said.contains("node 2: 1000 bytes from ") && said.contains(".200, port 4000"), "{outcome}");
    let report = outcome.json();
    let node = &report["nodes"][1];
    let (ledger, io_card) = (&node["ledger"], &node["peripherals"][0]);
    assert_eq!(io_card["name"], "io-card", "{node:#}");
    // Payload and header in each direction, and the word that frees the answer's memory.
    assert_eq!(bytes(ledger, "device_to_device"), 1_000 + 32 + 8, "{node:#}");
    assert_eq!(bytes(&io_card["ledger"], "device_to_device"), 1_000 + 32, "{node:#}");
    for transaction in ["pio_write", "dma_write", "dma_read", "host_send", "host_receive", "host_copy"] {
        assert_eq!(bytes(ledger, transaction), 0, "{transaction}: {node:#}");
    }
}
