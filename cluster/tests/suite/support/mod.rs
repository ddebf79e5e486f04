//! A cluster without QEMU: the daemon is a shell script, and each guest is this test program again, which then plays a
//! guest's agent on the socket where QEMU would offer it.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use niclab_agent::{
    Decoder, ExitStatus, Health, Identity, PROTOCOL_VERSION, Refusal, ToGuest, ToHost,
    frame::preamble,
    message::{DATA_BYTES, WINDOW_BYTES},
};
use niclab_cluster::{
    accelerator::{Accelerator, Kind},
    plan::{Inputs, Plan},
    template::{Start, Way},
};
use niclab_images::{Cache, Images, QemuCommand};
use niclab_spec::{ClusterName, Source};

/// Long enough for a slow machine; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

const SOCKET: &str = "FAKE_GUEST_SOCKET";
const MODE: &str = "FAKE_GUEST_MODE";
const CONSOLE: &str = "FAKE_GUEST_CONSOLE";

/// A daemon that listens and ends with its owner.
pub const GOOD_DAEMON: &str = "echo ready; cat >/dev/null; echo owner left >&2";

/// A cluster's name.
pub fn name(text: &str) -> ClusterName {
    text.parse().unwrap()
}

/// A plan whose programs are fakes. `modes` says how each guest behaves; see [`play_guest`].
pub fn plan(root: &Path, cluster_name: &str, daemon: &str, modes: &[&str]) -> Plan {
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
    };
    let mut plan = Plan::new(&Inputs {
        name: &name(cluster_name),
        cluster: &cluster,
        images: &vec![images; modes.len()],
        device: Path::new("/bin/sh"),
        folder: &root.join(cluster_name),
        accelerator: &Accelerator { kind: Kind::Tcg, reason: "test".into() },
        share: None,
        start: &Start { way: Way::Cold, obstacle: None },
        cache: &Cache::at(root).unwrap(),
    })
    .unwrap();
    plan.daemon.args = vec!["-c".into(), daemon.into()];
    for (node, mode) in plan.nodes.iter_mut().zip(modes) {
        node.qemu.args = ["support::play_guest", "--exact", "--nocapture"].map(str::to_owned).to_vec();
        node.qemu.env = BTreeMap::from([
            (SOCKET.to_owned(), node.agent_socket.display().to_string()),
            (CONSOLE.to_owned(), node.console.display().to_string()),
            (MODE.to_owned(), (*mode).to_owned()),
        ]);
    }
    plan
}

/// No test: plays a guest when this program is started as one, and does nothing otherwise.
///
/// Modes: `good`; `busy` (healthy, and its commands never end); `refuses` (to join); `loiters` (never joins); `sick` (never
/// healthy); `mute` (never answers); `dies` (QEMU fails at once); `panics`; `quits` (exit 0 once it was healthy, when told to
/// run `quit`).
#[test]
fn play_guest() {
    let Some(socket) = env::var_os(SOCKET).map(PathBuf::from) else { return };
    let mode = env::var(MODE).unwrap();
    let console = PathBuf::from(env::var_os(CONSOLE).unwrap());
    fs::write(&console, format!("booting in mode {mode}\n")).unwrap();
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
        "mute" => {
            let _listener = UnixListener::bind(&socket).unwrap();
            loop {
                std::thread::park();
            }
        }
        _ => serve(&socket, &mode),
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
    };
    // Each command has a window of its own: what the host gives back of an earlier one's is none of the last one's.
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

struct FakeAgent {
    mode: String,
    /// What the host said that this guest is, in this connection.
    identity: Identity,
    /// What the host lets us send, in bytes.
    room: usize,
    /// Input that the command `wait` has not given back yet.
    pending: Vec<u8>,
    ended: bool,
}

impl FakeAgent {
    /// A command is named by the code with which it ends after it printed its rank; `wait` gives back its input;
    /// `quit` ends the guest; `crash` ends the agent, which then starts anew.
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
                let is_good = self.mode != "sick";
                let (bar_ready, link_up) = (is_good, is_good);
                vec![ToHost::Health(Health { driver_bound: true, bar_ready, link_up, interrupts: Some(3) })]
            }
            ToGuest::Exec(_) if self.mode == "busy" => vec![ToHost::Started],
            ToGuest::StdinEnd if self.mode == "busy" => Vec::new(),
            ToGuest::Exec(exec) => match exec.argv[0].as_str() {
                "quit" => std::process::exit(0),
                "wait" => vec![ToHost::Started],
                // As much at a time as the host lets us send.
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

/// Whether a process is there and no zombie.
pub fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits for something that must become true.
pub fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_true() {
        assert!(std::time::Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
