//! Cards that take posted messages: a program's posts, a driver's requests, other cards' frames, and assembly images.

use crc::{CRC_32_ISO_HDLC, Crc};
use niclab_abi::FromBytes;
use niclab_abi::bar::{LAUNCH_SEQUENCE_SHIFT, SLOT_BYTES, SLOT_LAUNCH_WORD, slot_of};
use niclab_abi::control::{OP_PORT_CLOSE, OP_PORT_OPEN, OP_RESET, PortName};
use niclab_abi::inic::{
    OP_POST_GROUP, OP_POST_RULES, POST_ANY_SOURCE, POST_BARRIER, POST_EVENT_RECEIVED, POST_LEFT,
    POST_MULTICAST, POST_OK, POST_RECEIVE, POST_REDUCE, POST_SEND, POST_SUM, POST_TELL_SENT,
    POST_UNSIGNED_64, PostEvent, PostGroup, PostRules, post_event_kind, post_event_result,
};
use niclab_abi::receive::SLICE_BYTES;
use niclab_abi::region::{OP_REGION_CLOSE, OP_REGION_EXTEND, OP_REGION_OPEN, RegionName};
use niclab_components::{Assembly, BUNDLED, Bundled, Flow, Format, Kind, Parameter, Recipe};
use niclab_device::shell::idle::deadlines;
use niclab_device::shell::service;
use niclab_model::models::inic::wire::{Ack, Dialect, Header, head_bytes};
use niclab_model::nic::FrameBytes;

use crate::circuit;
use crate::scene::{
    NODES, REGION_BYTES, SLICES, Scene, bytes_of, ethernet_header, opening, push_request, region_open,
};

/// The offset of a program's messages in its region, after the room for received ones.
const SENDS: u64 = REGION_BYTES / 2;
/// Room for a message.
const ROOM: u64 = 4_096;
/// A group, if the cards support groups, and its members.
const GROUP: u32 = 5;
const MEMBERS: [u32; 2] = [0, 1];
/// The packets that node 1's card has sent to node 0 before the input: three of a message, and one for its group.
const SENT_BEFORE: u32 = 4;
/// The bytes before the components of an image, and the position of its check sequence.
const IMAGE_HEADER_BYTES: usize = 24;
const IMAGE_CHECK: core::ops::Range<usize> = 16..20;

static CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// The assembly that the first byte of an input selects.
fn bundled(first: u8) -> &'static Bundled {
    let [only, ..] = &BUNDLED;
    BUNDLED.get(usize::from(first & 0x7f) % BUNDLED.len()).unwrap_or(only)
}

/// Whether cards with this assembly support groups.
fn has_groups(first: u8) -> bool {
    bundled(first).assembly().check().is_ok_and(|assembly| assembly.promises().delivered)
}

/// The request to make a group of these members.
fn group_of(members: &[u32]) -> Vec<u8> {
    let head = PostGroup { group: GROUP, members: members.len() as u32, ..PostGroup::default() };
    let members = members.iter().flat_map(|member| member.to_le_bytes());
    bytes_of(&head).into_iter().chain(members).collect()
}

/// The dialect of cards with this assembly.
fn dialect(first: u8) -> Dialect {
    let assembly = bundled(first).assembly();
    let mut parts = assembly.components().iter();
    let xmit =
        parts.find_map(|part| if part.kind() == Kind::Xmit { part.value(Parameter::Format) } else { None });
    Dialect { format: Format::of(xmit.unwrap_or_default()), assembly: assembly.id() }
}

/// Programs at a scene's four nodes.
struct Programs {
    scene: Scene,
    regions: Vec<u32>,
    launched: Vec<u32>,
}

impl Programs {
    /// Programs on cards with the assembly that the input's first byte selects; and the rest of the input.
    fn of(data: &[u8]) -> (Self, u8, &[u8]) {
        let (&first, rest) = data.split_first().unwrap_or((&0, data));
        let name = bundled(first).name;
        let mut scene =
            Scene::of_cards(&format!("{{ model = \"inic\", inic = {{ assembly = \"{name}\" }} }}"));
        let regions = (0..usize::from(NODES)).map(|node| scene.open_region(node)).collect();
        let mut programs = Self { scene, regions, launched: vec![0; usize::from(NODES)] };
        for node in [0, 1] {
            (0..4).for_each(|place| programs.receive(node, place));
        }
        // Messages to acknowledge, and messages in flight to a port that is asked to close.
        for (from, to) in [(0, 1), (1, 0), (0, 0)] {
            programs.send(from, to, 3_000);
        }
        for node in MEMBERS.map(|member| member as usize).into_iter().filter(|_| has_groups(first)) {
            programs.scene.request_bytes(node, OP_POST_GROUP, &group_of(&MEMBERS));
        }
        (programs, first, rest)
    }

