//! One Match card against a hostile host and a hostile network. Nothing panics, and the card answers every request
//! once. It accesses only memory that the host has given to it, and only until the host takes it back.

use std::collections::BTreeMap;

use niclab_abi::FromBytes;
use niclab_abi::control::{
    OP_COUNTERS, OP_PING, OP_PORT_CLOSE, OP_PORT_OPEN, OP_RESET, PORT_ANY, PortName, PortOpen, PortOpened,
    Reply, STATUS_OK,
};
use niclab_abi::firmware::*;
use niclab_abi::matching::*;
use niclab_abi::region::*;
use niclab_isa::{Branch, Word, image};
use niclab_model::models::matching::program::PORTALS;
use niclab_model::models::matching::wire::{FrameKind, Header, Link, Operation, head, seal};
use niclab_model::models::matching::{Config, Match};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::{FrameBytes, HostRange, HostRanges, Input, Nic, Output, PageStore, Register};
use niclab_model::platform::profile::{Price, Profile};
use niclab_model::time::Time;
use proptest::prelude::*;

use crate::support::matching::{Cluster, Posted, Transfer, region_request};
use crate::support::{bare_request, counters, request};

/// Nodes of the cluster; the card is node 0.
const NODES: u32 = 3;

#[derive(Clone, Debug)]
enum Attack {
    Request(Vec<u8>),
    Store(u32, u32, [u64; 10]),
    Register(u32, Register),
    /// A frame of a node. If the second field is true, the frame has the next sequence number.
    Frame(Link, bool, FrameKind, Vec<u8>),
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

/// Names of the first regions, and other names.
fn region() -> impl Strategy<Value = u32> {
    let near = (0..2_u32, 1..3_u32).prop_map(|(place, generation)| place | generation << 16);
    prop_oneof![12 => Just(1 << 16), 4 => near, 1 => any::<u32>()]
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
            let open = PortOpen { port, slices, slices_address, status_address, fifo_words: 0, flags: 0 };
            request(OP_PORT_OPEN, &open)
        });
    let close = small().prop_map(|port| request(OP_PORT_CLOSE, &PortName { port, reserved: 0 }));
    let bytes = || prop_oneof![6 => 0..3_000_u64, 1 => any::<u64>()];
    let open_region = (small(), prop::collection::vec((address(), bytes()), 0..4), any::<u8>()).prop_map(
        |(port, extents, spoil)| {
            // Half of the requests have whole pages, except for the last one.
            let is_whole = |place: usize| spoil & 1 == 0 && place + 1 < extents.len();
            let bytes =
                |place: usize, bytes: u64| if is_whole(place) { 0x1000 } else { bytes & 0xffff_ffff_ffff };
            let extents: Vec<_> =
                extents.iter().enumerate().map(|(place, &(at, some))| (at, bytes(place, some))).collect();
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
    let bare = prop::sample::select(vec![OP_PING, OP_COUNTERS, 14, 99]).prop_map(bare_request);
    let noise = (0..16_u32, 0..300_u32, prop::collection::vec(any::<u8>(), 0..256)).prop_map(
        |(operation, bytes, body)| [&operation.to_le_bytes(), &bytes.to_le_bytes(), &body[..]].concat(),
    );
    prop_oneof![
        6 => open, 1 => close, 6 => open_region, 2 => close_region, 1 => firmware, 2 => spill, 1 => bare, 1 => noise
    ]
}

fn any_store() -> impl Strategy<Value = Attack> {
    let append = (0..128_u32, any::<bool>())
        .prop_map(|(flags, count)| COMMAND_APPEND | flags << 16 | u32::from(count) << 11);
    let code = prop_oneof![
        4 => (1..3_u32, 0..16_u32).prop_map(|(command, flags)| command | flags << 8),
        4 => append,
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
        6 => header.prop_map(FrameKind::First),
        3 => (0..9_u8, 0..4_u32, bytes())
            .prop_map(|(source_port, message, offset)| FrameKind::More { source_port, message, offset }),
        1 => Just(FrameKind::Acknowledgement),
        1 => (0..9_u8, 0..4_u32).prop_map(|(source_port, message)| FrameKind::Void { source_port, message }),
    ];
    let data = prop::collection::vec(any::<u8>(), 0..2_000);
    (link, prop::bool::weighted(0.9), kind, data).prop_map(|(mut link, is_next, mut kind, data)| {
        if let FrameKind::First(header) = &mut kind {
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

/// Tracks the memory that the card may access, from the requests that the card accepted.
struct Guard {
    nic: Alone<Match>,
    ports: BTreeMap<u32, HostRanges>,
    regions: BTreeMap<(u32, u32), HostRanges>,
    spill: HostRanges,
    /// Next sequence number of each node.
    next: [u32; 4],
    /// Number of reads that are answered before one fails.
    whole_reads: u32,
}

impl Guard {
    fn new(config: Config, whole_reads: u32) -> Self {
        Self {
            nic: Alone::new(Match::new(config).unwrap()),
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
                    *next += u32::from(
                        !matches!(kind, FrameKind::Acknowledgement) && u32::from(link.source) < NODES,
                    );
                }
                given = head(&link, kind, data.len());
                if matches!(kind, FrameKind::First(_) | FrameKind::More { .. }) {
                    given.extend_from_slice(data);
                }
                seal(&mut given);
                self.nic.handle(now, Input::Frame { head: now, frame: &given.clone().into(), message: None });
            }
            Attack::Noise(frame) => {
                let frame = &SharedFrame::from(&**frame);
                self.nic.handle(now, Input::Frame { head: now, frame, message: None });
            }
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
                Output::DmaFrame { frame, bytes, ranges, .. } => {
                    assert_eq!(*frame, *given, "the card keeps no frame");
                    assert_eq!(frame[bytes].len() as u64, ranges.iter().map(|range| range.bytes).sum());
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
                other @ (Output::Complete { .. }
                | Output::WindowRead { .. }
                | Output::BorrowedFrame { .. }
                | Output::DmaBorrowed { .. }) => panic!("{other:?}"),
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
            // The card may merge adjacent extents.
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
    const MAX: u64 = u64::MAX;
    let mut absurd = Profile::ultra_200mhz_htx();
    absurd.bus.dma_write = Price { latency_ps: MAX, fixed_ps: MAX, per_word_ps: MAX, burst_bytes: 1 };
    absurd.bus.descriptor_fetch = absurd.bus.dma_write;
    absurd.host.send_ps = MAX;
    absurd.ni.clock_ps = MAX;
    prop_oneof![8 => Just(Profile::ultra_200mhz_htx()), 1 => Just(Profile::default()), 1 => Just(absurd)]
}

/// A starting point for attacks: ports with regions, and entries of all kinds.
fn prepared() -> Vec<Attack> {
    let mut all = Vec::new();
    for port in 0..3_u64 {
        let open = PortOpen {
            port: PORT_ANY,
            slices: 32,
            slices_address: 0x1000 * (3 * port + 1),
            status_address: 0x1000 * 3 * port,
            fifo_words: 0,
            flags: 0,
        };
        all.push(Attack::Request(request(OP_PORT_OPEN, &open)));
        let extents = [(0x10_0000 + 0x1_0000 * port + 1_096, 3_000), (0x20_0000 + 0x1_0000 * port, 5_000)];
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
    fn adversarial_hosts_and_frames_do_no_harm(
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
        let left = counters(|request| {
            guard.nic.handle(Time::ZERO, Input::Control { token: 1, request });
            let Some(Output::Reply { bytes, .. }) = std::iter::from_fn(|| guard.nic.poll_output()).last() else {
                panic!("an answer")
            };
            (Reply::from_bytes(&bytes).unwrap().status, bytes[Reply::BYTES..].to_vec())
        });
        prop_assert_eq!((left["entries"], left["entries_spilled"]), (0, 0), "no entry is left");
    }
}

#[test]
fn forged_requests_use_bounded_memory() {
    let mut nic = Alone::new(Match::new(Config::new(0, NODES, Profile::default())).unwrap());
    const FORGED: u32 = 10_000;
    for sequence in 0..FORGED {
        let link = Link { destination: 0, source: 1, sequence, acknowledged: 0, asks: false };
        let header = Header { operation: Operation::Get, source_node: 1, bytes: 8, ..Header::default() };
        let mut frame = head(&link, &FrameKind::First(header), 0);
        seal(&mut frame);
        nic.handle(Time::ZERO, Input::Frame { head: Time::ZERO, frame: &frame.into(), message: None });
        while nic.poll_output().is_some() {}
    }
    // A window of 32 answers is in flight, and 4,096 answers wait.
    assert_eq!(nic.counters().card.malformed, u64::from(FORGED) - 32 - 4_096);
}

/// A card whose driver has given it a spill area of 64 MiB, so that spill memory does not limit the number of entries.
fn card_with(change: impl Fn(&mut Config)) -> Cluster {
    let mut cluster = Cluster::with(2, change);
    cluster.control(0, &request(OP_SPILL_OPEN, &SpillOpen { address: 0x1_0000, bytes: 64 << 20 }));
    // No test reads the spilled entries.
    cluster.hosts[0].memory.resize(66 << 20, 0);
    cluster
}

/// Appends entries until one is refused. Returns the number of accepted entries.
fn fill(cluster: &mut Cluster, port: u32, entry: &Posted, most: u32) -> u32 {
    for number in 0..most {
        let refused = cluster.hosts[0].nic.counters().commands_refused;
        let entry = Posted { match_bits: (1 << 32) + u64::from(number), ..*entry };
        cluster.append(0, port, ENTRY_PUT, &entry);
        cluster.release_all(0, port);
        if cluster.hosts[0].nic.counters().commands_refused > refused {
            return number;
        }
    }
    most
}

/// Units of work that `what` takes.
fn work_of(cluster: &mut Cluster, what: impl FnOnce(&mut Cluster)) -> u64 {
    let before = cluster.hosts[0].nic.work_done();
    what(cluster);
    cluster.hosts[0].nic.work_done() - before
}

/// The attack: a guest appends an unlimited number of entries in a spill area of any size, and the next header is
/// compared with all of them.
#[test]
fn lists_and_cards_have_a_maximum_number_of_entries() {
    let mut cluster = card_with(|_| ());
    let port = cluster.open(0);
    let portal = |portal| Posted { portal, threshold: THRESHOLD_INFINITE, ..Posted::default() };
    assert_eq!(fill(&mut cluster, port, &portal(0), u32::MAX), MAX_LIST_SIZE);
    // The limit of a list counts posted and overflow entries together, because one search covers both.
    cluster.append(0, port, ENTRY_PUT | ENTRY_OVERFLOW, &portal(0));
    let refused = cluster.last_event(0, port);
    assert_eq!((refused.kind, refused.result), (EVENT_REFUSED, RESULT_LIST_FULL));
    // Other portals and other ports have room until the card reaches its own limit.
    assert_eq!(fill(&mut cluster, port, &portal(7), 3_000), 3_000);
    let other = cluster.open(0);
    assert_eq!(fill(&mut cluster, other, &portal(0), u32::MAX), MAX_ENTRIES - MAX_LIST_SIZE - 3_000);
    assert_eq!(cluster.statistics(0)["entries"], MAX_ENTRIES.into());
    // An unlinked entry makes room.
    cluster.launch(0, port, COMMAND_UNLINK, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(cluster.last_event(0, port).result, RESULT_OK);
    assert_eq!(fill(&mut cluster, port, &portal(0), u32::MAX), 1);
    assert_eq!(cluster.statistics(0)["entries"], MAX_ENTRIES.into());
}

/// The attack: a guest unlinks all entries of a long list at once, by closing their port or the region that they name.
#[test]
fn closing_visits_each_entry_once() {
    let close = |cluster: &mut Cluster, port| {
        let close = request(OP_PORT_CLOSE, &PortName { port, reserved: 0 });
        assert_eq!(cluster.control(0, &close).0, STATUS_OK);
    };
    let of_region = |entries: u32, in_region: bool| {
        let mut cluster = card_with(|_| ());
        let port = cluster.open(0);
        let region = cluster.register(0, port, &[(0, 4_096)]);
        let bytes = if in_region { 64 } else { 0 };
        let entry = Posted { region, bytes, threshold: THRESHOLD_INFINITE, ..Posted::default() };
        assert_eq!(fill(&mut cluster, port, &entry, entries), entries);
        let work = work_of(&mut cluster, |cluster| {
            if in_region {
                assert_eq!(cluster.deregister(0, port, region), STATUS_OK);
            } else {
                close(cluster, port);
            }
        });
        assert_eq!(cluster.statistics(0)["entries"], 0);
        work
    };
    for in_region in [false, true] {
        let (few, many) = (of_region(1_000, in_region), of_region(4_000, in_region));
        assert!(many < 4 * few + 100, "{few} units for 1,000 entries, {many} for 4,000");
        assert!(many < 4_000 * 10, "{many} units for 4,000 entries");
    }
}

/// The attack: a guest unlinks entries from the middle of a long list, one at a time.
#[test]
fn unlinking_an_entry_does_not_visit_all_others() {
    let mut cluster = card_with(|_| ());
    let port = cluster.open(0);
    let entry = Posted { threshold: THRESHOLD_INFINITE, ..Posted::default() };
    fill(&mut cluster, port, &entry, 4_000);
    let work = |cluster: &mut Cluster, handle| {
        work_of(cluster, |cluster| {
            cluster.launch(0, port, COMMAND_UNLINK, [handle, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        })
    };
    let (first, middle) = (work(&mut cluster, 1), work(&mut cluster, 2_000));
    assert!(first < 100, "{first}: at an end of the list nothing is moved");
    assert!(middle < 2_000 + 100, "{middle}: at most half of a list is moved");
}

/// The attack: a matching program that takes the watchdog's limit of cycles for each entry of a long list. The built-in
/// program may take the cycles that it needs.
#[test]
fn a_slow_program_is_replaced_within_its_work_limit() {
    // Each entry fails on the longest path: its bits match, and the remote offset leaves too little room.
    let slow = Posted { bytes: 64, max_size: 64, threshold: THRESHOLD_INFINITE, ..Posted::default() };
    let search = |image: &[u8]| {
        let mut cluster = card_with(|_| ());
        let port = cluster.open(0);
        let region = cluster.register(0, port, &[(0, 4_096)]);
        let flags = ENTRY_PUT | ENTRY_MAX_SIZE | ENTRY_REMOTE_OFFSET;
        for _ in 0..MAX_LIST_SIZE {
            cluster.append(0, port, flags, &Posted { region, ..slow });
        }
        cluster.write(0, 0, image);
        let load = FirmwareLoad { address: 0, bytes: image.len() as u32, reserved: 0 };
        assert_eq!(cluster.control(0, &request(OP_FIRMWARE_LOAD, &load)).0, STATUS_OK);
        let other = cluster.open(1);
        let put = Transfer { node: 0, port: port.into(), remote_offset: 1_000, ..Transfer::default() };
        cluster.put(1, other, 0, &put);
        let work = work_of(&mut cluster, Cluster::settle);
        let statistics = cluster.statistics(0);
        assert_eq!((statistics["headers"], statistics["entries_traversed"]), (1, MAX_LIST_SIZE.into()));
        (work, statistics["firmware_fallbacks"])
    };
    // Loaded programs are not trusted, but a program like the built-in one may search the longest list to its end.
    let (work, fallbacks) = search(PORTALS);
    assert_eq!(fallbacks, 0);
    assert!(work < 130_000, "{work} units");
    let branch = Branch { sense: true, ..Branch::default() };
    let (work, fallbacks) = search(&image::write(&[Word { branch, ..Word::default() }; 3]));
    assert_eq!(fallbacks, 1);
    assert!(work < 260_000, "{work} units, of which the built-in program takes half");
}

/// The attack: messages of maximum length, or more windows of them than their receivers acknowledge.
#[test]
fn a_put_sends_at_most_one_window_of_frames_at_once() {
    let mut cluster = Cluster::with(2, |config| config.mtu_bytes = 9_000);
    let port = cluster.open(0);
    // About 4,000 pages that are not adjacent: the same two pages repeatedly, because no test reads the data.
    let pages: Vec<(u64, u64)> = (0..4_096).map(|page| (page % 2 * 0x2000, 4_096)).collect();
    let (first, others) = pages.split_at(128);
    let mut open = region_request(port, first);
    open[16..24].copy_from_slice(&(16_u64 << 20).to_le_bytes());
    let (status, body) = cluster.control(0, &open);
    assert_eq!(status, STATUS_OK);
    let region = RegionOpened::from_bytes(&body).unwrap().region;
    for more in others.chunks(128) {
        let mut extend = region_request(port, more);
        let name = RegionName { port, region, extents: more.len() as u32, reserved: 0 };
        extend.splice(..32, request(OP_REGION_EXTEND, &name));
        let body = (extend.len() - 8) as u32;
        extend[4..8].copy_from_slice(&body.to_le_bytes());
        assert_eq!(cluster.control(0, &extend).0, STATUS_OK);
    }
    let put = Transfer { node: 1, region, bytes: 16 << 20, ..Transfer::default() };
    let nic = &mut cluster.hosts[0].nic;
    let before = nic.work_done();
    let store = PageStore { port, code: COMMAND_PUT, words: put.words() };
    nic.handle(Time::ZERO, Input::PageStore(store));
    let mut frames = 0;
    while let Some(output) = nic.poll_output() {
        match output {
            Output::DmaRead { token, ranges, mut into, .. } => {
                assert!(ranges.len() <= 4, "9,000 bytes out of pages of 4,096");
                into.resize(into.len() + ranges.iter().map(|range| range.bytes as usize).sum::<usize>(), 0);
                nic.handle(Time::ZERO, Input::DmaData { token, bytes: into, is_whole: true });
            }
            Output::Frame { .. } => frames += 1,
            _ => {}
        }
    }
    assert_eq!(frames, nic.config().window_frames);
    assert!(nic.work_done() - before < 1_000 * u64::from(frames));
}
