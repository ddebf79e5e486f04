//! Firmware reloads of a running daemon while guests send: no message is lost, and the reloads complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use niclab_abi::PAGE_BYTES;
use niclab_device::frontend::ClusterGuest;
use niclab_device::frontend::matching::PostPort;
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_model::models::MODELS;
use niclab_model::nic::registry::Model;
use niclab_model::random::Random;
use niclab_port::inic::{EventKind, Outcome, Part, Receive, Send};
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::{NicConfig, NicModel, Profile};

use crate::common::{lab_with, stats, until};

const BYTES: u64 = 4_000;
const ROOMS: u64 = 64;
const LOADS: usize = 30;
/// Messages for which a card has no memory while they wait for room.
const MORE_THAN_FIT: u64 = 200;

/// A guest with an open port, and memory for messages.
struct Program {
    _guest: Arc<ClusterGuest>,
    port: PostPort,
    region: u32,
}

impl Program {
    fn new(guest: Arc<ClusterGuest>) -> Self {
        let port = PostPort::open(&guest, 256).unwrap();
        let bytes = (ROOMS * BYTES).next_multiple_of(PAGE_BYTES);
        let address = guest.memory().allocate(bytes, PAGE_BYTES).unwrap();
        let region = port.register(address, bytes).unwrap();
        Self { _guest: guest, port, region }
    }

    fn part(&self, room: u64) -> Part {
        Part { region: self.region, offset: room * BYTES, bytes: BYTES }
    }

    fn post(&mut self, room: u64) {
        let receive = Receive::new(self.part(room)).user(room);
        until("a slot", || self.port.try_launch(&receive).is_some());
        self.port.announce();
    }
}

/// An image of the model's firmware that delivers every message once.
fn reliable(model: &'static Model, random: &mut Random) -> Vec<u8> {
    let programs = model.programs.as_ref().unwrap();
    loop {
        let image = (programs.draw)(&mut |below| random.below(below), 2);
        let promises = (programs.promises)(&image).unwrap();
        if promises.faulty.is_delivered && promises.faulty.is_once {
            return image;
        }
    }
}

/// Models with firmware.
fn models() -> impl Iterator<Item = &'static Model> {
    MODELS.iter().copied().filter(|model| model.programs.is_some())
}

/// Two guests with such cards.
fn programs_of(model: &'static Model) -> (Lab, [Program; 2]) {
    let lab = lab_with(2, |config| {
        config.profile = Profile::bundled(model.default_profile).unwrap();
        for node in &mut config.nodes {
            node.nic = NicConfig::of(NicModel::named(model.name).unwrap());
        }
    });
    let programs = [0, 1].map(|node| Program::new(lab.guest(node).unwrap()));
    (lab, programs)
}

#[test]
fn reloads_complete_and_lose_no_message_under_load() {
    for model in models() {
        let (lab, [mut from, mut to]) = programs_of(model);
        (0..ROOMS).for_each(|room| to.post(room));
        let (is_over, came) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(1, 0);
                for load in 1..=LOADS as u64 {
                    until("some messages", || came.load(Ordering::Relaxed) >= 20 * load);
                    let load = Request::Load { nodes: Vec::new(), image: reliable(model, &mut random) };
                    let answered = answer(lab.daemon().shell(), &load);
                    assert!(matches!(answered, Answer::Loaded { .. }), "{answered:?}");
                }
                is_over.store(true, Ordering::Relaxed);
            });
            let (mut sent, mut told, mut received) = (0_u64, 0_u64, 0_u64);
            let is_done = || {
                if sent - told < 32 && !is_over.load(Ordering::Relaxed) {
                    let send = Send::new(1, from.part(sent % ROOMS)).tell_sent();
                    sent += u64::from(from.port.try_launch(&send).is_some());
                    from.port.announce();
                }
                while let Some(event) = from.port.try_event() {
                    assert_eq!((event.kind, event.outcome), (EventKind::Sent, Outcome::Done));
                    told += 1;
                }
                while let Some(event) = to.port.try_event() {
                    assert_eq!((event.outcome, event.bytes), (Outcome::Done, BYTES));
                    received += 1;
                    came.store(received, Ordering::Relaxed);
                    to.post(event.user);
                }
                is_over.load(Ordering::Relaxed) && received == sent
            };
            until("all messages", is_done);
        });
    }
}

/// A program that posts no room may only have lost its core. So the card gives its messages up only after at least as
/// much wall time as model time, even if deadlines fire early. They do here, because the card has no memory for
/// retransmitted messages.
#[test]
fn reload_waits_for_a_program_in_wall_time_and_model_time() {
    for model in models() {
        let (lab, [mut from, _to]) = programs_of(model);
        for room in 0..MORE_THAN_FIT {
            let send = Send::new(1, from.part(room % ROOMS));
            until("a slot", || from.port.try_launch(&send).is_some());
            from.port.announce();
        }
        let fires = |lab: &Lab| stats(lab, 0).nic_counts.get("timeouts").copied();
        let (before, begin) = (fires(&lab), Instant::now());
        let image = reliable(model, &mut Random::new(1, 0));
        let answered = answer(lab.daemon().shell(), &Request::Load { nodes: Vec::new(), image });
        let Answer::Loaded { model_time_ps } = answered else { panic!("{answered:?}") };
        let wall = begin.elapsed();
        assert!(fires(&lab) > before, "{before:?}");
        // The model time of frames and transactions takes no wall time.
        assert!(wall.as_nanos() * 1_000 > u128::from(model_time_ps) * 9 / 10, "{wall:?}, {model_time_ps} ps");
    }
}
