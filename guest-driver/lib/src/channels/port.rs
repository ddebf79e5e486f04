//! One logical channel: a port that pushes messages, and the endpoint that receives them.

use niclab_abi::channels::ChannelExpose;
use niclab_abi::config::FEATURE_CHANNELS;

use super::{Receiver, Sender};
use crate::port::{self, Parts, PortOptions};
use crate::region::Region;
use crate::{Address, Device, DeviceInfo, Error, Memory, WaitPolicy};

/// How a channel is opened; all but the port itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Bytes of the payload region of messages that come. No longer one can be received.
    pub payload_bytes: usize,
    /// Bytes of the payload region of the outbound queue that the card offers: no longer message can be sent.
    pub outbound_bytes: u64,
    /// Bytes of a message that are pushed first; each later segment is as long as all before. 0: messages are pushed
    /// whole.
    pub first_segment_bytes: u64,
}

impl Terms {
    /// Room for some of the longest messages.
    const PAYLOAD_BYTES: usize = 1 << 20;

    /// As the card says: all of the outbound queue, and segments as the cluster has them.
    #[must_use]
    pub fn of(info: &DeviceInfo) -> Self {
        Self {
            payload_bytes: Self::PAYLOAD_BYTES,
            outbound_bytes: info.channel_payload_bytes.into(),
            first_segment_bytes: info.channel_segment_bytes.into(),
        }
    }
}

/// An open channel, without handlers: [`super::Node`] has these. It is closed once it and all its regions are dropped;
/// what it has sent and has not left by then never arrives ([`Sender::flush`]).
#[derive(Debug)]
pub struct Port {
    /// The half that sends.
    pub sender: Sender,
    /// The half that receives.
    pub receiver: Receiver,
}

impl Port {
    /// Opens a channel of `device`, on terms that fit it.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFeature`], [`Error::BadValue`], [`Error::NoMemory`], [`Error::PortBusy`], [`Error::Refused`],
    /// [`Error::DeviceGone`].
    pub fn open(device: &Device, options: PortOptions) -> Result<Self, Error> {
        Self::open_on(device, options, Terms::of(device.info()))
    }

    /// Opens a channel of `device`.
    ///
    /// # Errors
    ///
    /// As [`Port::open`].
    pub fn open_on(device: &Device, options: PortOptions, terms: Terms) -> Result<Self, Error> {
        device.expect(FEATURE_CHANNELS, "logical channels")?;
        Self::from_parts(port::open(device, options)?, terms)
    }

    /// A channel of the given parts.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] names the part that is too small; as [`Port::open`].
    pub fn from_parts(parts: Parts, terms: Terms) -> Result<Self, Error> {
        let window = parts.payload.clone();
        let (link, requester, queue) = parts.assemble()?;
        let memory = link.backing.allocate(terms.payload_bytes)?;
        let region = Region::register(&link, memory)?;
        let sender = Sender::new(requester, window, terms.outbound_bytes, terms.first_segment_bytes);
        let receiver = Receiver::new(queue, link.address, region, sender.max_bytes())?;
        Ok(Self { sender, receiver })
    }

    /// This channel on the cluster network.
    pub fn address(&self) -> Address {
        self.sender.address()
    }

    /// Sets how both halves wait; [`WaitPolicy::ADAPTIVE`] at first.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.sender.set_wait_policy(policy);
        self.receiver.set_wait_policy(policy);
    }
}

impl Sender {
    /// Registers fresh pages for this channel, zeros all of them: at least `bytes`. Nobody else writes to them before
    /// [`Sender::expose`].
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`], [`Error::Refused`], with `ENOSPC` when the device has no region left;
    /// [`Error::DeviceGone`].
    pub fn allocate(&self, bytes: usize) -> Result<Region, Error> {
        self.register(self.link().backing.allocate(bytes)?)
    }

    /// Registers memory for this channel. Its pages are pinned, so that `ulimit -l` must allow them.
    ///
    /// # Errors
    ///
    /// As [`Sender::allocate`].
    pub fn register(&self, memory: Memory) -> Result<Region, Error> {
        Region::register(self.link(), memory)
    }

    /// Lets memory messages for this channel write into a region, or, with `false`, not any more. Returns the region's
    /// name, which those who write to it give.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] for the region of another channel; [`Error::Refused`], [`Error::DeviceGone`].
    pub fn expose(&self, region: &Region, is_exposed: bool) -> Result<u32, Error> {
        if region.port() != self.address() {
            return Err(Error::BadValue {
                what: "the port that the region is registered for",
                value: region.port().port.into(),
                range: format!("the channel's own, {}", self.address().port),
            });
        }
        let (region, is_exposed) = (region.name(), is_exposed.into());
        self.link().backing.expose(&ChannelExpose { port: 0, region, is_exposed, reserved: 0 })?;
        Ok(region)
    }
}
