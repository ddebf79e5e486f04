//! Front ends that violate the protocol, as a faulty QEMU would. Each runs against a daemon of its own: the installed
//! program, over its sockets. The daemon survives, other nodes continue, and the daemon counts or logs the violation.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::process::Process;
use crate::common::{frame, lab_with, pair, stream, until};
use niclab_abi::bar::INFO_DOORBELL_OFFSET;
use niclab_abi::control::{OP_PING, Request};
use niclab_abi::{FromBytes, PAGE_BYTES, ToBytes};
use niclab_device::frontend::{ClusterGuest, Connection, DriverRing, GuestMemory, GuestPort};
use niclab_device::ring::Buffer;
use niclab_device::slice::ShortSlice;
use niclab_model::models::MODELS;
use niclab_spec::descriptors;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use vhost::vhost_user::message::{FrontendReq, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vmm_sys_util::eventfd::EventFd;

const MEMORY_BYTES: u64 = 4 << 20;

/// A daemon for four nodes: node 0 is hostile, node 1 its partner, and nodes 2 and 3 must not be affected.
struct Scene {
    daemon: Process,
    hostile: Arc<ClusterGuest>,
    bystanders: [Arc<ClusterGuest>; 2],
    ports: [GuestPort; 2],
}

impl Scene {
    fn new() -> Self {
        let daemon = Process::start(4);
        let bystanders = [daemon.guest(2), daemon.guest(3)];
        let ports = pair([&bystanders[0], &bystanders[1]]);
        let hostile = daemon.guest(0);
        Self { daemon, hostile, bystanders, ports }
    }

    fn assert_others_go_on(&mut self) {
        let [a, b] = &mut self.ports;
        stream(a, b, 200);
        self.bystanders[0].statistics().unwrap();
        for node in [2, 3] {
            assert!(self.daemon.violations(node).is_empty(), "{:?}", self.daemon.violations(node));
        }
    }

    /// Waits for a violation of node 0, and checks that the other nodes continue.
    fn assert_counted(&mut self, name: &str) {
        until(name, || self.daemon.violations(0).contains_key(name));
        self.assert_others_go_on();
    }

    /// Checks that the daemon closes the hostile connection and logs why, the others continue, and node 0 can connect
    /// again.
    fn assert_refused(&mut self, why: &str) {
        self.daemon.wait_for_log(why);
        until("the connection's end", || !self.daemon.connected(0).0);
        self.assert_others_go_on();
        let again = self.daemon.guest(0);
        again.statistics().unwrap();
    }
}

/// The memory file of a guest.
fn memory_file(memory: &GuestMemory) -> File {
    let handle = memory.regions().unwrap()[0].mmap_handle;
    // SAFETY: the memory, which outlives this function, keeps the descriptor open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(handle) };
    File::from(borrowed.try_clone_to_owned().unwrap())
}

/// Writes one message of the protocol without checks, so it may be invalid. `flags` are set in addition to the version.
fn send(stream: &UnixStream, request: FrontendReq, flags: u32, body: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let header = [request as u32, 1 | flags, body.len() as u32].map(u32::to_ne_bytes).concat();
    let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &control };
    let parts = [std::io::IoSlice::new(&header), std::io::IoSlice::new(body)];
    let sent = sendmsg::<()>(stream.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None).unwrap();
    assert_eq!(sent, header.len() + body.len());
}

const NEED_REPLY: u32 = 8;

