//! Commands of programs: decoded once, with all checks that do not depend on the port ([`niclab_abi::inic`]).

use niclab_abi::inic::{
    BarrierCommand, MulticastCommand, POST_BAD_COMMAND, POST_BAD_VALUE, POST_BARRIER, POST_INTERRUPT,
    POST_MASK, POST_MAX_COLLECTIVE_BYTES, POST_MULTICAST, POST_NO_TARGET, POST_RECEIVE, POST_REDUCE,
    POST_SEND, POST_TELL_SENT, POST_UNIT_BYTES, ReceiveCommand, ReduceCommand, SendCommand,
};
use niclab_abi::{FromBytes, from_words};

use crate::models::inic::arithmetic::Task;
use crate::models::inic::config::Config;

/// Words of a slot that a command uses. Ours: the interface.
const WORDS: usize = 10;

/// Part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionPart {
    pub(super) region: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Send {
    pub(super) user: u64,
    pub(super) node: u16,
    pub(super) memory: RegionPart,
    pub(super) tell_sent: bool,
}

/// Room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receive {
    pub(super) user: u64,
    pub(super) memory: RegionPart,
    /// Whether to interrupt the host when a message has arrived.
    pub(super) interrupt: bool,
}

/// An operation that a program posts to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Collective {
    pub(super) user: u64,
    pub(super) group: u32,
    /// Empty for a barrier.
    pub(super) memory: RegionPart,
    /// The reduction over all members' memory; none for a multicast.
    pub(super) task: Option<Task>,
    pub(super) interrupt: bool,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Send(Send),
    Receive(Receive),
    Collective(Collective),
}

impl Command {
    /// Reads a slot: the lower half of the launch word, and the words before it.
    ///
    /// # Errors
    /// The result that reports why it is refused.
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
            POST_BARRIER | POST_MULTICAST | POST_REDUCE => {
                may_have(POST_INTERRUPT)?;
                let interrupt = has(POST_INTERRUPT);
                Ok(Self::Collective(Collective { interrupt, ..collective(code & POST_MASK, words)? }))
            }
            _ => Err(POST_BAD_COMMAND),
        }
    }
}

/// The operation of a collective command, without flags.
fn collective(command: u32, words: &[u64; WORDS]) -> Result<Collective, u32> {
    let nothing = RegionPart { region: 0, offset: 0, bytes: 0 };
    let plain = Collective { user: 0, group: 0, memory: nothing, task: None, interrupt: false };
    match command {
        POST_BARRIER => match layout(words)? {
            BarrierCommand { user, group, reserved: 0 } => {
                Ok(Collective { user, group, task: Some(Task::BARRIER), ..plain })
            }
            BarrierCommand { .. } => Err(POST_BAD_VALUE),
        },
        POST_MULTICAST => {
            let MulticastCommand { user, region, group, offset, bytes } = layout(words)?;
            let memory = RegionPart { region, offset, bytes };
            let is_message = bytes > 0 && bytes.is_multiple_of(POST_UNIT_BYTES);
            let is_sound = is_message && bytes <= POST_MAX_COLLECTIVE_BYTES;
            if is_sound { Ok(Collective { user, group, memory, ..plain }) } else { Err(POST_BAD_VALUE) }
        }
        _ => {
            let ReduceCommand { user, region, group, offset, bytes, operator, element } = layout(words)?;
            let memory = RegionPart { region, offset, bytes };
            let task = Task::reduction(operator, element).filter(|task| task.takes(bytes));
            let task = task.filter(|_| bytes <= POST_MAX_COLLECTIVE_BYTES).ok_or(POST_BAD_VALUE)?;
            Ok(Collective { user, group, memory, task: Some(task), ..plain })
        }
    }
}

/// Checks the length: a message is not empty, at most the card's maximum, and a multiple of the header's unit of
/// length.
const fn memory(region: u32, offset: u64, bytes: u64, config: &Config) -> Result<RegionPart, u32> {
    let is_message = bytes > 0 && bytes <= config.max_message_bytes && bytes.is_multiple_of(POST_UNIT_BYTES);
    if is_message { Ok(RegionPart { region, offset, bytes }) } else { Err(POST_BAD_VALUE) }
}

/// The layout in the words of a slot, after which all words must be zero.
fn layout<T: FromBytes>(words: &[u64; WORDS]) -> Result<T, u32> {
    let is_zero = words.iter().skip(T::BYTES / size_of::<u64>()).all(|word| *word == 0);
    from_words(words).filter(|_| is_zero).ok_or(POST_BAD_VALUE)
}
