//! Handlers by name (section 5.4): one list for the whole cluster, which one endpoint keeps, merges and publishes.
//!
//! A name has one number everywhere; any number of endpoints may have a handler of that name. Its registration may
//! request a number, or leave the choice to the list, which assigns the lowest free number.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use niclab_abi::grim::{
    CHANNEL_APPLIED, CHANNEL_APPLY, CHANNEL_BRIDGE, CHANNEL_BRIDGED, CHANNEL_LOAD, CHANNEL_LOADED,
    CHANNEL_PING, CHANNEL_PONG, CHANNEL_STORE, CHANNEL_STORED,
};

use super::FIRST_HANDLER;

/// Maximum bytes of a name. A name with its number fits into the shortest payload region of a card.
pub const MAX_NAME_BYTES: usize = 48;
/// Maximum number of names in a list. Attack: endpoints that register without end would fill the keeper's memory.
pub const MAX_NAMES: usize = 1024;
/// The list chooses the number.
const ANY: u32 = 0;
/// Bytes of an entry, without those of the name.
const ENTRY_BYTES: usize = 5;

/// Why a name cannot be registered or merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameProblem {
    /// It is empty or too long.
    Length,
    /// This endpoint has a handler of this name already.
    Duplicated,
    /// The number is one of the predefined handlers'.
    Predefined,
    /// Another name has the number.
    Taken,
    /// The name has another number.
    OtherNumber,
    /// The list is full.
    Full,
    /// A reason that this library does not know.
    Other(u32),
}

impl NameProblem {
    const ALL: [Self; 6] =
        [Self::Length, Self::Duplicated, Self::Predefined, Self::Taken, Self::OtherNumber, Self::Full];

    /// The number in a message.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Other(number) => number,
            known => Self::ALL.iter().position(|other| *other == known).map_or(0, |place| place as u32 + 1),
        }
    }

    /// The problem for a number in a message.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        let place = (number as usize).checked_sub(1);
        place.and_then(|place| Self::ALL.get(place).copied()).unwrap_or(Self::Other(number))
    }
}

/// The names of the peripherals' handlers.
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

/// A name and its number, if one is known or requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Its number.
    pub number: Option<u32>,
}

/// An entry that cannot be added to a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The name.
    pub name: String,
    /// The conflicting number.
    pub number: u32,
    /// The reason.
    pub problem: NameProblem,
}

impl Entry {
    /// Checks an entry that is independent of any list.
    ///
    /// # Errors
    /// The problem.
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

    /// Its length in a message.
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.name.len()
    }
}

/// Encodes the first of `entries`, as many as fit into `most` bytes. Returns the message and their number.
#[must_use]
pub fn encode(entries: &[Entry], most: usize) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let mut count = 0;
    for entry in entries {
        if bytes.len() + entry.bytes() > most || entry.name.len() > MAX_NAME_BYTES {
            break;
        }
        bytes.extend(entry.number.unwrap_or(ANY).to_le_bytes());
        bytes.push(entry.name.len() as u8);
        bytes.extend(entry.name.bytes());
        count += 1;
    }
    (bytes, count)
}

/// The entries of a message, up to the first invalid one.
pub fn decode(mut bytes: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    core::iter::from_fn(move || {
        let (number, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*length))?;
        bytes = rest;
        let number = Some(u32::from_le_bytes(*number)).filter(|number| *number != ANY);
        Some(Entry { name: core::str::from_utf8(name).ok()?.into(), number })
    })
}

/// A list of names with their numbers. It initially contains the handlers of peripherals: a program that registers one
/// of these names handles the peripherals' answers.
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
    /// The number of a name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The name of a number.
    #[must_use]
    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(&number).map(String::as_str)
    }

    /// All merged entries, by number.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.names
            .range(FIRST_HANDLER..)
            .map(|(number, name)| Entry { name: name.clone(), number: Some(*number) })
    }

    /// Adds an entry, and assigns a number if it has none. Returns whether the list has changed.
    ///
    /// # Errors
    /// [`Conflict`]; the list does not change.
    pub fn merge(&mut self, entry: &Entry) -> Result<bool, Conflict> {
        let conflict = |problem, number| Conflict { name: entry.name.clone(), number, problem };
        entry.check().map_err(|problem| conflict(problem, entry.number.unwrap_or(ANY)))?;
        match (self.number(&entry.name), entry.number) {
            (Some(known), Some(wanted)) if known != wanted => {
                return Err(conflict(NameProblem::OtherNumber, known));
            }
            (Some(_), _) => return Ok(false),
            (None, _) => {}
        }
        if self.names.len() >= MAX_NAMES + PERIPHERAL_HANDLERS.len() {
            return Err(conflict(NameProblem::Full, ANY));
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
        /// For any way of cutting lists into messages and merging them: a name has one number, a number one name, and a
        /// refused entry changes nothing.
        #[test]
        fn a_name_has_one_number(
            wanted in prop::collection::vec((0..30_u32, prop::option::of(20..50_u32)), 0..60),
            most in 64..400_usize,
        ) {
            let entries: Vec<Entry> =
                wanted.iter().map(|(name, number)| entry(&format!("name{name}"), *number)).collect();
            let mut carried = Vec::new();
            while carried.len() < entries.len() {
                let (bytes, count) = encode(&entries[carried.len()..], most);
                prop_assert!(bytes.len() <= most && count > 0);
                carried.extend(decode(&bytes));
            }
            prop_assert_eq!(&carried, &entries);
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
                        let is_in_the_way = entry.number.is_some_and(|wanted| {
                            wanted < FIRST_HANDLER || before.name(wanted).is_some() || known.is_some()
                        });
                        prop_assert!(is_in_the_way);
                        prop_assert!(names.entries().eq(before.entries()));
                    }
                }
            }
        }

        /// Attack: arbitrary bytes from another endpoint must not cause a panic.
        #[test]
        fn any_bytes_decode(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn invalid_names_and_a_full_list_are_refused() {
        let mut names = Names::default();
        let mut problem = |name: &str, number| names.merge(&entry(name, number)).unwrap_err().problem;
        assert_eq!(problem("", None), NameProblem::Length);
        assert_eq!(problem(&"x".repeat(MAX_NAME_BYTES + 1), None), NameProblem::Length);
        assert_eq!(problem("early", Some(FIRST_HANDLER - 1)), NameProblem::Predefined);
        for name in 0..MAX_NAMES {
            assert_eq!(names.merge(&entry(&format!("{name}"), None)), Ok(true));
        }
        assert_eq!(names.merge(&entry("more", None)).unwrap_err().problem, NameProblem::Full);
        assert_eq!(names.merge(&entry("7", None)), Ok(false));
        assert_eq!(names.number("7"), Some(FIRST_HANDLER + 7));
    }
}
