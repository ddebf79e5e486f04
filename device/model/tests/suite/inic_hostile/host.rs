//! A hostile host, and hosts that withdraw their memory: commands of all values, and messages in flight when a port,
//! region or host ends.

use niclab_abi::control::{OP_PORT_CLOSE, OP_RESET, PortName};
use niclab_abi::inic::{
    POST_BAD_COMMAND, POST_BAD_RANGE, POST_BAD_REGION, POST_BAD_VALUE, POST_BARRIER, POST_EVENT_FAILED,
    POST_EVENT_RECEIVED, POST_EVENT_REFUSED, POST_INTERRUPT, POST_MASK, POST_NO_GROUP, POST_NO_TARGET,
    POST_NOT_RELIABLE, POST_OK, POST_RECEIVE, POST_REDUCE, POST_SEND, POST_TELL_SENT, POST_TRUNCATED,
};
use niclab_abi::region::{OP_REGION_CLOSE, RegionName};
use niclab_model::nic::Input;
use proptest::prelude::*;

use super::{ASSEMBLIES, ENEMY, NODES, Simulation, VICTIM};
use crate::support::inic::{REGION, REGION_BYTES};
use crate::support::matching::pattern;
use crate::support::{bare_request, request};

/// The longest message that these cards take.
const LONGEST: u64 = 16 << 20;

/// The code of a slot's launch word, and the words of the slot.
type Slot = (u32, [u64; 10]);

fn any_slot() -> impl Strategy<Value = Slot> {
    let code = prop_oneof![
        4 => prop::sample::select(vec![
            POST_SEND, POST_RECEIVE, POST_SEND | POST_TELL_SENT, POST_RECEIVE | POST_INTERRUPT
        ]),
        1 => any::<u32>(),
        1 => (0..7_u32, 0..4_u32).prop_map(|(command, flags)| command | flags << 8),
    ];
    let any_half = || any::<u32>().prop_map(u64::from);
    let region = prop_oneof![6 => Just(0_u64), 1 => Just(1), 1 => Just(1 << 16), 1 => any_half()];
    let upper = prop_oneof![6 => 0..u64::from(NODES), 1 => u64::from(NODES)..=0xffff, 1 => any_half()];
    let edge = |limit: u64| {
        prop_oneof![
            4 => (0..1_000_u64).prop_map(|units| 4 * units),
            2 => (0..9_u64).prop_map(move |off| (limit + off).wrapping_sub(4)),
            1 => (0..9_u64).prop_map(|back| u64::MAX - back),
            1 => any::<u64>(),
        ]
    };
    let bytes = prop_oneof![4 => edge(REGION_BYTES), 1 => edge(LONGEST), 1 => edge(1 << 30)];
    let trailing = prop_oneof![8 => Just(0_u64), 1 => any::<u64>()];
    (code, any::<u64>(), region, upper, edge(REGION_BYTES), bytes, trailing, 4..10_usize).prop_map(
        |(code, user, region, upper, offset, bytes, trailing, place)| {
            let mut words = [0; 10];
            words[..4].copy_from_slice(&[user, region | upper << 32, offset, bytes]);
            words[place] |= trailing;
            (code, words)
        },
    )
}

/// The reasons for which the contract lets a card refuse a slot; none if it must accept the slot.
fn refusals((code, words): Slot, region: u32) -> Vec<u32> {
    let [_, target, offset, bytes, ..] = words;
    if (POST_BARRIER..=POST_REDUCE).contains(&(code & POST_MASK)) {
        // No group exists.
        return vec![POST_BAD_VALUE, POST_BAD_REGION, POST_BAD_RANGE, POST_NO_GROUP, POST_NOT_RELIABLE];
    }
    let (is_send, flags) = (code & POST_MASK == POST_SEND, code & !POST_MASK);
    if !is_send && code & POST_MASK != POST_RECEIVE {
        return vec![POST_BAD_COMMAND];
    }
    let mut refusals = Vec::new();
    let allowed = if is_send { POST_TELL_SENT } else { POST_INTERRUPT };
    let is_reserved_zero = if is_send { target >> 48 == 0 } else { target >> 32 == 0 };
    let is_length = bytes > 0 && bytes <= LONGEST && bytes % 4 == 0;
    if flags & !allowed != 0 || !is_reserved_zero || words[4..].iter().any(|word| *word != 0) || !is_length {
        refusals.push(POST_BAD_VALUE);
    }
    if is_send && target >> 32 & 0xffff >= u64::from(NODES) {
        refusals.push(POST_NO_TARGET);
    }
    if target as u32 != region {
        refusals.push(POST_BAD_REGION);
    }
    if offset.checked_add(bytes).is_none_or(|end| end > REGION_BYTES) {
        refusals.push(POST_BAD_RANGE);
    }
    refusals
}

