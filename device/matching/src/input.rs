//! Lists and headers as JSON. docs/use/match/RUNNING.md has the tables of keys.
//!
//! Words of 64 bits may be numbers or text, such as `"0x1f"` or `"42"`, because many JSON writers round numbers beyond
//! 2^53.

mod number;
mod strict;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use niclab_model::models::matching::item::{ANY_NODE, ANY_PROCESS, Header, INFINITE, Item, Operation, flag};
use niclab_source::shortened;
use schemars::{JsonSchema, Schema, schema_for};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

pub use number::parse as parse_number;
use strict::Keyed;

/// A file of items or of headers cannot be used.
#[derive(Debug, Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The file is not JSON, or a value is invalid for its key.
    #[error(
        "{}: {}: {}\n  fix: {}", file.display(), shortened(at.clone()), shortened(error.to_string()), remedy(error)
    )]
    Json {
        /// The file.
        file: PathBuf,
        /// The path of the key, such as `[3].length` in the fourth entry.
        at: String,
        /// The error and its line.
        #[source]
        error: serde_json::Error,
    },
    /// The next message would begin after the end of the item's memory.
    #[error(
        "{}: [{index}].local_offset: {offset} is beyond the item's length, {length}\n  fix: an offset is at most the \
         length; give both the same number for a full item",
        file.display()
    )]
    Offset {
        /// The file.
        file: PathBuf,
        /// Index of the item.
        index: usize,
        /// Its offset.
        offset: u64,
        /// Its length.
        length: u64,
    },
}

fn remedy(error: &serde_json::Error) -> &'static str {
    if error.is_data() {
        "docs/use/match/RUNNING.md lists all keys and their values"
    } else {
        "the file is one JSON array of objects, `[{...}, {...}]`"
    }
}

/// Reads a list.
///
/// # Errors
/// [`InputError`].
pub fn read_list(file: &Path) -> Result<Vec<Item>, InputError> {
    let entries: Vec<Keyed<ItemEntry>> = read(file)?;
    let items = entries.into_iter().enumerate().map(|(index, Keyed(entry))| {
        let (offset, length) = (entry.local_offset, entry.length);
        if offset > length {
            return Err(InputError::Offset { file: file.to_owned(), index, offset, length });
        }
        Ok(Item::from(entry))
    });
    items.collect()
}

/// Reads headers.
///
/// # Errors
/// [`InputError`].
pub fn read_headers(file: &Path) -> Result<Vec<Header>, InputError> {
    let entries: Vec<Keyed<HeaderEntry>> = read(file)?;
    Ok(entries.into_iter().map(|Keyed(entry)| Header::from(entry)).collect())
}

/// The JSON Schema of a list.
#[must_use]
pub fn list_schema() -> Schema {
    titled(schema_for!(Vec<ItemEntry>), "list")
}

/// The JSON Schema of headers.
#[must_use]
pub fn headers_schema() -> Schema {
    titled(schema_for!(Vec<HeaderEntry>), "headers")
}

fn titled(mut schema: Schema, title: &str) -> Schema {
    schema.insert("title".to_owned(), title.into());
    schema
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<Vec<T>, InputError> {
    let text = fs::read(file).map_err(|error| InputError::Read { file: file.to_owned(), error })?;
    let json = |at: String, error| InputError::Json { file: file.to_owned(), at, error };
    let mut reader = serde_json::Deserializer::from_slice(&text);
    let entries = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let at = match error.path().to_string() {
            whole if whole == "." => "the file".to_owned(),
            path => path,
        };
        json(at, error.into_inner())
    })?;
    reader.end().map_err(|error| json("the file".to_owned(), error))?;
    Ok(entries)
}

