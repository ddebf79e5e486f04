//! MPI's semantics, against the double of the cluster.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::{Endpoint, Message, Options, Request, credits};
use crate::matching::Region;
use crate::matching::double::{Network, network};
use crate::{Error, WaitPolicy};

const NODES: u32 = 3;
/// Small, so that short messages are long ones.
const EAGER: usize = 32;
const MOST: usize = 80;
const LIMIT: Duration = Duration::from_secs(20);

fn options() -> Options {
    // A port that sleeps lets the network of the double go on.
    Options { eager_bytes: EAGER, credits: 4, policy: WaitPolicy::Block }
}

fn cluster(nodes: u32, events: u32) -> (Vec<Endpoint>, Arc<Mutex<Network>>) {
    let (ports, network) = network(nodes, events);
    let network = network.pumped();
    let endpoints =
        ports.into_iter().map(|port| Endpoint::new(port, nodes, options()).expect("an endpoint")).collect();
    (endpoints, network)
}

#[derive(Clone, Debug)]
enum Step {
    Send { from: u32, to: u32, tag: u32, bytes: usize },
    Receive { at: u32, node: Option<u32>, tag: Option<u32>, bytes: usize },
    Progress { node: u32 },
    Network { node: usize, commands: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = 0..NODES;
    // At least its number, by which a message is known. (The talk below has empty ones.)
    let bytes = prop_oneof![2..MOST, Just(EAGER), Just(EAGER + 1)];
    let step = prop_oneof![
        4 => (node.clone(), 1..NODES, 0..3_u32, bytes.clone())
            .prop_map(|(from, by, tag, bytes)| Step::Send { from, to: (from + by) % NODES, tag, bytes }),
        4 => (node.clone(), proptest::option::of(1..NODES), proptest::option::of(0..3_u32), bytes).prop_map(
            |(at, by, tag, bytes)| Step::Receive { at, node: by.map(|by| (at + by) % NODES), tag, bytes }
        ),
        2 => node.prop_map(|node| Step::Progress { node }),
        2 => (0..NODES as usize, 1..20_usize).prop_map(|(node, commands)| Step::Network { node, commands }),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A message as it was sent: who, to whom, and its place among all sends.
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
    region: Region,
    request: Option<Request>,
    /// Which send it got.
    got: Option<usize>,
}

struct World {
    endpoints: Vec<Endpoint>,
    network: Arc<Mutex<Network>>,
    sent: Vec<Sent>,
    sends: Vec<(u32, Option<Request>)>,
    posted: Vec<Posted>,
}

/// Contents of the message that was sent as number `number`: that number, and what follows from it.
fn contents(number: usize, bytes: usize) -> Vec<u8> {
    let head = (number as u16).to_le_bytes();
    head.into_iter().chain((0..).map(|at: usize| (number * 31 + at * 7) as u8)).take(bytes).collect()
}

impl World {
    fn new() -> Self {
        let (endpoints, network) = cluster(NODES, 128);
        // All ports are open: a peer that is not is greeted again after a time, and no test may hang on that.
        network.lock().unwrap().run();
        Self { endpoints, network, sent: vec![], sends: vec![], posted: vec![] }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Send { from, to, tag, bytes } => self.send(from, to, tag, bytes),
            Step::Receive { at, node, tag, bytes } => self.receive(at, node, tag, bytes),
            Step::Progress { node } => self.endpoints[node as usize].progress().expect("a sound network"),
            Step::Network { node, commands } => {
                let mut network = self.network.lock().unwrap();
                for _ in 0..commands {
                    network.step(node);
                }
            }
        }
    }

    fn send(&mut self, from: u32, to: u32, tag: u32, bytes: usize) {
        let endpoint = &mut self.endpoints[from as usize];
        let region = endpoint.allocate(MOST).expect("memory");
        region.write(3, &contents(self.sent.len(), bytes)).expect("within");
        let request = endpoint.isend(to, tag, &region, 3..3 + bytes).expect("begun");
        self.sent.push(Sent { from, to, tag, bytes });
        self.sends.push((from, Some(request)));
    }

    fn receive(&mut self, at: u32, node: Option<u32>, tag: Option<u32>, bytes: usize) {
        let endpoint = &mut self.endpoints[at as usize];
        let region = endpoint.allocate(MOST + 16).expect("memory");
        let request = endpoint.irecv(node, tag, &region, 5..5 + bytes).expect("begun");
        self.posted.push(Posted { at, node, tag, bytes, region, request: Some(request), got: None });
    }

    /// Lets everything go on until nothing can.
    fn settle(&mut self) {
        for _ in 0..50 {
            self.network.lock().unwrap().run();
            self.endpoints.iter_mut().for_each(|endpoint| endpoint.progress().expect("a sound network"));
        }
    }

    /// Looks at every request; whether a send has not ended.
    fn look(&mut self) -> bool {
        let mut is_waiting = false;
        for (from, request) in &mut self.sends {
            if let Some(open) = request.take() {
                *request = self.endpoints[*from as usize].test(open).expect("a sound network").err();
                is_waiting |= request.is_some();
            }
        }
        for posted in &mut self.posted {
            let Some(open) = posted.request.take() else { continue };
            match self.endpoints[posted.at as usize].test(open).expect("a sound network") {
                Ok(message) => posted.got = Some(identify(&self.sent, posted, message)),
                Err(open) => posted.request = Some(open),
            }
        }
        is_waiting
    }

    /// No receive got a message while an earlier one of that source, which it would have taken, went to a later receive or to
    /// none.
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
                    "receive {order} got message {got}, before it came {earlier}, which went to {taker:?}"
                );
            }
        }
    }
}

