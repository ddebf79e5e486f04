//! The INIC library and its C interface, on a loopback device that returns each message to its sender.

use std::collections::{HashMap, VecDeque};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use niclab_abi::bar::{INFO_DOORBELL_OFFSET, SLOT_LAUNCH_WORD, SLOT_WORDS, SLOTS, slot_of};
use niclab_abi::inic::{
    BarrierCommand, MulticastCommand, POST_BARRIER, POST_EVENT_DONE, POST_EVENT_RECEIVED, POST_EVENT_SENT,
    POST_LEFT, POST_MULTICAST, POST_OK, POST_RECEIVE, POST_REDUCE, POST_SEND, POST_TELL_SENT, PostEvent,
    PostRules, ReceiveCommand, ReduceCommand, SendCommand, post_event_status,
};
use niclab_abi::receive::SLICE_WORDS;
use niclab_abi::{from_words, to_words};
use niclab_user::Batching as _;
use niclab_user::capi::inic::*;
use niclab_user::capi::region::*;
use niclab_user::capi::{NICLAB_ERROR_AGAIN, NICLAB_ERROR_VALUE, NICLAB_OK};
use niclab_user::inic::{
    Barrier, Element, EventKind, Multicast, Operator, Outcome, Parts, Port, Receive, Reduce, Rules, Send,
};
use niclab_user::{Address, Backing, Error, SharedMemory};

const SLICES: usize = 8;
const LIMIT: Duration = Duration::from_secs(120);
const LIMIT_US: i64 = LIMIT.as_micros() as i64;

fn words(count: usize) -> SharedMemory {
    SharedMemory::from_words((0..count).map(|_| AtomicU64::new(0)).collect())
}

fn load(memory: &SharedMemory, word: usize) -> u64 {
    memory.words()[word].load(Ordering::Relaxed)
}

/// The device's internal state.
#[derive(Default)]
struct State {
    /// Number of posts that the device has taken from the requester page.
    taken: u64,
    /// Number of events that it has written.
    events: u64,
    regions: HashMap<u32, SharedMemory>,
    /// The region name given last; names start at 1.
    last_region: u32,
    /// Posted receives that no message has used, the oldest first.
    receives: VecDeque<ReceiveCommand>,
    rules: Option<PostRules>,
    groups: HashMap<u32, Vec<u32>>,
}

/// A device that returns each message to its sender. Its doorbell call processes all posts before it returns.
struct Loopback {
    info: SharedMemory,
    requester: SharedMemory,
    status: SharedMemory,
    /// The receive queue, to which the device writes its events.
    records: SharedMemory,
    state: Mutex<State>,
}

impl Loopback {
    /// Writes an event to the next slice of the receive queue.
    fn report(&self, state: &mut State, event: &PostEvent, kind: u32, result: u32) {
        let first = (state.events as usize % SLICES) * SLICE_WORDS;
        state.events += 1;
        let event = PostEvent { status: post_event_status(kind, result, state.events as u32), ..*event };
        let words: [u64; SLICE_WORDS] = to_words(&event);
        for (slot, word) in self.records.words()[first..].iter().zip(words) {
            slot.store(word, Ordering::Release);
        }
    }

    /// Stores a message in the oldest posted receive, and reports both ends. `code` has the flags of the post.
    fn send(&self, state: &mut State, send: &SendCommand, code: u32) {
        let SendCommand { user, region, node, offset, bytes, .. } = *send;
        let mut data = vec![0; bytes as usize];
        let source = node.into();
        let event = PostEvent { user, bytes, source, ..PostEvent::default() };
        assert!(state.regions[&region].copy_out(offset as usize, &mut data));
        if code & POST_TELL_SENT != 0 {
            self.report(state, &event, POST_EVENT_SENT, POST_OK);
        }
        let receive = state.receives.pop_front().expect("a receive is posted");
        data.truncate(receive.bytes as usize);
        assert!(state.regions[&receive.region].copy_in(receive.offset as usize, &data));
        let moved_bytes = data.len() as u64;
        let event = PostEvent { user: receive.user, bytes, moved_bytes, source, ..PostEvent::default() };
        let result = u32::from(moved_bytes < bytes);
        self.report(state, &event, POST_EVENT_RECEIVED, result);
    }
}

impl Loopback {
    /// Reports a group operation as done, or with [`POST_LEFT`] if the group does not exist.
    fn complete_group_operation(&self, state: &mut State, user: u64, group: u32, bytes: u64) {
        let result = if state.groups.contains_key(&group) { POST_OK } else { POST_LEFT };
        let event =
            PostEvent { user, bytes, moved_bytes: bytes, source: group.into(), ..PostEvent::default() };
        self.report(state, &event, POST_EVENT_DONE, result);
    }
}

