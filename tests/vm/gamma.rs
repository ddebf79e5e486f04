//! GAMMA cards in real guests: what `niclab run` shows, exact counts, ports that are kept apart, and an owner that is
//! killed.

use niclab_harness::{Niclab, Outcome, eventually, put_selftest};

/// A counter of a node's card or of its driver, below `/sys/class/niclab/niclab0`.
fn count(niclab: &Niclab, node: &str, path: &str) -> u64 {
    let path = format!("/sys/class/niclab/niclab0/{path}");
    let outcome = niclab.run(["exec", node, "--", "cat", &path]).success();
    outcome.stdout.trim().parse().expect("a count")
}

/// The number that a text begins with.
fn number(text: &str) -> Option<u64> {
    text.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

/// Runs a command at both nodes.
fn both(niclab: &Niclab, command: &[&str]) -> [Outcome; 2] {
    let started = ["node0", "node1"].map(|node| niclab.start([&["exec", node, "--"][..], command].concat()));
    started.map(|program| program.finish().success())
}

#[test]
fn demo_runs_on_gamma_and_a_poller_gets_no_interrupt() {
    let niclab = Niclab::new();
    let text = niclab.run(["run", "--nic", "gamma", "--nodes", "4"]).success();
    for word in ["pingpong", "stream", "check guest-interrupts: held: node0: 0 raised"] {
        assert!(text.stdout.contains(word), "the report says {word:?}\n{text}");
    }
}

#[test]
fn a_ping_pong_from_c_is_what_was_sent() {
    let niclab = Niclab::new();
    niclab_harness::build_c_examples(&niclab);
    let outcome = niclab.run(["run", "--nic", "gamma", "--nodes", "2", "--", "./gamma_pingpong"]).success();
    assert_eq!(outcome.stdout.matches("50 messages of 5000 bytes").count(), 2, "{outcome}");
}

#[test]
fn collectives_over_active_ports_are_right_among_five_nodes() {
    let niclab = Niclab::new();
    niclab_harness::build_rust_example(&niclab, "gamma_collectives");
    // A root sends to several and hears from others at once. In guests that run freely a card's bus is then busy for so
    // long, by model time, that the FIFO of its default size may overflow; this is about programs.
    let cluster = "nodes = 5\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\nreceive_fifo_bytes = 1048576\n";
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("a cluster file");
    let outcome = niclab.run(["run", "--cluster", "gamma.toml", "--", "./gamma_collectives"]).success();
    assert_eq!(outcome.stdout.matches("barriers, broadcasts and sums are right").count(), 5, "{outcome}");
    assert!(outcome.stdout.contains("30000 bytes: "), "{outcome}");
}

#[test]
fn a_killed_owner_frees_its_port_and_harms_no_other() {
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
        "no stream begins"
    );
    kill("node0");
    assert!(receiver.is_running(), "it waits for the rest");
    kill("node1");
    drop((sender, receiver));
    // The same port for others, and another one at once.
    let pingpong = ["niclab-perf", "pingpong", "-s", "3000", "-n", "100"];
    let other: Vec<_> = ["node0", "node1"]
        .map(|node| niclab.start([&["exec", node, "--"][..], &pingpong, &["--port", "5"]].concat()))
        .into();
    both(&niclab, &pingpong);
    for program in other {
        program.finish().success();
    }
    for node in ["node0", "node1"] {
        for raised in ["lost_frames", "damaged_frames", "messages_without_buffer", "stalled_windows"] {
            assert_eq!(count(&niclab, node, &format!("active/{raised}")), 0, "{node}: {raised}");
        }
        assert_eq!(count(&niclab, node, "interrupts"), 0, "{node} polls");
    }
    niclab.run(["down"]).success();
}

