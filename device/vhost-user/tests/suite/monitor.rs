//! The monitor answers even if all nodes stay locked, clients connect and send nothing, or observers do not read.

use niclab_device::shell::observers;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::process::Process;
use crate::common::{TIMEOUT, lab, until};
use niclab_device::lab::Lab;
use niclab_device::monitor::answer_by;
use niclab_device::monitor::connections::{MAX_CONNECTIONS, MAX_WATCHES};
use niclab_device::monitor::heart::Heart;
use niclab_device::watch::WatchError;
use niclab_spec::monitor::{Answer, LOCK_TIMEOUT, Request, STATS_VERSION};
use niclab_spec::{DeviceFaults, DeviceFaultsChange, Faults, FaultsChange, WatchRequest, WatchSubject};

struct Client(BufReader<UnixStream>);

impl Client {
    fn silent(lab: &Lab) -> Self {
        let stream = UnixStream::connect(&lab.config().monitor_socket).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, request: &Request) -> Answer {
        let line = serde_json::to_string(request).unwrap() + "\n";
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn is_served(&mut self) -> bool {
        matches!(self.ask(&Request::Heartbeat), Answer::Heartbeat(_))
    }

    fn is_hung_up_on(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0))
    }
}

fn watch() -> Request {
    Request::Watch(WatchRequest {
        subject: WatchSubject::Trace,
        links: Vec::new(),
        messages: None,
        live: false,
    })
}

#[test]
fn held_lock_is_reported_with_its_duration() {
    let lab = lab(2);
    let shell = lab.daemon().shell();
    let heart = Heart::new(Duration::from_millis(10));
    let held_ms = |request: &Request| match answer_by(shell, &heart, request) {
        Answer::Stuck(stuck) => {
            assert_eq!(stuck.version, STATS_VERSION);
            Some(stuck.wall_held_ms)
        }
        Answer::Error { message } => panic!("{message}"),
        _ => None,
    };
    let node = || "node0".to_owned();
    let requests = [
        Request::Heartbeat,
        Request::Stats,
        Request::BeginMeasurement,
        Request::Health,
        Request::Faults,
        Request::ChangeFaults { node: node(), change: FaultsChange::default() },
        Request::SetFaults { node: node(), faults: Faults::default() },
        Request::ChangeDeviceFaults { node: node(), change: DeviceFaultsChange::new() },
        Request::SetDeviceFaults { node: node(), faults: DeviceFaults::default() },
    ];
    assert!(requests.iter().all(|request| held_ms(request).is_none()), "all are answered");

    let locked = shell.lock_all();
    let mut last = 0;
    for (number, request) in (1..).zip(&requests) {
        let held = held_ms(request).unwrap_or_else(|| panic!("{request:?} had the lock"));
        assert!(
            held >= last && held >= 10 * number,
            "{held} ms after {number} requests of 10 ms, {last} before"
        );
        last = held;
    }
    // Over the socket, with the socket's own timeout.
    match Client::silent(&lab).ask(&Request::Heartbeat) {
        Answer::Stuck(stuck) => assert!(u128::from(stuck.wall_held_ms) >= LOCK_TIMEOUT.as_millis()),
        other => panic!("{other:?}"),
    }
    let Request::Watch(request) = watch() else { unreachable!() };
    assert_eq!(observers::begin(shell, &request).unwrap_err(), WatchError::Stuck);
    drop(locked);

    assert!(requests.iter().all(|request| held_ms(request).is_none()), "all are answered again");
    let locked = shell.lock_all();
    assert!(held_ms(&Request::Heartbeat).unwrap() < last, "the time is that of another holder");
    drop(locked);
}

#[test]
fn silent_clients_do_not_block_others() {
    let lab = lab(2);
    let mut clients: Vec<Client> = (0..MAX_CONNECTIONS).map(|_| Client::silent(&lab)).collect();
    // The second client is silent for a shorter time than the third.
    assert!(clients[1].is_served());
    let mut last = Client::silent(&lab);
    assert!(last.is_served());
    assert!(clients[0].is_hung_up_on(), "the longest silent client is closed");
    assert!(clients[1].is_served() && clients[2].is_served() && last.is_served());
    for _ in 0..10 * MAX_CONNECTIONS {
        clients.push(Client::silent(&lab));
    }
    assert!(Client::silent(&lab).is_served());
}

#[test]
fn long_requests_end_with_their_connection() {
    let daemon = Process::start(1);
    let names = || -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.id())).unwrap();
        let name =
            |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        tasks.map(|task| name(task.unwrap()).trim().to_owned()).collect()
    };
    let threads = || names().len();
    // When the daemon has answered, all its own threads are running.
    assert!(matches!(daemon.ask(&Request::Heartbeat), Answer::Heartbeat(_)));
    until("the request's thread ends", || names().iter().all(|name| name != "monitor-client"));
    let (threads_before, descriptors_before) = (threads(), daemon.descriptors());
    let mut clients = Vec::new();
    let line = serde_json::to_string(&Request::AwaitBrokenRules { seen: 0 }).unwrap() + "\n";
    for _ in 0..6 * MAX_CONNECTIONS {
        let mut client = UnixStream::connect(daemon.monitor_socket()).unwrap();
        client.write_all(line.as_bytes()).unwrap();
        clients.push(client);
        // A thread that has freed its slot still runs for a moment.
        let (threads, descriptors) = (threads() - threads_before, daemon.descriptors() - descriptors_before);
        assert!(threads <= 2 * MAX_CONNECTIONS, "{threads} threads for {} requests", clients.len());
        assert!(
            descriptors <= 2 * MAX_CONNECTIONS,
            "{descriptors} descriptors for {} requests",
            clients.len()
        );
    }
    // The monitor answers although all threads were in use, long before the requests' own timeout.
    assert!(matches!(daemon.ask(&Request::Heartbeat), Answer::Heartbeat(_)));
    drop(clients);
    // By number, because a thread that has just started does not have its name yet.
    until("threads and descriptors end with their connections", || {
        (threads(), daemon.descriptors()) == (threads_before, descriptors_before)
    });
}

#[test]
fn observers_stay_and_leave_connections_for_requests() {
    let lab = lab(2);
    let mut watching: Vec<Client> = (0..MAX_WATCHES).map(|_| Client::silent(&lab)).collect();
    assert!(watching.iter_mut().all(|client| client.ask(&watch()) == Answer::Watching));
    let mut late = Client::silent(&lab);
    match late.ask(&watch()) {
        Answer::Error { message } => assert!(message.contains("8 connections observe already"), "{message}"),
        other => panic!("{other:?}"),
    }
    let _silent: Vec<Client> = (0..2 * MAX_CONNECTIONS).map(|_| Client::silent(&lab)).collect();
    assert!(Client::silent(&lab).is_served());
    // The daemon notifies them of its end, and did not close them before.
    let ends: Vec<_> = watching
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                client.0.read_to_end(&mut text).unwrap();
                String::from_utf8_lossy(&text).contains("\"watched\"")
            })
        })
        .collect();
    drop(lab);
    assert!(ends.into_iter().all(|end| end.join().unwrap()), "their files are complete");
}

#[test]
fn file_at_the_path_of_the_socket_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "text").unwrap();
    let refused = Lab::new(1, |config| config.monitor_socket.clone_from(&path)).err().unwrap();
    assert!(refused.to_string().contains("is not a socket"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"text");
}

#[test]
fn monitor_socket_is_private() {
    let lab = lab(1);
    let mode = std::fs::metadata(&lab.config().monitor_socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
