//! Numbers of a limited range. Some ranges have a name for one value, such as "any".

use std::fmt;

use niclab_model::models::matching::item::{ANY_NODE, ANY_PROCESS, INFINITE};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};
use serde_json::json;

/// A word of 64 bits.
pub fn word<'de, D: Deserializer<'de>>(reader: D) -> Result<u64, D::Error> {
    reader.deserialize_any(Number { most: u64::MAX, word: None })
}

/// A header's node.
pub fn node<'de, D: Deserializer<'de>>(reader: D) -> Result<u32, D::Error> {
    short(reader, u32::MAX, None)
}

/// A header's process.
pub fn process<'de, D: Deserializer<'de>>(reader: D) -> Result<u16, D::Error> {
    short(reader, u16::MAX, None)
}

/// An item's node.
pub fn node_or_any<'de, D: Deserializer<'de>>(reader: D) -> Result<u32, D::Error> {
    short(reader, ANY_NODE - 1, Some((any_name(), ANY_NODE)))
}

/// An item's process.
pub fn process_or_any<'de, D: Deserializer<'de>>(reader: D) -> Result<u16, D::Error> {
    short(reader, ANY_PROCESS - 1, Some((any_name(), ANY_PROCESS)))
}

/// An item's threshold.
pub fn threshold<'de, D: Deserializer<'de>>(reader: D) -> Result<u32, D::Error> {
    short(reader, INFINITE - 1, Some((infinite_name(), INFINITE)))
}

/// The schema of [`word`].
pub fn word_schema(_: &mut SchemaGenerator) -> Schema {
    schema(u64::MAX, None)
}

/// The schema of [`node`].
pub fn node_schema(_: &mut SchemaGenerator) -> Schema {
    schema(u32::MAX.into(), None)
}

/// The schema of [`process`].
pub fn process_schema(_: &mut SchemaGenerator) -> Schema {
    schema(u16::MAX.into(), None)
}

/// The schema of [`node_or_any`].
pub fn node_or_any_schema(_: &mut SchemaGenerator) -> Schema {
    schema(u64::from(ANY_NODE) - 1, Some(any_name()))
}

/// The schema of [`process_or_any`].
pub fn process_or_any_schema(_: &mut SchemaGenerator) -> Schema {
    schema(u64::from(ANY_PROCESS) - 1, Some(any_name()))
}

/// The schema of [`threshold`].
pub fn threshold_schema(_: &mut SchemaGenerator) -> Schema {
    schema(u64::from(INFINITE) - 1, Some(infinite_name()))
}

/// The name of a wildcard.
pub const fn any_name() -> &'static str {
    "any"
}

/// The name of a threshold that never runs out.
pub const fn infinite_name() -> &'static str {
    "infinite"
}

fn schema(most: u64, word: Option<&str>) -> Schema {
    let number = json!({"type": "integer", "minimum": 0, "maximum": most});
    let text = json!({"type": "string", "pattern": "^(0x[0-9a-fA-F][0-9a-fA-F_]*|[0-9][0-9_]*)$"});
    let word = word.map(|word| json!({"const": word}));
    let forms: Vec<_> = [number, text].into_iter().chain(word).collect();
    json_schema!({"anyOf": forms})
}

/// The default node of an item.
pub const fn any_node() -> u32 {
    ANY_NODE
}

/// The default process of an item.
pub const fn any_process() -> u16 {
    ANY_PROCESS
}

/// The default threshold of an item.
pub const fn infinite() -> u32 {
    INFINITE
}

fn short<'de, D, T>(reader: D, most: T, word: Option<(&'static str, T)>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Into<u64> + TryFrom<u64>,
{
    let number = Number { most: most.into(), word: word.map(|(name, value)| (name, value.into())) };
    let value = reader.deserialize_any(number)?;
    T::try_from(value).map_err(|_| D::Error::invalid_value(Unexpected::Unsigned(value), &number))
}

/// A number from 0 to `most`, or a named value.
#[derive(Clone, Copy)]
struct Number {
    most: u64,
    word: Option<(&'static str, u64)>,
}

impl Visitor<'_> for Number {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a number from 0 to {}, decimal or as \"0x...\"", self.most)?;
        self.word.map_or(Ok(()), |(name, _)| write!(formatter, ", or \"{name}\""))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        if value <= self.most { Ok(value) } else { Err(E::invalid_value(Unexpected::Unsigned(value), &self)) }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        if let Some((_, value)) = self.word.filter(|(name, _)| *name == text) {
            return Ok(value);
        }
        let wrong = || E::invalid_value(Unexpected::Str(text), &self);
        let value = parse(text).ok_or_else(wrong)?;
        if value <= self.most { Ok(value) } else { Err(wrong()) }
    }
}

/// Parses a decimal or hexadecimal number, whose digits may be grouped by `_`.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // The standard parser would accept a sign. A number must not begin with `_`.
    if !digits.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    let plain: String = digits.chars().filter(|digit| *digit != '_').collect();
    u64::from_str_radix(&plain, radix).ok()
}
