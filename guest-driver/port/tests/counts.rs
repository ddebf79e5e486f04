//! The numbers of slots and records, at any value and also just before they wrap: a port over plain words, against a
//! small device that shares no code with it.

use std::collections::VecDeque;

use niclab_port::slices::{self, Flags, Slice};
use niclab_port::{Fault, Page, Queue, Records, Register, Reports, Requester};
use proptest::prelude::*;

/// The memory of both sides, and the device, which delivers each post to the port's own queue.
struct Device {
    /// First word, words, received count and launch word of each slot.
    slots: Vec<(usize, Vec<u64>, u64, u64)>,
    status: u64,
    records: Vec<[u64; 11]>,
    /// Released, armed, interval.
    registers: [u64; 3],
    taken: u64,
    stored: u64,
    waiting: VecDeque<(Vec<u64>, bool)>,
}

impl Page for Device {
    fn launch(
        &mut self,
        slot: u32,
        begin: usize,
        words: impl Iterator<Item = u64>,
        received: u64,
        launch: u64,
    ) {
        self.slots[slot as usize] = (begin, words.collect(), received, launch);
    }
}

impl Reports for Device {
    fn status_word(&self, index: usize) -> u64 {
        if index == 0 { self.status } else { 0 }
    }
}

impl Records for Device {
    type Record<'a> = &'a [u64; 11];

    fn record(&self, index: u32) -> Option<&[u64; 11]> {
        self.records.get(index as usize)
    }

    fn store(&mut self, register: Register, value: u64) {
        self.registers[(register.offset() / 8) as usize] = value;
    }
}

impl Device {
    fn new(start: u64, capacity: usize) -> Self {
        let mut device = Self {
            slots: vec![(0, vec![], 0, 0); 32],
            status: start,
            records: vec![[0; 11]; capacity],
            registers: [start, 0, 0],
            taken: start,
            stored: start,
            waiting: VecDeque::new(),
        };
        // The page of a port with these numbers. In a zeroed page, number zero would appear posted when the numbers
        // wrap.
        for number in (1..=start).rev().take(32) {
            device.slots[(number as u32).wrapping_sub(1) as usize % 32].3 = number << 32;
        }
        device
    }

    /// Takes a slot, if one is posted. With `is_stale`, leaves out the status word of its slice.
    fn take(&mut self, is_stale: bool) -> bool {
        let next = self.taken.wrapping_add(1) as u32;
        let (begin, words, _, launch) = &self.slots[next.wrapping_sub(1) as usize % 32];
        if (launch >> 32) as u32 != next {
            return false;
        }
        assert_eq!((*launch as usize) >> 3 & 0xf, *begin, "the length field is the first word of the burst");
        self.waiting.push_back((words.clone(), is_stale));
        self.taken += 1;
        if self.taken.is_multiple_of(8) {
            self.status = self.taken;
        }
        self.store_waiting();
        true
    }

    fn store_waiting(&mut self) {
        let capacity = self.records.len() as u64;
        assert!(
            (self.registers[0]..=self.registers[0] + capacity).contains(&self.stored),
            "{:?}",
            self.registers
        );
        while self.stored - self.registers[0] < capacity {
            let Some((words, is_stale)) = self.waiting.pop_front() else { break };
            let record = &mut self.records[(self.stored % capacity) as usize];
            self.stored += 1;
            record[10 - words.len()..10].copy_from_slice(&words);
            if !is_stale {
                // Node 3, port 5, valid, payload words, number.
                record[10] = self.stored << 32 | 3 << 16 | 5 << 8 | 1 << 7 | (words.len() as u64 - 2);
            }
        }
    }
}

struct PortUnderTest {
    device: Device,
    requester: Requester,
    queue: Queue<Slice>,
}

impl PortUnderTest {
    fn new(start: u64, capacity: usize) -> Self {
        let mut device = Device::new(start, capacity);
        let mut queue = Queue::new(capacity as u32, start);
        queue.set_release_interval(queue.usual_release_interval(), &mut device);
        Self { device, requester: Requester::new(start), queue }
    }

    fn send(&mut self, payload: &[u64], tag: [u64; 2]) -> bool {
        let is_free = self.requester.has_slot(&self.device).expect("a valid status line");
        if is_free {
            let received = self.queue.received();
            slices::launch(&mut self.requester, &mut self.device, payload, tag, Flags::NONE, received);
        }
        is_free
    }

