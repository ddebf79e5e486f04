//! The daemon as a separate process.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use niclab_device::frontend::{ClusterGuest, EthernetGuest};
use niclab_spec::daemon::{DaemonConfig, NodeSockets, READY_LINE};
use niclab_spec::monitor::{Answer, NodeHealth, Request};
use niclab_spec::report::NodeFigures;
use niclab_spec::{ClusterFile, Source};
use parking_lot::Mutex;

use super::until;

/// A running daemon, which is killed when this value is dropped.
pub struct Process {
    child: Child,
    config: DaemonConfig,
    log: Arc<Mutex<String>>,
    is_ended: bool,
    _folder: tempfile::TempDir,
}

/// Makes the next program inherit only the standard streams.
fn inherit_no_descriptor() -> io::Result<()> {
    // SAFETY: the call changes flags of descriptors only.
    match unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Process {
    /// A daemon for `nodes` nodes that listens.
    pub fn start(nodes: u16) -> Self {
        Self::with_queues(nodes, 1)
    }

    /// A daemon for `nodes` nodes whose Ethernet functions have `queues` queue pairs.
    pub fn with_queues(nodes: u16, queues: u32) -> Self {
        let folder = tempfile::Builder::new().prefix("niclab-").tempdir().unwrap();
        let source = Source::from_text("test", format!("nodes = {nodes}\nqueues = {queues}"));
        let cluster = source.resolve(&source.parse::<ClusterFile>().unwrap()).unwrap();
        let place = |name: String| folder.path().join(name);
        let config =
            DaemonConfig::new(&cluster, &"test".parse().unwrap(), place("monitor".to_owned()), |rank| {
                NodeSockets {
                    cluster_socket: place(format!("{rank}.cluster")),
                    ethernet_socket: place(format!("{rank}.ethernet")),
                }
            });
        let file = place("daemon.json".to_owned());
        std::fs::write(&file, serde_json::to_vec(&config).unwrap()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_niclab-device"));
        // Tests run at the same time in this process. The vhost-user library receives descriptors that a child
        // inherits. SAFETY: the call is one that a child may make before it runs another program.
        unsafe { command.pre_exec(inherit_no_descriptor) };
        let mut child = command
            .arg("--config")
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (stderr, kept) = (child.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let Ok(line) = line else { return };
                eprintln!("{line}");
                let mut kept = kept.lock();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready.trim(), READY_LINE, "{}", log.lock());
        Self { child, config, log, is_ended: false, _folder: folder }
    }

    /// Ends the daemon as its launcher does, and waits for the end.
    pub fn end(mut self) {
        self.child.stdin = None;
        assert!(self.child.wait().unwrap().success());
        self.is_ended = true;
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Socket of the cluster function, for QEMU.
    pub fn cluster_socket(&self, node: usize) -> PathBuf {
        self.config.nodes[node].cluster_socket.clone()
    }

    /// Socket of the Ethernet function, for QEMU.
    pub fn ethernet_socket(&self, node: usize) -> PathBuf {
        self.config.nodes[node].ethernet_socket.clone()
    }

    /// Socket of the monitor.
    pub fn monitor_socket(&self) -> PathBuf {
        self.config.monitor_socket.clone()
    }

    /// Address of a node's card.
    pub fn mac(&self, node: usize) -> [u8; 6] {
        self.config.nodes[node].mac.0
    }

    /// A guest on the cluster function of `node`.
    pub fn guest(&self, node: usize) -> Arc<ClusterGuest> {
        Arc::new(ClusterGuest::connect(&self.cluster_socket(node), 4 << 20).unwrap())
    }

    /// A guest on the Ethernet function of `node` with all its queue pairs, once its queues are started.
    pub fn ethernet(&self, node: usize) -> EthernetGuest {
        let pairs = self.config.nodes[node].queues as usize;
        let socket = self.ethernet_socket(node);
        let mut guest = EthernetGuest::connect_pairs(&socket, pairs, 256, 2048, 0).unwrap();
        if pairs > 1 {
            // The reply comes after all queues have started.
            guest.connection().queue_count().unwrap();
        }
        until("the queues", || self.health(node).ethernet_driver_ok);
        guest
    }

    /// Sends a request over the monitor's socket.
    pub fn ask(&self, request: &Request) -> Answer {
        let stream = UnixStream::connect(&self.config.monitor_socket).unwrap();
        (&stream).write_all((serde_json::to_string(request).unwrap() + "\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Counters of `node`.
    pub fn stats(&self, node: usize) -> NodeFigures {
        match self.ask(&Request::Stats) {
            Answer::Stats(mut stats) => stats.nodes.swap_remove(node),
            other => panic!("{other:?}"),
        }
    }

    /// Violations of `node` so far, by name.
    pub fn violations(&self, node: usize) -> BTreeMap<String, u64> {
        self.stats(node).violations
    }

    fn health(&self, node: usize) -> NodeHealth {
        match self.ask(&Request::Health) {
            Answer::Health(mut health) => health.nodes.swap_remove(node),
            other => panic!("{other:?}"),
        }
    }

    /// Whether a front end is connected to the cluster function, and to the Ethernet function.
    pub fn connected(&self, node: usize) -> (bool, bool) {
        let health = self.health(node);
        (health.cluster_connected, health.ethernet_connected)
    }

    /// Waits until a logged line contains this text.
    pub fn wait_for_log(&self, part: &str) {
        until(part, || self.log.lock().contains(part));
    }

    /// Number of logged lines that contain this text.
    pub fn count_in_log(&self, part: &str) -> usize {
        self.log.lock().lines().filter(|line| line.contains(part)).count()
    }

    /// Clears the log.
    pub fn forget_log(&self) {
        self.log.lock().clear();
    }

    fn descriptor_numbers(&self) -> Vec<String> {
        let folder = std::fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap();
        folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Number of open descriptors, which may include those of this value's own requests.
    pub fn descriptors(&self) -> usize {
        self.descriptor_numbers().len()
    }

    /// Number of descriptors that the daemon watches with epoll.
    pub fn watched(&self) -> usize {
        let info = |number: &String| std::fs::read_to_string(format!("/proc/{}/fdinfo/{number}", self.id()));
        let count = |info: String| info.lines().filter(|line| line.starts_with("tfd:")).count();
        self.descriptor_numbers().iter().map(|number| info(number).map_or(0, count)).sum()
    }

    /// Sets the maximum number of open descriptors.
    pub fn limit_descriptors(&self, most: u64) {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: 4096 };
        // SAFETY: the call reads the structure, and does not return the old limit.
        let set = unsafe {
            libc::prlimit(
                self.id() as libc::pid_t,
                libc::RLIMIT_NOFILE,
                &raw const limit,
                std::ptr::null_mut(),
            )
        };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_ended {
            return;
        }
        let status = self.child.try_wait().unwrap();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            assert_eq!(status, None, "the daemon died");
        }
    }
}
