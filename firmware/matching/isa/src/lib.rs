//! The instruction set of the match unit ("An Architecture to Perform NIC Based MPI Matching", section 4). The match
//! unit is microcoded: each instruction word has 164 bits and controls six functional units for one cycle.
//!
//! * [`word`]: instruction words. One table, [`FIELDS`], defines their fields. The encoder and the decoder are derived
//!   from it. The assembler, the disassembler, the model of the match unit and its manual use it, too.
//! * [`image`]: firmware images. An image is a program with a version and a CRC-32.
//!
//! The paper gives the six slots of a word, its width, and the function of each unit. niclab chooses the positions of
//! the fields in a slot, and the opcodes. docs/use/match/MACHINE.md is the programmer's manual.
//!
//! Constants: the paper's section 4.2, except for [`MAX_WORDS`], which is assumed.

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

/// Number of registers of the ALU, and of the ternary unit (section 4.2.1). Register 0 is constant: zero in the ALU,
/// all ones in the ternary unit.
pub const REGISTERS: usize = 16;

/// Number of predicates, each of one bit (section 4.2.1). Predicate 0 is constant: one.
pub const PREDICATES: usize = 16;

/// Numbers of the predicates that the predicate unit can write.
pub const WRITABLE_PREDICATES: core::ops::Range<usize> = 1..8;

/// Number of the predicate with the result of a comparison in the ALU's lane 0. Lanes 1 to 3 have the next numbers.
pub const ALU_PREDICATE: usize = 8;

/// Number of the predicate with the result of the ternary unit's lane 0. Lanes 1 to 3 have the next numbers.
pub const TERNARY_PREDICATE: usize = 12;

/// Number of lanes, each of 16 bits, in a register.
pub const LANES: usize = 4;

/// Number of words after a branch that the match unit executes whether or not the branch is taken (section 4.2.5).
pub const DELAY_SLOTS: usize = 2;

/// Maximum number of words in a program, limited by the 13 bits of a branch's target.
pub const MAX_WORDS: usize = 1 << 13;
