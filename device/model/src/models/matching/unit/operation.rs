//! Words, decoded for execution.
//!
//! The properties of a word that are the same in every cycle are decided once, when the program is loaded. They are:
//! which slots are active, where carries stop, and which bits a comparison may change. So the execution of a cycle has
//! few branches. All groups of lanes are processed at once. `tops` has the highest bit of each group. With it, a carry
//! out of a group does not reach the next one. The result of a comparison is at its group's top until [`Results`]
//! spreads it over the lanes.
//!
//! Constants: ours, how a decoded word is kept; lanes are the paper's section 4.2.

use niclab_isa::word::ByteSource;
use niclab_isa::{ALU_PREDICATE, Alu, AluOp, Bits, Combine, Half, LANES, TERNARY_PREDICATE, Word};

const LANE_BITS: usize = 16;

/// The active slots of a word, one bit each.
pub(super) mod active {
    pub const TAKE: u8 = 1;
    pub const COPY: u8 = 2;
    pub const COMPUTE: u8 = 4;
    pub const COMPARE: u8 = 8;
    pub const TERNARY: u8 = 16;
    pub const PREDICATE: u8 = 32;
    pub const BRANCH: u8 = 64;
    /// The input's lanes are permuted on their way to the ternary register.
    pub const PERMUTE: u8 = 128;
}

/// How the results of a comparison, one bit at the top of each group of lanes, enter four predicates.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Results {
    /// For each pattern of four top bits, the lanes of the groups that have these tops, in four bits.
    spread: u64,
    first: u8,
    /// A predicate stays set if its bit is set here,
    keep: u16,
    /// or if its bit is set here and in the results.
    and: u16,
    /// It becomes set if its bit is set here and in the results.
    or: u16,
}

impl Results {
    fn new(join: Bits<3>, first: usize, lanes: Bits<4>, combine: Combine) -> Self {
        let enabled = (lanes.get() as u16) << first;
        let (keep, and, or) = match combine {
            Combine::Overwrite => (!enabled, 0, enabled),
            Combine::And => (!enabled, enabled, 0),
            Combine::Or => (u16::MAX, 0, enabled),
        };
        Self { spread: spread(join), first: first as u8, keep, and, or }
    }

    /// Predicates that results enter.
    pub const fn changed(&self) -> u16 {
        !self.keep | self.or
    }

    /// Those of them whose old value has no influence.
    pub const fn overwritten(&self) -> u16 {
        !(self.keep | self.and)
    }

    /// Each predicate that results enter, and how they are combined.
    pub fn each(&self) -> impl Iterator<Item = (u8, Combine)> + use<> {
        let Self { first, keep, and, or, .. } = *self;
        (first..first + LANES as u8).filter_map(move |number| {
            let has = |predicates: u16| predicates >> number & 1 == 1;
            match (has(or), has(keep), has(and)) {
                (true, false, _) => Some((number, Combine::Overwrite)),
                (true, true, _) => Some((number, Combine::Or)),
                (false, _, true) => Some((number, Combine::And)),
                (false, _, false) => None,
            }
        })
    }

    /// The new predicates. `tops` has the highest bit of each group for which the comparison holds.
    #[inline]
    pub fn enter(&self, predicates: u16, tops: u64) -> u16 {
        // Moves bits 0, 16, 32 and 48 to bits 48 to 51; no other bit gets there.
        const GATHER: u64 = 1 << 48 | 1 << 33 | 1 << 18 | 1 << 3;
        let pattern = (tops >> (LANE_BITS - 1)).wrapping_mul(GATHER) >> 48 & 15;
        let lanes = self.spread >> (4 * pattern) & 15;
        let results = (lanes as u16) << self.first;
        predicates & (self.keep | self.and & results) | self.or & results
    }
}

/// Whether lane `lane` is the highest of its group.
fn is_top(join: Bits<3>, lane: usize) -> bool {
    lane == LANES - 1 || !join.has(lane as u32)
}

/// The highest bit of each group of lanes.
fn tops(join: Bits<3>) -> u64 {
    (0..LANES).filter(|lane| is_top(join, *lane)).fold(0, |tops, lane| tops | 0x8000 << (LANE_BITS * lane))
}

/// See [`Results::spread`].
fn spread(join: Bits<3>) -> u64 {
    let mut table = 0;
    for pattern in 0..1_u64 << LANES {
        let (mut lanes, mut holds) = (0, false);
        for lane in (0..LANES).rev() {
            if is_top(join, lane) {
                holds = pattern >> lane & 1 == 1;
            }
            lanes |= u64::from(holds) << lane;
        }
        table |= lanes << (4 * pattern);
    }
    table
}

