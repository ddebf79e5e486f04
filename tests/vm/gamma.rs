//! GAMMA cards in real guests: active messages and IP over one card, exact counts, faulty links, killed programs and
//! reloaded drivers.

use niclab_harness::{Niclab, Outcome, eventually, put_selftest};

/// Reads a counter of a node's card or driver; `path` is relative to `/sys/class/niclab/niclab0`.
fn count(niclab: &Niclab, node: &str, path: &str) -> u64 {
    let path = format!("/sys/class/niclab/niclab0/{path}");
    let outcome = niclab.run(["exec", node, "--", "cat", &path]).success();
    outcome.stdout.trim().parse().expect("the file contains a number")
}

/// Parses the number at the beginning of a text.
fn number(text: &str) -> Option<u64> {
    text.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

/// Runs a command on both nodes at the same time, and waits until both commands have succeeded.
fn both(niclab: &Niclab, command: &[&str]) -> [Outcome; 2] {
    let started = ["node0", "node1"].map(|node| niclab.start([&["exec", node, "--"][..], command].concat()));
    started.map(|program| program.finish().success())
}

#[test]
fn polling_demo_on_gamma_raises_no_interrupt() {
    let niclab = Niclab::new();
    let text = niclab.run(["run", "--nic", "gamma", "--nodes", "4", "--report", "text"]).success();
    for word in ["pingpong", "stream", "check guest-interrupts: held: node0: 0 raised"] {
        assert!(text.stdout.contains(word), "the report contains {word:?}\n{text}");
    }
}

#[test]
fn c_ping_pong_returns_each_message_unchanged() {
    let niclab = Niclab::new();
    niclab_harness::build_c_examples(&niclab);
    let outcome = niclab.run(["run", "--nic", "gamma", "--nodes", "2", "--", "./gamma_pingpong"]).success();
    assert_eq!(outcome.stdout.matches("50 messages of 5000 bytes").count(), 2, "{outcome}");
}

#[test]
fn collectives_of_five_nodes_give_correct_results() {
    let niclab = Niclab::new();
    niclab_harness::build_rust_example(&niclab, "gamma_collectives");
    // The root of a collective sends to several nodes while it receives from others. Without lockstep, the bus of its
    // card may then be busy for so long in model time that a receive FIFO of default size overflows. This test checks
    // programs and not overflows, so it uses a larger FIFO.
    let cluster = "nodes = 5\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\nreceive_fifo_bytes = 1048576\n";
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("the cluster file is written");
    let outcome = niclab.run(["run", "--cluster", "gamma.toml", "--", "./gamma_collectives"]).success();
    assert_eq!(outcome.stdout.matches("barriers, broadcasts and sums are right").count(), 5, "{outcome}");
    assert!(outcome.stdout.contains("30000 bytes: "), "{outcome}");
}

#[test]
fn killed_program_frees_its_port_and_affects_no_other() {
    let niclab = Niclab::new();
    niclab.run(["up", "--nic", "gamma", "--nodes", "2"]).success();
    let stream = ["niclab-perf", "stream", "-s", "9000", "--iterations", "100000000"];
    let start = |node: &str| niclab.start([&["exec", node, "--"][..], &stream].concat());
    let kill = |node| {
        // A program whose peer is gone may have ended already.
        niclab.run(["exec", node, "--", "sh", "-c", "killall -9 niclab-perf; true"]).success();
    };
    let (sender, mut receiver) = (start("node0"), start("node1"));
    assert!(
        eventually(|| count(&niclab, "node1", "statistics/bytes_received") > 1_000_000),
        "the stream did not begin"
    );
    kill("node0");
    assert!(receiver.is_running(), "the receiver still waits for messages after the sender was killed");
    kill("node1");
    drop((sender, receiver));
    // New programs use the freed port and port 5 at the same time.
    let pingpong = ["niclab-perf", "pingpong", "-s", "3000", "-n", "100"];
    let on_port_5: Vec<_> = ["node0", "node1"]
        .map(|node| niclab.start([&["exec", node, "--"][..], &pingpong, &["--port", "5"]].concat()))
        .into();
    both(&niclab, &pingpong);
    for program in on_port_5 {
        program.finish().success();
    }
    for node in ["node0", "node1"] {
        for counter in ["lost_frames", "damaged_frames", "messages_without_buffer", "stalled_windows"] {
            assert_eq!(count(&niclab, node, &format!("active/{counter}")), 0, "{node}: {counter}");
        }
        assert_eq!(
            count(&niclab, node, "interrupts"),
            0,
            "{node}: programs poll, so the card raises no interrupt"
        );
    }
    niclab.run(["down"]).success();
}

#[test]
fn each_frame_interrupts_an_idle_driver_and_uses_a_descriptor() {
    let niclab = Niclab::new();
    let cluster = "[nic]\nmodel = \"gamma\"\n[nic.gamma]\ninterrupt_frames = 1\ninterrupt_delay_us = 0\n\
        window_frames = 0\n";
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("the cluster file is written");
    niclab.run(["up", "--cluster", "gamma.toml", "--nodes", "2"]).success();
    // The interrupts of a node include those of the 200 warm-up messages before the 300 measured ones.
    let [first, _] = both(&niclab, &["niclab-perf", "pingpong", "-s", "16", "-n", "300", "--poll", "block"]);
    let interrupts: Vec<u64> = first.stdout.split(": interrupts ").skip(1).map_while(number).collect();
    // Without lockstep, a frame may arrive in model time while the driver still handles the previous one. Such a frame
    // needs no interrupt.
    let is_about_one_per_message = |count: &u64| (475..=500).contains(count);
    assert!(
        interrupts.len() == 2 && interrupts.iter().all(is_about_one_per_message),
        "each of the 500 messages interrupts its receiver, with at most 25 exceptions\n{first}"
    );
    for node in ["node0", "node1"] {
        let [frames_in, frames_out, taken] = ["frames_in", "frames_out", "descriptors_taken"]
            .map(|name| count(&niclab, node, &format!("statistics/{name}")));
        assert_eq!(
            taken,
            frames_in + frames_out + 1,
            "{node}: the card reads one descriptor for each frame, and one in advance for the next received frame"
        );
    }
    niclab.run(["down"]).success();
}

/// Starts a command on both nodes.
fn start_both(niclab: &Niclab, command: &[&str]) -> [niclab_harness::Started; 2] {
    ["node0", "node1"].map(|node| niclab.start([&["exec", node, "--"][..], command].concat()))
}

/// Start of a shell script that runs `niclab-perf` over IP on the cards' own network interfaces.
const OVER_CARDS: &str = "export NICLAB_ADDRESSES=$NICLAB_NIC_ADDRESSES; exec niclab-perf";

/// IP and active ports share the card: TCP and UDP run between the guests' cards during a stream of active messages.
/// No message is lost, both kinds of traffic progress, and IP uses only its share of the receive buffers.
fn shares_with_ip(parameters: &str) {
    let niclab = Niclab::new();
    let cluster = format!("nodes = 2\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\n{parameters}");
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("the cluster file is written");
    niclab.run(["up", "--cluster", "gamma.toml"]).success();
    let pinged = niclab.run(["exec", "node0", "--", "ping", "-c", "3", "-A", "node1-gamma"]).success();
    assert!(pinged.stdout.contains("3 packets received"), "{pinged}");
    let neighbours = niclab.run(["exec", "node0", "--", "cat", "/proc/net/arp"]).success().stdout;
    let peer =
        neighbours.lines().find(|line| line.starts_with("10.79.0.2 ")).expect("the ARP entry of node1");
    assert!(peer.contains("02:6e:6c:01:00:01") && peer.ends_with("niclab0"), "{neighbours}");

    let messages = start_both(&niclab, &["niclab-perf", "stream", "-s", "9000", "--iterations", "100000000"]);
    let received = || count(&niclab, "node1", "statistics/bytes_received");
    assert!(eventually(|| received() > 100_000), "the stream did not begin");
    let before = received();
    let over_cards = |arguments: &str| both(&niclab, &["sh", "-c", &format!("{OVER_CARDS} {arguments}")]);
    over_cards("pingpong -t tcp -s 1000 -n 300");
    over_cards("stream -t udp -s 1000 -n 50 --warmup 10");
    let [first, second] = over_cards("stream -t tcp -s 16384 -n 1000");
    assert!(received() > before + 1_000_000, "the stream of active messages continued\n{first}\n{second}");
    for node in ["node0", "node1"] {
        // A program whose peer is gone may have ended already.
        niclab.run(["exec", node, "--", "sh", "-c", "killall -9 niclab-perf; true"]).success();
    }
    drop(messages);
    // The receive buffers, without those for one peer's window and its acknowledgement.
    let other_buffers = 1_024 - 32 - 1;
    for node in ["node0", "node1"] {
        for counter in ["lost_frames", "damaged_frames", "messages_without_buffer", "stalled_windows"] {
            assert_eq!(count(&niclab, node, &format!("active/{counter}")), 0, "{node}: {counter}");
        }
        for lost in ["missed_frames", "fifo_overflows"] {
            assert_eq!(count(&niclab, node, &format!("statistics/{lost}")), 0, "{node}: {lost}");
        }
        let max_used = count(&niclab, node, "active/other_buffers_most");
        assert!(
            (1..=other_buffers).contains(&max_used),
            "{node}: IP used {max_used} of {other_buffers} buffers"
        );
        let ip_frames = count(&niclab, node, "statistics/other_frames_in");
        assert!(ip_frames > 1_000, "{node}: {ip_frames} IP frames");
    }
    niclab.run(["down"]).success();
}

#[test]
fn ip_shares_the_card_with_polled_messages() {
    shares_with_ip("");
}

#[test]
fn ip_shares_the_card_with_interrupting_messages() {
    shares_with_ip("interrupt_frames = 1\n");
}

/// Starts a cluster from a cluster file with this text.
fn up(text: &str) -> Niclab {
    let niclab = Niclab::new();
    std::fs::write(niclab.folder().join("gamma.toml"), text).expect("the cluster file is written");
    niclab.run(["up", "--cluster", "gamma.toml"]).success();
    niclab
}

fn shell(niclab: &Niclab, node: &str, script: &str) -> Outcome {
    niclab.run(["exec", node, "--", "sh", "-c", script])
}

/// While a node's link is cut, its `niclab0` interface reports no carrier, as the Ethernet function does.
#[test]
fn interface_has_no_carrier_while_its_link_is_cut() {
    let file = "nodes = 2\n[[link]]\n[[link]]\nnode = \"node1\"\nfaults = { partition = true }\n[nic]\nmodel = \
        \"gamma\"\n";
    let niclab = up(file);
    let carrier = |node: &str| {
        let outcome = niclab.run(["exec", node, "--", "cat", "/sys/class/net/niclab0/carrier"]).success();
        number(&outcome.stdout)
    };
    assert!(eventually(|| carrier("node1") == Some(0)), "the link is cut from the start");
    assert_eq!(carrier("node0"), Some(1));
    let ping = || shell(&niclab, "node0", "ping -c 1 -W 2 node1-gamma").code();
    for round in 1..3 {
        niclab.run(["fault", "node1", "--heal"]).success();
        assert!(
            eventually(|| carrier("node1") == Some(1) && ping() == 0),
            "round {round}: the healed link has a carrier"
        );
        niclab.run(["fault", "node1", "--partition"]).success();
        assert!(eventually(|| carrier("node1") == Some(0)), "round {round}: the cut link has no carrier");
        assert_eq!(carrier("node0"), Some(1), "round {round}: the other link keeps its carrier");
    }
    assert_ne!(ping(), 0, "ping gets no reply over the cut link");
    // The card notifies a newly loaded driver that its link is cut.
    shell(&niclab, "node1", "rmmod niclab && modprobe niclab && ip link set niclab0 up").success();
    assert!(eventually(|| carrier("node1") == Some(0)), "the link is still cut");
    assert_eq!(count(&niclab, "node1", "causes/link"), 1);
    niclab.run(["down"]).success();
}

/// A program takes messages more slowly than they arrive, and has few buffers. The driver copies messages without a
/// buffer out of the ring (parks them), so they do not block the frames of IP and of other programs. No frame is lost.
#[test]
fn a_message_without_a_buffer_delays_no_other_traffic() {
    let niclab = up("nodes = 2\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\ninterrupt_frames = 1\n");
    put_selftest(&niclab);
    let mut receiver = niclab.start(["exec", "node1", "--", "./niclab-selftest", "slow"]);
    receiver.wait_for_line("ready");
    let mut sender = niclab.start(["exec", "node0", "--", "./niclab-selftest", "send"]);
    let parked = || count(&niclab, "node1", "active/parked_frames");
    assert!(eventually(|| parked() > 40), "the driver parks frames");
    let before = parked();
    let pinged = shell(&niclab, "node0", "ping -c 20 -A node1-gamma").success();
    assert!(pinged.stdout.contains("20 packets received"), "{pinged}");
    assert!(eventually(|| parked() > before + 40), "the driver continues to park frames");
    assert!(receiver.is_running() && sender.is_running());
    for node in ["node0", "node1"] {
        niclab.run(["exec", node, "--", "killall", "-9", "niclab-selftest"]).success();
    }
    drop((sender, receiver));
    // `messages_without_buffer` may have any value: the driver drops a message that has waited 100 ms for a buffer, and
    // a busy host may delay the receiver for longer.
    for counter in ["lost_frames", "incomplete_messages", "old_frames"] {
        assert_eq!(count(&niclab, "node1", &format!("active/{counter}")), 0, "{counter}");
    }
    both(&niclab, &["niclab-perf", "pingpong", "-s", "3000", "-n", "100"]);
    niclab.run(["down"]).success();
}

/// Parses all numbers in a text, in their order.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|character: char| !character.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn each_reload_of_a_driver_is_one_restart_for_its_peer() {
    let niclab = up("nodes = 2\n[nic]\nmodel = \"gamma\"\n");
    let pingpong = ["niclab-perf", "pingpong", "-s", "3000", "-n", "200"];
    both(&niclab, &pingpong);
    // While node1 has no driver, node0's stream uses up the window to node1, and no driver receives the frames.
    let stream = start_both(&niclab, &["niclab-perf", "stream", "-s", "9000", "--iterations", "100000000"]);
    assert!(
        eventually(|| count(&niclab, "node1", "statistics/bytes_received") > 1_000_000),
        "the stream did not begin"
    );
    niclab.run(["exec", "node1", "--", "killall", "-9", "niclab-perf"]).success();
    shell(&niclab, "node1", "until rmmod niclab; do sleep 0.1; done; sleep 1; modprobe niclab").success();
    assert!(
        eventually(|| count(&niclab, "node0", "active/peer_restarts") == 1),
        "node0 detects the new driver of node1"
    );
    let _ = niclab.run(["exec", "node0", "--", "killall", "-9", "niclab-perf"]);
    drop(stream);
    both(&niclab, &pingpong);
    for node in ["node0", "node1"] {
        for counter in ["lost_frames", "stalled_windows", "damaged_frames"] {
            assert_eq!(count(&niclab, node, &format!("active/{counter}")), 0, "{node}: {counter}");
        }
    }
    assert_eq!(count(&niclab, "node1", "active/peer_restarts"), 0, "node0's driver was never reloaded");
    // Frames name one of 15 incarnations, so the number wraps. Each of the 16 reloads must count as a restart.
    let reload_16_times = "for round in $(seq 16); do rmmod niclab && modprobe niclab || exit 1; done";
    shell(&niclab, "node1", reload_16_times).success();
    both(&niclab, &pingpong);
    assert_eq!(count(&niclab, "node0", "active/peer_restarts"), 17);
    niclab.run(["down"]).success();
}

