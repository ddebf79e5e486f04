//! The rules of the manual. Each checked rule is broken once, and only this rule is reported. A guest that keeps the
//! rules is never reported.

mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::late::Late;
use crate::common::{lab_with, pair, stats, until};
use niclab_abi::FromBytes;
use niclab_abi::bar::{
    CODE_INTERRUPT, CODE_RESERVED, DOORBELL_SPARED, INFO_DOORBELL_OFFSET, SLOT_LAUNCH_WORD, SLOT_WORDS,
    SLOTS, WINDOW_REQUESTER, launch_word,
};
use niclab_abi::control::{
    OP_PING, OP_PORT_OPEN, OP_RESET, OP_ROUTE, PORT_ANY, PortOpen, STATUS_OK, STATUS_PORT_BUSY,
};
use niclab_abi::event::Event;
use niclab_abi::matching::{COMMAND_UNLINK, OP_SPILL_OPEN, SpillOpen};
use niclab_abi::region::Extent;
use niclab_abi::rings::{
    OP_FIFO_SEND, OP_RING_START, RING_END, RING_FIRST, RING_LAST, RING_OWN, RING_SIZE_SHIFT, RING_TRANSMIT,
    RingStart,
};
use niclab_device::frontend::matching::ListPort;
use niclab_device::frontend::{ClusterGuest, GuestPort};
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_device::ring::Buffer;
use niclab_model::platform::ledger::Transaction;
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::report::NodeFigures;
use niclab_spec::{NicModel, RuleChecking, WaitPolicy, rules};

/// A lab with rule checking.
fn watched(nodes: u16, model: &str) -> Lab {
    lab_with(nodes, |config| {
        config.rules = RuleChecking::Report;
        config.nodes.iter_mut().for_each(|node| node.nic.model = NicModel::named(model).unwrap());
    })
}

/// Two connected ports of a lab with rule checking, with buffers for events.
struct Scene {
    lab: Lab,
    guests: [Arc<ClusterGuest>; 2],
    ports: [GuestPort; 2],
}

impl Scene {
    fn new() -> Self {
        Self::of(watched(2, "ultra"))
    }

    fn of(lab: Lab) -> Self {
        let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
        guests.iter().for_each(|guest| guest.offer_event_buffers(32).unwrap());
        let ports = pair([&guests[0], &guests[1]]);
        Self { lab, guests, ports }
    }

    /// Sends one message correctly.
    fn send(&mut self) {
        let [a, b] = &mut self.ports;
        assert!(a.try_launch(&[7], [8, 9], 0));
        a.announce();
        until("the message", || b.try_receive().is_some());
        if b.release_lazily() {
            b.announce();
        }
    }

    fn slot(&self, slot: usize) -> &[AtomicU64] {
        let page = self.guests[0].page_of(WINDOW_REQUESTER, self.ports[0].number()).unwrap();
        &self.guests[0].bar().page(page)[slot * SLOT_WORDS..(slot + 1) * SLOT_WORDS]
    }
}

fn store(word: &AtomicU64, value: u64) {
    word.store(value.to_le(), Ordering::SeqCst);
}

/// Breaks a rule on node 0. Returns what must stay alive until the check.
type Break = fn() -> (Lab, Vec<Arc<ClusterGuest>>);

fn with(scene: Scene) -> (Lab, Vec<Arc<ClusterGuest>>) {
    let Scene { lab, guests, .. } = scene;
    (lab, guests.into())
}

fn launch_without_doorbell() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let mut scene = Scene::new();
    scene.send();
    // A request has the device poll before and after it. No doorbell is rung.
    scene.guests[0].statistics().unwrap();
    assert!(scene.ports[0].try_launch(&[1], [2, 3], 0) && scene.ports[0].try_launch(&[4], [5, 6], 0));
    with(scene)
}

