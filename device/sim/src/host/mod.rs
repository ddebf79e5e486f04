//! Hosts: what a program and its library do with a NIC, operation by operation, one module for each kind of NIC.
//!
//! A host is sans-IO as the models are: it is told what happens at which instant, and says what it wants done by
//! [`Effects`].

pub mod memory;
pub mod ultra;

use niclab_model::nic::FrameBytes;
use niclab_model::parts::message::Message;
use niclab_model::time::Time;

/// A frame, and whose message it carries.
pub type Parcel = (FrameBytes, Option<Message>);

/// What a host and its NIC want done.
#[derive(Debug, Default)]
pub struct Effects {
    /// Frames for the link, each with the instant at which it is ready.
    pub frames: Vec<(Time, Parcel)>,
}