    fn launch(&mut self, node: usize, code: u32, words: &[u64]) {
        let slot: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.launch_bytes(node, code, &slot);
    }

    fn launch_bytes(&mut self, node: usize, code: u32, words: &[u8]) {
        let Some(launched) = self.launched.get_mut(node) else { return };
        *launched += 1;
        let sequence = *launched;
        let mut slot = [0; SLOT_BYTES as usize];
        let end = SLOT_LAUNCH_WORD * 8;
        slot.iter_mut().take(end).zip(words).for_each(|(place, byte)| *place = *byte);
        let word = u64::from(code) | u64::from(sequence) << LAUNCH_SEQUENCE_SHIFT;
        slot.iter_mut().skip(end).zip(word.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        let place = u64::from(slot_of(sequence)) * u64::from(SLOT_BYTES);
        self.scene.write_bar(node, |pages| pages.bar.requester_page(0), place, &slot);
        service::serve_pages(&mut self.scene.lock_all(), node);
    }

    fn region(&self, node: usize) -> u64 {
        self.regions.get(node).copied().unwrap_or_default().into()
    }

    fn receive(&mut self, node: usize, place: u64) {
        let words = [place, self.region(node), place * ROOM, ROOM];
        self.launch(node, POST_RECEIVE, &words);
    }

    fn send(&mut self, from: usize, to: u64, bytes: u64) {
        let words = [7, self.region(from) | to << 32, SENDS, bytes];
        self.launch(from, POST_SEND | POST_TELL_SENT, &words);
    }

    /// Checks that two uninvolved nodes can still exchange a message of several packets.
    fn check_bystanders(&mut self) {
        const BYTES: u64 = 3_000;
        (0..4).for_each(|place| self.receive(3, place));
        self.send(2, 3, BYTES);
        for _ in 0..64 {
            deadlines::pass_time(&mut self.scene.lock_all());
        }
        let came = (0..64).any(|place| {
            let event = self.scene.read(3, SLICES + place * SLICE_BYTES, PostEvent::BYTES);
            PostEvent::from_bytes(&event).is_some_and(|event| {
                let told = (post_event_kind(event.status), post_event_result(event.status));
                told == (POST_EVENT_RECEIVED, POST_OK) && (event.source, event.bytes) == (2, BYTES)
            })
        });
        assert!(came, "the bystanders' message did not arrive");
    }
}

/// Commands: after the byte for the assembly, a list of slots of 128 bytes, half of them with a valid region.
pub fn fuzz_post_commands(data: &[u8]) {
    commands(data).check_bystanders();
}

fn commands(data: &[u8]) -> Programs {
    let (mut programs, first, slots) = Programs::of(data);
    if has_groups(first) {
        programs.launch(1, POST_BARRIER, &[0, GROUP.into()]);
    }
    for slot in slots.chunks(SLOT_BYTES as usize) {
        let mut words = slot.to_vec();
        let last = words.last().copied().unwrap_or(0);
        if last & 1 == 0
            && let Some(place) = words.get_mut(8..12)
        {
            place.copy_from_slice(&(programs.region(0) as u32).to_le_bytes());
        }
        let code = slot.get(SLOT_LAUNCH_WORD * 8..).and_then(<[u8]>::first_chunk);
        let code = code.map_or(0, |code| u32::from_le_bytes(*code));
        programs.launch_bytes(0, if last & 2 == 0 { code & 0x303 } else { code }, &words);
        if last & 4 == 0 {
            let released = slot.get(..16).unwrap_or(slot);
            programs.scene.write_bar(0, |pages| pages.bar.completer_page(0), 0, released);
        }
        deadlines::pass_time(&mut programs.scene.lock_all());
    }
    programs
}

/// Control requests while messages are in flight: after the byte for the assembly, a list, each after a byte with its
/// length.
pub fn fuzz_post_control(data: &[u8]) {
    control(data).check_bystanders();
}

fn control(data: &[u8]) -> Programs {
    let (mut programs, _, mut rest) = Programs::of(data);
    while let Some((&length, tail)) = rest.split_first() {
        let (request, tail) = tail.split_at(tail.len().min(length.into()));
        rest = tail;
        programs.receive(0, 0);
        programs.send(0, 1, 1_500);
        let scene = &mut programs.scene;
        scene.ask(request);
        deadlines::pass_time(&mut scene.lock_all());
    }
    programs
}

/// Frames of another card: after the byte for the assembly, a list, each after a byte with its length in words. If the
/// highest bit of the first byte is clear, the frames have a valid check sequence.
pub fn fuzz_post_frames(data: &[u8]) {
    frames(data).check_bystanders();
}

fn frames(data: &[u8]) -> Programs {
    let (mut programs, first, mut rest) = Programs::of(data);
    while let Some((&length, tail)) = rest.split_first() {
        let (behind, tail) = tail.split_at(tail.len().min(usize::from(length) * 4));
        rest = tail;
        let mut frame = FrameBytes::from_slice(&ethernet_header(1, 0));
        frame.extend_from_slice(behind);
        if first & 0x80 == 0 {
            frame.extend_from_slice(&CRC.checksum(behind).to_be_bytes());
        }
        programs.scene.inject(frame);
    }
    programs
}

/// Images: decoded, checked, and run if valid. If the lowest bit of the first byte is set, an image has a valid check
/// sequence.
pub fn fuzz_assembly(data: &[u8]) {
    use niclab_components::assembly::{MAX_COMPONENTS, MAX_CONNECTIONS};
    let (&first, image) = data.split_first().unwrap_or((&0, data));
    let mut image = image.to_vec();
    if first & 1 == 1 && image.len() >= IMAGE_HEADER_BYTES {
        let covered = [image.get(..IMAGE_CHECK.start), image.get(IMAGE_CHECK.end..)];
        let check = CRC.checksum(&covered.map(Option::unwrap_or_default).concat());
        image.splice(IMAGE_CHECK, check.to_le_bytes());
    }
    let Ok(assembly) = Assembly::decode(&image) else { return };
    assert!(assembly.components().len() <= MAX_COMPONENTS && assembly.connections().len() <= MAX_CONNECTIONS);
    assert_eq!(assembly.encode(), image, "what is read is written as it was");
    match assembly.check() {
        Ok(assembly) => drop(circuit::run(&assembly)),
        Err(faults) => faults.iter().for_each(|fault| assert!(!fault.to_string().is_empty())),
    }
}

/// Valid slots for the card.
pub fn command_seeds() -> Vec<Vec<u8>> {
    let slot = |code: u32, words: &[u64]| {
        let mut slot: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        slot.resize(SLOT_LAUNCH_WORD * 8, 0);
        slot.extend(code.to_le_bytes());
        slot.resize(SLOT_BYTES as usize, 0);
        // The lowest bits of the last byte select what stays unchanged: the registers here, and the code of slots that
        // neither send nor receive; for a barrier, the word in which other commands have a region.
        let last_byte = match code {
            POST_BARRIER => 7,
            POST_MULTICAST | POST_REDUCE => 6,
            _ => 4,
        };
        slot.iter_mut().next_back().into_iter().for_each(|last| *last = last_byte);
        slot
    };
    let seed = |first: u8| {
        let slots = (0..8).flat_map(|number: u64| {
            let receive = slot(POST_RECEIVE, &[number, 0, number * ROOM, ROOM]);
            let send =
                slot(POST_SEND | POST_TELL_SENT, &[number, (number % 3) << 32, SENDS, 4 + 600 * number]);
            [receive, send].concat()
        });
        let group = u64::from(GROUP) << 32;
        let sum = u64::from(POST_SUM) | u64::from(POST_UNSIGNED_64) << 32;
        let asked = [
            slot(POST_BARRIER, &[20, GROUP.into()]),
            slot(POST_MULTICAST, &[21, group, SENDS, 1_600]),
            slot(POST_REDUCE, &[22, group, SENDS + ROOM, 1_600, sum]),
        ];
        let asked = asked.into_iter().flatten().filter(|_| has_groups(first));
        std::iter::once(first).chain(slots).chain(asked).collect()
    };
    (0..BUNDLED.len() as u8).map(seed).collect()
}

/// Every request that a card with posts takes, twice.
pub fn control_seeds() -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    let mut add = |operation: u32, body: &[u8]| push_request(&mut requests, operation, body);
    let rules = PostRules { rcv_chunk_size: 4_096, source: POST_ANY_SOURCE, ..PostRules::default() };
    for region in [1 << 16, 2 << 16 | 1] {
        add(OP_REGION_OPEN, &region_open());
        add(OP_REGION_EXTEND, &bytes_of(&RegionName { region, ..RegionName::default() }));
        add(OP_POST_RULES, &bytes_of(&rules));
        add(OP_POST_GROUP, &group_of(&[]));
        add(OP_POST_GROUP, &group_of(&[2, 0, 1]));
        add(OP_REGION_CLOSE, &bytes_of(&RegionName { region, ..RegionName::default() }));
        add(OP_PORT_CLOSE, &bytes_of(&PortName::default()));
        add(OP_PORT_OPEN, &bytes_of(&opening()));
        add(OP_RESET, &[]);
    }
    (0..BUNDLED.len() as u8).map(|first| [&[first], &requests[..]].concat()).collect()
}

