//! A TOML text that knows the location of each of its keys.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{FileLocation, Problem, SpecError, renamed};

/// A file's name and text, and the values that command-line options replaced.
///
/// The default is no file: all locations are unknown.
#[derive(Clone, Debug, Default)]
pub struct Source {
    name: String,
    folder: PathBuf,
    text: String,
    flags: BTreeMap<String, String>,
    /// The table that contains the keys of problems; empty for the whole text.
    table: String,
}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    /// [`SpecError::Read`].
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let text =
            fs::read_to_string(path).map_err(|error| SpecError::Read { path: path.to_owned(), error })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { folder, ..Self::from_text(&path.display().to_string(), text) })
    }

    /// A text in memory; errors call it `name`.
    #[must_use]
    pub fn from_text(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), text: text.into(), ..Self::default() }
    }

    /// This text, with keys relative to the table `table`.
    #[must_use]
    pub fn within(&self, table: &str) -> Self {
        Self { table: table.to_owned(), ..self.clone() }
    }

    /// The path, relative to this file's folder.
    #[must_use]
    pub fn path_of(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    /// Remembers that the value of `key` comes from an option, so that a problem names the option.
    pub fn set_by_flag(&mut self, key: &str, flag: &str) {
        self.flags.insert(key.to_owned(), flag.to_owned());
    }

    /// Reads the text as a `T`.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] with the location of the syntax error, unknown key or wrong type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, SpecError> {
        let parsed = toml::from_str(&self.text)
            .map_err(|error| SpecError::Invalid(vec![self.parse_problem(&error)]))?;
        self.old_keys().iter().for_each(|warning| log::warn!("{warning}"));
        Ok(parsed)
    }

    /// A warning for each key that was renamed in this version, with its location.
    fn old_keys(&self) -> Vec<String> {
        let Ok(table) = DeTable::parse(&self.text) else { return Vec::new() };
        let mut warnings = Vec::new();
        for_each_key(table.get_ref(), &mut |key, offset| {
            warnings.extend(renamed::warning(&renamed::KEYS, key).map(|warning| (offset, warning)));
        });
        warnings.sort_unstable();
        warnings
            .into_iter()
            .map(|(offset, warning)| format!("{}: {warning}", self.location(offset)))
            .collect()
    }

    /// A problem with the value at `path` (as in `node[1].memory_mib`). Its location is that of the key or, if the key
    /// is missing, of the innermost table that contains it.
    #[must_use]
    pub fn problem(&self, path: &str, what: impl Into<String>, remedy: impl Into<String>) -> Problem {
        if let Some(flag) = self.flags.get(path) {
            return Problem { location: None, key: flag.clone(), what: what.into(), remedy: remedy.into() };
        }
        let path = if self.table.is_empty() { path.to_owned() } else { format!("{}.{path}", self.table) };
        Problem {
            location: self.offset_of(&path).map(|offset| self.location(offset)),
            key: path,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    fn parse_problem(&self, error: &toml::de::Error) -> Problem {
        let offset = error.span().map(|span| span.start);
        let what = error.message().trim().to_owned();
        let key = offset.and_then(|offset| self.path_at(offset)).unwrap_or_default();
        let names: Vec<&str> = what.split('`').skip(1).step_by(2).collect();
        let remedy = match names.split_first() {
            Some((wrong, known)) if what.starts_with("unknown") => match nearest(wrong, known) {
                Some(near) => format!("did you mean `{near}`? `niclab schema` describes every key"),
                // The user can remove a key, but not a value.
                None if what.starts_with("unknown variant") => {
                    "use one of the expected values; `niclab schema` describes every key".to_owned()
                }
                None => format!("remove `{wrong}`; `niclab schema` describes every key"),
            },
            // `[link]` where the file may have several links.
            _ if what == "invalid type: map, expected a sequence" => {
                format!("write `[[{key}]]` before each entry; `niclab schema` describes every key")
            }
            _ => "correct the value; `niclab schema` describes every key".to_owned(),
        };
        Problem { location: offset.map(|offset| self.location(offset)), key, what, remedy }
    }

    fn location(&self, offset: usize) -> FileLocation {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        FileLocation {
            file: self.name.clone(),
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).map_or(0, |line| line.chars().count()) + 1,
        }
    }

    /// Byte offset of the key at `path`, or of the innermost table on the way to it.
    fn offset_of(&self, path: &str) -> Option<usize> {
        let table = DeTable::parse(&self.text).ok()?;
        let mut table = table.get_ref();
        let mut offset = None;
        for step in path.split('.') {
            let (name, index) = split_index(step);
            let Some((key, mut value)) = table.iter().find(|(key, _)| key.get_ref() == name) else { break };
            offset = Some(key.span().start);
            if let (Some(index), DeValue::Array(items)) = (index, value.get_ref()) {
                let Some(item) = items.get(index) else { break };
                offset = Some(item.span().start);
                value = item;
            }
            let DeValue::Table(inner) = value.get_ref() else { break };
            table = inner;
        }
        offset
    }

    /// The key whose name or value covers the byte at `offset`.
    fn path_at(&self, offset: usize) -> Option<String> {
        let table = DeTable::parse(&self.text).ok()?;
        path_in_table(table.get_ref(), offset)
    }
}

