//! Random assemblies for swarms: the bundled ones, and those of a recipe with consistent values.
//!
//! Constants: ours.

use alloc::vec::Vec;

use niclab_components::kinds::ACK_MASK_BITS;
use niclab_components::{BUNDLED, Bundled, Flow, Format, Kind, Parameter, Recipe};

use crate::models::inic::wire::nodes_of;
use crate::nic::registry::Draw;

/// One in this number of assemblies is a bundled one.
const BUNDLED_ONE_IN: u32 = 3;
/// Consecutive timeouts after which messages to a node fail. A run cuts links for seconds, and after that no message
/// may be missing. A failed message is not lost, since the card reports it to its host. But a run's checks do not
/// distinguish failed and lost messages.
pub(super) const RETRIES: u32 = 1_000;
/// Maximum unacknowledged packets of go-back-N: less than half of the numbers of the narrow format.
const MAX_IN_ORDER: u32 = 127;
/// Words of the shortest packet. A message of shorter packets makes a run take minutes, if each packet is
/// sent dozens of times. Cards that never load another assembly have shorter packets.
const MIN_WORDS: u32 = 16;
/// Words of the longest packet that fits any link.
const MAX_WORDS: u32 = 340;

/// The image of a random assembly for a cluster of `nodes` nodes.
pub(super) fn image(below: &mut Draw<'_>, nodes: u32) -> Vec<u8> {
    let is_small = nodes <= nodes_of(Format::Seq24Node4);
    if is_small && below(BUNDLED_ONE_IN) == 0 {
        let place = below(BUNDLED.len() as u32) as usize;
        let mut assembly = BUNDLED.get(place).map(Bundled::assembly).unwrap_or_default();
        let _ = assembly.set(Kind::Timer, Parameter::Retries, RETRIES);
        return assembly.encode();
    }
    let place = below(Flow::ALL.len() as u32) as usize;
    let flow = Flow::ALL.get(place).copied().unwrap_or(Flow::GoBackN);
    let [finds_duplicates, controls_rate, mitigates] = [2, 4, 2].map(|chances| below(chances) == 0);
    let depth = 1 << below(6);
    let recipe = Recipe { flow, finds_duplicates, controls_rate, mitigates, depth };
    // A recipe fits the limits of all assemblies.
    let Ok(mut assembly) = recipe.assembly() else { return Vec::new() };
    let format = if is_small { below(2) } else { Format::Seq8Node12 as u32 };
    let threshold = 1 + below(16);
    let most = if flow == Flow::GoBackN { MAX_IN_ORDER } else { ACK_MASK_BITS };
    let packet_bytes = 4 * (MIN_WORDS + below(MAX_WORDS - MIN_WORDS + 1));
    // With rate control acknowledgements come late: the recipe has a timeout for that.
    let timeout = if controls_rate { 10_000 } else { 20 + below(2_000) };
    for (kind, parameter, value) in [
        (Kind::Xmit, Parameter::Format, format),
        (Kind::SplitPacket, Parameter::Format, format),
        (Kind::BuildAcks, Parameter::Threshold, threshold),
        (Kind::BuildAcks, Parameter::AcknowledgeLast, u32::from(below(4) > 0)),
        (Kind::Genp, Parameter::OutstandingLimit, (2 * threshold + below(96)).min(most)),
        (Kind::Genp, Parameter::PacketBytes, packet_bytes),
        (Kind::GenpUnreliable, Parameter::PacketBytes, packet_bytes),
        (Kind::Timer, Parameter::TimeoutUs, timeout),
        (Kind::Timer, Parameter::Retries, RETRIES),
        (Kind::SelectiveRepeat, Parameter::BufferPackets, 1 + below(ACK_MASK_BITS)),
        (Kind::RateControl, Parameter::IntervalUs, 1 + below(30)),
        (Kind::Mitigate, Parameter::RcvChunkSize, below(10_000)),
        (Kind::RcvPkt, Parameter::MemoryBytes, 4_096 << below(9)),
    ] {
        // A kind without component has no parameter to set.
        let _ = assembly.set(kind, parameter, value);
    }
    assembly.encode()
}

#[cfg(test)]
mod tests {
    use niclab_components::Assembly;
    use niclab_random::Random;

    use super::*;

    #[test]
    fn random_assemblies_are_valid_and_cover_every_flow() {
        let mut promises = alloc::collections::BTreeSet::new();
        for (seed, nodes) in (0..500).flat_map(|seed| [2, 16, 17, 22].map(|nodes| (seed, nodes))) {
            let mut random = Random::new(seed, 0);
            let image = image(&mut |bound| random.below(bound), nodes);
            let assembly = Assembly::decode(&image).unwrap().check();
            let assembly = assembly.unwrap_or_else(|faults| panic!("seed {seed}: {faults:?}"));
            let is_wide = crate::models::inic::settings::format(&assembly) == Format::Seq8Node12;
            assert!(nodes <= 16 || is_wide);
            let niclab_components::Promises { delivered, once, in_order } = assembly.promises();
            promises.insert((delivered, once, in_order));
        }
        assert_eq!(promises.len(), 5, "{promises:?}");
    }
}
