//! `niclab schema`: the JSON Schema of the cluster file.

use anyhow::Result;

/// Prints it.
///
/// # Errors
/// When standard output is closed.
pub fn run() -> Result<u8> {
    super::terminal::print(&serde_json::to_string_pretty(&niclab_spec::schema())?)?;
    Ok(0)
}