/// The loopback device, as a port's backing.
struct Device(Arc<Loopback>);

impl Backing for Device {
    fn name(&self) -> &str {
        "loopback"
    }

    fn ring(&self) {
        let mut state = self.0.state.lock().expect("not poisoned");
        loop {
            let sequence = state.taken as u32 + 1;
            let first = slot_of(sequence) as usize * SLOT_WORDS;
            let slot: Vec<u64> =
                (first..first + SLOT_WORDS).map(|word| load(&self.0.requester, word)).collect();
            let launch = slot[SLOT_LAUNCH_WORD];
            if launch >> 32 != u64::from(sequence) {
                // The device sleeps again.
                self.0.info.words()[INFO_DOORBELL_OFFSET as usize / 8].fetch_add(1, Ordering::Relaxed);
                return;
            }
            state.taken += 1;
            self.0.status.words()[0].store(state.taken, Ordering::Release);
            match launch as u32 & 0xff {
                POST_RECEIVE => state.receives.extend(from_words::<ReceiveCommand>(&slot[..10])),
                POST_SEND => {
                    let send = from_words(&slot[..10]).expect("ten words");
                    self.0.send(&mut state, &send, launch as u32);
                }
                POST_BARRIER => {
                    let BarrierCommand { user, group, .. } = from_words(&slot[..10]).expect("ten words");
                    self.0.complete_group_operation(&mut state, user, group, 0);
                }
                POST_MULTICAST => {
                    let command = from_words(&slot[..10]).expect("ten words");
                    let MulticastCommand { user, group, bytes, .. } = command;
                    self.0.complete_group_operation(&mut state, user, group, bytes);
                }
                POST_REDUCE => {
                    let command = from_words(&slot[..10]).expect("ten words");
                    let ReduceCommand { user, region, group, offset, bytes, operator, element } = command;
                    // The result holds the operator and the element type, so that the test can check what was posted.
                    let result = [u64::from(operator), u64::from(element)].map(u64::to_le_bytes).concat();
                    assert!(state.regions[&region].copy_in(offset as usize, &result[..bytes as usize]));
                    self.0.complete_group_operation(&mut state, user, group, bytes);
                }
                other => panic!("unknown command {other}"),
            }
        }
    }

    fn wait_interrupts(&self, _: Duration) -> Result<u64, Error> {
        Ok(0)
    }

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    fn route(&self, _: Address) -> Result<(), Error> {
        panic!("an INIC port sends to every node, without a route")
    }

    fn authorize(&self, _: Address, _: u32) -> Result<(), Error> {
        panic!("an INIC port receives from every node, without authorization")
    }

    fn revoke(&self, _: Address) -> Result<(), Error> {
        panic!("an INIC port receives from every node, without authorization")
    }

    fn register(&self, memory: &SharedMemory) -> Result<u32, Error> {
        let mut state = self.0.state.lock().expect("not poisoned");
        state.last_region += 1;
        let name = state.last_region;
        state.regions.insert(name, memory.clone());
        Ok(name)
    }

    fn deregister(&self, region: u32) -> Result<(), Error> {
        self.0.state.lock().expect("not poisoned").regions.remove(&region);
        Ok(())
    }

    fn set_rules(&self, rules: &PostRules) -> Result<(), Error> {
        self.0.state.lock().expect("not poisoned").rules = Some(*rules);
        Ok(())
    }

    fn set_group(&self, group: u32, nodes: &[u32]) -> Result<(), Error> {
        let mut state = self.0.state.lock().expect("not poisoned");
        if nodes.is_empty() {
            state.groups.remove(&group)
        } else {
            state.groups.insert(group, nodes.to_vec())
        };
        Ok(())
    }
}

fn port() -> Port {
    port_with_device().0
}

fn port_with_device() -> (Port, Arc<Loopback>) {
    let (info, requester, completer) = (words(512), words(512), words(512));
    let (status, records) = (words(8), words(SLICES * SLICE_WORDS));
    info.words()[INFO_DOORBELL_OFFSET as usize / 8].store(1, Ordering::Relaxed);
    let device = Loopback {
        info: info.clone(),
        requester: requester.clone(),
        status: status.clone(),
        records: records.clone(),
        state: Mutex::default(),
    };
    let address = Address { node: 3, port: 0 };
    let device = Arc::new(device);
    let backing = Box::new(Device(Arc::clone(&device)));
    let parts = Parts {
        address,
        info,
        requester,
        completer,
        status,
        slices: records,
        payload: SharedMemory::from_words(Arc::default()),
        backing,
    };
    (Port::from_parts(parts).expect("large enough"), device)
}

