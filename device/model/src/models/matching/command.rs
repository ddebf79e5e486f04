//! Commands of programs: decoded once, and checked as far as possible without the port's state
//! ([`niclab_abi::matching`]).

use niclab_abi::matching::{
    ANY_NODE, ANY_PORT, AppendCommand, ArmCounterCommand, COMMAND_ACK, COMMAND_APPEND, COMMAND_ARM_COUNTER,
    COMMAND_COUNT_ONLY, COMMAND_GET, COMMAND_INTERRUPT, COMMAND_MASK, COMMAND_PUT, COMMAND_SENT,
    COMMAND_UNLINK, COUNTERS, ENTRY_GET, ENTRY_MAX_SIZE, ENTRY_NO_UNLINK_EVENT, ENTRY_OVERFLOW, ENTRY_PUT,
    ENTRY_REMOTE_OFFSET, ENTRY_TRUNCATE, PORTALS, RESULT_BAD_COMMAND, RESULT_BAD_VALUE, RESULT_NO_TARGET,
    THRESHOLD_INFINITE, TransferCommand, UnlinkCommand,
};
use niclab_abi::{FromBytes, from_words};

use crate::models::matching::config::{Config, PORTS};
use crate::models::matching::item;
use crate::models::matching::transport::RegionPart;

/// Words of a slot that a command uses. Ours: the interface.
const WORDS: usize = 10;

const PUT_FLAGS: u32 = COMMAND_INTERRUPT | COMMAND_ACK | COMMAND_SENT | COMMAND_COUNT_ONLY;
const APPEND_FLAGS: u32 = COMMAND_COUNT_ONLY
    | ENTRY_PUT
    | ENTRY_GET
    | ENTRY_REMOTE_OFFSET
    | ENTRY_MAX_SIZE
    | ENTRY_TRUNCATE
    | ENTRY_OVERFLOW
    | ENTRY_NO_UNLINK_EVENT;

/// A put or a get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) is_get: bool,
    pub(super) match_bits: u64,
    pub(super) header_data: u64,
    pub(super) user: u64,
    pub(super) node: u16,
    pub(super) port: u8,
    pub(super) portal: u8,
    pub(super) memory: RegionPart,
    pub(super) remote_offset: u64,
    pub(super) counter: Option<u8>,
    pub(super) interrupt: bool,
    pub(super) wants_ack: bool,
    pub(super) wants_sent: bool,
    pub(super) count_only: bool,
}

/// A match entry to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Append {
    pub(super) user: u64,
    pub(super) portal: u8,
    pub(super) memory: RegionPart,
    pub(super) counter: Option<u8>,
    pub(super) count_only: bool,
    pub(super) is_overflow: bool,
    pub(super) no_unlink_event: bool,
    /// The item for the match unit.
    pub(super) item: item::Item,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Transfer(Transfer),
    Append(Append),
    Unlink {
        handle: u32,
    },
    /// A threshold of zero disarms.
    ArmCounter {
        counter: u8,
        threshold: u64,
    },
}

impl Command {
    /// Decodes a slot: the lower half of the launch word, and the words before it.
    ///
    /// # Errors
    /// The `RESULT_` constant that gives the reason for the refusal.
    pub(super) fn decode(code: u32, words: &[u64; WORDS], config: &Config) -> Result<Self, u32> {
        let flags = code & !COMMAND_MASK;
        let may_have = |allowed: u32| if flags & !allowed == 0 { Ok(()) } else { Err(RESULT_BAD_VALUE) };
        match code & COMMAND_MASK {
            COMMAND_PUT => {
                may_have(PUT_FLAGS)?;
                transfer(flags, &layout(words)?, config).map(Self::Transfer)
            }
            COMMAND_GET => {
                may_have(COMMAND_COUNT_ONLY)?;
                let transfer = transfer(flags, &layout(words)?, config)?;
                Ok(Self::Transfer(Transfer { is_get: true, ..transfer }))
            }
            COMMAND_APPEND => {
                may_have(APPEND_FLAGS)?;
                append(flags, &layout(words)?, config).map(Self::Append)
            }
            COMMAND_UNLINK => {
                may_have(0)?;
                match layout(words)? {
                    UnlinkCommand { handle, reserved: 0 } => Ok(Self::Unlink { handle }),
                    UnlinkCommand { .. } => Err(RESULT_BAD_VALUE),
                }
            }
            COMMAND_ARM_COUNTER => {
                may_have(0)?;
                let ArmCounterCommand { counter, threshold } = layout(words)?;
                if counter >= u64::from(COUNTERS) {
                    return Err(RESULT_BAD_VALUE);
                }
                Ok(Self::ArmCounter { counter: counter as u8, threshold })
            }
            _ => Err(RESULT_BAD_COMMAND),
        }
    }
}

