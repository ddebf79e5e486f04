//! The page-offset code, which a store carries in its address (Fröning, Litz, Brüning 2007, section 3.3, figure 4).
//!
//! [`niclab_abi::bar`] defines the bits, and interprets the paper's sentence about the length field.
//!
//! Constants: the paper's section 3.3, and the reserved bits, which are ours.

use niclab_abi::bar;
use niclab_abi::receive::{REFUSED_LENGTH, REFUSED_RESERVED_BITS};
use thiserror::Error;

const LENGTH_MASK: u32 = 0xf;
/// The code has twelve bits; all higher bits of the launch word's lower half must be zero.
const RESERVED: u32 = bar::CODE_RESERVED as u32 | !0xfff;

/// Why a code is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CodeError {
    /// Reserved bits are set.
    #[error("launch code {code:#x} sets reserved bits {:#x}; they must be zero", .code & RESERVED)]
    ReservedBits {
        /// The code.
        code: u32,
    },
    /// The burst begins after the tag.
    #[error("launch code {code:#x} begins its burst at word {begin}; the last valid word is 8, the tag")]
    Length {
        /// The code.
        code: u32,
        /// Word of the slot where the burst begins.
        begin: u32,
    },
}

impl CodeError {
    /// The reason in the status line.
    pub const fn refusal(self) -> u64 {
        match self {
            Self::ReservedBits { .. } => REFUSED_RESERVED_BITS,
            Self::Length { .. } => REFUSED_LENGTH,
        }
    }
}

/// A decoded post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Payload words, 0..=8.
    pub payload_words: usize,
    /// Write the status line when the packet has left.
    pub notify: bool,
    /// Interrupt the receiver.
    pub interrupt: bool,
    /// Have the receiver acknowledge.
    pub acknowledge: bool,
}

impl Code {
    /// Decodes the lower half of a launch word.
    ///
    /// # Errors
    /// If reserved bits are set, or the length field is above 8.
    #[inline]
    pub fn decode(code: u32) -> Result<Self, CodeError> {
        if code & RESERVED != 0 {
            return Err(CodeError::ReservedBits { code });
        }
        let begin = (code >> bar::CODE_LENGTH_SHIFT) & LENGTH_MASK;
        let Some(payload_words) = bar::PAYLOAD_WORDS.checked_sub(begin as usize) else {
            return Err(CodeError::Length { code, begin });
        };
        let is_set = |flag: u16| code & u32::from(flag) != 0;
        Ok(Self {
            payload_words,
            notify: is_set(bar::CODE_NOTIFY),
            interrupt: is_set(bar::CODE_INTERRUPT),
            acknowledge: is_set(bar::CODE_ACKNOWLEDGE),
        })
    }

    /// The twelve bits; `None` for more than 8 payload words.
    pub fn encode(&self) -> Option<u16> {
        let begin = bar::PAYLOAD_WORDS.checked_sub(self.payload_words)?;
        let flag = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        Some(
            ((begin as u16) << bar::CODE_LENGTH_SHIFT)
                | flag(self.notify, bar::CODE_NOTIFY)
                | flag(self.interrupt, bar::CODE_INTERRUPT)
                | flag(self.acknowledge, bar::CODE_ACKNOWLEDGE),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_code_of_twelve_bits_is_decoded_or_refused() {
        let mut valid = 0;
        for code in 0..4096_u32 {
            match Code::decode(code) {
                Ok(decoded) => {
                    assert_eq!(decoded.encode().map(u32::from), Some(code));
                    assert_eq!(decoded.payload_words as u32, 8 - ((code >> 3) & 0xf));
                    valid += 1;
                }
                Err(CodeError::ReservedBits { .. }) => assert_ne!(code & 0b1100_0000_0111, 0),
                Err(CodeError::Length { begin, .. }) => assert!(begin > 8 && code & 0b1100_0000_0111 == 0),
            }
        }
        assert_eq!(valid, 9 * 8);
    }

    #[test]
    fn zero_means_seven_and_the_reverse() {
        // Section 3.3, with one to eight words coded as 0..=7: eight words (7) begin at 0, one word (0) at 7.
        let payload_words = |begin: u32| Code::decode(begin << 3).map(|code| code.payload_words);
        assert_eq!(payload_words(0), Ok(8));
        assert_eq!(payload_words(7), Ok(1));
        assert_eq!(payload_words(8), Ok(0));
    }

    proptest! {
        #[test]
        fn bits_above_the_code_are_refused(code in 4096..=u32::MAX) {
            prop_assert_eq!(Code::decode(code), Err(CodeError::ReservedBits { code }));
        }
    }
}
