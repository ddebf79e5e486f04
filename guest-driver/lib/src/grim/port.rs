//! One logical channel: a port that pushes messages, and the endpoint that receives them.

use niclab_abi::config::FEATURE_CHANNELS;
use niclab_abi::grim::ChannelExpose;

use super::{Receiver, Sender};
use crate::batch::batching_by_fields;
use crate::port::{self, Parts, PortOptions};
use crate::region::Region;
use crate::{Address, Device, DeviceInfo, Error, SharedMemory, WaitPolicy};

/// Options of a channel, other than those of its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Bytes of the payload region for received messages: the maximum length of a message.
    pub payload_bytes: usize,
    /// Bytes of the outbound queue's payload region that the card offers: the maximum length of a sent message.
    pub outbound_bytes: u64,
    /// Bytes of a message's first segment; each later segment is as long as all before it. 0: a message has one
    /// segment.
    pub first_segment_bytes: u64,
}

impl Terms {
    /// Room for some of the longest messages.
    const PAYLOAD_BYTES: usize = 1 << 20;

    /// The terms of the card: the whole outbound queue, and the cluster's segment size.
    #[must_use]
    pub fn of(info: &DeviceInfo) -> Self {
        Self {
            payload_bytes: Self::PAYLOAD_BYTES,
            outbound_bytes: info.channel_payload_bytes.into(),
            first_segment_bytes: info.channel_segment_bytes.into(),
        }
    }
}

/// An open channel without handlers; [`super::Node`] has handlers. It is closed once it and all its regions are
/// dropped. Messages that have not left by then never arrive ([`Sender::flush`]).
#[derive(Debug)]
pub struct Port {
    /// The half that sends.
    pub sender: Sender,
    /// The half that receives.
    pub receiver: Receiver,
}

impl Port {
    /// Opens a channel of `device`, with the card's own terms.
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

    /// This channel's address on the cluster network.
    pub fn address(&self) -> Address {
        self.sender.address()
    }

    /// Sets how both halves wait; the default is [`WaitPolicy::ADAPTIVE`].
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.sender.set_wait_policy(policy);
        self.receiver.set_wait_policy(policy);
    }
}

impl Sender {
    /// Allocates and registers zeroed pages for at least `bytes` bytes for this channel. Other nodes cannot write to
    /// them before [`Sender::expose`].
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`], [`Error::Refused`], with `ENOSPC` if the device has no free region;
    /// [`Error::DeviceGone`].
    pub fn allocate(&self, bytes: usize) -> Result<Region, Error> {
        self.register(self.link().backing.allocate(bytes)?)
    }

    /// Registers memory for this channel. Its pages are pinned, so `ulimit -l` must allow them.
    ///
    /// # Errors
    ///
    /// As [`Sender::allocate`].
    pub fn register(&self, memory: SharedMemory) -> Result<Region, Error> {
        Region::register(self.link(), memory)
    }

    /// Lets memory messages for this channel write to a region, or, with `false`, revokes that. Returns the region's
    /// name, by which senders address it.
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

batching_by_fields!(Port: sender, receiver);
