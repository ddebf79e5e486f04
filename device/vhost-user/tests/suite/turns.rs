//! One poll of a guest's queue does one budget of work and no more, even if the queue is full. Then other threads get
//! the locks.

use crate::common::{frame, lab};
use niclab_device::ethernet::Negotiated;
use niclab_device::ethernet::header::{Checksum, Family, Offload, Segmentation};
use niclab_device::ring::Buffer;
use niclab_device::shell::service::ethernet_function;
use niclab_device::shell::service::queues;

/// Polls until there is no more work. Returns the number of polls.
fn looks(mut look: impl FnMut() -> bool) -> u32 {
    let mut looks = 1;
    while look() {
        looks += 1;
        assert!(looks < 10_000, "the work does not end");
    }
    looks
}

#[test]
fn queue_full_of_invalid_chains_takes_several_budgets() {
    let lab = lab(2);
    let hostile = lab.guest(0).unwrap();
    let address = hostile.memory().allocate(64, 8).unwrap();
    let before = hostile.statistics().unwrap();
    let shell = lab.daemon().shell();
    // No doorbell is rung, and only this thread polls: the device's own thread may still process the previous request.
    let mut locked = shell.lock_all();
    let chains = hostile.with_control_ring(|ring| {
        let mut chains = 0;
        while ring.add(&[Buffer { address, bytes: 8, writable: false }]).unwrap().is_some() {
            chains += 1;
        }
        ring.show().unwrap();
        chains
    });
    assert!(looks(|| queues::serve_control(&mut locked, 0)) > 1, "one poll processes all {chains} chains");
    drop(locked);
    let returned = hostile.with_control_ring(|ring| {
        let mut returned = 0;
        while let Some((head, _)) = ring.poll_used().unwrap() {
            ring.reclaim(head).unwrap();
            returned += 1;
        }
        returned
    });
    assert_eq!(returned, chains);
    assert_eq!(hostile.statistics().unwrap()["control_refused"], before["control_refused"]);
}

#[test]
fn queue_full_of_long_frames_takes_several_budgets() {
    let lab = lab(2);
    let mut hostile = lab.ethernet_with(0, 256, 66_000, Negotiated::OFFERED).unwrap();
    let _other = lab.ethernet(1, 0).unwrap();
    let mut long = frame(lab.mac(0), lab.mac(1), 34 + 20 + 64 * 1_000);
    long[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    long[46] = 5 << 4;
    let offload = Offload {
        checksum: Some(Checksum { start: 34, offset: 16 }),
        segmentation: Some(Segmentation { family: Family::V4, payload_bytes: 64 }),
    };
    let shell = lab.daemon().shell();
    let mut locked = shell.lock_all();
    let mut frames = 0;
    while hostile.queue(&offload, &long).unwrap() {
        frames += 1;
    }
    hostile.show().unwrap();
    // A thousand segments are more than half a budget.
    let looks = looks(|| ethernet_function::transmit(&mut locked, 0, 0));
    drop(locked);
    assert!(looks > frames / 2, "{looks} polls for {frames} frames of 1,000 segments");
}
