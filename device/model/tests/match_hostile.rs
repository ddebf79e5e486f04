//! One Match card and a host and a network that mean harm: whatever they say, nothing panics, every request is answered
//! once, and nothing is touched but memory that was given, while it was given.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;

use niclab_abi::FromBytes;
use niclab_abi::control::{
    OP_PING, OP_PORT_CLOSE, OP_PORT_OPEN, OP_RESET, OP_STATISTICS, PORT_ANY, PortName, PortOpen, PortOpened,
    Reply, STATUS_OK,
};
use niclab_abi::matching::*;
use niclab_model::matching::wire::{Header, Kind, Link, Operation, head, seal};
use niclab_model::matching::{Config, Match};
use niclab_model::nic::{FrameBytes, HostRange, HostRanges, Input, Nic, Output, PageStore, Register};
use niclab_model::parts::profile::{Price, Profile};
use niclab_model::time::Time;
use proptest::prelude::*;

use support::matching::{Posted, region_request};
use support::{bare_request, request};

/// Nodes that there could be; the card is node 0.
const NODES: u32 = 3;

#[derive(Clone, Debug)]
enum Attack {
    Request(Vec<u8>),
    Store(u32, u32, [u64; 10]),
    Register(u32, Register),
    /// A frame of a node, which has the number that is next if the second says so.
    Frame(Link, bool, Kind, Vec<u8>),
    Noise(Vec<u8>),
    Data(u64),
    Timeout,
    Reset,
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0..3_u32, 1 => 0..20_u32, 1 => any::<u32>()]
}

fn portal() -> impl Strategy<Value = u32> {
    prop_oneof![8 => Just(0_u32), 1 => 0..9_u32]
}

/// Names as the first regions have them, and others.
fn region() -> impl Strategy<Value = u32> {
    prop_oneof![12 => Just(1 << 16), 4 => (0..2_u32, 1..3_u32).prop_map(|(place, generation)| place | generation << 16), 1 => any::<u32>()]
}

fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let address = || {
        prop_oneof![
            6 => (0..64_u64).prop_map(|page| page * 0x1000),
            1 => Just(u64::MAX - 63),
            1 => any::<u64>()
        ]
    };
    let open = (
        prop_oneof![small(), Just(PORT_ANY)],
        prop_oneof![3 => Just(8_u32), 1 => any::<u32>()],
        address(),
        address(),
    )
        .prop_map(|(port, slices, slices_address, status_address)| {
            let open = PortOpen { port, slices, slices_address, status_address, fifo_words: 0, reserved: 0 };
            request(OP_PORT_OPEN, &open)
        });
    let close = small().prop_map(|port| request(OP_PORT_CLOSE, &PortName { port, reserved: 0 }));
    let bytes = || prop_oneof![6 => 0..3_000_u64, 1 => any::<u64>()];
    let open_region = (small(), prop::collection::vec((address(), bytes()), 0..4), any::<u8>()).prop_map(
        |(port, extents, spoil)| {
            let extents: Vec<_> =
                extents.into_iter().map(|(at, bytes)| (at, bytes & 0xffff_ffff_ffff)).collect();
            let mut request = region_request(port, &extents);
            if spoil < 32 {
                request[8 + usize::from(spoil) % 24] ^= 1 << (spoil % 8);
            }
            request
        },
    );
    let close_region = (small(), region()).prop_map(|(port, region)| {
        request(OP_REGION_CLOSE, &RegionName { port, region, extents: 0, reserved: 0 })
    });
    let firmware =
        (address(), prop_oneof![Just(0), Just(1_080), any::<u32>()]).prop_map(|(address, bytes)| {
            request(OP_FIRMWARE_LOAD, &FirmwareLoad { address, bytes, reserved: 0 })
        });
    let spill = (address(), bytes())
        .prop_map(|(address, bytes)| request(OP_SPILL_OPEN, &SpillOpen { address, bytes }));
    let bare =
        prop::sample::select(vec![OP_PING, OP_STATISTICS, OP_MATCH_STATISTICS, 99]).prop_map(bare_request);
    let noise = (0..16_u32, 0..300_u32, prop::collection::vec(any::<u8>(), 0..256)).prop_map(
        |(operation, bytes, body)| [&operation.to_le_bytes(), &bytes.to_le_bytes(), &body[..]].concat(),
    );
    prop_oneof![6 => open, 1 => close, 6 => open_region, 2 => close_region, 1 => firmware, 2 => spill, 1 => bare, 1 => noise]
}

