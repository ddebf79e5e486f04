//! Names and numbers of message handlers (section 5.4 of the GRIM paper). The cluster has one list of them. One
//! endpoint, the keeper, merges the handlers that other endpoints register into the list, and publishes the list.
//!
//! A name has the same number at all endpoints, and any number of endpoints may register a handler of that name. A
//! registration may request a number. If it does not, the keeper assigns the lowest free number.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use niclab_abi::grim::{
    CHANNEL_APPLIED, CHANNEL_APPLY, CHANNEL_BRIDGE, CHANNEL_BRIDGED, CHANNEL_LOAD, CHANNEL_LOADED,
    CHANNEL_PING, CHANNEL_PONG, CHANNEL_STORE, CHANNEL_STORED,
};

use super::FIRST_HANDLER;

/// Maximum length of a name in bytes. An encoded entry fits into 64 bytes, the smallest payload region of a channel.
pub const MAX_NAME_BYTES: usize = 48;
/// Maximum number of names in a list. Attack: an endpoint that registers names without end fills the keeper's memory.
pub const MAX_NAMES: usize = 1024;
/// Number of an encoded entry that requests no number.
const NO_NUMBER: u32 = 0;
/// Bytes of an encoded entry before its name: the number (4) and the length of the name (1).
const ENTRY_HEADER_BYTES: usize = 5;

/// Why a name cannot be registered or merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameProblem {
    /// The name is empty or too long.
    Length,
    /// This endpoint has already registered a handler of this name.
    Duplicated,
    /// The requested number is reserved for predefined handlers.
    Predefined,
    /// The requested number belongs to another name.
    Taken,
    /// The list has this name with a number other than the requested one.
    OtherNumber,
    /// The list is full.
    Full,
    /// The keeper's message contains a number that this version of the library does not know.
    Other(u32),
}

impl NameProblem {
    const KNOWN: [Self; 6] =
        [Self::Length, Self::Duplicated, Self::Predefined, Self::Taken, Self::OtherNumber, Self::Full];

    /// Encodes the problem as its number in messages, from 1 on.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Other(number) => number,
            known => Self::KNOWN.iter().position(|other| *other == known).map_or(0, |index| index as u32 + 1),
        }
    }

    /// Decodes the problem from its number in messages.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        let index = (number as usize).checked_sub(1);
        index.and_then(|index| Self::KNOWN.get(index).copied()).unwrap_or(Self::Other(number))
    }
}

/// Predefined handlers: those of peripherals, and those of the programs to which peripherals reply.
pub const PERIPHERAL_HANDLERS: [(u32, &str); 10] = [
    (CHANNEL_PING, "peripheral.ping"),
    (CHANNEL_PONG, "peripheral.pong"),
    (CHANNEL_BRIDGE, "peripheral.bridge"),
    (CHANNEL_BRIDGED, "peripheral.bridged"),
    (CHANNEL_STORE, "peripheral.store"),
    (CHANNEL_STORED, "peripheral.stored"),
    (CHANNEL_LOAD, "peripheral.load"),
    (CHANNEL_LOADED, "peripheral.loaded"),
    (CHANNEL_APPLY, "peripheral.apply"),
    (CHANNEL_APPLIED, "peripheral.applied"),
];

/// A handler's name, with its number if one was assigned or requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Its assigned or requested number. `None` requests any free number.
    pub number: Option<u32>,
}

/// An entry that cannot be added to a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The name.
    pub name: String,
    /// For [`NameProblem::OtherNumber`], the number in the list. Otherwise the requested number, or 0.
    pub number: u32,
    /// The reason.
    pub problem: NameProblem,
}

impl Entry {
    /// Checks the entry's name and number without comparing them with a list.
    ///
    /// # Errors
    /// [`NameProblem::Length`] or [`NameProblem::Predefined`].
    pub fn check(&self) -> Result<(), NameProblem> {
        if !(1..=MAX_NAME_BYTES).contains(&self.name.len()) {
            return Err(NameProblem::Length);
        }
        if self.number.is_some_and(|number| number < FIRST_HANDLER) {
            Err(NameProblem::Predefined)
        } else {
            Ok(())
        }
    }

    /// Length of the encoded entry in bytes.
    fn encoded_bytes(&self) -> usize {
        ENTRY_HEADER_BYTES + self.name.len()
    }
}

/// Encodes the first `entries` into one message of at most `max_bytes`. Returns the message and the number of entries
/// in it. An entry whose name is too long ends the message.
#[must_use]
pub fn encode(entries: &[Entry], max_bytes: usize) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let mut count = 0;
    for entry in entries {
        if bytes.len() + entry.encoded_bytes() > max_bytes || entry.name.len() > MAX_NAME_BYTES {
            break;
        }
        bytes.extend(entry.number.unwrap_or(NO_NUMBER).to_le_bytes());
        bytes.push(entry.name.len() as u8);
        bytes.extend(entry.name.bytes());
        count += 1;
    }
    (bytes, count)
}

/// Decodes the entries of a message, up to the first invalid one.
pub fn decode(mut bytes: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    core::iter::from_fn(move || {
        let (number, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*length))?;
        bytes = rest;
        let number = Some(u32::from_le_bytes(*number)).filter(|number| *number != NO_NUMBER);
        Some(Entry { name: core::str::from_utf8(name).ok()?.into(), number })
    })
}

