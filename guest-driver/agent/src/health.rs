//! What the guest sees of its NIC, read from sysfs.

use std::{fs, path::Path};

use niclab_agent::Health;

/// The virtio device identity of the cluster function, as sysfs shows it.
const CLUSTER_FUNCTION: &str = "0x0026";

/// Reads the NIC's state below `sys` (`/sys`).
pub fn read(sys: &Path) -> Health {
    let device = sys.join("class/niclab/niclab0");
    Health {
        driver: driver(&sys.join("bus/virtio/devices")),
        bar_ready: number(&device.join("healthy")) == Some(1),
        link_up: any_entry(&sys.join("class/net"), |interface| {
            let driver = fs::read_link(interface.join("device/driver")).unwrap_or_default();
            driver.ends_with("virtio_net") && number(&interface.join("carrier")) == Some(1)
        }),
        interrupts: number(&device.join("interrupts")),
    }
}

/// The driver of the cluster function among these devices: the name of what its link `driver` leads to.
fn driver(devices: &Path) -> Option<String> {
    let is_ours = |device: &Path| {
        fs::read_to_string(device.join("device")).is_ok_and(|id| id.trim() == CLUSTER_FUNCTION)
    };
    let mut devices = fs::read_dir(devices).ok()?.flatten().map(|entry| entry.path());
    let link = fs::read_link(devices.find(|device| is_ours(device))?.join("driver")).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

fn any_entry(folder: &Path, wanted: impl Fn(&Path) -> bool) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(|entry| wanted(&entry.path())))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(sys: &Path, path: &str, text: &str) {
        let path = sys.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn each_condition_is_seen_alone() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        assert_eq!(read(sys), Health::default());

        let devices = sys.join("bus/virtio/devices");
        write(sys, "bus/virtio/devices/virtio1/device", "0x0001\n");
        symlink("../../drivers/virtio_net", devices.join("virtio1/driver")).unwrap();
        write(sys, "bus/virtio/devices/virtio2/device", "0x0026\n");
        assert_eq!(read(sys).driver, None, "another device's driver");
        symlink("../../drivers/my_own", devices.join("virtio2/driver")).unwrap();
        assert_eq!(read(sys).driver.as_deref(), Some("my_own"));

        write(sys, "class/niclab/niclab0/healthy", "0\n");
        assert!(!read(sys).bar_ready);
        write(sys, "class/niclab/niclab0/healthy", "1\n");
        write(sys, "class/niclab/niclab0/interrupts", "42\n");
        assert!(read(sys).bar_ready);
        assert_eq!(read(sys).interrupts, Some(42));

        write(sys, "class/net/lo/carrier", "1\n");
        assert!(!read(sys).link_up, "the loopback is no card");
        write(sys, "class/net/eth0/carrier", "1\n");
        fs::create_dir_all(sys.join("class/net/eth0/device")).unwrap();
        symlink("../../../bus/virtio/drivers/virtio_net", sys.join("class/net/eth0/device/driver")).unwrap();
        assert!(read(sys).link_up);
        write(sys, "class/net/eth0/carrier", "0\n");
        assert!(!read(sys).link_up);
    }
}