fn ring_without_need() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let lab = lab_with(2, |config| {
        config.rules = RuleChecking::Report;
        config.nodes.iter_mut().for_each(|node| node.nic.wait = WaitPolicy::Poll);
    });
    let guest = lab.guest(0).unwrap();
    guest.statistics().unwrap();
    until("the device polls", || {
        let word = &guest.bar().words()[INFO_DOORBELL_OFFSET as usize / 8];
        u64::from_le(word.load(Ordering::SeqCst)) == DOORBELL_SPARED
    });
    let port = GuestPort::open(&guest, 8).unwrap();
    guest.statistics().unwrap();
    until("an unwanted doorbell", || {
        guest.ring();
        guest.statistics().unwrap();
        stats(&lab, 0).broken_rules.contains_key("doorbell-unwanted")
    });
    drop(port);
    (lab, vec![guest])
}

fn overwrite_a_slot() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let mut scene = Scene::new();
    {
        // The device polls none of them before all are posted.
        let _world = scene.lab.daemon().shell().lock_all();
        for number in 0..=u64::from(SLOTS) {
            scene.ports[0].launch_raw(64, &[number; 10]);
            scene.ports[0].announce();
        }
    }
    with(scene)
}

fn skip_a_number() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let scene = Scene::new();
    store(&scene.slot(0)[SLOT_LAUNCH_WORD], launch_word(64, 5));
    with(scene)
}

fn use_up_eight_numbers() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let scene = Scene::new();
    store(&scene.slot(8)[SLOT_LAUNCH_WORD], launch_word(64, 9));
    with(scene)
}

fn change_a_slot() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let mut scene = Scene::new();
    scene.send();
    // The device has taken the post, and the status line has not reported it: the device writes the line every eight
    // posts.
    store(&scene.slot(0)[7], 1234);
    (0..8).for_each(|_| scene.send());
    with(scene)
}

fn launch_with_reserved_bits() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let mut scene = Scene::new();
    scene.ports[0].launch_raw(CODE_RESERVED.into(), &[0; 10]);
    scene.ports[0].announce();
    until("the refusal", || scene.ports[0].status_line().refused == 1);
    with(scene)
}

fn release_more_than_arrived() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let mut scene = Scene::new();
    scene.ports.swap(0, 1);
    scene.send();
    scene.ports[1].release(2);
    scene.ports[1].announce();
    with(scene)
}

fn write_into_receive_memory() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let scene = Scene::new();
    let (slices, _) = scene.ports[0].addresses();
    store(&scene.guests[0].memory().atomics(slices + 88, 1).unwrap()[0], 1);
    with(scene)
}

/// The guest is gone before any other check.
fn write_into_receive_memory_and_leave() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let scene = Scene::new();
    let (slices, _) = scene.ports[0].addresses();
    store(&scene.guests[0].memory().atomics(slices + 88, 1).unwrap()[0], 1);
    let Scene { lab, guests: [leaving, other], ports } = scene;
    drop((leaving, ports));
    until("the guest is gone", || !lab.daemon().shell().lock_all().nodes[0].card.host.state.is_running);
    (lab, vec![other])
}

fn open_two_ports_on_one_memory() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let scene = Scene::new();
    let (slices_address, _) = scene.ports[0].addresses();
    let status_address = scene.guests[0].memory().allocate(64, 64).unwrap();
    let open = PortOpen { port: PORT_ANY, slices: 8, slices_address, status_address, ..PortOpen::default() };
    scene.guests[0].command(OP_PORT_OPEN, &open).unwrap();
    with(scene)
}

fn name_memory_that_does_not_exist() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let scene = Scene::new();
    let open = PortOpen { port: PORT_ANY, slices: 8, slices_address: 1 << 40, ..PortOpen::default() };
    scene.guests[0].command(OP_PORT_OPEN, &open).unwrap_err();
    with(scene)
}

fn send_half_a_body() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let scene = Scene::new();
    scene.guests[0].request(OP_ROUTE, &[0; 3]).unwrap_err();
    with(scene)
}

fn request_without_room_for_a_reply() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let scene = Scene::new();
    let address = scene.guests[0].memory().allocate(64, 8).unwrap();
    scene.guests[0].with_control_ring(|ring| {
        ring.add(&[Buffer { address, bytes: 8, writable: false }]).unwrap();
        ring.notify().unwrap();
    });
    with(scene)
}

fn offer_an_invalid_head() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let scene = Scene::new();
    scene.guests[0].with_control_ring(|ring| {
        ring.offer(9_999).unwrap();
        ring.publish().unwrap();
        ring.ring().unwrap();
    });
    until("the violation", || stats(&scene.lab, 0).violations.contains_key("ring_descriptor_index"));
    with(scene)
}

