//! The state of the guest's NIC, read from sysfs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use niclab_agent::{Health, interrupts_of};

/// The virtio device identity of the cluster function, as sysfs shows it.
const CLUSTER_FUNCTION: &str = "0x0026";

/// Reads the NIC's state from `sys` (`/sys`), and its interrupts from the text of `/proc/interrupts`.
pub fn read(sys: &Path, interrupts_table: &str) -> Health {
    let device = sys.join("class/niclab/niclab0");
    let card = cluster_function(&sys.join("bus/virtio/devices"));
    let card = card.as_deref();
    Health {
        driver: card.and_then(driver),
        bar_ready: number(&device.join("healthy")) == Some(1),
        link_up: any_entry(&sys.join("class/net"), |interface| {
            let driver = fs::read_link(interface.join("device/driver")).unwrap_or_default();
            driver.ends_with("virtio_net") && number(&interface.join("carrier")) == Some(1)
        }),
        interrupts: card.and_then(|card| interrupts_of(interrupts_table, card.file_name()?.to_str()?)),
    }
}

/// The cluster function among these virtio devices.
fn cluster_function(devices: &Path) -> Option<PathBuf> {
    let is_ours = |device: &Path| {
        fs::read_to_string(device.join("device")).is_ok_and(|id| id.trim() == CLUSTER_FUNCTION)
    };
    let mut devices = fs::read_dir(devices).ok()?.flatten().map(|entry| entry.path());
    devices.find(|device| is_ours(device))
}

/// The driver of a device: the name of the target of its link `driver`.
fn driver(device: &Path) -> Option<String> {
    let link = fs::read_link(device.join("driver")).ok()?;
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
    fn interrupts_of_any_driver_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "bus/virtio/devices/virtio2/device", "0x0026\n");
        let table = "           CPU0       CPU1\n 24:  3  4  PCI-MSIX-0000:00:03.0   0-edge   virtio2-my own queue\n \
                     25:  1  1  PCI-MSIX-0000:00:03.1   1-edge   virtio20-input.0\n";
        assert_eq!(read(folder.path(), table).interrupts, Some(7));
        assert_eq!(read(folder.path(), "").interrupts, None, "no driver has requested one");
    }

    #[test]
    fn each_health_condition_is_read_independently() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        assert_eq!(read(sys, ""), Health::default());

        let devices = sys.join("bus/virtio/devices");
        write(sys, "bus/virtio/devices/virtio1/device", "0x0001\n");
        symlink("../../drivers/virtio_net", devices.join("virtio1/driver")).unwrap();
        write(sys, "bus/virtio/devices/virtio2/device", "0x0026\n");
        assert_eq!(read(sys, "").driver, None, "another device's driver");
        symlink("../../drivers/my_own", devices.join("virtio2/driver")).unwrap();
        assert_eq!(read(sys, "").driver.as_deref(), Some("my_own"));

        write(sys, "class/niclab/niclab0/healthy", "0\n");
        assert!(!read(sys, "").bar_ready);
        write(sys, "class/niclab/niclab0/healthy", "1\n");
        assert!(read(sys, "").bar_ready);

        write(sys, "class/net/lo/carrier", "1\n");
        assert!(!read(sys, "").link_up, "the loopback interface does not count");
        write(sys, "class/net/eth0/carrier", "1\n");
        fs::create_dir_all(sys.join("class/net/eth0/device")).unwrap();
        symlink("../../../bus/virtio/drivers/virtio_net", sys.join("class/net/eth0/device/driver")).unwrap();
        assert!(read(sys, "").link_up);
        write(sys, "class/net/eth0/carrier", "0\n");
        assert!(!read(sys, "").link_up);
    }
}
