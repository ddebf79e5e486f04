//! Firmware images that drivers load ([`niclab_abi::firmware`]): where they lie, and which requests wait for them.

use alloc::vec::Vec;

use niclab_abi::firmware::FirmwareLoad;

use crate::nic::{FrameBytes, HostRange};
use crate::parts::control::{Answer, ControlError};
use crate::parts::counters::Counting;
use crate::parts::effects::{Effects, ReplyDue};
use crate::time::Time;

/// The memory of an image; none for the built-in firmware.
pub fn image_range(load: &FirmwareLoad) -> Option<HostRange> {
    (load.bytes > 0).then_some(HostRange { address: load.address, bytes: load.bytes.into() })
}

/// The images that are being read, and the requests that wait for them: at most as many as the control queue holds.
#[derive(Debug, Default)]
pub struct ImageReads(Vec<(u64, ReplyDue)>);

impl ImageReads {
    /// Checks a request. Returns the memory of the image.
    ///
    /// # Errors
    /// Why it is invalid.
    pub fn checked(load: &FirmwareLoad) -> Result<Option<HostRange>, ControlError> {
        if load.reserved != 0 {
            return Err(ControlError::BadValue);
        }
        match image_range(load) {
            Some(range) if range.address.checked_add(range.bytes).is_none() => Err(ControlError::BadAddress),
            range => Ok(range),
        }
    }

    /// Reads an image. The reply follows once the image has arrived.
    pub fn begin<C: Counting>(
        &mut self,
        at: Time,
        range: HostRange,
        due: &mut Option<ReplyDue>,
        effects: &mut Effects<C>,
    ) -> Answer {
        let token = effects.next_token();
        effects.dma_read(at, token, [range].into_iter().collect(), FrameBytes::new());
        self.0.extend(due.take().map(|due| (token, due)));
        Answer::Later
    }

    /// The pending reply, if this was the read of an image.
    pub fn take(&mut self, token: u64) -> Option<ReplyDue> {
        let place = self.0.iter().position(|(read, _)| *read == token)?;
        Some(self.0.remove(place).1)
    }

    /// Discards all reads: the driver is gone.
    pub fn clear(&mut self) {
        self.0.drain(..).for_each(|(_, due)| due.void());
    }
}

impl Drop for ImageReads {
    fn drop(&mut self) {
        self.clear();
    }
}