/// `node[1]` is `node` and 1.
fn split_index(step: &str) -> (&str, Option<usize>) {
    match step.strip_suffix(']').and_then(|s| s.split_once('[')) {
        Some((name, index)) => (name, index.parse().ok()),
        None => (step, None),
    }
}

fn for_each_key(table: &DeTable<'_>, act: &mut impl FnMut(&str, usize)) {
    for (key, value) in table {
        act(key.get_ref(), key.span().start);
        for_each_key_of_value(value.get_ref(), act);
    }
}

fn for_each_key_of_value(value: &DeValue<'_>, act: &mut impl FnMut(&str, usize)) {
    match value {
        DeValue::Table(table) => for_each_key(table, act),
        DeValue::Array(items) => items.iter().for_each(|item| for_each_key_of_value(item.get_ref(), act)),
        _ => {}
    }
}

fn path_in_table(table: &DeTable<'_>, offset: usize) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref();
        if key.span().contains(&offset) {
            return Some(name.to_string());
        }
        path_in_value(name, value, offset)
    })
}

fn path_in_value(name: &str, value: &Spanned<DeValue<'_>>, offset: usize) -> Option<String> {
    // The span of a `[table]` is only its header, so descend first and check the span last.
    let inner = match value.get_ref() {
        DeValue::Table(table) => path_in_table(table, offset).map(|inner| format!("{name}.{inner}")),
        DeValue::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(i, item)| path_in_value(&format!("{name}[{i}]"), item, offset)),
        _ => None,
    };
    inner.or_else(|| value.span().contains(&offset).then(|| name.to_owned()))
}

/// The known name that a misspelled name probably means.
pub(crate) fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |name: &str| {
        // The most frequent error is a missing unit: `memory` for `memory_mib`.
        if name.starts_with(wrong) { 1.0 } else { strsim::jaro_winkler(wrong, name) }
    };
    let best = known.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    // Every name starts with an empty one.
    (!wrong.is_empty() && likeness(best) > 0.75).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "nodes = 2\n\n[[node]]\nname = \"a\"\n\n[[node]]\nname = \"b\"\n\
                        memory_mib = 7\n\n[nic.ultra]\nx = { y = [1, 2] }\n";

    fn location_of(path: &str) -> Option<(usize, usize)> {
        Source::from_text("t", TEXT).problem(path, "", "").location.map(|p| (p.line, p.column))
    }

    #[test]
    fn old_key_is_read_and_its_new_name_reported() {
        let source = Source::from_text("c.toml", "nodes = 2\nunkind = 7\n\n[[node]]\nunkind = 8\n");
        let file = source.parse::<crate::ClusterFile>().unwrap();
        assert_eq!((file.adversarial, file.node[0].adversarial), (Some(7), Some(8)));
        let warnings = source.old_keys();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].starts_with("c.toml:2:1: `unkind` is now called `adversarial`"), "{warnings:?}");
        assert!(Source::from_text("c.toml", "adversarial = 7").old_keys().is_empty());
    }

    #[test]
    fn every_kind_of_key_is_found() {
        assert_eq!(location_of("nodes"), Some((1, 1)));
        assert_eq!(location_of("node[1].memory_mib"), Some((8, 1)));
        assert_eq!(location_of("nic.ultra.x.y"), Some((11, 7)));
    }

    #[test]
    fn single_table_for_an_array_names_the_double_brackets() {
        let refused =
            Source::from_text("t", "[link]\nloss = 0.1\n").parse::<crate::ClusterFile>().unwrap_err();
        assert!(refused.to_string().contains("write `[[link]]` before each entry"), "{refused}");
    }

    #[test]
    fn fix_of_an_unknown_value_does_not_remove_it() {
        let fix = |text: &str| {
            let refused = Source::from_text("t", text).parse::<crate::ClusterFile>().unwrap_err();
            refused.to_string()
        };
        let value = fix("on_node_exit = \"restart\"");
        assert!(value.contains("use one of the expected values"), "{value}");
        assert!(fix("on_node_exit = \"contine\"").contains("did you mean `continue`"));
        assert!(fix("zebra = 1").contains("remove `zebra`"));
    }

    #[test]
    fn missing_key_is_located_at_its_table() {
        assert_eq!(location_of("node[1].vcpus").map(|p| p.0), Some(6));
        assert_eq!(location_of("link"), None);
    }

    #[test]
    fn an_offset_finds_its_key() {
        let source = Source::from_text("t", TEXT);
        let at = |needle: &str| TEXT.find(needle).and_then(|offset| source.path_at(offset));
        assert_eq!(at("memory_mib").as_deref(), Some("node[1].memory_mib"));
        assert_eq!(at("7").as_deref(), Some("node[1].memory_mib"));
        assert_eq!(at("1, 2").as_deref(), Some("nic.ultra.x.y[0]"));
    }

    #[test]
    fn a_value_from_the_command_line_names_its_flag() {
        let mut source = Source::from_text("t", TEXT);
        source.set_by_flag("nodes", "--nodes");
        let problem = source.problem("nodes", "no", "yes");
        assert_eq!((problem.location, problem.key.as_str()), (None, "--nodes"));
    }
}
