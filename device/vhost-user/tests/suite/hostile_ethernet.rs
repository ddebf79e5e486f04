//! Ethernet functions of guests that do what they must not, or merely have no room.

use crate::common::{PATIENCE, frame, lab, until, violations};
use niclab_device::ethernet::Negotiated;
use niclab_device::ethernet::header::{Checksum, Family, Offload, Segmentation};
use niclab_device::lab::Lab;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

/// A node that has nothing to do with it gets its answer, or else the front end times out.
fn assert_bystander_is_answered(lab: &Lab, node: usize) {
    let bystander = lab.guest(node).unwrap();
    bystander.statistics().unwrap();
}

#[test]
fn a_receive_queue_with_less_room_than_the_next_frame() {
    let lab = lab(3);
    // 256 buffers of 64 bytes: ten frames of 1,500 bytes take 24 each, and 16 are left, too few for the eleventh.
    let mut receiver = lab.ethernet_with(0, 256, 64, 1 << VIRTIO_NET_F_MRG_RXBUF).unwrap();
    let mut sender = lab.ethernet(1, 0).unwrap();
    let frames: Vec<_> = (0..20).map(|n| frame(lab.mac(1), lab.mac(0), 1_500 - n)).collect();
    for frame in &frames {
        assert!(sender.send(frame).unwrap());
    }
    assert_bystander_is_answered(&lab, 2);
    // And all of them arrive once the guest goes on.
    for frame in &frames {
        assert_eq!(&receiver.receive(PATIENCE).unwrap().1, frame);
    }
    assert_eq!(violations(&lab, 0).get("ethernet_receive_queue_small"), None);
}

#[test]
fn a_frame_for_which_no_receive_queue_will_ever_have_room() {
    let lab = lab(3);
    let mut receiver = lab.ethernet_with(0, 16, 64, 1 << VIRTIO_NET_F_MRG_RXBUF).unwrap();
    let mut sender = lab.ethernet(1, 0).unwrap();
    sender.send(&frame(lab.mac(1), lab.mac(0), 1_500)).unwrap();
    until("it is dropped", || violations(&lab, 0).contains_key("ethernet_receive_queue_small"));
    assert_bystander_is_answered(&lab, 2);
    let fits = frame(lab.mac(1), lab.mac(0), 500);
    sender.send(&fits).unwrap();
    assert_eq!(receiver.receive(PATIENCE).unwrap().1, fits);
}

#[test]
fn long_frames_in_more_segments_than_a_frame_may_have() {
    let lab = lab(2);
    let mut hostile = lab.ethernet_with(0, 256, 66_000, Negotiated::OFFERED).unwrap();
    let mut other = lab.ethernet(1, 0).unwrap();
    let mut long = frame(lab.mac(0), lab.mac(1), 34 + 20 + 8 * 1_025);
    long[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    long[46] = 5 << 4;
    let segments_of = |payload_bytes| Offload {
        checksum: Some(Checksum { start: 34, offset: 16 }),
        segmentation: Some(Segmentation { family: Family::V4, payload_bytes }),
    };
    for payload_bytes in [1, 7, 8] {
        assert!(hostile.queue(&segments_of(payload_bytes), &long).unwrap());
        hostile.flush().unwrap();
    }
    until("all three", || violations(&lab, 0).get("ethernet_segments") == Some(&3));
    assert!(hostile.queue(&segments_of(1_000), &long).unwrap());
    hostile.flush().unwrap();
    let (_, first) = other.receive(PATIENCE).unwrap();
    assert_eq!(first.len(), 34 + 20 + 1_000);
}

#[test]
fn a_doorbell_that_says_it_was_rung_more_often_than_can_be() {
    let lab = lab(2);
    let mut hostile = lab.ethernet(0, 0).unwrap();
    for ring in [hostile.transmit_ring().kick.try_clone(), hostile.receive_ring().kick.try_clone()] {
        ring.unwrap().write(u64::MAX - 2).unwrap();
    }
    let mut other = lab.ethernet(1, 0).unwrap();
    let sound = frame(lab.mac(0), lab.mac(1), 80);
    hostile.send(&sound).unwrap();
    assert_eq!(other.receive(PATIENCE).unwrap().1, sound);
    assert_bystander_is_answered(&lab, 1);
}
