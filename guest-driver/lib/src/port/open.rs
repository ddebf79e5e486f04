//! Opening a port through the character device.

use std::fs::File;
use std::sync::Arc;

use niclab_abi::PAGE_BYTES;
use niclab_abi::bar::{WINDOW_COMPLETER, WINDOW_REQUESTER};
use niclab_abi::control::PORT_ANY;
use niclab_abi::grim::WINDOW_CHANNEL_PAYLOAD;
use niclab_abi::ioctl::{
    IOCTL_OPEN_PORT, MAP_INFO, MAP_RECEIVE, MAP_WINDOW_STRIDE, MAP_WINDOWS, OpenPort, RECEIVE_SLICES_OFFSET,
};
use niclab_abi::receive::{MAX_SLICES, MIN_SLICES, SLICE_BYTES};
use niclab_port::Windows;
use nix::errno::Errno;

use super::Parts;
use crate::backing::{CharacterDevice, descriptor, request_error};
use crate::{Address, Device, Error, SharedMemory};

nix::ioctl_readwrite_bad!(
    /// Opens a port for the file.
    request_open_port,
    IOCTL_OPEN_PORT,
    OpenPort
);

/// How to open a port; the default is any free port, 256 slices or events, and an equal share of the
/// requester's FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOptions {
    port: Option<u32>,
    slices: u32,
    fifo_words: u32,
}

impl Default for PortOptions {
    fn default() -> Self {
        Self { port: None, slices: 256, fifo_words: 0 }
    }
}

impl PortOptions {
    /// Opens this port only.
    #[must_use]
    pub fn port(self, port: u32) -> Self {
        Self { port: Some(port), ..self }
    }

    /// Slices of the receive queue, or events: a power of two from 8 to [`crate::DeviceInfo::max_slices`].
    #[must_use]
    pub fn slices(self, slices: u32) -> Self {
        Self { slices, ..self }
    }

    /// Share of the requester's FIFO memory in 64-bit words (pointer memory, section 3.1); zero for an equal share.
    #[must_use]
    pub fn fifo_words(self, fifo_words: u32) -> Self {
        Self { fifo_words, ..self }
    }
}

/// Opens a port of `device`, of any model, and maps its memory.
///
/// # Errors
///
/// [`Error::BadValue`], [`Error::PortBusy`], [`Error::Refused`], [`Error::DeviceGone`], [`Error::Inconsistent`].
pub(crate) fn open(device: &Device, options: PortOptions) -> Result<Parts, Error> {
    check_options(&options, device)?;
    let file = device.open_file()?;
    let opened = open_port(&file, device.name(), &options)?;
    let map = |what: &str, offset: u64, bytes: usize, write: bool| {
        SharedMemory::map(&file, offset, bytes, write).map_err(|source| Error::Refused {
            device: device.name().into(),
            operation: format!("map the {what} of port {}", opened.port),
            source,
        })
    };
    let inconsistent = |what: String| Error::Inconsistent { device: device.name().into(), what };
    let info = map("information page", MAP_INFO, PAGE_BYTES as usize, false)?;
    let windows = Windows::read(info.words()).map_err(|error| inconsistent(error.to_string()))?;
    let map_window = |what: &str, kind: u32| {
        let place = windows.location(kind, opened.port).map_err(|error| inconsistent(error.to_string()))?;
        let offset = MAP_WINDOWS + MAP_WINDOW_STRIDE * u64::from(place.number);
        map(what, offset, place.pages.len() * PAGE_BYTES as usize, place.is_writable)
    };
    let requester = map_window("requester page", WINDOW_REQUESTER)?;
    let completer = map_window("completer page", WINDOW_COMPLETER)?;
    let payload = match windows.location(WINDOW_CHANNEL_PAYLOAD, opened.port) {
        Ok(_) => map_window("payload region", WINDOW_CHANNEL_PAYLOAD)?,
        Err(_) => SharedMemory::from_words(Arc::default()),
    };
    let receive_bytes = usize::try_from(opened.receive_bytes).unwrap_or(usize::MAX) & !7;
    let receive = map("receive memory", MAP_RECEIVE, receive_bytes, false)?;
    let (status, slices) = receive_parts(&receive, opened.slices).ok_or_else(|| {
        inconsistent(format!(
            "{receive_bytes} bytes of receive memory are too few for {} slices",
            opened.slices
        ))
    })?;
    Ok(Parts {
        address: Address { node: device.info().node, port: opened.port },
        info,
        requester,
        completer,
        status,
        slices,
        payload,
        backing: Box::new(CharacterDevice::new(device.name().into(), file)?),
    })
}

fn check_options(options: &PortOptions, device: &Device) -> Result<(), Error> {
    let most = device.info().max_slices.min(MAX_SLICES);
    if !(MIN_SLICES..=most).contains(&options.slices) || !options.slices.is_power_of_two() {
        return Err(Error::BadValue {
            what: "the number of slices",
            value: options.slices.into(),
            range: format!("a power of two from {MIN_SLICES} to {most}"),
        });
    }
    match options.port {
        Some(port) if port >= device.info().ports => Err(Error::BadValue {
            what: "the port",
            value: port.into(),
            range: format!("less than {}", device.info().ports),
        }),
        _ => Ok(()),
    }
}

fn open_port(file: &File, device: &str, options: &PortOptions) -> Result<OpenPort, Error> {
    let mut argument = OpenPort {
        port: options.port.unwrap_or(PORT_ANY),
        slices: options.slices,
        fifo_words: options.fifo_words,
        ..OpenPort::default()
    };
    let port = options.port.map_or_else(|| "any".to_owned(), |port| port.to_string());
    // SAFETY: the request reads and writes `argument`, has its size in its code, and `argument` lives during the call.
    match unsafe { request_open_port(descriptor(file), &raw mut argument) } {
        Ok(_) => Ok(argument),
        Err(Errno::EBUSY) => Err(Error::PortBusy { device: device.into(), port }),
        Err(Errno::ENOSPC) if options.port.is_none() => Err(Error::PortBusy { device: device.into(), port }),
        Err(errno) => {
            let operation = format!("open port {port} with {} slices", options.slices);
            Err(request_error(device, errno, operation))
        }
    }
}

/// Splits receive memory into the page of the status line and the slices.
fn receive_parts(receive: &SharedMemory, slices: u32) -> Option<(SharedMemory, SharedMemory)> {
    let first = (RECEIVE_SLICES_OFFSET / 8) as usize;
    let words = (SLICE_BYTES / 8) as usize * slices as usize;
    Some((receive.part(0..first)?, receive.part(first..first.checked_add(words)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_memory_is_the_page_of_the_status_line_then_slices() {
        let words = 512 + 8 * 11;
        let receive = SharedMemory::from_words((0..words).map(std::sync::atomic::AtomicU64::new).collect());
        let (status, slices) = receive_parts(&receive, 8).expect("large enough");
        assert_eq!(status.words().len(), 512);
        assert_eq!(niclab_port::atomic::load(&slices.words()[0]), 512);
        assert!(receive_parts(&receive, 16).is_none());
    }
}
