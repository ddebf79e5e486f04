//! One ULTRA card against a hostile host and a hostile network. Nothing panics, and the card answers every request
//! once. It writes only to memory that the host has given to it, and only until the host takes it back.

use std::collections::BTreeMap;

use niclab_abi::FromBytes;
use niclab_abi::control::{
    Authorize, CountersFrom, OP_PORT_CLOSE, OP_PORT_OPEN, OP_RESET, OP_REVOKE, PORT_ANY, PortName, PortOpen,
    PortOpened, Reply, Revoke, STATUS_BAD_ADDRESS, STATUS_BAD_LENGTH, STATUS_BAD_OPERATION, STATUS_BAD_PORT,
    STATUS_BAD_VALUE, STATUS_NO_SPACE, STATUS_NOT_FOUND, STATUS_OK, STATUS_PORT_BUSY,
};
use niclab_abi::control::{OP_AUTHORIZE, OP_COUNTERS, OP_PING};
use niclab_abi::receive::{
    MAX_SLICES, REFUSED_LENGTH, REFUSED_NO_ROUTE, REFUSED_RELEASE, REFUSED_RESERVED_BITS,
};
use niclab_model::models::ultra::config::{FlowControl, Unauthorized};
use niclab_model::models::ultra::wire::{Address, Header, PROTOCOL, PacketKind};
use niclab_model::models::ultra::{Config, Ultra};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::{HostRange, Input, Nic, Observed, Output, PageStore, Register, ShellCounts};
use niclab_model::platform::profile::{Price, Profile};
use niclab_model::time::Time;
use proptest::prelude::*;

use crate::support::{
    authorize_request, bare_request, control, counters, open_port, open_request, request, route_request,
    store,
};

#[derive(Clone, Debug)]
enum Attack {
    Request(Vec<u8>),
    Store(u32, u32, [u64; 10]),
    Register(u32, Register),
    Frame(Vec<u8>),
    Timeout,
    Reset,
}

fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let small = || prop_oneof![4 => 0..4_u32, 2 => 0..20_u32, 1 => any::<u32>(), 1 => Just(PORT_ANY)];
    let address =
        prop_oneof![Just(0x1000_u64), Just(u64::MAX - 63), (0..64_u64).prop_map(|i| i * 0x100), any::<u64>()];
    let open = (small(), prop_oneof![Just(8_u32), Just(16), any::<u32>()], address.clone(), address, small())
        .prop_map(|(port, slices, slices_address, status_address, fifo_words)| {
            request(
                OP_PORT_OPEN,
                &PortOpen {
                    port,
                    slices,
                    slices_address,
                    status_address,
                    fifo_words: fifo_words & 31,
                    flags: 0,
                },
            )
        });
    let close = small().prop_map(|port| request(OP_PORT_CLOSE, &PortName { port, reserved: 0 }));
    let route = (small(), small(), small()).prop_map(|(port, node, to)| route_request(port, node, to));
    let authorize = (small(), small(), small(), small())
        .prop_map(|(port, node, from, credits)| authorize_request(port, node, from, credits));
    let revoke = (small(), small(), small()).prop_map(|(port, node, node_port)| {
        request(OP_REVOKE, &Revoke { port, node, node_port, reserved: 0 })
    });
    let noise = (0..12_u32, 0..300_u32, prop::collection::vec(any::<u8>(), 0..256)).prop_map(
        |(operation, bytes, body)| {
            let mut request = [operation.to_le_bytes(), bytes.to_le_bytes()].concat();
            request.extend(body);
            request
        },
    );
    let cut = (0..20_usize).prop_map(|bytes| route_request(0, 0, 0)[..bytes].to_vec());
    prop_oneof![4 => open, 1 => close, 3 => route, 3 => authorize, 1 => revoke, 1 => noise, 1 => cut]
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let address = || (0..3_u16, 0..9_u8).prop_map(|(node, port)| Address { node, port });
    let kind = prop_oneof![
        4 => any::<(bool, bool)>().prop_map(|(interrupt, acknowledge)| PacketKind::Data { interrupt, acknowledge }),
        1 => Just(PacketKind::Acknowledge),
        2 => any::<bool>().prop_map(|is_window_open| PacketKind::CreditRequest { is_window_open }),
        2 => Just(PacketKind::Credit),
        1 => Just(PacketKind::CreditOffer),
    ];
    let number = prop_oneof![4 => 0..20_u32, 1 => any::<u32>()];
    let connection = prop_oneof![4 => 0..4_u16, 1 => any::<u16>()];
    let formed =
        (address(), address(), kind, connection, number, prop::collection::vec(any::<u64>(), 0..=10))
            .prop_map(|(target, source, kind, connection, number, words)| {
                let words = if matches!(kind, PacketKind::Data { .. }) { words } else { Vec::new() };
                Header { target, source, kind, connection, number }.emit(&words).to_vec()
            });
    prop_oneof![9 => formed, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

fn any_attack() -> impl Strategy<Value = Attack> {
    let port = || prop_oneof![8 => 0..4_u32, 1 => any::<u32>()];
    let plausible = (0..9_u32, 0..8_u32).prop_map(|(begin, flags)| begin << 3 | flags << 7);
    let code = prop_oneof![3 => plausible, 1 => any::<u32>()];
    let value = || prop_oneof![8 => 0..30_u64, 1 => any::<u64>()];
    prop_oneof![
        4 => any_request().prop_map(Attack::Request),
        6 => (port(), code, any::<[u64; 10]>()).prop_map(|(port, code, words)| Attack::Store(port, code, words)),
        2 => (port(), value()).prop_map(|(port, value)| Attack::Register(port, Register::Released(value))),
        2 => (port(), value()).prop_map(|(port, value)| Attack::Register(port, Register::Armed(value))),
        6 => any_frame().prop_map(Attack::Frame),
        1 => Just(Attack::Timeout),
        1 => Just(Attack::Reset),
    ]
}

/// Tracks the memory that the card may write, from the requests that the card accepted.
struct Guard {
    nic: Alone<Ultra>,
    given: BTreeMap<u32, Vec<HostRange>>,
}

impl Guard {
    fn attack(&mut self, now: Time, attack: &Attack) {
        let mut requested: &[u8] = &[];
        match attack {
            Attack::Request(request) => {
                requested = request;
                self.nic.handle(now, Input::Control { token: 5, request });
            }
            &Attack::Store(port, code, words) => {
                self.nic.handle(now, Input::PageStore(PageStore { port, code, words }));
            }
            &Attack::Register(port, register) => self.nic.handle(now, Input::Register { port, register }),
            Attack::Frame(frame) => {
                let frame = &SharedFrame::from(&**frame);
                self.nic.handle(now, Input::Frame { head: now, frame, message: None });
            }
            Attack::Timeout => self.nic.handle(now, Input::Timeout),
            Attack::Reset => {
                self.nic.handle(now, Input::HostReset);
                self.given.clear();
            }
        }
        let mut replies = 0;
        while let Some(output) = self.nic.poll_output() {
            match output {
                Output::DmaWrite { address, words, .. } => self.check_write(address, words.len()),
                Output::Reply { bytes, .. } => {
                    replies += 1;
                    self.on_reply(requested, &bytes);
                }
                Output::Interrupt { port, .. } => assert!(port < 8),
                Output::Frame { .. } => {}
                other @ (Output::DmaFrame { .. }
                | Output::DmaRead { .. }
                | Output::WindowRead { .. }
                | Output::BorrowedFrame { .. }
                | Output::DmaBorrowed { .. }
                | Output::Complete { .. }) => {
                    panic!("{other:?}")
                }
            }
        }
        assert_eq!(replies, usize::from(matches!(attack, Attack::Request(_))));
    }

    fn check_write(&self, address: u64, words: usize) {
        let end = address + words as u64 * 8;
        let holds = |range: &HostRange| address >= range.address && end <= range.address + range.bytes;
        assert!(
            self.given.values().flatten().any(holds),
            "{words} words to {address:#x}, in {:x?}",
            self.given
        );
    }

    fn on_reply(&mut self, request: &[u8], reply: &[u8]) {
        let head = Reply::from_bytes(reply).unwrap();
        assert_eq!(reply.len(), Reply::BYTES + head.body_bytes as usize);
        if head.status != STATUS_OK {
            return;
        }
        let body = &reply[Reply::BYTES..];
        match request[0].into() {
            OP_PORT_OPEN => {
                let port = PortOpened::from_bytes(body).unwrap().port;
                assert!(self.nic.is_open(port));
                self.given.insert(port, self.nic.memory_named_by(request).to_vec());
            }
            OP_PORT_CLOSE => drop(self.given.remove(&request[8].into())),
            OP_RESET => self.given.clear(),
            _ => {}
        }
        assert!((0..8).all(|port| self.nic.is_open(port) == self.given.contains_key(&port)));
    }
}

fn profiles() -> impl Strategy<Value = Profile> {
    const MAX: u64 = u64::MAX;
    let mut absurd = Profile::ultra_200mhz_htx();
    absurd.bus.dma_write = Price { latency_ps: MAX, fixed_ps: MAX, per_word_ps: MAX, burst_bytes: 1 };
    absurd.host.send_ps = MAX;
    absurd.ni.clock_ps = MAX;
    prop_oneof![8 => Just(Profile::ultra_200mhz_htx()), 1 => Just(Profile::default()), 1 => Just(absurd)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn adversarial_hosts_and_frames_do_no_harm(
        is_controlled: bool,
        interrupts: bool,
        profile in profiles(),
        attacks in prop::collection::vec((any_attack(), 0..1_000_000_u64), 1..200),
    ) {
        let mut config = Config::new(0, 3, profile);
        config.flow_control = if is_controlled { FlowControl::Credit } else { FlowControl::None };
        config.unauthorized = if interrupts { Unauthorized::Interrupt } else { Unauthorized::Discard };
        let mut guard = Guard { nic: Alone::new(Ultra::new(config).unwrap()), given: BTreeMap::new() };
        for (attack, now) in &attacks {
            guard.attack(Time::from_ps(*now), attack);
        }
        guard.attack(Time::ZERO, &Attack::Request(bare_request(OP_RESET)));
        prop_assert!(guard.given.is_empty());
    }
}

const BASE: u64 = 0x1000;

fn card() -> Alone<Ultra> {
    Alone::new(Ultra::new(Config::new(0, 2, Profile::ultra_200mhz_htx())).unwrap())
}

fn status_of(nic: &mut Alone<Ultra>, request: &[u8]) -> u32 {
    control(nic, Time::ZERO, request).0
}

#[test]
fn invalid_requests_are_refused_with_the_right_status() {
    let mut nic = card();
    let open = |slices: u32, slices_address: u64, status_address: u64, fifo_words: u32, port: u32| {
        request(
            OP_PORT_OPEN,
            &PortOpen { port, slices, slices_address, status_address, fifo_words, flags: 0 },
        )
    };
    for (request, expected) in [
        (bare_request(OP_PING), STATUS_OK),
        (bare_request(99), STATUS_BAD_OPERATION),
        (vec![1, 0, 0], STATUS_BAD_LENGTH),
        (request(OP_PING, &PortName::default()), STATUS_BAD_LENGTH),
        (open(12, BASE, BASE, 0, 0), STATUS_BAD_VALUE),
        (open(4, BASE, BASE, 0, 0), STATUS_BAD_VALUE),
        (open(8192, BASE, BASE, 0, 0), STATUS_BAD_VALUE),
        (open(8, BASE + 4, BASE, 0, 0), STATUS_BAD_ADDRESS),
        (open(8, BASE, BASE + 8, 0, 0), STATUS_BAD_ADDRESS),
        (open(8, u64::MAX - 7, BASE, 0, 0), STATUS_BAD_ADDRESS),
        (open(8, BASE, BASE, 9, 0), STATUS_BAD_VALUE),
        (open(8, BASE, BASE, 129, 0), STATUS_BAD_VALUE),
        (open(8, BASE, BASE, 0, 8), STATUS_BAD_PORT),
        (open(8, BASE, BASE, 120, 0), STATUS_OK),
        (open(8, BASE, BASE, 0, 0), STATUS_PORT_BUSY),
        (open(8, BASE, BASE, 0, 1), STATUS_NO_SPACE),
        (route_request(1, 1, 0), STATUS_BAD_PORT),
        (route_request(0, 2, 0), STATUS_BAD_VALUE),
        (route_request(0, 1, 8), STATUS_BAD_VALUE),
        (authorize_request(0, 1, 0, 0), STATUS_BAD_VALUE),
        (authorize_request(0, 1, 0, 9), STATUS_NO_SPACE),
        (authorize_request(0, 1, 0, 5), STATUS_OK),
        (authorize_request(0, 1, 1, 4), STATUS_NO_SPACE),
        (authorize_request(0, 1, 0, 8), STATUS_OK),
        (request(OP_REVOKE, &Revoke { port: 0, node: 1, node_port: 1, reserved: 0 }), STATUS_NOT_FOUND),
        (request(OP_REVOKE, &Revoke { port: 0, node: 1, node_port: 0, reserved: 1 }), STATUS_BAD_VALUE),
        (request(OP_REVOKE, &Revoke { port: 0, node: 1, node_port: 0, reserved: 0 }), STATUS_OK),
        (request(OP_PORT_CLOSE, &PortName { port: 0, reserved: 0 }), STATUS_OK),
        (request(OP_PORT_CLOSE, &PortName { port: 0, reserved: 0 }), STATUS_BAD_PORT),
    ] {
        assert_eq!(status_of(&mut nic, &request), expected, "{request:?}");
    }
}

#[test]
fn a_full_authorization_table_refuses_new_entries() {
    let mut config = Config::new(0, 2, Profile::default());
    config.authorizations = 3;
    let mut nic = Alone::new(Ultra::new(config).unwrap());
    open_port(&mut nic, 8, BASE, 0);
    for (port, expected) in
        [(0, STATUS_OK), (1, STATUS_OK), (2, STATUS_OK), (3, STATUS_NO_SPACE), (2, STATUS_OK)]
    {
        let entry = Authorize { port: 0, node: 1, node_port: port, credits: 1 };
        assert_eq!(status_of(&mut nic, &request(OP_AUTHORIZE, &entry)), expected);
    }
}

/// A card in a cluster of 40 nodes, without flow control and with a queue of 4,096 slices, to which 32 times 8 ports
/// may send.
fn crowded() -> Alone<Ultra> {
    let mut config = Config::new(0, 40, Profile::ultra_200mhz_htx());
    config.authorizations = Config::MAX_AUTHORIZATIONS;
    config.flow_control = FlowControl::None;
    let mut nic = Alone::new(Ultra::new(config).unwrap());
    open_port(&mut nic, MAX_SLICES, BASE, 0);
    nic
}

fn arrive(nic: &mut Alone<Ultra>, source: Address, connection: u16, number: u32) {
    let kind = PacketKind::Data { interrupt: false, acknowledge: false };
    let header = Header { target: Address { node: 0, port: 0 }, source, kind, connection, number };
    nic.handle(
        Time::ZERO,
        Input::Frame { head: Time::ZERO, frame: &header.emit(&[1, 2]).into(), message: None },
    );
    while nic.poll_output().is_some() {}
}

/// The attack: a program sets a release interval of one slice, lets its queue fill completely, and releases all slices
/// by one store. Each slice is then released separately, which must not cost a scan of all authorizations.
#[test]
fn releasing_a_full_queue_costs_bounded_work_per_slice() {
    let mut nic = crowded();
    nic.handle(Time::ZERO, Input::Register { port: 0, register: Register::ReleaseInterval(1) });
    let remotes: Vec<_> = (1..=32).flat_map(|node| (0..8).map(move |port| Address { node, port })).collect();
    for remote in &remotes {
        let entry = authorize_request(0, remote.node.into(), remote.port.into(), 1);
        assert_eq!(status_of(&mut nic, &entry), STATUS_OK);
    }
    for slice in 0..MAX_SLICES {
        let remote = remotes[slice as usize % remotes.len()];
        arrive(&mut nic, remote, 1, 1 + slice / remotes.len() as u32);
    }
    assert_eq!(nic.counters().card.messages_received, u64::from(MAX_SLICES));
    let before = nic.work_done();
    let register = Register::Released(MAX_SLICES.into());
    nic.handle(Time::ZERO, Input::Register { port: 0, register });
    let work = nic.work_done() - before;
    assert!(work < 4 * u64::from(MAX_SLICES), "{work} units for {MAX_SLICES} slices");
    // All slices were released, so the queue has room for the same number again.
    for slice in 0..MAX_SLICES {
        arrive(&mut nic, remotes[0], 2, 1 + slice);
    }
    assert_eq!(
        (nic.counters().card.messages_received, nic.counters().card.overruns),
        (2 * u64::from(MAX_SLICES), 0)
    );
}

/// The attack: a program revokes and grants an authorization again each time that its sender has used a slice, and
/// releases no slice. Each revoked entry waits for its slice.
#[test]
fn revoked_entries_with_unreleased_slices_fill_only_the_table() {
    let mut nic = crowded();
    let give = authorize_request(0, 1, 0, 1);
    let take = request(OP_REVOKE, &Revoke { port: 0, node: 1, node_port: 0, reserved: 0 });
    let sender = Address { node: 1, port: 0 };
    for connection in 1..=Config::MAX_AUTHORIZATIONS {
        assert_eq!(status_of(&mut nic, &give), STATUS_OK, "{connection}");
        arrive(&mut nic, sender, connection, 1);
        assert_eq!(status_of(&mut nic, &take), STATUS_OK);
    }
    assert_eq!(status_of(&mut nic, &give), STATUS_NO_SPACE);
    nic.handle(Time::ZERO, Input::Register { port: 0, register: Register::Released(1) });
    assert_eq!(status_of(&mut nic, &give), STATUS_OK, "the first entry has its slice back");
    assert_eq!(nic.counters().card.messages_received, Config::MAX_AUTHORIZATIONS.into());
}

#[test]
fn refused_posts_and_releases_report_their_reason() {
    let mut nic = card();
    open_port(&mut nic, 8, BASE, 0);
    let mut last_line = |input: Input<'_>| {
        nic.handle(Time::ZERO, input);
        let Some(Output::DmaWrite { address: BASE, words, .. }) = nic.poll_output() else {
            panic!("a status line")
        };
        assert_eq!(nic.poll_output(), None);
        (words[0], words[4], words[5])
    };
    let launch = |code| Input::PageStore(PageStore { port: 0, code, words: [0; 10] });
    assert_eq!(last_line(launch(1)), (1, 1, REFUSED_RESERVED_BITS));
    assert_eq!(last_line(launch(9 << 3)), (2, 2, REFUSED_LENGTH));
    assert_eq!(last_line(launch(8 << 3)), (3, 3, REFUSED_NO_ROUTE));
    let release = Input::Register { port: 0, register: Register::Released(1) };
    assert_eq!(last_line(release), (3, 4, REFUSED_RELEASE));
    assert_eq!(nic.counters().card.refused, 4);
}

#[test]
fn nothing_is_written_after_a_reset() {
    let mut nic = card();
    open_port(&mut nic, 8, BASE, 0);
    nic.handle(Time::ZERO, Input::PageStore(PageStore { port: 0, code: 1, words: [0; 10] }));
    nic.handle(Time::ZERO, Input::HostReset);
    assert_eq!(nic.poll_output(), None);
    assert!(!nic.is_open(0) && !nic.accepts_store(0));
}

#[test]
fn a_route_cannot_change_while_posted_packets_wait() {
    let mut nic = card();
    open_port(&mut nic, 8, BASE, 0);
    assert_eq!(status_of(&mut nic, &route_request(0, 1, 0)), STATUS_OK);
    assert!(nic.accepts_store(0));
    nic.handle(Time::ZERO, Input::PageStore(store(0, &[1; 8], [2, 3], 0)));
    assert!(!nic.accepts_store(0), "16 words of FIFO hold one packet of 10");
    assert_eq!(status_of(&mut nic, &route_request(0, 1, 1)), STATUS_PORT_BUSY);
    assert!(nic.poll_timeout().is_some(), "the card requests credit again");
    assert_eq!(status_of(&mut nic, &bare_request(OP_RESET)), STATUS_OK);
    assert_eq!((nic.counters().card.discarded_at_close, nic.poll_timeout()), (1, None));
}

#[test]
fn unauthorized_packets_are_counted_and_raise_as_configured() {
    for (unauthorized, interrupts) in [(Unauthorized::Discard, 0), (Unauthorized::Interrupt, 1)] {
        let mut config = Config::new(0, 2, Profile::ultra_200mhz_htx());
        config.unauthorized = unauthorized;
        let mut nic = Alone::new(Ultra::new(config).unwrap());
        open_port(&mut nic, 8, BASE, 0);
        let header = Header {
            target: Address { node: 0, port: 0 },
            source: Address { node: 1, port: 0 },
            kind: PacketKind::Data { interrupt: true, acknowledge: true },
            connection: 1,
            number: 1,
        };
        nic.handle(
            Time::ZERO,
            Input::Frame { head: Time::ZERO, frame: &header.emit(&[1, 2]).into(), message: None },
        );
        let outputs: Vec<_> = std::iter::from_fn(|| nic.poll_output()).collect();
        assert_eq!(outputs.len(), interrupts);
        let only_the_system_is_told = |output: &Output| {
            matches!(output, Output::Interrupt { cause: niclab_abi::event::CAUSE_UNAUTHORIZED, .. })
        };
        assert!(outputs.iter().all(only_the_system_is_told));
        assert_eq!((nic.counters().unauthorized, nic.counters().card.messages_received), (1, 0));
    }
}

#[test]
fn a_packet_for_another_node_is_not_taken() {
    let mut nic = card();
    open_port(&mut nic, 8, BASE, 0);
    assert_eq!(status_of(&mut nic, &authorize_request(0, 1, 0, 8)), STATUS_OK);
    let header = Header {
        target: Address { node: 1, port: 0 },
        source: Address { node: 1, port: 0 },
        kind: PacketKind::CreditRequest { is_window_open: false },
        connection: 1,
        number: 0,
    };
    nic.handle(Time::ZERO, Input::Frame { head: Time::ZERO, frame: &header.emit(&[]).into(), message: None });
    assert_eq!((nic.poll_output(), nic.counters().card.malformed), (None, 1));
    let header = Header { target: Address { node: 0, port: 0 }, ..header };
    nic.handle(Time::ZERO, Input::Frame { head: Time::ZERO, frame: &header.emit(&[]).into(), message: None });
    assert!(matches!(nic.poll_output(), Some(Output::Frame { .. })), "a packet for this node is answered");
}

#[test]
fn statistics_include_the_counts_of_card_and_shell() {
    let mut nic = card();
    let shell = ShellCounts { doorbells: 3, doorbells_spared: 4, events_merged: 5, control_refused: 6 };
    nic.handle(Time::ZERO, Input::ShellCounts(shell));
    nic.handle(
        Time::ZERO,
        Input::Frame { head: Time::ZERO, frame: &SharedFrame::from(&[PROTOCOL; 20][..]), message: None },
    );
    nic.handle(
        Time::ZERO,
        Input::Frame { head: Time::ZERO, frame: &SharedFrame::from(&[!PROTOCOL; 20][..]), message: None },
    );
    assert_eq!(nic.nic.counters().card.foreign_frames, 1);
    let own = Observed::counters(&nic.nic);
    let names =
        ["stale", "late", "missing", "flow_discarded", "flow_sent", "credit_probes", "foreign_frames"];
    assert_eq!(own, names.map(|name| (name, u64::from(name == "foreign_frames"))));
    assert_eq!(status_of(&mut nic, &open_request(3, BASE, 0)), STATUS_BAD_VALUE);
    let found = counters(|request| {
        let (status, body, _) = control(&mut nic, Time::ZERO, request);
        (status, body)
    });
    let counted = found.iter().filter(|(_, count)| **count > 0);
    let counted: Vec<_> = counted.map(|(name, count)| (name.as_str(), *count)).collect();
    let expected = [
        ("control_refused", 7),
        ("doorbells", 3),
        ("doorbells_spared", 4),
        ("events_merged", 5),
        ("foreign_frames", 1),
        ("malformed", 1),
    ];
    assert_eq!(counted, expected);
    let reserved = request(OP_COUNTERS, &CountersFrom { first: 0, reserved: 1 });
    assert_eq!(status_of(&mut nic, &reserved), STATUS_BAD_VALUE);
    assert_eq!(status_of(&mut nic, &bare_request(OP_COUNTERS)), STATUS_BAD_LENGTH);
}
