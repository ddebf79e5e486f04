//! What can be said to the debugger.

use thiserror::Error;

use crate::input::parse_number;
use crate::machine::Party;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// So many cycles, each of which is shown.
    Step(u64),
    /// On to a breakpoint or the end, or so many cycles at most.
    Continue(Option<u64>),
    /// Stop here from now on.
    Break(Point),
    /// Show where it stops.
    Breaks,
    /// Take a breakpoint away, or all.
    Delete(Option<usize>),
    /// Say which unit commands are about, or choose it.
    Unit(Option<Party>),
    /// Show registers.
    Registers,
    /// Show predicates.
    Predicates,
    /// Show both FIFOs.
    Fifos,
    /// Show the stages in the last cycles: so many.
    Pipeline(u64),
    /// Show what the list manager does.
    Manager,
    /// Show the list.
    List,
    /// Show the program, or the words around a place.
    Program(Option<String>),
    /// Show what became of headers so far.
    Results,
    /// Begin anew; breakpoints stay.
    Restart,
    /// Show all commands.
    Help,
    /// End.
    Quit,
    /// An empty line.
    Nothing,
}

/// Where to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// Before a word is issued: its label or address.
    Word(String),
    /// When something happens.
    Event(Event),
    /// When a register or a predicate changes.
    Change(String),
}

/// What happens between list manager and unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A header begins.
    Header,
    /// The list manager hears whether an item takes the message.
    Verdict,
    /// A header ends.
    Outcome,
}

impl Event {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 3] =
        [("header", Self::Header), ("verdict", Self::Verdict), ("outcome", Self::Outcome)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, event)| *event == self).map_or("", |(name, _)| name)
    }
}

/// What was said is no command.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    /// Nothing is called so.
    #[error("no command is called `{0}`; `help` lists them")]
    Unknown(String),
    /// Several are.
    #[error("`{typed}` may be {}; write more of it", .commands.join(", "))]
    Ambiguous {
        /// What was said.
        typed: String,
        /// The commands that begin so.
        commands: Vec<&'static str>,
    },
    /// It takes something else.
    #[error("`{text}` is not what `{name}` takes: {usage}")]
    Argument {
        /// What was said behind the command.
        text: String,
        /// The command.
        name: &'static str,
        /// What it takes.
        usage: &'static str,
    },
    /// Too many cycles to show.
    #[error("{count} cycles are too many to show; `continue {count}` goes as far without showing each")]
    Count {
        /// How many.
        count: u64,
    },
    /// The program has no such word.
    #[error("the program has no word `{place}`; {there_is}")]
    Place {
        /// What was said.
        place: String,
        /// What it has.
        there_is: String,
    },
    /// There is nothing that could change.
    #[error(
        "`{name}` is no event, register or predicate; events are header, verdict and outcome, and {there_is}"
    )]
    Change {
        /// What was said.
        name: String,
        /// What it has.
        there_is: String,
    },
    /// There is one unit alone.
    #[error("there is no unit `queue`: hardware keeps the list; --queue-program lets a program do it")]
    NoQueue,
    /// There is no such breakpoint.
    #[error("there is no breakpoint {0}; `break` lists them")]
    Breakpoint(usize),
}

/// Most cycles that one step shows.
pub const MAX_STEPS: u64 = 10_000;

/// Cycles that `pipeline` shows.
const USUAL_HISTORY: u64 = 8;

/// Names, what they take, and what they do.
pub const COMMANDS: [(&str, &str, &str); 16] = [
    ("step", "step [CYCLES]", "goes one cycle on, or several, and shows each"),
    ("continue", "continue [CYCLES]", "goes on to a breakpoint or the end, at most so many cycles"),
    (
        "break",
        "break [LABEL | ADDRESS | on header | on verdict | on outcome | on REGISTER | on PREDICATE]",
        "stops there, or when it changes; shows breakpoints",
    ),
    ("delete", "delete [NUMBER]", "takes a breakpoint away, or all"),
    (
        "unit",
        "unit [match | queue]",
        "says which unit commands are about, or chooses it; with --queue-program there are two",
    ),
    ("registers", "registers", "shows both register files; * marks what the last command changed"),
    ("predicates", "predicates", "shows the predicates"),
    ("fifos", "fifos", "shows both FIFOs"),
    ("pipeline", "pipeline [CYCLES]", "shows which word was in which stage in the last cycles"),
    ("manager", "manager", "shows what the list manager does"),
    ("list", "list", "shows the list as it is; > marks the item that is judged"),
    ("program", "program [LABEL | ADDRESS]", "shows the program, or what is around a word; > marks the next"),
    ("results", "results", "shows what became of headers so far"),
    ("restart", "restart", "begins anew; breakpoints stay"),
    ("help", "help", "shows this"),
    ("quit", "quit", "ends; so does the end of input"),
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

/// The command that is called so, or the only one that begins so.
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
    fn commands_are_read() {
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
    fn what_is_no_command_is_explained() {
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
