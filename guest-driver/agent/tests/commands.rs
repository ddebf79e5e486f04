//! Runs the agent program with real processes, over a socket pair.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, helpers included")]

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use niclab_agent::{
    Decoder, Exec, ExitStatus, Frame, Identity, Join, PROTOCOL_VERSION, ToGuest, ToHost, WindowSize,
    frame::{MAX_PAYLOAD_BYTES, preamble},
    message::WINDOW_BYTES,
};

/// Long enough for a slow machine; a hang still fails the test.
const TIMEOUT: Duration = Duration::from_secs(120);

struct Host {
    agent: Child,
    stream: UnixStream,
    decoder: Decoder,
    session: u32,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

impl Host {
    fn new() -> Self {
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let agent = Command::new(env!("CARGO_BIN_EXE_niclab-agent"))
            .arg("--stdio")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .unwrap();
        let mut host = Self { agent, stream, decoder: Decoder::default(), session: 0 };
        assert_eq!(host.receive(), (0, ToHost::Booted));
        host.begin(7);
        host
    }

    fn begin(&mut self, session: u32) {
        self.session = session;
        self.stream.write_all(&preamble()).unwrap();
        self.send(0, ToGuest::Hello { version: PROTOCOL_VERSION });
        while self.receive() != (0, ToHost::Welcome { version: PROTOCOL_VERSION }) {}
    }

    fn send(&mut self, id: u32, message: ToGuest) {
        let mut bytes = Vec::new();
        message.into_frame(self.session, id).unwrap().encode(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    fn next_frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                return frame;
            }
            let mut buffer = [0; 4096];
            let n = self.stream.read(&mut buffer).expect("the agent answers before the timeout");
            assert_ne!(n, 0, "the agent closed the stream");
            self.decoder.push(&buffer[..n]);
        }
    }

    fn receive(&mut self) -> (u32, ToHost) {
        let frame = self.next_frame();
        (frame.id, ToHost::from_frame(frame).unwrap())
    }

    fn start(&mut self, id: u32, exec: Exec) {
        self.send(id, ToGuest::Exec(exec));
        assert_eq!(self.receive(), (id, ToHost::Started));
    }

    /// Receives all output of a command, returning credit, until it exits.
    fn finish(&mut self, id: u32) -> (Vec<u8>, Vec<u8>, ExitStatus) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            let (from, message) = self.receive();
            assert_eq!(from, id);
            let (bytes, stream) = match message {
                ToHost::Stdout(bytes) => (bytes, &mut stdout),
                ToHost::Stderr(bytes) => (bytes, &mut stderr),
                ToHost::Exit(status) => return (stdout, stderr, status),
                ToHost::Credit(_) => continue,
                other => panic!("unexpected {other:?}"),
            };
            stream.extend_from_slice(&bytes);
            self.send(id, ToGuest::Credit(bytes.len().try_into().unwrap()));
        }
    }

    fn join(&mut self, variables: &[(&str, &str)]) {
        self.send(9, ToGuest::Join(join(variables)));
        assert_eq!(self.receive(), (9, ToHost::Joined));
    }

    fn run(&mut self, script: &str) -> (Vec<u8>, Vec<u8>, ExitStatus) {
        self.start(1, shell(script));
        self.finish(1)
    }
}

fn shell(script: &str) -> Exec {
    Exec { argv: vec!["sh".into(), "-c".into(), script.into()], ..Exec::default() }
}

fn join(variables: &[(&str, &str)]) -> Join {
    let env = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Join { identity: Identity { env, hosts: "10.77.0.1 other-name\n".into() }, ..Join::default() }
}

