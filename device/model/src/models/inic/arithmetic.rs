//! Arithmetic of reductions in the collectives unit. From the same values in the same order every card computes the
//! same bits, on every machine.

use niclab_abi::inic::{
    POST_DOUBLE, POST_MAX, POST_MIN, POST_SIGNED_32, POST_SIGNED_64, POST_SUM, POST_UNSIGNED_32,
    POST_UNSIGNED_64,
};

/// The quiet NaN without sign and payload, as the result for any NaN. Processors differ in which of several NaNs a sum
/// keeps, and the result must not depend on that. IEEE 754: the quiet NaN.
const NO_NUMBER: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// Operation on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Sum,
    Min,
    Max,
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Signed32,
    Signed64,
    Unsigned32,
    Unsigned64,
    Double,
}

/// The operation that all members must agree on: a barrier, or a kind of reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task(Option<(Operator, Element)>);

impl Task {
    /// A barrier: a reduction without values.
    pub(super) const BARRIER: Self = Self(None);

    /// A reduction, with the constants of the ABI.
    pub(super) const fn reduction(operator: u32, element: u32) -> Option<Self> {
        let operator = match operator {
            POST_SUM => Operator::Sum,
            POST_MIN => Operator::Min,
            POST_MAX => Operator::Max,
            _ => return None,
        };
        let element = match element {
            POST_SIGNED_32 => Element::Signed32,
            POST_SIGNED_64 => Element::Signed64,
            POST_UNSIGNED_32 => Element::Unsigned32,
            POST_UNSIGNED_64 => Element::Unsigned64,
            POST_DOUBLE => Element::Double,
            _ => return None,
        };
        Some(Self(Some((operator, element))))
    }

    /// Its code in a message; zero is a barrier.
    pub(super) const fn code(self) -> u8 {
        let Some((operator, element)) = self.0 else { return 0 };
        let operator = match operator {
            Operator::Sum => POST_SUM,
            Operator::Min => POST_MIN,
            Operator::Max => POST_MAX,
        };
        let element = match element {
            Element::Signed32 => POST_SIGNED_32,
            Element::Signed64 => POST_SIGNED_64,
            Element::Unsigned32 => POST_UNSIGNED_32,
            Element::Unsigned64 => POST_UNSIGNED_64,
            Element::Double => POST_DOUBLE,
        };
        (operator << 4 | element) as u8
    }

    /// The operation with this code.
    pub(super) const fn of_code(code: u8) -> Option<Self> {
        if code == 0 { Some(Self::BARRIER) } else { Self::reduction(code as u32 >> 4, code as u32 & 0xf) }
    }

    /// Whether the operation accepts this number of bytes.
    pub(super) const fn takes(self, bytes: u64) -> bool {
        match self.0 {
            None => bytes == 0,
            Some((_, Element::Signed32 | Element::Unsigned32)) => bytes > 0 && bytes.is_multiple_of(4),
            Some(_) => bytes > 0 && bytes.is_multiple_of(8),
        }
    }

    /// Replaces each value in `values` by the result of the operation on it and the value in `others`.
    pub(super) fn combine(self, values: &mut [u8], others: &[u8]) {
        let Some((operator, element)) = self.0 else { return };
        match element {
            Element::Signed32 => {
                each(values, others, |a, b| {
                    integer(operator, i32::from_le_bytes(a), i32::from_le_bytes(b), i32::wrapping_add)
                        .to_le_bytes()
                });
            }
            Element::Signed64 => {
                each(values, others, |a, b| {
                    integer(operator, i64::from_le_bytes(a), i64::from_le_bytes(b), i64::wrapping_add)
                        .to_le_bytes()
                });
            }
            Element::Unsigned32 => {
                each(values, others, |a, b| {
                    integer(operator, u32::from_le_bytes(a), u32::from_le_bytes(b), u32::wrapping_add)
                        .to_le_bytes()
                });
            }
            Element::Unsigned64 => {
                each(values, others, |a, b| {
                    integer(operator, u64::from_le_bytes(a), u64::from_le_bytes(b), u64::wrapping_add)
                        .to_le_bytes()
                });
            }
            Element::Double => {
                each(values, others, |a, b| {
                    double(operator, f64::from_le_bytes(a), f64::from_le_bytes(b)).to_le_bytes()
                });
            }
        }
    }
}