    fn receive(&mut self) -> Option<slices::Message> {
        let (message, _) = slices::take(&mut self.queue, &mut self.device)?;
        self.device.store_waiting();
        Some(message)
    }
}

fn start() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), (0..100_u64).prop_map(|before_wrap| (1 << 32) - before_wrap)]
}

proptest! {
    /// Every message arrives once, complete and in order, and neither page nor queue deadlocks.
    #[test]
    fn messages_are_not_lost_duplicated_or_reordered(
        steps in proptest::collection::vec((0..3_u8, 0..40_usize), 1..400),
        capacity in prop_oneof![Just(8_usize), Just(64)],
        start in start(),
    ) {
        let mut port = PortUnderTest::new(start, capacity);
        let (mut sent, mut received) = (0_u64, 0);
        let all = steps.into_iter().chain([(1, usize::MAX), (2, usize::MAX)].into_iter().cycle().take(1000));
        for (step, count) in all {
            match step {
                0 => {
                    let payload: Vec<u64> = (0..count as u64 % 9).map(|word| sent << 8 | word).collect();
                    sent += u64::from(port.send(&payload, [sent, payload.len() as u64]));
                }
                1 => (0..count.min(64)).for_each(|_| { port.device.take(false); }),
                _ => for _ in 0..count.min(64) {
                    let Some(message) = port.receive() else { break };
                    let words: Vec<u64> = (0..message.tag()[1]).map(|word| received << 8 | word).collect();
                    prop_assert_eq!((message.tag()[0], message.payload()), (received, &words[..]));
                    prop_assert_eq!((message.source().node, message.source().port), (3, 5));
                    received += 1;
                },
            }
        }
        prop_assert_eq!(received, sent);
    }

    /// Every written message is received once and in order, every skipped one is reported once, and releases prevent a
    /// deadlock of the queue.
    #[test]
    fn lost_and_received_messages_add_up(
        stale in proptest::collection::vec(any::<bool>(), 1..200),
        capacity in prop_oneof![Just(8_usize), Just(64)],
        start in start(),
    ) {
        let mut port = PortUnderTest::new(start, capacity);
        let (mut received, mut lost) = (Vec::new(), Vec::new());
        for (index, &is_stale) in (1_u64..).zip(&stale) {
            // The last of every eight is written, so that the port can detect missing ones.
            let is_stale = is_stale && !index.is_multiple_of(8);
            prop_assert!(port.send(&[], [index, 0]) && port.device.take(is_stale), "the page is locked up");
            prop_assert!(port.device.waiting.is_empty(), "the queue is locked up");
            while !is_stale && received.last() != Some(&index) {
                match port.receive() {
                    Some(message) => received.push(message.tag()[0]),
                    None => match port.queue.check(&mut port.device) {
                        Err(Fault::Lost { number, count, .. }) => lost.extend((0..count).map(|n| number - start + n)),
                        other => prop_assert!(false, "stuck: {other:?}"),
                    },
                }
            }
        }
        let is_left_out = |index: &u64| stale[*index as usize - 1] && !index.is_multiple_of(8);
        let last = received.last().copied().unwrap_or(0);
        prop_assert_eq!(&lost, &(1..=last).filter(is_left_out).collect::<Vec<_>>());
        prop_assert_eq!(&received, &(1..=last).filter(|index| !is_left_out(index)).collect::<Vec<_>>());
    }
}

#[test]
fn a_status_line_ahead_of_the_posts_is_a_fault() {
    let mut port = PortUnderTest::new(0, 8);
    assert!(port.send(&[], [0; 2]));
    port.device.status = 2;
    let found = port.requester.refresh(&port.device);
    assert_eq!(found, Err(Fault::Taken { said: 2, known: 0, launched: 1 }));
    assert_eq!(port.requester.taken(), 0);
}

#[test]
fn the_smallest_credit_sets_the_release_interval() {
    let mut port = PortUnderTest::new(0, 64);
    assert_eq!(port.device.registers[2], 16);
    assert_eq!(port.queue.narrow_release_interval(2, &mut port.device), 16);
    assert_eq!((port.device.registers[2], port.queue.release_interval()), (1, 1));
    for number in 1..=8 {
        assert!(port.send(&[], [0; 2]) && port.device.take(false));
        port.receive().expect("delivered");
        assert_eq!(port.device.registers[0], number);
    }
}
