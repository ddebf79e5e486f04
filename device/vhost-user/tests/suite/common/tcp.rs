//! Long TCP frames, which a guest leaves to its Ethernet function.

use niclab_device::ethernet::header::{Checksum, Family, Offload, Segmentation};

/// An IPv4 TCP frame with `payload` bytes, as Linux passes a long frame to the function.
pub fn tcp(from: [u8; 6], to: [u8; 6], payload: usize) -> (Vec<u8>, Checksum) {
    let mut bytes = [to, from].concat();
    bytes.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    bytes.extend((0..payload).map(|index| index as u8));
    (bytes, Checksum { start: 34, offset: 16 })
}

/// The offload that Linux requests: checksums, and frames of at most 1,400 bytes of payload.
pub fn long_offload(checksum: Checksum) -> Offload {
    let segmentation = Some(Segmentation { family: Family::V4, payload_bytes: 1400 });
    Offload { checksum: Some(checksum), segmentation }
}
