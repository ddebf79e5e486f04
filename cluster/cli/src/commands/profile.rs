//! `niclab profile`: lists, shows and checks platform profiles. Their prices determine model time, and each has a
//! source.

use std::path::Path;

use anyhow::{Result, bail};
use niclab_cluster::output::table;
use niclab_spec::{Fact, Profile};
use serde::Serialize;

use super::terminal;
use crate::arguments::{ProfileArgs, ProfileCommand};

/// The code of `niclab profile check` if a profile is invalid.
const REFUSED: u8 = 1;

/// Runs the subcommand.
///
/// # Errors
/// When there is no such profile, or the profile is invalid; the message has file, line and fix.
pub fn run(args: &ProfileArgs) -> Result<u8> {
    match &args.command {
        ProfileCommand::List { json } => list(*json),
        ProfileCommand::Show { profile, json } => show(&find(profile)?, *json),
        ProfileCommand::Check { files } => check(files),
    }
}

/// The profile with this name, or in this file.
fn find(wanted: &str) -> Result<Profile> {
    if Profile::is_path(wanted) {
        return Ok(Profile::read(Path::new(wanted))?);
    }
    match Profile::bundled(wanted) {
        Some(profile) => Ok(profile),
        None => bail!("there is no profile `{wanted}`\n  fix: {}", Profile::remedy_of_name(wanted)),
    }
}

/// A profile in the list.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    description: String,
    numbers: usize,
    /// Number of values without a source that were fitted to published numbers.
    fitted: usize,
    /// Number of values without a source that were assumed, without a published number to fit.
    assumed: usize,
}

impl Listed {
    fn new(profile: &Profile) -> Self {
        let facts = profile.facts();
        Self {
            name: profile.name.clone(),
            description: profile.description.clone(),
            numbers: facts.len(),
            fitted: facts.iter().filter(|(_, fact)| fact.fitted.is_some()).count(),
            assumed: facts.iter().filter(|(_, fact)| fact.assumed.is_some()).count(),
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
    let mut rows = vec![["name", "numbers", "fitted", "assumed", "platform"].map(str::to_owned).to_vec()];
    for profile in listed {
        let Listed { name, description, numbers, fitted, assumed } = profile;
        rows.push(vec![name, numbers.to_string(), fitted.to_string(), assumed.to_string(), description]);
    }
    terminal::print(&table(&rows))?;
    Ok(0)
}

fn show(profile: &Profile, json: bool) -> Result<u8> {
    let text = if json { serde_json::to_string_pretty(profile)? } else { profile_text(profile) };
    terminal::print(&text)?;
    Ok(0)
}

/// Every number with its source, and what it was fitted to or why it was assumed.
fn profile_text(profile: &Profile) -> String {
    let mut rows = vec![["number", "value", "source"].map(str::to_owned).to_vec()];
    for (key, fact) in profile.facts() {
        rows.push(vec![key, fact.value.to_string(), format!("{}{}", fact.source, choice(fact))]);
    }
    let description = &profile.description;
    format!("{}: {description}\n{}\n\n{}", profile.name, provenance(profile), table(&rows))
}

/// The published numbers that a value was fitted to, or the reason for an assumed value.
fn choice(fact: &Fact) -> String {
    let fitted = fact.fitted.as_ref().map(|fitted| format!("; fitted: {fitted}"));
    let assumed = fact.assumed.as_ref().map(|assumed| format!("; assumed: {assumed}"));
    fitted.or(assumed).unwrap_or_default()
}

/// The numbers of sourced, assumed and fitted values.
fn provenance(profile: &Profile) -> String {
    let Listed { numbers, fitted, assumed, .. } = Listed::new(profile);
    let sourced = numbers - fitted - assumed;
    format!(
        "{numbers} numbers: {sourced} from sources, {assumed} assumed, {fitted} fitted to published numbers"
    )
}

/// All fits, each once with the keys of its values.
fn fits(profile: &Profile) -> String {
    let mut fits: Vec<(String, Vec<String>)> = Vec::new();
    for (key, fact) in profile.facts() {
        let Some(fitted) = &fact.fitted else { continue };
        match fits.iter_mut().find(|(to, _)| to == fitted) {
            Some((_, keys)) => keys.push(key),
            None => fits.push((fitted.clone(), vec![key])),
        }
    }
    fits.into_iter().map(|(to, keys)| format!("\n  {}: {to}", keys.join(", "))).collect()
}

fn check(wanted: &[String]) -> Result<u8> {
    let mut code = 0;
    for wanted in wanted {
        match find(wanted) {
            Ok(profile) => terminal::print(&format!(
                "{wanted}: `{}`, {}{}",
                profile.name,
                provenance(&profile),
                fits(&profile)
            ))?,
            Err(error) => {
                eprintln!("niclab: {}", niclab_spec::explain(error.as_ref()));
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
    fn every_number_is_shown_with_its_source_and_fit() {
        for profile in Profile::bundled_names().filter_map(Profile::bundled) {
            let text = profile_text(&profile);
            for (key, fact) in profile.facts() {
                let line =
                    text.lines().find(|line| line.split_whitespace().next() == Some(key.as_str())).unwrap();
                assert!(line.contains(&format!(" {} ", fact.value)) && line.contains(&fact.source), "{line}");
                assert_eq!(fact.fitted.is_some(), line.contains("; fitted: "), "{line}");
                assert_eq!(fact.assumed.is_some(), line.contains("; assumed: "), "{line}");
            }
        }
    }

    #[test]
    fn check_shows_each_fit_with_its_keys() {
        let profile = Profile::bundled("lanai4-pci").unwrap();
        let [numbers, fitted] =
            [profile.facts().len(), Listed::new(&profile).fitted].map(|count| count.to_string());
        let text = format!("{}{}", provenance(&profile), fits(&profile));
        assert!(
            text.starts_with(&format!("{numbers} numbers: ")) && text.contains(&format!("{fitted} fitted")),
            "{text}"
        );
        let firmware = "ni.machines.processor_receive.fixed_millicycles, \
                        ni.machines.processor_send.fixed_millicycles: the 13 us";
        assert!(text.contains(firmware), "{text}");
        assert!(!text.contains("64 clocks"), "assumed, not fitted: {text}");
    }

    #[test]
    fn misspelled_profile_name_gets_a_suggestion() {
        let error = find("htx-200mz").unwrap_err().to_string();
        assert!(error.contains("did you mean `htx-200mhz`?"), "{error}");
        assert_eq!(find("ultra-200mhz-htx").unwrap().name, "htx-200mhz");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/pci-32-33.toml");
        assert_eq!(find(path).unwrap(), find("pci-32-33").unwrap());
    }
}
