//! MPI's semantics on ports whose card matches messages, on the card itself.

use std::time::Duration;

use niclab_user::matching::messages::{Endpoint, Message, Options, Request};
use niclab_user::matching::{Port, Region};
use niclab_user::{Error, WaitPolicy};
use proptest::prelude::*;

use super::{Cluster, TIMEOUT, until};

const NODES: u32 = 3;
/// Small, so that short test messages already count as long ones.
const EAGER: usize = 32;
const MOST: usize = 80;
/// The memory of one send or receive, with room around it that must stay unchanged.
const PLACE: usize = 128;

fn options() -> Options {
    Options { eager_bytes: EAGER, credits: 4, policy: WaitPolicy::ADAPTIVE }
}

fn endpoint(cluster: &Cluster, node: usize, nodes: u32, events: u32) -> Endpoint {
    let port = Port::from_parts(cluster.open(node, events)).expect("a port");
    Endpoint::new(port, nodes, options()).expect("an endpoint")
}

fn cluster(nodes: u32, events: u32) -> (Cluster, Vec<Endpoint>) {
    let cluster = Cluster::new(nodes as u16, "match", |_| {});
    let endpoints = (0..nodes as usize).map(|node| endpoint(&cluster, node, nodes, events)).collect();
    (cluster, endpoints)
}

