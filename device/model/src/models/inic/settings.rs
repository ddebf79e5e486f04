//! Values of an assembly that several components need.

use niclab_components::kinds::PLACEMENT_BYTES;
use niclab_components::{Checked, Format, Kind, Parameter};

use crate::models::inic::wire::Dialect;

/// Spreads epochs over all values. It is odd, so that epochs of a card differ. Ours: an arbitrary start.
const EPOCH: u16 = 0x9e37;

/// The format of an assembly's header, and the identifier of its frames. Numbers restart with each firmware reload, and
/// frames from before a reload must not pass for later ones. So cards of another epoch reject them, even with the same
/// assembly.
pub(super) fn dialect(assembly: &Checked, epoch: u16) -> Dialect {
    Dialect { format: format(assembly), assembly: assembly.id() ^ epoch.wrapping_mul(EPOCH) }
}

/// The format of an assembly's header.
pub(super) fn format(assembly: &Checked) -> Format {
    Format::of(value(assembly, Kind::Xmit, Parameter::Format))
}

/// Bytes of the word that gives the position of a packet's data; zero without such a word.
pub(super) fn place_bytes(assembly: &Checked) -> u32 {
    if value(assembly, Kind::HostReceive, Parameter::Placement) == 0 { 0 } else { PLACEMENT_BYTES }
}

/// Bytes of a message in each of its packets except the last.
pub(super) fn packet_bytes(assembly: &Checked) -> u32 {
    let of = |kind| value(assembly, kind, Parameter::PacketBytes);
    of(Kind::Genp).max(of(Kind::GenpUnreliable))
}

/// The value of a parameter of the first component of a kind.
pub(super) fn value(assembly: &Checked, kind: Kind, parameter: Parameter) -> u32 {
    let part = assembly.components().iter().find(|part| part.kind() == kind);
    part.and_then(|part| part.value(parameter)).unwrap_or(0)
}
