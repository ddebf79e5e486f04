//! Frames between two Ethernet functions, in both directions at the same time.

use crate::shell::service::ethernet_function;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use niclab_spec::daemon::DaemonConfig;
use serde::Serialize;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

use super::work::{self, Work};
use super::{BenchError, ledger_on_over_off};
use crate::ethernet::frame::Frame;
use crate::ethernet::header::Offload;
use crate::ethernet::steering::Pairs;
use crate::frontend::{EthernetGuest, FrontendError};
use crate::lab::Lab;
use crate::shell::Shell;

/// Bytes of a frame, without its check sequence.
pub const FRAME_BYTES: usize = 64;

/// Descriptors of a queue.
pub const QUEUE_SIZE: u16 = 256;

/// Bytes of a buffer, as DPDK's.
pub const BUFFER_BYTES: u32 = 2176;

/// Frames that are queued before the device polls, as DPDK's burst.
const BURST: u32 = 32;

pub const WORK: Work = Work { name: "ethernet", unit: "Ethernet frame of 64 bytes", run: exchange };

/// The figures.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Bytes of a frame, without its check sequence.
    pub frame_bytes: u32,
    /// Queue pairs of each end.
    pub queue_pairs: usize,
    /// Delivered frames per second in each of the two directions: the mean of both.
    pub wall_frames_per_s_each: f64,
}

/// Guests at both ends, and their frames.
pub struct Pair {
    guests: [EthernetGuest; 2],
    /// The frame that each guest sends, by queue pair.
    frames: [Vec<[u8; FRAME_BYTES]>; 2],
    received: u64,
}

/// A frame between two addresses for each of `pairs` queue pairs. A receiver with `pairs` pairs gets it on that pair.
fn frames(from: [u8; 6], to: [u8; 6], pairs: usize) -> Vec<[u8; FRAME_BYTES]> {
    let with_port = |port: u16| {
        let mut frame = [0; FRAME_BYTES];
        let ethernet = to.iter().chain(&from).chain(&[0x08, 0x00]).copied();
        // IPv4 and UDP, with the fields that belong to the flow. One pair needs no flows.
        let ip = [0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2];
        let ip_bytes = if pairs > 1 { ip.len() + 2 } else { 0 };
        let rest = ip.into_iter().chain(port.to_be_bytes()).take(ip_bytes);
        frame.iter_mut().zip(ethernet.chain(rest)).for_each(|(place, byte)| *place = byte);
        frame
    };
    let of_pair = |pair: usize| {
        let is_of_pair = |frame: &[u8; FRAME_BYTES]| {
            let mut bytes = *frame;
            Pairs::first(pairs).choose(&mut Frame::from_bytes(&mut bytes)) == Some(pair)
        };
        (0..u16::MAX).map(with_port).find(is_of_pair)
    };
    (0..pairs).filter_map(of_pair).collect()
}

impl Pair {
    /// Guests that send frames to each other with these addresses, over all of their queue pairs.
    pub fn new(mut guests: [EthernetGuest; 2], macs: [[u8; 6]; 2]) -> Self {
        let [a, b] = macs;
        let [first, second] = guests.each_mut().map(|guest| guest.pairs().len());
        Self { guests, frames: [frames(a, b, first), frames(b, a, second)], received: 0 }
    }

    /// Queue pairs of each guest.
    fn queue_pairs(&self) -> usize {
        self.frames.iter().map(Vec::len).max().unwrap_or_default()
    }

    /// One round: each guest queues a burst, then takes what has arrived.
    fn round(&mut self, device: impl FnOnce()) -> Result<(), FrontendError> {
        for (guest, frames) in self.guests.iter_mut().zip(&self.frames) {
            for (pair, frame) in guest.pairs().iter_mut().zip(frames) {
                for _ in 0..BURST {
                    if !pair.queue(&Offload::default(), frame)? {
                        break;
                    }
                }
                pair.show()?;
            }
        }
        device();
        for guest in self.guests.iter_mut().flat_map(EthernetGuest::pairs) {
            while let Some(bytes) = guest.receive_short(|_, bytes| bytes)? {
                self.received += u64::from(bytes as usize == FRAME_BYTES);
            }
            guest.show()?;
        }
        Ok(())
    }

    /// Runs rounds for `duration`, with `device` in the middle of each.
    pub fn measure(&mut self, duration: Duration, mut device: impl FnMut()) -> Result<Figures, BenchError> {
        let begin = Instant::now();
        let mut last = (begin, 0);
        let before = self.received;
        loop {
            for _ in 0..64 {
                self.round(&mut device)?;
            }
            let now = Instant::now();
            if self.received != last.1 {
                last = (now, self.received);
            } else if now - last.0 > Duration::from_secs(2) {
                return Err(BenchError::Stalled { what: "the exchange of frames", wall_ms: 2_000 });
            }
            let elapsed = now - begin;
            if elapsed >= duration {
                let frames = (self.received - before) as f64 / 2.0;
                return Ok(Figures {
                    frame_bytes: FRAME_BYTES as u32,
                    queue_pairs: self.queue_pairs(),
                    wall_frames_per_s_each: frames / elapsed.as_secs_f64(),
                });
            }
        }
    }
}

/// Two nodes whose Ethernet functions have this number of queue pairs.
fn lab(pairs: usize) -> Result<Lab, BenchError> {
    let set = |config: &mut DaemonConfig| config.nodes.iter_mut().for_each(|node| node.queues = pairs as u32);
    Ok(Lab::new(2, set)?)
}

/// Connects two guests with the features that a poll-mode driver negotiates.
fn connect(lab: &Lab, pairs: usize) -> Result<Pair, BenchError> {
    let features = 1 << VIRTIO_NET_F_MRG_RXBUF;
    let guest = |node| lab.ethernet_pairs(node, pairs, QUEUE_SIZE, BUFFER_BYTES, features);
    Ok(Pair::new([guest(0)?, guest(1)?], [lab.mac(0), lab.mac(1)]))
}

/// Has the device send the frames that both guests have queued.
fn serve(shell: &Shell, pairs: usize) {
    let mut locked = shell.lock_all();
    for node in 0..2 {
        for pair in 0..pairs {
            ethernet_function::transmit(&mut locked, node, pair);
        }
    }
}

/// Exchanges `frames` frames, both directions together.
fn exchange(frames: u64) -> Result<u64, BenchError> {
    let lab = lab(1)?;
    let mut pair = connect(&lab, 1)?;
    work::repeat(frames, "the exchange of frames", || {
        let before = pair.received;
        pair.round(|| serve(lab.daemon().shell(), 1))?;
        Ok(pair.received - before)
    })
}

/// Front end and device alternate in one thread. Returns also the rate with ledgers over that without.
pub fn measure(duration: Duration, pairs: usize) -> Result<(Figures, f64), BenchError> {
    let lab = lab(pairs)?;
    let mut pair = connect(&lab, pairs)?;
    let shell = lab.daemon().shell();
    let figures = pair.measure(duration, || serve(shell, pairs))?;
    let on_over_off = ledger_on_over_off(shell, duration, |time| {
        Ok(pair.measure(time, || serve(shell, pairs))?.wall_frames_per_s_each)
    })?;
    Ok((figures, on_over_off))
}

/// The device has its own thread.
pub fn measure_two_cores(duration: Duration, pairs: usize) -> Result<Figures, BenchError> {
    let lab = lab(pairs)?;
    let mut pair = connect(&lab, pairs)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                serve(lab.daemon().shell(), pairs);
            }
        });
        let figures = pair.measure(duration, || ());
        stop.store(true, Ordering::Relaxed);
        figures
    })
}