/// Which send a message is; all that is known of it must be that send's.
fn identify(all: &[Sent], posted: &Posted, message: Message) -> usize {
    let mut bytes = [0; MOST + 16];
    posted.region.read(0, &mut bytes).expect("within");
    let number = usize::from(u16::from_le_bytes([bytes[5], bytes[6]]));
    let sent = &all[number];
    let moved = sent.bytes.min(posted.bytes);
    let is_cut = sent.bytes > posted.bytes;
    assert_eq!(message, Message { node: sent.from, tag: sent.tag, bytes: moved, is_cut });
    assert_eq!(sent.to, posted.at);
    assert!(posted.node.is_none_or(|node| node == sent.from) && posted.tag.is_none_or(|tag| tag == sent.tag));
    assert_eq!(bytes[5..5 + moved], contents(number, moved));
    // Nothing outside of the receive's memory was touched.
    assert!(bytes[..5].iter().chain(&bytes[5 + moved..]).all(|&byte| byte == 0));
    number
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Whatever is sent and received in whatever order: every message arrives whole in one receive, sends end, and no message
    /// overtakes another of its source.
    #[test]
    fn messages_arrive_once_in_order_and_whole(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
        world.settle();
        world.look();
        // Receives for all that is left over.
        for at in 0..NODES {
            for _ in 0..world.sent.len() {
                world.receive(at, None, None, MOST);
            }
        }
        let mut rounds = 0;
        while { world.settle(); world.look() } {
            rounds += 1;
            prop_assert!(rounds < 200, "a send does not end");
        }
        world.look();
        let got = world.posted.iter().filter(|posted| posted.got.is_some()).count();
        prop_assert_eq!(got, world.sent.len());
        world.check_order();
    }
}