fn close() -> Vec<u8> {
    request(OP_PORT_CLOSE, &PortName { port: 0, reserved: 0 })
}

impl Simulation {
    /// Posts a slot at the victim. Returns the reason of its refusal.
    fn command(&mut self, (code, mut words): Slot) -> Option<u32> {
        // Zero means the registered region.
        if words[1] as u32 == 0 {
            words[1] |= u64::from(self.wire.hosts[VICTIM].region);
        }
        let expected = refusals((code, words), self.wire.hosts[VICTIM].region);
        assert!(self.wire.launch(VICTIM, code, words), "the event queue has room for its event");
        let mut found = None;
        while let Some(told) = self.wire.event(VICTIM) {
            if told.kind == POST_EVENT_REFUSED {
                assert_eq!((found, told.words.user), (None, words[0]));
                found = Some(told.result);
            }
        }
        match found {
            Some(result) => {
                assert!(expected.contains(&result), "{code:#x} {words:x?}: {result}, not {expected:?}")
            }
            None => assert_eq!(expected, [], "{code:#x} {words:x?} was taken"),
        }
        found
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_command_is_accepted_or_refused_per_the_contract(
        name in prop::sample::select(ASSEMBLIES.to_vec()),
        slots in prop::collection::vec(any_slot(), 1..60),
    ) {
        let mut simulation = Simulation::new(name);
        let refused = slots.into_iter().filter(|slot| simulation.command(*slot).is_some()).count();
        prop_assert_eq!(simulation.counters().commands_refused, refused as u64);
        let mut steps = 0;
        while simulation.wire.step() {
            steps += 1;
            prop_assert!(steps < 300_000, "it never rests");
        }
        // New programs can use all cards.
        for node in 0..NODES.into() {
            prop_assert_eq!(simulation.wire.control(node, &close()).0, 0);
            simulation.open_again(node);
        }
        simulation.settle();
        simulation.exchange();
    }
}

/// The way in which messages in flight end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Port,
    Region,
    Driver,
    Host,
}

impl End {
    const ALL: [Self; 4] = [Self::Port, Self::Region, Self::Driver, Self::Host];
}

impl Simulation {
    /// Ends the victim's messages in flight. From then on the card must not access its memory.
    fn end(&mut self, end: End) {
        let region = self.wire.hosts[VICTIM].region;
        let asked = match end {
            End::Port => close(),
            End::Region => request(OP_REGION_CLOSE, &RegionName { port: 0, region, extents: 0, reserved: 0 }),
            End::Driver => bare_request(OP_RESET),
            End::Host => return self.wire.handle(VICTIM, Input::HostReset),
        };
        assert_eq!(self.wire.control(VICTIM, &asked).0, 0, "{end:?}");
    }

