//! A timeline sums to the report, and an observer changes nothing.

use std::collections::BTreeMap;

use niclab_sim::observer::Observer;
use niclab_sim::run::{Options, run, run_observed};
use niclab_spec::{ClusterFile, SimConfig, Source, Workload, WorkloadKind};
use serde_json::Value;

/// Count, bytes, price and waiting time for each kind of transaction.
type Sums = BTreeMap<String, [u64; 4]>;

fn sums_of(timeline: &Value) -> Sums {
    let mut sums = Sums::new();
    let events = timeline["traceEvents"].as_array().unwrap();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let sum = sums.entry(event["name"].as_str().unwrap().to_owned()).or_default();
        let keys = ["count", "bytes", "model_price_ps", "model_waited_ps"];
        for (sum, key) in sum.iter_mut().zip(keys) {
            *sum += event["args"][key].as_u64().unwrap();
        }
    }
    sums
}

#[test]
fn timeline_sums_to_the_report_and_capture_has_every_frame() {
    let workload = Workload { count: 100, warmup: 10, ..Workload::new(WorkloadKind::PingPong) };
    let file = ClusterFile { nodes: Some(2), ..ClusterFile::default() };
    let config = SimConfig::new(&Source::default().resolve(&file).unwrap(), "test", &workload);
    let names = ["node0".to_owned(), "node1".to_owned()];
    let (mut timeline, mut capture) = (Vec::new(), Vec::new());
    let observer = Observer::new(&names, Some(Box::new(&mut timeline)), Some(Box::new(&mut capture)));
    let outcome = run_observed(&config, &Options::default(), Some(observer.unwrap())).unwrap();
    assert_eq!(
        outcome.report,
        run(&config, &Options::default()).unwrap().report,
        "an observer changes nothing"
    );

    let timeline: Value = serde_json::from_slice(&timeline).unwrap();
    assert_eq!(timeline["otherData"]["stages_lost"], 0);
    let entries = outcome.report.total.iter().filter(|entry| entry.count > 0);
    let expected: Sums = entries
        .map(|e| (e.transaction.clone(), [e.count, e.bytes, e.model_price_ps, e.model_waited_ps]))
        .collect();
    assert_eq!(sums_of(&timeline), expected);
    let flows = timeline["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "f");
    assert_eq!(flows.count(), 200, "a flow for each message");

    let serializations = expected["serialization"][0];
    let frames = std::iter::successors(Some(&*capture), |rest| {
        let length = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?);
        rest.get(length as usize..)
    });
    let packets = frames.filter(|block| block.starts_with(&[6, 0, 0, 0])).count() as u64;
    assert_eq!(packets, serializations, "each frame on each direction of a link");
}