fn any_store() -> impl Strategy<Value = Attack> {
    let code = prop_oneof![
        4 => (1..3_u32, 0..16_u32).prop_map(|(command, flags)| command | flags << 8),
        4 => (0..128_u32, any::<bool>()).prop_map(|(flags, count)| COMMAND_APPEND | flags << 16 | u32::from(count) << 11),
        1 => Just(COMMAND_UNLINK),
        1 => Just(COMMAND_ARM_COUNTER),
        1 => any::<u32>()
    ];
    let place = (small(), small(), portal(), region()).prop_map(|(node, port, portal, region)| {
        let part = |value: u32, bits: u32| u64::from(value) & ((1 << bits) - 1);
        part(node, 16) << 48 | part(port, 8) << 40 | part(portal, 8) << 32 | u64::from(region)
    });
    let few = || prop_oneof![20 => 0..3_u64, 1 => any::<u64>()];
    let bytes = || prop_oneof![10 => 0..300_u64, 10 => 0..4_000_u64, 1 => any::<u64>()];
    let threshold = prop_oneof![4 => 1..4_u64, 1 => Just(THRESHOLD_INFINITE), 2 => bytes()];
    let words = (few(), few(), few(), place, bytes(), bytes(), threshold, few(), prop::bool::weighted(0.9))
        .prop_map(|(first, second, user, place, offset, bytes, sixth, counter, zero)| {
            let rest = if zero { 0 } else { second };
            [first, second, user, place, offset, bytes, sixth, counter, rest, 0]
        });
    (small(), code, words, prop::bool::weighted(0.8)).prop_map(|(port, code, mut words, any_source)| {
        if any_source && code & COMMAND_MASK == COMMAND_APPEND {
            words[1] = u64::MAX;
            words[3] |= ANY_NODE << 48 | ANY_PORT << 40;
        }
        Attack::Store(port, code, words)
    })
}

fn any_frame() -> impl Strategy<Value = Attack> {
    let link = (0..4_u16, 0..3_u16, any::<u32>(), 0..40_u32, any::<bool>()).prop_map(
        |(source, destination, sequence, acknowledged, asks)| Link {
            destination: destination.saturating_sub(1),
            source,
            sequence,
            acknowledged,
            asks,
        },
    );
    let operation = prop::sample::select(vec![
        Operation::Put,
        Operation::Put,
        Operation::Get,
        Operation::Ack,
        Operation::Reply,
    ]);
    let places = (0..3_u8, 0..4_u8, portal().prop_map(|portal| portal as u8), any::<bool>(), any::<bool>());
    let bytes = || prop_oneof![8 => 0..3_000_u64, 1 => any::<u64>()];
    let token = prop_oneof![8 => 0..60_u64, 1 => any::<u64>()];
    let header = (operation, places, bytes(), bytes(), token, 0..4_u32, any::<u8>()).prop_map(
        |(operation, places, bytes, offset, token, message, result)| {
            let (source_port, target_port, portal, wants_answer, interrupt) = places;
            let result = if matches!(operation, Operation::Ack | Operation::Reply) { result } else { 0 };
            Header {
                operation,
                match_bits: token & 3,
                source_node: 1,
                source_port,
                target_port,
                portal,
                bytes,
                offset,
                header_data: 0,
                token,
                wants_answer,
                interrupt,
                message,
                result,
            }
        },
    );
    let kind = prop_oneof![
        6 => header.prop_map(Kind::First),
        3 => (0..9_u8, 0..4_u32, bytes())
            .prop_map(|(source_port, message, offset)| Kind::More { source_port, message, offset }),
        1 => Just(Kind::Acknowledgement),
        1 => (0..9_u8, 0..4_u32).prop_map(|(source_port, message)| Kind::Void { source_port, message }),
    ];
    let data = prop::collection::vec(any::<u8>(), 0..2_000);
    (link, prop::bool::weighted(0.9), kind, data).prop_map(|(mut link, is_next, mut kind, data)| {
        if let Kind::First(header) = &mut kind {
            header.source_node = link.source;
        }
        if is_next {
            link.destination = 0;
        }
        Attack::Frame(link, is_next, kind, data)
    })
}

