//! Copies whole words between memory that a device also uses and memory of this program, with the widest stores and
//! loads of the processor.
//!
//! The reader reads such bytes only after a post or a record reports that all are present. So only the order of that
//! store with the bytes matters, not the number of stores of the bytes. A cache line goes to a write-combining window
//! as one burst. An emulated processor takes as long for sixteen bytes as for eight.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words that are copied at once: a cache line.
const LINE_WORDS: usize = 8;

type SharedLine = [AtomicU64; LINE_WORDS];
type Line = [[u8; 8]; LINE_WORDS];

/// Stores words, as many as both slices have.
pub(crate) fn store(to: &[AtomicU64], from: &[[u8; 8]]) {
    let (to_lines, to_rest) = to.split_at(whole_lines(to.len(), from.len()));
    let (from_lines, from_rest) = from.split_at(to_lines.len());
    for (to, from) in to_lines.as_chunks().0.iter().zip(from_lines.as_chunks().0) {
        store_line(to, from);
    }
    for (word, bytes) in to_rest.iter().zip(from_rest) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
}

/// Loads words, as many as both slices have.
pub(crate) fn load(from: &[AtomicU64], to: &mut [[u8; 8]]) {
    let (from_lines, from_rest) = from.split_at(whole_lines(from.len(), to.len()));
    let (to_lines, to_rest) = to.split_at_mut(from_lines.len());
    for (from, to) in from_lines.as_chunks().0.iter().zip(to_lines.as_chunks_mut().0) {
        load_line(from, to);
    }
    for (word, bytes) in from_rest.iter().zip(to_rest) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
}

/// Number of words in the whole lines that both slices have.
const fn whole_lines(one: usize, other: usize) -> usize {
    let words = if one < other { one } else { other };
    words - words % LINE_WORDS
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn store_line(to: &SharedLine, from: &Line) {
    // SAFETY: by their types, `from` has 64 readable bytes and `to` has 64 bytes that may be written. SSE2 is part of
    // every x86-64 processor. The destination consists of atomic words, and the processor makes these stores as whole
    // words. So a concurrent reader sees each word as it was or as it is. The compiler assumes that the assembly may
    // change any memory.
    unsafe { copy_line(to.as_ptr().cast_mut().cast(), from.as_ptr().cast()) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn load_line(from: &SharedLine, to: &mut Line) {
    // SAFETY: as in `store_line`, with the roles exchanged; `to` is borrowed exclusively.
    unsafe { copy_line(to.as_mut_ptr().cast(), from.as_ptr().cast()) }
}

/// Copies 64 bytes.
///
/// # Safety
/// `to` is valid for writes of 64 bytes, and `from` for reads of 64 bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn copy_line(to: *mut u8, from: *const u8) {
    // SAFETY: the caller guarantees valid pointers; the code changes no flag and uses no stack.
    unsafe {
        std::arch::asm!(
            "movups {first}, [{from}]",
            "movups {second}, [{from} + 16]",
            "movups {third}, [{from} + 32]",
            "movups {fourth}, [{from} + 48]",
            "movups [{to}], {first}",
            "movups [{to} + 16], {second}",
            "movups [{to} + 32], {third}",
            "movups [{to} + 48], {fourth}",
            from = in(reg) from,
            to = in(reg) to,
            first = out(xmm_reg) _,
            second = out(xmm_reg) _,
            third = out(xmm_reg) _,
            fourth = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn store_line(to: &SharedLine, from: &Line) {
    for (word, bytes) in to.iter().zip(from) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn load_line(from: &SharedLine, to: &mut Line) {
    for (word, bytes) in from.iter().zip(to) {
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_goes_to_its_place_and_none_elsewhere() {
        for count in 0..40_usize {
            let from: Vec<[u8; 8]> = (1..=count as u64).map(u64::to_ne_bytes).collect();
            let to: Vec<AtomicU64> = (0..count + 9).map(|_| AtomicU64::new(u64::MAX)).collect();
            store(&to[1..], &from);
            let words: Vec<u64> = to.iter().map(|word| word.load(Ordering::Relaxed)).collect();
            let expected = (1..=count as u64).chain([u64::MAX; 8]);
            assert_eq!(words, std::iter::once(u64::MAX).chain(expected).collect::<Vec<_>>());
            let mut back = vec![[7; 8]; count + 2];
            load(&to[1..=count], &mut back[1..]);
            assert_eq!((back[0], back[count + 1], &back[1..=count]), ([7; 8], [7; 8], &*from));
            store(&to[..count / 2], &from);
            assert_eq!(to[count / 2].load(Ordering::Relaxed), words[count / 2], "a word beyond the room");
        }
    }
}
