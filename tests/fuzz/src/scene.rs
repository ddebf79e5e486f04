//! A cluster of four nodes without sockets: node 0 is hostile, node 1 is its partner, and nodes 2 and 3 are bystanders.

use niclab_device::shell::idle::deadlines;
use niclab_device::shell::service;
use niclab_device::shell::service::ethernet_function;
use niclab_device::shell::service::queues;
use std::path::PathBuf;
use std::sync::Arc;

use niclab_abi::bar::{CODE_LENGTH_SHIFT, SLOT_LAUNCH_WORD, launch_word};
use niclab_abi::control::{Authorize, OP_AUTHORIZE, OP_PORT_OPEN, OP_ROUTE, PortOpen, Reply, Request, Route};
use niclab_abi::region::{Extent, OP_REGION_OPEN, RegionOpen, RegionOpened};
use niclab_abi::{FromBytes, PAGE_BYTES, QUEUE_CONTROL, QUEUE_SIZE, QUEUES, ToBytes};
use niclab_device::config;
use niclab_device::ethernet::{Negotiated, QUEUE_RECEIVE, QUEUE_TRANSMIT};
use niclab_device::memory::DmaMemory;
use niclab_device::shell::card::host_port::HostPort;
use niclab_device::shell::card_frame::{CardFrame, SentFrame};
use niclab_device::shell::cluster::Cluster;
use niclab_device::shell::locks::LockedNodes;
use niclab_device::shell::pages::Pages;
use niclab_device::vring::Vring;
use niclab_model::fabric::ethernet::{ETHER_TYPE_CLUSTER, FrameClass, Header, mac_of_node};
use niclab_model::nic::{FrameBytes, Nic};
use niclab_model::parts::descriptor_ring::dec2114x::{BYTES, CHAINED, END_OF_RING, OWN};
use niclab_model::time::Time;
use niclab_spec::daemon::{DaemonConfig, NodeSockets};
use niclab_spec::{ClusterFile, ClusterName, Source};
use std::os::unix::fs::FileExt;
use vhost_user_backend::VringT;
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};

/// The number of nodes.
pub const NODES: u16 = 4;
/// The address of a guest's rings: 16 KiB for each queue, the cluster function first.
pub const RINGS: u64 = 0x1_0000;
const RING_BYTES: u64 = 0x4000;
/// The address of requests and frames.
pub const DATA: u64 = 0x8_0000;
/// The address of replies.
pub const REPLY: u64 = 0xa_0000;
/// The address of ports' slices.
pub const SLICES: u64 = 0xb_0000;
const STATUS: u64 = 0xc_0000;
/// The address of programs' registered memory.
const REGION: u64 = 0xd_0000;
/// The size of programs' registered memory.
pub const REGION_BYTES: u64 = 0x3_0000;
const MEMORY_BYTES: usize = 0x10_0000;
const SLICE_COUNT: u32 = 64;

/// One buffer of a chain.
#[derive(Clone, Copy)]
pub struct Piece {
    /// Guest-physical address.
    pub address: u64,
    /// Length.
    pub bytes: u32,
    /// The device may write it.
    pub writable: bool,
}

/// The device of all nodes, and the guests' memories.
pub struct Scene {
    /// The device's own code.
    cluster: Cluster,
    memories: Vec<GuestMemoryMmap>,
    offered: Vec<[u16; QUEUES as usize + 2]>,
    launched: u32,
}