#[test]
fn message_is_stored_in_the_oldest_posted_receive() {
    let mut port = port();
    let [from, to] = [0, 1].map(|_| port.allocate(4096).expect("memory"));
    // Enough rounds that the slots of the requester page and of the receive queue are reused.
    for number in 0..100_u64 {
        let text = number.to_le_bytes();
        from.write(20, &text).expect("inside the region");
        for user in [7, 8] {
            let receive = Receive::new(to.span(100..112).expect("inside the region")).user(user).interrupt();
            port.launch(&receive, LIMIT).expect("a free slot");
        }
        let send = Send::new(3, from.span(20..28).expect("inside the region")).user(9);
        assert_eq!(port.launch(&send.tell_sent(), LIMIT).expect("a free slot"), 4 * number + 3);
        port.launch(&send, LIMIT).expect("a free slot");
        let events = [(); 3].map(|()| port.event(LIMIT).expect("an event"));
        let seen = events.map(|event| (event.kind, event.user, event.node, event.moved_bytes));
        let received = |user| (EventKind::Received, user, 3, 8);
        assert_eq!(seen, [(EventKind::Sent, 9, 3, 0), received(7), received(8)]);
        assert_eq!(port.try_event(), None);
        let mut read = [0; 8];
        to.read(100, &mut read).expect("inside the region");
        assert_eq!(read, text);
    }
}

#[test]
fn batch_has_one_doorbell_until_no_slot_is_free() {
    let (mut port, device) = port_with_device();
    let region = port.allocate(4096).expect("memory");
    let receive = Receive::new(region.span(0..8).expect("inside the region"));
    // Posts in a batch. Returns how many posts the device has taken before and after its end.
    let mut post_in_batch = |count: u32| {
        let taken = || device.state.lock().expect("not poisoned").taken;
        let before = taken();
        port.begin_batch();
        (0..count).for_each(|_| {
            port.launch(&receive, LIMIT).expect("a free slot");
        });
        let taken_in_batch = taken() - before;
        port.end_batch();
        (taken_in_batch, taken() - before)
    };
    assert_eq!(post_in_batch(5), (0, 5));
    let (slots, more) = (u64::from(SLOTS), u64::from(SLOTS) + 3);
    assert_eq!(post_in_batch(SLOTS), (0, slots), "the slots of the first batch are free again");
    assert_eq!(post_in_batch(SLOTS + 3), (slots, more), "the doorbell rings when no slot is free");
    assert_eq!(post_in_batch(0), (0, 0));
    port.launch(&receive, LIMIT).expect("a free slot");
    assert_eq!(
        device.state.lock().expect("not poisoned").taken,
        5 + slots + more + 1,
        "each post rings the doorbell again"
    );
}

#[test]
fn invalid_commands_are_refused_before_they_are_posted() {
    let (mut port, other) = (port(), port());
    let (own, foreign) = (port.allocate(64).expect("memory"), other.allocate(64).expect("memory"));
    let refused = |result: Result<u64, Error>| matches!(result, Err(Error::BadValue { .. }));
    assert!(refused(port.launch(&Send::new(0, foreign.all()), LIMIT)));
    assert!(refused(port.launch(&Receive::new(foreign.all()), LIMIT)));
    assert!(refused(port.launch(&Receive::new(own.span(0..6).expect("inside the region")), LIMIT)));
    assert!(refused(port.launch(&Send::new(1 << 16, own.all()), LIMIT)));
    assert_eq!(port.commands().launched(), 0);
}

#[test]
fn group_operations_succeed_until_the_group_is_dropped() {
    let (mut port, device) = port_with_device();
    let region = port.allocate(4096).expect("memory");
    let groups = || device.state.lock().expect("not poisoned").groups.clone();
    port.make_group(9, &[4, 3]).expect("a group");
    assert_eq!(groups(), HashMap::from([(9, vec![4, 3])]));
    assert!(matches!(port.make_group(9, &[]), Err(Error::BadValue { .. })));
    let span = region.span(8..24).expect("inside the region");
    port.launch(&Barrier::new(9).user(1), LIMIT).expect("a free slot");
    port.launch(&Multicast::new(9, span).user(2).interrupt(), LIMIT).expect("a free slot");
    let reduce = Reduce::new(9, span, Operator::Min, Element::Unsigned32).user(3);
    port.launch(&reduce, LIMIT).expect("a free slot");
    for (user, bytes) in [(1, 0), (2, 16), (3, 16)] {
        let event = port.event(LIMIT).expect("an event");
        assert_eq!((event.kind, event.outcome, event.node), (EventKind::Done, Outcome::Done, 9));
        assert_eq!((event.user, event.bytes, event.moved_bytes), (user, bytes, bytes));
    }
    let mut result = [0; 16];
    region.read(8, &mut result).expect("inside the region");
    assert_eq!(result, [2, 3].map(u64::to_le_bytes).concat()[..]);
    port.drop_group(9).expect("the group exists");
    assert_eq!(groups(), HashMap::new());
    port.launch(&Barrier::new(9), LIMIT).expect("a free slot");
    assert_eq!(port.event(LIMIT).expect("an event").outcome, Outcome::Left);
}

