//! A host that means harm, or whose memory goes away: commands of all values, and what is under way when it ends.

use niclab_abi::control::{OP_PORT_CLOSE, OP_RESET, PortName};
use niclab_abi::posts::{
    POST_BAD_COMMAND, POST_BAD_RANGE, POST_BAD_REGION, POST_BAD_VALUE, POST_BARRIER, POST_EVENT_FAILED,
    POST_EVENT_RECEIVED, POST_EVENT_REFUSED, POST_INTERRUPT, POST_MASK, POST_NO_GROUP, POST_NO_TARGET,
    POST_NOT_RELIABLE, POST_OK, POST_RECEIVE, POST_REDUCE, POST_SEND, POST_TELL_SENT, POST_TRUNCATED,
};
use niclab_abi::region::{OP_REGION_CLOSE, RegionName};
use niclab_model::nic::Input;
use proptest::prelude::*;

use super::{ASSEMBLIES, ENEMY, NODES, VICTIM, World};
use crate::support::matching::pattern;
use crate::support::posts::{REGION, REGION_BYTES};
use crate::support::{bare_request, request};

/// The longest message that these cards take.
const LONGEST: u64 = 16 << 20;

/// The words of a slot, and the code of its launch word.
type Slot = (u32, [u64; 10]);

fn any_slot() -> impl Strategy<Value = Slot> {
    let code = prop_oneof![
        4 => prop::sample::select(vec![POST_SEND, POST_RECEIVE, POST_SEND | POST_TELL_SENT, POST_RECEIVE | POST_INTERRUPT]),
        1 => any::<u32>(),
        1 => (0..7_u32, 0..4_u32).prop_map(|(command, flags)| command | flags << 8),
    ];
    let region = prop_oneof![6 => Just(0_u64), 1 => Just(1), 1 => Just(1 << 16), 1 => any::<u32>().prop_map(u64::from)];
    let upper = prop_oneof![6 => 0..u64::from(NODES), 1 => u64::from(NODES)..=0xffff, 1 => any::<u32>().prop_map(u64::from)];
    let edge = |limit: u64| {
        prop_oneof![
            4 => (0..1_000_u64).prop_map(|units| 4 * units),
            2 => (0..9_u64).prop_map(move |off| (limit + off).wrapping_sub(4)),
            1 => (0..9_u64).prop_map(|back| u64::MAX - back),
            1 => any::<u64>(),
        ]
    };
    let bytes = prop_oneof![4 => edge(REGION_BYTES), 1 => edge(LONGEST), 1 => edge(1 << 30)];
    let behind = prop_oneof![8 => Just(0_u64), 1 => any::<u64>()];
    (code, any::<u64>(), region, upper, edge(REGION_BYTES), bytes, behind, 4..10_usize).prop_map(
        |(code, user, region, upper, offset, bytes, behind, place)| {
            let mut words = [0; 10];
            words[..4].copy_from_slice(&[user, region | upper << 32, offset, bytes]);
            words[place] |= behind;
            (code, words)
        },
    )
}

