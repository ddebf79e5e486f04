//! `niclab-match`: runs and debugs a program of the match unit.

use std::io::{self, BufRead, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use niclab_matching::debugger::Debugger;
use niclab_matching::firmware::Firmware;
use niclab_matching::input::{headers_schema, list_schema, read_headers, read_list};
use niclab_matching::machine::{Machine, Setup, Stopped, watchdog};
use niclab_matching::results::{Results, results_schema};
use niclab_matching::trace::{TickError, Trace, tick};
use niclab_model::models::matching::list_manager::Use;
use niclab_output::{READER_GONE, eprint, eprintln, is_unread, print};

/// Runs programs of the match unit on lists and headers, and steps through them.
///
/// `niclab match` starts this program. Exit codes: 0 if every header has its outcome, 1 if the program had to be
/// stopped, 2 if it cannot be run. docs/use/match/RUNNING.md describes the files.
#[derive(Debug, Parser)]
#[command(name = "niclab-match", bin_name = "niclab match", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Match headers against a list, and print the matching item and the cycles of each header.
    Run(RunArguments),
    /// Step through a program with commands from standard input; `help` lists them.
    ///
    /// An invalid command does not end the debugger; Ctrl-D and `quit` do. Exits with 1 if the program was stopped.
    Debug(DebugArguments),
    /// Print the JSON Schema of a list, of headers, or of the output of `run --json`.
    Schema {
        /// The file or output.
        #[arg(value_enum)]
        what: SchemaOf,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SchemaOf {
    /// The list.
    List,
    /// The headers.
    Headers,
    /// The output of `run --json`.
    Results,
}

/// A program and its input.
#[derive(Debug, Args)]
struct SetupArguments {
    /// The program: an image or a source. Default: the built-in program.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The list: a JSON array of items.
    #[arg(long, value_name = "LIST.json")]
    list: PathBuf,
    /// The headers: a JSON array, in the order of arrival.
    #[arg(long, value_name = "HEADERS.json")]
    headers: PathBuf,
    /// Leave matching items unchanged, as in the paper's benchmark. Without this option each match lowers the item's
    /// threshold and advances its offset.
    #[arg(long)]
    keep: bool,
    /// Stop a program that takes more cycles for one header. Default: 4096, plus 256 for each item.
    #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u64).range(1..=MAX_WATCHDOG))]
    watchdog: Option<u64>,
    /// Write a waveform of every cycle to this file (VCD), for GTKWave.
    #[arg(long, value_name = "FILE.vcd")]
    trace: Option<PathBuf>,
    /// Replace the hardware list manager by a program on a second unit: an image or a source. Without FILE, the
    /// built-in program.
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "trace")]
    queue_program: Option<Option<PathBuf>>,
}

#[derive(Debug, Args)]
struct RunArguments {
    #[command(flatten)]
    setup: SetupArguments,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct DebugArguments {
    #[command(flatten)]
    setup: SetupArguments,
    /// Execute this command before those from standard input. May be repeated.
    #[arg(short, long, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The longest watchdog: six days of the modelled clock. Sums of cycles stay far below an overflow.
const MAX_WATCHDOG: u64 = 1 << 48;

type Failure = Box<dyn std::error::Error>;

/// Exit code if the program was stopped.
const STOPPED: u8 = 1;
/// Exit code if the program could not be run.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    let result = match &Arguments::parse().command {
        Action::Run(arguments) => run(arguments),
        Action::Debug(arguments) => debug(arguments),
        Action::Schema { what } => print_schema(*what),
    };
    ExitCode::from(niclab_output::exit_code(result, |error| {
        if is_unread(error.as_ref()) {
            return READER_GONE;
        }
        eprintln!("niclab-match: {error}");
        REFUSED
    }))
}

