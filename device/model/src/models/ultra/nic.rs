//! The card: requester and completer on one bus and one link.

use alloc::vec::Vec;
use core::fmt::Debug;

use niclab_abi::control::{Authorize, PortOpen, Revoke, Route};
use niclab_abi::receive::StatusLine;

use crate::models::ultra::completer::{AuthorizeError, Completer};
use crate::models::ultra::config::{Config, ConfigError, FlowControl, PORTS};
use crate::models::ultra::counters::{Counters, Effects};
use crate::models::ultra::requester::Requester;
use crate::models::ultra::wire::{Address, MAX_WORDS};
use crate::nic::batch::{Batch, BatchRoute, Batching};
use crate::nic::{Input, Nic, Observed, Statistics};
use crate::parts::card::{nic_of_effects, observed_of_effects};
use crate::parts::control::{self, Answer, ControlError, Controlled};
use crate::parts::effects::{ReplyDue, WorkPrices, empty_reply};
use crate::parts::host_interface::HostInterface;
use crate::parts::routes::Operation;
use crate::platform::node_bus::NodeBus;
use crate::time::Time;

/// All inputs and outputs are short, so no price depends on a length.
const WORK: WorkPrices =
    WorkPrices { input: 10, checked_bytes_in_unit: u64::MAX, output: 5, copied_bytes_in_unit: u64::MAX };

/// An ULTRA card.
#[derive(Debug)]
pub struct Ultra {
    config: Config,
    requester: Requester,
    completer: Completer,
    effects: Effects,
}

impl Ultra {
    /// A card without open ports.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            requester: Requester::new(&config),
            completer: Completer::new(&config),
            effects: Effects::new(HostInterface::new(config.profile.clone()), WORK),
            config,
        })
    }

    /// The card's configuration.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The card's counters.
    pub const fn counters(&self) -> &Counters {
        &self.effects.counters
    }

    fn set_route(&mut self, now: Time, route: &Route) -> Result<(), ControlError> {
        let port = self.open_index(route.port)?;
        let target = self.remote(route.node, route.node_port)?;
        if route.reserved != 0 {
            return Err(ControlError::BadValue);
        }
        // The launched packets were meant for the old route.
        if self.requester.has_packets(port) {
            return Err(ControlError::PortBusy);
        }
        self.requester.set_route(now, port, target, &mut self.effects);
        Ok(())
    }

    fn authorize(&mut self, now: Time, entry: &Authorize) -> Result<(), ControlError> {
        let port = self.open_index(entry.port)?;
        let remote = self.remote(entry.node, entry.node_port)?;
        if entry.credits == 0 && self.config.flow_control == FlowControl::Credit {
            return Err(ControlError::BadValue);
        }
        let (requester, effects) = (&mut self.requester, &mut self.effects);
        self.completer.authorize(now, port, remote, entry.credits, requester, effects).map_err(|error| {
            match error {
                AuthorizeError::BadPort => ControlError::BadPort,
                AuthorizeError::TableFull | AuthorizeError::CreditsExceedQueue => ControlError::NoSpace,
            }
        })
    }

    fn revoke(&mut self, entry: &Revoke) -> Result<(), ControlError> {
        if entry.reserved != 0 {
            return Err(ControlError::BadValue);
        }
        let port = self.open_index(entry.port)?;
        let remote = self.remote(entry.node, entry.node_port)?;
        if self.completer.revoke(port, remote) { Ok(()) } else { Err(ControlError::NotFound) }
    }

    fn remote(&self, node: u32, port: u32) -> Result<Address, ControlError> {
        Address::named(node, port, self.config.nodes, PORTS)
    }

    /// Words of the requester's FIFO RAM for a port that is being opened.
    fn fifo_words(&self, port: usize, open: &PortOpen) -> usize {
        match open.fifo_words {
            0 => self.config.requester_fifo_words[port].into(),
            words => words as usize,
        }
    }
}

impl Controlled for Ultra {
    type Own = Operation;
    type Counters = Counters;
    const PORTS: usize = PORTS;
    const STATUS_BYTES: u64 = size_of::<StatusLine>() as u64;

    fn effects(&mut self) -> &mut Effects {
        &mut self.effects
    }

    fn max_slices(&self) -> u32 {
        self.config.max_slices
    }

    fn is_open(&self, port: usize) -> bool {
        self.completer.is_open(port)
    }

    fn check_open(&self, open: &PortOpen) -> Result<(), ControlError> {
        let (words, ram_words) = (open.fifo_words as usize, usize::from(self.config.fifo_ram_words));
        if words == 0 || (MAX_WORDS..=ram_words).contains(&words) {
            Ok(())
        } else {
            Err(ControlError::BadValue)
        }
    }