/// The tops of those groups in which `word` is not zero.
#[inline]
pub(super) fn tops_of_nonzero(word: u64, tops: u64) -> u64 {
    ((word & !tops).wrapping_add(!tops) | word) & tops
}

/// Sums of each group.
#[inline]
pub(super) fn add(a: u64, b: u64, tops: u64) -> u64 {
    (a & !tops).wrapping_add(b & !tops) ^ (a ^ b) & tops
}

/// Differences of each group.
#[inline]
pub(super) fn subtract(a: u64, b: u64, tops: u64) -> u64 {
    (a | tops).wrapping_sub(b & !tops) ^ (a ^ !b) & tops
}

/// The tops of those groups in which `a` is less than `b`.
#[inline]
fn tops_of_less(a: u64, b: u64, tops: u64) -> u64 {
    (!a & b | (!a | b) & subtract(a, b, tops)) & tops
}

/// One of the predicate unit's two functions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Function {
    pub a: u8,
    pub b: u8,
    pub table: u8,
    /// The predicate that it writes, as a bit; zero if it writes none.
    pub dest: u16,
}

impl Function {
    fn new(a: Bits<4>, b: Bits<4>, table: Bits<4>, dest: Bits<3>) -> Self {
        let dest = if dest.get() == 0 { 0 } else { 1 << dest.get() };
        Self { a: a.get() as u8, b: b.get() as u8, table: table.get() as u8, dest }
    }

    /// `predicates` with the function's result, which is computed from the predicates `before`.
    #[inline]
    pub fn apply(&self, predicates: u16, before: u16) -> u16 {
        let row = 2 * (before >> self.a & 1) + (before >> self.b & 1);
        let value = (u16::from(self.table) >> row & 1).wrapping_neg();
        predicates & !self.dest | value & self.dest
    }
}

/// The ternary unit's part of a word.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Match {
    pub match0: u8,
    pub match1: u8,
    pub mask: u8,
    /// Inverted bits of the mask: all or none.
    pub invert: u64,
    pub tops: u64,
    pub results: Results,
}

/// The ALU's part of a word.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arithmetic {
    pub op: AluOp,
    pub a: u8,
    pub b: u8,
    pub dest: u8,
    pub predicate: u8,
    /// Bits of operand b that the immediate does not replace, and the immediate at its position.
    pub keep: u64,
    pub immediate: u64,
    pub tops: u64,
    /// The sources of a permutation's bytes: 0 to 7 are operand a's, 8 to 15 operand b's, 16 is zero.
    pub bytes: [u8; 8],
    pub results: Results,
}

/// The source of a zero byte in [`Arithmetic::bytes`].
const ZERO_BYTE: u8 = 16;

impl Arithmetic {
    fn new(alu: &Alu) -> Self {
        let immediate = u64::from(alu.immediate.get());
        let (keep, immediate) = match alu.half {
            Half::None => (u64::MAX, 0),
            Half::Lower => (u64::MAX << 32, immediate),
            Half::Upper => (u64::MAX >> 32, immediate << 32),
        };
        Self {
            op: alu.op,
            a: alu.a.get() as u8,
            b: alu.b.get() as u8,
            dest: alu.dest.get() as u8,
            predicate: alu.predicate.get() as u8,
            keep,
            immediate,
            tops: tops(alu.join),
            bytes: alu.byte_sources().map(|source| match source {
                ByteSource::Zero => ZERO_BYTE,
                ByteSource::A(place) => place & 7,
                ByteSource::B(place) => 8 | place & 7,
            }),
            results: Results::new(alu.join, ALU_PREDICATE, alu.lanes, alu.combine),
        }
    }

    /// The register's new value; comparisons have none.
    #[inline]
    pub fn compute(&self, a: u64, b: u64) -> u64 {
        match self.op {
            AluOp::Add => add(a, b, self.tops),
            AluOp::Subtract => subtract(a, b, self.tops),
            AluOp::And => a & b,
            AluOp::Or => a | b,
            AluOp::Xor => a ^ b,
            AluOp::Nor => !(a | b),
            AluOp::Permute => self.permute(a, b),
            AluOp::Equal
            | AluOp::NotEqual
            | AluOp::Less
            | AluOp::LessOrEqual
            | AluOp::Greater
            | AluOp::GreaterOrEqual => 0,
        }
    }

    /// The tops of those groups for which the comparison holds; other operations have none.
    #[inline]
    pub fn compare(&self, a: u64, b: u64) -> u64 {
        let tops = self.tops;
        match self.op {
            AluOp::Equal => tops_of_nonzero(a ^ b, tops) ^ tops,
            AluOp::NotEqual => tops_of_nonzero(a ^ b, tops),
            AluOp::Less => tops_of_less(a, b, tops),
            AluOp::LessOrEqual => tops_of_less(b, a, tops) ^ tops,
            AluOp::Greater => tops_of_less(b, a, tops),
            AluOp::GreaterOrEqual => tops_of_less(a, b, tops) ^ tops,
            AluOp::Add
            | AluOp::Subtract
            | AluOp::And
            | AluOp::Or
            | AluOp::Xor
            | AluOp::Nor
            | AluOp::Permute => 0,
        }
    }