fn each<const BYTES: usize>(
    values: &mut [u8],
    others: &[u8],
    make: impl Fn([u8; BYTES], [u8; BYTES]) -> [u8; BYTES],
) {
    let values = values.as_chunks_mut::<BYTES>().0;
    for (value, other) in values.iter_mut().zip(others.as_chunks::<BYTES>().0) {
        *value = make(*value, *other);
    }
}

fn integer<T: Ord>(operator: Operator, a: T, b: T, sum: impl Fn(T, T) -> T) -> T {
    match operator {
        Operator::Sum => sum(a, b),
        Operator::Min => a.min(b),
        Operator::Max => a.max(b),
    }
}

fn double(operator: Operator, a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return NO_NUMBER;
    }
    match operator {
        // Infinities of opposite signs have no sum.
        Operator::Sum if (a + b).is_nan() => NO_NUMBER,
        Operator::Sum => a + b,
        Operator::Min => {
            if a.total_cmp(&b).is_le() {
                a
            } else {
                b
            }
        }
        Operator::Max => {
            if a.total_cmp(&b).is_ge() {
                a
            } else {
                b
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_their_codes() {
        for code in 0..=u8::MAX {
            let expected = matches!((code >> 4, code & 0xf), (0, 0) | (1..=3, 1..=5));
            assert_eq!(Task::of_code(code).is_some(), expected, "{code}");
            assert!(Task::of_code(code).is_none_or(|task| task.code() == code));
        }
        assert_eq!(Task::reduction(0, 0), None);
    }

    fn doubles(operator: u32, a: f64, b: f64) -> u64 {
        let mut values = a.to_le_bytes();
        Task::reduction(operator, POST_DOUBLE).unwrap().combine(&mut values, &b.to_le_bytes());
        u64::from_le_bytes(values)
    }

    #[test]
    fn nans_have_one_result_and_zeros_are_ordered() {
        let odd = f64::from_bits(0xfff8_0000_0000_1234);
        for operator in [POST_SUM, POST_MIN, POST_MAX] {
            assert_eq!(doubles(operator, odd, 1.0), 0x7ff8_0000_0000_0000);
            assert_eq!(doubles(operator, 1.0, odd), 0x7ff8_0000_0000_0000);
        }
        assert_eq!(doubles(POST_SUM, f64::INFINITY, f64::NEG_INFINITY), 0x7ff8_0000_0000_0000);
        for (a, b) in [(0.0, -0.0), (-0.0, 0.0)] {
            assert_eq!(doubles(POST_MIN, a, b), (-0.0_f64).to_bits());
            assert_eq!(doubles(POST_MAX, a, b), 0.0_f64.to_bits());
        }
        assert_eq!(doubles(POST_MIN, -1.0, f64::NEG_INFINITY), f64::NEG_INFINITY.to_bits());
    }

    #[test]
    fn sums_of_integers_wrap() {
        let mut values = [i64::MAX.to_le_bytes(), (-5_i64).to_le_bytes()].concat();
        let others = [1_i64.to_le_bytes(), 3_i64.to_le_bytes()].concat();
        Task::reduction(POST_SUM, POST_SIGNED_64).unwrap().combine(&mut values, &others);
        assert_eq!(values, [i64::MIN.to_le_bytes(), (-2_i64).to_le_bytes()].concat());
        let mut values = u32::MAX.to_le_bytes();
        Task::reduction(POST_SUM, POST_UNSIGNED_32).unwrap().combine(&mut values, &2_u32.to_le_bytes());
        assert_eq!(values, 1_u32.to_le_bytes());
    }
}
