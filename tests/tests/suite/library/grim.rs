//! Active messages over channels, on the card itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use niclab_model::nic::registry::Value;
use niclab_spec::NicConfig;
use niclab_user::grim::{
    Bulk, ExposedPart, FIRST_HANDLER, MAX_BULK_BYTES, MAX_NAME_BYTES, NameProblem, Node, Options, Outgoing,
    Port, Refusal, Short, Terms,
};
use niclab_user::{Address, Error, WaitPolicy};

use super::{Cluster, SHORT, TIMEOUT, node, until};

const HANDLER: u32 = FIRST_HANDLER + 4;

/// Terms of a card whose outbound queues each hold one message of maximum length, with the paper's segments.
const TERMS: Terms =
    Terms { payload_bytes: 1 << 20, outbound_bytes: MAX_BULK_BYTES, first_segment_bytes: 32 };

/// Nodes with GRIM cards. The deadlines are long in model time, and as long in wall time. So a program that loses its
/// core between two segments of a message is not taken for dead.
fn cluster(nodes: u16, change: impl Fn(&mut NicConfig)) -> Cluster {
    Cluster::new(nodes, "grim", |config| {
        for node in &mut config.nodes {
            node.nic.set("stall_us", Value::Number(10_000_000)).expect("a parameter");
            change(&mut node.nic);
        }
    })
}

/// The channels of a program on this node, each with `slices` slices.
fn grim(cluster: &Cluster, node: usize, channels: usize, slices: u32) -> Node {
    let parts = (0..channels).map(|_| cluster.open(node, slices)).collect();
    let terms = Terms { payload_bytes: 1 << 18, ..TERMS };
    Node::from_parts(parts, terms, &Options::default()).expect("channels")
}

fn pair(slices: u32) -> (Cluster, Node, Node) {
    let cluster = cluster(2, |_| {});
    let (near, far) = (grim(&cluster, 0, 1, slices), grim(&cluster, 1, 1, slices));
    (cluster, near, far)
}

type Got = Arc<Mutex<Vec<(Address, Address, [u32; 4], Vec<u8>)>>>;

/// Registers a handler that keeps all messages.
fn keep(grim: &mut Node, number: u32) -> Got {
    let got = Got::default();
    let kept = Arc::clone(&got);
    let handler = move |_: &mut _, message: &niclab_user::grim::Message<'_>| {
        let message = (message.source, message.target, message.arguments, message.payload.to_vec());
        kept.lock().expect("no panic").push(message);
    };
    grim.register_numbered(&format!("keep{number}"), number, handler).expect("a free number");
    got
}

fn poll_until(grims: &mut [&mut Node], what: &str, mut done: impl FnMut() -> bool) {
    until(what, || {
        grims.iter_mut().for_each(|grim| assert!(grim.poll().expect("no trouble") < u32::MAX));
        done()
    });
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 256) as u8).collect()
}

#[test]
fn all_kinds_of_messages_arrive_in_order() {
    let (_cluster, mut near, mut far) = pair(64);
    let got = keep(&mut far, HANDLER);
    let region = far.send_queue().sender(0).expect("a channel").allocate(200_000).expect("memory");
    let name = far.send_queue().sender(0).expect("a channel").expose(&region, true).expect("exposed");
    let to = |number| Short::new(node(1), HANDLER).arguments([number, u32::MAX, 3, 4]);
    near.send_short(0, to(0), TIMEOUT).expect("sent");
    near.send_bulk(0, to(1), &bytes(1), TIMEOUT).expect("sent");
    near.send_bulk(0, to(2), &bytes(MAX_BULK_BYTES as usize), TIMEOUT).expect("sent");
    let exposed = ExposedPart { target: node(1), region: name, offset: 5 };
    near.send_memory(0, &exposed, &bytes(150_001), TIMEOUT).expect("sent");
    near.send_short(0, to(3), TIMEOUT).expect("sent");
    poll_until(&mut [&mut near, &mut far], "four messages", || got.lock().expect("no panic").len() == 4);
    let expected = [0, 1, MAX_BULK_BYTES as usize, 0];
    for (number, (source, target, arguments, payload)) in got.lock().expect("no panic").iter().enumerate() {
        assert_eq!((*source, *target, *arguments), (node(0), node(1), [number as u32, u32::MAX, 3, 4]));
        assert!(*payload == bytes(expected[number]), "message {number}");
    }
    // The last message came after the memory.
    let mut memory = vec![0; 150_007];
    region.read(0, &mut memory).expect("within");
    assert!(memory[5..150_006] == bytes(150_001) && memory[..5] == [0; 5] && memory[150_006] == 0);
    near.close(TIMEOUT).expect("all has left");
}