/// A message to node 0 with an interrupt.
fn interrupt(guests: &[Arc<ClusterGuest>; 2]) {
    let [mut a, mut b] = pair([&guests[1], &guests[0]]);
    assert!(a.try_launch(&[1], [2, 3], CODE_INTERRUPT));
    a.announce();
    until("the message", || b.try_receive().is_some());
}

fn leave_the_event_queue_empty() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let lab = watched(2, "ultra");
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    interrupt(&guests);
    (lab, guests.into())
}

fn give_a_buffer_without_room() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let lab = watched(2, "ultra");
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let address = guests[0].memory().allocate(64, 8).unwrap();
    guests[0].with_event_ring(|ring| {
        ring.add(&[Buffer { address, bytes: Event::BYTES as u32 / 2, writable: true }]).unwrap();
        ring.publish().unwrap();
    });
    guests[0].offer_event_buffers(8).unwrap();
    interrupt(&guests);
    (lab, guests.into())
}

fn register_pages_in_pieces() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let lab = watched(1, "match");
    let guest = lab.guest(0).unwrap();
    let port = ListPort::open(&guest, 64).unwrap();
    let address = guest.memory().allocate(4 * 4096, 4096).unwrap();
    let piece = |page: u64, bytes| Extent { address: address + 4096 * page, bytes };
    port.register_extents(&[piece(0, 100), piece(1, 4096)]).unwrap_err();
    (lab, vec![guest])
}

fn launch_a_command_with_a_reserved_word() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let lab = watched(1, "match");
    let guest = lab.guest(0).unwrap();
    let mut port = ListPort::open(&guest, 64).unwrap();
    port.port_mut().launch_raw(COMMAND_UNLINK, &[1, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    port.announce();
    until("the refusal", || port.try_event().is_some());
    (lab, vec![guest])
}

fn give_two_spill_areas() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let lab = watched(1, "match");
    let guest = lab.guest(0).unwrap();
    for _ in 0..2 {
        let address = guest.memory().allocate(4096, 4096).unwrap();
        let _ = guest.command(OP_SPILL_OPEN, &SpillOpen { address, bytes: 4096 });
    }
    (lab, vec![guest])
}

fn start_ring(guest: &ClusterGuest, first: u64) -> bool {
    let start = RingStart { ring: RING_TRANSMIT, skip_bytes: 8, first, ..RingStart::default() };
    guest.command(OP_RING_START, &start).is_ok()
}

fn begin_a_ring_at_a_misaligned_address() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let lab = watched(2, "gamma");
    let guest = lab.guest(0).unwrap();
    assert!(!start_ring(&guest, guest.memory().allocate(64, 64).unwrap() + 4));
    (lab, vec![guest])
}

fn move_a_ring() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let lab = watched(2, "gamma");
    let guest = lab.guest(0).unwrap();
    assert!(start_ring(&guest, guest.memory().allocate(64, 64).unwrap()));
    assert!(!start_ring(&guest, guest.memory().allocate(64, 64).unwrap()));
    (lab, vec![guest])
}

/// A card that replies late, and two requests to it without waiting. `between` runs after the first request, and gets
/// the address of its bytes.
fn request_twice(
    operation: u32,
    status: u32,
    between: impl FnOnce(&ClusterGuest, u64, u16),
) -> (Lab, Vec<Arc<ClusterGuest>>) {
    let lab = watched(1, "ultra");
    let guest = lab.guest(0).unwrap();
    Late::put(&lab, status);
    let (asked, room) = (guest.memory().allocate(64, 8).unwrap(), guest.memory().allocate(64, 8).unwrap());
    store(&guest.memory().atomics(asked, 1).unwrap()[0], operation.into());
    let chain = |at| {
        [
            Buffer { address: asked + at, bytes: 8, writable: false },
            Buffer { address: room + at, bytes: 8, writable: true },
        ]
    };
    let is_taken = || !lab.daemon().shell().lock_all().nodes[0].card.host.control.is_empty();
    let head = guest.with_control_ring(|ring| {
        let head = ring.add(&chain(0)).unwrap().unwrap();
        ring.notify().unwrap();
        head
    });
    until("the first is taken", is_taken);
    between(&guest, asked, head);
    guest.with_control_ring(|ring| {
        ring.add(&chain(8)).unwrap();
        ring.notify().unwrap();
    });
    (lab, vec![guest])
}

