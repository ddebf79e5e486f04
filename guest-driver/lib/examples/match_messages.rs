//! MPI-like messages through Match NICs, on all nodes of a cluster:
//!
//!     niclab run --nodes 3 --nic match -- ./messages
//!
//! Each node sends short and long messages to every other node, and receives theirs in any order of nodes.

use std::time::Duration;

use niclab_user::matching::messages::{Endpoint, Options, Request};
use niclab_user::matching::{Port, PortOptions};
use niclab_user::{Device, Error};

/// Messages to each other node.
const COUNT: u32 = 40;
/// Bytes of the longest message.
const MOST: usize = 64 << 10;
const LIMIT: Duration = Duration::from_secs(30);

/// Length of message `tag`: 0, 1, 3, 9, ... 59,049 bytes, repeating.
fn bytes(tag: u32) -> usize {
    match tag % 12 {
        0 => 0,
        power => 3_usize.pow(power - 1),
    }
}

/// The byte that fills a message.
fn content(node: u32, tag: u32) -> u8 {
    (node * 7 + tag) as u8
}

fn main() -> Result<(), Error> {
    let device = Device::open_first()?;
    let nodes = device.info().nodes;
    let mut here =
        Endpoint::new(Port::open(&device, PortOptions::default().port(0))?, nodes, Options::default())?;
    let others: Vec<u32> = (0..nodes).filter(|&node| node != here.node()).collect();

    let out = here.allocate(COUNT as usize * MOST)?;
    let mut sends: Vec<Request> = Vec::new();
    for tag in 0..COUNT {
        let begin = tag as usize * MOST;
        out.write(begin, &vec![content(here.node(), tag); bytes(tag)])?;
        for &node in &others {
            sends.push(here.isend(node, tag, &out, begin..begin + bytes(tag))?);
        }
    }

    let into = here.allocate(MOST)?;
    let mut next = vec![0; nodes as usize];
    let mut received = vec![0; MOST];
    for _ in 0..COUNT * others.len() as u32 {
        let message = here.recv(None, None, &into, 0..MOST, LIMIT)?;
        into.read(0, &mut received)?;
        // Messages of each node arrive in order, complete and intact.
        let expected = &mut next[message.node as usize];
        assert_eq!((message.tag, message.bytes), (*expected, bytes(*expected)));
        let content = content(message.node, message.tag);
        assert!(received[..message.bytes].iter().all(|&byte| byte == content));
        *expected += 1;
    }
    for send in sends {
        here.wait(send, LIMIT)?;
    }
    println!("node {}: {COUNT} messages from each of {} nodes", here.node(), others.len());
    Ok(())
}