fn any_attack() -> impl Strategy<Value = Attack> {
    let value = || prop_oneof![8 => 0..30_u64, 1 => any::<u64>()];
    prop_oneof![
        40 => any_request().prop_map(Attack::Request),
        80 => any_store(),
        20 => (small(), value()).prop_map(|(port, value)| Attack::Register(port, Register::Released(value))),
        1 => (small(), value()).prop_map(|(port, value)| Attack::Register(port, Register::Armed(value))),
        1 => (small(), value()).prop_map(|(port, value)| Attack::Register(port, Register::ReleaseInterval(value))),
        120 => any_frame(),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Attack::Noise),
        1 => (0..60_u64).prop_map(Attack::Data),
        10 => Just(Attack::Timeout),
        1 => Just(Attack::Reset),
    ]
}

/// Knows which memory the card may touch, from the requests that it agreed to.
struct Guard {
    nic: Match,
    ports: BTreeMap<u32, HostRanges>,
    regions: BTreeMap<(u32, u32), HostRanges>,
    spill: HostRanges,
    /// Numbers of the next frames of each node.
    next: [u32; 4],
    /// How many reads are answered before one fails.
    whole_reads: u32,
}

impl Guard {
    fn new(config: Config, whole_reads: u32) -> Self {
        Self {
            nic: Match::new(config).unwrap(),
            ports: BTreeMap::new(),
            regions: BTreeMap::new(),
            spill: HostRanges::new(),
            next: [0; 4],
            whole_reads,
        }
    }

    fn attack(&mut self, now: Time, attack: &Attack) {
        let mut requested: &[u8] = &[];
        let mut given = FrameBytes::new();
        match attack {
            Attack::Request(request) => {
                requested = request;
                self.nic.handle(now, Input::Control { token: 5, request });
            }
            &Attack::Store(port, code, words) => {
                self.nic.handle(now, Input::PageStore(PageStore { port, code, words }));
            }
            &Attack::Register(port, register) => self.nic.handle(now, Input::Register { port, register }),
            Attack::Frame(link, is_next, kind, data) => {
                let next = &mut self.next[usize::from(link.source)];
                let mut link = *link;
                if *is_next {
                    link.sequence = *next;
                    *next +=
                        u32::from(!matches!(kind, Kind::Acknowledgement) && u32::from(link.source) < NODES);
                }
                given = head(&link, kind, data.len());
                if matches!(kind, Kind::First(_) | Kind::More { .. }) {
                    given.extend_from_slice(data);
                }
                seal(&mut given);
                self.nic.handle(now, Input::Frame { frame: &given, message: None });
            }
            Attack::Noise(frame) => self.nic.handle(now, Input::Frame { frame, message: None }),
            &Attack::Data(token) => {
                let input = Input::DmaData { token, bytes: FrameBytes::new(), is_whole: true };
                self.nic.handle(now, input);
            }
            Attack::Timeout => self.nic.handle(now, Input::Timeout),
            Attack::Reset => {
                self.nic.handle(now, Input::HostReset);
                self.forget();
            }
        }
        let replies = self.carry_out(now, requested, &given);
        assert_eq!(replies, usize::from(matches!(attack, Attack::Request(_))));
    }