/// Packets of messages, acknowledgements of some of them, and acknowledgements of none.
pub fn frame_seeds() -> Vec<Vec<u8>> {
    let seed = |first: u8| {
        let dialect = dialect(first);
        let mut input = vec![first];
        let mut add = |header: Header, data: &[u8]| {
            let mut frame = FrameBytes::from_elem(0, head_bytes(dialect.format));
            frame.extend_from_slice(data);
            header.finish(dialect, &mut frame);
            // Without the check sequence, which the target computes again.
            let behind = frame.get(14..frame.len().saturating_sub(4)).unwrap_or_default();
            input.push((behind.len() / 4) as u8);
            input.extend(behind);
        };
        for number in 0..6_u32 {
            let ack = Ack { base: number.wrapping_sub(1), mask: 6 << number };
            let header = Header {
                source: 1,
                destination: 0,
                sequence: number / 2,
                has_data: number < 5,
                is_last: number % 3 == 2,
                is_again: number == 4,
                for_card: false,
                ack: (number > 1).then_some(ack),
            };
            let place = [(1 + number / 3).to_be_bytes(), (number % 3).to_be_bytes()].concat();
            let data = [&place[..], &[7; 40]].concat();
            add(header, if header.has_data { &data } else { &[] });
        }
        // Messages from a member's card, numbered after its earlier ones: values for a reduction, data of a multicast,
        // the report that it has such data, a query whether a member is reachable, the report that it does not know the
        // operation, and its leave. Each has its first word, its message number, and the operation's number and bytes.
        let said: [(u32, u32, u32, u32); 6] = [
            (3 << 24 | (POST_SUM << 4 | POST_UNSIGNED_64) << 16, 1, 0, 40),
            (5 << 24 | 1, 2, 0, 40),
            (6 << 24, 3, 0, 0),
            (8 << 24, 0, 0, 0),
            (9 << 24, 0, 0, 0),
            (7 << 24 | POST_LEFT << 16, 4, 0, 0),
        ];
        for ((word, sequence, operation, total), number) in
            said.into_iter().zip(0..).filter(|_| has_groups(first))
        {
            let words = [word, GROUP, 1, 1, sequence, operation, total];
            let data = vec![7; total as usize];
            let data: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).chain(data).collect();
            let header = Header {
                source: 1,
                destination: 0,
                sequence: SENT_BEFORE + number,
                has_data: true,
                is_last: true,
                is_again: false,
                for_card: true,
                ack: None,
            };
            add(header, &data);
        }
        input
    };
    (0..BUNDLED.len() as u8).map(seed).collect()
}

