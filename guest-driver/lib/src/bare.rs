//! A port without the library's waiting, for programs that poll by themselves.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use niclab_abi::FromBytes;
use niclab_abi::grim::{ChannelExpose, ChannelPayload, OP_CHANNEL_EXPOSE, OP_CHANNEL_PAYLOAD};
use niclab_abi::inic::{OP_POST_GROUP, PostGroup, PostMember};
use niclab_port::atomic::{AtomicPage, AtomicRecords};

use crate::port::{self, Link, Parts, PortOptions};
use crate::region::Region;
use crate::{Address, Device, Error, SharedMemory};

/// An open port that its program drives with [`niclab_port`] directly. It is closed once it and all its regions are
/// dropped.
#[derive(Debug)]
pub struct BarePort {
    link: Arc<Link>,
    requester: SharedMemory,
    completer: SharedMemory,
    status: SharedMemory,
    records: SharedMemory,
    payload: SharedMemory,
}

impl BarePort {
    /// Opens a port of `device`, of any model.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`], [`Error::PortBusy`], [`Error::Refused`], [`Error::DeviceGone`], [`Error::Inconsistent`].
    pub fn open(device: &Device, options: PortOptions) -> Result<Self, Error> {
        Self::from_parts(port::open(device, options)?)
    }

    /// A port of the given parts, of any model.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] names the part that is too small.
    pub fn from_parts(parts: Parts) -> Result<Self, Error> {
        let (requester, completer) = (parts.requester.clone(), parts.completer.clone());
        let (status, records, payload) = (parts.status.clone(), parts.slices.clone(), parts.payload.clone());
        Ok(Self { link: parts.link()?, requester, completer, status, records, payload })
    }

    /// This port on the cluster network.
    pub fn address(&self) -> Address {
        self.link.address
    }

    /// The requester page, and the status that the device reports.
    pub fn page(&self) -> AtomicPage<'_> {
        AtomicPage { requester: self.requester.words(), status: self.status.words() }
    }

    /// The receive queue and its registers.
    pub fn records(&self) -> AtomicRecords<'_> {
        AtomicRecords { records: self.records.words(), completer: self.completer.words() }
    }

    /// The payload region of the outbound queue; empty if the model has none.
    pub fn payload(&self) -> &[AtomicU64] {
        self.payload.words()
    }

    /// Sends a control request for which a workload's transport asks after its region is registered; `operation` is an
    /// `OP_` constant of the contract.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    pub fn request(&self, operation: u32, body: &[u8]) -> Result<(), Error> {
        let backing = &self.link.backing;
        let bad = || Error::BadValue {
            what: "the control request of a transport",
            value: operation.into(),
            range: "a request that ports can make, with its complete body".into(),
        };
        match operation {
            OP_CHANNEL_PAYLOAD => {
                let payload = ChannelPayload::from_bytes(body).ok_or_else(bad)?;
                backing.set_payload(&ChannelPayload { port: 0, ..payload })
            }
            OP_CHANNEL_EXPOSE => {
                let expose = ChannelExpose::from_bytes(body).ok_or_else(bad)?;
                backing.expose(&ChannelExpose { port: 0, ..expose })
            }
            OP_POST_GROUP => {
                let PostGroup { group, .. } = PostGroup::from_bytes(body).ok_or_else(bad)?;
                let members =
                    body.get(PostGroup::BYTES..).unwrap_or_default().chunks_exact(PostMember::BYTES);
                let nodes: Vec<u32> =
                    members.filter_map(PostMember::from_bytes).map(|member| member.node).collect();
                backing.set_group(group, &nodes)
            }
            _ => Err(bad()),
        }
    }

    /// Notifies the device of stores to a page, unless it polls.
    pub fn announce(&self) {
        self.link.announce();
    }

    /// Checks whether the device is alive.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`].
    pub fn check(&self) -> Result<(), Error> {
        self.link.backing.check()
    }

    /// Sets where the port sends. For NICs whose ports have one destination.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    pub fn route(&self, target: Address) -> Result<(), Error> {
        self.link.backing.route(target)
    }

    /// Authorizes `source` to send to the port. If the NIC uses a release interval, set it first.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    pub fn authorize(&self, source: Address, credits: u32) -> Result<(), Error> {
        self.link.backing.authorize(source, credits)
    }

    /// Allocates and registers pages for this port. Returns the region and the device's name for it.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`], [`Error::Refused`], [`Error::DeviceGone`].
    pub fn allocate(&self, bytes: usize) -> Result<(Region, u32), Error> {
        let region = Region::register(&self.link, self.link.backing.allocate(bytes)?)?;
        let name = region.name();
        Ok((region, name))
    }
}
