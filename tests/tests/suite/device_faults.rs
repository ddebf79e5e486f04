//! The same seed gives a NIC the same faults, live and in the simulator, message by message.

use std::time::{Duration, Instant};

use niclab_device::lab::{Lab, connect_ports};
use niclab_device::monitor::answer;
use niclab_sim::run::{Options, run};
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::report::DeviceFault;
use niclab_spec::{ClusterFile, DeviceFaults, SimConfig, Source, Workload, WorkloadKind};

const SEED: u64 = 11;
const MESSAGES: u64 = 100;
const SLICES: u32 = 256;
const TIMEOUT: Duration = Duration::from_secs(120);

fn faults() -> DeviceFaults {
    DeviceFaults { stale: 0.1, short: 0.1, bad_status: 0.1, short_at: vec![50], ..DeviceFaults::default() }
}

/// The fault of each message, at the second node.
fn fates(log: &[DeviceFault]) -> Vec<(String, u64, Option<u16>, Option<u64>)> {
    let fate = |fault: &DeviceFault| {
        (fault.fault.clone(), fault.opportunity, fault.message_from, fault.message_number)
    };
    log.iter().map(fate).collect()
}

fn live() -> Vec<DeviceFault> {
    let lab = Lab::new(2, |config| {
        config.seed = SEED;
        config.nodes[1].device_faults = faults();
    })
    .unwrap();
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    // Each port may send half of the slices ahead, which is more than it sends. So no port needs to receive.
    let [mut a, _b] = connect_ports([&guests[0], &guests[1]], SLICES).unwrap();
    let begin = Instant::now();
    for number in 0..MESSAGES {
        while !a.try_launch(&[number; 2], [number; 2], 0) {
            assert!(begin.elapsed() < TIMEOUT, "{:?}", a.status_line());
            std::thread::yield_now();
        }
        a.announce();
    }
    loop {
        assert!(begin.elapsed() < TIMEOUT, "{:?}", a.status_line());
        let Answer::Stats(mut stats) = answer(lab.daemon().shell(), &Request::Stats) else { continue };
        if stats.nodes[1].messages_received == MESSAGES {
            return std::mem::take(&mut stats.nodes[1].device_fault_log);
        }
        std::thread::yield_now();
    }
}

fn simulated() -> Vec<DeviceFault> {
    let cluster = Source::default().resolve(&ClusterFile { seed: SEED, ..ClusterFile::default() }).unwrap();
    let workload =
        Workload { count: MESSAGES, warmup: 0, slices: SLICES, ..Workload::new(WorkloadKind::Stream) };
    let mut config = SimConfig::new(&cluster, "test", &workload);
    config.nodes[1].device_faults = faults();
    let outcome = run(&config, &Options::default()).unwrap();
    assert!(outcome.is_sound(), "{:?}", outcome.report.checks);
    outcome.report.nodes[1].device_fault_log.clone()
}

#[test]
fn live_and_simulated_messages_get_the_same_faults() {
    let expected = fates(&simulated());
    assert!(expected.len() > 10, "{expected:?}");
    assert_eq!(fates(&live()), expected);
}
