//! The instruction set of the match unit ("An Architecture to Perform NIC Based MPI Matching", section 4): a microcoded
//! engine whose word is 164 bits wide and commands six units in every cycle.
//!
//! * [`word`]: the word. Its fields stand in one table, [`FIELDS`], from which encoder and decoder are derived, and
//!   which assembler, disassembler, engine and manual use;
//! * [`image`]: firmware images: a program with a version and a check sequence.
//!
//! The paper gives the six slots, the width of the word and what each unit does; where a field stands inside its slot,
//! and how operations are numbered, is this project's choice. docs/use/match/MACHINE.md is the prose of this crate.
//!
//! Constants: the paper's section 4.2; how far a branch reaches is assumed.

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

/// Registers of the ALU's and of the ternary unit's file (section 4.2.1). Number 0 is constant in both: zero in the
/// ALU's, all ones in the ternary unit's.
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

/// Words behind a branch that are executed whether or not it is taken (section 4.2.5).
pub const DELAY_SLOTS: usize = 2;

/// Most words of a program: what a branch can reach.
pub const MAX_WORDS: usize = 1 << 13;