/// The same with an acknowledgement: zero is success.
fn acknowledged(
    stream: &UnixStream,
    request: FrontendReq,
    body: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> u64 {
    send(stream, request, NEED_REPLY, body, descriptors);
    answer(stream)
}

/// The next reply, which is one word.
fn answer(mut stream: &UnixStream) -> u64 {
    let mut bytes = [0; 20];
    stream.read_exact(&mut bytes).unwrap();
    u64::from_ne_bytes(bytes[12..].try_into().unwrap())
}

/// Gives queue `queue` of `guest` a new call or kick descriptor.
fn give(guest: &ClusterGuest, request: FrontendReq, queue: u64, descriptor: impl AsFd) -> u64 {
    acknowledged(guest.connection().stream(), request, &queue.to_ne_bytes(), &[descriptor.as_fd()])
}

fn borrow(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the result borrows from `event`, which keeps the descriptor open.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

/// An event whose counter is full, so that a writer blocks.
fn full_event() -> EventFd {
    let event = EventFd::new(0).unwrap();
    event.write(u64::MAX - 1).unwrap();
    event
}

/// Clears the non-blocking flag, which both ends share.
fn make_blocking(event: &EventFd) {
    // SAFETY: the descriptor is open, and the command takes plain flags.
    assert_eq!(unsafe { libc::fcntl(event.as_raw_fd(), libc::F_SETFL, libc::O_RDWR) }, 0);
}

#[test]
fn memory_cut_short_under_the_rings_ends_the_connection() {
    let mut scene = Scene::new();
    memory_file(scene.hostile.memory()).set_len(0).unwrap();
    // The device polls for a request, and its ring is gone.
    scene.hostile.with_control_ring(|ring| ring.ring().unwrap());
    scene.assert_counted("memory_vanished");
    scene.assert_refused("a page of the guest's memory is gone");
}

#[test]
fn memory_cut_short_during_a_receive_ends_the_connection() {
    let mut scene = Scene::new();
    let partner = scene.daemon.guest(1);
    let [mut from, _to] = pair([&partner, &scene.hostile]);
    memory_file(scene.hostile.memory()).set_len(0).unwrap();
    assert!(from.try_launch(&[1], [0; 2], 0));
    from.announce();
    scene.assert_counted("memory_vanished");
    partner.statistics().unwrap();
    assert!(scene.daemon.connected(1).0, "the sender is not to blame");
    scene.assert_refused("a page of the guest's memory is gone");
}

#[test]
fn ethernet_memory_cut_short_ends_the_connection() {
    let mut scene = Scene::new();
    let hostile = scene.daemon.ethernet(0);
    let mut other = scene.daemon.ethernet(1);
    memory_file(hostile.memory()).set_len(PAGE_BYTES).unwrap();
    for _ in 0..3 {
        other.send(&frame(scene.daemon.mac(1), scene.daemon.mac(0), 500)).unwrap();
    }
    scene.assert_counted("memory_vanished");
    until("the connection's end", || !scene.daemon.connected(0).1);
    assert!(scene.daemon.connected(1).1);
    let mut again = scene.daemon.ethernet(0);
    let sound = frame(scene.daemon.mac(0), scene.daemon.mac(1), 80);
    again.send(&sound).unwrap();
    assert_eq!(other.receive(crate::common::TIMEOUT).unwrap().1, sound);
}

#[test]
fn memory_table_beyond_the_end_of_its_file_is_refused() {
    let mut scene = Scene::new();
    let mut regions = scene.hostile.memory().regions().unwrap();
    regions[0].memory_size += PAGE_BYTES;
    assert!(scene.hostile.connection().set_memory(&regions).is_err());
    scene.assert_refused("of a file that has 4194304");
}

#[test]
fn memory_that_is_not_a_memory_file_is_refused() {
    let mut scene = Scene::new();
    let mut regions = scene.hostile.memory().regions().unwrap();
    let zero = File::options().read(true).write(true).open("/dev/zero").unwrap();
    regions[0].mmap_handle = zero.as_raw_fd();
    assert!(scene.hostile.connection().set_memory(&regions).is_err());
    scene.assert_refused("is not a file in memory");
}

#[test]
fn bar_file_cannot_be_resized() {
    let mut scene = Scene::new();
    let bar = scene.hostile.bar().region(0).unwrap();
    // SAFETY: the mapped BAR keeps the descriptor open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(bar.mmap_handle) };
    let file = File::from(borrowed.try_clone_to_owned().unwrap());
    for bytes in [0, bar.memory_size - 1, bar.memory_size + 1] {
        let refused = file.set_len(bytes).map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(libc::EPERM)), "{bytes}");
    }
    scene.hostile.ring();
    scene.hostile.statistics().unwrap();
    scene.assert_others_go_on();
}