impl Scene {
    /// All nodes, locked.
    pub fn lock_all(&self) -> LockedNodes<'_> {
        self.cluster.lock_all()
    }

    /// A cluster with all queues set up.
    pub fn new() -> Self {
        Self::of_cards("{}")
    }

    /// The same with the cards of this table of a cluster file.
    pub fn of_cards(nic: &str) -> Self {
        let source = Source::from_text("fuzz", format!("nodes = {NODES}\nnic = {nic}"));
        let cluster = source.parse::<ClusterFile>().and_then(|file| source.resolve(&file));
        let cluster = cluster.unwrap_or_else(|error| panic!("the scene itself: {error}"));
        let nowhere = |_| NodeSockets { cluster_socket: PathBuf::new(), ethernet_socket: PathBuf::new() };
        let config = DaemonConfig::new(&cluster, &ClusterName::default(), PathBuf::new(), nowhere);
        let (cluster, _) =
            config::build(&config, 1).unwrap_or_else(|error| panic!("the scene itself: {error}"));
        let mut scene = Self { cluster, memories: Vec::new(), offered: Vec::new(), launched: 0 };
        for node in 0..usize::from(NODES) {
            scene.attach(node);
        }
        scene
    }

    /// Gives a node memory and queues, as a front end does.
    fn attach(&mut self, node: usize) {
        let table = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]);
        let table = table.unwrap_or_else(|error| panic!("the scene itself: {error}"));
        let memory = GuestMemoryAtomic::new(table.clone());
        let dma = Arc::new(DmaMemory::new(&memory.memory(), None));
        let ring = |index: u64| {
            let vring = Vring::new(memory.clone(), QUEUE_SIZE as u16);
            let vring = vring.unwrap_or_else(|error| panic!("the scene itself: {error}"));
            let [descriptors, available, used] = ring_addresses(index);
            vring.set_queue_size(QUEUE_SIZE as u16);
            let set = vring.set_queue_info(descriptors, available, used);
            set.unwrap_or_else(|error| panic!("the scene itself: {error}"));
            vring.set_queue_ready(true);
            vring.set_enabled(true);
            vring
        };
        if let Some(card) = self.lock_all().nodes.card_mut(node) {
            card.host.memory = Arc::clone(&dma);
            card.host.vrings = (0..u64::from(QUEUES)).map(ring).collect();
        }
        if let Some(function) = self.lock_all().common.ethernet.functions.get_mut(node) {
            function.memory = dma;
            function.vrings = (0..2).map(|queue| ring(u64::from(QUEUES) + queue)).collect();
            function.negotiated = Negotiated::new(Negotiated::OFFERED);
        }
        self.memories.push(table);
        self.offered.push([0; QUEUES as usize + 2]);
    }

    /// Gives node 0 another card, whose driver has started.
    pub fn set_card(&mut self, nic: impl Nic + Send + 'static) {
        if let Some(card) = self.lock_all().nodes.card_mut(0) {
            (card.nic, card.host.state.is_running) = (Box::new(nic), true);
        }
    }

    /// Writes to the memory of node 0, up to its end.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        self.write_to(0, address, bytes);
    }

    /// Writes to the memory of a node, up to its end.
    pub fn write_to(&mut self, node: usize, address: u64, bytes: &[u8]) {
        let room = MEMORY_BYTES.saturating_sub(address as usize);
        let bytes = bytes.get(..room).unwrap_or(bytes);
        if let Some(memory) = self.memories.get(node) {
            let _ = memory.write_slice(bytes, GuestAddress(address));
        }
    }

    /// Reads the memory of a node.
    pub fn read(&self, node: usize, address: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        if let Some(memory) = self.memories.get(node) {
            let _ = memory.read_slice(&mut read, GuestAddress(address));
        }
        read
    }

    /// Writes to a page of a node's BAR.
    pub fn write_bar(&mut self, node: usize, page: impl FnOnce(&Pages) -> u32, offset: u64, bytes: &[u8]) {
        if let Some(HostPort { pages, .. }) = self.lock_all().nodes.card(node).map(|card| &card.host) {
            let _ = pages.bar.file().write_all_at(bytes, u64::from(page(pages)) * PAGE_BYTES + offset);
        }
    }

    /// Offers a valid chain in a queue of node 0.
    pub fn offer(&mut self, queue: u32, chain: &[Piece]) {
        self.offer_to(0, queue as usize, chain);
    }

    fn offer_to(&mut self, node: usize, queue: usize, chain: &[Piece]) {
        let [descriptors, available, _] = ring_addresses(queue as u64);
        let Some(count) = self.offered.get_mut(node).and_then(|rings| rings.get_mut(queue)) else { return };
        let entry = *count % QUEUE_SIZE as u16;
        *count = count.wrapping_add(1);
        let index = *count;
        // Chains of at most four descriptors, each in a separate part of the table.
        let first = entry % (QUEUE_SIZE as u16 / 4) * 4;
        for (number, piece) in (0_u16..).zip(chain) {
            let has_next = usize::from(number) + 1 < chain.len();
            let flags = u16::from(has_next) | if piece.writable { 2 } else { 0 };
            let mut bytes = piece.address.to_le_bytes().to_vec();
            bytes.extend(piece.bytes.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend((first + number + 1).to_le_bytes());
            self.write_to(node, descriptors + u64::from(first + number) * 16, &bytes);
        }
        self.write_to(node, available + 4 + 2 * u64::from(entry), &first.to_le_bytes());
        self.write_to(node, available + 2, &index.to_le_bytes());
    }

    /// Sends `frame` after `header` from the Ethernet function of `node`. The other nodes have offered one buffer for
    /// it.
    pub fn transmit(&mut self, node: usize, header: &[u8; 12], frame: &[u8]) {
        for other in 0..usize::from(NODES) {
            let room = Piece { address: SLICES + 0x8000, bytes: 0x8000, writable: true };
            self.offer_to(other, QUEUES as usize + QUEUE_RECEIVE, &[room]);
        }
        let bytes = [&header[..], frame].concat();
        self.write_to(node, DATA, &bytes);
        let piece = Piece { address: DATA, bytes: bytes.len() as u32, writable: false };
        self.offer_to(node, QUEUES as usize + QUEUE_TRANSMIT, &[piece]);
        ethernet_function::transmit(&mut self.lock_all(), node, 0);
    }

    /// Sends a frame from node 1 to the wire, as a faulty card would.
    pub fn inject(&mut self, frame: FrameBytes) {
        let mut locked = self.lock_all();
        let LockedNodes { nodes, common } = &mut locked;
        let class = FrameClass::of(&frame);
        let frame = CardFrame::Owned(frame.into());
        let sent = SentFrame { ready: Time::ZERO.into(), frame, message: None, class };
        common.network.keep(nodes, 1, sent);
        service::serve_pages(&mut locked, 0);
        deadlines::pass_time(&mut locked);
    }

    fn request<T: ToBytes>(&mut self, node: usize, operation: u32, body: &T) {
        self.request_bytes(node, operation, &bytes_of(body));
    }

    /// Bytes that the driver of node 0 offers as a control request.
    pub fn ask(&mut self, request: &[u8]) {
        self.write(DATA, request);
        let chain = [
            Piece { address: DATA, bytes: request.len() as u32, writable: false },
            Piece { address: REPLY, bytes: 144, writable: true },
        ];
        self.offer(QUEUE_CONTROL, &chain);
        queues::serve_control(&mut self.lock_all(), 0);
    }

    /// A control request of a node's driver.
    pub fn request_bytes(&mut self, node: usize, operation: u32, body: &[u8]) {
        let mut bytes = bytes_of(&Request { operation, body_bytes: body.len() as u32 });
        bytes.extend(body);
        self.write_to(node, DATA, &bytes);
        let chain = [
            Piece { address: DATA, bytes: bytes.len() as u32, writable: false },
            Piece { address: REPLY, bytes: 144, writable: true },
        ];
        self.offer_to(node, QUEUE_CONTROL as usize, &chain);
        queues::serve_control(&mut self.lock_all(), node);
    }

    /// Opens port 0 of two nodes, and authorizes the first to send to the second. Returns their port numbers.
    pub fn connect(&mut self, from: usize, to: usize) -> [u32; 2] {
        for node in [from, to] {
            self.request(node, OP_PORT_OPEN, &opening());
        }
        let authorize = Authorize { port: 0, node: from as u32, node_port: 0, credits: SLICE_COUNT };
        self.request(to, OP_AUTHORIZE, &authorize);
        self.request(from, OP_ROUTE, &Route { port: 0, node: to as u32, node_port: 0, reserved: 0 });
        [0, 0]
    }

    /// Opens port 0 of a node, and registers memory of its program. Returns the region's name.
    pub fn open_region(&mut self, node: usize) -> u32 {
        self.request(node, OP_PORT_OPEN, &opening());
        self.request_bytes(node, OP_REGION_OPEN, &region_open());
        let reply = self.read(node, REPLY + Reply::BYTES as u64, RegionOpened::BYTES);
        RegionOpened::from_bytes(&reply).map_or(0, |opened| opened.region)
    }

    /// Checks that two uninvolved nodes can still exchange a message.
    pub fn check_bystanders(&mut self) {
        self.connect(2, 3);
        self.launched += 1;
        let word = launch_word(8 << CODE_LENGTH_SHIFT, 1).to_le_bytes();
        self.write_bar(2, |pages| pages.bar.requester_page(0), SLOT_LAUNCH_WORD as u64 * 8, &word);
        service::serve_pages(&mut self.lock_all(), 2);
        let received = self.lock_all().nodes.card(3).map(|card| card.statistics().packets_received);
        assert_eq!(received, Some(1), "the bystanders' message did not arrive");
    }
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

fn ring_addresses(index: u64) -> [u64; 3] {
    let base = RINGS + index * RING_BYTES;
    [base, base + 0x1000, base + 0x2000]
}

/// The bytes of a layout, as a driver writes them.
pub fn bytes_of<T: ToBytes>(layout: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::BYTES];
    layout.to_bytes(&mut bytes);
    bytes
}

