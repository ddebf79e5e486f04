//! Firmware reloads under load: promises that both assemblies make hold across the reload.

use niclab_abi::FromBytes;
use niclab_abi::firmware::{
    FirmwareLoad, FirmwareLoaded, OP_FIRMWARE_LOAD, STATUS_FIRMWARE_CHECKSUM, STATUS_FIRMWARE_IMAGE,
    STATUS_FIRMWARE_SIZE, STATUS_FIRMWARE_UNFIT, STATUS_FIRMWARE_VERSION,
};
use niclab_abi::inic::POST_HANDED_OVER;
use niclab_components::{Kind as Part, Parameter};
use niclab_model::nic::Nic;
use niclab_model::nic::firmware_reload::{FirmwareReloadError, FirmwareReloadStep, Progress, Switch};
use niclab_model::platform::profile::{MachineCycles, NiPrices};
use niclab_model::time::Span;

use super::*;

/// Address of the image that a driver loads: after the event queue, before the registered memory.
const IMAGE: u64 = 0x1_0000;

fn image(name: &str) -> Vec<u8> {
    Bundled::named(name).unwrap().assembly().encode()
}

impl Simulation {
    fn progress(&self) -> Vec<Progress> {
        self.wire.hosts.iter().map(|host| host.nic.progress()).collect()
    }

    fn begin(&mut self, image: &[u8], epoch: u16) {
        for node in 0..usize::from(NODES) {
            self.wire
                .reload_firmware(node, FirmwareReloadStep::Begin { image, switch: Switch::Told { epoch } })
                .unwrap();
        }
    }

    /// Has all cards switch, once all are drained and the wire is empty.
    fn go_on(&mut self) {
        if !self.wire.is_flying() && self.progress().iter().all(|it| *it == Progress::Drained) {
            for node in 0..usize::from(NODES) {
                self.wire.reload_firmware(node, FirmwareReloadStep::Switch).unwrap();
            }
        }
    }

    fn step(&mut self) -> bool {
        let goes_on = self.wire.step();
        self.read();
        self.go_on();
        goes_on
    }

    fn rest(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < MAX_STEPS, "the run does not end: {:?}", self.progress());
        }
        assert_eq!(self.progress(), [Progress::Runs; NODES as usize]);
    }

    fn counted(&self, count: impl Fn(&niclab_model::models::inic::counters::Counters) -> u64) -> u64 {
        self.wire.hosts.iter().map(|host| count(host.nic.counters())).sum()
    }
}

/// Random messages with random reloads between them, each to one of these assemblies.
fn run_among(seed: u64, names: &[&str], faults: Faults, count: usize) -> Simulation {
    let random_below = |random: &mut Random, most: usize| random.below(most as u32) as usize;
    let mut random = Random::new(seed, 2);
    let first = values(names[random_below(&mut random, names.len())]);
    let mut simulation = Simulation::new(seed, faults, &first);
    let mut epoch = 0;
    for _ in 0..count {
        let (from, to) = (random_below(&mut random, NODES.into()), random_below(&mut random, NODES.into()));
        let message = Message { from, to, bytes: 4 * (1 + u64::from(random.below(1_000))) };
        let mut steps = 0;
        while !simulation.send(message.clone()) {
            assert!(simulation.step() && steps < MAX_STEPS, "a send buffer becomes free");
            steps += 1;
        }
        (0..random.below(6)).for_each(|_| {
            simulation.step();
        });
        if random.below(10) == 0
            && simulation.progress()[0] == Progress::Runs
            && simulation.progress()[1..] == [Progress::Runs; 2]
        {
            epoch += 1;
            let name = names[random_below(&mut random, names.len())];
            simulation.begin(&image(name), epoch);
        }
    }
    simulation.wire.faults = Faults::default();
    simulation.rest();
    assert!(
        simulation.wire.hosts.iter().all(|host| host.firmware_reloads == u32::from(epoch)),
        "each reload was reported"
    );
    assert_eq!(simulation.counted(|counters| counters.firmware_reloads), u64::from(epoch) * u64::from(NODES));
    simulation
}

const RELIABLE: [&str; 4] = ["conf2", "conf3", "conf4", "selective_repeat"];

#[test]
fn reloads_between_reliable_assemblies_lose_nothing() {
    let faults = Faults { lost: 60, duplicated: 60, late: 60, ..Faults::default() };
    for (seed, faults) in (0..40).map(|seed| (seed, if seed % 2 == 0 { Faults::default() } else { faults })) {
        let simulation = run_among(seed, &RELIABLE[1..], faults, 120);
        simulation.check(Promise { is_in_order: false, ..Promise::ALL });
        assert_eq!((simulation.failed.len(), simulation.broken), (0, 0), "seed {seed}");
        assert!(simulation.wire.hosts[0].firmware_reloads > 2, "seed {seed}");
        assert_eq!(
            simulation.counted(|counters| counters.other_assembly + counters.lost_at_firmware_reload),
            0
        );
    }
}