    fn registered(&self) -> &[u8] {
        &self.wire.hosts[VICTIM].memory[REGION as usize..]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_is_written_after_a_port_region_or_host_ends(
        name in prop::sample::select(ASSEMBLIES.to_vec()),
        end in prop::sample::select(End::ALL.to_vec()),
        steps in 0..200_u32,
        sizes in prop::collection::vec(1..990_u64, 3..25),
    ) {
        let mut simulation = Simulation::new(name);
        for (turn, units) in (0..).zip(&sizes) {
            // Among all nodes, and to one that is unreachable.
            let from = turn % usize::from(ENEMY);
            simulation.send(from, (from as u16 + 1 + turn as u16 % 3) % NODES, 4 * units);
        }
        for _ in 0..steps {
            simulation.wire.step();
            simulation.read();
        }
        simulation.end(end);
        let before = simulation.registered().to_vec();
        let mut steps = 0;
        while simulation.wire.step() {
            steps += 1;
            prop_assert!(steps < 300_000, "it never rests");
        }
        prop_assert!(simulation.registered() == before, "{:?}: memory written after its end", end);
        if end == End::Region {
            // Every pending command is reported, so no program waits forever.
            let before = simulation.told.len();
            simulation.tell_all();
            let whole = simulation.told[before..].iter().filter(|(node, told)| {
                (*node, told.kind, told.result) == (VICTIM, POST_EVENT_RECEIVED, POST_OK)
            });
            prop_assert_eq!(whole.count(), 0, "a message is reported as complete in a closed region");
            prop_assert_eq!(simulation.free[VICTIM].len() as u64, super::SEND_PLACES, "{:?}", simulation.told);
            prop_assert_eq!(simulation.wire.control(VICTIM, &close()).0, 0);
        }
        simulation.open_again(VICTIM);
        simulation.settle();
        simulation.exchange();
        simulation.check_gaps();
    }

    #[test]
    fn only_the_message_with_unreadable_memory_fails(
        name in prop::sample::select(ASSEMBLIES.to_vec()),
        reads in 0..40_u32,
        sizes in prop::collection::vec(1..990_u64, 20..25),
    ) {
        let mut simulation = Simulation::new(name);
        simulation.wire.hosts[0].reads_until_failure = Some(reads);
        for (turn, units) in (0..).zip(&sizes) {
            simulation.send(turn % 3, (turn as u16 % 3 + 1 + turn as u16 % 2) % ENEMY, 4 * units);
        }
        simulation.settle();
        let failed: Vec<_> = simulation.told.iter().filter(|(_, told)| told.kind == POST_EVENT_FAILED).collect();
        prop_assert!(failed.iter().all(|(node, told)| (*node, told.result) == (0, POST_BAD_REGION)), "{:?}", failed);
        prop_assert!(failed.len() <= 1);
        // A receiver that does not know of the failure may take the next message for the rest of the failed one.
        prop_assert_eq!(simulation.unreported, 0);
        let (came, sent) = (simulation.came, simulation.sent);
        prop_assert!(came + 2 * failed.len() as u64 >= sent, "{came} of {sent}");
        simulation.wire.hosts[0].reads_until_failure = None;
        simulation.exchange();
        simulation.exchange();
        simulation.check_gaps();
    }
}

#[test]
fn a_short_receive_buffer_is_filled_and_not_overrun() {
    for name in ASSEMBLIES {
        let mut simulation = Simulation::new(name);
        assert_eq!(simulation.wire.control(VICTIM, &close()).0, 0);
        simulation.wire.open(VICTIM);
        // Buffers shorter than a packet, as long as one, and slightly longer.
        let rooms = [4, 100, 1_408, 1_412, 3_996];
        for (place, room) in (0..).zip(rooms) {
            assert!(simulation.wire.receive(VICTIM, 0, place, place * 8_192, room));
        }
        (0..rooms.len()).for_each(|_| assert!(simulation.send(0, VICTIM as u16, 4_000)));
        while simulation.wire.step() {}
        let data = pattern(4_000 ^ VICTIM as u64, 4_000);
        for _ in rooms {
            let told = simulation.wire.event(VICTIM).unwrap();
            let room = rooms[told.words.user as usize];
            let words = told.words;
            assert_eq!((told.kind, told.result), (POST_EVENT_RECEIVED, POST_TRUNCATED), "{name}");
            assert_eq!((words.bytes, words.moved_bytes), (4_000, room));
            let found = simulation.wire.bytes(VICTIM, words.user * 8_192, 8_192);
            assert!(found[..room as usize] == data[..room as usize], "{name}, {room} bytes");
            assert!(found[room as usize..].iter().all(|byte| *byte == 0), "{name}, after {room} bytes");
        }
        assert_eq!(simulation.counters().truncated, rooms.len() as u64);
    }
}

#[test]
fn retransmissions_carry_the_originally_sent_data() {
    // The host may change a message's memory once the card has reported it as sent. So retransmissions come from the
    // card's memory.
    for name in ["conf2", "conf3", "conf4", "selective_repeat"] {
        let mut simulation = Simulation::new(name);
        simulation.wire.cut.push(0);
        assert!(simulation.send(0, VICTIM as u16, 4_000));
        while simulation.unreported > 0 {
            assert!(simulation.wire.step(), "the card has the data");
            simulation.read();
        }
        simulation.wire.write(0, super::SENDS, &[0xff; 64 << 10]);
        simulation.wire.cut.retain(|node| *node != 0);
        simulation.settle();
        assert_eq!((simulation.came, simulation.sent), (1, 1), "{name}");
        let told = simulation.told.iter().find(|(_, told)| told.kind == POST_EVENT_RECEIVED);
        assert_eq!(told.map(|(_, told)| told.result), Some(POST_OK));
    }
}