/// The request with which programs open their ports.
pub fn opening() -> PortOpen {
    PortOpen {
        port: 0,
        slices: SLICE_COUNT,
        slices_address: SLICES,
        status_address: STATUS,
        ..PortOpen::default()
    }
}

/// The request with which programs register memory.
pub fn region_open() -> Vec<u8> {
    let open = RegionOpen { port: 0, extents: 1, bytes: REGION_BYTES, reserved: 0 };
    [bytes_of(&open), bytes_of(&Extent { address: REGION, bytes: REGION_BYTES })].concat()
}

/// The header of a cluster frame between two nodes.
pub fn ethernet_header(from: u16, to: u16) -> [u8; 14] {
    Header { destination: mac_of_node(to), source: mac_of_node(from), ether_type: ETHER_TYPE_CLUSTER }.emit()
}

/// The valid inputs of a target, from which mutations begin.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "control" => vec![control_seed()],
        "ring" | "chains" => vec![ring_seed()],
        "descriptors" => vec![descriptor_seed()],
        "launch" => {
            vec![(0..32_u8).flat_map(|slot| [slot, 0, 8, 0x40, 7, 1, 0, slot << 3].repeat(16)).collect()]
        }
        _ => frame_seeds(),
    }
}

/// Appends a control request to others, after a byte with its length.
pub fn push_request(input: &mut Vec<u8>, operation: u32, body: &[u8]) {
    input.push((Request::BYTES + body.len()) as u8);
    input.extend(bytes_of(&Request { operation, body_bytes: body.len() as u32 }));
    input.extend(body);
}