#[test]
fn rules_reach_the_device_with_their_defaults() {
    let (port, device) = port_with_device();
    let set = |rules: &Rules| {
        port.set_rules(rules).expect("accepted");
        device.state.lock().expect("not poisoned").rules.expect("the rules are set")
    };
    let defaults = PostRules { source: 0xffff, ..PostRules::default() };
    assert_eq!(set(&Rules::default()), defaults);
    let all = Rules { chunk_bytes: 4096, at_end: true, min_message_bytes: 8, source: Some(2) };
    let expected = PostRules { port: 0, at_end: 1, rcv_chunk_size: 4096, min_message_bytes: 8, source: 2 };
    assert_eq!(set(&all), expected);
}

#[test]
fn c_interface_has_the_same_effects_as_the_rust_library() {
    let mut port = niclab_inic_port(port());
    let port = &raw mut port;
    let mut region = null_mut();
    let mut event =
        niclab_inic_event { user: 0, bytes: 0, moved_bytes: 0, message: 0, node: 0, kind: 0, result: 0 };
    // SAFETY: all pointers point to values that live until the end of the test.
    unsafe {
        assert_eq!(niclab_inic_number(port), 0);
        assert_eq!(niclab_inic_allocate(port, 100, &raw mut region), NICLAB_OK);
        let memory = niclab_region_memory(region).cast::<u64>();
        memory.write(0xabcd);
        assert_eq!(niclab_inic_next_event(port, &raw mut event, 0), NICLAB_ERROR_AGAIN);
        assert_eq!(niclab_inic_send(port, 1, region, 0, 3, 0, true, LIMIT_US), NICLAB_ERROR_VALUE);
        assert_eq!(niclab_inic_send(port, 1, region, u64::MAX, 4, 0, true, 0), NICLAB_ERROR_VALUE);
        assert_eq!(niclab_inic_receive(port, region, 8, 4, 5, true, LIMIT_US), NICLAB_OK);
        assert_eq!(niclab_inic_send(port, 1, region, 0, 8, 6, true, 0), NICLAB_OK);
        let mut next = || {
            assert_eq!(niclab_inic_next_event(port, &raw mut event, LIMIT_US), NICLAB_OK);
            (event.kind, event.user, event.node, event.bytes, event.moved_bytes, event.result)
        };
        assert_eq!(next(), (NICLAB_INIC_SENT, 6, 1, 8, 0, 0));
        assert_eq!(
            next(),
            (NICLAB_INIC_RECEIVED, 5, 1, 8, 4, 1),
            "truncated to the four bytes that were posted"
        );
        assert_eq!(memory.add(1).read(), 0xabcd);
        assert_eq!(niclab_inic_set_rules(port, 4096, true, 0, NICLAB_INIC_ANY_NODE), NICLAB_OK);
        assert_eq!(niclab_inic_group(port, 5, [3, 4].as_ptr(), 2), NICLAB_OK);
        assert_eq!(niclab_inic_barrier(port, 5, 1, true, 0), NICLAB_OK);
        assert_eq!(next(), (NICLAB_INIC_DONE, 1, 5, 0, 0, 0));
        assert_eq!(niclab_inic_multicast(port, 5, region, 0, 8, 2, false, 0), NICLAB_OK);
        assert_eq!(next(), (NICLAB_INIC_DONE, 2, 5, 8, 8, 0));
        let reduce =
            |operator, element| niclab_inic_reduce(port, 5, region, 0, 16, operator, element, 3, false, 0);
        assert_eq!(reduce(0, NICLAB_INIC_DOUBLE), NICLAB_ERROR_VALUE);
        assert_eq!(reduce(NICLAB_INIC_SUM, 6), NICLAB_ERROR_VALUE);
        assert_eq!(reduce(NICLAB_INIC_MAX, NICLAB_INIC_DOUBLE), NICLAB_OK);
        assert_eq!(next(), (NICLAB_INIC_DONE, 3, 5, 16, 16, 0));
        assert_eq!((memory.read(), memory.add(1).read()), (3, 5));
        assert_eq!(niclab_inic_group(port, 5, null_mut(), 0), NICLAB_OK);
        assert_eq!(niclab_inic_barrier(port, 5, 4, false, 0), NICLAB_OK);
        assert_eq!(next(), (NICLAB_INIC_DONE, 4, 5, 0, 0, POST_LEFT));
        niclab_region_release(region);
    }
}
