//! A run that would go on for ever is ended, and says what goes round.

use std::collections::VecDeque;

use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::registry::AnyNic;
use niclab_model::nic::{HostRanges, Input, Nic, Output};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::{Span, Time};
use niclab_sim::run::{Options, run};
use niclab_spec::{ClusterFile, Faults, SimConfig, Source, Workload, WorkloadKind};

/// What never rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restless {
    /// A deadline that has always come.
    Deadline,
    /// A frame that goes again whenever one arrives.
    Answer,
}

/// A card that never rests.
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

/// What the check says of a run with a card that never rests.
fn said(restless: Restless) -> String {
    let workload = Workload { count: 10, ..Workload::new(WorkloadKind::PingPong) };
    let file = ClusterFile { nodes: Some(2), ..ClusterFile::default() };
    let config = SimConfig::new(&Source::default().resolve(&file).unwrap(), "test", &workload);
    // Two cards answer each other, but one is enough to look at the clock.
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
fn a_deadline_that_is_always_due_ends_the_run_with_the_name_of_its_node() {
    let said = said(Restless::Deadline);
    assert!(said.contains("no end: no message was sent or received in"), "{said}");
    assert!(said.contains("which took 0 ps, node 1 had 100000: 100000 deadlines of its card"), "{said}");
}

#[test]
fn two_cards_that_answer_each_other_end_the_run_with_what_goes_round() {
    let said = said(Restless::Answer);
    assert!(said.contains("no end: no message was sent or received in"), "{said}");
    for kind in ["frames sent", "frames through the switch", "frames received"] {
        assert!(said.contains(kind), "{said}");
    }
}

/// A message of 2,880 bytes in packets of four, whose sender goes back a window of a hundred for whatever is missing.
/// Links lose every fifth frame: it takes more events than there may be without any progress.
#[test]
fn a_message_that_is_stored_byte_by_byte_is_no_endless_run() {
    let text = "nodes = 2\n\
        nic = { model = \"inic\", inic = { assembly = \"conf4\", packet_bytes = 4, outstanding_limit = 102, retries = 10000 } }";
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