#[test]
fn network_interface_survives_reloads_under_traffic() {
    let niclab = up("nodes = 2\n[nic]\nmodel = \"gamma\"\n");
    let ping = |arguments: &str| shell(&niclab, "node0", &format!("ping -c 2 -W 2 {arguments} node1-gamma"));
    ping("-s 1400").success();
    let has = |word: &str| shell(&niclab, "node1", "ip addr show niclab0").stdout.contains(word);
    assert!(has("mtu 1500") && has("10.79.0.2/24") && !has("inet6"), "the agent configured the interface");
    assert_ne!(
        shell(&niclab, "node1", "ip link set niclab0 mtu 1501").code(),
        0,
        "an MTU above the card's maximum is refused"
    );
    assert_ne!(
        shell(&niclab, "node1", "ip link set niclab0 address 02:00:00:00:00:09").code(),
        0,
        "another MAC address is refused"
    );
    shell(&niclab, "node1", "ip link set niclab0 mtu 576").success();
    ping("-s 1400").success();
    shell(&niclab, "node1", "ip link set niclab0 down").success();
    assert_ne!(ping("").code(), 0, "the interface is down");
    shell(&niclab, "node1", "ip link set niclab0 up").success();
    ping("").success();
    // Reload the driver while frames arrive.
    let mut flood =
        niclab.start(["exec", "node0", "--", "sh", "-c", "ping -A -s 1400 node1-gamma >/dev/null"]);
    let reload_5_times = "for round in 1 2 3 4 5; do rmmod niclab && modprobe niclab && \
        ip addr add 10.79.0.2/24 dev niclab0 && ip link set niclab0 up || exit 1; sleep 0.3; done";
    shell(&niclab, "node1", reload_5_times).success();
    assert!(flood.is_running(), "the flood of pings continues");
    ping("").success();
    // The driver logs that bytes or pages "stay" allocated or pinned if it cannot free them.
    let log = shell(&niclab, "node1", "dmesg").stdout;
    for word in ["BUG", "WARNING", "stay"] {
        assert!(!log.contains(word), "the kernel log contains {word:?}\n{log}");
    }
    niclab.run(["exec", "node0", "--", "killall", "ping"]).success();
    drop(flood);
    niclab.run(["down"]).success();
}

