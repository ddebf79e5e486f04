//! The debugger's commands.

use thiserror::Error;

use crate::input::parse_number;
use crate::machine::Party;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Execute this number of cycles and show each.
    Step(u64),
    /// Run to a breakpoint or the end, at most this number of cycles.
    Continue(Option<u64>),
    /// Set a breakpoint.
    Break(Point),
    /// Show the breakpoints.
    Breaks,
    /// Delete a breakpoint, or all.
    Delete(Option<usize>),
    /// Show or select the unit that commands refer to.
    Unit(Option<Party>),
    /// Show registers.
    Registers,
    /// Show predicates.
    Predicates,
    /// Show both FIFOs.
    Fifos,
    /// Show the stages of this number of last cycles.
    Pipeline(u64),
    /// Show the list manager's state.
    Manager,
    /// Show the list.
    List,
    /// Show the program, or the words around one.
    Program(Option<String>),
    /// Show the outcomes so far.
    Results,
    /// Restart the program; breakpoints stay.
    Restart,
    /// Show all commands.
    Help,
    /// Quit.
    Quit,
    /// An empty line.
    Nothing,
}

/// Position of a breakpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before a word is issued, by its label or address.
    Word(String),
    /// On an event.
    Event(Event),
    /// On a change of a register or a predicate.
    Change(String),
}

/// An event between list manager and unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A header begins.
    Header,
    /// The list manager learns whether an item matches.
    Verdict,
    /// A header ends.
    Outcome,
}

impl Event {
    /// All events with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("header", Self::Header), ("verdict", Self::Verdict), ("outcome", Self::Outcome)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, event)| *event == self).map_or("", |(name, _)| name)
    }
}

/// The line is not a command.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    /// No command has this name.
    #[error("no command is called `{0}`; `help` lists them")]
    Unknown(String),
    /// Several commands have this prefix.
    #[error("`{typed}` may be {}; write more of it", .commands.join(", "))]
    Ambiguous {
        /// The typed prefix.
        typed: String,
        /// The commands with this prefix.
        commands: Vec<&'static str>,
    },
    /// The argument is invalid.
    #[error("`{text}` is not what `{name}` takes: {usage}")]
    Argument {
        /// The typed argument.
        text: String,
        /// The command.
        name: &'static str,
        /// The command's usage.
        usage: &'static str,
    },
    /// Too many cycles to show.
    #[error("{count} cycles are too many to show; `continue {count}` executes them without showing each")]
    Count {
        /// Number of cycles.
        count: u64,
    },
    /// The program has no such word.
    #[error("the program has no word `{place}`; {there_is}")]
    Place {
        /// The typed label or address.
        place: String,
        /// The program's words and labels.
        there_is: String,
    },
    /// No event, register or predicate has this name.
    #[error(
        "`{name}` is not an event, register or predicate; events are header, verdict and outcome, and {there_is}"
    )]
    Change {
        /// The typed name.
        name: String,
        /// The unit's registers, predicates and names.
        there_is: String,
    },
    /// The machine has only the matching unit.
    #[error(
        "there is no unit `queue`: hardware keeps the list; start with --queue-program to have a program keep it"
    )]
    NoQueue,
    /// No breakpoint has this number.
    #[error("there is no breakpoint {0}; `break` lists them")]
    Breakpoint(usize),
}

/// Maximum number of cycles that one step shows.
pub const MAX_STEPS: u64 = 10_000;

/// Default number of cycles that `pipeline` shows.
const USUAL_HISTORY: u64 = 8;

/// Name, usage and description of each command.
pub const COMMANDS: [(&str, &str, &str); 16] = [
    ("step", "step [CYCLES]", "executes one cycle, or this number of cycles, and shows each"),
    ("continue", "continue [CYCLES]", "runs to a breakpoint or the end, at most this number of cycles"),
    (
        "break",
        "break [LABEL | ADDRESS | on header | on verdict | on outcome | on REGISTER | on PREDICATE]",
        "sets a breakpoint; without an argument, lists the breakpoints",
    ),
    ("delete", "delete [NUMBER]", "deletes a breakpoint, or all"),
    (
        "unit",
        "unit [match | queue]",
        "shows or selects the unit that commands refer to; --queue-program adds a second one",
    ),
    ("registers", "registers", "shows both register files; * marks what the last command changed"),
    ("predicates", "predicates", "shows the predicates"),
    ("fifos", "fifos", "shows both FIFOs"),
    ("pipeline", "pipeline [CYCLES]", "shows which word was in which stage in the last cycles"),
    ("manager", "manager", "shows the state of the list manager"),
    ("list", "list", "shows the current list; > marks the item under comparison"),
    (
        "program",
        "program [LABEL | ADDRESS]",
        "shows the program, or the words around one; > marks the next word",
    ),
    ("results", "results", "shows the outcomes of the headers so far"),
    ("restart", "restart", "restarts the program; breakpoints stay"),
    ("help", "help", "shows this list"),
    ("quit", "quit", "quits, as the end of input does"),
];

