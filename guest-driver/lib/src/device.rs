//! A NIC as a program finds it: `/dev/niclabN`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use niclab_abi::config::{DeviceConfig, name_in};
use niclab_abi::ioctl::IOCTL_INFO;
use nix::errno::Errno;

use crate::backing::{descriptor, request_error};
use crate::{Error, Statistics, statistics};

/// Directory of character devices.
const DEVICES: &str = "/dev";
/// The driver's class in sysfs.
const CLASS: &str = "/sys/class/niclab";
/// Names of the character devices, without the number.
const PREFIX: &str = "niclab";

nix::ioctl_read_bad!(
    /// Reads the configuration space.
    request_info,
    IOCTL_INFO,
    DeviceConfig
);

/// A NIC. It owns no port: each port opens the character device itself.
#[derive(Debug)]
pub struct Device {
    path: PathBuf,
    name: String,
    info: DeviceInfo,
}

impl Device {
    /// Opens the NIC of the character device `path`, such as `/dev/niclab0`.
    ///
    /// # Errors
    ///
    /// [`Error::Open`], [`Error::NotNiclab`], [`Error::AbiVersion`], [`Error::DeviceGone`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = open_file(path)?;
        let name = path.display().to_string();
        let config = read_config(&file, path, &name)?;
        check_version(&name, config.abi_version)?;
        Ok(Self { path: path.to_owned(), name, info: DeviceInfo::new(&config) })
    }

    /// Opens the NIC with the lowest number.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`] if there is none, otherwise those of [`Device::open`].
    pub fn open_first() -> Result<Self, Error> {
        let first =
            first_device(Path::new(DEVICES)).ok_or_else(|| Error::NoDevice { directory: DEVICES.into() })?;
        Self::open(first)
    }

    /// The character device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device's properties.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The device's folder in sysfs.
    pub fn sysfs(&self) -> PathBuf {
        Path::new(CLASS).join(self.path.file_name().unwrap_or_default())
    }

    /// Counters of the device since it was created, summed over all ports. They are exact: the difference of two
    /// readings is the cost of a run. Reading costs control requests, but no doorbell and no interrupt of a port.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] names the counter that could not be read.
    pub fn statistics(&self) -> Result<Statistics, Error> {
        statistics::read(&self.name, &self.sysfs().join("statistics"))
    }

    /// Fails unless the NIC has these features. `wanted` names them in the error.
    pub(crate) fn expect(&self, features: u64, wanted: &'static str) -> Result<(), Error> {
        if self.info.has(features) {
            return Ok(());
        }
        Err(Error::MissingFeature { device: self.name.clone(), model: self.info.model.clone(), wanted })
    }

    /// The device's name for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Opens the character device again, for a port.
    pub(crate) fn open_file(&self) -> Result<File, Error> {
        open_file(&self.path)
    }
}

fn open_file(path: &Path) -> Result<File, Error> {
    // Non-blocking, because only `poll` may wait: it takes a time limit.
    let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
    file.map_err(|source| match source.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => Error::DeviceGone { device: path.display().to_string() },
        _ => Error::Open { path: path.to_owned(), source },
    })
}

fn check_version(device: &str, found: u32) -> Result<(), Error> {
    if found == niclab_abi::ABI_VERSION {
        return Ok(());
    }
    Err(Error::AbiVersion { device: device.to_owned(), found, expected: niclab_abi::ABI_VERSION })
}

/// The ABI version that the driver of the character device `path` reports in its folder in `class`. A driver of another
/// version may not know the request for the configuration space.
fn version_in(class: &Path, path: &Path) -> Option<u32> {
    let text = fs::read_to_string(class.join(path.file_name()?).join("abi_version")).ok()?;
    text.trim().parse().ok()
}

fn read_config(file: &File, path: &Path, name: &str) -> Result<DeviceConfig, Error> {
    let mut config = DeviceConfig::default();
    // SAFETY: the request writes `config`, has its size in its code, and `config` lives during the call.
    match unsafe { request_info(descriptor(file), &raw mut config) } {
        Ok(_) if config.magic == niclab_abi::MAGIC => Ok(config),
        Ok(_) | Err(Errno::ENOTTY | Errno::EINVAL) => {
            version_in(Path::new(CLASS), path).map_or(Ok(()), |version| check_version(name, version))?;
            Err(Error::NotNiclab { path: path.to_owned() })
        }
        Err(errno) => Err(request_error(name, errno, "read the configuration".into())),
    }
}

/// The device with the lowest number in `directory`.
fn first_device(directory: &Path) -> Option<PathBuf> {
    let number = |entry: io::Result<fs::DirEntry>| {
        entry.ok()?.file_name().to_str()?.strip_prefix(PREFIX)?.parse::<u32>().ok()
    };
    let lowest = fs::read_dir(directory).ok()?.filter_map(number).min()?;
    Some(directory.join(format!("{PREFIX}{lowest}")))
}

