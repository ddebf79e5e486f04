//! DPDK's `testpmd` with two vhost ports and the same front end, for comparison.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

use super::BenchError;
use super::ethernet::{BUFFER_BYTES, Figures, Pair, QUEUE_SIZE};
use crate::frontend::EthernetGuest;

/// How long `testpmd` may take to listen on its sockets.
const START: Duration = Duration::from_secs(20);

/// `testpmd` could not be measured.
#[derive(Debug, Error)]
pub enum TestpmdError {
    /// It does not start.
    #[error("cannot run {}: {error}; install the package dpdk-dev, or leave out --testpmd", path.display())]
    Run {
        /// The program.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// It ended, or does not listen.
    #[error("{} does not listen on its vhost sockets: {what}", path.display())]
    Silent {
        /// The program.
        path: PathBuf,
        /// Its end, or the time limit.
        what: String,
    },
}

/// The process, which is killed when this value is dropped.
struct Testpmd(Child);

impl Drop for Testpmd {
    fn drop(&mut self) {
        // Fails only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures two vhost ports with `pairs` queue pairs of the `testpmd` at `path`. It forwards the frames of each port
/// to the other.
pub fn measure(path: &Path, duration: Duration, pairs: usize) -> Result<Figures, BenchError> {
    let folder = tempfile::Builder::new()
        .prefix("niclab-testpmd-")
        .tempdir()
        .map_err(|error| TestpmdError::Run { path: path.to_owned(), error })?;
    let sockets = [folder.path().join("0"), folder.path().join("1")];
    let mut process = start(path, folder.path(), &sockets, pairs)?;
    wait_for(&mut process, path, &sockets)?;
    let guest = |socket: &PathBuf| {
        EthernetGuest::connect_pairs(socket, pairs, QUEUE_SIZE, BUFFER_BYTES, 1 << VIRTIO_NET_F_MRG_RXBUF)
    };
    let guests = [guest(&sockets[0])?, guest(&sockets[1])?];
    let mut pair = Pair::new(guests, [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]]);
    pair.measure(duration, || ())
}

fn start(path: &Path, folder: &Path, sockets: &[PathBuf; 2], pairs: usize) -> Result<Testpmd, TestpmdError> {
    let device = |index: usize, socket: &PathBuf| {
        format!("--vdev=net_vhost{index},iface={},queues={pairs}", socket.display())
    };
    let devices = sockets.iter().enumerate().map(|(index, socket)| device(index, socket));
    let mut command = Command::new(path);
    // No huge pages, so that the host reserves nothing. One core forwards, the other only waits for commands.
    command
        .args(["--no-huge", "-m", "512", "--no-pci", "-l", "0,1", "--file-prefix", "niclab"])
        .args(devices)
        .args(["--", "--forward-mode=io", "--auto-start", "--nb-cores=1", "--total-num-mbufs=8192"])
        .args(["--stats-period=3600", "--no-mlockall"])
        .args([format!("--rxq={pairs}"), format!("--txq={pairs}")])
        .env("XDG_RUNTIME_DIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().map(Testpmd).map_err(|error| TestpmdError::Run { path: path.to_owned(), error })
}

fn wait_for(process: &mut Testpmd, path: &Path, sockets: &[PathBuf; 2]) -> Result<(), TestpmdError> {
    let silent = |what: String| TestpmdError::Silent { path: path.to_owned(), what };
    let begin = Instant::now();
    while !sockets.iter().all(|socket| socket.exists()) {
        if let Ok(Some(status)) = process.0.try_wait() {
            return Err(silent(format!("it ended with {status}")));
        }
        if begin.elapsed() > START {
            return Err(silent(format!("it made no sockets within {} s", START.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