#[test]
fn invalid_sends_and_receives_are_refused_with_their_error() {
    let niclab = Niclab::new();
    put_selftest(&niclab);
    let script = "[ $NICLAB_RANK = 1 ] || ./niclab-selftest active";
    let cluster = "nodes = 2\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\ninterrupt_frames = 1\n";
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("the cluster file is written");
    let outcome = niclab.run(["run", "--cluster", "gamma.toml", "--", "sh", "-c", script]).success();
    let passed = outcome.stdout.matches("| ok ").count();
    assert!(passed == 5 && !outcome.stdout.contains("| not ok "), "{passed} passed\n{outcome}");
}

/// A link loses and damages frames; each message is one frame. The driver reports exactly the missing frames, each
/// once. The losses reported to the program add up to the driver's count.
#[test]
fn each_frame_that_a_link_loses_is_reported_once() {
    let niclab = up("nodes = 2\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\nwindow_frames = 0\n");
    niclab_harness::build_c_examples(&niclab);
    niclab.run(["fault", "node1", "--loss", "0.02", "--corrupt", "0.02"]).success();
    let mut receiver = niclab.start([
        "exec",
        "node1",
        "--",
        "sh",
        "-c",
        // The program continues until it reads a line, which it gets once the link is healed.
        "(until [ -e heal ]; do sleep 0.1; done; echo) | ./gamma_losses 3000",
    ]);
    receiver.wait_for_line("ready");
    let sender = niclab.start(["exec", "node0", "--", "./gamma_losses"]);
    receiver.wait_for_line("enough");
    niclab.run(["fault", "node1", "--heal"]).success();
    std::fs::write(niclab.folder().join("heal"), "\n").expect("the file is written");
    let (sender, receiver) = (sender.finish().success(), receiver.finish().success());
    let summary =
        receiver.stdout.lines().find(|line| line.contains("out of order")).expect("the receiver's counts");
    let [_, arrived, sent, lost, reports, disorder] = numbers(summary)[..] else { panic!("{summary}") };
    assert_eq!((arrived + lost, disorder), (sent, 0), "{sender}\n{receiver}");
    // Node 1 saw the whole stream: its port was open before the first message, and the link was healed before the last.
    let total =
        sender.stdout.lines().find(|line| line.contains("messages sent")).expect("the sender's count");
    assert_eq!(numbers(total)[1], sent, "{sender}\n{receiver}");
    assert!(reports > 30 && lost >= reports, "{summary}");
    // Frames of active ports that a card sent or stored. A card stores damaged frames, too.
    let counted = |node, name: &str| count(&niclab, node, name);
    let active_frames = |node, direction| {
        counted(node, &format!("statistics/frames_{direction}"))
            - counted(node, &format!("statistics/other_frames_{direction}"))
    };
    let lost_on_link = active_frames("node0", "out") - active_frames("node1", "in");
    let damaged = counted("node1", "active/damaged_frames");
    assert!(damaged > 10, "{damaged} frames were damaged");
    assert_eq!(counted("node1", "active/lost_frames"), lost_on_link + damaged, "{receiver}");
    assert_eq!(counted("node1", "active/lost_frames"), lost, "{receiver}");
    assert_eq!(counted("node0", "active/lost_frames"), 0, "node0 received all frames of node1");
    niclab.run(["down"]).success();
}