/// An item in the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "item")]
struct ItemEntry {
    /// Match bits.
    #[serde(deserialize_with = "number::word")]
    #[schemars(schema_with = "number::word_schema")]
    match_bits: u64,
    /// Match bits that are not compared.
    #[serde(default, deserialize_with = "number::word")]
    #[schemars(schema_with = "number::word_schema")]
    ignore_bits: u64,
    /// The node that may send.
    #[serde(default = "number::any_node", deserialize_with = "number::node_or_any")]
    #[schemars(default = "number::any_name", schema_with = "number::node_or_any_schema")]
    node: u32,
    /// The process that may send.
    #[serde(default = "number::any_process", deserialize_with = "number::process_or_any")]
    #[schemars(default = "number::any_name", schema_with = "number::process_or_any_schema")]
    process: u16,
    /// Flags that are set.
    #[serde(default = "usual_flags", deserialize_with = "strict::set")]
    #[schemars(default = "usual_flag_names", extend("uniqueItems" = true))]
    flags: Vec<Flag>,
    /// Bytes of the memory.
    #[serde(deserialize_with = "number::word")]
    #[schemars(schema_with = "number::word_schema")]
    length: u64,
    /// Offset of the next message, unless its sender gives the offset. At most the length.
    #[serde(default, deserialize_with = "number::word")]
    #[schemars(schema_with = "number::word_schema")]
    local_offset: u64,
    /// Bytes that must be left, if the flag of this name is set and `truncate` is not.
    #[serde(default, deserialize_with = "number::word")]
    #[schemars(schema_with = "number::word_schema")]
    max_size: u64,
    /// Number of messages that the item can still match.
    #[serde(default = "number::infinite", deserialize_with = "number::threshold")]
    #[schemars(default = "number::infinite_name", schema_with = "number::threshold_schema")]
    threshold: u32,
    /// Address of the memory. Not used.
    #[serde(default, deserialize_with = "number::word")]
    #[schemars(schema_with = "number::word_schema")]
    start: u64,
}

/// A flag by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(rename = "flag", extend("enum" = FLAGS.map(|(name, _)| name)))]
struct Flag(#[schemars(with = "String")] u16);

/// The names of flags.
const FLAGS: [(&str, u16); 6] = [
    ("valid", flag::VALID),
    ("put", flag::PUT),
    ("get", flag::GET),
    ("remote_offset", flag::REMOTE_OFFSET),
    ("max_size", flag::MAX_SIZE),
    ("truncate", flag::TRUNCATE),
];

/// The default flags of an item: the first three.
fn usual_flags() -> Vec<Flag> {
    FLAGS.iter().take(3).map(|(_, bit)| Flag(*bit)).collect()
}

fn usual_flag_names() -> Vec<&'static str> {
    FLAGS.iter().take(3).map(|(name, _)| *name).collect()
}

/// The flag is unknown.
#[derive(Debug, Error)]
enum FlagError {
    #[error("the list manager itself ends the list: an item has no flag `end`")]
    End,
    #[error("no flag is called `{0}`; flags are valid, put, get, remote_offset, max_size and truncate")]
    Unknown(String),
}

impl TryFrom<String> for Flag {
    type Error = FlagError;

    fn try_from(name: String) -> Result<Self, FlagError> {
        match FLAGS.iter().find(|(known, _)| *known == name) {
            Some((_, bit)) => Ok(Self(*bit)),
            None if name == "end" => Err(FlagError::End),
            None => Err(FlagError::Unknown(name)),
        }
    }
}

impl From<ItemEntry> for Item {
    fn from(entry: ItemEntry) -> Self {
        Self {
            match_bits: entry.match_bits,
            dont_ignore_bits: !entry.ignore_bits,
            node: entry.node,
            process: entry.process,
            flags: entry.flags.iter().fold(0, |flags, Flag(bit)| flags | bit),
            length: entry.length,
            local_offset: entry.local_offset,
            max_size: entry.max_size,
            threshold: entry.threshold,
            start: entry.start,
        }
    }
}

