//! How often wall time decided the order in which a node did things.
//!
//! The device sees a program's posts when it polls. What else happened to the node before or after a post is known only
//! where the program says so, or where model time decides it. The count of the other cases is reported.

use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Time;

/// The order of a node's inputs.
#[derive(Debug, Default)]
pub struct InputOrder {
    /// Inputs whose order wall time decided.
    pub race_decided: u64,
    /// Of the model's own count, those that lockstep has ordered.
    pub ordered_by_lockstep: u64,
    /// The node from which the last message came.
    last_sender: Option<u16>,
    /// The latest time at which the node acted, or received something.
    acted: Time,
    /// The latest time at which the model continued by itself.
    continued: Time,
}

impl InputOrder {
    /// A measurement begins: earlier senders do not matter.
    pub const fn begin(&mut self) {
        self.last_sender = None;
    }

    /// Whether the model has never continued by itself.
    #[inline]
    pub fn is_driven(&self) -> bool {
        self.continued == Time::ZERO
    }

    /// The node acts, or receives something. If its model has continued with something later in model time, wall time
    /// decided that this came first.
    #[inline]
    pub fn acts_at(&mut self, at: Time) {
        self.race_decided += u64::from(at < self.continued);
        self.acted = self.acted.max(at);
    }

    /// The model continues with pending work. An earlier action of the node has already been taken.
    pub fn continues_at(&mut self, due: Time) {
        self.race_decided += u64::from(due < self.acted);
        self.continued = self.continued.max(due);
    }

    /// A frame arrives. Messages of several senders meet in the order in which the shell delivers them.
    #[inline]
    pub fn receives(&mut self, at: Time, message: Option<TraceTag>) {
        self.acts_at(at);
        if let Some(message) = message {
            let is_other = self.last_sender.replace(message.node).is_some_and(|last| last != message.node);
            self.race_decided += u64::from(is_other);
        }
    }
}
