//! `niclab profile`: the platforms whose prices make model time, each number with its source.

use std::path::Path;

use anyhow::{Result, bail};
use niclab_cluster::output::table;
use niclab_spec::Profile;
use serde::Serialize;

use super::terminal;
use crate::arguments::{ProfileArgs, ProfileCommand};

/// The code of `niclab profile check` where a profile was refused.
const REFUSED: u8 = 1;

/// Does what is asked.
///
/// # Errors
/// When there is no such profile, or it is refused: with file, line and mend.
pub fn run(args: &ProfileArgs) -> Result<u8> {
    match &args.command {
        ProfileCommand::List { json } => list(*json),
        ProfileCommand::Show { profile, json } => show(&find(profile)?, *json),
        ProfileCommand::Check { files } => check(files),
    }
}

/// The profile of this name, or in this file.
fn find(wanted: &str) -> Result<Profile> {
    if Profile::is_path(wanted) {
        return Ok(Profile::read(Path::new(wanted))?);
    }
    match Profile::bundled(wanted) {
        Some(profile) => Ok(profile),
        None => bail!("no profile is called `{wanted}`\n  mend: {}", Profile::remedy_of_name(wanted)),
    }
}

/// One profile in a list.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    description: String,
    numbers: usize,
    fitted: usize,
}

impl Listed {
    fn new(profile: &Profile) -> Self {
        let facts = profile.facts();
        Self {
            name: profile.name.clone(),
            description: profile.description.clone(),
            numbers: facts.len(),
            fitted: facts.iter().filter(|(_, fact)| fact.fitted.is_some()).count(),
        }
    }
}

fn list(json: bool) -> Result<u8> {
    let listed: Vec<Listed> =
        Profile::bundled_names().filter_map(Profile::bundled).map(|profile| Listed::new(&profile)).collect();
    if json {
        terminal::print(&serde_json::to_string_pretty(&listed)?)?;
        return Ok(0);
    }
    let mut rows = vec![["name", "numbers", "fitted", "platform"].map(str::to_owned).to_vec()];
    for profile in listed {
        let Listed { name, description, numbers, fitted } = profile;
        rows.push(vec![name, numbers.to_string(), fitted.to_string(), description]);
    }
    terminal::print(&table(&rows))?;
    Ok(0)
}

fn show(profile: &Profile, json: bool) -> Result<u8> {
    let text = if json { serde_json::to_string_pretty(profile)? } else { profile_text(profile) };
    terminal::print(&text)?;
    Ok(0)
}

/// Every number with its source, and what it was fitted to.
fn profile_text(profile: &Profile) -> String {
    let mut rows = vec![["number", "value", "source"].map(str::to_owned).to_vec()];
    for (key, fact) in profile.facts() {
        let fitted = fact.fitted.as_ref().map(|fitted| format!("; fitted: {fitted}")).unwrap_or_default();
        rows.push(vec![key, fact.value.to_string(), format!("{}{fitted}", fact.source)]);
    }
    let Listed { name, description, numbers, fitted } = Listed::new(profile);
    format!("{name}: {description}\n{numbers} numbers, {fitted} of them fitted\n\n{}", table(&rows))
}

fn check(wanted: &[String]) -> Result<u8> {
    let mut code = 0;
    for wanted in wanted {
        match find(wanted) {
            Ok(profile) => {
                let Listed { name, numbers, fitted, .. } = Listed::new(&profile);
                terminal::print(&format!("{wanted}: `{name}`, {numbers} numbers, {fitted} of them fitted"))?;
            }
            Err(error) => {
                eprintln!("niclab: {error:#}");
                code = REFUSED;
            }
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_shown_with_its_source_and_what_it_was_fitted_to() {
        for profile in Profile::bundled_names().filter_map(Profile::bundled) {
            let text = profile_text(&profile);
            for (key, fact) in profile.facts() {
                let line =
                    text.lines().find(|line| line.split_whitespace().next() == Some(key.as_str())).unwrap();
                assert!(line.contains(&format!(" {} ", fact.value)) && line.contains(&fact.source), "{line}");
                assert_eq!(fact.fitted.is_some(), line.contains("; fitted: "), "{line}");
            }
        }
    }

    #[test]
    fn a_name_that_is_nearly_right_gets_a_guess() {
        let error = find("htx-200mz").unwrap_err().to_string();
        assert!(error.contains("did you mean `htx-200mhz`?"), "{error}");
        assert_eq!(find("ultra-200mhz-htx").unwrap().name, "htx-200mhz");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/pci-32-33.toml");
        assert_eq!(find(path).unwrap(), find("pci-32-33").unwrap());
    }
}