#[derive(Clone, Debug)]
enum Step {
    Send { from: u32, to: u32, tag: u32, bytes: usize },
    Receive { at: u32, node: Option<u32>, tag: Option<u32>, bytes: usize },
    Progress { node: u32 },
    Settle { node: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = 0..NODES;
    // At least the two bytes of its number, which identify the message. (The test of blocking ends sends empty ones.)
    let bytes = prop_oneof![2..MOST, Just(EAGER), Just(EAGER + 1)];
    let step = prop_oneof![
        4 => (node.clone(), 1..NODES, 0..3_u32, bytes.clone())
            .prop_map(|(from, by, tag, bytes)| Step::Send { from, to: (from + by) % NODES, tag, bytes }),
        4 => (node.clone(), proptest::option::of(1..NODES), proptest::option::of(0..3_u32), bytes).prop_map(
            |(at, by, tag, bytes)| Step::Receive { at, node: by.map(|by| (at + by) % NODES), tag, bytes }
        ),
        2 => node.prop_map(|node| Step::Progress { node }),
        2 => (0..NODES as usize).prop_map(|node| Step::Settle { node }),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A sent message: sender, receiver, and its number among all sends.
#[derive(Clone, Debug)]
struct Sent {
    from: u32,
    to: u32,
    tag: u32,
    bytes: usize,
}

struct Posted {
    at: u32,
    node: Option<u32>,
    tag: Option<u32>,
    bytes: usize,
    /// The offset of its memory.
    begin: usize,
    request: Option<Request>,
    /// The number of the send that it received.
    got: Option<usize>,
}

struct MessageHarness {
    endpoints: Vec<Endpoint>,
    /// The memory of each node, and the used part of it.
    regions: Vec<(Region, usize)>,
    sent: Vec<Sent>,
    sends: Vec<(u32, Option<Request>)>,
    posted: Vec<Posted>,
    cluster: Cluster,
}

/// The contents of the message with this number: the number, and bytes that follow from it.
fn contents(number: usize, bytes: usize) -> Vec<u8> {
    let head = (number as u16).to_le_bytes();
    head.into_iter().chain((0..).map(|at: usize| (number * 31 + at * 7) as u8)).take(bytes).collect()
}

impl MessageHarness {
    fn new() -> Self {
        let (cluster, endpoints) = cluster(NODES, 128);
        let memory = |endpoint: &Endpoint| (endpoint.allocate(1 << 16).expect("memory"), 0);
        let regions = endpoints.iter().map(memory).collect();
        Self { endpoints, regions, sent: vec![], sends: vec![], posted: vec![], cluster }
    }

    /// Unused memory of a node, and its offset.
    fn place(&mut self, node: u32) -> (Region, usize) {
        let (region, used) = &mut self.regions[node as usize];
        *used += PLACE;
        (region.clone(), *used - PLACE)
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Send { from, to, tag, bytes } => self.send(from, to, tag, bytes),
            Step::Receive { at, node, tag, bytes } => self.receive(at, node, tag, bytes),
            Step::Progress { node } => {
                self.endpoints[node as usize].progress().expect("a fault-free network")
            }
            Step::Settle { node } => self.cluster.settle(node),
        }
    }

    fn send(&mut self, from: u32, to: u32, tag: u32, bytes: usize) {
        let (region, begin) = self.place(from);
        region.write(begin + 3, &contents(self.sent.len(), bytes)).expect("within");
        let range = begin + 3..begin + 3 + bytes;
        let request = self.endpoints[from as usize].isend(to, tag, &region, range).expect("begun");
        self.sent.push(Sent { from, to, tag, bytes });
        self.sends.push((from, Some(request)));
    }

    fn receive(&mut self, at: u32, node: Option<u32>, tag: Option<u32>, bytes: usize) {
        let (region, begin) = self.place(at);
        let range = begin + 5..begin + 5 + bytes;
        let request = self.endpoints[at as usize].irecv(node, tag, &region, range).expect("begun");
        self.posted.push(Posted { at, node, tag, bytes, begin, request: Some(request), got: None });
    }

    /// Receives the remaining messages one by one. Returns whether that was all.
    fn receive_rest(&mut self) -> bool {
        let mut is_all = true;
        for at in 0..NODES {
            let posted = || self.posted.iter().filter(|posted| posted.at == at);
            let due = self.sent.iter().filter(|sent| sent.to == at).count();
            let is_due = posted().filter(|posted| posted.got.is_some()).count() < due;
            let takes_any = |posted: &Posted| posted.node.is_none() && posted.tag.is_none();
            let is_pending = posted().any(|posted| posted.request.is_some() && takes_any(posted));
            if is_due && !is_pending {
                self.receive(at, None, None, MOST);
            }
            is_all &= !is_due;
        }
        is_all
    }

    /// Tests every request. Returns whether a send has not ended.
    fn look(&mut self) -> bool {
        let mut is_waiting = false;
        for (from, request) in &mut self.sends {
            if let Some(open) = request.take() {
                *request = self.endpoints[*from as usize].test(open).expect("a fault-free network").err();
                is_waiting |= request.is_some();
            }
        }
        for posted in &mut self.posted {
            let Some(open) = posted.request.take() else { continue };
            let region = &self.regions[posted.at as usize].0;
            match self.endpoints[posted.at as usize].test(open).expect("a fault-free network") {
                Ok(message) => posted.got = Some(identify(&self.sent, posted, region, message)),
                Err(open) => posted.request = Some(open),
            }
        }
        is_waiting
    }

    /// Checks the order. No receive may get a message while an earlier matching one of that source went to a later
    /// receive, or to none.
    fn check_order(&self) {
        for (order, posted) in self.posted.iter().enumerate() {
            let Some(got) = posted.got else { continue };
            let from = self.sent[got].from;
            for (earlier, sent) in self.sent[..got].iter().enumerate() {
                let fits =
                    sent.from == from && sent.to == posted.at && posted.tag.is_none_or(|tag| tag == sent.tag);
                if !fits {
                    continue;
                }
                let taker = self.posted.iter().position(|other| other.got == Some(earlier));
                assert!(
                    taker.is_some_and(|taker| taker < order),
                    "receive {order} got message {got}, but the earlier message {earlier} went to {taker:?}"
                );
            }
        }
    }
}

/// The number of the send that a message belongs to. All its properties must be that send's.
fn identify(all: &[Sent], posted: &Posted, region: &Region, message: Message) -> usize {
    let mut bytes = [0; PLACE];
    region.read(posted.begin, &mut bytes).expect("within");
    let number = usize::from(u16::from_le_bytes([bytes[5], bytes[6]]));
    let sent = &all[number];
    let moved = sent.bytes.min(posted.bytes);
    let is_cut = sent.bytes > posted.bytes;
    assert_eq!(message, Message { node: sent.from, tag: sent.tag, bytes: moved, is_cut });
    assert_eq!(sent.to, posted.at);
    assert!(posted.node.is_none_or(|node| node == sent.from) && posted.tag.is_none_or(|tag| tag == sent.tag));
    assert_eq!(bytes[5..5 + moved], contents(number, moved));
    // No byte outside of the receive's memory has changed.
    assert!(bytes[..5].iter().chain(&bytes[5 + moved..]).all(|&byte| byte == 0));
    number
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// For any order of sends and receives: every message arrives complete in one receive, sends end, and no message
    /// overtakes another one of its source.
    #[test]
    fn messages_arrive_once_in_order_and_complete(steps in steps()) {
        let mut harness = MessageHarness::new();
        for step in &steps {
            harness.run(step);
        }
        until("all messages are received, and all sends have ended", || {
            let is_received = harness.receive_rest();
            !harness.look() && is_received
        });
        harness.check_order();
    }
}

#[test]
fn blocking_endpoints_exchange_messages_in_both_directions() {
    let (_cluster, endpoints) = cluster(2, 64);
    let [mut a, mut b]: [Endpoint; 2] = endpoints.try_into().expect("two");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let region = b.allocate(4096).expect("memory");
            for round in 0..100_u32 {
                let bytes = 40 * round as usize;
                let message = b.recv(Some(0), Some(round), &region, 0..4096, TIMEOUT).expect("received");
                assert_eq!(message, Message { node: 0, tag: round, bytes, is_cut: false });
                b.send(0, round, &region, 0..bytes, TIMEOUT).expect("sent");
            }
        });
        let (out, back) = (a.allocate(4096).expect("memory"), a.allocate(4096).expect("memory"));
        for round in 0..100_u32 {
            let bytes = 40 * round as usize;
            out.write(0, &contents(round as usize, bytes)).expect("within");
            a.send(1, round, &out, 0..bytes, TIMEOUT).expect("sent");
            let message = a.recv(None, None, &back, 0..4096, TIMEOUT).expect("received");
            assert_eq!((message.tag, message.bytes), (round, bytes));
            let mut read = vec![0; bytes];
            back.read(0, &mut read).expect("within");
            assert_eq!(read, contents(round as usize, bytes));
        }
    });
}