/// Properties of a device, from its configuration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name of the NIC model, for users. Programs check `features`.
    pub model: String,
    /// `FEATURE_` bits of [`niclab_abi::config`].
    pub features: u64,
    /// This node's number, from 0.
    pub node: u32,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Ports that can be open at a time.
    pub ports: u32,
    /// Maximum number of slices of a port's receive queue.
    pub max_slices: u32,
    /// Authorization entries of one port.
    pub authorizations: u32,
    /// Entries of lists that fit into device memory; zero for a NIC without lists.
    pub list_entries: u32,
    /// Maximum bytes of a message.
    pub max_message_bytes: u64,
    /// The length of a message is a multiple of this.
    pub message_unit_bytes: u32,
    /// Bytes of a channel's payload region that the card offers; zero for a NIC without channels.
    pub channel_payload_bytes: u32,
    /// Bytes of a message's first segment; zero: a message has one segment.
    pub channel_segment_bytes: u32,
    /// Longest time a control request may take, wall time.
    pub control_timeout: Duration,
    /// Ethernet address of the card.
    pub mac: [u8; 6],
}

impl DeviceInfo {
    /// Whether the NIC has all of these features: `FEATURE_` bits of [`niclab_abi::config`].
    #[must_use]
    pub const fn has(&self, features: u64) -> bool {
        self.features & features == features
    }

    fn new(config: &DeviceConfig) -> Self {
        let [m0, m1, m2, m3, m4, m5, ..] = config.mac.to_le_bytes();
        Self {
            model: name_in(&config.name_bytes()).unwrap_or_default().to_owned(),
            features: config.features,
            node: config.node,
            nodes: config.nodes,
            ports: config.ports,
            max_slices: config.max_slices,
            authorizations: config.authorizations,
            list_entries: config.list_entries,
            max_message_bytes: config.max_message_bytes,
            message_unit_bytes: config.message_unit_bytes,
            channel_payload_bytes: config.channel_payload_bytes,
            channel_segment_bytes: config.channel_segment_bytes,
            control_timeout: Duration::from_millis(config.control_timeout_ms.into()),
            mac: [m0, m1, m2, m3, m4, m5],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_is_named_with_its_fix() {
        let error = Device::open("/dev/niclab-absent").expect_err("there is none");
        let text = error.to_string();
        assert!(text.contains("/dev/niclab-absent") && text.contains("modprobe niclab"), "{text}");
    }

    #[test]
    fn a_foreign_file_is_no_niclab() {
        assert!(matches!(Device::open("/dev/null"), Err(Error::NotNiclab { .. })));
    }

    #[test]
    fn the_first_device_has_the_lowest_number() {
        let folder = std::env::temp_dir().join(format!("niclab-devices-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        assert_eq!(first_device(&folder), None);
        for name in ["niclab10", "niclab9", "niclab", "niclab-x", "null"] {
            fs::write(folder.join(name), "").expect("a file");
        }
        assert_eq!(first_device(&folder), Some(folder.join("niclab9")));
        fs::remove_dir_all(&folder).expect("clean up");
    }

    #[test]
    fn info_decodes_name_features_and_ethernet_address() {
        let config = DeviceConfig { mac: 0x0605_0403_0201, features: 5, ..DeviceConfig::default() };
        let info = DeviceInfo::new(&config.with_name("some_nic"));
        assert_eq!((info.mac, info.model.as_str()), ([1, 2, 3, 4, 5, 6], "some_nic"));
        assert_eq!([1, 4, 5, 2, 3].map(|features| info.has(features)), [true, true, true, false, false]);
    }

    #[test]
    fn a_driver_of_another_version_is_named_with_the_fix() {
        assert!(check_version("/dev/niclab0", niclab_abi::ABI_VERSION).is_ok());
        let class = std::env::temp_dir().join(format!("niclab-class-{}", std::process::id()));
        fs::create_dir_all(class.join("niclab0")).expect("a folder");
        fs::write(class.join("niclab0/abi_version"), "1\n").expect("a file");
        let old = version_in(&class, Path::new("/dev/niclab0"));
        assert_eq!((old, version_in(&class, Path::new("/dev/niclab1"))), (Some(1), None));
        fs::remove_dir_all(&class).expect("clean up");
        let text = check_version("/dev/niclab0", 1).expect_err("too old").to_string();
        assert!(
            text.contains("/dev/niclab0")
                && text.contains("version 1")
                && text.contains(&format!("library {}", niclab_abi::ABI_VERSION)),
            "{text}"
        );
    }
}