#[test]
fn blocking_call_events_do_not_block_the_device() {
    let mut scene = Scene::new();
    let event = full_event();
    for queue in 0..5 {
        assert_eq!(give(&scene.hostile, FrontendReq::SET_VRING_CALL, queue, borrow(&event)), 0);
    }
    make_blocking(&event);
    // Each reply raises an interrupt, and the front end finds the reply by polling.
    for _ in 0..10 {
        scene.hostile.request(OP_PING, &[]).unwrap();
    }
    scene.assert_others_go_on();
    assert!(event.read().unwrap() >= u64::MAX - 1);
    scene.hostile.request(OP_PING, &[]).unwrap();
    assert_eq!(event.read().unwrap(), 1, "later calls work");
}

#[test]
fn one_blocking_kick_for_all_queues_does_not_block_the_device() {
    let mut scene = Scene::new();
    let kick = EventFd::new(0).unwrap();
    for queue in 0..5 {
        assert_eq!(give(&scene.hostile, FrontendReq::SET_VRING_KICK, queue, borrow(&kick)), 0);
    }
    make_blocking(&kick);
    let memory = scene.hostile.memory();
    let (request, reply) = (memory.allocate(8, 8).unwrap(), memory.allocate(64, 8).unwrap());
    let mut ping = [0; Request::BYTES];
    Request { operation: OP_PING, body_bytes: 0 }.to_bytes(&mut ping);
    memory.slice(request, ping.len()).unwrap().copy_from(&ping);
    // One ring each time: four of the five queues find the event consumed already, and must not wait for another one.
    for _ in 0..10 {
        scene.hostile.with_control_ring(|ring| {
            let request = Buffer { address: request, bytes: Request::BYTES as u32, writable: false };
            let reply = Buffer { address: reply, bytes: 64, writable: true };
            let head = ring.add(&[request, reply]).unwrap().unwrap();
            ring.show().unwrap();
            kick.write(1).unwrap();
            until("the answer", || ring.poll_used().unwrap().is_some_and(|(used, _)| used == head));
            ring.reclaim(head).unwrap();
        });
    }
    scene.assert_others_go_on();
}

#[test]
fn descriptors_that_are_not_events_are_refused() {
    let mut scene = Scene::new();
    let (reader, writer) = std::io::pipe().unwrap();
    for (request, descriptor) in
        [(FrontendReq::SET_VRING_CALL, writer.as_fd()), (FrontendReq::SET_VRING_KICK, reader.as_fd())]
    {
        {
            let connection = scene.hostile.connection();
            send(connection.stream(), request, 0, &1_u64.to_ne_bytes(), &[descriptor]);
            assert!(is_hung_up(connection.stream()));
        }
        scene.assert_refused("not an event");
        scene.daemon.forget_log();
        scene.hostile = scene.daemon.guest(0);
    }
}

#[test]
fn kick_replaced_while_signalled_loses_no_ring() {
    let mut scene = Scene::new();
    let first = scene.daemon.stats(0).doorbells;
    let watched = scene.daemon.watched();
    let mut kept = Vec::new();
    for _ in 0..50 {
        let kick = EventFd::new(0).unwrap();
        kick.write(1).unwrap();
        assert_eq!(give(&scene.hostile, FrontendReq::SET_VRING_KICK, 4, borrow(&kick)), 0);
        kick.write(1).unwrap();
        kept.push(kick);
    }
    // If the daemon still watched a descriptor, it would be signalled for ever, because the front end holds the other
    // end.
    assert_eq!(scene.daemon.watched(), watched);
    // No ring of a replaced kick is lost: a driver rings once for each sleep of the device.
    until("all rings are counted", || scene.daemon.stats(0).doorbells == first + 100);
    kept.last().unwrap().write(1).unwrap();
    until("the last one rings", || scene.daemon.stats(0).doorbells == first + 101);
    scene.assert_others_go_on();
}

/// Whether the daemon has closed the connection.
fn is_hung_up(mut stream: &UnixStream) -> bool {
    stream.set_read_timeout(Some(crate::common::TIMEOUT)).unwrap();
    // The connection is reset if the daemon left data unread.
    stream
        .read(&mut [0; 1])
        .map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |bytes| bytes == 0)
}

/// A front end that has asked what is offered, and the reply.
fn offered(socket: PathBuf, request: FrontendReq) -> (UnixStream, u64) {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(crate::common::TIMEOUT)).unwrap();
    send(&stream, FrontendReq::SET_OWNER, 0, &[], &[]);
    send(&stream, request, 0, &[], &[]);
    let word = answer(&stream);
    (stream, word)
}