/// The layout in the words of a slot, if all words after it are zero.
fn layout<T: FromBytes>(words: &[u64; WORDS]) -> Result<T, u32> {
    let is_zero = words.iter().skip(T::BYTES / size_of::<u64>()).all(|word| *word == 0);
    from_words(words).filter(|_| is_zero).ok_or(RESULT_BAD_VALUE)
}

fn transfer(flags: u32, words: &TransferCommand, config: &Config) -> Result<Transfer, u32> {
    let TransferCommand { match_bits, header_data, user, region, portal, port, node, .. } = *words;
    let TransferCommand { offset, bytes, remote_offset, counter, .. } = *words;
    if u32::from(node) >= config.nodes || usize::from(port) >= PORTS || u32::from(portal) >= PORTALS {
        return Err(RESULT_NO_TARGET);
    }
    if bytes > config.max_message_bytes {
        return Err(RESULT_BAD_VALUE);
    }
    let has = |flag: u32| flags & flag != 0;
    Ok(Transfer {
        is_get: false,
        match_bits,
        header_data,
        user,
        node,
        port,
        portal,
        memory: RegionPart { region, offset, bytes },
        remote_offset,
        counter: counter_of(counter)?,
        interrupt: has(COMMAND_INTERRUPT),
        wants_ack: has(COMMAND_ACK),
        wants_sent: has(COMMAND_SENT),
        count_only: has(COMMAND_COUNT_ONLY),
    })
}

fn append(flags: u32, words: &AppendCommand, config: &Config) -> Result<Append, u32> {
    let AppendCommand { match_bits, ignore_bits, user, region, portal, port, node, .. } = *words;
    let AppendCommand { offset, bytes, threshold, counter, max_size, .. } = *words;
    let has = |flag: u32| flags & flag != 0;
    let (is_any_node, is_any_port) = (u64::from(node) == ANY_NODE, u64::from(port) == ANY_PORT);
    let is_source = (is_any_node || u32::from(node) < config.nodes)
        && (is_any_port || usize::from(port) < PORTS)
        && u32::from(portal) < PORTALS;
    // An overflow entry takes puts only, because the program has no data to answer an unexpected get with.
    let is_answering = if has(ENTRY_OVERFLOW) {
        has(ENTRY_PUT) && !has(ENTRY_GET)
    } else {
        has(ENTRY_PUT) || has(ENTRY_GET)
    };
    let is_threshold = (1..=THRESHOLD_INFINITE).contains(&threshold);
    let is_max_size = if has(ENTRY_MAX_SIZE) { max_size <= bytes } else { max_size == 0 };
    if !is_source || !is_answering || !is_threshold || !is_max_size {
        return Err(RESULT_BAD_VALUE);
    }
    let flag_of = |flag: u32, bit: u16| if has(flag) { bit } else { 0 };
    Ok(Append {
        user,
        portal,
        memory: RegionPart { region, offset, bytes },
        counter: counter_of(counter)?,
        count_only: has(COMMAND_COUNT_ONLY),
        is_overflow: has(ENTRY_OVERFLOW),
        no_unlink_event: has(ENTRY_NO_UNLINK_EVENT),
        item: item::Item {
            match_bits,
            dont_ignore_bits: !ignore_bits,
            node: if is_any_node { item::ANY_NODE } else { node.into() },
            process: if is_any_port { item::ANY_PROCESS } else { port.into() },
            flags: item::flag::VALID
                | flag_of(ENTRY_PUT, item::flag::PUT)
                | flag_of(ENTRY_GET, item::flag::GET)
                | flag_of(ENTRY_REMOTE_OFFSET, item::flag::REMOTE_OFFSET)
                | flag_of(ENTRY_MAX_SIZE, item::flag::MAX_SIZE)
                | flag_of(ENTRY_TRUNCATE, item::flag::TRUNCATE),
            length: bytes,
            local_offset: 0,
            max_size,
            threshold: threshold as u32,
            start: 0,
        },
    })
}

