//! A cluster without QEMU. The daemon is a shell script. Each guest is another process of this test program, which acts
//! as the guest's agent on the socket that QEMU would provide.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    os::{
        fd::AsFd,
        unix::{
            fs::FileExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use niclab_agent::{
    Decoder, ExitStatus, Health, Identity, PROTOCOL_VERSION, Refusal, ToGuest, ToHost,
    frame::preamble,
    message::{DATA_BYTES, WINDOW_BYTES},
};
use niclab_cluster::{
    boot::template::{GuestMemory, Saved},
    plan::{
        Inputs, Plan,
        accelerator::{Accelerator, AcceleratorKind},
        recipe::Recipe,
        start::{Start, StartMode},
    },
};
use niclab_harness::Niclab;
use niclab_images::{Cache, Images, QemuCommand};
use niclab_spec::{ClusterName, Source};
use serde_json::{Value, json};

/// Long enough for a slow machine; a test that waits this long fails.
pub const TIMEOUT: Duration = Duration::from_secs(120);

const SOCKET: &str = "FAKE_GUEST_SOCKET";
const MODE: &str = "FAKE_GUEST_MODE";
const CONSOLE: &str = "FAKE_GUEST_CONSOLE";
/// Set only for restored guests: the path of QEMU's QMP socket.
const CONTROL: &str = "FAKE_GUEST_CONTROL";

/// Size of a restored guest's memory in bytes, and its contents: a byte that is not zero, its count, and its offset.
const MEMORY_BYTES: u64 = 1 << 20;
const MEMORY: (u8, usize, u64) = (7, 5000, 12_288);

/// The template's console output.
pub const TEMPLATES_CONSOLE: &str = "the template's words\n";

/// Number of functions of a card.
const FUNCTIONS: usize = 2;

/// Number of functions that were plugged into the guest of this process.
static PLUGGED: AtomicUsize = AtomicUsize::new(0);

/// A daemon that is ready at once and ends with its owner.
pub const GOOD_DAEMON: &str = "echo ready; cat >/dev/null; echo owner left >&2";

/// `niclab` with folders of its own, for commands that boot nothing.
pub fn niclab() -> Niclab {
    Niclab::without_guests(env!("CARGO_BIN_EXE_niclab"))
}

/// A cluster's name.
pub fn name(text: &str) -> ClusterName {
    text.parse().unwrap()
}

/// A plan with fake programs. `modes` gives each guest's behaviour; see [`fake_guest`].
pub fn plan(root: &Path, cluster_name: &str, daemon: &str, modes: &[&str]) -> Plan {
    plan_by(StartMode::Cold, root, cluster_name, daemon, modes)
}

/// As [`plan`], but guests are restored from the template in this folder.
pub fn restored_plan(root: &Path, template: &Path, modes: &[&str]) -> Plan {
    let mut plan = plan_by(StartMode::Template, root, "c", GOOD_DAEMON, modes);
    for node in &mut plan.nodes {
        let control = node.qmp_socket.display().to_string();
        node.qemu.env.insert(CONTROL.to_owned(), control);
        let restore = node.restore.as_mut().unwrap();
        (restore.memory_bytes, restore.template) = (MEMORY_BYTES, template.to_owned());
    }
    plan
}

/// Writes the template that [`fake_guest`] expects into a new folder.
pub fn template_in(folder: &Path) {
    fs::create_dir(folder).unwrap();
    fs::write(Recipe::state(folder), "all but memory").unwrap();
    fs::write(folder.join("console"), TEMPLATES_CONSOLE).unwrap();
    let memory = GuestMemory::zeroed(MEMORY_BYTES).unwrap();
    let (byte, count, at) = MEMORY;
    File::from(memory.descriptor().unwrap()).write_all_at(&vec![byte; count], at).unwrap();
    Saved::write(folder, &memory).unwrap();
}

fn plan_by(way: StartMode, root: &Path, cluster_name: &str, daemon: &str, modes: &[&str]) -> Plan {
    let source = Source::from_text("c.toml", format!("nodes = {}", modes.len()));
    let cluster = source.resolve(&source.cluster_file().unwrap()).unwrap();
    let images = Images {
        qemu: QemuCommand { program: env::current_exe().unwrap(), leading_args: Vec::<OsString>::new() },
        qemu_version: "0".into(),
        kernel: "/none".into(),
        kernel_release: "0".into(),
        packed_kernel: "/none".into(),
        initramfs: "/none".into(),
        root_disk: None,
        debug_kernel: None,
        driver: None,
    };
    let mut plan = Plan::new(&Inputs {
        name: &name(cluster_name),
        cluster: &cluster,
        images: &vec![images; modes.len()],
        drivers: &[],
        device: Path::new("/bin/sh"),
        folder: &root.join(cluster_name),
        accelerator: &Accelerator { kind: AcceleratorKind::Tcg, reason: "test".into() },
        share: None,
        start: &Start { way, obstacle: None },
        cache: &Cache::at(root).unwrap(),
    })
    .unwrap();
    plan.daemon.args = vec!["-c".into(), daemon.into()];
    for (node, mode) in plan.nodes.iter_mut().zip(modes) {
        node.qemu.args = ["support::fake_guest", "--exact", "--nocapture"].map(str::to_owned).to_vec();
        node.qemu.env = BTreeMap::from([
            (SOCKET.to_owned(), node.agent_socket.display().to_string()),
            (CONSOLE.to_owned(), node.console.display().to_string()),
            (MODE.to_owned(), (*mode).to_owned()),
        ]);
    }
    plan
}

/// Not a test: a fake guest if [`plan`] started this process, else it does nothing.
///
/// Modes:
/// * `good`;
/// * `busy`: healthy, and its commands never end;
/// * `refuses`: refuses to join;
/// * `loiters`: never joins;
/// * `sick`: never healthy;
/// * `mute`: QEMU never listens;
/// * `silent`: QEMU listens, but the agent never answers;
/// * `dies`: QEMU fails at once;
/// * `panics`: panics while it boots.
///
/// In the other modes the command `panic` makes the guest panic, and `quit` ends it with exit code 0. A restored guest
/// checks that its memory is the template's, and is healthy when it has its card. It has two more modes: `cardless`
/// (QEMU refuses the card's second function) and `lost` (QEMU ends during the restore).
#[test]
fn fake_guest() {
    let Some(socket) = env::var_os(SOCKET).map(PathBuf::from) else { return };
    let mode = env::var(MODE).unwrap();
    let console = PathBuf::from(env::var_os(CONSOLE).unwrap());
    // QEMU appends to the console file, too.
    let mut written = File::options().append(true).create(true).open(&console).unwrap();
    writeln!(written, "booting in mode {mode}").unwrap();
    match mode.as_str() {
        "dies" => {
            eprintln!("qemu: no such device");
            std::process::exit(1);
        }
        "panics" => {
            let trace = "[    1.0]  some_function+0x1/0x2\n".repeat(50);
            fs::write(&console, format!("[    1.0] Kernel panic - not syncing: test\n{trace}")).unwrap();
            std::process::exit(0);
        }
        "mute" => loop {
            std::thread::park();
        },
        "silent" => {
            let listener = UnixListener::bind(&socket).unwrap();
            let mut streams = Vec::new();
            loop {
                streams.push(listener.accept().unwrap());
            }
        }
        _ => {
            if let Some(control) = env::var_os(CONTROL).map(PathBuf::from) {
                check_memory();
                // Bound before the agent's socket: QEMU's QMP socket exists when a client has reached the agent's.
                let (listener, mode) = (UnixListener::bind(control).unwrap(), mode.clone());
                thread::spawn(move || fake_qemu(&listener, &mode));
            }
            serve(&socket, &mode);
        }
    }
}

/// Ends this process if its standard input is not the template's memory.
fn check_memory() {
    let memory = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let (byte, count, at) = MEMORY;
    let mut expected = vec![0; usize::try_from(MEMORY_BYTES).unwrap()];
    expected[usize::try_from(at).unwrap()..][..count].fill(byte);
    let mut found = vec![0; expected.len()];
    let is_read = memory.read_exact_at(&mut found, 0).is_ok();
    if !is_read || found != expected || memory.metadata().unwrap().len() != MEMORY_BYTES {
        eprintln!("qemu: this is not the template's memory");
        std::process::exit(1);
    }
}

/// QEMU's QMP socket, of a guest whose restore completes when the first client queries the status.
fn fake_qemu(listener: &UnixListener, mode: &str) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut say = {
        let mut stream = stream.try_clone().unwrap();
        move |what: Value| writeln!(stream, "{what}").unwrap()
    };
    writeln!(stream, "{}", json!({"QMP": {"version": {}, "capabilities": []}})).unwrap();
    for line in BufReader::new(&stream).lines() {
        let command: Value = serde_json::from_str(&line.unwrap()).unwrap();
        match command["execute"].as_str().unwrap() {
            "query-status" if mode == "lost" => {
                eprintln!("qemu: error while loading state");
                std::process::exit(1);
            }
            "query-status" => {
                say(json!({"return": {"running": false, "status": "inmigrate"}}));
                say(json!({"event": "RESUME", "timestamp": {}}));
            }
            "device_add" if mode == "cardless" && PLUGGED.load(Ordering::Relaxed) == 1 => {
                say(json!({"error": {"class": "GenericError", "desc": "no slot is left"}}));
            }
            "device_add" => {
                PLUGGED.fetch_add(1, Ordering::Relaxed);
                say(json!({"return": {}}));
            }
            _ => say(json!({"return": {}})),
        }
    }
}

