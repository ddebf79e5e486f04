//! The expected result of a reduction, computed by the program: it combines the values of all members one by one.

use niclab_user::inic::{Element, Operator};
use niclab_workloads::Mark;

/// The NaN of results.
const NO_NUMBER: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// The values of one member, `bytes` bytes of them. Doubles are close to one another, so that the order of additions
/// shows in the result. A few are special values: zeros, infinities and NaN.
pub fn values(element: Element, member: &Mark) -> Vec<u8> {
    let word = |word: u64| match (element, word % 64) {
        (Element::Double, 0) => (-0.0_f64).to_bits(),
        (Element::Double, 1) => 0,
        (Element::Double, 2) => NO_NUMBER.to_bits(),
        (Element::Double, 3) => f64::INFINITY.to_bits(),
        (Element::Double, 4) => f64::NEG_INFINITY.to_bits(),
        (Element::Double, _) => word & !(0x7ff << 52) | (1020 + (word >> 56 & 7)) << 52,
        _ => word,
    };
    member.payload().flat_map(|of_pattern| word(of_pattern).to_le_bytes()).collect()
}

/// Bytes of one value.
pub const fn width(element: Element) -> usize {
    match element {
        Element::Signed32 | Element::Unsigned32 => 4,
        Element::Signed64 | Element::Unsigned64 | Element::Double => 8,
    }
}

/// Combines the values of all members, which are in the order of their group.
pub fn combined(operator: Operator, element: Element, members: &[Vec<u8>]) -> Vec<u8> {
    let width = width(element);
    let count = members.first().map_or(0, |values| values.len() / width);
    let of_value = |index: usize| {
        let bits = members.iter().map(|values| {
            let value = values.iter().skip(index * width).take(width).rev();
            value.fold(0, |bits, byte| bits << 8 | u64::from(*byte))
        });
        combine(operator, element, &bits.collect::<Vec<u64>>()).to_le_bytes().into_iter().take(width)
    };
    (0..count).flat_map(of_value).collect()
}

/// Combines one value of each member.
fn combine(operator: Operator, element: Element, members: &[u64]) -> u64 {
    macro_rules! integers {
        ($integer:ty) => {{
            let each = members.iter().map(|bits| *bits as $integer);
            let all = match operator {
                Operator::Sum => each.reduce(<$integer>::wrapping_add),
                Operator::Min => each.min(),
                Operator::Max => each.max(),
            };
            all.unwrap_or_default() as u64
        }};
    }
    match element {
        Element::Signed32 => integers!(i32),
        Element::Signed64 => integers!(i64),
        Element::Unsigned32 => integers!(u32),
        Element::Unsigned64 => integers!(u64),
        Element::Double => below(operator, members, 0).to_bits(),
    }
}

/// Combines the doubles of a member and of all members below it in the group's tree: first its own, then the subtree of
/// the first child, then that of the second.
fn below(operator: Operator, members: &[u64], place: usize) -> f64 {
    let own = members.get(place).map_or(NO_NUMBER, |bits| f64::from_bits(*bits));
    let children = [2 * place + 1, 2 * place + 2].into_iter().filter(|child| *child < members.len());
    children.map(|child| below(operator, members, child)).fold(own, |a, b| match operator {
        _ if a.is_nan() || b.is_nan() || operator == Operator::Sum && (a + b).is_nan() => NO_NUMBER,
        Operator::Sum => a + b,
        Operator::Min if b.total_cmp(&a).is_lt() => b,
        Operator::Max if b.total_cmp(&a).is_gt() => b,
        Operator::Min | Operator::Max => a,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubles(operator: Operator, values: &[f64]) -> u64 {
        let members: Vec<Vec<u8>> = values.iter().map(|value| value.to_le_bytes().to_vec()).collect();
        let all = combined(operator, Element::Double, &members);
        u64::from_le_bytes(all.try_into().expect("one value"))
    }

    #[test]
    fn integers_wrap_and_keep_their_signs() {
        let of = |operator, element, values: [i32; 3]| {
            combined(operator, element, &values.map(|value| value.to_le_bytes().to_vec()))
        };
        let word = |value: i32| value.to_le_bytes().to_vec();
        assert_eq!(of(Operator::Sum, Element::Signed32, [i32::MAX, 1, 1]), word(i32::MIN + 1));
        assert_eq!(of(Operator::Min, Element::Signed32, [4, -7, 2]), word(-7));
        assert_eq!(of(Operator::Min, Element::Unsigned32, [4, -7, 2]), word(2));
        assert_eq!(of(Operator::Max, Element::Unsigned32, [4, -7, 2]), word(-7));
        let long = [u64::MAX, 3].map(|value| value.to_le_bytes().to_vec());
        assert_eq!(combined(Operator::Sum, Element::Unsigned64, &long), 2_u64.to_le_bytes());
    }

    #[test]
    fn doubles_are_added_along_the_tree_and_ordered_totally() {
        // (1e16 + (1 + 1)) + 1, where from left to right 1e16 + 1 would be 1e16.
        assert_eq!(doubles(Operator::Sum, &[1e16, 1.0, 1.0, 1.0]), (1e16 + 2.0 + 1.0_f64).to_bits());
        assert_eq!(doubles(Operator::Min, &[0.0, -0.0]), (-0.0_f64).to_bits());
        assert_eq!(doubles(Operator::Max, &[-0.0, 0.0]), 0);
        assert_eq!(doubles(Operator::Max, &[1.0, -f64::NAN]), NO_NUMBER.to_bits());
        assert_eq!(doubles(Operator::Sum, &[f64::INFINITY, f64::NEG_INFINITY]), NO_NUMBER.to_bits());
    }
}
