//! The Portals matching program, in exactly the paper's budget (Table 1): initialization 4, header 9, shared 6, fast path 7,
//! slow path 10, flush 8: 44 words.
//!
//! The program is one word of an item ahead of itself: the header's last word takes the first word of the first item, and
//! the loop over items that fail takes the first word of the next. That is what lets an item whose match bits differ cost the
//! eight cycles in which its words arrive, and no more. Of the words behind a branch two are executed in any case; the comments
//! say where that is used.

use alloc::vec;
use alloc::vec::Vec;

use niclab_isa::word::{ByteSource, IDENTITY};
use niclab_isa::{Alu, AluOp, Bits, Branch, Combine, Copy, Half, Input, Predicate, Ternary, Word};

use crate::matching::item::flag;

/// What the program appends to the output FIFO for an item that failed.
pub const FAILED: u64 = 0;
/// For an item that matches; offset and length follow.
pub const SUCCEEDED: u64 = 1;
/// When the item behind one that matched is drained.
pub const DONE: u64 = 2;

/// Words before the header's: executed once.
pub const INITIALIZATION_WORDS: usize = 4;
/// Words that take a header, the last of which takes the first word of an item.
pub const HEADER_WORDS: usize = 9;
/// Words that each item passes.
pub const SHARED_WORDS: usize = 6;
/// Words for an item whose match bits fit.
pub const FAST_WORDS: usize = 7;
/// Words for one that uses a remote offset or a maximum size.
pub const SLOW_WORDS: usize = 10;
/// Words that drain the item behind one that matched.
pub const FLUSH_WORDS: usize = 8;

const HEADER: usize = INITIALIZATION_WORDS;
const NEXT_ITEM: usize = HEADER + HEADER_WORDS - 1;
const SHARED: usize = HEADER + HEADER_WORDS;
const FAST: usize = SHARED + SHARED_WORDS;
const SLOW: usize = FAST + FAST_WORDS;
const FLUSH: usize = SLOW + SLOW_WORDS;

// ALU registers.
const IDS: u32 = 1;
const MESSAGE_LENGTH: u32 = 2;
const REQUIRED: u32 = 3;
const REMOTE_OFFSET: u32 = 4;
const ITEM_IDS: u32 = 5;
const LENGTH: u32 = 6;
const OFFSET: u32 = 7;
const MAX_SIZE: u32 = 8;
const REMAIN: u32 = 9;
const THRESHOLD: u32 = 10;
const STORED: u32 = 11;
const FLAG_TESTS: u32 = 12;
const TWO: u32 = 13;
const ONES: u32 = 14;
const ONE: u32 = 15;

// Ternary registers.
const T_MATCH: u32 = 1;
const T_FLAG_MASK: u32 = 3;
const T_ITEM_MATCH: u32 = 4;
const T_ITEM_MASK: u32 = 5;
const T_FLAGS: u32 = 6;
const T_FLAG_MATCH: u32 = 7;
const T_SLOW_TESTS: u32 = 8;

// Predicates of comparisons.
const P_PROCESS: u32 = 9;
const P_ACTIVE: u32 = 9;
const P_FITS_SLOW: u32 = 10;
const P_BEYOND: u32 = 10;
const P_NODE: u32 = 11;
const P_FITS: u32 = 11;
const P_TOO_LITTLE: u32 = 11;
const P_RESPONDS: u32 = 12;
const P_REMOTE: u32 = 12;
const P_FAST: u32 = 13;
const P_MAX_SIZE: u32 = 13;
const P_END: u32 = 14;
const P_TRUNCATES: u32 = 15;
const P_MATCH: u32 = 15;

const AND: u32 = 0b1000;
const NAND: u32 = 0b0111;
const OR: u32 = 0b1110;
/// The first and not the second.
const AND_NOT: u32 = 0b0100;

const fn bits<const N: u32>(value: u32) -> Bits<N> {
    Bits::truncated(value)
}

