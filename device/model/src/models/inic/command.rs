//! Commands: decoded once, and checked as far as they can be without knowing the port ([`niclab_abi::posts`]).

use niclab_abi::posts::{
    POST_BAD_COMMAND, POST_BAD_VALUE, POST_INTERRUPT, POST_MASK, POST_NO_TARGET, POST_RECEIVE, POST_SEND,
    POST_TELL_SENT, POST_UNIT_BYTES, ReceiveCommand, SendCommand,
};
use niclab_abi::{FromBytes, from_words};

use crate::models::inic::config::Config;

/// Words of a slot that a command has.
const WORDS: usize = 10;

/// Part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) region: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Send {
    pub(super) user: u64,
    pub(super) node: u16,
    pub(super) memory: Memory,
    pub(super) tell_sent: bool,
}

/// Room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receive {
    pub(super) user: u64,
    pub(super) memory: Memory,
    /// The host is interrupted when a message is there.
    pub(super) interrupt: bool,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Send(Send),
    Receive(Receive),
}

impl Command {
    /// Reads a slot: lower half of the launch word, and the words before.
    ///
    /// # Errors
    /// The result that says why it is refused.
    pub(super) fn decode(code: u32, words: &[u64; WORDS], config: &Config) -> Result<Self, u32> {
        let flags = code & !POST_MASK;
        let has = |flag: u32| flags & flag != 0;
        let may_have = |allowed: u32| if flags & !allowed == 0 { Ok(()) } else { Err(POST_BAD_VALUE) };
        match code & POST_MASK {
            POST_SEND => {
                may_have(POST_TELL_SENT)?;
                let SendCommand { user, region, node, reserved, offset, bytes } = layout(words)?;
                if reserved != 0 {
                    return Err(POST_BAD_VALUE);
                }
                if u32::from(node) >= config.nodes {
                    return Err(POST_NO_TARGET);
                }
                let memory = memory(region, offset, bytes, config)?;
                Ok(Self::Send(Send { user, node, memory, tell_sent: has(POST_TELL_SENT) }))
            }
            POST_RECEIVE => {
                may_have(POST_INTERRUPT)?;
                let ReceiveCommand { user, region, reserved, offset, bytes } = layout(words)?;
                if reserved != 0 {
                    return Err(POST_BAD_VALUE);
                }
                let memory = memory(region, offset, bytes, config)?;
                Ok(Self::Receive(Receive { user, memory, interrupt: has(POST_INTERRUPT) }))
            }
            _ => Err(POST_BAD_COMMAND),
        }
    }
}

/// A message is not empty, not longer than the card takes, and a whole number of the header's units of length.
const fn memory(region: u32, offset: u64, bytes: u64, config: &Config) -> Result<Memory, u32> {
    let is_message = bytes > 0 && bytes <= config.max_message_bytes && bytes.is_multiple_of(POST_UNIT_BYTES);
    if is_message { Ok(Memory { region, offset, bytes }) } else { Err(POST_BAD_VALUE) }
}

/// The layout in the words of a slot, behind which all is zero.
fn layout<T: FromBytes>(words: &[u64; WORDS]) -> Result<T, u32> {
    let is_zero = words.iter().skip(T::BYTES / size_of::<u64>()).all(|word| *word == 0);
    from_words(words).filter(|_| is_zero).ok_or(POST_BAD_VALUE)
}
