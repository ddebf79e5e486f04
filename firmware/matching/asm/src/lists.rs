//! Lists in brackets: lanes and bytes, the highest first, as in a written number.

use niclab_isa::Bits;
use niclab_isa::word::ByteSource;

use crate::symbols::{Meaning, Symbols};
use niclab_source::{Diagnostic, Place};

type Result<T> = std::result::Result<T, Diagnostic>;

/// `[3210]`, `[32 10]`, `[3 2 1 0]`: groups of lanes that work as one.
pub(crate) fn groups(list: &str, place: Place) -> Result<Bits<3>> {
    let digits: String = list.split_whitespace().collect();
    if digits != "3210" {
        let what = format!("[{list}] does not name lanes 3 to 0 in this order");
        return Err(Diagnostic::error(place, what, "separate groups by a space: [3210], [32 10], [3 2 1 0]"));
    }
    let mut join = 0;
    for group in list.split_whitespace() {
        let lanes = group.chars().filter_map(|digit| digit.to_digit(10));
        // In each group, every lane but the lowest is joined with the lane below.
        let lowest = lanes.clone().min().unwrap_or(0);
        join |= lanes.filter(|lane| *lane != lowest).map(|lane| 1 << (lane - 1)).sum::<u32>();
    }
    Ok(Bits::truncated(join))
}

/// The groups in source notation.
pub(crate) fn groups_text(join: Bits<3>) -> String {
    let mut text = String::from("[3");
    for lane in (0..3).rev() {
        if !join.has(lane) {
            text.push(' ');
        }
        text += &lane.to_string();
    }
    text + "]"
}

/// `[2 3 0 1]`: the input lanes for lanes 3 to 0 of the register.
pub(crate) fn lanes(list: &str, place: Place) -> Result<Bits<8>> {
    let digits: String = list.split_whitespace().collect();
    let lanes: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(4)).collect();
    if lanes.len() != 4 || digits.chars().count() != 4 {
        let what = format!("[{list}] does not name four lanes");
        let remedy = "name the input's lane for lanes 3, 2, 1, 0 of the register: [3 2 1 0] changes nothing";
        return Err(Diagnostic::error(place, what, remedy));
    }
    Ok(Bits::truncated(lanes.iter().fold(0, |permute, lane| permute << 2 | lane)))
}

/// The lanes in source notation.
pub(crate) fn lanes_text(permute: Bits<8>) -> String {
    let lanes: Vec<String> = (0..4).rev().map(|lane| (permute.get() >> (2 * lane) & 3).to_string()).collect();
    format!("[{}]", lanes.join(" "))
}

/// `[0000 a.nid b1 b0]`: the sources of bytes 7 to 0 of a permutation's result.
pub(crate) fn bytes(list: &str, place: Place, symbols: &Symbols) -> Result<[ByteSource; 8]> {
    let mut sources = Vec::new();
    for item in list.split_whitespace() {
        if item.chars().all(|digit| digit == '0') {
            sources.extend(item.chars().map(|_| ByteSource::Zero));
            continue;
        }
        let (operand, rest) = item.split_at_checked(1).unwrap_or((item, ""));
        let source: fn(u8) -> ByteSource = match operand {
            "a" => ByteSource::A,
            "b" => ByteSource::B,
            _ => return Err(no_byte(item, place)),
        };
        if let Some(name) = rest.strip_prefix('.') {
            let (low, high) = field_bytes(name, place, symbols)?;
            sources.extend((low..=high).rev().map(source));
        } else {
            let byte = rest.parse().ok().filter(|byte| *byte < 8 && rest.len() == 1);
            sources.push(source(byte.ok_or_else(|| no_byte(item, place))?));
        }
    }
    let named = sources.len();
    sources.reverse();
    sources.try_into().map_err(|_| {
        let what = format!("[{list}] names {named} bytes");
        Diagnostic::error(place, what, "name eight bytes, the highest first; 0000 means four zero bytes")
    })
}

/// The bytes in source notation.
pub(crate) fn bytes_text(sources: [ByteSource; 8]) -> String {
    let bytes: Vec<String> = sources
        .iter()
        .rev()
        .map(|source| match source {
            ByteSource::Zero => "0".to_owned(),
            ByteSource::A(byte) => format!("a{byte}"),
            ByteSource::B(byte) => format!("b{byte}"),
        })
        .collect();
    format!("[{}]", bytes.join(" "))
}

fn no_byte(item: &str, place: Place) -> Diagnostic {
    let remedy = "write a0 to a7, b0 to b7, a.FIELD, b.FIELD, or 0 for a byte that becomes zero";
    Diagnostic::error(place, format!("`{item}` is not a byte of a permutation"), remedy)
}

/// First and last byte of a field.
fn field_bytes(name: &str, place: Place, symbols: &Symbols) -> Result<(u8, u8)> {
    let Meaning::Field { low, high } = symbols.look_up(name, place)? else {
        let what = format!("`{name}` is not a field");
        return Err(Diagnostic::error(place, what, "name a field that .field defines"));
    };
    if low % 8 != 0 || high % 8 != 7 {
        let what = format!("field `{name}`, bits {high}..{low}, does not consist of whole bytes");
        return Err(Diagnostic::error(
            place,
            what,
            "permutations move bytes; use `match` under a mask for bits",
        ));
    }
    let byte = |bit: u32| u8::try_from(bit / 8).unwrap_or(u8::MAX);
    Ok((byte(low), byte(high)))
}