fn take(alu: u32, ternary: u32) -> Input {
    Input { take: true, alu: bits(alu), ternary: bits(ternary), permute: IDENTITY }
}

fn alu(op: AluOp, dest: u32, a: u32, b: u32) -> Alu {
    Alu { op, dest: bits(dest), a: bits(a), b: bits(b), join: bits(7), ..Alu::default() }
}

fn immediate(half: Half, value: u32, alu: Alu) -> Alu {
    Alu { half, immediate: bits(value), ..alu }
}

fn only_if(predicate: u32, alu: Alu) -> Alu {
    Alu { predicate: bits(predicate), ..alu }
}

/// A comparison whose results go to the lanes' predicates.
fn test(op: AluOp, a: u32, b: u32, join: u32, lanes: u32, combine: Combine) -> Alu {
    Alu { op, a: bits(a), b: bits(b), join: bits(join), lanes: bits(lanes), combine, ..Alu::default() }
}

fn send(source: u32, predicate: u32) -> Copy {
    Copy { predicate: bits(predicate), source: bits(source), output: true, ..Copy::default() }
}

fn to_ternary(source: u32, ternary: u32) -> Copy {
    Copy { source: bits(source), ternary: bits(ternary), ..Copy::default() }
}

fn ternary(match0: u32, match1: u32, mask: u32, join: u32, lanes: u32) -> Ternary {
    Ternary {
        match0: bits(match0),
        match1: bits(match1),
        mask: bits(mask),
        join: bits(join),
        lanes: bits(lanes),
        ..Ternary::default()
    }
}

/// One or two functions: destination, table, arguments.
fn logic(first: (u32, u32, u32, u32), second: (u32, u32, u32, u32)) -> Predicate {
    Predicate {
        dest0: bits(first.0),
        function0: bits(first.1),
        a0: bits(first.2),
        b0: bits(first.3),
        dest1: bits(second.0),
        function1: bits(second.1),
        a1: bits(second.2),
        b1: bits(second.3),
    }
}

const NOTHING: (u32, u32, u32, u32) = (0, 0, 0, 0);

fn branch(predicate: u32, sense: bool, target: usize) -> Branch {
    Branch { predicate: bits(predicate), sense, target: bits(target as u32) }
}

fn always(target: usize) -> Branch {
    branch(0, true, target)
}

/// The program.
#[must_use]
pub fn portals() -> Vec<Word> {
    let mut program = initialization();
    program.extend(header());
    program.extend(shared());
    program.extend(fast_path());
    program.extend(slow_path());
    program.extend(flush());
    program
}

/// Constants.
fn initialization() -> Vec<Word> {
    let upper = u32::from(flag::TRUNCATE) << 16 | u32::from(flag::END);
    let slow = u32::from(flag::REMOTE_OFFSET | flag::MAX_SIZE) << 16;
    let set = |alu| Word { alu, ..Word::default() };
    vec![
        // Flags to test, lane by lane: 1 those of the slow path, 2 end, 3 truncation.
        set(immediate(Half::Lower, slow, alu(AluOp::Add, FLAG_TESTS, 0, 0))),
        set(immediate(Half::Upper, upper, alu(AluOp::Or, FLAG_TESTS, 0, FLAG_TESTS))),
        set(immediate(Half::Lower, 1, alu(AluOp::Add, ONE, 0, 0))),
        set(immediate(Half::Lower, 2, alu(AluOp::Add, TWO, 0, 0))),
    ]
}