#[test]
fn features_that_were_not_offered_are_refused() {
    let mut scene = Scene::new();
    for socket in [scene.daemon.cluster_socket(1), scene.daemon.ethernet_socket(1)] {
        let (stream, features) = offered(socket, FrontendReq::GET_FEATURES);
        let none = 1 << 63;
        assert_eq!(features & none, 0);
        send(&stream, FrontendReq::SET_FEATURES, 0, &(features | none).to_ne_bytes(), &[]);
        assert!(is_hung_up(&stream));
        scene.daemon.wait_for_log("connection ended: failed to handle request: invalid parameters");
        scene.daemon.forget_log();
    }
    scene.assert_others_go_on();
    scene.daemon.guest(1).statistics().unwrap();
}

/// The library accepts protocol features that were not offered. None of the messages that they would allow has an
/// effect.
#[test]
fn protocol_features_that_were_not_offered_unlock_nothing() {
    let mut scene = Scene::new();
    let memory = GuestMemory::new(MEMORY_BYTES).unwrap();
    let file = memory_file(&memory);
    let [cluster, ethernet] = [scene.daemon.cluster_socket(1), scene.daemon.ethernet_socket(1)];
    let features = offered(cluster.clone(), FrontendReq::GET_PROTOCOL_FEATURES).1;
    assert_eq!(features & VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS.bits(), 0);
    // The Ethernet function does not offer protocol features at all.
    let of_ethernet = offered(ethernet.clone(), FrontendReq::GET_FEATURES).1;
    assert_eq!(of_ethernet & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits(), 0);
    let taken = |socket: &PathBuf| {
        until("the end of the last connection", || scene.daemon.connected(1) == (false, false));
        let (stream, features) = offered(socket.clone(), FrontendReq::GET_FEATURES);
        let all = VhostUserProtocolFeatures::all().bits().to_ne_bytes();
        send(&stream, FrontendReq::SET_PROTOCOL_FEATURES, 0, &all, &[]);
        send(&stream, FrontendReq::SET_FEATURES, 0, &features.to_ne_bytes(), &[]);
        // A table for the log: one region of the file.
        let table = [1, 0, MEMORY_BYTES, 1 << 40, 0].map(u64::to_ne_bytes).concat();
        send(&stream, FrontendReq::SET_MEM_TABLE, 0, &table, &[file.as_fd()]);
        stream
    };
    let words = |count: usize| vec![0; 8 * count];
    let unlocked = [
        (FrontendReq::SET_LOG_BASE, [PAGE_BYTES, 0].map(u64::to_ne_bytes).concat(), true),
        (FrontendReq::SET_INFLIGHT_FD, [PAGE_BYTES, 0, 5 | 64 << 16].map(u64::to_ne_bytes).concat(), true),
        (FrontendReq::GET_INFLIGHT_FD, [PAGE_BYTES, 0, 5 | 64 << 16].map(u64::to_ne_bytes).concat(), false),
        (FrontendReq::POSTCOPY_ADVISE, words(0), false),
        (FrontendReq::POSTCOPY_LISTEN, words(0), false),
        (FrontendReq::GPU_SET_SOCKET, words(0), true),
        // The region exists already. A region beyond the file's end is refused as in a table.
        (FrontendReq::ADD_MEM_REG, [0, 0, MEMORY_BYTES, 1 << 40, 0].map(u64::to_ne_bytes).concat(), true),
        (
            FrontendReq::ADD_MEM_REG,
            [0, 1 << 32, MEMORY_BYTES, 1 << 41, PAGE_BYTES].map(u64::to_ne_bytes).concat(),
            true,
        ),
    ];
    for socket in [&cluster, &ethernet] {
        for (request, body, has_file) in &unlocked {
            let stream = taken(socket);
            let files = [file.as_fd()];
            send(&stream, *request, 0, body, if *has_file { &files } else { &[] });
            assert!(is_hung_up(&stream), "{request:?}");
        }
        // These get a reply: an error, or an empty one.
        let stream = taken(socket);
        send(&stream, FrontendReq::SET_DEVICE_STATE_FD, 0, &words(1), &[file.as_fd()]);
        assert_eq!(answer(&stream), 0x101, "an error, and no descriptor");
        send(&stream, FrontendReq::CHECK_DEVICE_STATE, 0, &[], &[]);
        assert_eq!(answer(&stream), 1, "an error");
        send(&stream, FrontendReq::GET_SHARED_OBJECT, 0, &[1; 16], &[]);
        let mut empty = [1; 12];
        (&stream).read_exact(&mut empty).unwrap();
        assert_eq!(empty[8..], [0; 4], "no bytes, and no descriptor");
        // A reset of the device affects no other connection.
        send(&stream, FrontendReq::RESET_DEVICE, 0, &[], &[]);
        // Regions can be added, each of them checked, up to the maximum number of a table.
        let mut added = 0;
        while added < 1_000 {
            let address = (added + 1) << 32;
            let body = [0, address, PAGE_BYTES, 1 << 41 | address, 0].map(u64::to_ne_bytes).concat();
            let header =
                [FrontendReq::ADD_MEM_REG as u32, 1, body.len() as u32].map(u32::to_ne_bytes).concat();
            let message = [header, body].concat();
            let raw = [file.as_raw_fd()];
            let parts = [std::io::IoSlice::new(&message)];
            let control = [ControlMessage::ScmRights(&raw)];
            if sendmsg::<()>(stream.as_raw_fd(), &parts, &control, MsgFlags::MSG_NOSIGNAL, None).is_err() {
                break;
            }
            added += 1;
        }
        assert!(is_hung_up(&stream));
        scene.daemon.wait_for_log("the memory table has 33 regions; the maximum is 32");
        scene.daemon.forget_log();
    }
    scene.assert_others_go_on();
    scene.daemon.guest(1).statistics().unwrap();
}

