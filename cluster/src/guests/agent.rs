//! The host's side of the agent's protocol: many commands over one connection.
//!
//! A reader thread passes each message to its command. Windows limit the messages that wait there, so a consumer that
//! stalls delays only its own command.

use crate::host::deadline::Deadline;
use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use niclab_agent::{
    Decoder, Exec, ExitStatus, Frame, Health, Identity, Join, MessageError, PROTOCOL_VERSION, Refusal,
    ToGuest, ToHost,
    frame::preamble,
    message::{ENTROPY_BYTES, WINDOW_BYTES},
};
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

/// Time limit for the guest to read a message. A running guest reads within milliseconds.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of the attempts to connect while QEMU starts.
const CONNECT_INTERVAL: Duration = Duration::from_millis(2);

/// The agent failed.
#[derive(Clone, Debug, Error)]
pub enum AgentError {
    /// The socket has no listener, or the agent did not answer in time.
    #[error("the guest's agent does not answer: {0}")]
    Silent(String),
    /// The connection ended.
    #[error("the guest's agent is gone: {0}")]
    Gone(String),
    /// QEMU closed the connection, which it does when it ends.
    #[error("the guest's agent is gone: QEMU closed the connection")]
    HungUp,
    /// The agent comes from another build.
    #[error(
        "the guest's agent uses protocol version {0}, but this niclab uses {PROTOCOL_VERSION}; rebuild the image"
    )]
    Version(u32),
    /// The guest refuses to become its node.
    #[error("the guest's agent does not join the cluster: {0}")]
    NotJoined(String),
    /// The message does not fit into a frame.
    #[error("{0}")]
    Message(Arc<MessageError>),
}

/// An event of a command. `Err` is the last event.
pub type CommandEvent = Result<ToHost, AgentError>;

struct Consumer {
    events: Sender<CommandEvent>,
    /// Bytes of output that the guest may send before it needs more credit.
    window_bytes: u32,
}

#[derive(Default)]
struct State {
    consumers: BTreeMap<u32, Consumer>,
    welcomed: bool,
    failure: Option<AgentError>,
}

/// A connection to one guest's agent.
pub struct AgentClient {
    session: u32,
    /// Used to end the connection, even while another thread writes.
    stream: UnixStream,
    writer: Mutex<UnixStream>,
    state: Mutex<State>,
    next_id: AtomicU32,
}

/// One command, or one query. Dropping it ends the command.
pub struct CommandHandle {
    sender: CommandSender,
    events: Receiver<CommandEvent>,
}

/// The sending half of a command. Other threads can use it.
#[derive(Clone)]
pub struct CommandSender {
    client: Arc<AgentClient>,
    id: u32,
}

impl AgentClient {
    /// Connects; waits until QEMU listens and the agent in the guest answers.
    ///
    /// # Errors
    /// [`AgentError::Silent`] after `deadline`, or [`AgentError::Version`].
    pub fn connect(socket: &Path, deadline: Deadline) -> Result<Arc<Self>, AgentError> {
        Self::over(Self::reach(socket, deadline)?, deadline)
    }

