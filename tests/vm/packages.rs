//! Guests with a Debian root file system with extra packages.

use niclab_harness::Niclab;

#[test]
fn packages_are_installed_and_connect_the_nodes() {
    let niclab = Niclab::new();
    // ssh asks for no password between nodes. The shared folder is mounted, iperf3 uses the Ethernet function, and the
    // NIC's driver is the same as in the small guest.
    let script = r#"
        set -e
        [ -e ./in-the-shared-folder ] && [ -c /dev/niclab0 ]
        niclab-perf pingpong -s 16 -n 50
        echo "key $(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) of $(ls /etc/ssh/ssh_host_*.pub)"
        if [ $NICLAB_RANK = 0 ]; then
            ssh node1 'echo "$(hostname) says hello"; iperf3 --server --daemon --one-off'
            iperf3 --client node1 --bytes 32M
            ssh node1 touch /tmp/done
        else
            until [ -e /tmp/done ]; do sleep 0.1; done
        fi
    "#;
    std::fs::write(niclab.folder().join("in-the-shared-folder"), "").expect("a file");
    let packages = ["run", "--packages", "iperf3,openssh-server", "--timeout", "120"];
    let report = ["--report-file", "report.json", "--", "bash", "-c", script];
    let outcome = niclab.run(packages.into_iter().chain(report)).success();
    assert!(outcome.stderr.contains("restoring"), "the nodes are restored from a template\n{outcome}");
    assert!(outcome.stdout.contains("node0 | node1 says hello"), "{outcome}");
    let key = |node: &str| {
        let line =
            outcome.stdout.lines().find_map(|line| line.strip_prefix(&format!("{node} | key 256 SHA256:")));
        line.unwrap_or_else(|| panic!("no key of {node}\n{outcome}"))
            .split_once(' ')
            .expect("a key and its owner")
    };
    let ((one, about), (other, _)) = (key("node0"), key("node1"));
    assert!(
        one != other && about.ends_with("of /etc/ssh/ssh_host_ed25519_key.pub"),
        "one key each\n{outcome}"
    );
    assert!(outcome.stdout.contains("receiver"), "iperf3's own summary\n{outcome}");
    // iperf3 may report retransmissions, because TCP probes when the other guest loses its core. On a link without
    // faults no frame is lost, and every sent frame arrives.
    let text = std::fs::read(niclab.folder().join("report.json")).expect("the report");
    let report: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let sum = |key: &str| -> u64 {
        let nodes = report["nodes"].as_array().expect("nodes");
        nodes.iter().map(|node| node["ethernet"][key].as_u64().expect("a count")).sum()
    };
    assert_eq!(
        (sum("sent_frames"), sum("dropped_frames")),
        (sum("received_frames"), 0),
        "{}",
        report["nodes"]
    );
    // A segment has at most 64 KiB, so 32 MiB are 512 frames or more.
    assert!(sum("sent_frames") >= 512, "iperf3 sent frames");
}
