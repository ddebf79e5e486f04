//! The program `niclab-runner`. The library has its documentation; [`USAGE`] has its arguments.

use std::process::ExitCode;
use std::time::Duration;

use niclab_runner::limits::Limits;
use niclab_runner::supervise::{self, End, What};

const USAGE: &str = "\
niclab-runner step NAME [LIMITS] -- COMMAND...   runs a step of ci/test
niclab-runner tests [LIMITS] -- BINARY...        runs a test binary, as cargo's target.*.runner

If a command makes no progress within a limit, the runner shows its processes and threads, and ends it with
all its children. A test binary makes progress with each test that ends; a step makes none before its end.
The runner also ends processes that a command left behind.
The exit code is the command's, or 124 if it made no progress. Limits without progress, in seconds:

  --blocked S     wall time in which the command uses almost no processor time
  --processor S   processor time of the command and its children
  --wall S        wall time";

fn main() -> ExitCode {
    let (what, limits) = match parse(std::env::args().skip(1)) {
        Ok(parsed) => parsed,
        Err(error) => {
            eprintln!("niclab-runner: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match supervise::run(&what, limits) {
        Ok(End::Code(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Ok(End::Signal(signal)) => {
            // Dies of the signal, so that the shell that started the runner notices it.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("niclab-runner: {error}");
            ExitCode::from(127)
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(What, Limits), String> {
    let kind = arguments.next().ok_or("the first argument is missing: give `step` or `tests`")?;
    let name = match kind.as_str() {
        "step" => Some(arguments.next().ok_or("the step's name is missing after `step`")?),
        "tests" => None,
        other => return Err(format!("`{other}` is neither `step` nor `tests`")),
    };
    let mut limits = if name.is_some() { STEP } else { TEST };
    loop {
        let option = arguments.next().ok_or("`--` and a command are missing at the end")?;
        let limit = match option.as_str() {
            "--" => break,
            "--blocked" => &mut limits.blocked,
            "--processor" => &mut limits.processor,
            "--wall" => &mut limits.wall,
            other => return Err(format!("unknown limit `{other}`: give --blocked, --processor or --wall")),
        };
        let value = arguments.next().unwrap_or_default();
        let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
        *limit = seconds
            .map(Duration::from_secs)
            .ok_or(format!("{option} is `{value}`; give a number of seconds above 0"))?;
    }
    let mut command: Vec<String> = arguments.collect();
    if command.is_empty() {
        return Err("a command is missing after `--`".to_owned());
    }
    let what = match name {
        Some(name) => What::Step { name, command },
        None => What::Tests { binary: command.remove(0).into(), arguments: command },
    };
    Ok((what, limits))
}

/// Default limits of a test binary, from the end of one test to the end of the next. The longest test takes minutes of
/// processor time, and many times that on a slow machine.
const TEST: Limits = Limits {
    blocked: Duration::from_secs(10 * 60),
    processor: Duration::from_secs(30 * 60),
    wall: Duration::from_secs(60 * 60),
};

/// Default limits of a complete step. A step may wait for a slow network, and takes longer than each of its tests.
const STEP: Limits = Limits {
    blocked: Duration::from_secs(40 * 60),
    processor: Duration::from_secs(2 * 3600),
    wall: Duration::from_secs(3 * 3600),
};

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(What, Limits), String> {
        parse(line.split(' ').map(str::to_owned))
    }

    #[test]
    fn arguments_after_the_double_dash_belong_to_the_command() {
        let (what, limits) =
            parsed("tests --blocked 7 --wall 9 -- a/b --quiet --wall x").expect("valid arguments");
        assert_eq!((limits.blocked.as_secs(), limits.wall.as_secs()), (7, 9));
        assert_eq!(limits.processor, TEST.processor);
        let What::Tests { binary, arguments } = what else { panic!("{what:?}") };
        assert_eq!((binary.to_str(), arguments.join(" ").as_str()), (Some("a/b"), "--quiet --wall x"));
        assert!(matches!(parsed("step lint -- c"), Ok((What::Step { .. }, STEP))));
    }

    #[test]
    fn invalid_arguments_are_named_in_the_message() {
        for (line, part) in [
            ("watch", "neither"),
            ("step", "name"),
            ("step a --blocked 0 -- b", "is `0`; give a number of seconds"),
            ("tests --blok 3 -- b", "`--blok`"),
            ("tests --wall 3", "missing"),
            ("tests --", "missing"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