    /// Connects; waits until QEMU listens. The guest need not run yet.
    ///
    /// # Errors
    /// [`AgentError::Silent`] after `deadline`.
    pub fn reach(socket: &Path, deadline: Deadline) -> Result<UnixStream, AgentError> {
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return Ok(stream),
                Err(error) if deadline.is_over() => {
                    return Err(AgentError::Silent(error.to_string()));
                }
                Err(_) => thread::sleep(CONNECT_INTERVAL),
            }
        }
    }

    /// Begins a session over a connected stream.
    ///
    /// # Errors
    /// See [`Self::connect`].
    pub fn over(stream: UnixStream, deadline: Deadline) -> Result<Arc<Self>, AgentError> {
        let silent = |error: io::Error| AgentError::Silent(error.to_string());
        stream.set_write_timeout(Some(WRITE_TIMEOUT)).map_err(silent)?;
        let reader = stream.try_clone().map_err(silent)?;
        let client = Arc::new(Self {
            session: session_number(),
            writer: Mutex::new(stream.try_clone().map_err(silent)?),
            stream,
            state: Mutex::default(),
            next_id: AtomicU32::new(1),
        });
        // Until the welcome, id 0 is this function's own consumer.
        let (events, welcome) = mpsc::channel();
        client.lock().consumers.insert(0, Consumer { events, window_bytes: 0 });
        // The reader thread must not keep the client alive.
        let weak = Arc::downgrade(&client);
        thread::spawn(move || {
            let ended = read_loop(reader, |frame| match weak.upgrade() {
                Some(client) => client.dispatch(frame),
                None => Err(AgentError::Gone("no longer needed".to_owned())),
            });
            if let Some(client) = weak.upgrade() {
                client.fail(ended);
            }
        });
        client.greet()?;
        match deadline.receive(&welcome) {
            Ok(Ok(_)) => Ok(client),
            Ok(Err(error)) => Err(error),
            Err(RecvTimeoutError::Timeout) => {
                Err(AgentError::Silent("the guest has not started its agent yet".to_owned()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(AgentError::Gone("the connection closed".to_owned())),
        }
    }

    /// Starts a command. Its first event says whether it started.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn exec(self: &Arc<Self>, exec: Exec) -> Result<CommandHandle, AgentError> {
        self.begin(ToGuest::Exec(exec))
    }

    /// Queries the state of the guest's NIC.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn health(self: &Arc<Self>, timeout: Duration) -> Result<Health, AgentError> {
        match Deadline::after(timeout).receive(&self.begin(ToGuest::QueryHealth)?.events) {
            Ok(Ok(ToHost::Health(health))) => Ok(health),
            Ok(Ok(other)) => Err(AgentError::Gone(format!("it answered {other:?}"))),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(AgentError::Silent(format!("no answer in {} s", timeout.as_secs_f32()))),
        }
    }

    /// Makes the guest its node, and waits until it is. A guest that is already the node stays as it is. Every
    /// connection begins with this: without it commands do not get the node's environment.
    ///
    /// # Errors
    /// [`AgentError::Silent`] after `deadline`, [`AgentError::NotJoined`], or the error that ends the connection.
    pub fn join(self: &Arc<Self>, join: &Join, deadline: Deadline) -> Result<(), AgentError> {
        let begin = Instant::now();
        let question = self.begin(ToGuest::Join(join.clone()))?;
        match deadline.receive(&question.events) {
            Ok(Ok(ToHost::Joined)) => {
                log::debug!("the guest is a node after {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
                Ok(())
            }
            Ok(Ok(ToHost::Refused(refusal))) => Err(AgentError::NotJoined(refusal.message)),
            Ok(Ok(other)) => Err(AgentError::Gone(format!("it answered {other:?}"))),
            Ok(Err(error)) => Err(error),
            Err(RecvTimeoutError::Timeout) => {
                Err(AgentError::Silent("the guest has not become its node yet".to_owned()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(AgentError::Gone("the connection closed".to_owned())),
        }
    }

    /// Asks the guest to write everything back and power off. There is no answer.
    pub fn power_off(&self) {
        // If the guest is gone, it is off.
        let _ = self.send(0, ToGuest::PowerOff);
    }

    /// Whether the connection has failed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Whether QEMU closed the connection: its process has ended, or is about to.
    #[must_use]
    pub fn has_hung_up(&self) -> bool {
        matches!(self.lock().failure, Some(AgentError::HungUp))
    }

    fn begin(self: &Arc<Self>, message: ToGuest) -> Result<CommandHandle, AgentError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (events, receiver) = mpsc::channel();
        {
            let mut state = self.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            state.consumers.insert(id, Consumer { events, window_bytes: WINDOW_BYTES });
        }
        let sender = CommandSender { client: Arc::clone(self), id };
        let handle = CommandHandle { sender, events: receiver };
        self.send(id, message)?;
        Ok(handle)
    }

    fn greet(&self) -> Result<(), AgentError> {
        self.write(&preamble())?;
        self.send(0, ToGuest::Hello { version: PROTOCOL_VERSION })
    }

    fn send(&self, id: u32, message: ToGuest) -> Result<(), AgentError> {
        let frame =
            message.into_frame(self.session, id).map_err(|error| AgentError::Message(Arc::new(error)))?;
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.write(&bytes)
    }

    fn write(&self, bytes: &[u8]) -> Result<(), AgentError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write_all(bytes).map_err(|error| {
            // A part of the frame may have been written, so the connection is unusable.
            self.fail(if is_closed(&error) {
                AgentError::HungUp
            } else {
                AgentError::Gone(format!("it does not read its messages ({error})"))
            })
        })
    }

    fn dispatch(&self, frame: Frame) -> Result<(), AgentError> {
        let (session, id) = (frame.session, frame.id);
        let message = ToHost::from_frame(frame).map_err(|error| AgentError::Message(Arc::new(error)))?;
        match message {
            ToHost::Booted if self.lock().welcomed => {
                Err(AgentError::Gone("it restarted, and its commands ended".to_owned()))
            }
            // The agent may have started after the greeting, so repeat it.
            ToHost::Booted => self.greet(),
            _ if session != self.session => Ok(()),
            ToHost::Welcome { version } if version != PROTOCOL_VERSION => Err(AgentError::Version(version)),
            ToHost::Welcome { .. } => {
                let mut state = self.lock();
                state.welcomed = true;
                if let Some(waiter) = state.consumers.remove(&0) {
                    let _ = waiter.events.send(Ok(message));
                }
                Ok(())
            }
            message => self.deliver(id, message),
        }
    }

    fn deliver(&self, id: u32, message: ToHost) -> Result<(), AgentError> {
        let mut state = self.lock();
        // The consumer may have been dropped before the command's last output.
        let Some(consumer) = state.consumers.get_mut(&id) else { return Ok(()) };
        if let ToHost::Stdout(bytes) | ToHost::Stderr(bytes) = &message {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            // Otherwise a hostile guest could fill the host's memory.
            consumer.window_bytes = consumer
                .window_bytes
                .checked_sub(length)
                .ok_or_else(|| AgentError::Gone("it sent more than its window allows".to_owned()))?;
        }
        let is_last = matches!(message, ToHost::Exit(_) | ToHost::Refused(_) | ToHost::Health(_));
        // A dropped consumer ends its command itself.
        let _ = consumer.events.send(Ok(message));
        if is_last {
            state.consumers.remove(&id);
        }
        Ok(())
    }

    /// Ends the connection, because QEMU serves one at a time and the next one must get through. Returns the first
    /// failure.
    fn fail(&self, failure: AgentError) -> AgentError {
        let mut state = self.lock();
        // Set before the shutdown, which other threads would otherwise attribute to QEMU.
        let failure = state.failure.get_or_insert(failure).clone();
        for (_, consumer) in std::mem::take(&mut state.consumers) {
            let _ = consumer.events.send(Err(failure.clone()));
        }
        // Fails only if the other side ended it first.
        let _ = self.stream.shutdown(Shutdown::Both);
        failure
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No thread panics while it holds the lock; if one did, the map would still be valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AgentClient {
    fn drop(&mut self) {
        // Wakes the reader thread. Fails only if the other side ended the connection first.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A piece of a command's output.
#[derive(Clone, Copy, Debug)]
pub enum Output<'a> {
    /// On standard output.
    Stdout(&'a [u8]),
    /// On standard error.
    Stderr(&'a [u8]),
}

impl CommandHandle {
    /// Waits for the next event.
    ///
    /// # Errors
    /// [`AgentError`] if the agent is gone.
    pub fn next(&self) -> CommandEvent {
        self.events.recv().unwrap_or_else(|_| Err(AgentError::Gone("the command has ended".to_owned())))
    }

    /// As [`Self::next`], until the deadline.
    ///
    /// # Errors
    /// [`AgentError`] if the agent is gone, or no event comes in time.
    pub fn next_until(&self, deadline: Deadline) -> CommandEvent {
        match deadline.receive(&self.events) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => {
                Err(AgentError::Silent("the command did not end in time".to_owned()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(AgentError::Gone("the command has ended".to_owned())),
        }
    }

    /// Passes the command's output to `on_output` until it ends; returns how it ended, or the guest's refusal to start
    /// it.
    ///
    /// # Errors
    /// [`AgentError`] if the agent is gone, or an error of `on_output`.
    pub fn follow<E: From<AgentError>>(
        &self,
        mut on_output: impl FnMut(Output<'_>) -> Result<(), E>,
    ) -> Result<Result<ExitStatus, Refusal>, E> {
        loop {
            let length = match self.next()? {
                ToHost::Stdout(bytes) => {
                    on_output(Output::Stdout(&bytes))?;
                    bytes.len()
                }
                ToHost::Stderr(bytes) => {
                    on_output(Output::Stderr(&bytes))?;
                    bytes.len()
                }
                ToHost::Exit(status) => return Ok(Ok(status)),
                ToHost::Refused(refusal) => return Ok(Err(refusal)),
                _ => continue,
            };
            // The command may have ended; its exit comes next.
            let _ = self.sender.send(ToGuest::Credit(u32::try_from(length).unwrap_or(u32::MAX)));
        }
    }

    /// The sending half.
    #[must_use]
    pub fn sender(&self) -> &CommandSender {
        &self.sender
    }
}

impl Drop for CommandHandle {
    fn drop(&mut self) {
        let was_running = self.sender.client.lock().consumers.remove(&self.sender.id).is_some();
        if was_running {
            // SIGKILL. If the agent is gone, so is the command.
            let _ = self.sender.send(ToGuest::Signal(9));
        }
    }
}

impl CommandSender {
    /// Sends a message to the command.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn send(&self, message: ToGuest) -> Result<(), AgentError> {
        if let ToGuest::Credit(bytes) = message
            && let Some(consumer) = self.client.lock().consumers.get_mut(&self.id)
        {
            consumer.window_bytes = consumer.window_bytes.saturating_add(bytes).min(WINDOW_BYTES);
        }
        self.client.send(self.id, message)
    }
}

/// Whether the other side closed the connection; unread messages there turn the end into a reset.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

fn read_loop(
    mut stream: UnixStream,
    mut dispatch: impl FnMut(Frame) -> Result<(), AgentError>,
) -> AgentError {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return AgentError::HungUp,
            Ok(n) => decoder.push(&buffer[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_closed(&error) => return AgentError::HungUp,
            Err(error) => return AgentError::Gone(error.to_string()),
        }
        while let Some(frame) = decoder.next_frame() {
            if let Err(error) = dispatch(frame) {
                return error;
            }
        }
    }
}

/// The message that makes a guest this node, with the time and fresh random bytes.
#[must_use]
pub fn join_now(identity: &Identity) -> Join {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut entropy = [0; ENTROPY_BYTES];
    // Fails only before Linux 3.17; this few bytes come in one piece. Without them the guest uses its own.
    let given = getrandom(&mut entropy, GetRandomFlags::empty()).unwrap_or(0);
    Join {
        identity: identity.clone(),
        wall_time_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
        entropy: entropy[..given].to_vec(),
    }
}

/// A number that differs from the previous session's.
fn session_number() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // 0 is for agents without a session.
    (now.subsec_nanos() ^ std::process::id().rotate_left(16)).max(1)
}

#[cfg(test)]
mod tests {
    use niclab_agent::message::DATA_BYTES;

    use super::*;

    /// The guest's end of a connection, served by the test.
    struct Guest {
        stream: UnixStream,
        decoder: Decoder,
        session: u32,
    }

    impl Guest {
        fn next(&mut self) -> (u32, ToGuest) {
            let mut buffer = [0; 4096];
            loop {
                if let Some(frame) = self.decoder.next_frame() {
                    self.session = frame.session;
                    return (frame.id, ToGuest::from_frame(frame).unwrap());
                }
                let n = self.stream.read(&mut buffer).unwrap();
                assert_ne!(n, 0);
                self.decoder.push(&buffer[..n]);
            }
        }

        fn say(&mut self, id: u32, message: ToHost) {
            let mut bytes = Vec::new();
            message.into_frame(self.session, id).unwrap().encode(&mut bytes);
            // The host may have closed the connection.
            let _ = self.stream.write_all(&bytes);
        }
    }

    fn deadline() -> Deadline {
        Deadline::after(Duration::from_secs(30))
    }

    /// A client, connected on a thread of its own, and its guest, which reports `version`.
    fn connect(version: u32) -> (Result<Arc<AgentClient>, AgentError>, Guest) {
        let (host, guest) = UnixStream::pair().unwrap();
        let connecting = thread::spawn(move || AgentClient::over(host, deadline()));
        let mut guest = Guest { stream: guest, decoder: Decoder::default(), session: 0 };
        assert_eq!(guest.next().1, ToGuest::Hello { version: PROTOCOL_VERSION });
        guest.stream.write_all(b"rubbish NLAG of an earlier session").unwrap();
        guest.stream.write_all(&preamble()).unwrap();
        guest.say(0, ToHost::Welcome { version });
        (connecting.join().unwrap(), guest)
    }

    fn command(client: &Arc<AgentClient>, guest: &mut Guest) -> (CommandHandle, u32) {
        let handle = client.exec(Exec::default()).unwrap();
        let (id, message) = guest.next();
        assert_eq!(message, ToGuest::Exec(Exec::default()));
        (handle, id)
    }

    #[test]
    fn another_version_is_refused() {
        assert!(matches!(connect(PROTOCOL_VERSION + 1).0, Err(AgentError::Version(_))));
    }

    #[test]
    fn agent_that_starts_late_is_greeted_again() {
        let (host, guest) = UnixStream::pair().unwrap();
        let connecting = thread::spawn(move || AgentClient::over(host, deadline()));
        let mut guest = Guest { stream: guest, decoder: Decoder::default(), session: 0 };
        let (_, hello) = guest.next();
        let session = std::mem::take(&mut guest.session);
        guest.say(0, ToHost::Booted);
        assert_eq!((guest.next().1, guest.session), (hello, session));
        guest.say(0, ToHost::Welcome { version: PROTOCOL_VERSION });
        assert!(connecting.join().unwrap().is_ok());
    }

    /// The result of a request to join that the guest answers with `answer`.
    fn join_answered(answer: ToHost) -> Result<(), AgentError> {
        let (client, mut guest) = connect(PROTOCOL_VERSION);
        let client = client.unwrap();
        let identity = Identity { hosts: "10.77.0.1 node0\n".to_owned(), ..Identity::default() };
        let join = join_now(&identity);
        let asked = join.clone();
        let joining = thread::spawn(move || client.join(&asked, deadline()));
        let (id, message) = guest.next();
        assert_eq!(message, ToGuest::Join(join));
        // A message for another command is no answer.
        guest.say(id + 1, ToHost::Joined);
        guest.say(id, answer);
        joining.join().unwrap()
    }

    #[test]
    fn guest_joins_or_refuses() {
        assert!(join_answered(ToHost::Joined).is_ok());
        let refusal = niclab_agent::Refusal { message: "no room".to_owned(), code: 126 };
        let error = join_answered(ToHost::Refused(refusal)).unwrap_err();
        assert!(matches!(&error, AgentError::NotJoined(why) if why == "no room"), "{error}");
        for nonsense in [ToHost::Started, ToHost::Credit(1), ToHost::Health(Health::default())] {
            assert!(matches!(join_answered(nonsense), Err(AgentError::Gone(_))));
        }
        assert!(join_answered(ToHost::Stdout(vec![0; DATA_BYTES])).is_err());
    }

    #[test]
    fn guest_that_does_not_join_in_time_is_silent() {
        let (client, mut guest) = connect(PROTOCOL_VERSION);
        let client = client.unwrap();
        let error = client.join(&Join::default(), Deadline::after(Duration::ZERO)).unwrap_err();
        assert!(matches!(error, AgentError::Silent(_)), "{error}");
        assert_eq!(guest.next().1, ToGuest::Join(Join::default()));
    }

    #[test]
    fn every_join_has_the_time_and_fresh_random_bytes() {
        let identity =
            Identity { env: [("NICLAB_RANK".to_owned(), "1".to_owned())].into(), ..Identity::default() };
        let (one, other) = (join_now(&identity), join_now(&identity));
        assert_eq!(one.identity, identity);
        assert!(one.wall_time_ns > 1_700_000_000_000_000_000 && other.wall_time_ns >= one.wall_time_ns);
        assert_eq!(one.entropy.len(), ENTROPY_BYTES);
        assert_ne!(one.entropy, other.entropy);
    }

    #[test]
    fn messages_reach_their_own_command() {
        let (client, mut guest) = connect(PROTOCOL_VERSION);
        let client = client.unwrap();
        let (first, first_id) = command(&client, &mut guest);
        let (second, second_id) = command(&client, &mut guest);
        guest.say(second_id, ToHost::Stdout(b"two".to_vec()));
        guest.say(first_id, ToHost::Stdout(b"one".to_vec()));
        assert_eq!(first.next().unwrap(), ToHost::Stdout(b"one".to_vec()));
        assert_eq!(second.next().unwrap(), ToHost::Stdout(b"two".to_vec()));
    }

    #[test]
    fn guest_that_exceeds_its_window_is_disconnected() {
        let (client, mut guest) = connect(PROTOCOL_VERSION);
        let client = client.unwrap();
        let (handle, id) = command(&client, &mut guest);
        let frames = WINDOW_BYTES as usize / DATA_BYTES;
        for _ in 0..=frames {
            guest.say(id, ToHost::Stdout(vec![0; DATA_BYTES]));
        }
        for _ in 0..frames {
            assert!(handle.next().is_ok());
        }
        assert!(handle.next().unwrap_err().to_string().contains("more than its window allows"));
        assert!(client.is_lost());
    }

    #[test]
    fn restarted_agent_ends_its_commands() {
        let (client, mut guest) = connect(PROTOCOL_VERSION);
        let client = client.unwrap();
        let (handle, _) = command(&client, &mut guest);
        guest.session = 0;
        guest.say(0, ToHost::Booted);
        assert!(handle.next().unwrap_err().to_string().contains("it restarted"));
    }

    #[test]
    fn dropped_command_is_killed() {
        let (client, mut guest) = connect(PROTOCOL_VERSION);
        let client = client.unwrap();
        let (handle, id) = command(&client, &mut guest);
        drop(handle);
        assert_eq!(guest.next(), (id, ToGuest::Signal(9)));
        let (handle, id) = command(&client, &mut guest);
        guest.say(id, ToHost::Exit(niclab_agent::ExitStatus::Code(0)));
        handle.next().unwrap();
        drop(handle);
        client.power_off();
        assert_eq!(guest.next().1, ToGuest::PowerOff, "a command that ended is not killed");
    }
}