/// A header in the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "header")]
struct HeaderEntry {
    /// Match bits.
    #[serde(deserialize_with = "number::word")]
    #[schemars(schema_with = "number::word_schema")]
    match_bits: u64,
    /// The node that sends.
    #[serde(default, deserialize_with = "number::node")]
    #[schemars(schema_with = "number::node_schema")]
    node: u32,
    /// The process that sends.
    #[serde(default, deserialize_with = "number::process")]
    #[schemars(schema_with = "number::process_schema")]
    process: u16,
    /// The operation.
    #[serde(default)]
    #[schemars(default = "usual_operation_name")]
    operation: OperationName,
    /// Bytes of the message.
    #[serde(deserialize_with = "number::word")]
    #[schemars(schema_with = "number::word_schema")]
    length: u64,
    /// The offset that the sender requests.
    #[serde(default, deserialize_with = "number::word")]
    #[schemars(schema_with = "number::word_schema")]
    remote_offset: u64,
}

/// The operation of a message.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(rename = "operation", extend("enum" = OPERATIONS.map(|(name, _)| name)))]
struct OperationName(#[schemars(with = "String")] Operation);

/// The names of operations.
const OPERATIONS: [(&str, Operation); 3] =
    [("put", Operation::Put), ("get", Operation::Get), ("other", Operation::Other)];

impl Default for OperationName {
    fn default() -> Self {
        Self(Operation::Put)
    }
}

/// The operation is unknown.
#[derive(Debug, Error)]
#[error("no operation is called `{0}`; operations are `put`, `get`, `other`")]
struct OperationError(String);

impl TryFrom<String> for OperationName {
    type Error = OperationError;

    fn try_from(name: String) -> Result<Self, OperationError> {
        let known = OPERATIONS.iter().find(|(known, _)| *known == name);
        known.map(|(_, operation)| Self(*operation)).ok_or(OperationError(name))
    }
}

fn usual_operation_name() -> &'static str {
    "put"
}

impl From<HeaderEntry> for Header {
    fn from(entry: HeaderEntry) -> Self {
        Self {
            match_bits: entry.match_bits,
            node: entry.node,
            process: entry.process,
            operation: entry.operation.0,
            length: entry.length,
            remote_offset: entry.remote_offset,
        }
    }
}

