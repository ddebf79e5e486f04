//! `niclab schema`: the JSON Schema of what users write and read.

use anyhow::Result;
use niclab_spec::report::report_schema;

use crate::cli::{SchemaArgs, SchemaOf};

/// Prints it.
///
/// # Errors
/// When standard output is closed.
pub fn run(args: &SchemaArgs) -> Result<u8> {
    let schema = match args.what {
        SchemaOf::Cluster => niclab_spec::schema(),
        SchemaOf::Report => report_schema(),
    };
    super::terminal::print(&serde_json::to_string_pretty(&schema)?)?;
    Ok(0)
}
