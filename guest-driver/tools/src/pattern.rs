//! That a measured message is what was sent.

use std::ops::Range;

use crate::Failure;
use crate::channel::pattern;

/// Bytes at each end of a large message that are compared with what was sent.
const COMPARED_BYTES: usize = 64;
/// The pattern begins anew after so many bytes.
const PATTERN_BYTES: usize = 256;
/// The pattern, as far as what is compared at once can begin anywhere in it.
static PATTERN: [u8; PATTERN_BYTES + COMPARED_BYTES] = {
    let mut bytes = [0; PATTERN_BYTES + COMPARED_BYTES];
    let mut index = 0;
    while index < bytes.len() {
        bytes[index] = pattern(index);
        index += 1;
    }
    bytes
};
/// Every n-th message is compared as a whole.
pub const WHOLE_EVERY: u64 = 256;

/// A message must be the pattern: both ends of it always, and all of it where that is wanted. `read` copies its bytes
/// from an offset on.
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
        // As a whole: under emulation, byte by byte would take longer than the message.
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