/// An item as one line of text.
#[must_use]
pub fn item_text(item: &Item) -> String {
    let or = |value: u64, wildcard: u64, name: &str| {
        if value == wildcard { name.to_owned() } else { value.to_string() }
    };
    let flags: Vec<&str> = FLAGS.iter().filter(|(_, bit)| item.has(*bit)).map(|(name, _)| *name).collect();
    format!(
        "match {:#x} ignore {:#x} node {} process {} length {} offset {} max_size {} threshold {} [{}]",
        item.match_bits,
        !item.dont_ignore_bits,
        or(item.node.into(), ANY_NODE.into(), "any"),
        or(item.process.into(), ANY_PROCESS.into(), "any"),
        item.length,
        item.local_offset,
        item.max_size,
        or(item.threshold.into(), INFINITE.into(), "infinite"),
        flags.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        file
    }

    fn list(text: &str) -> Result<Vec<Item>, String> {
        read_list(file(text).path()).map_err(|error| error.to_string())
    }

    fn headers(text: &str) -> Result<Vec<Header>, String> {
        read_headers(file(text).path()).map_err(|error| error.to_string())
    }

    #[test]
    fn missing_keys_have_their_defaults() {
        let [item] = list(r#"[{"match_bits": 5, "length": 10}]"#).unwrap()[..] else { panic!("an item") };
        let expected = Item {
            match_bits: 5,
            dont_ignore_bits: u64::MAX,
            node: ANY_NODE,
            process: ANY_PROCESS,
            flags: flag::VALID | flag::PUT | flag::GET,
            length: 10,
            threshold: INFINITE,
            ..Item::default()
        };
        assert_eq!(item, expected);
        let [header] = headers(r#"[{"match_bits": "0xffff_ffff_ffff_ffff", "length": "7"}]"#).unwrap()[..]
        else {
            panic!("a header")
        };
        let expected =
            Header { match_bits: u64::MAX, length: 7, operation: Operation::Put, ..Header::default() };
        assert_eq!(header, expected);
    }

    #[test]
    fn errors_name_the_location_and_the_fix() {
        let item =
            |keys: &str| list(&format!(r#"[{{"match_bits": 1, "length": 8}}, {{"match_bits": 1, {keys}}}]"#));
        for (keys, parts) in [
            (r#""length": 8, "local_offset": 9"#, &["[1].local_offset: 9", "length, 8", "at most"][..]),
            (r#""length": 8, "flags": ["valid", "end"]"#, &["[1].flags[1]", "list manager", "line 1"]),
            (r#""length": 8, "flags": ["valid", "pot"]"#, &["[1].flags[1]", "`pot`", "put, get"]),
            (r#""length": 8, "ignored": 1"#, &["[1].ignored", "unknown field `ignored`", "`ignore_bits`"]),
            (r#""length": 8, "node": 4294967295"#, &["[1].node", "4294967294", "\"any\""]),
            (r#""length": 8, "process": 65535"#, &["[1].process", "65534"]),
            (r#""length": 8, "process": "some""#, &["[1].process", "\"some\"", "\"any\""]),
            (r#""length": 8, "threshold": -1"#, &["[1].threshold", "-1", "\"infinite\""]),
            (r#""length": 18446744073709551616"#, &["[1].length", "18446744073709551615"]),
            (r#""length": 8, "max_size": 1.5"#, &["[1].max_size", "1.5"]),
            (r#""length": 8, "length": 9"#, &["duplicate field `length`"]),
            (r#""length": "0x_8""#, &["[1].length", "0x_8"]),
            (r#""length": "_8""#, &["[1].length", "_8"]),
            (r#""length": "0x""#, &["[1].length"]),
            (r#""length": 8, "flags": ["put", "valid", "put"]"#, &["[1].flags: ", "appears twice"]),
            (r#""length": 8, "flags": [{"put": null}]"#, &["[1].flags[0]", "map"]),
            (r#""start": 8"#, &["[1]: missing field `length`"]),
        ] {
            let error = item(keys).unwrap_err();
            for part in parts.iter().chain(&["fix: "]) {
                assert!(error.contains(part), "no {part}: {error}");
            }
        }
        let error = list(r#"[[5, 0, "any", "any", ["valid"], 10, 0, 0, "infinite", 0]]"#).unwrap_err();
        assert!(error.contains("[0]: invalid type: sequence, expected an object"), "{error}");
        let error = headers("[[5, 0, 0, \"put\", 1, 0]]").unwrap_err();
        assert!(error.contains("[0]: invalid type: sequence, expected an object"), "{error}");
        let error = headers(r#"[{"match_bits": 1, "length": 1, "operation": {"put": null}}]"#).unwrap_err();
        assert!(error.contains("[0].operation: invalid type: map"), "{error}");
        for text in ["", "[", "{}", "[1]", "[] []", "\u{fffd}"] {
            let error = list(text).unwrap_err();
            assert!(error.contains("fix: ") && error.contains("line 1"), "{text}: {error}");
        }
        let long = "x".repeat(100_000);
        for keys in [format!(r#""length": "{long}""#), format!(r#""{long}": 1"#)] {
            let error = item(&keys).unwrap_err();
            assert!(error.len() < 800 && error.contains("xxx...") && error.contains("column"), "{error}");
        }
        let error = headers(r#"[{"match_bits": 1, "length": 1, "operation": "push"}]"#).unwrap_err();
        assert!(error.contains("[0].operation") && error.contains("`put`, `get`, `other`"), "{error}");
        let error = read_list(Path::new("/none/list.json")).unwrap_err().to_string();
        assert!(error.contains("cannot read /none/list.json"), "{error}");
    }

    proptest! {
        #[test]
        fn the_reader_accepts_any_file_without_a_panic(text in ".{0,200}") {
            prop_assert!(list(&text).is_err() || text.contains('['));
        }

        #[test]
        fn words_are_read_in_every_form(value: u64) {
            for form in [format!("{value}"), format!("\"{value}\""), format!("\"{value:#x}\"")] {
                let [item] = list(&format!(r#"[{{"match_bits": {form}, "length": {form}}}]"#)).unwrap()[..] else {
                    panic!("an item")
                };
                prop_assert_eq!((item.match_bits, item.length), (value, value));
            }
        }
    }
}