    fn carry_out(&mut self, now: Time, requested: &[u8], given: &[u8]) -> usize {
        let mut replies = 0;
        while let Some(output) = self.nic.poll_output() {
            match output {
                Output::DmaWrite { address, words, .. } => {
                    self.check(&[HostRange { address, bytes: words.len() as u64 * 8 }], &[]);
                }
                Output::DmaFrame { bytes, ranges, .. } => {
                    assert_eq!(given[bytes].len() as u64, ranges.iter().map(|range| range.bytes).sum());
                    self.check(&ranges, &[]);
                }
                Output::DmaRead { token, ranges, mut into, .. } => {
                    self.check(&ranges, &self.nic.memory_named_by(requested));
                    let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
                    let is_whole = self.whole_reads > 0;
                    self.whole_reads = self.whole_reads.checked_sub(1).unwrap_or(10);
                    if is_whole {
                        into.resize(into.len() + bytes as usize, 0xaa);
                    }
                    self.nic.handle(now, Input::DmaData { token, bytes: into, is_whole });
                }
                Output::Reply { bytes, .. } => {
                    replies += 1;
                    self.on_reply(requested, &bytes);
                }
                Output::Interrupt { port, .. } => assert!(port < 8),
                Output::Frame { frame, .. } => assert!(frame.len() <= 1_514),
            }
        }
        replies
    }

    fn check(&self, ranges: &[HostRange], asked_for: &[HostRange]) {
        let all = self.ports.values().chain(self.regions.values()).flatten();
        let given: Vec<_> = all.chain(&self.spill).chain(asked_for).collect();
        for range in ranges {
            // Extents that touch are one to the card.
            let mut at = range.address;
            let end = range.address + range.bytes;
            while at < end {
                let holds = |given: &&&HostRange| given.address <= at && at < given.address + given.bytes;
                let found = given.iter().find(holds);
                let found = found.unwrap_or_else(|| panic!("{range:x?}, in {given:x?}"));
                at = found.address + found.bytes;
            }
        }
    }

    fn on_reply(&mut self, request: &[u8], reply: &[u8]) {
        let head = Reply::from_bytes(reply).unwrap();
        assert_eq!(reply.len(), Reply::BYTES + head.body_bytes as usize);
        if head.status != STATUS_OK {
            return;
        }
        let body = &reply[Reply::BYTES..];
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
        let named = self.nic.memory_named_by(request);
        match word(0) {
            OP_PORT_OPEN => drop(self.ports.insert(PortOpened::from_bytes(body).unwrap().port, named)),
            OP_PORT_CLOSE => {
                self.ports.remove(&word(8));
                self.regions.retain(|(port, _), _| *port != word(8));
            }
            OP_REGION_OPEN => {
                let region = RegionOpened::from_bytes(body).unwrap().region;
                self.regions.insert((word(8), region), named);
            }
            OP_REGION_EXTEND => self.regions.get_mut(&(word(8), word(12))).unwrap().extend(named),
            OP_REGION_CLOSE => drop(self.regions.remove(&(word(8), word(12))).unwrap()),
            OP_SPILL_OPEN => self.spill = named,
            OP_RESET => self.forget(),
            _ => {}
        }
        assert!((0..8).all(|port| self.nic.is_open(port) == self.ports.contains_key(&port)));
    }

    fn forget(&mut self) {
        self.ports.clear();
        self.regions.clear();
        self.spill.clear();
    }
}