fn change_a_request() -> (Lab, Vec<Arc<ClusterGuest>>) {
    request_twice(OP_PING, STATUS_OK, |guest, asked, _| {
        store(&guest.memory().atomics(asked, 1).unwrap()[0], OP_RESET.into())
    })
}

fn offer_a_chain_twice() -> (Lab, Vec<Arc<ClusterGuest>>) {
    request_twice(OP_PING, STATUS_OK, |guest, _, head| {
        guest.with_control_ring(|ring| {
            ring.offer(head).unwrap();
            ring.notify().unwrap();
        });
    })
}

fn send_two_frames_through_the_fifo() -> (Lab, Vec<Arc<ClusterGuest>>) {
    request_twice(OP_FIFO_SEND, STATUS_PORT_BUSY, |_, _, _| ())
}

/// A ring of two descriptors, one frame each, given to the card of node 0. `firsts` are their first words. Returns the
/// ring's address.
fn transmit_ring(firsts: [u64; 2]) -> (Lab, Arc<ClusterGuest>, u64) {
    let lab = watched(2, "gamma");
    let guest = lab.guest(0).unwrap();
    let (ring, buffer) =
        (guest.memory().allocate(64, 64).unwrap(), guest.memory().allocate(4096, 8).unwrap());
    for (place, first) in (ring..).step_by(24).zip(firsts) {
        let words = guest.memory().atomics(place, 2).unwrap();
        store(&words[1], buffer);
        store(&words[0], first);
    }
    assert!(start_ring(&guest, ring));
    guest.with_descriptor_rings(|transmit, _| transmit.ring()).unwrap();
    (lab, guest, ring)
}

const fn descriptor(bytes: u64, bits: u64) -> u64 {
    bytes << RING_SIZE_SHIFT | bits | RING_OWN
}

fn send_a_frame_without_a_header() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let (lab, guest, _) = transmit_ring([descriptor(5, RING_FIRST | RING_LAST), RING_END]);
    (lab, vec![guest])
}

fn change_a_descriptor() -> (Lab, Vec<Arc<ClusterGuest>>) {
    let (lab, guest, ring) = transmit_ring([descriptor(60, RING_FIRST), 0]);
    // The card waits for the rest of the frame, and owns the first descriptor.
    let words = guest.memory().atomics::<AtomicU64>(ring, 5).unwrap();
    until("the descriptor is taken", || {
        let locked = lab.daemon().shell().lock_all();
        locked.nodes[0].card.nic.ledger().line(Transaction::DescriptorFetch).count > 1
    });
    store(&words[1], u64::from_le(words[1].load(Ordering::SeqCst)) + 8);
    store(&words[3], descriptor(60, RING_LAST | RING_END));
    guest.with_descriptor_rings(|transmit, _| transmit.ring()).unwrap();
    (lab, vec![guest])
}

const BREAKS: &[(&str, Break)] = &[
    ("launch-doorbell", launch_without_doorbell),
    ("doorbell-unwanted", ring_without_need),
    ("slot-free", overwrite_a_slot),
    ("launch-number", skip_a_number),
    ("launch-number", use_up_eight_numbers),
    ("slot-unchanged", change_a_slot),
    ("launch-code", launch_with_reserved_bits),
    ("release-number", release_more_than_arrived),
    ("port-memory-untouched", write_into_receive_memory),
    ("port-memory-untouched", write_into_receive_memory_and_leave),
    ("port-memory-once", open_two_ports_on_one_memory),
    ("named-memory", name_memory_that_does_not_exist),
    ("request-length", send_half_a_body),
    ("request-answerable", request_without_room_for_a_reply),
    ("virtqueue-sound", offer_an_invalid_head),
    ("event-queue-filled", leave_the_event_queue_empty),
    ("event-buffer-size", give_a_buffer_without_room),
    ("region-extents", register_pages_in_pieces),
    ("spill-once", give_two_spill_areas),
    ("command-fields", launch_a_command_with_a_reserved_word),
    ("ring-layout", begin_a_ring_at_a_misaligned_address),
    ("ring-stopped-first", move_a_ring),
    ("request-unchanged", change_a_request),
    ("request-once", offer_a_chain_twice),
    ("fifo-one-at-a-time", send_two_frames_through_the_fifo),
    ("descriptor-sound", send_a_frame_without_a_header),
    ("descriptor-owned", change_a_descriptor),
];

