//! The agent's event loop between the port and the commands.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::OwnedFd,
    path::Path,
    time::Duration,
};

use niclab_agent::{
    Decoder, Frame, Join, PROTOCOL_VERSION, Refusal, ToGuest, ToHost,
    frame::preamble,
    message::{DATA_BYTES, WINDOW_BYTES},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    system::RebootCommand,
};

use crate::{
    command::{Command, Step, Stream},
    health,
    node::{self, Node},
};

/// The maximum number of running commands. The limit keeps a host from using up the guest's processes.
const MAX_COMMANDS: usize = 64;

/// The agent reads no command's output while more bytes than this wait for the host.
const OUTBOUND_PAUSE_BYTES: usize = 256 * 1024;

/// The agent does not read from the host while more bytes than this wait for it: such a host does not take its answers.
const OUTBOUND_STOP_BYTES: usize = 1024 * 1024;

/// The interval at which the agent polls the port while no host is connected. Such a port has no event to wait for. The
/// interval is short, because a restored guest waits for nothing else.
const NO_HOST_INTERVAL: Duration = Duration::from_millis(10);

/// The environment that the agent runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In a guest, on a port that stays open when a host disconnects.
    Guest,
    /// In a test on the host: the agent ends with its stream, powers nothing off and does not change the system.
    Test,
}

/// The source that is ready.
#[derive(Clone, Copy, Debug)]
enum Ready {
    PortIn,
    PortOut,
    PortGone,
    Input(u32),
    Output(u32, Stream),
    Exited(u32),
}

/// The agent.
pub struct Agent {
    port: OwnedFd,
    mode: Mode,
    decoder: Decoder,
    outbound: VecDeque<u8>,
    session: Option<u32>,
    node: Node,
    commands: BTreeMap<u32, Command>,
    host_is_away: bool,
    ended: bool,
}

