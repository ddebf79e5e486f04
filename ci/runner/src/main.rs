//! `niclab-runner`: see the library's documentation, and [`USAGE`].

use std::process::ExitCode;
use std::time::Duration;

use niclab_runner::limits::Limits;
use niclab_runner::supervise::{self, End, What};

const USAGE: &str = "\
niclab-runner step NAME [LIMITS] -- COMMAND...   runs a step of ci/test
niclab-runner tests [LIMITS] -- BINARY...        runs a test binary: cargo's target.*.runner

Ends what makes no progress, says where it stands, and leaves no process behind. Exits as the command
did, or with 124 where it was ended. Progress of tests is a test that ends; a step makes none before
its end. Limits, in seconds:

  --blocked S     wall time almost without processor time
  --processor S   processor time, children included
  --wall S        wall time";

fn main() -> ExitCode {
    let (what, limits) = match parse(std::env::args().skip(1)) {
        Ok(parsed) => parsed,
        Err(wrong) => {
            eprintln!("niclab-runner: {wrong}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match supervise::run(&what, limits) {
        Ok(End::Code(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Ok(End::Signal(signal)) => {
            // As if it had not been caught, so that a shell knows.
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
    let kind = arguments.next().ok_or("nothing to do")?;
    let name = match kind.as_str() {
        "step" => Some(arguments.next().ok_or("a step has a name")?),
        "tests" => None,
        other => return Err(format!("`{other}` is neither `step` nor `tests`")),
    };
    let mut limits = if name.is_some() { STEP } else { TEST };
    loop {
        let option = arguments.next().ok_or("`--` and a command are missing")?;
        let limit = match option.as_str() {
            "--" => break,
            "--blocked" => &mut limits.blocked,
            "--processor" => &mut limits.processor,
            "--wall" => &mut limits.wall,
            other => return Err(format!("no limit is called `{other}`")),
        };
        let value = arguments.next().unwrap_or_default();
        let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
        *limit = seconds.map(Duration::from_secs).ok_or(format!("{option} wants seconds, not `{value}`"))?;
    }
    let mut command: Vec<String> = arguments.collect();
    if command.is_empty() {
        return Err("a command is missing".to_owned());
    }
    let what = match name {
        Some(name) => What::Step { name, command },
        None => What::Tests { binary: command.remove(0).into(), arguments: command },
    };
    Ok((what, limits))
}

/// Of one test, or of those that run at once. The longest take minutes of processor time; they may take many times that
/// on a slow machine.
const TEST: Limits = Limits {
    blocked: Duration::from_secs(10 * 60),
    processor: Duration::from_secs(30 * 60),
    wall: Duration::from_secs(60 * 60),
};

/// Of a whole step, which may wait for a slow network, and longer than the tests in it.
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
    fn commands_are_read_and_everything_after_the_dashes_is_theirs() {
        let (what, limits) = parsed("tests --blocked 7 --wall 9 -- a/b --quiet --wall x").expect("right");
        assert_eq!((limits.blocked.as_secs(), limits.wall.as_secs()), (7, 9));
        assert_eq!(limits.processor, TEST.processor);
        let What::Tests { binary, arguments } = what else { panic!("{what:?}") };
        assert_eq!((binary.to_str(), arguments.join(" ").as_str()), (Some("a/b"), "--quiet --wall x"));
        assert!(matches!(parsed("step lint -- c"), Ok((What::Step { .. }, STEP))));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("watch", "neither"),
            ("step", "name"),
            ("step a --blocked 0 -- b", "wants seconds, not `0`"),
            ("tests --blok 3 -- b", "`--blok`"),
            ("tests --wall 3", "missing"),
            ("tests --", "missing"),
        ] {
            let wrong = parsed(line).expect_err(line);
            assert!(wrong.contains(part), "{line}: {wrong}");
        }
    }
}
