//! Finds the commands in the documentation, so that tests can check them against each program's parser.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use clap::Parser;
use clap::error::ErrorKind;

/// A command that a page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documented {
    /// File and line.
    pub place: String,
    /// The command as the page shows it.
    pub text: String,
    /// Its words. Placeholders such as `N` or `FILE|NAME` are replaced by example values.
    pub words: Vec<String>,
}

/// Words that end a command in a shell's line, or begin a comment.
const ENDS: [&str; 7] = ["&&", "||", "|", ";", ">", "<", "#"];

/// Placeholders for numbers.
const NUMBERS: [&str; 6] = ["N", "S", "SEED", "SECONDS", "UNITS", "ITEMS"];

/// The commands of `program` in all Markdown files of the repository: in fenced blocks, and between backquotes.
///
/// If git cannot list the files: a test without its subject must not pass.
pub fn documented(program: &str) -> Vec<Documented> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = Command::new("git").args(["ls-files", "*.md"]).current_dir(&root).output().expect("git");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let mut commands = Vec::new();
    for file in String::from_utf8_lossy(&listed.stdout).lines() {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        for (number, found) in of_page(program, &text) {
            let place = format!("{file}:{number}");
            commands.push(Documented { place, words: words(&found), text: found });
        }
    }
    commands
}

/// The commands that the program's parser `P` refuses, each with its place and the reason, and the unused exceptions.
/// An exception is a command as a page shows it, and a reason. Arguments may be missing, because a page may name a
/// command without them.
pub fn invalid<P: Parser>(commands: &[Documented], exceptions: &[(&str, &str)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<&str> = exceptions.iter().map(|(text, _)| *text).collect();
    for command in commands {
        let Some(error) = P::try_parse_from(&command.words).err().filter(|error| !is_mention(error)) else {
            continue;
        };
        unused.remove(command.text.as_str());
        if !exceptions.iter().any(|(text, _)| *text == command.text) {
            wrong.push(format!("{}: `{}`: {error}", command.place, command.text));
        }
    }
    wrong.extend(unused.iter().map(|text| format!("`{text}`: the exception is unused")));
    wrong
}

/// Whether a command is only mentioned, without all its arguments, or only prints a text about the program.
fn is_mention(error: &clap::Error) -> bool {
    match error.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        ErrorKind::InvalidValue => error.to_string().contains("a value is required"),
        _ => false,
    }
}

/// The commands of a page, each with its line.
fn of_page(program: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_in_block = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_in_block = !is_in_block;
        } else if is_in_block {
            let commands = segments(line).into_iter().filter(|segment| is_of(program, segment));
            found.extend(commands.map(|command| (number, command)));
        } else {
            // The text between the first and second backquotes, between the third and fourth, and so on.
            let code = line.split('`').skip(1).step_by(2).map(str::trim);
            let is_command = |code: &&str| is_of(program, code) && code.contains(' ');
            found.extend(code.filter(is_command).flat_map(segments).map(|command| (number, command)));
        }
    }
    found.retain(|(_, command)| is_of(program, command));
    found
}

/// Whether the first word is the program, with any path.
fn is_of(program: &str, command: &str) -> bool {
    command.split_whitespace().next().is_some_and(|word| {
        word.strip_suffix(program).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    })
}

/// The commands of a shell's line, without prompts, comments, redirections, and text after three spaces.
fn segments(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches("$ ");
    let line = line.split("   ").next().unwrap_or_default();
    let mut commands = vec![Vec::new()];
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        if word == "--" {
            // The next words are a command, too.
            commands.last_mut().expect("there is one").push(word);
            commands.push(Vec::new());
            continue;
        }
        match ENDS.iter().find(|end| word == **end || (word.starts_with(**end) && **end != "||")) {
            Some(&"#") => break,
            // Drops the file, if it is a separate word.
            Some(&(">" | "<")) => drop((word.len() == 1).then(|| words.next())),
            Some(_) => commands.push(Vec::new()),
            None => commands.last_mut().expect("there is one").push(word),
        }
    }
    commands.into_iter().filter(|words| !words.is_empty()).map(|words| words.join(" ")).collect()
}

/// The words of a command, with values in place of placeholders. The words after `--` belong to another program.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for word in command.split_whitespace() {
        let word = word.trim_start_matches('[').trim_end_matches("...").trim_end_matches('…');
        // `[3]` is a value; `[--json]` and `[-o I]` are optional.
        let word = if word.contains('[') { word } else { word.trim_end_matches(']') };
        let word = word.split('|').next().unwrap_or_default();
        let word = word.trim_matches(['\'', '"']);
        if !word.is_empty() {
            words.push(if NUMBERS.contains(&word) { "7".to_owned() } else { word.to_owned() });
        }
        if word == "--" {
            words.push("true".to_owned());
            break;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_blocks_and_backquotes_are_found() {
        let page = "Use `niclab sim --swarm N --nic grim`, or `niclab` and `other x`.\n\
                    ```\n$ ./niclab up && niclab shell node0   # log in\nniclab bench --json > b.json\nniclab: done\n\
                    niclab inic build FILE.toml [-o I]   the image\n```\n";
        let found: Vec<(usize, Vec<String>)> =
            of_page("niclab", page).into_iter().map(|(line, text)| (line, words(&text))).collect();
        let expected = [
            (1, "niclab sim --swarm 7 --nic grim"),
            (3, "./niclab up"),
            (3, "niclab shell node0"),
            (4, "niclab bench --json"),
            (6, "niclab inic build FILE.toml -o I"),
        ];
        let expected =
            expected.map(|(line, text)| (line, text.split(' ').map(str::to_owned).collect::<Vec<_>>()));
        assert_eq!(found, expected);
        assert_eq!(
            words("niclab run [--cold] FILE|NAME... -- sh -c '"),
            ["niclab", "run", "--cold", "FILE", "--", "true"]
        );
    }
}