#[test]
fn pair_with_lost_acknowledgements_is_reported_as_stalled() {
    let niclab = up("nodes = 2\n[nic]\nmodel = \"gamma\"\n");
    niclab_harness::build_c_examples(&niclab);
    niclab.run(["fault", "node1", "--partition"]).success();
    let outcome = niclab.run(["exec", "node0", "--", "./gamma_losses", "1", "500"]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.stderr.contains("acknowledge"), "the error names the acknowledgement\n{outcome}");
    assert_eq!(count(&niclab, "node0", "active/stalled_windows"), 1, "{outcome}");
    niclab.run(["down"]).success();
}

/// The card's addresses have 32 bits. A guest of 3 GiB has memory above 4 GiB, and its kernel allocates that memory to
/// programs first.
#[test]
fn messages_above_4_gib_are_copied_before_sending() {
    let niclab = Niclab::new();
    niclab_harness::build_c_examples(&niclab);
    let cluster =
        "nodes = 2\nboot = \"cold\"\n[[node]]\nmemory_mib = 3072\n[[node]]\n[nic]\nmodel = \"gamma\"\n";
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("the cluster file is written");
    let script = "./gamma_pingpong && echo $NICLAB_RANK copied $(cat /sys/class/niclab/niclab0/active/copied_messages)";
    let outcome = niclab.run(["run", "--cluster", "gamma.toml", "--", "sh", "-c", script]).success();
    assert_eq!(outcome.stdout.matches("50 messages of 5000 bytes").count(), 2, "{outcome}");
    let copied = |rank: &str| {
        let line = outcome.stdout.lines().find_map(|line| line.split_once(&format!("{rank} copied ")));
        line.and_then(|(_, count)| number(count)).expect("the count of copied messages")
    };
    assert!(copied("0") >= 50, "{outcome}");
    assert_eq!(copied("1"), 0, "the card can address all memory of node1\n{outcome}");
}