fn profiles() -> impl Strategy<Value = Profile> {
    const MOST: u64 = u64::MAX;
    let mut absurd = Profile::ultra_200mhz_htx();
    absurd.bus.dma_write = Price { latency_ps: MOST, fixed_ps: MOST, per_word_ps: MOST, burst_bytes: 1 };
    absurd.bus.descriptor_fetch = absurd.bus.dma_write;
    absurd.host.send_ps = MOST;
    absurd.ni.clock_ps = MOST;
    prop_oneof![8 => Just(Profile::ultra_200mhz_htx()), 1 => Just(Profile::default()), 1 => Just(absurd)]
}

/// What makes a good begin for mischief: ports with regions, and entries of all kinds.
fn prepared() -> Vec<Attack> {
    let mut all = Vec::new();
    for port in 0..3_u64 {
        let open = PortOpen {
            port: PORT_ANY,
            slices: 32,
            slices_address: 0x1000 * (3 * port + 1),
            status_address: 0x1000 * 3 * port,
            fifo_words: 0,
            reserved: 0,
        };
        all.push(Attack::Request(request(OP_PORT_OPEN, &open)));
        let extents = [(0x10_0000 + 0x1_0000 * port, 3_000), (0x20_0000 + 0x1_0000 * port, 5_000)];
        all.push(Attack::Request(region_request(port as u32, &extents)));
        for flags in [ENTRY_PUT | ENTRY_TRUNCATE, ENTRY_GET | ENTRY_TRUNCATE, ENTRY_PUT | ENTRY_OVERFLOW] {
            let entry = Posted {
                ignore_bits: if flags & ENTRY_OVERFLOW != 0 { u64::MAX } else { 2 },
                region: 1 << 16,
                bytes: 8_000,
                threshold: 20,
                ..Posted::default()
            };
            all.push(Attack::Store(port as u32, COMMAND_APPEND | flags, entry.words()));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_host_or_network_say_does_harm(
        profile in profiles(),
        few_entries: bool,
        is_prepared: bool,
        whole_reads in 0..40_u32,
        attacks in prop::collection::vec((any_attack(), 0..1_000_000_000_u64), 1..300),
    ) {
        let mut config = Config::new(0, NODES, profile);
        if few_entries {
            config.match_entries = 2;
            config.unexpected_messages = 2;
            config.window_frames = 2;
        }
        let mut guard = Guard::new(config, whole_reads);
        if is_prepared {
            prepared().iter().for_each(|attack| guard.attack(Time::ZERO, attack));
        }
        for (attack, now) in &attacks {
            guard.attack(Time::from_ps(*now), attack);
        }
        guard.attack(Time::ZERO, &Attack::Request(bare_request(OP_RESET)));
        prop_assert!(guard.ports.is_empty());
        let (status, body) = {
            guard.nic.handle(Time::ZERO, Input::Control { token: 1, request: &bare_request(OP_MATCH_STATISTICS) });
            let Some(Output::Reply { bytes, .. }) = std::iter::from_fn(|| guard.nic.poll_output()).last() else {
                panic!("an answer")
            };
            (Reply::from_bytes(&bytes).unwrap().status, MatchStatistics::from_bytes(&bytes[Reply::BYTES..]).unwrap())
        };
        prop_assert_eq!((status, body.entries, body.entries_spilled), (STATUS_OK, 0, 0), "no entry is left");
    }
}

#[test]
fn forged_requests_without_end_fill_no_memory() {
    let mut nic = Match::new(Config::new(0, NODES, Profile::default())).unwrap();
    const FORGED: u32 = 10_000;
    for sequence in 0..FORGED {
        let link = Link { destination: 0, source: 1, sequence, acknowledged: 0, asks: false };
        let header = Header { operation: Operation::Get, source_node: 1, bytes: 8, ..Header::default() };
        let mut frame = head(&link, &Kind::First(header), 0);
        seal(&mut frame);
        nic.handle(Time::ZERO, Input::Frame { frame: &frame, message: None });
        while nic.poll_output().is_some() {}
    }
    // A window of answers is on its way, and so many wait.
    assert_eq!(nic.counters().malformed, u64::from(FORGED) - 32 - 4_096);
}