/// Takes the header, and makes of it what items are compared with.
fn header() -> Vec<Word> {
    use ByteSource::{A, B, Zero};
    let slow_tests = u32::from(flag::REMOTE_OFFSET) | u32::from(flag::MAX_SIZE) << 16;
    let permutation = |dest, sources| Alu::permutation(bits(REQUIRED), bits(FLAG_TESTS), bits(dest), sources);
    // Lane 0 alone: valid, and the operation's own flag, which is 2 for a put and 4 for a get.
    let lane = |alu| Alu { join: bits(0), ..alu };
    let mask = permutation(MAX_SIZE, [A(0), A(1), B(2), B(3), B(4), B(5), B(6), B(7)]);
    // The slow path's flags are tested for being zero.
    let wanted = permutation(REMAIN, [A(0), A(1), Zero, Zero, B(4), B(5), B(6), B(7)]);
    vec![
        Word { input: take(0, T_MATCH), alu: alu(AluOp::Nor, ONES, 0, 0), ..Word::default() },
        Word {
            input: take(IDS, 0),
            alu: immediate(Half::Lower, slow_tests, alu(AluOp::Add, THRESHOLD, 0, 0)),
            ..Word::default()
        },
        Word {
            input: take(MESSAGE_LENGTH, 0),
            alu: lane(alu(AluOp::Add, REQUIRED, IDS, IDS)),
            copy: to_ternary(THRESHOLD, T_SLOW_TESTS),
            ..Word::default()
        },
        Word {
            input: take(REMOTE_OFFSET, 0),
            alu: lane(immediate(Half::Lower, 1, alu(AluOp::Add, REQUIRED, REQUIRED, 0))),
            ..Word::default()
        },
        Word { input: take(0, 0), alu: mask, ..Word::default() },
        Word { input: take(0, 0), alu: wanted, copy: to_ternary(MAX_SIZE, T_FLAG_MASK), ..Word::default() },
        Word { input: take(0, 0), copy: to_ternary(REMAIN, T_FLAG_MATCH), ..Word::default() },
        Word { input: take(0, 0), ..Word::default() },
        // The first word of an item; those that fail late come here for the next.
        Word { input: take(0, T_ITEM_MATCH), ..Word::default() },
    ]
}

/// What each item passes.
fn shared() -> Vec<Word> {
    vec![
        Word { input: take(0, T_ITEM_MASK), ..Word::default() },
        Word {
            // Every lane gets the flags, so that each can test others of them.
            input: Input { permute: bits(0), ..take(ITEM_IDS, T_FLAGS) },
            ternary: ternary(T_ITEM_MATCH, T_MATCH, T_ITEM_MASK, 7, 0b1000),
            ..Word::default()
        },
        Word {
            input: take(LENGTH, 0),
            // Process in lane 1, node in lanes 2 and 3.
            alu: test(AluOp::Equal, ITEM_IDS, IDS, 0b100, 0b1010, Combine::Overwrite),
            ternary: ternary(T_FLAGS, T_FLAG_MATCH, T_FLAG_MASK, 0, 0b1111),
            branch: branch(P_MATCH, true, FAST),
            ..Word::default()
        },
        Word {
            input: take(OFFSET, 0),
            alu: test(AluOp::Equal, ITEM_IDS, ONES, 0b100, 0b1010, Combine::Or),
            ..Word::default()
        },
        Word {
            input: take(MAX_SIZE, 0),
            alu: alu(AluOp::Subtract, REMAIN, LENGTH, OFFSET),
            predicate: logic((1, AND, P_PROCESS, P_NODE), (7, NAND, P_PROCESS, P_NODE)),
            ..Word::default()
        },
        // Only an item whose match bits differ gets here. Behind the branch come the fast path's first two words, which take
        // the rest of this item and the first word of the next.
        Word { input: take(THRESHOLD, 0), copy: send(0, 0), branch: always(SHARED), ..Word::default() },
    ]
}

