//! The parts of a port: its memory and backing.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use niclab_abi::PAGE_BYTES;
use niclab_abi::bar::{CompleterPage, InfoPage};
use niclab_abi::receive::{MAX_SLICES, MIN_SLICES, SLICE_WORDS, StatusLine};

use super::{Kind, Link, Queue, Requester};
use crate::{Address, Backing, Error, SharedMemory};

/// The parts of a newly opened port, for code that opens one by other means than the character device.
pub struct Parts {
    /// The port on the cluster network.
    pub address: Address,
    /// Page 0 of the BAR, `niclab_abi::bar::InfoPage`; only read.
    pub info: SharedMemory,
    /// The port's requester page.
    pub requester: SharedMemory,
    /// The port's completer page, `niclab_abi::bar::CompleterPage`.
    pub completer: SharedMemory,
    /// The page with the port's status line, `niclab_abi::receive::StatusLine`, and the model's additions; only read.
    pub status: SharedMemory,
    /// The port's slices or events, a power of two of them; only read.
    pub slices: SharedMemory,
    /// The payload region of the port's outbound queue, `niclab_abi::channels`; empty if the model has none.
    pub payload: SharedMemory,
    /// The backing.
    pub backing: Box<dyn Backing>,
}

impl Parts {
    /// Builds the state that the halves of a port share, and checks the size of the parts.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] names the part that is too small.
    pub(crate) fn link(self) -> Result<Arc<Link>, Error> {
        // The type of the records does not matter: their layout is the same.
        let (link, ..) = self.assemble::<niclab_port::slices::Slice>()?;
        Ok(link)
    }

    /// Builds the halves of a port, and the state that they share.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] names the part that is too small.
    pub(crate) fn assemble<K: Kind>(self) -> Result<(Arc<Link>, Requester, Queue<K>), Error> {
        let Self { address, info, requester, completer, status, slices, payload: _, backing } = self;
        let device = backing.name().to_owned();
        let need = |what: &str, memory: &SharedMemory, bytes: usize| {
            let have = memory.words().len() * 8;
            if have >= bytes {
                return Ok(());
            }
            Err(Error::Inconsistent {
                device: device.clone(),
                what: format!("the {what} has {have} bytes instead of at least {bytes}"),
            })
        };
        need("information page", &info, size_of::<InfoPage>())?;
        need("requester page", &requester, PAGE_BYTES as usize)?;
        need("completer page", &completer, size_of::<CompleterPage>())?;
        need("status line", &status, size_of::<StatusLine>())?;
        let count = slices.words().len() / SLICE_WORDS;
        let count = u32::try_from(count)
            .ok()
            .filter(|count| (MIN_SLICES..=MAX_SLICES).contains(count) && count.is_power_of_two());
        let Some(count) = count else {
            return Err(Error::Inconsistent {
                device,
                what: format!(
                    "receive memory of {} words is not a power of two of slices in {MIN_SLICES}..={MAX_SLICES}",
                    slices.words().len()
                ),
            });
        };
        let link = Arc::new(Link {
            address,
            info,
            received: AtomicU64::new(0),
            rung: AtomicU64::new(0),
            rung_for: AtomicU64::new(0),
            backing,
        });
        let requester = Requester::new(Arc::clone(&link), requester, status);
        let queue = Queue::new(Arc::clone(&link), completer, slices, count);
        Ok((link, requester, queue))
    }
}
