//! Prints the tables of docs/figures/processors.md.

use niclab_processors::{RunError, comparison};

fn main() -> Result<(), RunError> {
    print!("{}", comparison::markdown()?);
    Ok(())
}