fn broken(figures: &NodeFigures) -> BTreeMap<&str, u64> {
    figures.broken_rules.iter().map(|(name, count)| (name.as_str(), *count)).collect()
}

#[test]
fn each_checked_rule_has_a_test_that_breaks_it() {
    let checked: BTreeSet<&str> =
        rules::all().filter(|rule| rule.is_checked()).map(|rule| rule.name).collect();
    assert_eq!(BREAKS.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>(), checked);
}

#[test]
fn each_broken_rule_is_reported_and_no_other() {
    for (name, breaks) in BREAKS {
        let (lab, _guests) = breaks();
        until(name, || stats(&lab, 0).broken_rules.contains_key(*name));
        let figures = stats(&lab, 0);
        let found = broken(&figures);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [*name], "{:#?}", figures.broken_rule_log);
        let entry = &figures.broken_rule_log[0];
        let rule = rules::rule(name).unwrap();
        assert_eq!((entry.rule.as_str(), entry.section, entry.number), (rule.name, rule.section, 1));
        assert!(!entry.seen.is_empty() && entry.operations.len() <= 8, "{entry:?}");
        assert!(stats(&lab, 1.min(lab.config().nodes.len() - 1)).broken_rules.len() <= 1);
    }
}

#[test]
fn post_without_doorbell_is_reported_and_stays_in_the_page() {
    let mut scene = Scene::new();
    let launches = |scene: &mut Scene| assert!(scene.ports[0].try_launch(&[1], [2, 3], 0));
    launches(&mut scene);
    launches(&mut scene);
    let shell = scene.lab.daemon().shell();
    let Answer::BrokenRules(report) = answer(shell, &Request::AwaitBrokenRules { seen: 0 }) else {
        panic!("another answer")
    };
    assert_eq!(report.nodes[0].broken_rules, [("launch-doorbell".to_owned(), 1)].into());
    assert!(
        shell.lock_all().nodes[0].card.host.pages.is_launched(scene.ports[0].number()),
        "the device took the post"
    );
}

#[test]
fn broken_rule_is_reported_to_a_waiting_client_unless_off() {
    let mut scene = Scene::new();
    let shell = Arc::clone(scene.lab.daemon().shell());
    let waits = std::thread::spawn(move || answer(&shell, &Request::AwaitBrokenRules { seen: 0 }));
    scene.guests[0].request(OP_ROUTE, &[0; 3]).unwrap_err();
    let Answer::BrokenRules(report) = waits.join().unwrap() else { panic!("another answer") };
    assert_eq!((report.total, report.nodes.len()), (1, 1));
    assert_eq!(report.nodes[0].broken_rule_log[0].rule, "request-length");
    assert_eq!(report.nodes[0].broken_rule_log[0].operations.last().unwrap(), "reply to OP_ROUTE: status 2");
    let shell = scene.lab.daemon().shell();
    let set = |rules| assert_eq!(answer(shell, &Request::SetRules { rules }), Answer::Done);
    set(RuleChecking::Off);
    scene.guests[0].request(OP_ROUTE, &[0; 3]).unwrap_err();
    assert_eq!(broken(&stats(&scene.lab, 0)), [("request-length", 1)].into(), "the count stays");
    set(RuleChecking::Report);
    scene.guests[0].request(OP_ROUTE, &[0; 3]).unwrap_err();
    assert_eq!(broken(&stats(&scene.lab, 0)), [("request-length", 2)].into());
    // The device knows the history of ports opened before only in part, and must not report rules for them.
    (0..100).for_each(|_| scene.send());
    assert_eq!(broken(&stats(&scene.lab, 0)), [("request-length", 2)].into());
}
