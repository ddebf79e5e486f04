//! The operations of a port that its pages cannot do: doorbell, interrupts, and requests to the device.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::time::Duration;

use niclab_abi::grim::{ChannelExpose, ChannelPayload};
use niclab_abi::inic::PostRules;
use niclab_abi::ioctl::{
    GroupOf, IOCTL_AUTHORIZE, IOCTL_CHANNEL_EXPOSE, IOCTL_CHANNEL_PAYLOAD, IOCTL_CHECK, IOCTL_DEREGISTER,
    IOCTL_GROUP, IOCTL_REGISTER, IOCTL_REVOKE, IOCTL_ROUTE, IOCTL_RULES, MAP_DOORBELL, Peer, Registration,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::memory::Doorbell;
use crate::{Address, Error, SharedMemory};

/// The operations of an open port that its pages cannot do: doorbell, interrupts, and requests to the device.
///
/// In a guest, the kernel driver's character device provides them. A test, or a device daemon in this process, may
/// provide them instead. The port is closed when this value is dropped.
pub trait Backing: Send + Sync {
    /// The device's name, for error messages.
    fn name(&self) -> &str;

    /// Rings the doorbell, which notifies the card of a store. The caller has made that store visible first.
    fn ring(&self);

    /// Returns the number of this port's interrupts since the last call. If there are none, sleeps until the first one,
    /// at most for `timeout`. Returns 0 if the timeout passes or a signal interrupts the sleep.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`] if the implementation already knows that the device is gone.
    fn wait_interrupts(&self, timeout: Duration) -> Result<u64, Error>;

    /// Checks whether the device is alive.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`] if it does not answer within its control timeout.
    fn check(&self) -> Result<(), Error>;

    /// Sets the destination of the port's messages.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    fn route(&self, target: Address) -> Result<(), Error>;

    /// Authorizes `source` to send to the port, with `credits` slices reserved for it.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    fn authorize(&self, source: Address, credits: u32) -> Result<(), Error>;

    /// Revokes the authorization of `source`.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    fn revoke(&self, source: Address) -> Result<(), Error>;

    /// Allocates zeroed pages, at least `bytes` bytes in total, for [`Backing::register`].
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`].
    fn allocate(&self, bytes: usize) -> Result<SharedMemory, Error> {
        SharedMemory::pages(bytes).map_err(|source| Error::NoMemory { bytes, source })
    }

    /// Registers memory with the device, as a region of this port. Returns the region's number. The device may access
    /// the memory until [`Backing::deregister`] has succeeded. The caller must not free the memory before that, and
    /// must never free it if [`Backing::deregister`] fails.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    fn register(&self, memory: &SharedMemory) -> Result<u32, Error>;

    /// Ends the registration of a region. After success the device no longer accesses the memory.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    fn deregister(&self, region: u32) -> Result<(), Error>;

    /// Changes the conditions under which the device interrupts for the port. The caller sets `rules.port` to zero:
    /// the implementation fills in its own port.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    fn set_rules(&self, rules: &PostRules) -> Result<(), Error> {
        let _ = rules;
        Err(request_error(self.name(), Errno::EOPNOTSUPP, "change the interrupt rules".into()))
    }

    /// Creates a group of these nodes for collective operations, or removes the group if `nodes` is empty.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    fn set_group(&self, group: u32, nodes: &[u32]) -> Result<(), Error> {
        let _ = nodes;
        Err(request_error(self.name(), Errno::EOPNOTSUPP, format!("create or remove group {group}")))
    }

    /// Sets the part of a region into which the device stores the payload of messages for the port. The caller sets
    /// `payload.port` to zero: the implementation fills in its own port.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    fn set_payload(&self, payload: &ChannelPayload) -> Result<(), Error> {
        let _ = payload;
        Err(request_error(self.name(), Errno::EOPNOTSUPP, "set a payload region".into()))
    }

    /// Permits memory messages, by which other nodes write into a region of the port, or revokes the permission. The
    /// caller sets `expose.port` to zero: the implementation fills in its own port.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    fn expose(&self, expose: &ChannelExpose) -> Result<(), Error> {
        let _ = expose;
        Err(request_error(self.name(), Errno::EOPNOTSUPP, "expose a region".into()))
    }
}

mod requests {
    //! The `ioctl` requests of `niclab_abi::ioctl`, each with the type of its argument.
    use super::{
        ChannelExpose, ChannelPayload, GroupOf, IOCTL_AUTHORIZE, IOCTL_CHANNEL_EXPOSE, IOCTL_CHANNEL_PAYLOAD,
        IOCTL_CHECK, IOCTL_DEREGISTER, IOCTL_GROUP, IOCTL_REGISTER, IOCTL_REVOKE, IOCTL_ROUTE, IOCTL_RULES,
        Peer, PostRules, Registration,
    };
    nix::ioctl_write_ptr_bad!(route, IOCTL_ROUTE, Peer);
    nix::ioctl_write_ptr_bad!(authorize, IOCTL_AUTHORIZE, Peer);
    nix::ioctl_write_ptr_bad!(revoke, IOCTL_REVOKE, Peer);
    nix::ioctl_none_bad!(check, IOCTL_CHECK);
    nix::ioctl_readwrite_bad!(register, IOCTL_REGISTER, Registration);
    nix::ioctl_write_ptr_bad!(deregister, IOCTL_DEREGISTER, Registration);
    nix::ioctl_write_ptr_bad!(rules, IOCTL_RULES, PostRules);
    nix::ioctl_write_ptr_bad!(group, IOCTL_GROUP, GroupOf);
    nix::ioctl_write_ptr_bad!(payload, IOCTL_CHANNEL_PAYLOAD, ChannelPayload);
    nix::ioctl_write_ptr_bad!(expose, IOCTL_CHANNEL_EXPOSE, ChannelExpose);
}

/// A port of the kernel driver. Each open file of the character device owns one port.
pub(crate) struct CharacterDevice {
    name: String,
    /// Owns the port: the driver closes the port when this file is closed.
    file: File,
    doorbell: Doorbell,
}

impl CharacterDevice {
    /// Takes ownership of a file through which the caller has opened a port.
    pub(crate) fn new(name: String, file: File) -> Result<Self, Error> {
        let doorbell = Doorbell::map(&file, MAP_DOORBELL).map_err(|source| Error::Refused {
            device: name.clone(),
            operation: "map the doorbell page".into(),
            source,
        })?;
        Ok(Self { name, file, doorbell })
    }

    fn result(&self, result: Result<i32, Errno>, operation: impl FnOnce() -> String) -> Result<(), Error> {
        match result {
            Ok(_) => Ok(()),
            Err(errno) => Err(request_error(&self.name, errno, operation())),
        }
    }
}

/// The error of a failed request to the driver.
pub(crate) fn request_error(device: &str, errno: Errno, operation: String) -> Error {
    let device = device.to_owned();
    match errno {
        Errno::ENODEV => Error::DeviceGone { device },
        errno => Error::Refused { device, operation, source: errno.into() },
    }
}

impl Backing for CharacterDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn ring(&self) {
        self.doorbell.ring(niclab_abi::QUEUE_DOORBELL as u16);
    }

    fn wait_interrupts(&self, timeout: Duration) -> Result<u64, Error> {
        let mut files = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
        // Rounded up: a wait of less than a millisecond must not become a busy loop.
        let timeout_ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        match poll(&mut files, PollTimeout::try_from(timeout_ms).unwrap_or(PollTimeout::MAX)) {
            Ok(0) | Err(Errno::EINTR) => return Ok(0),
            Ok(_) => {}
            Err(errno) => return Err(request_error(&self.name, errno, "wait for an interrupt".into())),
        }
        let mut count = [0; 8];
        match (&self.file).read_exact(&mut count) {
            Ok(()) => Ok(u64::from_le_bytes(count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(0)
            }
            Err(error) => {
                let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
                Err(request_error(&self.name, errno, "read the interrupt count".into()))
            }
        }
    }

    fn check(&self) -> Result<(), Error> {
        // SAFETY: the request takes no argument.
        let result = unsafe { requests::check(descriptor(&self.file)) };
        self.result(result, || "check the device".into())
    }

    fn route(&self, target: Address) -> Result<(), Error> {
        let peer = Peer { node: target.node, port: target.port, ..Peer::default() };
        // SAFETY: the request reads `peer`, which outlives the call.
        let result = unsafe { requests::route(descriptor(&self.file), &raw const peer) };
        self.result(result, || format!("route to {target}"))
    }

    fn authorize(&self, source: Address, credits: u32) -> Result<(), Error> {
        let peer = Peer { node: source.node, port: source.port, credits, reserved: 0 };
        // SAFETY: as in `route`.
        let result = unsafe { requests::authorize(descriptor(&self.file), &raw const peer) };
        self.result(result, || format!("authorize {source} for {credits} credits"))
    }

    fn revoke(&self, source: Address) -> Result<(), Error> {
        let peer = Peer { node: source.node, port: source.port, ..Peer::default() };
        // SAFETY: as in `route`.
        let result = unsafe { requests::revoke(descriptor(&self.file), &raw const peer) };
        self.result(result, || format!("revoke {source}"))
    }

    fn register(&self, memory: &SharedMemory) -> Result<u32, Error> {
        let bytes = memory.bytes() as u64;
        let mut registration = Registration { address: memory.address(), bytes, ..Registration::default() };
        // SAFETY: the request reads and writes `registration`, which outlives the call. Later the device accesses
        // `memory`. That is sound, because the words of a `SharedMemory` are atomics, and the caller does not free it.
        let result = unsafe { requests::register(descriptor(&self.file), &raw mut registration) };
        self.result(result, || format!("register {bytes} bytes of memory (more than `ulimit -l` allows?)"))?;
        Ok(registration.region)
    }

    fn deregister(&self, region: u32) -> Result<(), Error> {
        let registration = Registration { region, ..Registration::default() };
        // SAFETY: as in `route`.
        let result = unsafe { requests::deregister(descriptor(&self.file), &raw const registration) };
        self.result(result, || format!("deregister region {region:#x}"))
    }

    fn set_rules(&self, rules: &PostRules) -> Result<(), Error> {
        // SAFETY: as in `route`.
        let result = unsafe { requests::rules(descriptor(&self.file), &raw const *rules) };
        self.result(result, || "change the interrupt rules".into())
    }

    fn set_group(&self, group: u32, nodes: &[u32]) -> Result<(), Error> {
        let members = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let argument = GroupOf { group, members, nodes: nodes.as_ptr().expose_provenance() as u64 };
        // SAFETY: as in `route`; the request also reads `nodes`, which outlives the call.
        let result = unsafe { requests::group(descriptor(&self.file), &raw const argument) };
        self.result(result, || match members {
            0 => format!("remove group {group}"),
            _ => format!("create group {group} of {members} nodes"),
        })
    }

    fn set_payload(&self, payload: &ChannelPayload) -> Result<(), Error> {
        // SAFETY: as in `route`.
        let result = unsafe { requests::payload(descriptor(&self.file), &raw const *payload) };
        self.result(result, || format!("set a payload region of {} bytes", payload.bytes))
    }

    fn expose(&self, expose: &ChannelExpose) -> Result<(), Error> {
        // SAFETY: as in `route`.
        let result = unsafe { requests::expose(descriptor(&self.file), &raw const *expose) };
        self.result(result, || format!("expose region {:#x}", expose.region))
    }
}

/// The file's descriptor, with the type that nix's `ioctl` macros need.
pub(crate) fn descriptor(file: &File) -> std::ffi::c_int {
    use std::os::fd::AsRawFd as _;
    file.as_raw_fd()
}