fn serve(socket: &Path, mode: &str) {
    let listener = UnixListener::bind(socket).unwrap();
    loop {
        let (stream, _) = listener.accept().unwrap();
        serve_one(stream, mode);
    }
}

fn serve_one(mut stream: UnixStream, mode: &str) {
    let mut decoder = Decoder::default();
    let mut buffer = [0; 4096];
    let mut agent = FakeAgent {
        mode: mode.to_owned(),
        identity: Identity::default(),
        room: WINDOW_BYTES as usize,
        pending: Vec::new(),
        ended: false,
        hangs: false,
    };
    // Each command has its own window; credit for an earlier command does not count for the last one.
    let mut last = None;
    loop {
        let n = stream.read(&mut buffer).unwrap_or(0);
        if n == 0 {
            return;
        }
        decoder.push(&buffer[..n]);
        while let Some(frame) = decoder.next_frame() {
            let (session, id) = (frame.session, frame.id);
            let mut bytes = Vec::new();
            let message = ToGuest::from_frame(frame).unwrap();
            match &message {
                ToGuest::Exec(exec) if exec.argv[0] == "crash" => return,
                ToGuest::Exec(exec) if exec.argv[0] == "panic" => panic_of_guest(&stream),
                ToGuest::Exec(_) => {
                    agent.room = WINDOW_BYTES as usize;
                    last = Some((session, id));
                }
                ToGuest::Credit(_) if last != Some((session, id)) => continue,
                _ => {}
            }
            for answer in agent.answer(message) {
                if answer == (ToHost::Welcome { version: PROTOCOL_VERSION }) {
                    bytes.extend(preamble());
                }
                answer.into_frame(session, id).unwrap().encode(&mut bytes);
            }
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    }
}

/// Console output of a guest that gets the command `panic`.
pub const OOPS: &str = "[    9.1] BUG: kernel NULL pointer dereference, address: 0000000000000008\n\
    [    9.1] Oops: Oops: 0002 [#1] PREEMPT SMP PTI\n[    9.1] RIP: 0010:own_write+0x4/0x10 [own]\n\
    [    9.1] ---[ end trace 0000000000000000 ]---\n[    9.1] Kernel panic - not syncing: Fatal exception\n";

/// Panics like a guest under QEMU: the agent's connection closes before the process ends.
fn panic_of_guest(stream: &UnixStream) -> ! {
    let console = env::var_os(CONSOLE).unwrap();
    File::options().append(true).open(console).unwrap().write_all(OOPS.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    thread::sleep(Duration::from_millis(300));
    std::process::exit(0)
}

struct FakeAgent {
    mode: String,
    /// The guest's identity, which the host has sent on this connection.
    identity: Identity,
    /// Number of bytes that the host's flow control allows.
    room: usize,
    /// Input that the command `wait` has not echoed yet.
    pending: Vec<u8>,
    ended: bool,
    /// The command ignores the end of its input.
    hangs: bool,
}

impl FakeAgent {
    /// A command's name is its exit code; it prints its rank first. `wait` echoes its input, `quit` ends the guest, and
    /// `crash` ends the agent, which then restarts. `hang` ends only by a signal, and only on rank 1 needs one;
    /// `missing` is not started.
    fn answer(&mut self, message: ToGuest) -> Vec<ToHost> {
        match message {
            ToGuest::Hello { .. } => vec![ToHost::Welcome { version: PROTOCOL_VERSION }],
            ToGuest::Join(_) if self.mode == "refuses" => {
                vec![ToHost::Refused(Refusal { message: "not me".to_owned(), code: 126 })]
            }
            ToGuest::Join(_) if self.mode == "loiters" => Vec::new(),
            ToGuest::Join(join) => {
                self.identity = join.identity;
                vec![ToHost::Joined]
            }
            ToGuest::QueryHealth => {
                let has_card = env::var_os(CONTROL).is_none() || PLUGGED.load(Ordering::Relaxed) == FUNCTIONS;
                let is_good = self.mode != "sick" && has_card;
                let (bar_ready, link_up) = (is_good, is_good);
                vec![ToHost::Health(Health {
                    driver: Some("niclab".to_owned()),
                    bar_ready,
                    link_up,
                    interrupts: Some(3),
                })]
            }
            ToGuest::Exec(_) if self.mode == "busy" => vec![ToHost::Started],
            ToGuest::StdinEnd if self.mode == "busy" => Vec::new(),
            ToGuest::StdinEnd if self.hangs => Vec::new(),
            ToGuest::Signal(signal) => vec![ToHost::Exit(ExitStatus::Signal(signal))],
            ToGuest::Exec(exec) => match exec.argv[0].as_str() {
                "quit" => std::process::exit(0),
                "hang" => {
                    self.hangs = self.rank_and_size().starts_with("1 ");
                    vec![ToHost::Started]
                }
                "missing" => vec![ToHost::Refused(Refusal { message: "no such program".into(), code: 127 })],
                "wait" => vec![ToHost::Started],
                // In pieces that the flow control allows.
                "flood" => {
                    self.pending = vec![b'x'; 2 * WINDOW_BYTES as usize];
                    self.give_back()
                }
                code => vec![
                    ToHost::Started,
                    ToHost::Stdout(self.rank_and_size().into()),
                    ToHost::Stderr(b"oops\n".to_vec()),
                    ToHost::Exit(ExitStatus::Code(code.parse().unwrap())),
                ],
            },
            ToGuest::Stdin(bytes) => {
                self.pending.extend(bytes);
                self.give_back()
            }
            ToGuest::Credit(bytes) => {
                self.room += bytes as usize;
                self.give_back()
            }
            ToGuest::StdinEnd => {
                self.ended = true;
                self.give_back()
            }
            ToGuest::PowerOff => std::process::exit(0),
            _ => Vec::new(),
        }
    }

    fn rank_and_size(&self) -> String {
        let env = |name| self.identity.env.get(name).map_or("none", String::as_str);
        format!("{} of {}\n", env("NICLAB_RANK"), env("NICLAB_SIZE"))
    }

    fn give_back(&mut self) -> Vec<ToHost> {
        let mut answers = Vec::new();
        let n = self.pending.len().min(self.room);
        if n > 0 {
            self.room -= n;
            answers.push(ToHost::Credit(n.try_into().unwrap()));
            answers.extend(
                self.pending
                    .drain(..n)
                    .collect::<Vec<_>>()
                    .chunks(DATA_BYTES)
                    .map(|c| ToHost::Stdout(c.into())),
            );
        }
        if self.ended && self.pending.is_empty() {
            answers.push(ToHost::Exit(ExitStatus::Code(0)));
        }
        answers
    }
}

/// Whether the process exists and is no zombie.
pub fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until `is_true` returns true.
pub fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + TIMEOUT;
    while !is_true() {
        assert!(std::time::Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