/// Reads a line.
///
/// # Errors
/// [`CommandError`].
pub fn parse(line: &str) -> Result<Command, CommandError> {
    let line = line.trim();
    let (typed, text) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if typed.is_empty() || typed.starts_with('#') {
        return Ok(Command::Nothing);
    }
    let (name, usage) = command_of(typed)?;
    let text = text.trim();
    let wrong = || CommandError::Argument { text: text.to_owned(), name, usage };
    let count = || (!text.is_empty()).then(|| parse_number(text).ok_or_else(wrong)).transpose();
    match name {
        "step" => match count()?.unwrap_or(1) {
            count @ 0..=MAX_STEPS => Ok(Command::Step(count)),
            count => Err(CommandError::Count { count }),
        },
        "continue" => Ok(Command::Continue(count()?)),
        "unit" => match text {
            "" => Ok(Command::Unit(None)),
            "match" => Ok(Command::Unit(Some(Party::Matcher))),
            "queue" => Ok(Command::Unit(Some(Party::Queue))),
            _ => Err(wrong()),
        },
        "break" if text.is_empty() => Ok(Command::Breaks),
        "break" => Ok(Command::Break(point(text).ok_or_else(wrong)?)),
        "delete" => {
            let number = count()?.map(usize::try_from).transpose();
            Ok(Command::Delete(number.map_err(|_| wrong())?))
        }
        "pipeline" => Ok(Command::Pipeline(count()?.unwrap_or(USUAL_HISTORY))),
        "program" => Ok(Command::Program((!text.is_empty()).then(|| text.to_owned()))),
        _ if !text.is_empty() => Err(wrong()),
        "registers" => Ok(Command::Registers),
        "predicates" => Ok(Command::Predicates),
        "fifos" => Ok(Command::Fifos),
        "manager" => Ok(Command::Manager),
        "list" => Ok(Command::List),
        "results" => Ok(Command::Results),
        "restart" => Ok(Command::Restart),
        "help" => Ok(Command::Help),
        _ => Ok(Command::Quit),
    }
}

/// The only command with this name or prefix.
fn command_of(typed: &str) -> Result<(&'static str, &'static str), CommandError> {
    let candidates: Vec<_> = COMMANDS.iter().filter(|(name, ..)| name.starts_with(typed)).collect();
    match candidates[..] {
        [] => Err(CommandError::Unknown(typed.to_owned())),
        [(name, usage, _)] => Ok((name, usage)),
        _ => Err(CommandError::Ambiguous {
            typed: typed.to_owned(),
            commands: candidates.iter().map(|(name, ..)| *name).collect(),
        }),
    }
}

fn point(text: &str) -> Option<Point> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["on", what] => {
            let event = Event::ALL.iter().find(|(name, _)| *name == what);
            Some(event.map_or_else(|| Point::Change(what.to_owned()), |(_, event)| Point::Event(*event)))
        }
        [place] | ["at", place] => Some(Point::Word(place.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commands_and_their_arguments_are_parsed() {
        for (line, command) in [
            ("", Command::Nothing),
            ("  # a remark", Command::Nothing),
            ("step", Command::Step(1)),
            ("s 0x10", Command::Step(16)),
            ("c", Command::Continue(None)),
            ("continue 1_000", Command::Continue(Some(1_000))),
            ("break", Command::Breaks),
            ("b item", Command::Break(Point::Word("item".into()))),
            ("break at 13", Command::Break(Point::Word("13".into()))),
            ("break header", Command::Break(Point::Word("header".into()))),
            ("break on header", Command::Break(Point::Event(Event::Header))),
            ("break on verdict", Command::Break(Point::Event(Event::Verdict))),
            ("break on r3", Command::Break(Point::Change("r3".into()))),
            ("unit", Command::Unit(None)),
            ("u queue", Command::Unit(Some(Party::Queue))),
            ("delete", Command::Delete(None)),
            ("d 2", Command::Delete(Some(2))),
            ("pipe", Command::Pipeline(8)),
            ("pro flush", Command::Program(Some("flush".into()))),
            ("reg", Command::Registers),
            ("q", Command::Quit),
        ] {
            assert_eq!(parse(line), Ok(command), "{line}");
        }
    }

    #[test]
    fn invalid_commands_are_explained() {
        for (line, part) in [
            ("stop", "no command is called `stop`; `help`"),
            ("r", "registers, results, restart"),
            ("step many", "`many` is not what `step` takes: step [CYCLES]"),
            ("step 10001", "`continue 10001`"),
            ("break on fire now", "on verdict"),
            ("unit three", "unit [match | queue]"),
            ("list 3", "`list` takes: list"),
            ("delete -1", "delete [NUMBER]"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn the_manual_has_every_command() {
        let mut table = String::from("| command | what it does |\n|---|---|\n");
        for (_, usage, does) in COMMANDS {
            table += &format!("| `{}` | {does} |\n", usage.replace('|', "\\|"));
        }
        let manual = include_str!("../../../../docs/use/match/RUNNING.md");
        assert!(manual.contains(&table), "docs/use/match/RUNNING.md must contain:\n\n{table}");
    }

    proptest! {
        #[test]
        fn every_line_is_a_command_or_an_error(line: String) {
            let _ = parse(&line);
        }

        #[test]
        fn each_command_does_what_its_name_says(index in 0..COMMANDS.len()) {
            let (name, ..) = COMMANDS[index];
            let command = format!("{:?}", parse(name).unwrap()).to_lowercase();
            prop_assert!(command.starts_with(name), "{name}: {command}");
        }
    }
}