/// The rest of an item whose match bits fit.
fn fast_path() -> Vec<Word> {
    vec![
        Word {
            input: take(THRESHOLD, 0),
            alu: test(AluOp::LessOrEqual, MESSAGE_LENGTH, REMAIN, 7, 0b1000, Combine::Overwrite),
            predicate: logic((2, AND, 1, P_RESPONDS), NOTHING),
            branch: branch(1, false, NEXT_ITEM),
            ..Word::default()
        },
        Word {
            input: take(0, T_ITEM_MATCH),
            alu: test(AluOp::NotEqual, THRESHOLD, 0, 0b001, 0b0010, Combine::Overwrite),
            predicate: logic((4, OR, P_FITS, P_TRUNCATES), (2, AND, 2, P_FAST)),
            ..Word::default()
        },
        Word {
            // 'Failed', if node or process differ.
            copy: send(0, 7),
            alu: test(AluOp::GreaterOrEqual, REMOTE_OFFSET, LENGTH, 7, 0b0100, Combine::Overwrite),
            ternary: ternary(T_FLAGS, T_SLOW_TESTS, T_SLOW_TESTS, 0, 0b0011),
            predicate: logic((3, AND, 2, P_ACTIVE), (7, AND, P_RESPONDS, P_ACTIVE)),
            branch: branch(P_FAST, false, SLOW),
            ..Word::default()
        },
        Word {
            alu: alu(AluOp::Add, STORED, REMAIN, 0),
            predicate: logic((5, AND, 3, 4), (6, NAND, 3, 4)),
            branch: branch(P_END, true, HEADER),
            ..Word::default()
        },
        Word {
            copy: send(ONE, 5),
            alu: only_if(P_FITS, alu(AluOp::Add, STORED, MESSAGE_LENGTH, 0)),
            // For the slow path: a remote offset that is beyond the memory, or inside it.
            predicate: logic((3, AND, P_REMOTE, P_BEYOND), (4, AND_NOT, P_REMOTE, P_BEYOND)),
            branch: branch(5, false, NEXT_ITEM),
            ..Word::default()
        },
        Word { copy: send(0, 6), ..Word::default() },
        // Behind the branch come the slow path's first two words, which do nothing here: no item of the fast path has a
        // remote offset.
        Word { copy: send(OFFSET, 5), branch: always(FLUSH), ..Word::default() },
    ]
}

/// An item with a remote offset or a maximum size. Predicate 7: active and responds.
fn slow_path() -> Vec<Word> {
    vec![
        Word {
            alu: only_if(3, alu(AluOp::Add, OFFSET, LENGTH, 0)),
            predicate: logic((1, AND_NOT, P_MAX_SIZE, P_TRUNCATES), NOTHING),
            ..Word::default()
        },
        Word { alu: only_if(4, alu(AluOp::Add, OFFSET, REMOTE_OFFSET, 0)), ..Word::default() },
        Word { alu: alu(AluOp::Subtract, REMAIN, LENGTH, OFFSET), ..Word::default() },
        Word { alu: test(AluOp::Less, REMAIN, MAX_SIZE, 7, 0b1000, Combine::Overwrite), ..Word::default() },
        Word {
            alu: test(AluOp::LessOrEqual, MESSAGE_LENGTH, REMAIN, 7, 0b0100, Combine::Overwrite),
            predicate: logic((3, AND, 1, P_TOO_LITTLE), NOTHING),
            ..Word::default()
        },
        Word {
            alu: alu(AluOp::Add, STORED, REMAIN, 0),
            predicate: logic((5, OR, P_FITS_SLOW, P_TRUNCATES), (6, AND_NOT, 7, 3)),
            ..Word::default()
        },
        Word {
            alu: only_if(P_FITS_SLOW, alu(AluOp::Add, STORED, MESSAGE_LENGTH, 0)),
            predicate: logic((5, AND, 5, 6), (6, NAND, 5, 6)),
            ..Word::default()
        },
        Word { copy: send(ONE, 5), branch: branch(5, false, NEXT_ITEM), ..Word::default() },
        Word { copy: send(0, 6), ..Word::default() },
        Word { copy: send(OFFSET, 5), ..Word::default() },
    ]
}

/// Drains the item behind the one that matched.
fn flush() -> Vec<Word> {
    let drain = Word { input: take(0, 0), ..Word::default() };
    let mut words = vec![drain; FLUSH_WORDS];
    words[0].copy = send(STORED, 0);
    words[FLUSH_WORDS - 3].branch = always(HEADER);
    words[FLUSH_WORDS - 1].copy = send(TWO, 0);
    words
}