#[test]
fn each_frame_interrupts_unless_the_driver_is_at_work_and_each_takes_its_descriptors() {
    let niclab = Niclab::new();
    let cluster = "[nic]\nmodel = \"gamma\"\n[nic.gamma]\ninterrupt_frames = 1\ninterrupt_delay_us = 0\nwindow_frames = 0\n";
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("a cluster file");
    niclab.run(["up", "--cluster", "gamma.toml", "--nodes", "2"]).success();
    // 200 messages are sent before those that are counted one by one.
    let [first, _] = both(&niclab, &["niclab-perf", "pingpong", "-s", "16", "-n", "300", "--poll", "block"]);
    let interrupts: Vec<u64> = first.stdout.split(": interrupts ").skip(1).map_while(number).collect();
    // Guests run freely: a frame may come, in model time, while the driver is at work on the one before, and finds it
    // there.
    let is_one_for_each = |count: &u64| (475..=500).contains(count);
    assert!(interrupts.len() == 2 && interrupts.iter().all(is_one_for_each), "one for each message\n{first}");
    for node in ["node0", "node1"] {
        let [frames_in, frames_out, taken] = ["frames_in", "frames_out", "descriptors_taken"]
            .map(|name| count(&niclab, node, &format!("statistics/{name}")));
        assert_eq!(taken, frames_in + frames_out + 1, "{node}: one for each frame, and one for the next");
    }
    niclab.run(["down"]).success();
}

/// Starts a command at both nodes.
fn start_both(niclab: &Niclab, command: &[&str]) -> [niclab_harness::Started; 2] {
    ["node0", "node1"].map(|node| niclab.start([&["exec", node, "--"][..], command].concat()))
}

/// A command of `niclab-perf` over IP by the cards' own interfaces.
const OVER_CARDS: &str = "export NICLAB_ADDRESSES=$NICLAB_NIC_ADDRESSES; exec niclab-perf";

/// IP and active ports share the card: TCP and UDP between the guests' cards while messages flow, in both directions
/// and of each kind. Nothing is lost of messages, nothing is starved, and IP keeps to its part of the buffers.
fn shares_with_ip(parameters: &str) {
    let niclab = Niclab::new();
    let cluster = format!("nodes = 2\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\n{parameters}");
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("a cluster file");
    niclab.run(["up", "--cluster", "gamma.toml"]).success();
    let pinged = niclab.run(["exec", "node0", "--", "ping", "-c", "3", "-A", "node1-gamma"]).success();
    assert!(pinged.stdout.contains("3 packets received"), "{pinged}");
    let neighbours = niclab.run(["exec", "node0", "--", "cat", "/proc/net/arp"]).success().stdout;
    let of_peer = neighbours.lines().find(|line| line.starts_with("10.79.0.2 ")).expect("a neighbour");
    assert!(of_peer.contains("02:6e:6c:01:00:01") && of_peer.ends_with("niclab0"), "{neighbours}");

    let messages = start_both(&niclab, &["niclab-perf", "stream", "-s", "9000", "--iterations", "100000000"]);
    let received = || count(&niclab, "node1", "statistics/bytes_received");
    assert!(eventually(|| received() > 100_000), "no stream begins");
    let before = received();
    let over_cards = |arguments: &str| both(&niclab, &["sh", "-c", &format!("{OVER_CARDS} {arguments}")]);
    over_cards("pingpong -t tcp -s 1000 -n 300");
    over_cards("stream -t udp -s 1000 -n 50 --warmup 10");
    let [first, second] = over_cards("stream -t tcp -s 16384 -n 1000");
    assert!(received() > before + 1_000_000, "messages went on\n{first}\n{second}");
    for node in ["node0", "node1"] {
        // A program whose peer is gone may have ended already.
        niclab.run(["exec", node, "--", "sh", "-c", "killall -9 niclab-perf; true"]).success();
    }
    drop(messages);
    let other_buffers = 1_024 - 32 - 1;
    for node in ["node0", "node1"] {
        for raised in ["lost_frames", "damaged_frames", "messages_without_buffer", "stalled_windows"] {
            assert_eq!(count(&niclab, node, &format!("active/{raised}")), 0, "{node}: {raised}");
        }
        for lost in ["missed_frames", "fifo_overflows"] {
            assert_eq!(count(&niclab, node, &format!("statistics/{lost}")), 0, "{node}: {lost}");
        }
        let most = count(&niclab, node, "active/other_buffers_most");
        assert!((1..=other_buffers).contains(&most), "{node}: {most} of {other_buffers}");
        let others = count(&niclab, node, "statistics/other_frames_in");
        assert!(others > 1_000, "{node}: {others} frames of IP");
    }
    niclab.run(["down"]).success();
}

#[test]
fn ip_shares_rings_and_wire_with_messages_that_are_polled_for() {
    shares_with_ip("");
}

