//! The virtio-serial port through which the host speaks.

use std::{
    fs::{self, OpenOptions},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use niclab_agent::PORT_NAME;

/// Ports and their names appear shortly after their driver.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The polling interval for the port.
const INTERVAL: Duration = Duration::from_millis(20);

/// Opens the port, which may still have to appear.
pub fn open() -> io::Result<OwnedFd> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match try_open() {
            Ok(port) => return Ok(port),
            Err(error) if Instant::now() >= deadline => {
                let text =
                    format!("cannot open the port {PORT_NAME}, which the launcher gives each guest: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
            Err(_) => thread::sleep(INTERVAL),
        }
    }
}

fn try_open() -> io::Result<OwnedFd> {
    let device = find(Path::new("/sys/class/virtio-ports"), PORT_NAME).ok_or(io::ErrorKind::NotFound)?;
    Ok(OpenOptions::new().read(true).write(true).open(Path::new("/dev").join(device))?.into())
}

/// The device name, such as `vport0p1`, of the port with this name. The kernel's device names are independent of it.
fn find(class: &Path, port: &str) -> Option<PathBuf> {
    let mut devices = fs::read_dir(class).ok()?.flatten();
    let is_it = |device: &fs::DirEntry| {
        // A port that has just appeared has no name yet.
        fs::read_to_string(device.path().join("name")).is_ok_and(|name| name.trim_end() == port)
    };
    devices.find(is_it).map(|device| device.file_name().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_by_its_name_once_it_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("virtio-ports");
        assert_eq!(find(&class, "niclab.agent"), None, "no driver yet");
        for (device, name) in
            [("vport0p0", "console\n"), ("vport0p1", ""), ("vport2p1", "niclab.agent.not\n")]
        {
            fs::create_dir_all(class.join(device)).unwrap();
            fs::write(class.join(device).join("name"), name).unwrap();
        }
        assert_eq!(find(&class, "niclab.agent"), None);
        fs::write(class.join("vport0p1/name"), "niclab.agent\n").unwrap();
        assert_eq!(find(&class, "niclab.agent"), Some(PathBuf::from("vport0p1")));
    }
}
