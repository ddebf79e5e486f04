//! Ports that a program drives directly, without the library's two halves.

use niclab_port::matching::{
    self, Append, Command, Encoded, Event, EventKind, EventRecord, Outcome, Part, Put, Target,
};
use niclab_port::slices::{self, Flags, Message, Slice};
use niclab_port::{BadValue, Queue, Requester};
use niclab_user::{BarePort, Error, SharedMemory};

use super::{Cluster, node, until};

const RECORDS: u32 = 16;

/// A program with its port, and its state of that port.
struct Program<K> {
    port: BarePort,
    requester: Requester,
    queue: Queue<K>,
}

impl<K: niclab_port::Kind> Program<K> {
    fn new(cluster: &Cluster, node: usize) -> Self {
        let port = BarePort::from_parts(cluster.open(node, RECORDS)).expect("a port");
        let mut queue = Queue::new(RECORDS, 0);
        queue.set_release_interval(queue.usual_release_interval(), &mut port.records());
        Self { port, requester: Requester::new(0), queue }
    }

    /// The first record that `take` finds in the queue.
    fn take<T>(
        &mut self,
        take: impl Fn(&mut Queue<K>, &mut niclab_port::atomic::AtomicRecords<'_>) -> Option<(T, bool)>,
    ) -> T {
        let Self { port, queue, .. } = self;
        let mut found = None;
        until("a record", || {
            found = take(queue, &mut port.records());
            found.is_some()
        });
        let (taken, is_released) = found.expect("the wait found one");
        if is_released {
            port.announce();
        }
        taken
    }
}

impl Program<Slice> {
    fn send(&mut self, number: u64) {
        let Self { port, requester, queue } = self;
        until("a free slot", || requester.has_slot(&port.page()).expect("a valid status"));
        slices::launch(requester, &mut port.page(), &[number], [number; 2], Flags::NONE, queue.received());
        port.announce();
    }

    fn receive(&mut self) -> Message {
        self.take(|queue, records| slices::take(queue, records))
    }
}

impl Program<EventRecord> {
    fn launch(&mut self, command: &impl Command<(), BadValue>) {
        let Self { port, requester, queue } = self;
        let encoded: Encoded = command.encode(&()).expect("it has room");
        assert!(requester.has_slot(&port.page()).expect("a valid status"));
        matching::launch(requester, &mut port.page(), &encoded, queue.received());
        port.announce();
    }

    fn event(&mut self) -> Event {
        self.take(|queue, records| matching::take(queue, records))
    }
}

#[test]
fn a_program_sends_and_receives_by_itself() {
    let cluster = Cluster::new(2, "ultra", |_| {});
    let [mut a, mut b] = [0, 1].map(|node| Program::new(&cluster, node));
    b.port.authorize(node(0), RECORDS).expect("slices are left");
    a.port.route(node(1)).expect("a route");
    assert_eq!((a.port.address(), b.port.address()), (node(0), node(1)));
    a.port.check().expect("it lives");
    // More messages than page and queue have entries, so both wrap several times.
    for number in 0..200 {
        a.send(number);
        let message = b.receive();
        assert_eq!(
            (message.payload(), message.tag(), message.source()),
            (&[number][..], [number; 2], node(0))
        );
    }
}

#[test]
fn registered_memory_is_accessed_by_its_name() {
    let cluster = Cluster::new(2, "match", |_| {});
    let [mut a, mut b] = [0, 1].map(|node| Program::new(&cluster, node));
    let [(from, from_name), (to, to_name)] =
        [&a, &b].map(|program| program.port.allocate(100).expect("memory"));
    from.write(8, b"by itself").expect("within");
    b.launch(&Append::put(0, Part { region: to_name, offset: 64, bytes: 9 }));
    cluster.settle(1);
    let target = Target { port: node(1), portal: 0 };
    a.launch(&Put::new(target, Part { region: from_name, offset: 8, bytes: 9 }).ack());
    assert_eq!((b.event().kind, a.event().outcome), (EventKind::Put, Outcome::Done));
    let mut read = [0; 9];
    to.read(64, &mut read).expect("within");
    assert_eq!(&read, b"by itself");
}

#[test]
fn a_port_is_open_as_long_as_a_region_of_it_is() {
    let cluster = Cluster::new(1, "match", |_| {});
    let open = || BarePort::from_parts(cluster.open(0, RECORDS)).expect("a port");
    let port = open();
    let (region, _) = port.allocate(1).expect("memory");
    assert_eq!(port.address().port, 0);
    drop(port);
    assert_eq!(open().address().port, 1, "the first port is still open");
    drop(region);
    assert_eq!(open().address().port, 0);
}

#[test]
fn a_part_that_is_too_small_is_an_error_with_its_name() {
    let cluster = Cluster::new(1, "ultra", |_| {});
    let mut parts = cluster.open(0, RECORDS);
    parts.requester = SharedMemory::pages(4096).expect("a page").part(1..512).expect("within");
    let error = BarePort::from_parts(parts).expect_err("too small");
    assert!(error.to_string().contains("node0: the requester page has 4088 bytes"), "{error}");
}

#[test]
fn a_lost_device_is_reported() {
    let mut cluster = Cluster::new(1, "ultra", |_| {});
    let port = BarePort::from_parts(cluster.open(0, RECORDS)).expect("a port");
    cluster.end();
    for result in [port.check(), port.route(node(0)), port.authorize(node(0), 1)] {
        assert!(matches!(result, Err(Error::DeviceGone { .. })), "{result:?}");
    }
    assert!(matches!(port.allocate(1), Err(Error::DeviceGone { .. })));
}
