//! Recordings of each model contain every message once, on any network.

use std::sync::{Arc, Mutex};

use niclab_abi::config::{FEATURE_POSTS, FEATURE_RINGS};
use niclab_model::models::MODELS;
use niclab_model::nic::registry::AnyNic;
use niclab_model::nic::{HostRanges, Input, Nic, Output};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::Time;
use niclab_observe::recording::{Beginnings, Recorded};
use niclab_sim::run::{Options, run};
use niclab_spec::{ClusterFile, Faults, SimConfig, Source, Workload, WorkloadKind};

#[derive(Default)]
struct Seen {
    beginnings: Beginnings,
    messages: Vec<Recorded>,
}

/// A card whose frames the test sees, as a live shell shows them to a recorder.
struct Shown {
    nic: AnyNic,
    seen: Arc<Mutex<Seen>>,
}

impl Nic for Shown {
    fn handle(&mut self, now: Time, input: Input<'_>, node: &mut NodeBus) {
        self.nic.handle(now, input, node);
    }

    fn memory_named_by(&self, request: &[u8]) -> HostRanges {
        self.nic.memory_named_by(request)
    }

    fn poll_output(&mut self) -> Option<Output> {
        let output = self.nic.poll_output()?;
        if let Output::Frame { frame, message: Some(message), .. } = &output {
            let seen = &mut *self.seen.lock().unwrap();
            let begun = seen.beginnings.see(message, frame);
            seen.messages.extend(begun.map(|begun| Recorded::new(Time::ZERO, message, &begun)));
        }
        Some(output)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.nic.poll_timeout()
    }

    fn accepts_store(&self, port: u32) -> bool {
        self.nic.accepts_store(port)
    }

    fn is_open(&self, port: u32) -> bool {
        self.nic.is_open(port)
    }
}

crate::observed_as_its_nic!(Shown);

fn config(model: &str, workload: &Workload) -> SimConfig {
    let source = Source::from_text("recorded", format!("nodes = 4\n[nic]\nmodel = \"{model}\"\n"));
    let cluster = source.resolve(&source.parse::<ClusterFile>().unwrap()).unwrap();
    SimConfig::new(&cluster, "recorded", workload)
}

#[test]
fn each_message_of_every_model_is_recorded_once() {
    for model in MODELS {
        let largest = (model.limits)(&niclab_model::nic::registry::Values::defaults(model)).max_message_bytes;
        // Longer than one frame, if the model supports such messages.
        let bytes = largest.min(5_000) as u32 / 8 * 8;
        // If a message has no words besides its payload, the workload's tag is part of the payload.
        let has_no_words = model.has(FEATURE_POSTS) || model.has(FEATURE_RINGS);
        let tag_bytes = if has_no_words { 16 } else { 0 };
        let workload = Workload {
            count: 60,
            interrupt_every: 4,
            message_bytes: bytes,
            ..Workload::new(WorkloadKind::AllToAll)
        };
        let mut config = config(model.name, &workload);
        // A model without retransmission stops a pair whose acknowledgement is lost, so it runs without faults.
        for node in config.nodes.iter_mut().filter(|_| !model.has(FEATURE_RINGS)) {
            node.link.faults = Faults { loss: 0.05, duplicate: 0.05, ..Faults::default() };
        }
        let seen = Arc::new(Mutex::new(Seen::default()));
        let wrap = |_, nic| -> AnyNic { Box::new(Shown { nic, seen: Arc::clone(&seen) }) };
        let outcome = run(&config, &Options { wrap: &wrap, ..Options::default() }).unwrap();
        let messages = &seen.lock().unwrap().messages;
        for (number, node) in (0..).zip(&outcome.report.nodes) {
            let of_node = || messages.iter().filter(|message| message.node == number);
            assert_eq!(of_node().count() as u64, node.messages_sent, "{} node {number}", model.name);
            for to in (0..4).filter(|to| *to != number) {
                // Credit messages of programs have no payload.
                let sizes: Vec<u32> =
                    of_node().filter(|m| m.to == to && m.bytes > 0).map(|message| message.bytes).collect();
                assert_eq!(sizes, [bytes + tag_bytes; 60], "{}: {number} to {to}", model.name);
            }
            // If messages have no words of their own, their receivers request interrupts.
            let is_asked = of_node().any(|message| message.interrupt);
            assert_eq!(is_asked, !has_no_words, "{}", model.name);
        }
    }
}

#[test]
fn replayed_messages_have_the_recorded_lengths() {
    let recorded = [16, 24, 64, 40];
    let line = |bytes| {
        format!(r#"{{"model_time_ps": 0, "node": 0, "port": 0, "to": 1, "to_port": 0, "bytes": {bytes}}}"#)
    };
    let text = format!(
        "{{\"niclab_recording\": 2, \"nodes\": 2}}\n{}\n{{\"messages\": 4}}\n",
        recorded.map(line).join("\n")
    );
    for model in MODELS {
        let workload = Workload { recording: Some("r.jsonl".into()), ..Workload::new(WorkloadKind::Replay) };
        let seen = Arc::new(Mutex::new(Seen::default()));
        let wrap = |_, nic| -> AnyNic { Box::new(Shown { nic, seen: Arc::clone(&seen) }) };
        let options = Options { wrap: &wrap, recording: Some(&text), ..Options::default() };
        assert!(run(&config(model.name, &workload), &options).unwrap().is_sound(), "{}", model.name);
        let seen = seen.lock().unwrap();
        let sizes = seen.messages.iter().filter(|message| message.bytes > 0).map(|message| message.bytes);
        assert_eq!(sizes.collect::<Vec<_>>(), recorded, "{}", model.name);
    }
}