fn process_exists(pid: &str) -> bool {
    // A zombie counts as ended: only its parent still sees it.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_until_gone(pid: &str) {
    let deadline = std::time::Instant::now() + TIMEOUT;
    while process_exists(pid) {
        assert!(std::time::Instant::now() < deadline, "process {pid} is still running");
        std::thread::yield_now();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn stdout_stderr_and_exit_code_reach_the_host() {
    let (stdout, stderr, status) = Host::new().run("echo out; echo err >&2; exit 3");
    assert_eq!((text(&stdout).as_str(), text(&stderr).as_str()), ("out\n", "err\n"));
    assert_eq!(status, ExitStatus::Code(3));
}

#[test]
fn environment_and_folder_are_set() {
    let mut host = Host::new();
    let env = BTreeMap::from([("NICLAB_RANK".to_owned(), "5".to_owned())]);
    host.start(1, Exec { env, cwd: Some("/usr".into()), ..shell("echo $NICLAB_RANK $PWD; env | wc -l") });
    let (stdout, ..) = host.finish(1);
    assert!(text(&stdout).starts_with("5 /usr\n"), "{}", text(&stdout));
}

#[test]
fn node_sets_the_defaults_of_environment_and_folder() {
    let mut host = Host::new();
    assert_eq!(text(&host.run("echo $NICLAB_RANK").0), "\n", "no node yet");
    host.join(&[("NICLAB_RANK", "5"), ("NICLAB_SIZE", "6"), ("NICLAB_CWD", "/usr")]);
    assert_eq!(text(&host.run("echo $NICLAB_RANK of $NICLAB_SIZE; pwd").0), "5 of 6\n/usr\n");
    let env = BTreeMap::from([("NICLAB_RANK".to_owned(), "7".to_owned())]);
    host.start(1, Exec { env, cwd: Some("/etc".into()), ..shell("echo $NICLAB_RANK of $NICLAB_SIZE; pwd") });
    assert_eq!(text(&host.finish(1).0), "7 of 6\n/etc\n");

    // The next session sends the environment again, with a folder that the guest does not have.
    host.begin(8);
    host.join(&[("NICLAB_RANK", "3"), ("NICLAB_CWD", "/no/such")]);
    let here = std::env::current_dir().unwrap();
    let expected = format!("3 of\n{}\n", here.display());
    assert_eq!(text(&host.run("echo $NICLAB_RANK of $NICLAB_SIZE; pwd").0), expected);
}

#[test]
fn invalid_environment_is_refused_and_changes_nothing() {
    let mut host = Host::new();
    host.join(&[("NICLAB_RANK", "5")]);
    host.send(2, ToGuest::Join(join(&[("NICLAB_RANK", "6"), ("NICLAB=RANK", "7")])));
    match host.receive() {
        (2, ToHost::Refused(refusal)) => assert!(refusal.message.contains("NICLAB=RANK"), "{refusal:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(text(&host.run("echo $NICLAB_RANK").0), "5\n");
}

#[test]
fn join_in_a_test_does_not_change_the_system() {
    let files = ["/etc/hosts", "/etc/hostname", "/etc/machine-id", "/proc/sys/kernel/hostname"];
    let system = || files.map(|path| std::fs::read(path).ok());
    let (before, begun) = (system(), std::time::SystemTime::now());
    let mut host = Host::new();
    // A `join` that set the clock would set it to 1970.
    host.join(&[("NICLAB_NODE", "other-name"), ("NICLAB_ADDRESS", "10.77.0.1/24")]);
    assert_eq!(system(), before);
    assert!(!std::path::Path::new("/run/niclab").exists());
    assert!(std::time::SystemTime::now() >= begun);
}

#[test]
fn refused_command_has_reason_and_exit_code() {
    let mut host = Host::new();
    host.join(&[("NICLAB_SHARE", "1"), ("NICLAB_CWD", "/home/me/work")]);
    for (exec, code, word) in [
        (Exec { argv: vec!["/no/such".into()], ..Exec::default() }, 127, "`/no/such`"),
        (
            Exec { argv: vec!["/no/such".into()], ..Exec::default() },
            127,
            "guests see only the one in which the cluster was started, /home/me/work",
        ),
        (Exec { argv: vec!["/etc/passwd".into()], ..Exec::default() }, 126, "ermission"),
        (Exec { cwd: Some("/no/such".into()), ..shell("true") }, 126, "folder /no/such"),
        (Exec::default(), 126, "no command"),
    ] {
        host.send(1, ToGuest::Exec(exec));
        match host.receive().1 {
            ToHost::Refused(refusal) => {
                assert_eq!(refusal.code, code);
                assert!(refusal.message.contains(word), "{}", refusal.message);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn output_before_the_exit_is_complete() {
    let mut host = Host::new();
    for _ in 0..20 {
        // A million bytes exceed pipe and window together.
        let (stdout, _, status) = host.run("head -c 1000000 /dev/zero; echo end");
        assert_eq!((stdout.len(), status), (1_000_004, ExitStatus::Code(0)));
        assert!(stdout.ends_with(b"end\n"));
    }
}

#[test]
fn a_background_process_does_not_delay_the_exit() {
    let mut host = Host::new();
    let (stdout, _, status) = host.run("sleep 1000 & echo $!");
    assert_eq!(status, ExitStatus::Code(0));
    let pid = text(&stdout).trim().to_owned();
    assert!(process_exists(&pid));
    host.run(&format!("kill {pid}"));
}

#[test]
fn input_arrives_completely_and_ends() {
    let mut host = Host::new();
    host.start(1, Exec { argv: vec!["sha256sum".into()], ..Exec::default() });
    let (mut room, mut left) = (WINDOW_BYTES, 1_000_000u32);
    while left > 0 {
        if room == 0 {
            match host.receive() {
                (1, ToHost::Credit(bytes)) => room += bytes,
                other => panic!("{other:?}"),
            }
            continue;
        }
        let n = left.min(room).min(10_000);
        host.send(1, ToGuest::Stdin(vec![0; n as usize]));
        (room, left) = (room - n, left - n);
    }
    host.send(1, ToGuest::StdinEnd);
    let (stdout, ..) = host.finish(1);
    let expected = "d29751f2649b32ff572b5e0a9f541ea660a50f94ff0beedfb0b692b924cc8025";
    assert!(text(&stdout).starts_with(expected), "{}", text(&stdout));
}

#[test]
fn input_beyond_the_window_ends_the_command() {
    let mut host = Host::new();
    host.start(1, shell("sleep 1000"));
    for _ in 0..40 {
        host.send(1, ToGuest::Stdin(vec![0; 16 * 1024]));
    }
    assert_eq!(host.finish(1).2, ExitStatus::Signal(9), "a host that ignores its window loses the command");
}

#[test]
fn unread_output_blocks_only_its_own_command() {
    let mut host = Host::new();
    host.start(1, shell("yes"));
    host.send(2, ToGuest::Exec(shell("echo here")));
    let mut flood_bytes = 0;
    let mut other = Vec::new();
    loop {
        match host.receive() {
            (1, ToHost::Stdout(bytes)) => flood_bytes += bytes.len(),
            (2, ToHost::Stdout(bytes)) => other.extend(bytes),
            (2, ToHost::Exit(status)) => break assert_eq!(status, ExitStatus::Code(0)),
            (2, ToHost::Started) => {}
            unexpected => panic!("{unexpected:?}"),
        }
    }
    assert_eq!(text(&other), "here\n");
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.agent.id())).unwrap();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib < 20_000, "agent took {peak_kib} KiB");

    host.send(1, ToGuest::Signal(15));
    host.send(1, ToGuest::Credit(1 << 20));
    loop {
        match host.receive() {
            (1, ToHost::Stdout(bytes)) => flood_bytes += bytes.len(),
            (1, ToHost::Exit(status)) => break assert_eq!(status, ExitStatus::Signal(15)),
            unexpected => panic!("{unexpected:?}"),
        }
    }
    assert!(flood_bytes <= 2 * WINDOW_BYTES as usize, "{flood_bytes} bytes without credit");
}

#[test]
fn terminal_has_size_and_input() {
    let mut host = Host::new();
    let terminal = Some(WindowSize { rows: 33, columns: 77 });
    host.start(1, Exec { terminal, ..shell("test -t 0 && stty size; read x; stty size; echo got $x; cat") });
    let mut seen = String::new();
    while !seen.contains("33 77") {
        match host.receive() {
            (1, ToHost::Stdout(bytes)) => seen += &text(&bytes),
            other => panic!("{other:?}"),
        }
    }
    host.send(1, ToGuest::Resize(WindowSize { rows: 44, columns: 99 }));
    host.send(1, ToGuest::Stdin(b"word\n".to_vec()));
    host.send(1, ToGuest::StdinEnd);
    let (stdout, _, status) = host.finish(1);
    let stdout = text(&stdout);
    assert!(stdout.contains("44 99") && stdout.contains("got word"), "{stdout}");
    assert_eq!(status, ExitStatus::Code(0));
}

#[test]
fn terminal_keys_become_signals() {
    let mut host = Host::new();
    let terminal = Some(WindowSize { rows: 24, columns: 80 });
    host.start(1, Exec { terminal, ..shell("echo up; exec sleep 1000") });
    while !matches!(host.receive(), (1, ToHost::Stdout(bytes)) if text(&bytes).contains("up")) {}
    host.send(1, ToGuest::Stdin(vec![3]));
    assert_eq!(host.finish(1).2, ExitStatus::Signal(2));
}

#[test]
fn new_session_ends_old_commands_even_after_a_partial_frame() {
    let mut host = Host::new();
    host.start(1, shell("echo $$; sleep 1000"));
    let (_, ToHost::Stdout(pid)) = host.receive() else { panic!("no pid") };
    let pid = text(&pid).trim().to_owned();

    let mut bytes = Vec::new();
    let stdin = ToGuest::Stdin(vec![b'x'; MAX_PAYLOAD_BYTES]);
    stdin.into_frame(host.session, 1).unwrap().encode(&mut bytes);
    host.stream.write_all(&bytes[..100]).unwrap();

    host.begin(8);
    wait_until_gone(&pid);
    assert_eq!(text(&host.run("echo again").0), "again\n");
}

#[test]
fn frames_of_another_session_are_ignored() {
    let mut host = Host::new();
    host.session = 6;
    host.send(1, ToGuest::Exec(shell("echo no")));
    host.session = 7;
    assert_eq!(text(&host.run("echo yes").0), "yes\n");
}

#[test]
fn other_protocol_version_is_welcomed_but_not_served() {
    let mut host = Host::new();
    host.session = 9;
    host.send(0, ToGuest::Hello { version: PROTOCOL_VERSION + 1 });
    assert_eq!(host.receive(), (0, ToHost::Welcome { version: PROTOCOL_VERSION }));
    host.send(1, ToGuest::Exec(shell("echo no")));
    host.begin(10);
}

#[test]
fn commands_die_with_the_agent() {
    let mut host = Host::new();
    host.start(1, shell("echo $$; exec sleep 1000"));
    let (_, ToHost::Stdout(pid)) = host.receive() else { panic!("no pid") };
    host.agent.kill().unwrap();
    host.agent.wait().unwrap();
    wait_until_gone(text(&pid).trim());
}

#[test]
fn the_number_of_commands_is_bounded() {
    let mut host = Host::new();
    for id in 0..64 {
        host.start(id, shell("sleep 1000"));
    }
    host.send(64, ToGuest::Exec(shell("true")));
    assert!(matches!(host.receive(), (64, ToHost::Refused(_))));
}

#[test]
fn health_without_a_nic_is_reported_as_unhealthy() {
    let mut host = Host::new();
    host.send(5, ToGuest::QueryHealth);
    match host.receive() {
        (5, ToHost::Health(health)) => assert!(!health.is_healthy()),
        other => panic!("{other:?}"),
    }
}