    /// Permutations are rare and take many instructions. In a function of their own, they leave the host's registers to
    /// the other operations.
    #[inline(never)]
    fn permute(&self, a: u64, b: u64) -> u64 {
        let mut operands = [0; 2 * ZERO_BYTE as usize];
        operands[..8].copy_from_slice(&a.to_le_bytes());
        operands[8..16].copy_from_slice(&b.to_le_bytes());
        let byte = |from: u8| u64::from(operands[usize::from(from) % operands.len()]);
        self.bytes.iter().rev().fold(0, |word, from| word << 8 | byte(*from))
    }
}

/// A word, decoded for execution.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Operation {
    /// The active slots: [`active`].
    pub active: u8,
    pub input_alu: u8,
    pub input_ternary: u8,
    permute: u8,
    pub copy_predicate: u8,
    pub copy_source: u8,
    pub copy_ternary: u8,
    pub copy_output: bool,
    pub branch_predicate: u8,
    pub branch_sense: bool,
    pub branch_target: u16,
    pub functions: [Function; 2],
    pub alu: Arithmetic,
    pub ternary: Match,
}

impl Operation {
    pub fn new(word: &Word) -> Self {
        let Word { input, copy, alu, ternary, predicate, branch } = word;
        Self {
            active: slots(word),
            input_alu: input.alu.get() as u8,
            input_ternary: input.ternary.get() as u8,
            permute: input.permute.get() as u8,
            copy_predicate: copy.predicate.get() as u8,
            copy_source: copy.source.get() as u8,
            copy_ternary: copy.ternary.get() as u8,
            copy_output: copy.output,
            branch_predicate: branch.predicate.get() as u8,
            branch_sense: branch.sense,
            branch_target: branch.target.get() as u16,
            functions: [
                Function::new(predicate.a0, predicate.b0, predicate.function0, predicate.dest0),
                Function::new(predicate.a1, predicate.b1, predicate.function1, predicate.dest1),
            ],
            alu: Arithmetic::new(alu),
            ternary: Match {
                match0: ternary.match0.get() as u8,
                match1: ternary.match1.get() as u8,
                mask: ternary.mask.get() as u8,
                invert: if ternary.ignore { u64::MAX } else { 0 },
                tops: tops(ternary.join),
                results: Results::new(ternary.join, TERNARY_PREDICATE, ternary.lanes, ternary.combine),
            },
        }
    }

    /// Whether a slot is active.
    #[inline]
    pub const fn has(&self, slot: u8) -> bool {
        self.active & slot != 0
    }

    /// Whether the word branches for any predicates.
    pub const fn always_branches(&self) -> bool {
        self.has(active::BRANCH) && self.branch_predicate == 0 && self.branch_sense
    }

    /// The input with its lanes in the order of the ternary register.
    #[inline]
    pub fn permuted(&self, input: u64) -> u64 {
        Self::permute(self.permute, input)
    }

    /// The lane of the input that each lane of the ternary register gets, in two bits each.
    pub const fn permutation(&self) -> u8 {
        self.permute
    }

    /// An input word with its lanes permuted.
    #[inline]
    pub fn permute(permutation: u8, input: u64) -> u64 {
        (0..LANES).fold(0, |word, lane| {
            let from = usize::from(permutation >> (2 * lane) & 3);
            word | (input >> (LANE_BITS * from) & 0xffff) << (LANE_BITS * lane)
        })
    }
}

/// The active slots of a word.
fn slots(word: &Word) -> u8 {
    let Word { input, copy, alu, ternary, predicate, branch } = word;
    let is_compare = alu.op.is_compare();
    [
        (active::TAKE, input.take),
        (active::COPY, copy.output || copy.ternary.get() != 0),
        (active::COMPUTE, !is_compare && alu.dest.get() != 0),
        (active::COMPARE, is_compare && alu.lanes.get() != 0),
        (active::TERNARY, ternary.lanes.get() != 0),
        (active::PREDICATE, predicate.dest0.get() | predicate.dest1.get() != 0),
        (active::BRANCH, !branch.is_never()),
        (
            active::PERMUTE,
            input.take && input.ternary.get() != 0 && input.permute != niclab_isa::word::IDENTITY,
        ),
    ]
    .into_iter()
    .fold(0, |slots, (slot, is_active)| if is_active { slots | slot } else { slots })
}