#[test]
fn a_flood_waits_for_credit_and_loses_no_message() {
    let (cluster, endpoints) = cluster(2, 64);
    let [mut a, mut b]: [Endpoint; 2] = endpoints.try_into().expect("two");
    let region = a.allocate(4096).expect("memory");
    let mut requests: Vec<Option<Request>> =
        (0..200).map(|tag| Some(a.isend(1, tag, &region, 0..8).expect("begun"))).collect();
    let mut ended = |a: &mut Endpoint, b: &mut Endpoint| {
        b.progress().expect("sound");
        for request in &mut requests {
            *request = request.take().and_then(|open| a.test(open).expect("sound").err());
        }
        requests.iter().filter(|request| request.is_none()).count()
    };
    until("the sends with credit have ended", || ended(&mut a, &mut b) == 4);
    for _ in 0..20 {
        (0..2).for_each(|node| cluster.settle(node));
        assert_eq!(ended(&mut a, &mut b), 4, "no send without credit has ended");
    }
    let back = b.allocate(4096).expect("memory");
    for tag in 0..200 {
        let mut request = Some(b.irecv(None, None, &back, 0..8).expect("begun"));
        until("a message", || {
            a.progress().expect("sound");
            match b.test(request.take().expect("not ended")).expect("sound") {
                Ok(message) => assert_eq!(message.tag, tag),
                Err(open) => request = Some(open),
            }
            request.is_none()
        });
    }
    until("all sends have ended", || ended(&mut a, &mut b) == 200);
}

#[test]
fn a_late_peer_is_greeted_until_it_answers() {
    let cluster = Cluster::new(2, "match", |_| {});
    let mut early = endpoint(&cluster, 0, 2, 64);
    let region = early.allocate(8).expect("memory");
    let request = early.isend(1, 7, &region, 0..8).expect("begun");
    let error = early.wait(request, Duration::from_millis(20)).expect_err("the peer has not started");
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    let mut late = endpoint(&cluster, 1, 2, 64);
    let back = late.allocate(8).expect("memory");
    std::thread::scope(|scope| {
        scope.spawn(|| early.recv(Some(1), None, &region, 0..8, TIMEOUT).expect("answered"));
        assert_eq!(late.recv(None, Some(7), &back, 0..8, TIMEOUT).expect("received").bytes, 8);
        late.send(0, 8, &back, 0..8, TIMEOUT).expect("sent");
    });
}

#[test]
fn invalid_nodes_and_ports_without_credits_are_named() {
    let (cluster, mut endpoints) = cluster(2, 64);
    let region = endpoints[0].allocate(8).expect("memory");
    for node in [0, 2] {
        let error = endpoints[0].isend(node, 0, &region, 0..8).expect_err("not another node");
        assert!(error.to_string().contains("the other node"), "{error}");
    }
    assert!(endpoints[0].irecv(Some(9), None, &region, 0..8).is_err());
    assert!(endpoints[0].isend(1, 0, &region, 0..8192).is_err());
    for (nodes, credits) in [(32, 16), (2, 1)] {
        // Closes the previous endpoint of this node and frees its resources.
        endpoints.truncate(1);
        let port = Port::from_parts(cluster.open(1, 64)).expect("a port");
        let error = Endpoint::new(port, nodes, Options { credits, ..options() }).expect_err("too few");
        assert!(error.to_string().contains("at least 2 credits"), "{error}");
    }
}