/// What the contract lets a card say of a slot; nothing where it takes it.
fn refusals((code, words): Slot, region: u32) -> Vec<u32> {
    let [_, target, offset, bytes, ..] = words;
    if (POST_BARRIER..=POST_REDUCE).contains(&(code & POST_MASK)) {
        // There is no group.
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

impl World {
    /// Launches a slot at the victim, and what it was refused for.
    fn command(&mut self, (code, mut words): Slot) -> Option<u32> {
        // Zero stands for the region that there is.
        if words[1] as u32 == 0 {
            words[1] |= u64::from(self.wire.hosts[VICTIM].region);
        }
        let expected = refusals((code, words), self.wire.hosts[VICTIM].region);
        assert!(self.wire.launch(VICTIM, code, words), "there is a place for its event");
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
    fn commands_of_all_values_are_taken_or_refused_as_the_contract_says(
        name in prop::sample::select(ASSEMBLIES.to_vec()),
        slots in prop::collection::vec(any_slot(), 1..60),
    ) {
        let mut world = World::new(name);
        let refused = slots.into_iter().filter(|slot| world.command(*slot).is_some()).count();
        prop_assert_eq!(world.counters().commands_refused, refused as u64);
        let mut steps = 0;
        while world.wire.step() {
            steps += 1;
            prop_assert!(steps < 300_000, "it never rests");
        }
        // New programs find everything as it should be.
        for node in 0..NODES.into() {
            prop_assert_eq!(world.wire.control(node, &close()).0, 0);
            world.open_again(node);
        }
        world.settle();
        world.exchange();
    }
}

/// How what is under way comes to its end.
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

impl World {
    /// Ends what the victim has under way. From then on its memory is nobody's.
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
    fn whatever_ends_under_way_nothing_is_written_after_and_others_go_on(
        name in prop::sample::select(ASSEMBLIES.to_vec()),
        end in prop::sample::select(End::ALL.to_vec()),
        steps in 0..200_u32,
        sizes in prop::collection::vec(1..990_u64, 3..25),
    ) {
        let mut world = World::new(name);
        for (turn, units) in (0..).zip(&sizes) {
            // Among all, and to one who is not there.
            let from = turn % usize::from(ENEMY);
            world.send(from, (from as u16 + 1 + turn as u16 % 3) % NODES, 4 * units);
        }
        for _ in 0..steps {
            world.wire.step();
            world.read();
        }
        world.end(end);
        let before = world.registered().to_vec();
        let mut steps = 0;
        while world.wire.step() {
            steps += 1;
            prop_assert!(steps < 300_000, "it never rests");
        }
        prop_assert!(world.registered() == before, "{:?}: written after its end", end);
        if end == End::Region {
            // Whatever was to be told is told: nobody waits for ever.
            let before = world.told.len();
            world.tell_all();
            let whole = world.told[before..].iter().filter(|(node, told)| {
                (*node, told.kind, told.result) == (VICTIM, POST_EVENT_RECEIVED, POST_OK)
            });
            prop_assert_eq!(whole.count(), 0, "a message is whole in memory that is not there");
            prop_assert_eq!(world.free[VICTIM].len() as u64, super::SEND_PLACES, "{:?}", world.told);
            prop_assert_eq!(world.wire.control(VICTIM, &close()).0, 0);
        }
        world.open_again(VICTIM);
        world.settle();
        world.exchange();
        world.check_gaps();
    }

    #[test]
    fn a_message_whose_memory_cannot_be_read_fails_and_no_other(
        name in prop::sample::select(ASSEMBLIES.to_vec()),
        reads in 0..40_u32,
        sizes in prop::collection::vec(1..990_u64, 20..25),
    ) {
        let mut world = World::new(name);
        world.wire.hosts[0].reads_until_failure = Some(reads);
        for (turn, units) in (0..).zip(&sizes) {
            world.send(turn % 3, (turn as u16 % 3 + 1 + turn as u16 % 2) % ENEMY, 4 * units);
        }
        world.settle();
        let failed: Vec<_> = world.told.iter().filter(|(_, told)| told.kind == POST_EVENT_FAILED).collect();
        prop_assert!(failed.iter().all(|(node, told)| (*node, told.result) == (0, POST_BAD_REGION)), "{:?}", failed);
        prop_assert!(failed.len() <= 1);
        // Behind the failed one a message may be taken for its rest by who cannot know better.
        prop_assert_eq!(world.unreported, 0);
        prop_assert!(world.came + 2 * failed.len() as u64 >= world.sent, "{} of {}", world.came, world.sent);
        world.wire.hosts[0].reads_until_failure = None;
        world.exchange();
        world.exchange();
        world.check_gaps();
    }
}

#[test]
fn rooms_that_are_too_short_take_what_fits_and_nothing_behind_them_is_written() {
    for name in ASSEMBLIES {
        let mut world = World::new(name);
        assert_eq!(world.wire.control(VICTIM, &close()).0, 0);
        world.wire.open(VICTIM);
        // Shorter than a packet, as long as one, and a little longer.
        let rooms = [4, 100, 1_408, 1_412, 3_996];
        for (place, room) in (0..).zip(rooms) {
            assert!(world.wire.receive(VICTIM, 0, place, place * 8_192, room));
        }
        (0..rooms.len()).for_each(|_| assert!(world.send(0, VICTIM as u16, 4_000)));
        while world.wire.step() {}
        let data = pattern(4_000 ^ VICTIM as u64, 4_000);
        for _ in rooms {
            let told = world.wire.event(VICTIM).unwrap();
            let room = rooms[told.words.user as usize];
            let words = told.words;
            assert_eq!((told.kind, told.result), (POST_EVENT_RECEIVED, POST_TRUNCATED), "{name}");
            assert_eq!((words.bytes, words.moved_bytes), (4_000, room));
            let found = world.wire.bytes(VICTIM, words.user * 8_192, 8_192);
            assert!(found[..room as usize] == data[..room as usize], "{name}, {room} bytes");
            assert!(found[room as usize..].iter().all(|byte| *byte == 0), "{name}, behind {room} bytes");
        }
        assert_eq!(world.counters().truncated, rooms.len() as u64);
    }
}

#[test]
fn what_is_read_again_is_what_was_sent() {
    // The host may change the memory of a message that the card has told of: what goes again comes from the card.
    for name in ["conf2", "conf3", "conf4", "selective_repeat"] {
        let mut world = World::new(name);
        world.wire.cut.push(0);
        assert!(world.send(0, VICTIM as u16, 4_000));
        while world.unreported > 0 {
            assert!(world.wire.step(), "the card has the data");
            world.read();
        }
        world.wire.write(0, super::SENDS, &[0xff; 64 << 10]);
        world.wire.cut.retain(|node| *node != 0);
        world.settle();
        assert_eq!((world.came, world.sent), (1, 1), "{name}");
        let told = world.told.iter().find(|(_, told)| told.kind == POST_EVENT_RECEIVED);
        assert_eq!(told.map(|(_, told)| told.result), Some(POST_OK));
    }
}
