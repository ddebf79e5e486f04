//! `niclab schema`: prints the JSON Schema of a file format, or tables of all its keys.

use std::fmt::Write as _;

use anyhow::Result;
use niclab_spec::{profile::profile_schema, report::report_schema, scenario::scenario_schema};
use serde_json::Value;

use crate::arguments::{SchemaArgs, SchemaOf};

/// Prints the schema.
///
/// # Errors
/// When standard output is closed.
pub fn run(args: &SchemaArgs) -> Result<u8> {
    let schema = match args.what {
        SchemaOf::Cluster => niclab_spec::schema(),
        SchemaOf::Report => report_schema(),
        SchemaOf::Profile => profile_schema(),
        SchemaOf::Scenario => scenario_schema(),
    };
    let text =
        if args.markdown { markdown(schema.as_value()) } else { serde_json::to_string_pretty(&schema)? };
    super::terminal::print(&text)?;
    Ok(0)
}

/// All keys of a schema: one table for the document itself, and one for each named type.
fn markdown(schema: &Value) -> String {
    let title = schema["title"].as_str().unwrap_or("document");
    let mut text = format!("# Keys of the {title}\n\n");
    text += "Generated from the source by `niclab schema --markdown`; do not edit. A key that is not \
             marked \"optional\" is always there.\n";
    text += &type_text(title, schema);
    for (name, definition) in object(&schema["$defs"]) {
        text += &type_text(name, definition);
    }
    text
}

/// A type: its meaning, and its keys or its values.
fn type_text(name: &str, definition: &Value) -> String {
    let mut text = format!("\n## {name}\n\n{}\n", plain(definition));
    let names: Vec<&Value> = definition["oneOf"].as_array().into_iter().flatten().collect();
    if !names.is_empty() {
        text += "\n| value | meaning |\n|---|---|\n";
    }
    for name in names {
        let value = match name["const"].as_str() {
            Some(value) => format!("\"{value}\""),
            // A variant with a value is a table of one key.
            None => object(&name["properties"]).iter().map(|(key, _)| format!("{{ {key} = … }}")).collect(),
        };
        let _ = writeln!(text, "| `{value}` | {} |", plain(name));
    }
    let properties = object(&definition["properties"]);
    if !properties.is_empty() {
        text += "\n| key | type | meaning |\n|---|---|---|\n";
    }
    let is_required =
        |key: &str| definition["required"].as_array().is_some_and(|keys| keys.contains(&key.into()));
    for (key, property) in properties {
        let optional = if is_required(key) { "" } else { ", optional" };
        let _ = writeln!(text, "| `{key}` | {}{optional} | {} |", type_of(property), plain(property));
    }
    text
}

fn object(value: &Value) -> Vec<(&String, &Value)> {
    value.as_object().into_iter().flatten().collect()
}

/// A description on one line, without links that work only in rustdoc.
fn plain(value: &Value) -> String {
    let text = value["description"].as_str().unwrap_or_default();
    text.replace("[`", "`").replace("`]", "`").replace("Self::", "").replace('\n', " ").replace('|', "\\|")
}

/// The type of a value in words. A named type links to its table.
fn type_of(value: &Value) -> String {
    if let Some(path) = value["$ref"].as_str() {
        let name = path.rsplit('/').next().unwrap_or(path);
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(choices) = value["anyOf"].as_array() {
        let other = choices.iter().find(|choice| choice["type"] != "null");
        return other.map_or_else(|| "null".to_owned(), type_of);
    }
    let kind = match &value["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null"),
        kind => Some(kind),
    };
    match kind.and_then(Value::as_str) {
        Some("array") => format!("list of {}", type_of(&value["items"])),
        Some("object") if value["additionalProperties"].is_object() => {
            format!("name to {}", type_of(&value["additionalProperties"]))
        }
        Some("string") => "text".to_owned(),
        Some(kind) => kind.to_owned(),
        None => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str = include_str!("../../../../docs/reference/REPORT-KEYS.md");

    #[test]
    fn documented_report_keys_match_the_source() {
        let text = markdown(report_schema().as_value());
        assert!(
            text.trim_end() == COMMITTED.trim_end(),
            "regenerate it: niclab schema report --markdown >docs/reference/REPORT-KEYS.md"
        );
    }

    #[test]
    fn every_key_has_a_meaning_and_a_type() {
        for schema in [niclab_spec::schema(), report_schema(), profile_schema()] {
            let text = markdown(schema.as_value());
            let keys: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
            assert!(keys.len() > 20, "{text}");
            for key in keys {
                assert!(!key.contains("|  |") && !key.contains("| any"), "{key}");
            }
        }
    }
}
