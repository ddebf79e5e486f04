//! A card with only a MAC endpoint. It stores received frames, and sends frames of the test.

use niclab_device::shell::dispatch;
use std::collections::VecDeque;
use std::sync::Arc;

use niclab_device::lab::Lab;
use niclab_model::fabric::ethernet::mac_of_endpoint;
use niclab_model::nic::{HostRanges, Input, Nic, Observed, Output, ShellCounts, Statistics};
use niclab_model::parts::host_interface::{BusTransfer, HostInterface};
use niclab_model::platform::ledger::Ledger;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::profile::Profile;
use niclab_model::time::{Passage, Time};
use parking_lot::Mutex;

/// The endpoint's port.
pub const PORT: u8 = 4;
/// Name of its peer device.
pub const PERIPHERAL: &str = "io-card";

/// The part of a card that tests can access while the daemon has the card.
#[derive(Default)]
pub struct Wire {
    /// Received frames with their first and last byte times.
    pub heard: Vec<(Passage, Vec<u8>)>,
    /// Frames to send.
    pub to_send: VecDeque<Vec<u8>>,
    /// Whether the card returns each frame to its sender.
    pub answers: bool,
    /// Whether the card has no MAC endpoint for ordinary frames.
    pub is_deaf: bool,
}

/// The card.
pub struct EndpointCard {
    wire: Arc<Mutex<Wire>>,
    clock: Time,
    nic: HostInterface,
    peripheral: HostInterface,
}

impl EndpointCard {
    /// Replaces the card of `node` by such a card.
    pub fn put(lab: &Lab, node: usize) -> Arc<Mutex<Wire>> {
        let wire: Arc<Mutex<Wire>> = Arc::default();
        let [nic, peripheral] = [(); 2].map(|()| HostInterface::new(Profile::ultra_200mhz_htx()));
        let card = Self { wire: Arc::clone(&wire), clock: Time::ZERO, nic, peripheral };
        lab.daemon().shell().lock_all().nodes[node].card.nic = Box::new(card);
        wire
    }

    /// The endpoint's address.
    pub const fn mac(node: usize) -> [u8; 6] {
        mac_of_endpoint(node as u16, PORT)
    }
}

/// The card of node 0 sends a frame. All resulting work is done before this returns.
pub fn send(lab: &Lab, wire: &Mutex<Wire>, frame: &[u8]) {
    wire.lock().to_send.push_back(frame.to_vec());
    let mut locked = lab.daemon().shell().lock_all();
    while dispatch::resume(&mut locked) {
        locked.bump();
    }
    lab.daemon().shell().after_activity(&mut locked);
}

impl Nic for EndpointCard {
    fn handle(&mut self, now: Time, input: Input<'_>, node: &mut NodeBus) {
        self.clock = self.clock.max(now);
        let Input::Frame { frame, head, .. } = input else { return };
        let mut wire = self.wire.lock();
        wire.heard.push((Passage { head, tail: now }, frame.to_vec()));
        if wire.answers {
            let mut answer = frame.to_vec();
            answer.copy_within(6..12, 0);
            answer[6..12].copy_from_slice(&frame[..6]);
            wire.to_send.push_back(answer);
        }
        self.peripheral.enter(node);
        self.peripheral.transfer(BusTransfer::DeviceToDevice, now, frame.len() as u64);
        self.peripheral.leave(node);
    }

    fn memory_named_by(&self, _: &[u8]) -> HostRanges {
        HostRanges::new()
    }

    fn poll_output(&mut self) -> Option<Output> {
        let frame = self.wire.lock().to_send.pop_front()?;
        let at = self.clock;
        Some(Output::Frame { at, tail: at, frame: (&*frame).into(), message: None })
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn accepts_store(&self, _: u32) -> bool {
        false
    }

    fn is_open(&self, _: u32) -> bool {
        false
    }

    fn has_mac_endpoints(&self) -> bool {
        !self.wire.lock().is_deaf
    }
}

impl Observed for EndpointCard {
    fn delivered(&self, _: u32) -> u64 {
        0
    }

    fn unordered(&self) -> u64 {
        0
    }

    fn ledger(&self) -> &Ledger {
        self.nic.ledger()
    }

    fn ledger_mut(&mut self) -> &mut Ledger {
        self.nic.ledger_mut()
    }

    fn peripherals(&self) -> Vec<(&'static str, &Ledger)> {
        vec![(PERIPHERAL, self.peripheral.ledger())]
    }

    fn peripheral_ledgers_mut(&mut self) -> Vec<&mut Ledger> {
        vec![self.peripheral.ledger_mut()]
    }

    fn statistics(&self, _: &ShellCounts) -> Statistics {
        Statistics::default()
    }
}
