//! Collectives and a ping-pong over active ports of GAMMA cards, on all nodes of a cluster: a starting point for
//! authors of message layers.
//!
//!     cargo build --release --package niclab-user --example gamma_collectives
//!     niclab run --nodes 4 --nic gamma -- target/release/examples/gamma_collectives
//!
//! When the program polls an active port, its handler runs for each message. Here the handler does the minimum that a
//! message layer needs: it stores the message by sender and step. A collective then consists of sends and waits.
//! `barrier` runs rounds that double the distance; `broadcast` and `reduce` follow a binomial tree.
//!
//! A loss in the network is reported as an error and never repaired: it ends this program.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use niclab_user::gamma::{Port, PortOptions};
use niclab_user::{Address, Device, Error};

/// The port of all nodes.
const PORT: u32 = 1;
/// Receive buffers, and the longest message.
const BUFFERS: u32 = 64;
const BUFFER_BYTES: u32 = 128 << 10;
/// How long any message may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Interval at which a node greets nodes that have not answered.
const GREETING: Duration = Duration::from_millis(20);
/// Bytes of the step, which precedes each message.
const STEP_BYTES: usize = 4;
/// Step of greetings; collectives count from the next.
const HELLO: u32 = 0;

/// The nodes of a group, as seen by one of them.
struct Group {
    port: Port,
    rank: u32,
    size: u32,
    /// Collectives begun: the same number at all nodes, because all begin the same ones in the same order.
    step: u32,
    /// Received messages that were not waited for yet, by sender and step.
    inbox: HashMap<(u32, u32), Vec<u8>>,
}

impl Group {
    /// Opens the port and waits for all other nodes: a message for a port that is not open is dropped.
    fn meet(device: &Device) -> Result<Self, Error> {
        let port = Port::open(device, PortOptions::default().port(PORT).buffers(BUFFERS, BUFFER_BYTES))?;
        let (rank, size) = (port.address().node, device.info().nodes);
        let mut group = Self { port, rank, size, step: HELLO, inbox: HashMap::new() };
        let mut unmet: Vec<u32> = (0..size).filter(|&node| node != rank).collect();
        let begun = Instant::now();
        while !unmet.is_empty() {
            for &node in &unmet {
                group.send(node, HELLO, &[])?;
            }
            match group.look(GREETING) {
                Err(Error::TimedOut { .. }) if begun.elapsed() < LIMIT => continue,
                looked => looked?,
            }
            for known in unmet.extract_if(.., |node| group.inbox.contains_key(&(*node, HELLO))) {
                // A node that has sent a greeting has opened its port, so it receives this one.
                group.send(known, HELLO, &[])?;
            }
        }
        Ok(group)
    }

    fn send(&self, node: u32, step: u32, data: &[u8]) -> Result<(), Error> {
        let message = [&step.to_le_bytes(), data].concat();
        self.port.send(Address { node, port: PORT }, &message, LIMIT)
    }

    /// Runs the handler for the next message, which stores it.
    fn look(&mut self, limit: Duration) -> Result<(), Error> {
        let inbox = &mut self.inbox;
        self.port.receive(limit, |message| {
            let mut data = vec![0; message.bytes()];
            message.read(0, &mut data);
            if let Some((step, rest)) = data.split_first_chunk::<STEP_BYTES>() {
                inbox.insert((message.source().node, u32::from_le_bytes(*step)), rest.to_vec());
            }
        })
    }