fn control_seed() -> Vec<u8> {
    let mut input = Vec::new();
    let mut add = |operation: u32, body: &[u8]| push_request(&mut input, operation, body);
    let mut open = [0; PortOpen::BYTES];
    PortOpen { slices: 8, slices_address: SLICES, status_address: STATUS, ..PortOpen::default() }
        .to_bytes(&mut open);
    add(OP_PORT_OPEN, &open);
    let words = |values: &[u32]| -> Vec<u8> { values.iter().flat_map(|value| value.to_le_bytes()).collect() };
    add(OP_AUTHORIZE, &words(&[0, 1, 0, 4]));
    add(OP_ROUTE, &words(&[0, 1, 0, 0]));
    add(niclab_abi::control::OP_COUNTERS, &[0; 8]);
    add(niclab_abi::control::OP_REVOKE, &words(&[0, 1, 0, 0]));
    add(niclab_abi::control::OP_PORT_CLOSE, &words(&[0, 0]));
    add(niclab_abi::control::OP_RESET, &[]);
    input
}

/// The rings of a guest that has offered one chain in every queue.
fn ring_seed() -> Vec<u8> {
    let mut scene = Scene::new();
    for queue in 0..QUEUES as usize + 2 {
        let is_for_reading = queue != QUEUE_CONTROL as usize && queue != QUEUES as usize + QUEUE_TRANSMIT;
        let chain = [
            Piece { address: DATA, bytes: 64, writable: is_for_reading },
            Piece { address: REPLY, bytes: 64, writable: queue != QUEUES as usize + QUEUE_TRANSMIT },
        ];
        scene.offer_to(0, queue, &chain);
    }
    let mut bytes = vec![0; (RING_BYTES * (u64::from(QUEUES) + 2)) as usize];
    if let Some(memory) = scene.memories.first() {
        let _ = memory.read_slice(&mut bytes, GuestAddress(RINGS));
    }
    bytes
}