    fn may_open(&self, port: usize, open: &PortOpen) -> bool {
        self.config.completer_fifo_words[port] != 0 && self.fifo_words(port, open) != 0
    }

    fn open_port(&mut self, port: usize, open: &PortOpen) -> Result<(), ControlError> {
        let words = self.fifo_words(port, open);
        self.requester.open(port, open.status_address, words).map_err(|_| ControlError::NoSpace)?;
        let words = self.config.completer_fifo_words[port].into();
        if self.completer.open(port, open, words).is_err() {
            self.requester.close(port, &mut self.effects);
            return Err(ControlError::NoSpace);
        }
        Ok(())
    }

    fn close_port(&mut self, _now: Time, port: usize) -> Time {
        let last = self.requester.last_effect(port).max(self.completer.last_effect(port));
        self.requester.close(port, &mut self.effects);
        self.completer.close(port);
        last
    }

    fn on_reset(&mut self) {}

    fn statistics(&self) -> Statistics {
        self.effects.counters.statistics(&self.effects.shell_counts)
    }

    fn own_counters(&self) -> Vec<(&'static str, u64)> {
        self.effects.counters.by_name().into()
    }

    fn carry_out(
        &mut self,
        at: &mut Time,
        own: Operation,
        _due: &mut Option<ReplyDue>,
    ) -> Result<Answer, ControlError> {
        match own {
            Operation::Route(route) => self.set_route(*at, &route)?,
            Operation::Authorize(entry) => self.authorize(*at, &entry)?,
            Operation::Revoke(entry) => self.revoke(&entry)?,
        }
        Ok(Answer::Now(empty_reply()))
    }
}

impl Ultra {
    /// Processes an input. The caller has attached the node's bus.
    #[inline]
    fn take(&mut self, now: Time, input: Input<'_>) {
        let (requester, effects) = (&mut self.requester, &mut self.effects);
        effects.on_input(&input);
        match input {
            Input::PageStore(store) => requester.on_store(now, &store, effects),
            Input::Frame { head, frame, message } => {
                effects.attribute(message);
                self.completer.on_frame((head, now), frame, message.as_ref(), requester, effects);
            }
            Input::Register { port, register } => {
                self.completer.on_register(now, port as usize, register, requester, effects);
            }
            Input::Control { token, request } => control::on_control(self, now, token, request),
            Input::ShellCounts(counts) => effects.shell_counts = counts,
            // This model never reads host memory.
            Input::DmaData { .. } | Input::Borrowed { .. } | Input::BorrowedFrame { .. } => {}
            // This model's host interface consists of pages alone.
            Input::Descriptor(_) | Input::PollDemand { .. } => {}
            Input::Timeout => while requester.on_timeout(now, effects) {},
            Input::HostReset => control::on_host_reset(self, now),
        }
    }
}

impl Nic for Ultra {
    nic_of_effects!(effects);

    #[inline]
    fn batching(&mut self) -> Option<&mut dyn Batching> {
        Some(self)
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        self.requester.next_timeout()
    }

    #[inline]
    fn accepts_store(&self, port: u32) -> bool {
        self.requester.accepts_store(port as usize)
    }

    #[inline]
    fn is_open(&self, port: u32) -> bool {
        self.completer.is_open(port as usize)
    }

    #[inline]
    fn work_done(&self) -> u64 {
        self.effects.spent()
    }
}

impl Batching for Ultra {
    fn route(&self, port: u32, code: u32) -> Option<BatchRoute> {
        if self.effects.takes_batch() { self.requester.batch_route(port, code) } else { None }
    }

    fn room(&self, route: &BatchRoute) -> usize {
        if self.effects.takes_batch() { self.completer.batch_room(route) } else { 0 }
    }

    fn launch(&mut self, batch: &mut Batch, node: &mut NodeBus) {
        self.effects.interface.enter(node);
        self.requester.on_batch(batch, &mut self.effects);
        self.effects.interface.leave(node);
    }

    fn receive(&mut self, batch: &mut Batch, node: &mut NodeBus) {
        self.effects.interface.enter(node);
        self.completer.on_batch(batch, &mut self.effects);
        self.effects.interface.leave(node);
    }
}

impl Observed for Ultra {
    observed_of_effects!(effects);

    fn delivered(&self, port: u32) -> u64 {
        self.completer.stored(port as usize)
    }

    fn whole(&self) -> Option<&dyn Debug> {
        Some(self)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.effects.counters.by_name().into()
    }
}