#[test]
fn ip_shares_rings_and_wire_with_messages_that_interrupt() {
    shares_with_ip("interrupt_frames = 1\n");
}

/// A cluster that is up, from a file of this text.
fn up(text: &str) -> Niclab {
    let niclab = Niclab::new();
    std::fs::write(niclab.folder().join("gamma.toml"), text).expect("a cluster file");
    niclab.run(["up", "--cluster", "gamma.toml"]).success();
    niclab
}

fn shell(niclab: &Niclab, node: &str, script: &str) -> Outcome {
    niclab.run(["exec", node, "--", "sh", "-c", script])
}

/// What is cut is seen by who uses the interface: its carrier goes with the link, as that of the Ethernet function
/// does.
#[test]
fn the_carrier_of_the_cards_interface_goes_with_its_link() {
    let file = "nodes = 2\n[[link]]\n[[link]]\nnode = \"node1\"\nfaults = { partition = true }\n[nic]\nmodel = \"gamma\"\n";
    let niclab = up(file);
    let carrier = |node: &str| {
        let outcome = niclab.run(["exec", node, "--", "cat", "/sys/class/net/niclab0/carrier"]).success();
        number(&outcome.stdout)
    };
    assert!(eventually(|| carrier("node1") == Some(0)), "cut from the start");
    assert_eq!(carrier("node0"), Some(1));
    let ping = || shell(&niclab, "node0", "ping -c 1 -W 2 node1-gamma").code();
    for round in 1..3 {
        niclab.run(["fault", "node1", "--heal"]).success();
        assert!(eventually(|| carrier("node1") == Some(1) && ping() == 0), "{round}: it is whole");
        niclab.run(["fault", "node1", "--partition"]).success();
        assert!(eventually(|| carrier("node1") == Some(0)), "{round}: it is cut");
        assert_eq!(carrier("node0"), Some(1), "{round}: the other link is whole");
    }
    assert_ne!(ping(), 0, "nothing passes");
    // A driver that begins anew is told anew.
    shell(&niclab, "node1", "rmmod niclab && modprobe niclab && ip link set niclab0 up").success();
    assert!(eventually(|| carrier("node1") == Some(0)), "it is cut still");
    assert_eq!(count(&niclab, "node1", "causes/link"), 1);
    niclab.run(["down"]).success();
}

/// A program that takes messages more slowly than they come, and has few buffers: what finds none waits beside the
/// ring, and IP, and the messages of others, go on. No frame is lost.
#[test]
fn a_message_without_a_buffer_holds_nobody_else_up() {
    let niclab = up("nodes = 2\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\ninterrupt_frames = 1\n");
    put_selftest(&niclab);
    let mut receiver = niclab.start(["exec", "node1", "--", "./niclab-selftest", "slow"]);
    receiver.wait_for_line("ready");
    let mut sender = niclab.start(["exec", "node0", "--", "./niclab-selftest", "send"]);
    let parked = || count(&niclab, "node1", "active/parked_frames");
    assert!(eventually(|| parked() > 40), "messages wait");
    let before = parked();
    let pinged = shell(&niclab, "node0", "ping -c 20 -A node1-gamma").success();
    assert!(pinged.stdout.contains("20 packets received"), "{pinged}");
    assert!(eventually(|| parked() > before + 40), "and go on waiting");
    assert!(receiver.is_running() && sender.is_running());
    for node in ["node0", "node1"] {
        niclab.run(["exec", node, "--", "killall", "-9", "niclab-selftest"]).success();
    }
    drop((sender, receiver));
    // Not messages without a buffer: those have a tenth of a second to find one, for which a busy host can keep the
    // receiver away.
    for raised in ["lost_frames", "incomplete_messages", "old_frames"] {
        assert_eq!(count(&niclab, "node1", &format!("active/{raised}")), 0, "{raised}");
    }
    both(&niclab, &["niclab-perf", "pingpong", "-s", "3000", "-n", "100"]);
    niclab.run(["down"]).success();
}