    /// Waits for the message of a node in a step.
    fn wait(&mut self, node: u32, step: u32) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(data) = self.inbox.remove(&(node, step)) {
                return Ok(data);
            }
            self.look(LIMIT)?;
        }
    }

    fn next(&mut self) -> u32 {
        self.step += 1;
        self.step
    }

    /// Returns once all nodes have reached the barrier.
    fn barrier(&mut self) -> Result<(), Error> {
        let mut distance = 1;
        while distance < self.size {
            let step = self.next();
            self.send((self.rank + distance) % self.size, step, &[])?;
            self.wait((self.rank + self.size - distance) % self.size, step)?;
            distance *= 2;
        }
        Ok(())
    }

    /// The children of this node in the binomial tree of `root`, the farthest first, and its parent.
    fn tree(&self, root: u32) -> (Vec<u32>, Option<u32>) {
        let place = (self.rank + self.size - root) % self.size;
        let node = |place: u32| (place + root) % self.size;
        let reach = if place == 0 { self.size.next_power_of_two() } else { place & place.wrapping_neg() };
        let below = (0..reach.trailing_zeros()).rev().map(|bit| place + (1 << bit));
        let above = (place > 0).then(|| node(place - reach));
        (below.filter(|place| *place < self.size).map(node).collect(), above)
    }

    /// Sends the root's data to all nodes.
    fn broadcast(&mut self, root: u32, data: Vec<u8>) -> Result<Vec<u8>, Error> {
        let step = self.next();
        let (below, above) = self.tree(root);
        let data = match above {
            Some(node) => self.wait(node, step)?,
            None => data,
        };
        for node in below {
            self.send(node, step, &data)?;
        }
        Ok(data)
    }

    /// Returns the element-wise sums of all nodes' values at the root; `None` at the others.
    fn reduce(&mut self, root: u32, mut values: Vec<u64>) -> Result<Option<Vec<u64>>, Error> {
        let step = self.next();
        let (below, above) = self.tree(root);
        for node in below.into_iter().rev() {
            let data = self.wait(node, step)?;
            let other = data
                .chunks_exact(8)
                .map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
            values.iter_mut().zip(other).for_each(|(value, other)| *value = value.wrapping_add(other));
        }
        let Some(node) = above else { return Ok(Some(values)) };
        let data: Vec<u8> = values.into_iter().flat_map(u64::to_le_bytes).collect();
        self.send(node, step, &data)?;
        Ok(None)
    }

    /// Nodes 0 and 1 play ping-pong. Returns half of the round-trip time at node 0.
    fn ping_pong(&mut self, bytes: usize, rounds: u32) -> Result<Option<Duration>, Error> {
        let ball = vec![7; bytes];
        let begun = Instant::now();
        for _ in 0..rounds {
            let step = self.next();
            match self.rank {
                0 => {
                    self.send(1, step, &ball)?;
                    self.wait(1, step)?;
                }
                1 => {
                    let came = self.wait(0, step)?;
                    self.send(0, step, &came)?;
                }
                _ => {}
            }
        }
        Ok((self.rank == 0).then(|| begun.elapsed() / rounds / 2))
    }
}

fn main() -> Result<(), Error> {
    let device = Device::open_first()?;
    let mut group = Group::meet(&device)?;
    let (rank, size) = (group.rank, group.size);
    for round in 0..20 {
        group.barrier()?;
        // Each node is the root in turn, with data of no frame, of one frame, and of more than a window.
        let root = round % size;
        let bytes = [0, 1, 1_400, 100_000][round as usize % 4];
        let data = if rank == root { vec![round as u8; bytes] } else { Vec::new() };
        assert_eq!(group.broadcast(root, data)?, vec![round as u8; bytes], "round {round}");
        let values = (0..1_000).map(|element| u64::from(rank) * element + u64::from(round)).collect();
        if let Some(sums) = group.reduce(root, values)? {
            let ranks: u64 = (0..u64::from(size)).sum();
            let is_sum = |(element, sum): (u64, &u64)| *sum == ranks * element + u64::from(size * round);
            assert!((0..).zip(&sums).all(is_sum), "round {round}");
        }
    }
    for bytes in [16, 1_400, 30_000] {
        group.barrier()?;
        if let Some(one_way) = group.ping_pong(bytes, 50)? {
            println!("{bytes} bytes: {one_way:?} one way, of this machine's time");
        }
    }
    group.barrier()?;
    println!("node {rank} of {size}: barriers, broadcasts and sums are right");
    Ok(())
}
