//! Frames between two Ethernet functions, in both directions at the same time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

use super::work::{self, Work};
use super::{BenchError, ledger_on_over_off};
use crate::ethernet::header::Offload;
use crate::frontend::{EthernetGuest, FrontendError};
use crate::lab::Lab;
use crate::shell::Shell;

/// Bytes of a frame, without its check sequence.
pub const FRAME_BYTES: usize = 64;

/// Descriptors of a queue.
pub const QUEUE_SIZE: u16 = 256;

/// Bytes of a buffer, as DPDK's.
pub const BUFFER_BYTES: u32 = 2176;

/// Frames queued before the device looks, as DPDK's burst.
const BURST: u32 = 32;

pub const WORK: Work = Work { name: "ethernet", unit: "Ethernet frame of 64 bytes", run: exchange };

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Bytes of a frame, without its check sequence.
    pub frame_bytes: u32,
    /// Frames a second that arrived, in each of the two directions: the mean of both.
    pub wall_frames_per_s_each: f64,
}

/// Guests at both ends, and the frames that they send.
pub struct Pair {
    guests: [EthernetGuest; 2],
    frames: [[u8; FRAME_BYTES]; 2],
    received: u64,
}

impl Pair {
    /// Guests that send frames with these addresses, each to the other.
    pub fn new(guests: [EthernetGuest; 2], macs: [[u8; 6]; 2]) -> Self {
        let frame = |from: [u8; 6], to: [u8; 6]| {
            let mut frame = [0; FRAME_BYTES];
            let header = to.iter().chain(&from).chain(&[0x08, 0x00]);
            for (place, byte) in frame.iter_mut().zip(header) {
                *place = *byte;
            }
            frame
        };
        let [a, b] = macs;
        Self { guests, frames: [frame(a, b), frame(b, a)], received: 0 }
    }

    /// One round: each guest queues a burst, then takes what has arrived.
    fn round(&mut self, device: impl FnOnce()) -> Result<(), FrontendError> {
        for (guest, frame) in self.guests.iter_mut().zip(&self.frames) {
            for _ in 0..BURST {
                if !guest.queue(&Offload::default(), frame)? {
                    break;
                }
            }
            guest.show()?;
        }
        device();
        for guest in &mut self.guests {
            while let Some(bytes) = guest.receive_short(|_, bytes| bytes)? {
                self.received += u64::from(bytes as usize == FRAME_BYTES);
            }
            guest.show()?;
        }
        Ok(())
    }

    /// Rounds for `duration`, with `device` in the middle of each.
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
                    wall_frames_per_s_each: frames / elapsed.as_secs_f64(),
                });
            }
        }
    }
}

/// Connects two guests with what a poll-mode driver negotiates.
pub fn connect(lab: &Lab) -> Result<Pair, BenchError> {
    let guest = |node| lab.ethernet_with(node, QUEUE_SIZE, BUFFER_BYTES, 1 << VIRTIO_NET_F_MRG_RXBUF);
    Ok(Pair::new([guest(0)?, guest(1)?], [lab.mac(0), lab.mac(1)]))
}

/// Carries out what both guests have queued.
fn serve(shell: &Shell) {
    let mut world = shell.world();
    for node in 0..2 {
        world.transmit(node);
    }
}

/// An exchange of so many frames, both directions together.
fn exchange(frames: u64) -> Result<u64, BenchError> {
    let lab = Lab::new(2, |_| ())?;
    let mut pair = connect(&lab)?;
    work::repeat(frames, "the exchange of frames", || {
        let before = pair.received;
        pair.round(|| serve(lab.daemon().shell()))?;
        Ok(pair.received - before)
    })
}

/// Front end and device in one thread, taking turns; then the same with ledgers over that without.
pub fn measure(duration: Duration) -> Result<(Figures, f64), BenchError> {
    let lab = Lab::new(2, |_| ())?;
    let mut pair = connect(&lab)?;
    let shell = lab.daemon().shell();
    let figures = pair.measure(duration, || serve(shell))?;
    let on_over_off = ledger_on_over_off(shell, duration, |turn| {
        Ok(pair.measure(turn, || serve(shell))?.wall_frames_per_s_each)
    })?;
    Ok((figures, on_over_off))
}

/// The device in a thread of its own.
pub fn measure_two_cores(duration: Duration) -> Result<Figures, BenchError> {
    let lab = Lab::new(2, |_| ())?;
    let mut pair = connect(&lab)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                serve(lab.daemon().shell());
            }
        });
        let figures = pair.measure(duration, || ());
        stop.store(true, Ordering::Relaxed);
        figures
    })
}
