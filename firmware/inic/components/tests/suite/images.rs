//! Images of assemblies: valid ones survive a round trip, and no input makes the decoder panic.

use crc::{CRC_32_ISO_HDLC, Crc};
use niclab_components::assembly::{MAX_COMPONENTS, MAX_CONNECTIONS, MAX_DEPTH};
use niclab_components::{Assembly, BUNDLED, Flow, ImageError, Kind, Parameter, Recipe};
use proptest::prelude::*;

/// A random recipe whose assembly has random parameters and passes [`Assembly::check`].
fn valid_assembly() -> impl Strategy<Value = Assembly> {
    let recipe =
        (0..Flow::ALL.len(), any::<[bool; 3]>(), 1..=MAX_DEPTH).prop_map(|(flow, choices, depth)| {
            let [finds_duplicates, controls_rate, mitigates] = choices;
            Recipe { flow: Flow::ALL[flow], finds_duplicates, controls_rate, mitigates, depth }
        });
    let values = (1..=16u32, 0..=96u32, 0..2u32, 1..=509u32, 1..=32u32, 0..=5000u32, 4096..=1u32 << 26);
    (recipe, values).prop_map(|(recipe, (threshold, margin, format, words, buffer, chunk, memory))| {
        let mut assembly = recipe.assembly().unwrap();
        // The limit of unacknowledged packets. With go-back-N, it must be less than half of the range of packet
        // numbers, which have 8 bits in the smaller format. Otherwise, acknowledgements have a mask of 32 packets.
        let max_limit = if recipe.flow == Flow::GoBackN { 127 } else { 32 };
        let limit = (2 * threshold + margin).min(max_limit);
        for (kind, parameter, value) in [
            (Kind::BuildAcks, Parameter::Threshold, threshold),
            (Kind::Genp, Parameter::OutstandingLimit, limit),
            (Kind::Genp, Parameter::PacketBytes, 4 * words),
            (Kind::GenpUnreliable, Parameter::PacketBytes, 4 * words),
            (Kind::Xmit, Parameter::Format, format),
            (Kind::SplitPacket, Parameter::Format, format),
            (Kind::SelectiveRepeat, Parameter::BufferPackets, buffer),
            (Kind::Mitigate, Parameter::RcvChunkSize, chunk),
            (Kind::RcvPkt, Parameter::MemoryBytes, memory & !3),
        ] {
            assembly.set(kind, parameter, value).unwrap();
        }
        assembly
    })
}

/// Replaces the check sequence by the one that fits the image, as an attacker would.
fn with_valid_crc(mut image: Vec<u8>) -> Vec<u8> {
    if image.len() >= 24 {
        let crc = Crc::<u32>::new(&CRC_32_ISO_HDLC);
        let check = crc.checksum(&[&image[..16], &image[20..]].concat());
        image[16..20].copy_from_slice(&check.to_le_bytes());
    }
    image
}

/// Decodes an image. If it decodes, its assembly must be within the limits of a card, encode to the same bytes, and be
/// checked without panic.
fn decode_safely(image: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(assembly) = Assembly::decode(image) {
        prop_assert!(assembly.components().len() <= MAX_COMPONENTS);
        prop_assert!(assembly.connections().len() <= MAX_CONNECTIONS);
        prop_assert_eq!(&assembly.encode()[..], image);
        if let Err(faults) = assembly.check() {
            for fault in faults {
                prop_assert!(!fault.to_string().is_empty() && !fault.problem.fix().is_empty());
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn valid_assemblies_survive_a_round_trip(assembly in valid_assembly()) {
        let image = assembly.encode();
        prop_assert_eq!(Assembly::decode(&image), Ok(assembly.clone()));
        let checked = assembly.clone().check();
        prop_assert!(checked.is_ok(), "{:?}", checked);
        prop_assert_eq!(assembly.id().to_le_bytes(), [image[16], image[17]]);
    }

    #[test]
    fn every_corrupted_bit_is_detected(assembly in valid_assembly(), bit in any::<prop::sample::Index>()) {
        let mut image = assembly.encode();
        let bit = bit.index(image.len() * 8);
        image[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Assembly::decode(&image).is_err());
    }

    #[test]
    fn any_bytes_decode_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        decode_safely(&bytes)?;
        decode_safely(&with_valid_crc([b"nicparts\x01\0\0\0", bytes.as_slice()].concat()))?;
    }

    /// An attacker who changes an image can also compute its check sequence.
    #[test]
    fn damaged_images_with_valid_crc_decode_without_panic(
        which in 0..BUNDLED.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut image = BUNDLED[which].image.to_vec();
        for (at, byte) in damage {
            let at = at.index(image.len());
            image[at] = byte;
        }
        if is_cut {
            image.truncate(cut.index(image.len()));
        }
        decode_safely(&with_valid_crc(image))?;
    }
}

#[test]
fn decode_errors_name_the_fault() {
    let good = BUNDLED[3].image;
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = good.to_vec();
        change(&mut image);
        Assembly::decode(&with_valid_crc(image)).unwrap_err()
    };
    let number = |at: usize| u16::from_le_bytes([good[at], good[at + 1]]);
    let (components, connections) = (usize::from(number(12)), usize::from(number(14)));
    assert_eq!(changed(&|image| image[0] = b'N'), ImageError::Magic);
    assert_eq!(Assembly::decode(b""), Err(ImageError::Truncated { found: 0, needed: 24 }));
    assert_eq!(changed(&|image| image[8] = 2), ImageError::Version { found: 2 });
    assert_eq!(changed(&|image| image[12] = 65), ImageError::Size { components: 65, connections });
    assert_eq!(
        changed(&|image| image[15] = 2),
        ImageError::Size { components, connections: 512 + connections }
    );
    assert_eq!(changed(&|image| image[20] = 1), ImageError::Reserved { at: 20 });
    assert_eq!(changed(&|image| image.push(0)), ImageError::Excess { extra: 1 });
    // The first component begins at byte 24 with its kind, length of its name, number of values, a zero, and its name.
    assert_eq!(changed(&|image| image[24] = 200), ImageError::Kind { component: 0, code: 200 });
    assert_eq!(changed(&|image| image[26] = 3), ImageError::Values { component: 0, found: 3, needed: 0 });
    assert_eq!(changed(&|image| image[28] = 0xff), ImageError::Name { component: 0 });
    // Names have only small letters, digits and underscores.
    assert!(matches!(changed(&|image| image[28] = b'H'), ImageError::Part { what: "component", .. }));
    let length = good.len();
    assert!(matches!(changed(&|image| image.truncate(length - 1)), ImageError::Truncated { .. }));
    // In the last connection: output of a component that does not exist, an input in place of the output, and a depth
    // above the maximum.
    for (at, byte) in [(length - 8, 99), (length - 7, 1), (length - 3, 0xff)] {
        let error = changed(&|image| image[at] = byte);
        assert!(matches!(error, ImageError::Part { what: "connection", .. }), "{error}");
    }
    // These images keep the original check sequence. The decoder reports a bad structure before a bad check sequence.
    let damaged = [&good[..length - 1], &[1]].concat();
    assert_eq!(Assembly::decode(&damaged), Err(ImageError::Reserved { at: length - 1 }));
    let damaged = [&good[..length - 4], &[15], &good[length - 3..]].concat();
    assert!(matches!(Assembly::decode(&damaged), Err(ImageError::Check { .. })));
}