/// Has the device request the mapping of its BAR over another channel, and reads the request without answering.
fn take_mapping_request(guest: &ClusterGuest) -> UnixStream {
    let (mut mute, theirs) = UnixStream::pair().unwrap();
    mute.set_read_timeout(Some(crate::common::TIMEOUT)).unwrap();
    {
        let connection = guest.connection();
        let features = connection.features().to_ne_bytes();
        let stream = connection.stream();
        assert_eq!(acknowledged(stream, FrontendReq::SET_BACKEND_REQ_FD, &[], &[theirs.as_fd()]), 0);
        // The device starts again, and requests the mapping of its BAR again.
        assert_eq!(acknowledged(stream, FrontendReq::SET_FEATURES, &features, &[]), 0);
    }
    guest.statistics().unwrap();
    let mut request = [0; 52];
    mute.read_exact(&mut request).unwrap();
    assert_eq!(request[..4], 9_u32.to_ne_bytes(), "SHMEM_MAP");
    mute
}

#[test]
fn mapping_request_that_outlives_its_connection_does_not_block() {
    let daemon = Process::start(2);
    let guest = daemon.guest(0);
    let mute = take_mapping_request(&guest);
    drop(guest);
    until("the connection's end", || !daemon.connected(0).0);
    daemon.guest(1).statistics().unwrap();
    // With its end of the channel closed, the front end is gone, and the daemon asks the next one.
    drop(mute);
    daemon.guest(0).statistics().unwrap();
}

#[test]
fn unanswered_mapping_request_is_counted_and_may_be_late() {
    let mut scene = Scene::new();
    let mut mute = take_mapping_request(&scene.hostile);
    scene.hostile.statistics().unwrap();
    scene.assert_counted("map_unanswered");
    scene.daemon.wait_for_log("has not answered the request to map the BAR");
    // The answer may be late.
    scene.daemon.forget_log();
    mute.write_all(&[9_u32, 1 | 4, 8, 0, 0].map(u32::to_ne_bytes).concat()).unwrap();
    scene.daemon.wait_for_log("has mapped the BAR into the guest's address space");
    scene.hostile.statistics().unwrap();
}

/// The words of a guest's BAR without the doorbell word, which the device changes at any time.
fn bar_words(guest: &ClusterGuest) -> Vec<u64> {
    let words = guest.bar().words().iter().map(|word| word.load(Ordering::Relaxed));
    let mut words: Vec<u64> = words.collect();
    let doorbell = std::mem::take(&mut words[INFO_DOORBELL_OFFSET as usize / 8]);
    assert!(doorbell < 64, "{doorbell:#x}");
    words
}