/// A list of handler names with their numbers. It initially contains [`PERIPHERAL_HANDLERS`]. A program that registers
/// one of these names handles the corresponding replies of peripherals.
#[derive(Clone, Debug)]
pub struct Names {
    numbers: BTreeMap<String, u32>,
    names: BTreeMap<u32, String>,
}

impl Default for Names {
    fn default() -> Self {
        let predefined = PERIPHERAL_HANDLERS.iter();
        Self {
            numbers: predefined.clone().map(|(number, name)| ((*name).into(), *number)).collect(),
            names: predefined.map(|(number, name)| (*number, (*name).into())).collect(),
        }
    }
}

impl Names {
    /// Looks up the number of a name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Looks up the name with a number.
    #[must_use]
    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(&number).map(String::as_str)
    }

    /// The entries that were merged, in the order of their numbers; without the predefined ones.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.names
            .range(FIRST_HANDLER..)
            .map(|(number, name)| Entry { name: name.clone(), number: Some(*number) })
    }

    /// Adds an entry, and assigns the lowest free number if the entry requests none. Returns false if the list already
    /// has the name.
    ///
    /// # Errors
    /// [`Conflict`]: the entry is invalid or contradicts the list, or the list is full. The list does not change.
    pub fn merge(&mut self, entry: &Entry) -> Result<bool, Conflict> {
        let conflict = |problem, number| Conflict { name: entry.name.clone(), number, problem };
        entry.check().map_err(|problem| conflict(problem, entry.number.unwrap_or(NO_NUMBER)))?;
        match (self.number(&entry.name), entry.number) {
            (Some(known), Some(wanted)) if known != wanted => {
                return Err(conflict(NameProblem::OtherNumber, known));
            }
            (Some(_), _) => return Ok(false),
            (None, _) => {}
        }
        if self.names.len() >= MAX_NAMES + PERIPHERAL_HANDLERS.len() {
            return Err(conflict(NameProblem::Full, NO_NUMBER));
        }
        let number = entry.number.unwrap_or_else(|| self.lowest_free());
        if self.names.contains_key(&number) {
            return Err(conflict(NameProblem::Taken, number));
        }
        self.numbers.insert(entry.name.clone(), number);
        self.names.insert(number, entry.name.clone());
        Ok(true)
    }

    fn lowest_free(&self) -> u32 {
        let mut free = FIRST_HANDLER;
        for number in self.names.keys().copied().skip_while(|number| *number < FIRST_HANDLER) {
            if number != free {
                break;
            }
            free += 1;
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::format;

    use super::*;

    fn entry(name: &str, number: Option<u32>) -> Entry {
        Entry { name: name.into(), number }
    }

    proptest! {
        /// Encodes, decodes and merges arbitrary entries in messages of any size. Each name then has one number, and
        /// each number one name. A refused entry does not change the list.
        #[test]
        fn merging_keeps_names_and_numbers_unique(
            wanted in prop::collection::vec((0..30_u32, prop::option::of(20..50_u32)), 0..60),
            max_bytes in 64..400_usize,
        ) {
            let entries: Vec<Entry> =
                wanted.iter().map(|(name, number)| entry(&format!("name{name}"), *number)).collect();
            let mut decoded = Vec::new();
            while decoded.len() < entries.len() {
                let (bytes, count) = encode(&entries[decoded.len()..], max_bytes);
                prop_assert!(bytes.len() <= max_bytes && count > 0);
                decoded.extend(decode(&bytes));
            }
            prop_assert_eq!(&decoded, &entries);
            let mut names = Names::default();
            for entry in &entries {
                let before = names.clone();
                let merged = names.merge(entry);
                let known = before.number(&entry.name);
                match merged {
                    Ok(is_new) => {
                        let number = names.number(&entry.name).unwrap();
                        prop_assert_eq!(is_new, known.is_none());
                        prop_assert!(number >= FIRST_HANDLER);
                        prop_assert!(entry.number.is_none_or(|wanted| wanted == number));
                        prop_assert!(known.is_none_or(|known| known == number));
                        prop_assert_eq!(names.name(number), Some(entry.name.as_str()));
                    }
                    Err(Conflict { problem, .. }) => {
                        prop_assert_eq!(NameProblem::from_number(problem.number()), problem);
                        let is_reserved_or_taken = entry.number.is_some_and(|wanted| {
                            wanted < FIRST_HANDLER || before.name(wanted).is_some() || known.is_some()
                        });
                        prop_assert!(is_reserved_or_taken);
                        prop_assert!(names.entries().eq(before.entries()));
                    }
                }
            }
        }

        /// Attack: arbitrary bytes from another endpoint must not cause a panic.
        #[test]
        fn decoding_arbitrary_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn invalid_names_and_a_full_list_are_refused() {
        let mut names = Names::default();
        let mut problem = |name: &str, number| names.merge(&entry(name, number)).unwrap_err().problem;
        assert_eq!(problem("", None), NameProblem::Length);
        assert_eq!(problem(&"x".repeat(MAX_NAME_BYTES + 1), None), NameProblem::Length);
        assert_eq!(problem("reserved", Some(FIRST_HANDLER - 1)), NameProblem::Predefined);
        for name in 0..MAX_NAMES {
            assert_eq!(names.merge(&entry(&format!("{name}"), None)), Ok(true));
        }
        assert_eq!(names.merge(&entry("more", None)).unwrap_err().problem, NameProblem::Full);
        assert_eq!(names.merge(&entry("7", None)), Ok(false));
        assert_eq!(names.number("7"), Some(FIRST_HANDLER + 7));
    }
}
