//! `niclab debug` at an interactive terminal: gdb's prompt, Ctrl-C, `quit`.

use std::{
    io::{Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use niclab_harness::{Niclab, binary, eventually};

/// The byte that a terminal sends for Ctrl-C.
const CTRL_C: &str = "\x03";

/// A command on its own terminal.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    screen: Arc<Mutex<String>>,
    /// The test has checked the screen up to this byte.
    seen: usize,
}

impl Terminal {
    /// `script` of util-linux provides a terminal: the test writes keys to its input, and reads the screen from its
    /// output. A shell gets Ctrl-C, too, and exits with its code. So a command whose own exit code matters begins with
    /// `exec`.
    fn start(niclab: &Niclab, command: &str) -> Self {
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--flush", "--return", "--command", command, "/dev/null"])
            .current_dir(niclab.folder())
            .env("NICLAB_RUNTIME_DIR", niclab.runtime())
            .env("TERM", "dumb")
            .env("SHELL", "/bin/sh");
        let started = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.expect("`script` starts; it is in the package bsdutils");
        let keyboard = child.stdin.take().expect("it has an input");
        let mut output = child.stdout.take().expect("it has an output");
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown
                    .lock()
                    .expect("no panic while the lock is held")
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, keyboard, screen, seen: 0 }
    }

    fn screen(&self) -> String {
        self.screen.lock().expect("no panic while the lock is held").clone()
    }

    fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).and_then(|()| self.keyboard.flush()).expect("it listens");
    }

    /// Waits until the text appears after the last awaited text.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let mut found = None;
        let has_appeared = eventually(|| {
            found = self.screen().get(self.seen..).and_then(|new| new.find(text));
            found.is_some()
        });
        assert!(has_appeared, "no {text:?} after byte {} of\n{}", self.seen, self.screen());
        self.seen += found.unwrap_or_default() + text.len();
    }
}

#[test]
fn ctrl_c_interrupts_only_the_guest_and_quit_leaves_it_running() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join("gdb").is_file()) {
        // Another test checks niclab's message for this case.
        return;
    }
    let niclab = Niclab::new();
    niclab.run(["up", "--nodes", "1"]).success();
    let mut terminal = Terminal::start(&niclab, &format!("exec {} debug node0", binary("niclab").display()));
    terminal.expect("(gdb)");
    for round in 0..2 {
        terminal.type_in("continue\n");
        terminal.expect("Continuing.");
        niclab.run(["exec", "node0", "--", "true"]).success();
        terminal.type_in(CTRL_C);
        terminal.expect("received signal SIGINT");
        terminal.expect("(gdb)");
        // gdb still runs, and so does niclab, whose end would end gdb.
        terminal.type_in(&format!("print {round} + 4200\n"));
        terminal.expect(&format!("= {}", round + 4_200));
    }
    terminal.type_in("quit\n");
    // gdb asks for confirmation, as at any terminal.
    terminal.expect("(y or n)");
    terminal.type_in("y\n");
    let mut ended = None;
    assert!(
        eventually(|| {
            ended = terminal.child.try_wait().expect("it is our child");
            ended.is_some()
        }),
        "niclab does not end:\n{}",
        terminal.screen()
    );
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}:\n{}", terminal.screen());
    niclab.run(["exec", "node0", "--", "true"]).success();
    niclab.run(["down"]).success();
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}