#[test]
fn blocking_ends_talk_in_both_directions() {
    let (endpoints, network) = cluster(2, 64);
    let [mut a, mut b]: [Endpoint; 2] = endpoints.try_into().expect("two");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let region = b.allocate(4096).expect("memory");
            for round in 0..100_u32 {
                let bytes = 40 * round as usize;
                let message = b.recv(Some(0), Some(round), &region, 0..4096, LIMIT).expect("received");
                assert_eq!(message, Message { node: 0, tag: round, bytes, is_cut: false });
                b.send(0, round, &region, 0..bytes, LIMIT).expect("sent");
            }
        });
        let (out, back) = (a.allocate(4096).expect("memory"), a.allocate(4096).expect("memory"));
        for round in 0..100_u32 {
            let bytes = 40 * round as usize;
            out.write(0, &contents(round as usize, bytes)).expect("within");
            a.send(1, round, &out, 0..bytes, LIMIT).expect("sent");
            let message = a.recv(None, None, &back, 0..4096, LIMIT).expect("received");
            assert_eq!((message.tag, message.bytes), (round, bytes));
            let mut read = vec![0; bytes];
            back.read(0, &mut read).expect("within");
            assert_eq!(read, contents(round as usize, bytes));
        }
    });
    drop(network);
}

#[test]
fn a_flood_waits_for_credit_and_loses_nothing() {
    let (endpoints, network) = cluster(2, 64);
    let [mut a, mut b]: [Endpoint; 2] = endpoints.try_into().expect("two");
    let region = a.allocate(4096).expect("memory");
    let mut requests: Vec<Request> =
        (0..200).map(|tag| a.isend(1, tag, &region, 0..8).expect("begun")).collect();
    for _ in 0..20 {
        network.lock().unwrap().run();
        a.progress().expect("sound");
        b.progress().expect("sound");
    }
    let mut ended = 0;
    requests.retain_mut(|request| {
        let open = std::mem::replace(request, Request(u64::MAX));
        match a.test(open).expect("sound") {
            Ok(_) => ended += 1,
            Err(open) => *request = open,
        }
        request.0 != u64::MAX
    });
    assert_eq!(ended, 4, "as many as there is credit for");
    let back = b.allocate(4096).expect("memory");
    for tag in 0..200 {
        let request = b.irecv(None, None, &back, 0..8).expect("begun");
        a.progress().expect("sound");
        let message = loop {
            network.lock().unwrap().run();
            a.progress().expect("sound");
            b.progress().expect("sound");
            if let Some(message) = b.take_ended(&request).expect("sound") {
                break message;
            }
        };
        assert_eq!(message.tag, tag);
    }
}

#[test]
fn a_peer_that_comes_late_is_greeted_until_it_is_there() {
    let (mut ports, network) = network(2, 64);
    let network = network.pumped();
    let late = ports.pop().expect("two");
    let mut early = Endpoint::new(ports.pop().expect("two"), 2, options()).expect("an endpoint");
    let region = early.allocate(8).expect("memory");
    let request = early.isend(1, 7, &region, 0..8).expect("begun");
    let error = early.wait(request, Duration::from_millis(20)).expect_err("nobody is there");
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    let mut late = Endpoint::new(late, 2, options()).expect("an endpoint");
    let back = late.allocate(8).expect("memory");
    std::thread::scope(|scope| {
        scope.spawn(|| early.recv(Some(1), None, &region, 0..8, LIMIT).expect("answered"));
        assert_eq!(late.recv(None, Some(7), &back, 0..8, LIMIT).expect("received").bytes, 8);
        late.send(0, 8, &back, 0..8, LIMIT).expect("sent");
    });
    drop(network);
}

#[test]
fn nodes_that_are_none_and_ports_that_are_too_small_are_named() {
    let (mut endpoints, _network) = cluster(2, 64);
    let region = endpoints[0].allocate(8).expect("memory");
    for node in [0, 2] {
        let error = endpoints[0].isend(node, 0, &region, 0..8).expect_err("not another node");
        assert!(error.to_string().contains("the other node"), "{error}");
    }
    assert!(endpoints[0].irecv(Some(9), None, &region, 0..8).is_err());
    assert!(endpoints[0].isend(1, 0, &region, 0..8192).is_err());
    assert_eq!(credits(256, 2, 16).expect("many"), 16);
    assert!(credits(64, 32, 16).is_err() && credits(256, 2, 1).is_err());
}