#[test]
fn reloads_between_ordered_assemblies_keep_the_order() {
    let faults = Faults { lost: 60, duplicated: 60, late: 60, ..Faults::default() };
    for seed in 0..20 {
        run_among(seed, &["conf4", "selective_repeat"], faults, 120).check(Promise::ALL);
    }
}

#[test]
fn without_faults_unreliable_assemblies_lose_nothing_at_reload() {
    for seed in 0..20 {
        let simulation = run_among(seed, &["conf1", "unreliable_ordered", "conf4"], Faults::default(), 120);
        simulation.check(Promise { is_in_order: false, ..Promise::ALL });
        assert_eq!(simulation.broken, 0, "seed {seed}");
    }
}

#[test]
fn unacknowledged_messages_fail_at_the_reload_timeout() {
    let mut simulation = Simulation::new(1, Faults::default(), &values("conf4"));
    simulation.wire.cut.push(1);
    let message = |to| Message { from: 0, to, bytes: 4_000 };
    (0..8).for_each(|_| assert!(simulation.send(message(1))));
    let alone = FirmwareReloadStep::Begin { image: &image("conf3"), switch: Switch::Drained };
    simulation.wire.reload_firmware(0, alone).unwrap();
    assert!(simulation.send(message(1)), "a message posted during the reload waits");
    assert_eq!(simulation.wire.reload_firmware(0, alone), Err(FirmwareReloadError::Busy));
    while simulation.wire.hosts[0].firmware_reloads == 0 {
        assert!(simulation.wire.step());
        simulation.read();
    }
    assert_eq!(simulation.wire.now.as_ps() / 1_000_000_000_000, 2, "two seconds of model time");
    let failed: Vec<u32> = simulation.failed.values().copied().collect();
    assert_eq!(failed, [POST_HANDED_OVER; 8]);
    assert_eq!(simulation.told.len(), 9, "all memory is returned, and the message that waited is in flight");
    // The other cards still have the old assembly, and count frames of the new one.
    simulation.wire.cut.clear();
    simulation.send(message(2));
    while simulation.wire.hosts[2].nic.counters().other_assembly == 0 {
        assert!(simulation.wire.step());
    }
    assert!(simulation.came[2].is_empty());
    for node in 1..3 {
        simulation.wire.reload_firmware(node, alone).unwrap();
    }
    simulation.read();
    simulation.settle();
    assert_eq!((simulation.came[1].as_slice(), simulation.came[2].as_slice()), (&[8][..], &[9][..]));
}

/// A card without work of its own waits for cards that still send to it, as long as they make progress.
#[test]
fn a_drained_card_waits_while_other_cards_make_progress() {
    let slow = values("conf4").with("timeout_us", Value::Number(100_000));
    let mut simulation = Simulation::new(2, Faults { lost: 200, ..Faults::default() }, &slow);
    (0..50).for_each(|_| assert!(simulation.send(Message { from: 0, to: 1, bytes: 4_000 })));
    simulation.begin(&image("conf3"), 1);
    let begin = simulation.wire.now;
    simulation.rest();
    assert!(
        simulation.wire.now.since(begin) > Span::from_ns(3_000_000_000),
        "longer than the time-out without progress"
    );
    assert_eq!((simulation.failed.len(), simulation.broken, simulation.came[1].len()), (0, 0, 50));
    assert_eq!(simulation.counted(|counters| counters.other_assembly + counters.lost_at_firmware_reload), 0);
}

#[test]
fn a_missing_receive_buffer_does_not_block_a_reload() {
    let config = card(&values("conf4"));
    let mut wire = Wire::new(1, Faults::default(), config, NODES);
    assert!(wire.send(0, 0, 1, 0, 0, 4_000));
    while wire.step() {}
    for node in 0..3 {
        wire.reload_firmware(node, FirmwareReloadStep::Begin { image: &[], switch: Switch::Drained })
            .unwrap();
    }
    assert_eq!(wire.hosts[1].nic.progress(), Progress::Drains, "a message waits for a receive buffer");
    while wire.step() {}
    assert_eq!(wire.hosts[1].nic.progress(), Progress::Runs);
    assert_eq!(wire.hosts[1].nic.counters().lost_at_firmware_reload, 3, "its packets");
    assert!(wire.receive(1, 0, 7, 0, 8_000) && wire.send(0, 0, 1, 0, 0, 400));
    while wire.step() {}
    assert_eq!(wire.event(1).map(|told| (told.result, told.words.bytes)), Some((POST_OK, 400)));
}