fn setup(arguments: &SetupArguments) -> Result<Setup, Failure> {
    let items = read_list(&arguments.list)?;
    let queue_file = arguments.queue_program.as_ref().map(Option::as_deref);
    let setup = Setup {
        firmware: Firmware::load(arguments.program.as_deref())?,
        queue: queue_file.map(Firmware::load_queue).transpose()?,
        headers: read_headers(&arguments.headers)?,
        uses: if arguments.keep { Use::Keep } else { Use::Consume },
        watchdog: arguments.watchdog.unwrap_or_else(|| watchdog(items.len())),
        items,
        files: [Some(&arguments.list), Some(&arguments.headers), arguments.program.as_ref()]
            .into_iter()
            .chain([arguments.queue_program.as_ref().and_then(Option::as_ref)])
            .flatten()
            .cloned()
            .collect(),
    };
    for firmware in [Some(&setup.firmware), setup.queue.as_ref()].into_iter().flatten() {
        eprint!("{}", firmware.warnings());
    }
    Ok(setup)
}

fn run(arguments: &RunArguments) -> Result<u8, Failure> {
    let setup = setup(&arguments.setup)?;
    let mut machine = Machine::new(&setup)?;
    match &arguments.setup.trace {
        // The machine keeps the reason of a stop.
        None => drop(machine.run()),
        Some(path) => drop(traced(&mut machine, Trace::create(path, &setup.files)?)?),
    }
    let ran = machine.ran();
    let stopped = ran.stopped;
    let results = Results::new(&setup, ran);
    let text =
        if arguments.json { serde_json::to_string_pretty(&results)? + "\n" } else { results.to_string() };
    print(&text)?;
    Ok(stopped.map_or(0, |stopped| {
        eprintln!("niclab-match: {stopped}");
        STOPPED
    }))
}

/// Runs to the end and writes a waveform. Returns the reason if the program was stopped.
fn traced(machine: &mut Machine, mut trace: Trace) -> Result<Option<Stopped>, Failure> {
    let mut stopped = None;
    while !machine.is_done() && stopped.is_none() {
        match tick(machine, Some(&mut trace)) {
            Ok(_) => {}
            Err(TickError::Stopped(why)) => stopped = Some(why),
            Err(TickError::Trace(error)) => return Err(error.into()),
        }
    }
    trace.finish(machine)?;
    Ok(stopped)
}

fn print_schema(what: SchemaOf) -> Result<u8, Failure> {
    let schema = match what {
        SchemaOf::List => list_schema(),
        SchemaOf::Headers => headers_schema(),
        SchemaOf::Results => results_schema(),
    };
    print(&serde_json::to_string_pretty(&schema)?)?;
    Ok(0)
}

/// The prompt.
const PROMPT: &str = "(match) ";

fn debug(arguments: &DebugArguments) -> Result<u8, Failure> {
    let mut debugger = Debugger::new(setup(&arguments.setup)?, arguments.setup.trace.clone())?;
    let (mut input, mut output) = (io::stdin().lock(), niclab_output::stdout());
    let is_terminal = input.is_terminal();
    write!(output, "{}", debugger.greeting())?;
    let mut given = arguments.command.iter();
    loop {
        let command = given.next().cloned();
        // Commands of a script are echoed, so that the output looks like an interactive session.
        let is_typed = command.is_none() && is_terminal;
        if is_typed {
            write!(output, "{PROMPT}")?;
            output.flush()?;
        }
        let Some(line) = command.map_or_else(|| next_line(&mut input), |command| Ok(Some(command)))? else {
            break;
        };
        if !is_typed {
            writeln!(output, "{PROMPT}{}", line.trim_end())?;
        }
        let reply = debugger.execute(&line)?;
        write!(output, "{}", reply.text)?;
        if reply.quits {
            break;
        }
    }
    output.flush()?;
    let stopped = debugger.stopped();
    debugger.finish()?;
    Ok(if stopped { STOPPED } else { 0 })
}

/// The next line, with any bytes; None at the end of the input.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let bytes = input.read_until(b'\n', &mut line)?;
    Ok((bytes > 0).then(|| String::from_utf8_lossy(&line).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_commands_are_valid() {
        let mut commands = niclab_harness::documented("niclab");
        commands.retain_mut(|command| {
            // `niclab match` passes its remaining arguments to this program.
            command.words.remove(0);
            command.words.first().is_some_and(|word| word == "match")
        });
        let wrong = niclab_harness::invalid::<Arguments>(&commands, &[]);
        assert!(wrong.is_empty() && !commands.is_empty(), "{}", wrong.join("\n"));
    }
}