fn counter_of(word: u64) -> Result<Option<u8>, u32> {
    match word {
        0 => Ok(None),
        plus_one if plus_one <= u64::from(COUNTERS) => Ok(Some((plus_one - 1) as u8)),
        _ => Err(RESULT_BAD_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::profile::Profile;

    fn refusal(code: u32, words: [u64; WORDS]) -> Option<u32> {
        Command::decode(code, &words, &Config::new(0, 2, Profile::default())).err()
    }

    /// A put's words with one of them changed.
    fn with(base: [u64; WORDS], word: usize, value: u64) -> [u64; WORDS] {
        let mut words = base;
        words[word] = value;
        words
    }

    #[test]
    fn each_invalid_command_gets_its_own_result() {
        let put = [0, 0, 0, 1 << 48 | 7 << 40 | 7 << 32, 0, 16 << 20, 0, 32, 0, 0];
        assert_eq!(refusal(COMMAND_PUT | PUT_FLAGS, put), None);
        assert_eq!(refusal(COMMAND_GET | COMMAND_COUNT_ONLY, put), None);
        for (code, words, expected) in [
            (0, put, RESULT_BAD_COMMAND),
            (6, put, RESULT_BAD_COMMAND),
            (COMMAND_PUT | ENTRY_PUT, put, RESULT_BAD_VALUE),
            (COMMAND_GET | COMMAND_ACK, put, RESULT_BAD_VALUE),
            (COMMAND_PUT, with(put, 3, 2 << 48), RESULT_NO_TARGET),
            (COMMAND_PUT, with(put, 3, 8 << 40), RESULT_NO_TARGET),
            (COMMAND_PUT, with(put, 3, 8 << 32), RESULT_NO_TARGET),
            (COMMAND_PUT, with(put, 5, (16 << 20) + 1), RESULT_BAD_VALUE),
            (COMMAND_PUT, with(put, 7, 33), RESULT_BAD_VALUE),
            (COMMAND_PUT, with(put, 8, 1), RESULT_BAD_VALUE),
            (COMMAND_UNLINK, with([0; WORDS], 0, 1 << 32), RESULT_BAD_VALUE),
            (COMMAND_UNLINK, with([0; WORDS], 1, 1), RESULT_BAD_VALUE),
            (COMMAND_ARM_COUNTER, with([0; WORDS], 0, 32), RESULT_BAD_VALUE),
            (COMMAND_ARM_COUNTER, with([0; WORDS], 2, 1), RESULT_BAD_VALUE),
        ] {
            assert_eq!(refusal(code, words), Some(expected), "{code:#x} {words:x?}");
        }
    }

    #[test]
    fn each_invalid_entry_gets_its_own_result() {
        let any = [0, 0, 0, ANY_NODE << 48 | ANY_PORT << 40 | 7 << 32, 0, 10, 1, 0, 0, 0];
        assert_eq!(refusal(COMMAND_APPEND | ENTRY_PUT, any), None);
        assert_eq!(refusal(COMMAND_APPEND | ENTRY_PUT | ENTRY_MAX_SIZE, with(any, 8, 10)), None);
        for (flags, words) in [
            (0, any),
            (ENTRY_OVERFLOW | ENTRY_PUT | ENTRY_GET, any),
            (ENTRY_OVERFLOW, any),
            (ENTRY_PUT | COMMAND_ACK, any),
            (ENTRY_PUT, with(any, 3, 2 << 48)),
            (ENTRY_PUT, with(any, 3, 8 << 40)),
            (ENTRY_PUT, with(any, 3, 8 << 32)),
            (ENTRY_PUT, with(any, 6, 0)),
            (ENTRY_PUT, with(any, 6, 1 << 32)),
            (ENTRY_PUT, with(any, 8, 1)),
            (ENTRY_PUT | ENTRY_MAX_SIZE, with(any, 8, 11)),
            (ENTRY_PUT, with(any, 9, 1)),
        ] {
            assert_eq!(
                refusal(COMMAND_APPEND | flags, words),
                Some(RESULT_BAD_VALUE),
                "{flags:#x} {words:x?}"
            );
        }
    }
}