/// Numbers in a text, in their order.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|character: char| !character.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn a_driver_that_is_loaded_again_is_a_new_partner() {
    let niclab = up("nodes = 2\n[nic]\nmodel = \"gamma\"\n");
    let pingpong = ["niclab-perf", "pingpong", "-s", "3000", "-n", "200"];
    both(&niclab, &pingpong);
    // The window to a node whose driver is gone is used up, and what is in it is nobody's.
    let stream = start_both(&niclab, &["niclab-perf", "stream", "-s", "9000", "--iterations", "100000000"]);
    assert!(
        eventually(|| count(&niclab, "node1", "statistics/bytes_received") > 1_000_000),
        "no stream begins"
    );
    niclab.run(["exec", "node1", "--", "killall", "-9", "niclab-perf"]).success();
    shell(&niclab, "node1", "until rmmod niclab; do sleep 0.1; done; sleep 1; modprobe niclab").success();
    assert!(eventually(|| count(&niclab, "node0", "active/partners_begun_anew") == 1), "node0 heard of it");
    let _ = niclab.run(["exec", "node0", "--", "killall", "-9", "niclab-perf"]);
    drop(stream);
    both(&niclab, &pingpong);
    for node in ["node0", "node1"] {
        for raised in ["lost_frames", "stalled_windows", "damaged_frames"] {
            assert_eq!(count(&niclab, node, &format!("active/{raised}")), 0, "{node}: {raised}");
        }
    }
    assert_eq!(count(&niclab, "node1", "active/partners_begun_anew"), 0, "node0 has the driver it had");
    // So often as there are numbers of drivers, and each time it is another one.
    let again = "for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do rmmod niclab && modprobe niclab || exit 1; done";
    shell(&niclab, "node1", again).success();
    both(&niclab, &pingpong);
    assert_eq!(count(&niclab, "node0", "active/partners_begun_anew"), 17);
    niclab.run(["down"]).success();
}

#[test]
fn the_cards_interface_comes_and_goes_with_its_driver() {
    let niclab = up("nodes = 2\n[nic]\nmodel = \"gamma\"\n");
    let ping = |arguments: &str| shell(&niclab, "node0", &format!("ping -c 2 -W 2 {arguments} node1-gamma"));
    ping("-s 1400").success();
    let has = |word: &str| shell(&niclab, "node1", "ip addr show niclab0").stdout.contains(word);
    assert!(has("mtu 1500") && has("10.79.0.2/24") && !has("inet6"), "as the agent set it up");
    assert_ne!(
        shell(&niclab, "node1", "ip link set niclab0 mtu 1501").code(),
        0,
        "the card has no longer frames"
    );
    assert_ne!(
        shell(&niclab, "node1", "ip link set niclab0 address 02:00:00:00:00:09").code(),
        0,
        "nor names"
    );
    shell(&niclab, "node1", "ip link set niclab0 mtu 576").success();
    ping("-s 1400").success();
    shell(&niclab, "node1", "ip link set niclab0 down").success();
    assert_ne!(ping("").code(), 0, "it is down");
    shell(&niclab, "node1", "ip link set niclab0 up").success();
    ping("").success();
    // While frames come.
    let mut flood =
        niclab.start(["exec", "node0", "--", "sh", "-c", "ping -A -s 1400 node1-gamma >/dev/null"]);
    let again = "for round in 1 2 3 4 5; do rmmod niclab && modprobe niclab && ip addr add 10.79.0.2/24 dev niclab0 && \
                 ip link set niclab0 up || exit 1; sleep 0.3; done";
    shell(&niclab, "node1", again).success();
    assert!(flood.is_running(), "it goes on");
    ping("").success();
    let said = shell(&niclab, "node1", "dmesg").stdout;
    for trouble in ["BUG", "WARNING", "stay"] {
        assert!(!said.contains(trouble), "{said}");
    }
    niclab.run(["exec", "node0", "--", "killall", "ping"]).success();
    drop(flood);
    niclab.run(["down"]).success();
}

#[test]
fn what_cannot_be_sent_or_received_is_refused_by_name() {
    let niclab = Niclab::new();
    put_selftest(&niclab);
    let script = "[ $NICLAB_RANK = 1 ] || ./niclab-selftest active";
    let cluster = "nodes = 2\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\ninterrupt_frames = 1\n";
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("a cluster file");
    let outcome = niclab.run(["run", "--cluster", "gamma.toml", "--", "sh", "-c", script]).success();
    let passed = outcome.stdout.matches("| ok ").count();
    assert!(passed == 5 && !outcome.stdout.contains("| not ok "), "{passed} passed\n{outcome}");
}