#[test]
fn during_programming_frames_are_lost_and_posts_wait() {
    let cycles =
        MachineCycles { fixed_millicycles: 5_000_000, per_word_millicycles: 0, closing_millicycles: 0 };
    let ni = NiPrices {
        clock_ps: 1_000_000,
        machines: [("reconfigure", cycles)].into_iter().collect(),
        ..NiPrices::default()
    };
    let (values, profile) = (values("conf1"), Arc::new(Profile { ni, ..Profile::default() }));
    let mut wire = Wire::new(
        1,
        Faults::default(),
        |node| {
            config(
                &values,
                CardContext { node, nodes: NODES.into(), mtu_bytes: 1_500, profile: profile.clone() },
            )
            .unwrap()
        },
        NODES,
    );
    (0..4).for_each(|place| assert!(wire.receive(1, 0, place, place * PLACE, PLACE)));
    let begin = wire.now;
    for node in 0..2 {
        wire.reload_firmware(node, FirmwareReloadStep::Begin { image: &[], switch: Switch::Drained })
            .unwrap();
        assert_eq!(wire.hosts[node].nic.progress(), Progress::Switches);
    }
    // Node 2 keeps the old assembly and sends at once. Node 0's message waits until its new assembly runs.
    assert!(wire.send(2, 0, 1, 1, SENDS, 400) && wire.send(0, 0, 1, 2, SENDS, 800));
    while wire.hosts[1].firmware_reloads == 0 {
        assert!(wire.step());
    }
    assert_eq!(wire.now.since(begin), Span::from_ns(5_000_000), "5,000 cycles of a microsecond");
    assert_eq!(wire.hosts[1].nic.counters().lost_at_firmware_reload, 1);
    while wire.step() {}
    let told = wire.event(1).unwrap();
    assert_eq!((told.result, told.words.source, told.words.bytes), (POST_OK, 0, 800));
    assert!(wire.event(1).is_none());
}

#[test]
fn a_cancelled_reload_keeps_the_old_assembly() {
    let mut simulation = Simulation::new(1, Faults::default(), &values("conf4"));
    simulation.begin(&image("conf3"), 1);
    (0..5).for_each(|_| assert!(simulation.send(Message { from: 0, to: 1, bytes: 400 })));
    for node in 0..usize::from(NODES) {
        simulation.wire.reload_firmware(node, FirmwareReloadStep::Cancel).unwrap();
    }
    simulation.rest();
    assert_eq!(simulation.came[1], [0, 1, 2, 3, 4]);
    assert_eq!(
        (simulation.counted(|counters| counters.firmware_reloads), simulation.wire.hosts[0].nic.epoch()),
        (0, 0)
    );
}

/// The answer to a driver that loads these bytes.
fn load(wire: &mut Wire, bytes: &[u8]) -> (u32, Vec<u8>) {
    wire.hosts[0].memory[IMAGE as usize..][..bytes.len()].copy_from_slice(bytes);
    let load = FirmwareLoad { address: IMAGE, bytes: bytes.len() as u32, reserved: 0 };
    wire.control(0, &request(OP_FIRMWARE_LOAD, &load))
}

#[test]
fn firmware_load_accepts_valid_and_refuses_invalid_images() {
    let mut wire = Wire::new(1, Faults::default(), card(&values("conf4")), NODES);
    let sound = image("selective_repeat");
    let with = |place: usize, byte: u8| {
        let mut image = sound.clone();
        image[place] = byte;
        image
    };
    let long = {
        let mut assembly = Bundled::named("conf1").unwrap().assembly();
        assembly.set(Part::GenpUnreliable, Parameter::PacketBytes, 2_040).unwrap();
        assembly.encode()
    };
    let senseless = {
        let mut assembly = Bundled::named("conf4").unwrap().assembly();
        assembly.set(Part::Genp, Parameter::OutstandingLimit, 3).unwrap();
        assembly.encode()
    };
    for (bytes, status) in [
        (b"something else entirely".to_vec(), STATUS_FIRMWARE_IMAGE),
        (sound[..sound.len() - 1].to_vec(), STATUS_FIRMWARE_IMAGE),
        (with(8, 9), STATUS_FIRMWARE_VERSION),
        (with(sound.len() - 4, 1), STATUS_FIRMWARE_CHECKSUM),
        (vec![0; 65_537], STATUS_FIRMWARE_SIZE),
        (long, STATUS_FIRMWARE_UNFIT),
        (senseless, STATUS_FIRMWARE_UNFIT),
    ] {
        assert_eq!(load(&mut wire, &bytes).0, status);
        assert_eq!(wire.hosts[0].nic.progress(), Progress::Runs);
    }
    let (status, body) = load(&mut wire, &sound);
    assert_eq!(status, 0);
    let assembly = Assembly::decode(&sound).unwrap();
    let loaded = FirmwareLoaded::from_bytes(&body).unwrap();
    assert_eq!(loaded.words as usize, assembly.components().len());
    assert_eq!(loaded.checksum, u32::from(assembly.id()));
    // Nothing was in flight, so the card is drained. The default profile prices nothing, so the assembly runs at once.
    assert_eq!(wire.hosts[0].firmware_reloads, 1);
    assert_eq!(load(&mut wire, &sound).0, 0, "again");
}