#[test]
fn channels_are_separate_and_handlers_can_answer() {
    let cluster = cluster(2, |_| {});
    let (mut near, mut far) = (grim(&cluster, 0, 2, 8), grim(&cluster, 1, 2, 8));
    let got = keep(&mut near, HANDLER);
    far.register_numbered("echo", HANDLER, |send_queue, message| {
        let channel = message.target.port as usize;
        let answer = Short::new(message.source, message.handler).arguments(message.arguments);
        send_queue.send_bulk(1 - channel, answer, &message.payload.to_vec()).expect("room to wait");
    })
    .expect("a free number");
    for number in 0..20_u32 {
        let (channel, port) = ((number % 2) as usize, number / 2 % 2);
        let short = Short::new(Address { node: 1, port }, HANDLER).arguments([number, port, 0, 0]);
        near.send_bulk(channel, short, &bytes(number as usize), TIMEOUT).expect("sent");
    }
    poll_until(&mut [&mut near, &mut far], "all answers", || got.lock().expect("no panic").len() == 20);
    for (source, target, [number, port, ..], payload) in got.lock().expect("no panic").iter() {
        assert_eq!(*source, Address { node: 1, port: 1 - port });
        assert_eq!(target.port, number % 2, "the answer goes to the channel that asked");
        assert_eq!(*payload, bytes(*number as usize));
    }
    assert!(matches!(
        near.send_short(2, Short::new(node(1), 0), SHORT),
        Err(Error::BadValue { value: 2, .. })
    ));
}

#[test]
fn payload_room_is_released_sooner_than_slices() {
    let cluster = cluster(2, |_| {});
    let open = |node| {
        let terms = Terms { payload_bytes: 8 * MAX_BULK_BYTES as usize, ..TERMS };
        Port::from_parts(cluster.open(node, 64), terms).expect("a channel")
    };
    let (mut near, mut far) = (open(0), open(1));
    // A receiver that sleeps would also release.
    far.set_wait_policy(WaitPolicy::Spin);
    // Returns the number of releases.
    let mut pass = |count: u64, bytes: &[u8]| {
        let mut releases = 0;
        for _ in 0..count {
            let short = Short::new(node(1), HANDLER);
            let bulk = Bulk { short, bytes: bytes.len() as u64 };
            let message = if bytes.is_empty() { Outgoing::Short(short) } else { Outgoing::Bulk(bulk) };
            near.sender.send(message, bytes, TIMEOUT).expect("sent");
            let before = far.receiver.released();
            far.receiver
                .receive(TIMEOUT, |message| assert_eq!(message.payload.len(), bytes.len()))
                .expect("a message");
            releases += u64::from(far.receiver.released() != before);
        }
        releases
    };
    // A quarter of the slices; and a quarter of the eight slots that messages of maximum length have.
    assert_eq!(pass(32, &[]), 2);
    assert_eq!(pass(32, &bytes(3)), 16);
    assert_eq!((pass(15, &[]), pass(1, &[])), (0, 1), "released slices do not count again");
    assert_eq!((pass(1, &bytes(3)), pass(14, &[]), pass(1, &bytes(3))), (0, 0, 1));
}