/// Guests of one node, one after the other and with resets. Each stores into the whole BAR, and the next one finds the
/// same contents as the first.
fn assert_nothing_is_left(connect: impl Fn() -> Arc<ClusterGuest>) {
    let mut fresh = None;
    for round in 0..3 {
        let guest = connect();
        let found = bar_words(&guest);
        let fresh = fresh.get_or_insert_with(|| found.clone());
        assert!(found == *fresh, "after guest {round}");
        let scribble = || {
            let words = guest.bar().words().iter();
            words.zip(1..).for_each(|(word, value)| word.store(!value, Ordering::Relaxed));
        };
        scribble();
        {
            let connection = guest.connection();
            let features = connection.features().to_ne_bytes();
            assert_eq!(acknowledged(connection.stream(), FrontendReq::SET_FEATURES, &features, &[]), 0);
        }
        assert!(bar_words(&guest) == *fresh, "after a reset of the device");
        scribble();
    }
}

#[test]
fn next_guest_finds_no_old_data_in_its_bar() {
    for model in MODELS {
        let lab = lab_with(1, |config| config.nodes[0].nic.model = (*model).into());
        assert_nothing_is_left(|| lab.guest(0).unwrap());
    }
    // The same in the sandbox.
    let daemon = Process::start(1);
    assert_nothing_is_left(|| daemon.guest(0));
    assert_eq!(daemon.count_in_log("cannot be given back"), 0);
}

/// Scheduler slice that a thread requests; thread 0 is the caller. None if the thread has ended.
fn slice_ns(thread: i32) -> Option<u64> {
    let mut attributes = [0_u64; 7];
    let bytes = size_of_val(&attributes);
    // SAFETY: the kernel writes at most `bytes` bytes, which `attributes` has.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, attributes.as_mut_ptr(), bytes, 0) };
    let error = std::io::Error::last_os_error();
    assert!(got == 0 || error.raw_os_error() == Some(libc::ESRCH), "{error}");
    // Size and policy, flags, nice and priority, runtime: sched_setattr(2).
    (got == 0).then_some(attributes[3])
}