/// The bundled images, and images of recipes.
pub fn assembly_seeds() -> Vec<Vec<u8>> {
    let recipe =
        |flow| Recipe { flow, finds_duplicates: true, controls_rate: true, mitigates: true, depth: 3 };
    let made = Flow::ALL.into_iter().filter_map(|flow| Some(recipe(flow).assembly().ok()?.encode()));
    let images = BUNDLED.iter().map(|bundled| bundled.image.to_vec()).chain(made);
    images.map(|image| [&[1], &image[..]].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of the attacked card.
    fn count(programs: &Programs, name: &str) -> u64 {
        let counters =
            programs.scene.lock_all().nodes.card(0).map(|card| card.nic.counters()).unwrap_or_default();
        counters.iter().find(|(known, _)| *known == name).map_or(u64::MAX, |(_, count)| *count)
    }

    #[test]
    fn valid_inputs_have_an_effect() {
        for input in frame_seeds() {
            let programs = frames(&input);
            assert!(count(&programs, "packets_in") >= 5);
            let groups = if has_groups(input[0]) { (1, 1) } else { (0, 0) };
            let found = (count(&programs, "groups_ended"), count(&programs, "collective_strays"));
            assert_eq!(found, groups, "{}", bundled(input[0]).name);
            assert_eq!((count(&programs, "other_assembly"), count(&programs, "foreign_frames")), (0, 0));
        }
        for input in command_seeds() {
            let programs = commands(&input);
            assert_eq!(count(&programs, "commands_refused"), 0);
            assert_eq!(count(&programs, "collectives") > 0, has_groups(input[0]));
            assert!(count(&programs, "packets_out") > 16);
        }
        for input in control_seeds() {
            let programs = control(&input);
            let refused =
                programs.scene.lock_all().nodes.card(0).map(|card| card.statistics().control_refused);
            // No region is extended, because all are complete; and not every assembly has rules or groups.
            assert!(refused.is_some_and(|refused| refused <= 12), "{refused:?}");
        }
        for image in assembly_seeds() {
            let assembly = Assembly::decode(&image[1..]).unwrap().check().unwrap();
            assert_eq!(circuit::run(&assembly), 2 * circuit::MESSAGES, "{assembly:?}");
        }
    }
}