/// Each wait ends, whichever check finds the message.
#[test]
fn a_wait_ends_with_its_message() {
    const MESSAGES: u64 = 20;
    let (_cluster, mut near, mut far) = pair(8);
    let _got = keep(&mut far, HANDLER);
    let ended = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ended);
    let waiting = thread::spawn(move || {
        for _ in 0..MESSAGES {
            assert_eq!(far.wait(TIMEOUT).expect("a message"), 1);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    for number in 1..=MESSAGES {
        thread::sleep(Duration::from_millis(5));
        near.send_short(0, Short::new(node(1), HANDLER), TIMEOUT).expect("sent");
        until("a wait ends", || ended.load(Ordering::SeqCst) == number);
    }
    waiting.join().expect("all came");
}

#[test]
fn invalid_messages_are_named_and_delay_no_others() {
    let (cluster, mut near, mut far) = pair(8);
    let got = keep(&mut far, HANDLER);
    let short = Short::new(node(1), HANDLER);
    let error = near.send_bulk(0, short, &bytes(MAX_BULK_BYTES as usize + 1), TIMEOUT).expect_err("too long");
    assert!(error.to_string().contains("49153") && error.to_string().contains("49152"), "{error}");

    near.send_short(0, Short::new(node(1), 77), TIMEOUT).expect("sent");
    near.send_short(0, short, TIMEOUT).expect("sent");
    let mut reported = None;
    until("the sender gets the error", || {
        far.poll().expect("no error here");
        reported = near.poll().err();
        reported.is_some()
    });
    let error = reported.expect("reported");
    assert!(matches!(error, Error::UnknownHandler { node: 1, port: 0, number: 77, .. }), "{error}");
    poll_until(&mut [&mut near, &mut far], "the next message", || got.lock().expect("no panic").len() == 1);

    // Memory that is not exposed, a port that is not open, and a node that does not exist.
    let region = far.send_queue().sender(0).expect("a channel").allocate(4096).expect("memory");
    let sender = far.send_queue().sender(0).expect("a channel");
    let name = sender.expose(&region, true).expect("exposed");
    assert_eq!(sender.expose(&region, false).expect("hidden"), name);
    let exposed = ExposedPart { target: node(1), region: name, offset: 0 };
    let refused = |near: &mut Node, why: Refusal| {
        let mut error = None;
        until("the refusal", || {
            error = near.poll().err();
            error.is_some()
        });
        let is_it =
            matches!(error, Some(Error::Launch { count: 1, refusal: Some(refusal), .. }) if refusal == why);
        assert!(is_it, "{error:?}");
    };
    near.send_memory(0, &exposed, &[1; 8], TIMEOUT).expect("sent");
    refused(&mut near, Refusal::Memory);
    near.send_short(0, Short::new(Address { node: 1, port: 5 }, HANDLER), TIMEOUT).expect("sent");
    cluster.settle(0);
    let error = near.flush(TIMEOUT).expect_err("it was refused");
    assert!(matches!(error, Error::Launch { refusal: Some(Refusal::Closed), .. }), "{error}");
    near.send_short(0, Short::new(node(9), HANDLER), TIMEOUT).expect("sent");
    refused(&mut near, Refusal::Target);
    // A refused message does not delay later ones.
    near.send_bulk(0, short, &bytes(40_000), TIMEOUT).expect("sent");
    near.flush(TIMEOUT).expect("all has left");
    poll_until(&mut [&mut near, &mut far], "the last message", || got.lock().expect("no panic").len() == 2);
    let mut memory = [9; 8];
    region.read(0, &mut memory).expect("within");
    assert_eq!(memory, [0; 8]);
}

#[test]
fn a_closed_peer_refuses_messages_until_it_reopens() {
    let (cluster, mut near, far) = pair(8);
    far.close(TIMEOUT).expect("nothing waits");
    let mut refused = 0;
    let mut tell = |sent: Result<(), Error>| match sent {
        Ok(()) => {}
        Err(Error::Launch { refusal: Some(Refusal::Closed), count, .. }) => refused += count,
        Err(error) => panic!("the cards must continue: {error}"),
    };
    // The next call of any kind reports each refusal.
    for _ in 0..40 {
        tell(near.send_bulk(0, Short::new(node(1), HANDLER), &bytes(3000), TIMEOUT).map(drop));
    }
    tell(near.flush(TIMEOUT));
    assert!(refused > 0, "the closed peer refuses messages");
    let mut far = grim(&cluster, 1, 1, 8);
    let got = keep(&mut far, HANDLER);
    until("all errors are reported", || near.poll().is_ok());
    near.send_bulk(0, Short::new(node(1), HANDLER), &bytes(9), TIMEOUT).expect("sent");
    poll_until(&mut [&mut near, &mut far], "a message", || !got.lock().expect("no panic").is_empty());
    assert_eq!(got.lock().expect("no panic")[0].3, bytes(9));
}

/// Each program sends as many messages as it can, and each message is returned several times. Queues and cards are full
/// in both directions.
#[test]
fn handlers_can_send_under_full_queues() {
    const MESSAGES: u32 = 600;
    const THROWS: u32 = 3;
    // Each card has only one message in flight, so handlers' messages must wait.
    let cluster = cluster(2, |card| card.set("headers_per_channel", Value::Number(1)).expect("a parameter"));
    let over = AtomicU64::new(0);
    // Both are open before either sends: a closed endpoint refuses messages.
    let nodes = [0, 1].map(|this| grim(&cluster, this, 1, 8));
    thread::scope(|scope| {
        for (this, mut grim) in (0..2_u32).zip(nodes) {
            let over = &over;
            scope.spawn(move || {
                let done = Arc::new(AtomicU64::new(0));
                let counted = Arc::clone(&done);
                grim.register_numbered("throw", HANDLER, move |send_queue, message| {
                    let [number, throws, length, _] = message.arguments;
                    assert!(message.payload.to_vec() == bytes(length as usize), "message {number}");
                    if throws == 0 {
                        counted.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    let back = Short::new(message.source, HANDLER).arguments([number, throws - 1, length, 0]);
                    send_queue.send_bulk(0, back, &message.payload.to_vec()).expect("room to wait");
                })
                .expect("a free number");
                for number in 0..MESSAGES {
                    let length = number % 7 * 900;
                    let short = Short::new(node(1 - this), HANDLER).arguments([number, THROWS, length, 0]);
                    grim.send_bulk(0, short, &bytes(length as usize), TIMEOUT).expect("sent");
                }
                until("all messages have ended", || {
                    grim.poll().expect("no trouble");
                    done.load(Ordering::Relaxed) == u64::from(MESSAGES)
                });
                // The other program may still return messages.
                over.fetch_add(1, Ordering::Relaxed);
                until("the other program has them, too", || {
                    grim.poll().expect("no trouble");
                    over.load(Ordering::Relaxed) == 2
                });
            });
        }
    });
}

#[test]
fn full_send_queue_is_reported() {
    let cluster = cluster(2, |_| {});
    let terms = TERMS;
    let options = Options { queue_messages: 5, ..Options::default() };
    let mut near = Node::from_parts(vec![cluster.open(0, 8)], terms, &options).expect("a channel");
    let _far = cluster.open(1, 8);
    let short = Short::new(node(1), HANDLER);
    let error =
        (0..100_000).find_map(|_| near.send_queue().send_short(0, short).err()).expect("no program receives");
    assert!(matches!(error, Error::SendQueueFull { messages: 5, .. }), "{error}");
}

#[test]
fn many_nodes_merge_their_handlers_and_conflicts_are_named() {
    const NODES: usize = 5;
    let cluster = cluster(NODES as u16, |_| {});
    let is_over = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let numbers: Mutex<Vec<Vec<Option<u32>>>> = Mutex::default();
    thread::scope(|scope| {
        for this in 0..NODES {
            let mut grim = grim(&cluster, this, 1, 64);
            let (is_over, done, numbers) = (&is_over, &done, &numbers);
            scope.spawn(move || {
                let mut names: Vec<String> =
                    (0..150).map(|name| format!("handler {name} of {this}")).collect();
                names.push("all".into());
                for name in &names {
                    grim.register_handler(name, |_, _| ()).expect("a name");
                }
                // Two nodes request the same number.
                if this == 2 || this == 3 {
                    grim.register_numbered(&format!("fixed {this}"), 7000, |_, _| ()).expect("free here");
                }
                let synched = grim.synch_handlers(TIMEOUT);
                if let Err(error) = synched {
                    let Error::Handlers { conflicts } = &error else { panic!("{error}") };
                    assert_eq!(conflicts.len(), 1, "{error}");
                    assert_eq!((conflicts[0].problem, conflicts[0].number), (NameProblem::Taken, 7000));
                    assert!(error.to_string().contains(&format!("fixed {this}")), "{error}");
                    done.fetch_add(1 << 32, Ordering::Relaxed);
                }
                done.fetch_add(1, Ordering::Relaxed);
                for other in 0..NODES {
                    for name in [0, 149] {
                        let name = format!("handler {name} of {other}");
                        grim.wait_for_handler(&name, TIMEOUT).expect("all synchronise");
                    }
                }
                let known = (0..NODES).map(|other| grim.handler_by_name(&format!("handler 7 of {other}")));
                numbers
                    .lock()
                    .expect("no panic")
                    .push(known.chain([grim.handler_by_name("all"), grim.handler_by_name("none")]).collect());
                until("every node knows all handlers", || {
                    grim.poll().expect("no trouble");
                    is_over.load(Ordering::Relaxed)
                });
            });
        }
        until("every node knows all handlers", || numbers.lock().expect("no panic").len() == NODES);
        is_over.store(true, Ordering::Relaxed);
    });
    // One of the two had a conflict.
    assert_eq!(done.load(Ordering::Relaxed), 1 << 32 | NODES as u64);
    let numbers = numbers.into_inner().expect("no panic");
    assert!(numbers.iter().all(|known| *known == numbers[0]), "{numbers:?}");
    assert!(numbers[0][..=NODES].iter().all(Option::is_some) && numbers[0][NODES + 1].is_none());
}

#[test]
fn invalid_handler_names_are_refused_at_registration() {
    let (_cluster, mut near, far) = pair(8);
    drop(far);
    let mut problem = |name: &str, number: Option<u32>| {
        let registered = match number {
            Some(number) => near.register_numbered(name, number, |_, _| ()),
            None => near.register_handler(name, |_, _| ()),
        };
        match registered {
            Ok(()) => None,
            Err(Error::Handlers { conflicts }) => Some(conflicts[0].problem),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(problem("a", None), None);
    assert_eq!(problem("a", None), Some(NameProblem::Duplicated));
    assert_eq!(problem("", None), Some(NameProblem::Length));
    assert_eq!(problem(&"x".repeat(MAX_NAME_BYTES), None), None);
    assert_eq!(problem(&"y".repeat(MAX_NAME_BYTES + 1), None), Some(NameProblem::Length));
    assert_eq!(problem("b", Some(FIRST_HANDLER - 1)), Some(NameProblem::Predefined));
    assert_eq!(problem("c", Some(40)), None);
    assert_eq!(problem("d", Some(40)), Some(NameProblem::Taken));
    // The node that keeps the list needs no other node for it.
    near.synch_handlers(SHORT).expect("its own");
    assert_eq!((near.handler_by_name("a"), near.handler_by_name("c")), (Some(FIRST_HANDLER), Some(40)));
}

#[test]
fn handlers_synchronise_once_a_node_keeps_the_list() {
    let cluster = cluster(2, |_| {});
    let mut far = grim(&cluster, 1, 1, 8);
    far.register_handler("late", |_, _| ()).expect("a name");
    assert!(matches!(far.synch_handlers(SHORT), Err(Error::TimedOut { .. })));
    thread::scope(|scope| {
        let synching = scope.spawn(|| far.synch_handlers(TIMEOUT));
        let mut near = grim(&cluster, 0, 1, 8);
        until("the list is kept", || {
            let _ = near.poll();
            near.handler_by_name("late").is_some() && synching.is_finished()
        });
        synching.join().expect("no panic").expect("kept");
    });
}