/// Two rings of four descriptors, each with two buffers or chained to the next.
fn descriptor_seed() -> Vec<u8> {
    const ENTRIES: u64 = 4;
    let ring_bytes = ENTRIES * BYTES;
    let mut input = vec![ring_bytes as u8];
    for entry in 0..2 * ENTRIES {
        let is_chained = entry >= ENTRIES;
        let flag = match entry % ENTRIES {
            3 => END_OF_RING,
            _ if is_chained => CHAINED,
            _ => 0,
        };
        let control = flag | 40 << 11 | 40;
        let buffer = (REPLY + 128 * entry) as u32;
        let second = if is_chained { (DATA + (entry + 1) * BYTES) as u32 } else { buffer + 64 };
        [OWN, control, buffer, second].iter().for_each(|word| input.extend(word.to_le_bytes()));
    }
    input
}

/// Frames that the model itself sends on request, and an Internet packet that must be segmented.
fn frame_seeds() -> Vec<Vec<u8>> {
    use niclab_model::nic::alone::Alone;
    use niclab_model::nic::{Input, Nic, Output, PageStore};
    let profile = niclab_model::platform::profile::Profile::ultra_200mhz_htx();
    let mut seeds = Vec::new();
    let config = niclab_model::models::ultra::Config::new(1, 4, profile);
    if let Ok(mut nic) = niclab_model::models::ultra::Ultra::new(config).map(Alone::new) {
        let mut request = |operation: u32, body: &[u8]| {
            let header = [operation.to_le_bytes(), (body.len() as u32).to_le_bytes()].concat();
            nic.handle(Time::ZERO, Input::Control { token: 0, request: &[&header, body].concat() });
            while let Some(output) = nic.poll_output() {
                if let Output::Frame { frame, .. } = output {
                    seeds.push(frame.get(14..).unwrap_or_default().to_vec());
                }
            }
        };
        let mut open = [0; PortOpen::BYTES];
        PortOpen { slices: 8, slices_address: SLICES, status_address: STATUS, ..PortOpen::default() }
            .to_bytes(&mut open);
        request(OP_PORT_OPEN, &open);
        request(OP_ROUTE, &[0; 16]);
        request(OP_AUTHORIZE, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]);
        nic.handle(Time::ZERO, Input::PageStore(PageStore { port: 0, code: 0, words: [7; 10] }));
    }
    let mut internet = vec![1, 1, 54, 0, 100, 0, 34, 0, 16, 0, 0, 0];
    internet.extend([2, b'n', b'l', 0, 0, 1, 2, b'n', b'l', 0, 0, 0, 8, 0, 0x45]);
    internet.extend([0; 8]);
    internet.push(6);
    internet.resize(12 + 34 + 12, 0);
    internet.push(0x50);
    internet.resize(600, 3);
    seeds.push(internet);
    seeds
}
