//! The wide word: six slots, one for each unit. Every unit acts in every cycle (sections 4.2.1 to 4.2.6).

use thiserror::Error;

use crate::bits::Bits;

/// Bits of a word (section 4.2). Figure 4, which prints the widths of the fields, was not available. Assumed: five
/// bits of the ALU's `op` and thirteen of the branch's `target`, which do not follow from the text; chosen so that the
/// sum is 164.
pub const WORD_BITS: u32 = 164;

/// A field of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The slot, by the name of its unit.
    pub slot: &'static str,
    /// The field's name, unique within its slot.
    pub name: &'static str,
    /// Its lowest bit in the word.
    pub first: u32,
    /// Its width.
    pub bits: u32,
    /// Its meaning.
    pub meaning: &'static str,
}

impl Field {
    /// The field `name` of slot `slot`.
    #[must_use]
    pub fn named(slot: &str, name: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| (field.slot, field.name) == (slot, name))
    }

    /// The field's value in the bits of a word.
    #[must_use]
    pub fn get(&self, words: [u64; 3]) -> u64 {
        let (place, shift) = ((self.first / 64) as usize, self.first % 64);
        let mut value = words[place] >> shift;
        if shift + self.bits > 64 {
            value |= words[place + 1] << (64 - shift);
        }
        value & self.max()
    }

    /// Sets the field in the bits of a word to the lower bits of `value`.
    pub fn set(&self, words: &mut [u64; 3], value: u64) {
        let (place, shift) = ((self.first / 64) as usize, self.first % 64);
        let value = value & self.max();
        words[place] = words[place] & !(self.max() << shift) | value << shift;
        if shift + self.bits > 64 {
            let shift = 64 - shift;
            words[place + 1] = words[place + 1] & !(self.max() >> shift) | value >> shift;
        }
    }

    /// The maximum value.
    #[must_use]
    pub fn max(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

/// Why 164 bits are not a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The value of a field is undefined.
    #[error("field `{name}` of slot `{slot}` is {value}, which is not defined")]
    Undefined {
        /// The slot.
        slot: &'static str,
        /// The field.
        name: &'static str,
        /// Its value.
        value: u64,
    },
    /// The data copy unit has one destination: a ternary register or the output FIFO (section 4.2.6).
    #[error("slot `copy` names a ternary register and the output FIFO, and copies to one of both")]
    CopiesTwice,
    /// Bits past the last are set.
    #[error("bits past the {WORD_BITS} of a word are set")]
    TooWide,
}

/// A type of field values.
trait Value: Sized {
    fn to_bits(self) -> u64;
    fn from_bits(bits: u64) -> Option<Self>;
}

impl Value for bool {
    fn to_bits(self) -> u64 {
        self.into()
    }

    fn from_bits(bits: u64) -> Option<Self> {
        Some(bits != 0)
    }
}

impl<const N: u32> Value for Bits<N> {
    fn to_bits(self) -> u64 {
        self.get().into()
    }

    fn from_bits(bits: u64) -> Option<Self> {
        u32::try_from(bits).ok().and_then(Self::new)
    }
}

macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($(#[$choice_doc:meta])* $choice:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            #[default]
            $($(#[$choice_doc])* $choice),*
        }

        impl $name {
            /// All choices, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$choice),*];

            /// Its name in the assembler.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$choice => $text),* }
            }
        }

        impl Value for $name {
            fn to_bits(self) -> u64 {
                self as u64
            }

            fn from_bits(bits: u64) -> Option<Self> {
                Self::ALL.get(usize::try_from(bits).ok()?).copied()
            }
        }
    };
}

choices! {
    /// Operation of the ALU (section 4.2.2). Numbers are unsigned. The unit has no multiplication and no shift.
    AluOp {
        /// Sum, separately for each group of lanes.
        Add = "add",
        /// Difference, separately for each group.
        Subtract = "sub",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// Bitwise nor.
        Nor = "nor",
        /// Any byte of the operands, or zero, for each byte of the result: [`Alu::byte_sources`].
        Permute = "permute",
        /// Compare: equal.
        Equal = "eq",
        /// Compare: not equal.
        NotEqual = "ne",
        /// Compare: less.
        Less = "lt",
        /// Compare: less or equal.
        LessOrEqual = "le",
        /// Compare: greater.
        Greater = "gt",
        /// Compare: greater or equal.
        GreaterOrEqual = "ge",
    }
}

