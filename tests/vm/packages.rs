//! Guests with a Debian root file system that holds packages.

use niclab_tests::Niclab;

#[test]
fn packages_are_there_and_nodes_reach_each_other_with_them() {
    let niclab = Niclab::new();
    // ssh asks for no password between nodes; the shared folder is there; iperf3 crosses the Ethernet function; and the
    // NIC's driver is as in the small guest.
    let script = r#"
        set -e
        [ -e ./in-the-shared-folder ] && [ -c /dev/niclab0 ]
        niclab-perf pingpong -s 16 -n 50
        if [ $NICLAB_RANK = 0 ]; then
            ssh node1 'echo "$(hostname) says hello"; iperf3 --server --daemon --one-off'
            iperf3 --client node1 --time 1
            ssh node1 touch /tmp/done
        else
            until [ -e /tmp/done ]; do sleep 0.1; done
        fi
    "#;
    std::fs::write(niclab.folder().join("in-the-shared-folder"), "").expect("a file");
    let outcome = niclab
        .run(["run", "--packages", "iperf3,openssh-server", "--timeout", "120", "--", "bash", "-c", script])
        .success();
    assert!(outcome.stdout.contains("node0 | node1 says hello"), "{outcome}");
    assert!(outcome.stdout.contains("receiver"), "iperf3's own summary\n{outcome}");
}