/// A link that loses and damages frames of messages which are a frame each: as many are raised as did not come, each
/// once, and no other; the program hears of as many as the driver counts.
#[test]
fn each_frame_that_a_link_loses_is_raised_once() {
    let niclab = up("nodes = 2\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\nwindow_frames = 0\n");
    niclab_harness::build_c_examples(&niclab);
    niclab.run(["fault", "node1", "--loss", "0.02", "--corrupt", "0.02"]).success();
    let mut receiver = niclab.start([
        "exec",
        "node1",
        "--",
        "sh",
        "-c",
        "(until [ -e heal ]; do sleep 0.1; done; echo) | ./gamma_losses 3000",
    ]);
    receiver.wait_for_line("ready");
    let sender = niclab.start(["exec", "node0", "--", "./gamma_losses"]);
    receiver.wait_for_line("enough");
    niclab.run(["fault", "node1", "--heal"]).success();
    std::fs::write(niclab.folder().join("heal"), "\n").expect("a file");
    let (sender, receiver) = (sender.finish().success(), receiver.finish().success());
    let said = receiver.stdout.lines().find(|line| line.contains("out of order")).expect("what came");
    let [_, came, sent, lost, raised, disorder] = numbers(said)[..] else { panic!("{said}") };
    assert_eq!((came + lost, disorder), (sent, 0), "{sender}\n{receiver}");
    // Node 1 was there from the first message on, and the link was sound at the last.
    let launched = sender.stdout.lines().find(|line| line.contains("messages sent")).expect("what was sent");
    assert_eq!(numbers(launched)[1], sent, "{sender}\n{receiver}");
    assert!(raised > 30 && lost >= raised, "{said}");
    // Of the card's counts: frames that left, and those that came sound.
    let counted = |node, name: &str| count(&niclab, node, name);
    let of_messages = |node, way| {
        counted(node, &format!("statistics/frames_{way}"))
            - counted(node, &format!("statistics/other_frames_{way}"))
    };
    let gone = of_messages("node0", "out") - of_messages("node1", "in");
    let damaged = counted("node1", "active/damaged_frames");
    assert!(damaged > 10, "{damaged} damaged");
    assert_eq!(counted("node1", "active/lost_frames"), gone + damaged, "{receiver}");
    assert_eq!(counted("node1", "active/lost_frames"), lost, "{receiver}");
    assert_eq!(counted("node0", "active/lost_frames"), 0, "what it sent back came");
    niclab.run(["down"]).success();
}

#[test]
fn pair_with_lost_acknowledgements_is_reported_as_stalled() {
    let niclab = up("nodes = 2\n[nic]\nmodel = \"gamma\"\n");
    niclab_harness::build_c_examples(&niclab);
    niclab.run(["fault", "node1", "--partition"]).success();
    let outcome = niclab.run(["exec", "node0", "--", "./gamma_losses", "1", "500"]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.stderr.contains("acknowledge"), "it says so\n{outcome}");
    assert_eq!(count(&niclab, "node0", "active/stalled_windows"), 1, "{outcome}");
    niclab.run(["down"]).success();
}

/// The card's addresses have 32 bits; guests with more memory than that have their programs' memory above it first of
/// all.
#[test]
fn memory_that_the_card_does_not_reach_is_sent_from_a_copy() {
    let niclab = Niclab::new();
    niclab_harness::build_c_examples(&niclab);
    let cluster =
        "nodes = 2\nboot = \"cold\"\n[[node]]\nmemory_mib = 3072\n[[node]]\n[nic]\nmodel = \"gamma\"\n";
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("a cluster file");
    let script = "./gamma_pingpong && echo $NICLAB_RANK copied $(cat /sys/class/niclab/niclab0/active/copied_messages)";
    let outcome = niclab.run(["run", "--cluster", "gamma.toml", "--", "sh", "-c", script]).success();
    assert_eq!(outcome.stdout.matches("50 messages of 5000 bytes").count(), 2, "{outcome}");
    let copied = |rank: &str| {
        let line = outcome.stdout.lines().find_map(|line| line.split_once(&format!("{rank} copied ")));
        line.and_then(|(_, count)| number(count)).expect("a count")
    };
    assert!(copied("0") >= 50, "{outcome}");
    assert_eq!(copied("1"), 0, "it has no more than the card reaches\n{outcome}");
}
