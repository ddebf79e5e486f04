//! Checks that a measured message is the one that was sent.

use std::ops::Range;

use crate::Failure;
use crate::channel::pattern;

/// Bytes at each end of a large message that are compared with the pattern.
const COMPARED_BYTES: usize = 64;
/// Period of the pattern.
const PATTERN_BYTES: usize = 256;
/// The pattern, one period plus one comparison, so that a comparison can begin anywhere in a period.
static PATTERN: [u8; PATTERN_BYTES + COMPARED_BYTES] = {
    let mut bytes = [0; PATTERN_BYTES + COMPARED_BYTES];
    let mut index = 0;
    while index < bytes.len() {
        bytes[index] = pattern(index);
        index += 1;
    }
    bytes
};
/// One in this many messages is compared as a whole.
pub const WHOLE_EVERY: u64 = 256;

/// Checks a message against the pattern: always both ends of it, and all bytes if `is_whole`. `read` copies bytes of
/// the message from an offset on.
///
/// # Errors
///
/// [`Failure::Damaged`].
pub fn compare(
    read: impl Fn(usize, &mut [u8]) -> Result<(), Failure>,
    bytes: usize,
    is_whole: bool,
    number: u64,
    peer: &str,
) -> Result<(), Failure> {
    let part = |part: Range<usize>| compare_part(&read, part, number, peer);
    if is_whole {
        return part(0..bytes);
    }
    let front = bytes.min(COMPARED_BYTES);
    part(0..front)?;
    part(front.max(bytes.saturating_sub(COMPARED_BYTES))..bytes)
}

fn compare_part(
    read: impl Fn(usize, &mut [u8]) -> Result<(), Failure>,
    part: Range<usize>,
    number: u64,
    peer: &str,
) -> Result<(), Failure> {
    let mut found = [0; COMPARED_BYTES];
    for first in part.clone().step_by(COMPARED_BYTES) {
        let found = &mut found[..COMPARED_BYTES.min(part.end - first)];
        read(first, found)?;
        // One comparison of all bytes: under emulation, a loop over bytes would take longer than the message.
        if PATTERN.get(first % PATTERN_BYTES..).is_some_and(|expected| expected.starts_with(found)) {
            continue;
        }
        let wrong = found.iter().enumerate().find(|&(at, &byte)| byte != pattern(first + at));
        if let Some((at, &byte)) = wrong {
            return Err(Failure::Damaged {
                peer: peer.into(),
                number,
                offset: first + at,
                expected: pattern(first + at),
                found: byte,
            });
        }
    }
    Ok(())
}