#[test]
fn all_daemon_threads_are_in_the_sandbox() {
    let daemon = Process::start(2);
    daemon.wait_for_log("sandbox: ");
    let guest = daemon.guest(0);
    // Each thread, started at any time.
    let threads = || std::fs::read_dir(format!("/proc/{}/task", daemon.id())).unwrap().map(Result::unwrap);
    let mut looked_at = 0;
    for thread in threads() {
        // A thread may have ended in the meantime. It then has no status.
        let Ok(status) = std::fs::read_to_string(thread.path().join("status")) else { continue };
        let has = |line: &str| status.lines().any(|of_status| of_status == line);
        assert!(has("Seccomp:\t2") && has("NoNewPrivs:\t1"), "{status}");
        looked_at += 1;
    }
    assert!(looked_at > 2, "{looked_at} threads");
    guest.statistics().unwrap();
    // A request to the kernel for all threads was made earlier.
    let granted = std::thread::spawn(|| {
        let _short = ShortSlice::take();
        slice_ns(0)
    });
    let granted = granted.join().unwrap();
    for thread in threads() {
        let thread = thread.file_name().into_string().unwrap();
        let slice = slice_ns(thread.parse().unwrap());
        assert!(slice.is_none() || slice == granted, "thread {thread}: {slice:?}");
    }
    // The program reports the sandbox as well.
    let program = env!("CARGO_BIN_EXE_niclab-device");
    let said = std::process::Command::new(program).arg("sandbox").output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.contains("landlock") && said.contains("seccomp: only") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn sandboxed_daemon_removes_its_sockets() {
    let daemon = Process::start(1);
    let socket = daemon.cluster_socket(0);
    drop(daemon.guest(0));
    assert!(socket.exists());
    daemon.end();
    assert!(!socket.exists() && !socket.with_file_name("monitor").exists());
}

#[test]
fn connections_leave_no_descriptor_open() {
    let daemon = Process::start(2);
    // The first connections create what the process keeps.
    drop((daemon.guest(0), daemon.ethernet(0)));
    until("both are gone", || daemon.connected(0) == (false, false));
    let before = daemon.descriptors();
    for _ in 0..100 {
        drop((daemon.guest(0), daemon.ethernet(0)));
    }
    // The count may be lower, because the monitor's own connections come and go.
    until("all are gone", || daemon.connected(0) == (false, false) && daemon.descriptors() <= before);
}

#[test]
fn descriptors_of_a_full_cluster_are_within_the_count() {
    // All nodes are connected when the descriptors are counted.
    let open = |nodes: u16, queues| {
        let daemon = Process::with_queues(nodes, queues);
        let connect = |node| (daemon.guest(node), daemon.ethernet(node));
        let guests: Vec<_> = (0..nodes.into()).map(connect).collect();
        (daemon.descriptors() as u64, guests.len()).0
    };
    for queues in [1, 2, 5] {
        let (few, many) = (open(2, queues), open(5, queues));
        let of_a_node = (many - few) / 3;
        let counted = descriptors::DAEMON_PER_NODE + descriptors::of_queue_pairs(queues);
        // QEMU's memory tables have more regions than those of this front end, and each region has a descriptor.
        let counted = counted - 8..=counted;
        assert!(counted.contains(&of_a_node), "{of_a_node} for each node, counted {counted:?}");
        assert!(few - 2 * of_a_node <= descriptors::DAEMON_BASE, "{few} for two nodes, {of_a_node} for each");
    }
}

#[test]
fn listener_pauses_when_no_descriptor_is_left() {
    let daemon = Process::start(2);
    let guest = daemon.guest(1);
    // Open descriptors stay open, and the kernel grants no other one.
    daemon.limit_descriptors(3);
    let waiting = [
        UnixStream::connect(daemon.cluster_socket(0)).unwrap(),
        UnixStream::connect(daemon.cluster_socket(0)).unwrap(),
    ];
    daemon.wait_for_log("cannot accept a connection to the cluster function");
    for _ in 0..100 {
        guest.statistics().unwrap();
    }
    daemon.limit_descriptors(1024);
    daemon.wait_for_log("the daemon again accepts connections to the cluster function");
    assert_eq!(daemon.count_in_log("cannot accept a connection to the cluster function"), 1);
    drop(waiting);
    daemon.guest(0).statistics().unwrap();
}

#[test]
fn ring_addresses_outside_of_memory_are_refused() {
    let daemon = Process::start(1);
    let memory = Arc::new(GuestMemory::new(MEMORY_BYTES).unwrap());
    for spoilt in 0..3 {
        let connection = Connection::new(&daemon.cluster_socket(0), 5, 0, &memory).unwrap();
        let ring = DriverRing::new(&memory, 64).unwrap();
        let [table, available, used] = ring.addresses().map(|address| memory.host_address(address).unwrap());
        let mut body = [0, table, used, available, 0];
        body[1 + spoilt] = 0x40;
        daemon.forget_log();
        send(connection.stream(), FrontendReq::SET_VRING_ADDR, 0, &body.map(u64::to_ne_bytes).concat(), &[]);
        daemon.wait_for_log("is in no region of its memory table");
        until("the connection's end", || !daemon.connected(0).0);
    }
    daemon.guest(0).statistics().unwrap();
}

#[test]
fn vanishing_memory_of_one_node_does_not_affect_others() {
    let mut scene = Scene::new();
    for round in 0..20 {
        let guest = scene.daemon.guest(1);
        let file = memory_file(guest.memory());
        let place = guest.memory().allocate(64, 64).unwrap();
        guest.with_control_ring(|ring| {
            let buffer = Buffer { address: place, bytes: 32, writable: false };
            ring.add(&[buffer]).unwrap();
            ring.show().unwrap();
            file.set_len(if round % 2 == 0 { 0 } else { PAGE_BYTES }).unwrap();
            ring.ring().unwrap();
        });
        until("the connection's end", || !scene.daemon.connected(1).0);
    }
    assert_eq!(scene.daemon.violations(1).get("memory_vanished"), Some(&20));
    scene.assert_others_go_on();
    scene.hostile.statistics().unwrap();
}