impl Agent {
    /// Creates an agent on this port and queues its announcement.
    pub fn new(port: OwnedFd, mode: Mode) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&port, true)?;
        let mut agent = Self {
            port,
            mode,
            decoder: Decoder::default(),
            outbound: VecDeque::new(),
            session: None,
            node: Node::default(),
            commands: BTreeMap::new(),
            host_is_away: false,
            ended: false,
        };
        agent.outbound.extend(preamble());
        agent.send(0, ToHost::Booted);
        Ok(agent)
    }

    /// Runs until the stream ends, which a guest's port never does.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.ended {
            for ready in self.wait()? {
                self.handle(ready)?;
            }
            self.drain_exited();
        }
        self.end_session();
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Vec<Ready>> {
        let mut tokens = Vec::new();
        let mut fds = Vec::new();
        if !self.host_is_away {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, self.outbound.len() < OUTBOUND_STOP_BYTES);
            flags.set(PollFlags::OUT, !self.outbound.is_empty());
            tokens.push(Ready::PortIn);
            fds.push(PollFd::new(&self.port, flags));
        }
        let may_read = self.outbound.len() < OUTBOUND_PAUSE_BYTES;
        for (&id, command) in &self.commands {
            for (stream, fd) in command.readable_outputs().filter(|_| may_read) {
                tokens.push(Ready::Output(id, stream));
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
            if let Some(fd) = command.writable_input() {
                tokens.push(Ready::Input(id));
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
            }
            if let Some(fd) = command.pidfd() {
                tokens.push(Ready::Exited(id));
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        let timeout =
            self.host_is_away.then(|| Timespec::try_from(NO_HOST_INTERVAL)).transpose().ok().flatten();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => self.host_is_away = false,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(tokens.into_iter().zip(fds).flat_map(|(token, fd)| readiness(token, fd.revents())).collect())
    }

    fn handle(&mut self, ready: Ready) -> io::Result<()> {
        match ready {
            Ready::PortIn => self.read_port()?,
            Ready::PortOut => self.write_port()?,
            Ready::PortGone => self.host_left(),
            Ready::Input(id) => self.step(id, Command::write_input),
            Ready::Output(id, stream) => self.step(id, |command| command.read_output(stream)),
            Ready::Exited(id) => {
                if let Some(command) = self.commands.get_mut(&id) {
                    command.reap();
                }
            }
        }
        Ok(())
    }

    fn read_port(&mut self) -> io::Result<()> {
        let mut buffer = [0; DATA_BYTES];
        match rustix::io::read(&self.port, &mut buffer) {
            Ok(0) => self.host_left(),
            Ok(n) => {
                self.decoder.push(&buffer[..n]);
                while let Some(frame) = self.decoder.next_frame() {
                    self.handle_frame(frame);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => self.host_left(),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn write_port(&mut self) -> io::Result<()> {
        match rustix::io::write(&self.port, self.outbound.as_slices().0) {
            Ok(n) => drop(self.outbound.drain(..n)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => self.host_left(),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn host_left(&mut self) {
        self.end_session();
        self.host_is_away = true;
        self.ended = self.mode == Mode::Test;
    }

    fn end_session(&mut self) {
        self.session = None;
        self.outbound.clear();
        for (_, command) in std::mem::take(&mut self.commands) {
            command.kill();
        }
    }

    fn handle_frame(&mut self, frame: Frame) {
        let (session, id) = (frame.session, frame.id);
        let message = match ToGuest::from_frame(frame) {
            Ok(message) => message,
            Err(error) => {
                eprintln!("niclab-agent: {error}");
                return;
            }
        };
        if let ToGuest::Hello { version } = message {
            self.begin_session(session, version);
        } else if self.session == Some(session) {
            self.handle_message(id, message);
        }
    }

    fn begin_session(&mut self, session: u32, version: u32) {
        self.end_session();
        self.outbound.extend(preamble());
        // The host reads the agent's version from the welcome, and reports a difference to the user.
        if version == PROTOCOL_VERSION {
            self.session = Some(session);
        }
        self.send_in(session, 0, ToHost::Welcome { version: PROTOCOL_VERSION });
    }

    fn handle_message(&mut self, id: u32, message: ToGuest) {
        match message {
            ToGuest::Exec(exec) => match self.start(id, &exec) {
                Ok(()) => self.send(id, ToHost::Started),
                Err(refusal) => self.send(id, ToHost::Refused(refusal)),
            },
            ToGuest::Stdin(bytes) => self.step(id, |command| command.give_input(&bytes)),
            ToGuest::StdinEnd => self.step(id, Command::end_input),
            ToGuest::QueryHealth => {
                let interrupts = std::fs::read_to_string("/proc/interrupts").unwrap_or_default();
                self.send(id, ToHost::Health(health::read(Path::new("/sys"), &interrupts)));
            }
            ToGuest::Join(join) => match self.join(join) {
                Ok(()) => self.send(id, ToHost::Joined),
                Err(refusal) => self.send(id, ToHost::Refused(refusal)),
            },
            ToGuest::PowerOff => self.power_off(),
            ToGuest::Hello { .. } => {}
            ToGuest::Signal(signal) => self.with(id, |command| command.signal(signal)),
            ToGuest::Resize(size) => self.with(id, |command| command.resize(size)),
            ToGuest::Credit(bytes) => self.with(id, |command| command.add_credit(bytes)),
        }
    }

    fn start(&mut self, id: u32, exec: &niclab_agent::Exec) -> Result<(), Refusal> {
        let refuse = |message: String| Refusal { message, code: 126 };
        if self.commands.contains_key(&id) {
            return Err(refuse(format!("command {id} is already running")));
        }
        if self.commands.len() >= MAX_COMMANDS {
            return Err(refuse(format!("{MAX_COMMANDS} commands are already running; wait for one to end")));
        }
        self.commands.insert(id, Command::start(exec, &self.node, WINDOW_BYTES)?);
        Ok(())
    }

    /// Makes the guest this node. The loop does nothing else meanwhile, because the host starts no commands before.
    fn join(&mut self, join: Join) -> Result<(), Refusal> {
        let new = Node::new(&join.identity)?;
        if self.mode == Mode::Guest {
            node::enter(&new, &join);
        }
        self.node = new;
        Ok(())
    }

    fn with(&mut self, id: u32, change: impl FnOnce(&mut Command)) {
        // A command that has just ended is not an error: host and guest detect the end at different times.
        if let Some(command) = self.commands.get_mut(&id) {
            change(command);
        }
    }

    fn step(&mut self, id: u32, step: impl FnOnce(&mut Command) -> Step) {
        let Some(command) = self.commands.get_mut(&id) else { return };
        match step(command) {
            Step::Say(message) => self.send(id, message),
            Step::Nothing => {}
        }
    }

    /// Sends the remaining output of exited commands, as far as the host has room, and then their exit status.
    fn drain_exited(&mut self) {
        let exited: Vec<u32> =
            self.commands.iter().filter(|(_, command)| command.has_exited()).map(|(&id, _)| id).collect();
        for id in exited {
            while self.outbound.len() < OUTBOUND_PAUSE_BYTES
                && let Some(stream) = self.commands.get(&id).and_then(Command::drainable_output)
            {
                self.step(id, |command| command.read_output(stream));
            }
            if let Some(status) = self.commands.get(&id).and_then(Command::final_status) {
                self.commands.remove(&id);
                self.send(id, ToHost::Exit(status));
            }
        }
    }

    fn send(&mut self, id: u32, message: ToHost) {
        self.send_in(self.session.unwrap_or(0), id, message);
    }

    fn send_in(&mut self, session: u32, id: u32, message: ToHost) {
        match message.into_frame(session, id) {
            Ok(frame) => frame.encode(&mut self.outbound),
            Err(error) => eprintln!("niclab-agent: {error}"),
        }
    }

    fn power_off(&mut self) {
        self.end_session();
        if self.mode == Mode::Test {
            self.ended = true;
            return;
        }
        rustix::fs::sync();
        if let Err(error) = rustix::system::reboot(RebootCommand::PowerOff) {
            eprintln!("niclab-agent: cannot power off: {error}");
        }
    }
}

fn readiness(token: Ready, revents: PollFlags) -> Vec<Ready> {
    match token {
        Ready::PortIn => {
            let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
            [(PollFlags::IN, Ready::PortIn), (PollFlags::OUT, Ready::PortOut), (gone, Ready::PortGone)]
                .into_iter()
                // The agent first reads what the host sent before it disconnected, in the next rounds.
                .filter(|(flags, ready)| {
                    revents.intersects(*flags)
                        && !(matches!(ready, Ready::PortGone) && revents.contains(PollFlags::IN))
                })
                .map(|(_, ready)| ready)
                .collect()
        }
        other if !revents.is_empty() => vec![other],
        _ => Vec::new(),
    }
}
