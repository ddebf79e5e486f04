//! The instruction set of the match unit ("An Architecture to Perform NIC Based MPI Matching", section 4): a
//! microcoded engine whose word is 164 bits wide and commands six units in every cycle.
//!
//! * [`word`]: the word. One table, [`FIELDS`], defines its fields. Encoder and decoder are derived from it, and
//!   assembler, disassembler, engine and manual use it;
//! * [`image`]: firmware images: a program with a version and a check sequence.
//!
//! The paper gives the six slots, the width of the word and the function of each unit. The positions of fields in
//! their slots, and the numbers of operations, are this project's choice. docs/use/match/MACHINE.md describes this
//! crate in prose.
//!
//! Constants: the paper's section 4.2; the reach of a branch is assumed.

#![no_std]

extern crate alloc;

pub mod bits;
pub mod image;
pub mod word;

pub use bits::Bits;
pub use word::{
    Alu, AluOp, Branch, Combine, Copy, DecodeError, FIELDS, Field, Half, Input, Predicate, Ternary,
    WORD_BITS, Word,
};

/// Registers in the files of the ALU and of the ternary unit (section 4.2.1). Number 0 is constant in both: zero in
/// the ALU's file, all ones in the ternary unit's.
pub const REGISTERS: usize = 16;

/// Predicates (section 4.2.1). Number 0 is constant: one.
pub const PREDICATES: usize = 16;

/// Predicates that the predicate unit can write: 1 to 7.
pub const WRITABLE_PREDICATES: core::ops::Range<usize> = 1..8;

/// The predicate of the ALU's lane 0; those of lanes 1 to 3 follow.
pub const ALU_PREDICATE: usize = 8;

/// The predicate of the ternary unit's lane 0; those of lanes 1 to 3 follow.
pub const TERNARY_PREDICATE: usize = 12;

/// Lanes of 16 bits in a register.
pub const LANES: usize = 4;

/// Words after a branch that are executed whether or not it is taken (section 4.2.5).
pub const DELAY_SLOTS: usize = 2;

/// Max words of a program: the reach of a branch.
pub const MAX_WORDS: usize = 1 << 13;