impl AluOp {
    /// Whether it writes predicates and no register.
    #[must_use]
    pub const fn is_compare(self) -> bool {
        self as u8 >= Self::Equal as u8
    }
}

choices! {
    /// How the result of a comparison enters its predicate (section 4.2.2).
    Combine {
        /// It replaces the old value.
        Overwrite = "=",
        /// And.
        And = "&=",
        /// Or.
        Or = "|=",
    }
}

choices! {
    /// Which half of operand b the immediate replaces (section 4.2.2).
    Half {
        /// None.
        None = "none",
        /// Bits 0 to 31.
        Lower = "lower",
        /// Bits 32 to 63.
        Upper = "upper",
    }
}

/// The sum of the widths before field `index`.
const fn first_bit(widths: &[u32], index: usize) -> u32 {
    let mut sum = 0;
    let mut place = 0;
    while place < index {
        sum += widths[place];
        place += 1;
    }
    sum
}

/// Defines the word's slots and fields, from bit 0 on: structures, table, encoder and decoder.
macro_rules! slots {
    ($($(#[$slot_doc:meta])* $slot:ident: $type:ident {
        $($field:ident: $value:ty, $bits:literal, $meaning:literal;)*
    })*) => {
        $(
            $(#[$slot_doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $type {
                $(#[doc = $meaning] pub $field: $value,)*
            }
        )*

        const WIDTHS: &[u32] = &[$($($bits,)*)*];

        /// All fields of the word, by position.
        pub const FIELDS: &[Field] = &{
            let mut fields = [$($(Field {
                slot: stringify!($slot),
                name: stringify!($field),
                first: 0,
                bits: $bits,
                meaning: $meaning,
            },)*)*];
            let mut index = 0;
            while index < fields.len() {
                fields[index].first = first_bit(WIDTHS, index);
                index += 1;
            }
            fields
        };

        /// One word: the actions of the six units in a cycle. The default does nothing.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Word {
            $($(#[$slot_doc])* pub $slot: $type,)*
        }

        impl Word {
            /// The word's bits; bit 0 is the lowest bit of the first number.
            #[must_use]
            pub fn encode(&self) -> [u64; 3] {
                let values = [$($(self.$slot.$field.to_bits(),)*)*];
                let mut words = [0; 3];
                for (field, value) in FIELDS.iter().zip(values) {
                    field.set(&mut words, value);
                }
                words
            }

            /// The word of these bits.
            ///
            /// # Errors
            /// [`DecodeError`] names the field.
            pub fn decode(words: [u64; 3]) -> Result<Self, DecodeError> {
                if words[2] >> (WORD_BITS - 128) != 0 {
                    return Err(DecodeError::TooWide);
                }
                let mut fields = FIELDS.iter();
                let word = Self { $($slot: $type { $($field: {
                    // The table has the same number of fields, because the macro generates both.
                    let field = fields.next().unwrap_or(&FIELDS[0]);
                    extract(words, field)?
                },)* },)* };
                if word.copy.output && word.copy.ternary.get() != 0 {
                    return Err(DecodeError::CopiesTwice);
                }
                Ok(word)
            }
        }
    };
}

slots! {
    /// Input FIFO unit (section 4.2.6).
    input: Input {
        take: bool, 1, "take a data word from the input FIFO; while the FIFO is empty, the whole word waits";
        alu: Bits<4>, 4, "destination ALU register; 0: none";
        ternary: Bits<4>, 4, "destination ternary register; 0: none";
        permute: Bits<8>, 8, "2 bits for each lane of the ternary register, lane 0 first: \
            the lane of the input to write there";
    }
    /// Data copy unit (section 4.2.6).
    copy: Copy {
        predicate: Bits<4>, 4, "copy only if this predicate is 1";
        source: Bits<4>, 4, "ALU register to copy";
        ternary: Bits<4>, 4, "destination ternary register; 0: none";
        output: bool, 1, "append the register to the output FIFO, which is never full; `ternary` must then be 0";
    }
    /// ALU (section 4.2.2).
    alu: Alu {
        op: AluOp, 5, "operation";
        a: Bits<4>, 4, "first operand";
        b: Bits<4>, 4, "second operand";
        dest: Bits<4>, 4, "destination register; 0: none";
        predicate: Bits<4>, 4, "write the result only if this predicate is 1; comparisons ignore it";
        join: Bits<3>, 3, "bit i joins lanes i and i + 1; permute: bit i sets byte i of the result to zero";
        lanes: Bits<4>, 4, "comparisons: bit i writes the result of lane i to predicate 8 + i; \
            permute: bit i sets byte 3 + i to zero";
        combine: Combine, 2, "comparisons: how a result changes its predicate; permute: 1 sets byte 7 to zero";
        half: Half, 2, "half of operand b that the immediate replaces";
        immediate: Bits<32>, 32, "immediate; permute: 4 bits for each byte of the result, byte 0 first: \
            bit 3 is 0 for operand a, 1 for b; bits 0-2 are the byte's number";
    }
    /// Ternary unit (section 4.2.3).
    ternary: Ternary {
        match0: Bits<4>, 4, "first ternary register to compare";
        match1: Bits<4>, 4, "second ternary register to compare";
        mask: Bits<4>, 4, "ternary register with the mask";
        ignore: bool, 1, "0: compare the bits that are set in the mask; 1: compare the others";
        join: Bits<3>, 3, "bit i joins lanes i and i + 1";
        lanes: Bits<4>, 4, "bit i writes the result of lane i to predicate 12 + i";
        combine: Combine, 2, "how a result changes its predicate";
    }
    /// Predicate unit (section 4.2.4): two functions of two predicates each.
    predicate: Predicate {
        a0: Bits<4>, 4, "first argument of the first function";
        b0: Bits<4>, 4, "second argument of the first function";
        function0: Bits<4>, 4, "truth table of the first function: bit 2a + b is the result";
        dest0: Bits<3>, 3, "destination predicate of the first function; 0: none";
        a1: Bits<4>, 4, "first argument of the second function";
        b1: Bits<4>, 4, "second argument of the second function";
        function1: Bits<4>, 4, "truth table of the second function";
        dest1: Bits<3>, 3, "destination predicate of the second function; 0: none";
    }
    /// Branch unit (section 4.2.5).
    branch: Branch {
        predicate: Bits<4>, 4, "predicate that decides whether the branch is taken";
        sense: bool, 1, "predicate value that takes the branch; with predicate 0 (constant 1), 0 means never, 1 always";
        target: Bits<13>, 13, "absolute address; the two words after the branch are executed first";
    }
}

const _: () = assert!(first_bit(WIDTHS, WIDTHS.len()) == WORD_BITS);

fn extract<T: Value>(words: [u64; 3], field: &Field) -> Result<T, DecodeError> {
    let value = field.get(words);
    T::from_bits(value).ok_or(DecodeError::Undefined { slot: field.slot, name: field.name, value })
}

/// The identity permutation of the input's lanes (section 4.2: four lanes).
pub const IDENTITY: Bits<8> = Bits::truncated(0b11_10_01_00);

/// Source of a byte of a permutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteSource {
    /// Zero.
    Zero,
    /// Byte of operand a, 0 to 7, 0 being the lowest.
    A(u8),
    /// Byte of operand b.
    B(u8),
}

impl Alu {
    /// A permutation of the bytes of `a` and `b` into `dest`. The first source is for byte 0, the lowest byte. Only
    /// the lower three bits of a byte number count.
    #[must_use]
    pub fn permutation(a: Bits<4>, b: Bits<4>, dest: Bits<4>, sources: [ByteSource; 8]) -> Self {
        let (mut selectors, mut zeros) = (0, 0_u32);
        for (place, source) in sources.into_iter().enumerate() {
            let selector = match source {
                ByteSource::Zero => {
                    zeros |= 1 << place;
                    0
                }
                ByteSource::A(byte) => u32::from(byte & 7),
                ByteSource::B(byte) => 8 | u32::from(byte & 7),
            };
            selectors |= selector << (4 * place);
        }
        Self {
            op: AluOp::Permute,
            a,
            b,
            dest,
            join: Bits::truncated(zeros),
            lanes: Bits::truncated(zeros >> 3),
            combine: if zeros >> 7 == 1 { Combine::And } else { Combine::Overwrite },
            immediate: Bits::truncated(selectors),
            ..Self::default()
        }
    }

    /// Sources of the bytes of a permutation's result. Only [`AluOp::Permute`] interprets the fields this way.
    #[must_use]
    pub fn byte_sources(&self) -> [ByteSource; 8] {
        let top = u32::from(self.combine == Combine::And);
        let zeros = self.join.get() | self.lanes.get() << 3 | top << 7;
        core::array::from_fn(|place| {
            let selector = (self.immediate.get() >> (4 * place) & 15) as u8;
            match selector {
                _ if zeros >> place & 1 == 1 => ByteSource::Zero,
                0..8 => ByteSource::A(selector),
                _ => ByteSource::B(selector & 7),
            }
        })
    }
}

impl Branch {
    /// Whether it is taken for any predicates.
    #[must_use]
    pub const fn is_always(&self) -> bool {
        self.predicate.get() == 0 && self.sense
    }

    /// Whether it is never taken, so that the word has no branch.
    #[must_use]
    pub const fn is_never(&self) -> bool {
        self.predicate.get() == 0 && !self.sense
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any 164 bits in which fields with few choices hold a valid one.
    fn encodable() -> impl Strategy<Value = [u64; 3]> {
        let raw = (any::<u64>(), any::<u64>(), any::<u64>());
        (raw, 0..AluOp::ALL.len() as u64, 0..3_u64, 0..3_u64, 0..3_u64).prop_map(
            |((low, middle, high), op, combine, half, ternary)| {
                let mut words = [low, middle, high & (u64::MAX >> (192 - WORD_BITS))];
                for (slot, name, value) in [
                    ("alu", "op", op),
                    ("alu", "combine", combine),
                    ("alu", "half", half),
                    ("ternary", "combine", ternary),
                ] {
                    Field::named(slot, name).unwrap().set(&mut words, value);
                }
                let (output, ternary) =
                    (Field::named("copy", "output").unwrap(), Field::named("copy", "ternary").unwrap());
                if output.get(words) == 1 {
                    ternary.set(&mut words, 0);
                }
                words
            },
        )
    }

    #[test]
    fn fields_fill_the_word_without_gap_or_overlap() {
        let mut next = 0;
        for field in FIELDS {
            assert_eq!(field.first, next, "{field:?}");
            next += field.bits;
        }
        assert_eq!(next, WORD_BITS);
        let slots: [(&str, u32); 6] =
            [("input", 17), ("copy", 13), ("alu", 64), ("ternary", 22), ("predicate", 30), ("branch", 18)];
        for (slot, bits) in slots {
            let of_slot = FIELDS.iter().filter(|field| field.slot == slot);
            assert_eq!(of_slot.map(|field| field.bits).sum::<u32>(), bits, "{slot}");
        }
    }

    #[test]
    fn default_word_is_zero() {
        assert_eq!(Word::default().encode(), [0; 3]);
        assert!(Word::default().branch.is_never());
    }

    #[test]
    fn undefined_field_values_are_named() {
        let mut words = Word::default().encode();
        Field::named("alu", "op").unwrap().set(&mut words, 13);
        let error = Word::decode(words).unwrap_err();
        assert_eq!(error, DecodeError::Undefined { slot: "alu", name: "op", value: 13 });
        assert_eq!(Word::decode([0, 0, 1 << 36]), Err(DecodeError::TooWide));
    }

    #[test]
    fn word_copies_to_a_register_or_to_the_output() {
        let copy = |ternary, output| {
            let copy = Copy { ternary: Bits::truncated(ternary), output, ..Copy::default() };
            Word::decode(Word { copy, ..Word::default() }.encode())
        };
        assert!(copy(3, false).is_ok() && copy(0, true).is_ok());
        assert_eq!(copy(3, true), Err(DecodeError::CopiesTwice));
    }

    proptest! {
        #[test]
        fn every_encodable_word_round_trips(words in encodable()) {
            let word = Word::decode(words).unwrap();
            prop_assert_eq!(word.encode(), words);
            prop_assert_eq!(Word::decode(word.encode()), Ok(word));
        }

        #[test]
        fn decoded_words_encode_to_the_same_bits(low: u64, middle: u64, high: u64) {
            if let Ok(word) = Word::decode([low, middle, high]) {
                prop_assert_eq!(word.encode(), [low, middle, high]);
            }
        }

        #[test]
        fn permutations_round_trip(bytes in prop::array::uniform8(0..17_u8)) {
            let sources = bytes.map(|byte| match byte {
                0..8 => ByteSource::A(byte),
                8..16 => ByteSource::B(byte & 7),
                _ => ByteSource::Zero,
            });
            let alu = Alu::permutation(Bits::truncated(1), Bits::truncated(2), Bits::truncated(3), sources);
            prop_assert_eq!(alu.byte_sources(), sources);
            let word = Word { alu, ..Word::default() };
            prop_assert_eq!(Word::decode(word.encode()).unwrap().alu.byte_sources(), sources);
        }
    }
}
