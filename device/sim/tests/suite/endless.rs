//! The simulator ends an endless run and reports which events repeat.

use std::collections::VecDeque;

use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::registry::AnyNic;
use niclab_model::nic::{HostRanges, Input, Nic, Output};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::{Span, Time};
use niclab_sim::run::{Options, run};
use niclab_spec::{ClusterFile, Faults, SimConfig, Source, Workload, WorkloadKind};

/// What repeats without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restless {
    /// A deadline that is always due.
    Deadline,
    /// A frame that is sent again for each frame that arrives.
    Answer,
}

/// A card that never becomes idle.
struct RestlessNic {
    restless: Restless,
    nic: AnyNic,
    clock: Time,
    /// The last frame that it sent.
    sent: Option<SharedFrame>,
    answers: VecDeque<Output>,
}

impl RestlessNic {
    fn boxed(restless: Restless, nic: AnyNic) -> AnyNic {
        Box::new(Self { restless, nic, clock: Time::ZERO, sent: None, answers: VecDeque::new() })
    }
}

impl Nic for RestlessNic {
    fn handle(&mut self, now: Time, input: Input<'_>, node: &mut NodeBus) {
        self.clock = self.clock.max(now);
        if let (Restless::Answer, Input::Frame { .. }, Some(frame)) = (self.restless, &input, &self.sent) {
            let at = now + Span::from_ns(10);
            self.answers.push_back(Output::Frame { at, tail: at, frame: frame.clone(), message: None });
        }
        self.nic.handle(now, input, node);
    }
    fn memory_named_by(&self, request: &[u8]) -> HostRanges {
        self.nic.memory_named_by(request)
    }
    fn poll_output(&mut self) -> Option<Output> {
        let output = self.nic.poll_output().or_else(|| self.answers.pop_front());
        if let Some(Output::Frame { frame, .. }) = &output {
            self.sent = Some(frame.clone());
        }
        output
    }
    fn poll_timeout(&self) -> Option<Time> {
        let own = self.nic.poll_timeout();
        if self.restless == Restless::Deadline && self.sent.is_some() { Some(self.clock) } else { own }
    }
    fn accepts_store(&self, port: u32) -> bool {
        self.nic.accepts_store(port)
    }
    fn is_open(&self, port: u32) -> bool {
        self.nic.is_open(port)
    }
}

crate::observed_as_its_nic!(RestlessNic);

/// The detail of the failed check in a run with such a card.
fn said(restless: Restless) -> String {
    let workload = Workload { count: 10, ..Workload::new(WorkloadKind::PingPong) };
    let file = ClusterFile { nodes: Some(2), ..ClusterFile::default() };
    let config = SimConfig::new(&Source::default().resolve(&file).unwrap(), "test", &workload);
    // Two cards must answer each other, but a single card with the deadline is enough.
    let is_restless = |node| restless == Restless::Answer || node == 1;
    let wrap = move |node, nic| if is_restless(node) { RestlessNic::boxed(restless, nic) } else { nic };
    let [said, others @ ..] = [0, 1, 2].map(|threads| {
        let outcome =
            run(&config, &Options { wrap: &wrap, heals: true, threads, ..Options::default() }).unwrap();
        let drained = outcome.report.checks.into_iter().find(|checked| checked.name == "drained").unwrap();
        assert!(!drained.held, "{restless:?}");
        drained.detail
    });
    assert_eq!(others, [said.clone(), said.clone()], "event by event, and by phases");
    said
}

#[test]
fn deadline_that_is_always_due_ends_the_run_and_names_its_node() {
    let said = said(Restless::Deadline);
    assert!(said.contains("no end: no message was sent or received in"), "{said}");
    assert!(said.contains("which took 0 ps, node 1 had 100000: 100000 deadlines of its card"), "{said}");
}

#[test]
fn endless_answers_end_the_run_and_name_the_repeating_events() {
    let said = said(Restless::Answer);
    assert!(said.contains("no end: no message was sent or received in"), "{said}");
    for kind in ["frames sent", "frames through the switch", "frames received"] {
        assert!(said.contains(kind), "{said}");
    }
}

/// A message of 2,880 bytes in packets of four. The sender resends a window of a hundred packets for each missing one,
/// and links lose every fifth frame. So the run takes more events than are allowed without progress.
#[test]
fn message_in_tiny_packets_is_not_reported_as_endless() {
    let text = "nodes = 2\n\
        nic = { model = \"inic\", inic = { assembly = \"conf4\", \
        packet_bytes = 4, outstanding_limit = 102, retries = 10000 } }";
    let file: ClusterFile = Source::from_text("test", text.to_owned()).parse().unwrap();
    let workload =
        Workload { count: 1, warmup: 0, message_bytes: 2_880, ..Workload::new(WorkloadKind::AllToAll) };
    let mut config = SimConfig::new(&Source::default().resolve(&file).unwrap(), "test", &workload);
    for node in &mut config.nodes {
        node.link.faults = Faults { loss: 0.14, reorder: 0.1, ..Faults::default() };
    }
    let outcome = run(&config, &Options::default()).unwrap();
    assert!(outcome.is_sound(), "{:?}", outcome.report.checks);
    assert!(outcome.events > 500_000, "{} events", outcome.events);
}
